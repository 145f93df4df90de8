//! Bundles: a main file of a configuration and the files that belong to it, as bytes.
//!
//! Integers are little-endian, names are UTF-8:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 4 | mark | `MPB1` |
//! | 2 | length | of the name of the main file, which follows |
//! | 4 | count | of files, in the order of their names |
//! | 2 | length | of the name of a file, which follows |
//! | 4 | length | of its content, which follows |
//!
//! There is nothing in it but names and contents: no links, devices, owners or modes.
//!
//! 1. A name stays below the folder that the bundle is unpacked in: parts with `/` between them,
//!    none of which is empty, `.` or `..`, and no file has the name of another's folder.
//! 2. The same files make the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

/// Bytes of a bundle, at most. Arbitrary: a configuration of ten thousand sites has a few million.
pub const BUNDLE_MAX: usize = 16 << 20;
/// Files of a bundle, at most (arbitrary; one for each of ten thousand sites, and as many more).
pub const FILES_MAX: usize = 20_000;
/// Bytes of a name, at most: what folders of Linux take for one part.
pub const NAME_MAX: usize = 255;
/// Parts of a name, at most (arbitrary).
const PARTS_MAX: usize = 16;
const MARK: &[u8; 4] = b"MPB1";

/// SHA-256 of the bytes of a bundle.
pub type Digest = [u8; 32];

/// A bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    main: String,
    files: BTreeMap<String, Bytes>,
}

/// Digest of the bytes of a bundle.
pub fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// Bytes as people compare them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_name(name: &str) -> Result<(), String> {
    let wrong = |why: &str| {
        Err(format!(
            "\"{}\" is no name of a file: {why}",
            name.escape_debug()
        ))
    };
    if name.is_empty() || name.len() > NAME_MAX {
        return wrong("it must have from 1 to 255 bytes");
    }
    if name.chars().any(char::is_control) || name.contains('\\') {
        return wrong("there is a character in it that must not be");
    }
    let is_part = |part: &str| !matches!(part, "" | "." | "..");
    // INVARIANT 1. An absolute path begins with an empty part.
    if !name.split('/').all(is_part) {
        return wrong("a part of it is empty, \".\" or \"..\"");
    }
    if name.split('/').count() > PARTS_MAX {
        return wrong("it is too deep");
    }
    Ok(())
}

impl Bundle {
    /// A bundle of these files; the error says what is wrong with them.
    pub fn new(main: &str, files: BTreeMap<String, Bytes>) -> Result<Bundle, String> {
        if files.len() > FILES_MAX {
            return Err(format!("there are more than {FILES_MAX} files"));
        }
        for name in files.keys() {
            check_name(name)?;
            let folders = name
                .match_indices('/')
                .filter_map(|(end, _)| name.get(..end));
            for folder in folders {
                if files.contains_key(folder) {
                    return Err(format!("\"{folder}\" is a file and a folder"));
                }
            }
        }
        if !files.contains_key(main) {
            let main = main.escape_debug();
            return Err(format!("the main file \"{main}\" is missing"));
        }
        Ok(Bundle {
            main: main.to_owned(),
            files,
        })
    }

    /// Name of the main file.
    pub fn main(&self) -> &str {
        &self.main
    }

    /// Files by name.
    pub fn files(&self) -> &BTreeMap<String, Bytes> {
        &self.files
    }

    /// True if there is a file of this name, or a folder.
    pub fn has(&self, name: &str) -> bool {
        let below = format!("{}/", name.trim_end_matches('/'));
        let mut behind = self.files.range(below.clone()..);
        self.files.contains_key(name) || behind.next().is_some_and(|it| it.0.starts_with(&below))
    }

    /// The bytes; none if they are too many.
    pub fn encode(&self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        out.put_slice(MARK);
        put_name(&mut out, &self.main);
        out.put_u32_le(u32::try_from(self.files.len()).ok()?);
        for (name, content) in &self.files {
            put_name(&mut out, name);
            out.put_u32_le(u32::try_from(content.len()).ok()?);
            out.put_slice(content);
        }
        Some(out.freeze()).filter(|bytes| bytes.len() <= BUNDLE_MAX)
    }

    /// Reads a bundle; the error says why it is none.
    pub fn decode(bytes: &Bytes) -> Result<Bundle, String> {
        if bytes.len() > BUNDLE_MAX {
            return Err(format!("it has more than {BUNDLE_MAX} bytes"));
        }
        let mut rest = bytes.clone();
        let read = read_files(&mut rest).ok_or("it is cut off, or no bundle")?;
        let (main, files) = read?;
        if rest.has_remaining() {
            return Err("there is something behind its end".to_owned());
        }
        Bundle::new(&main, files)
    }

    /// Paths of the files below a folder, with their contents.
    pub fn paths(&self, root: &Path) -> impl Iterator<Item = (PathBuf, &Bytes)> {
        let root = root.to_owned();
        let files = self.files.iter();
        files.map(move |(name, content)| (root.join(name), content))
    }
}

