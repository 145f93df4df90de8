//! Memory of the server-side includes of a page: variables, captures and blocks.
//!
//! The page and all its parts share them.
//!
//! Invariant: names, values and blocks together take at most `MAX_BYTES`.

use bytes::Bytes;

/// Memory of one page (arbitrary: far more than pages need, little for a server).
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// There is no room for more.
#[derive(Debug, thiserror::Error)]
#[error("variables and blocks of the page take more than {MAX_BYTES} bytes")]
pub(super) struct Full;

/// Variables, captures and blocks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    variables: Vec<(Vec<u8>, Bytes)>,
    /// Groups of the last expression that matched.
    captures: Vec<Bytes>,
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Memory {
    /// The value of a variable, or of a group, by its name in small letters.
    pub(super) fn find(&self, name: &[u8]) -> Option<Bytes> {
        if let Some(group) = self.group(name) {
            return self.captures.get(group).cloned();
        }
        let mut variables = self.variables.iter();
        let found = variables.find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }

    fn group(&self, name: &[u8]) -> Option<usize> {
        match name {
            [digit @ b'0'..=b'9'] => {
                Some(usize::from(digit - b'0')).filter(|group| *group < self.captures.len())
            }
            _ => None,
        }
    }

    /// Sets a variable; a group of the last expression keeps its value.
    pub(super) fn set(&mut self, name: &[u8], value: Bytes) -> Result<(), Full> {
        if self.group(name).is_some() {
            return Ok(());
        }
        // A value may be a slice of a larger one, which must not be kept with it.
        let value = Bytes::copy_from_slice(&value);
        let mut variables = self.variables.iter_mut();
        if let Some((_, old)) = variables.find(|(known, _)| known == name) {
            let freed = old.len();
            if self.bytes - freed + value.len() > MAX_BYTES {
                return Err(Full);
            }
            self.bytes = self.bytes - freed + value.len();
            *old = value;
            return Ok(());
        }
        self.take(name.len() + value.len())?;
        self.variables.push((name.to_vec(), value));
        Ok(())
    }

    /// The groups of an expression that matched.
    pub(super) fn set_captures(&mut self, captures: Vec<Bytes>) {
        self.captures = captures;
    }

    /// Begins a block.
    pub(super) fn begin_block(&mut self, name: &[u8]) -> Result<(), Full> {
        self.take(name.len() + size_of::<(Vec<u8>, Vec<u8>)>())?;
        self.blocks.push((name.to_vec(), Vec::new()));
        Ok(())
    }

    /// Adds to the block that was begun last.
    pub(super) fn extend_block(&mut self, text: &[u8]) -> Result<(), Full> {
        self.take(text.len())?;
        if let Some((_, block)) = self.blocks.last_mut() {
            block.extend_from_slice(text);
        }
        Ok(())
    }

    /// The text of the first block of a name.
    pub(super) fn block(&self, name: &[u8]) -> Option<Bytes> {
        let found = self.blocks.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| Bytes::copy_from_slice(text))
    }

    fn take(&mut self, count: usize) -> Result<(), Full> {
        if count > MAX_BYTES - self.bytes {
            return Err(Full);
        }
        self.bytes += count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_their_last_value() {
        let mut memory = Memory::default();
        memory.set(b"a", Bytes::from_static(b"1")).unwrap();
        memory.set(b"a", Bytes::from_static(b"2")).unwrap();
        assert_eq!(memory.find(b"a").as_deref(), Some(&b"2"[..]));
        assert_eq!(memory.find(b"b"), None);
    }

    #[test]
    fn groups_hide_variables_with_their_number() {
        let mut memory = Memory::default();
        memory.set(b"1", Bytes::from_static(b"mine")).unwrap();
        memory.set_captures(vec![Bytes::from_static(b"all"), Bytes::from_static(b"one")]);
        memory.set(b"1", Bytes::from_static(b"lost")).unwrap();
        assert_eq!(memory.find(b"1").as_deref(), Some(&b"one"[..]));
        memory.set_captures(Vec::new());
        assert_eq!(memory.find(b"1").as_deref(), Some(&b"mine"[..]));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut memory = Memory::default();
        memory.begin_block(b"x").unwrap();
        let text = vec![0; MAX_BYTES / 3];
        assert!(memory.extend_block(&text).is_ok());
        assert!(memory.set(b"a", Bytes::from(text.clone())).is_ok());
        assert!(memory.set(b"a", Bytes::from(text.clone())).is_ok());
        assert!(memory.set(b"b", Bytes::from(text.clone())).is_err());
        assert!(memory.extend_block(&text).is_err());
        assert!(memory.set(b"a", Bytes::new()).is_ok());
        assert!(memory.extend_block(&text).is_ok());
    }
}
