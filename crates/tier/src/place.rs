//! Names of objects.
//!
//! | object | name, behind the prefix |
//! |---|---|
//! | head of an entry, or of a key that has variants | `ZONE/NAME/head` |
//! | slice of a body | `ZONE/NAME/GENERATION/NUMBER` |
//!
//! NAME is a digest of the key's text, and for a variant also of the seed that its key's head names
//! and of what requests for it say. A head that is replaced or withdrawn has another seed
//! afterwards, so that variants which were found by it are not found any more (as in
//! `millpond_cache::variant`).

use object_store::path::Path;
use sha2::{Digest, Sha256};

/// Bytes of a slice.
pub const SLICE: u64 = 4 << 20;

/// Name of a version of a body: no two bodies of a copy have the same.
pub type Generation = [u8; 16];

/// Begin of the names of a zone's objects.
#[derive(Clone, Debug)]
pub struct Places {
    root: String,
}

/// A copy's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(String);

impl Name {
    /// The name of what is first found for a key.
    pub fn of_key(text: &[u8]) -> Name {
        Name::digest(&[text])
    }

    /// The name of a variant.
    pub fn of_variant(text: &[u8], (seed, variant): (u64, &[u8])) -> Name {
        Name::digest(&[text, &seed.to_le_bytes(), variant])
    }

    fn digest(parts: &[&[u8]]) -> Name {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Name(hex(&digest.finalize()))
    }
}

impl Places {
    /// Names below a prefix, of a zone.
    pub fn new(prefix: &str, zone: &str) -> Places {
        // A zone's name is one part of a path, whatever it has in it.
        let zone = object_store::path::PathPart::from(zone);
        let root = match prefix {
            "" => zone.as_ref().to_owned(),
            _ => format!("{prefix}/{}", zone.as_ref()),
        };
        Places { root }
    }

    /// The head of a copy.
    pub fn head(&self, name: &Name) -> Path {
        Path::from_iter_raw(&[&self.root, &name.0, "head"])
    }

    /// A slice of a copy.
    pub fn slice(&self, name: &Name, generation: &Generation, number: usize) -> Path {
        let (generation, number) = (hex(generation), number.to_string());
        Path::from_iter_raw(&[&self.root, &name.0, &generation, &number])
    }
}

/// Parts that are clean already.
trait Raw {
    fn from_iter_raw(parts: &[&str]) -> Path;
}

impl Raw for Path {
    fn from_iter_raw(parts: &[&str]) -> Path {
        let text = parts.join("/");
        Path::parse(&text).unwrap_or_else(|_| Path::from(text))
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a text does not fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_variants_and_seeds_have_names_of_their_own() {
        let names = [
            Name::of_key(b"a"),
            Name::of_key(b"b"),
            Name::of_variant(b"a", (0, b"")),
            Name::of_variant(b"a", (1, b"")),
            Name::of_variant(b"a", (1, b"x")),
            Name::of_variant(b"ax", (1, b"")),
        ];
        for (at, name) in names.iter().enumerate() {
            assert_eq!(name.0.len(), 64);
            assert!(names[at + 1..].iter().all(|other| other != name), "{at}");
        }
    }

    #[test]
    fn objects_stand_below_prefix_and_zone() {
        let name = Name::of_key(b"a");
        let head = Places::new("p/q", "z one").head(&name);
        let expected = format!("p/q/z one/{}/head", name.0);
        assert_eq!(head.as_ref(), expected);
        let slice = Places::new("", "z/x").slice(&name, &[0xAB; 16], 7);
        let expected = format!("z%2Fx/{}/{}/7", name.0, "ab".repeat(16));
        assert_eq!(slice.as_ref(), expected);
    }
}