fn put_name(out: &mut BytesMut, name: &str) {
    // INVARIANT: `check_name` has bound it; the main file is one of the files.
    out.put_u16_le(u16::try_from(name.len()).unwrap_or(u16::MAX));
    out.put_slice(name.as_bytes());
}

fn read_name(rest: &mut Bytes) -> Option<String> {
    let len = usize::from(rest.try_get_u16_le().ok()?);
    let name = (len <= rest.len()).then(|| rest.split_to(len))?;
    String::from_utf8(name.to_vec()).ok()
}

type ReadFiles = Result<(String, BTreeMap<String, Bytes>), String>;

/// The main file's name and the files; none if they are cut off.
fn read_files(rest: &mut Bytes) -> Option<ReadFiles> {
    let mut mark = [0; MARK.len()];
    rest.try_copy_to_slice(&mut mark).ok()?;
    if mark != *MARK {
        return None;
    }
    let main = read_name(rest)?;
    let count = rest.try_get_u32_le().ok()?;
    if count as usize > FILES_MAX {
        return Some(Err(format!("there are more than {FILES_MAX} files")));
    }
    let mut files = BTreeMap::<String, Bytes>::new();
    for _ in 0..count {
        let name = read_name(rest)?;
        let len = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
        let content = (len <= rest.len()).then(|| rest.split_to(len))?;
        // INVARIANT 2.
        let last = files.last_key_value();
        if last.is_some_and(|(last, _)| *last >= name) {
            return Some(Err("its files are not in order".to_owned()));
        }
        files.insert(name, content);
    }
    Some(Ok((main, files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(names: &[&str]) -> Result<Bundle, String> {
        let files = names.iter().map(|name| {
            let content = Bytes::from(format!("content of {name}"));
            ((*name).to_owned(), content)
        });
        Bundle::new("main.conf", files.collect())
    }

    /// Bytes of a bundle that was not checked.
    fn raw(main: &str, names: &[&str]) -> Bytes {
        let mut out = BytesMut::from(&MARK[..]);
        put_name(&mut out, main);
        out.put_u32_le(names.len() as u32);
        for name in names {
            put_name(&mut out, name);
            out.put_u32_le(1);
            out.put_u8(b'x');
        }
        out.freeze()
    }

    #[test]
    fn bundles_come_back_as_they_were() {
        let own = bundle(&["main.conf", "a/b.conf", "a/c.conf", "é"]).unwrap();
        let bytes = own.encode().unwrap();
        assert_eq!(Bundle::decode(&bytes), Ok(own.clone()));
        assert_eq!(own.encode(), Some(bytes));
        for (name, is_there) in [
            ("a", true),
            ("a/", true),
            ("a/b.conf", true),
            ("a/b", false),
        ] {
            assert_eq!(own.has(name), is_there, "{name}");
        }
        let large = BTreeMap::from([("m".to_owned(), Bytes::from(vec![0; BUNDLE_MAX]))]);
        assert_eq!(Bundle::new("m", large).unwrap().encode(), None);
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        let long = "x".repeat(256);
        let deep = "d/".repeat(16) + "x";
        let names = [
            "../main",
            "a/../../b",
            "/etc/passwd",
            "a//b",
            "./a",
            "a/.",
            "..",
            "a/",
            "",
            "a\0b",
            "a\nb",
            "a\\b",
            long.as_str(),
            deep.as_str(),
        ];
        for name in names {
            let mut files = vec!["main.conf", name];
            files.sort_unstable();
            assert!(
                Bundle::decode(&raw("main.conf", &files)).is_err(),
                "{name:?}"
            );
        }
        for files in [
            &["main.conf", "main.conf"][..],
            &["main.conf", "a"],
            &["a", "a/b", "main.conf"],
            &["a", "a-b", "a/b", "main.conf"],
            &["other"],
            &[],
        ] {
            assert!(
                Bundle::decode(&raw("main.conf", files)).is_err(),
                "{files:?}"
            );
        }
        assert!(Bundle::decode(&raw("main.conf", &["a", "main.conf"])).is_ok());
    }

    #[test]
    fn bytes_that_are_cut_off_or_changed_make_no_panic() {
        let bytes = bundle(&["main.conf", "a/b.conf"])
            .unwrap()
            .encode()
            .unwrap();
        for end in 0..bytes.len() {
            assert!(Bundle::decode(&bytes.slice(..end)).is_err(), "{end}");
        }
        let behind = [&bytes[..], b"x"].concat();
        assert!(Bundle::decode(&behind.into()).is_err());
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = bytes.to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            if let Ok(read) = Bundle::decode(&bytes.into()) {
                assert!(read.files.keys().all(|name| check_name(name).is_ok()));
            }
        }
        // A count that promises more than there is takes no memory for it.
        let mut out = BytesMut::from(&MARK[..]);
        put_name(&mut out, "m");
        out.put_u32_le(FILES_MAX as u32);
        assert!(Bundle::decode(&out.freeze()).is_err());
    }
}
