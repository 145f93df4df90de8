//! A set of bytes that is built at compile time and asked in one load.
//!
//! The grammars of HTTP and URIs are classes of bytes; each class is a `const` of this type, so
//! that a check is a table look-up and a reader sees the class spelled out.

/// A set of byte values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSet([bool; 256]);

impl ByteSet {
    /// The set with no member.
    pub(crate) const EMPTY: Self = Self([false; 256]);

    /// ASCII letters and digits.
    pub(crate) const ALPHANUMERIC: Self = Self::EMPTY
        .with_range(b'0', b'9')
        .with_range(b'A', b'Z')
        .with_range(b'a', b'z');

    /// Union of this set and the given bytes.
    #[must_use]
    pub(crate) const fn with(mut self, bytes: &[u8]) -> Self {
        let mut index = 0;
        while index < bytes.len() {
            // Both are in bounds: the loop's condition, and a byte is below 256.
            self.0[bytes[index] as usize] = true;
            index += 1;
        }
        self
    }

    /// Union of this set and the bytes from `first` to `last`, both included.
    #[must_use]
    pub(crate) const fn with_range(mut self, first: u8, last: u8) -> Self {
        let mut byte = first as usize;
        while byte <= last as usize {
            // In bounds: `last` is a byte.
            self.0[byte] = true;
            byte += 1;
        }
        self
    }

    /// True if `byte` is a member.
    #[inline]
    #[must_use]
    pub(crate) const fn contains(&self, byte: u8) -> bool {
        // In bounds: a byte is below 256.
        self.0[byte as usize]
    }

    /// True if every byte of `bytes` is a member; also for none.
    #[must_use]
    pub(crate) fn contains_all(&self, bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| self.contains(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_holds_what_was_put_in_and_nothing_else() {
        const SET: ByteSet = ByteSet::EMPTY
            .with(b"-_")
            .with_range(b'a', b'c')
            .with_range(250, 255);
        for byte in 0..=255u8 {
            let expected = b"-_abc".contains(&byte) || byte >= 250;
            assert_eq!(SET.contains(byte), expected, "{byte}");
        }
        assert!(SET.contains_all(b"a-c"));
        assert!(SET.contains_all(b""));
        assert!(!SET.contains_all(b"a d"));
    }
}
