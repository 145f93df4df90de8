//! Syntax texts that are joined at compile time.
//!
//! The syntax of `OffOr<T>` contains that of `T`, and the language joins texts only where no type
//! parameter is involved. So the bytes are copied into an array of fixed size in a constant.

/// The longest joined syntax. The longest one in use, a set of some twenty words, has half of it.
const BYTES: usize = 1024;

/// A text that was joined in a constant.
pub(crate) struct Joined {
    bytes: [u8; BYTES],
    len: usize,
}

impl Joined {
    /// Joins the parts; a compile error if they are too long.
    pub(crate) const fn new(parts: &[&str]) -> Joined {
        let mut joined = Joined {
            bytes: [0; BYTES],
            len: 0,
        };
        let mut part = 0;
        while part < parts.len() {
            let bytes = parts[part].as_bytes();
            let mut at = 0;
            while at < bytes.len() {
                joined.bytes[joined.len] = bytes[at];
                joined.len += 1;
                at += 1;
            }
            part += 1;
        }
        joined
    }

    /// The text.
    pub(crate) const fn as_str(&self) -> &str {
        match str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => panic!("joined texts are text"),
        }
    }
}
