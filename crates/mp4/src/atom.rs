//! Atoms: reading their heads, walking over those of a memory, writing them.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | size of the atom with this head; 1: it stands behind the name; 0: nothing follows |
//! | 4 | 4 | name |
//! | 8 | 8 | size, where the first is 1 |
//!
//! Numbers are big endian.

use super::Fault;

/// The longest head of an atom.
pub(crate) const HEAD_MAX: u64 = 16;

/// The usual head of an atom.
const HEAD: u64 = 8;

/// The head of an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Name.
    pub name: [u8; 4],
    /// Bytes of the head.
    pub len: u64,
    /// Bytes of the data behind the head.
    pub data_len: u64,
}

/// The head of the atom at the begin of `bytes`, which has all or [`HEAD_MAX`] of the `left` bytes
/// around it; `None` for the mark of an end.
///
/// # Errors
/// The atom does not fit.
pub(crate) fn head(bytes: &[u8], left: u64) -> Result<Option<Head>, Fault> {
    let (size, len) = match u32_at(bytes, 0).ok_or(Fault::Truncated)? {
        0 => return Ok(None),
        1 => (u64_at(bytes, 8).ok_or(Fault::Truncated)?, HEAD_MAX),
        size => (u64::from(size), HEAD),
    };
    let name = bytes.get(4..8).and_then(|name| name.first_chunk());
    let name = *name.ok_or(Fault::Truncated)?;
    let data_len = size.checked_sub(len).ok_or(Fault::SmallAtom(size))?;
    if size > left {
        Err(Fault::LargeAtom(size))
    } else {
        Ok(Some(Head {
            name,
            len,
            data_len,
        }))
    }
}

/// Calls `visit` with name and data of each atom in `bytes`, until one fails.
///
/// # Errors
/// An atom does not fit, or `visit` fails.
pub(crate) fn for_each<'a, E: From<Fault>>(
    mut bytes: &'a [u8],
    mut visit: impl FnMut([u8; 4], &'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    // Each round takes at least a head from the bytes.
    while !bytes.is_empty() {
        let Some(head) = head(bytes, bytes.len() as u64)? else {
            return Ok(());
        };
        let data = bytes.get(head.len as usize..).unwrap_or_default();
        let (data, rest) = data
            .split_at_checked(head.data_len as usize)
            .ok_or(Fault::Truncated)?;
        visit(head.name, data)?;
        bytes = rest;
    }
    Ok(())
}

/// The number of four bytes at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

/// The number of eight bytes at an offset.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes(*bytes))
}

/// Writes `number` at an offset, which lies within the bytes.
pub(crate) fn put(bytes: &mut [u8], at: usize, number: &[u8]) {
    let place = bytes.get_mut(at..).unwrap_or_default();
    for (byte, new) in place.iter_mut().zip(number) {
        *byte = *new;
    }
}

/// Writes an atom whose data `write` writes. It is shorter than 4 GiB.
pub(crate) fn write(out: &mut Vec<u8>, name: &[u8; 4], write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    write(out);
    let size = u32::try_from(out.len() - begin).unwrap_or(u32::MAX);
    put(out, begin, &size.to_be_bytes());
}

/// Writes an atom, if there is one.
pub(crate) fn write_data(out: &mut Vec<u8>, name: &[u8; 4], data: Option<&[u8]>) {
    if let Some(data) = data {
        write(out, name, |out| out.extend_from_slice(data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(String, Vec<u8>)>;

    fn walk(bytes: &[u8]) -> Result<Seen, Fault> {
        let mut seen = Vec::new();
        for_each(bytes, |name, data| {
            seen.push((String::from_utf8_lossy(&name).into_owned(), data.to_vec()));
            Ok::<(), Fault>(())
        })?;
        Ok(seen)
    }

    #[test]
    fn atoms_are_walked_over_until_their_end() {
        let mut bytes = Vec::new();
        write_data(&mut bytes, b"one ", Some(b"first"));
        write_data(&mut bytes, b"none", None);
        bytes.extend_from_slice(b"\0\0\0\x01long\0\0\0\0\0\0\0\x12ab");
        let expected = [("one ", &b"first"[..]), ("long", b"ab")];
        let expected = expected.map(|(name, data)| (name.to_string(), data.to_vec()));
        assert_eq!(walk(&bytes), Ok(expected.to_vec()));
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(b"anything");
        assert_eq!(walk(&bytes), Ok(expected.to_vec()));
    }

    #[test]
    fn atoms_that_do_not_fit_are_refused() {
        for (bytes, fault) in [
            (&b"\0\0"[..], Fault::Truncated),
            (b"\0\0\0\x08ab", Fault::Truncated),
            (b"\0\0\0\x07name", Fault::SmallAtom(7)),
            (b"\0\0\0\x09name", Fault::LargeAtom(9)),
            (
                b"\xff\xff\xff\xffname",
                Fault::LargeAtom(u64::from(u32::MAX)),
            ),
            (b"\0\0\0\x01name\0\0\0\0", Fault::Truncated),
            (b"\0\0\0\x01name\0\0\0\0\0\0\0\x0f", Fault::SmallAtom(15)),
            (
                b"\0\0\0\x01name\xff\xff\xff\xff\xff\xff\xff\xff",
                Fault::LargeAtom(u64::MAX),
            ),
        ] {
            assert_eq!(walk(bytes), Err(fault), "{bytes:?}");
        }
    }
}
