//! The folder in which a node keeps the configuration that it has from its fleet.
//!
//! | name | content |
//! |---|---|
//! | `good` | the order that has held last, as it was signed |
//! | `trial` | number of the order that is tried, and how often that began |
//! | `DIGEST.bundle` | a bundle, by the first eight bytes of its digest |
//! | `DIGEST/` | its files, for those who read them while they serve, and for people |
//!
//! 1. `good` names a bundle that is there whole: it is renamed into its place after that.
//! 2. What is read of a bundle's files while a configuration is read comes from the signed bytes,
//!    whatever the folder of files has.
//! 3. Files are made in a folder that was not there before: nothing can lead them elsewhere.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::bundle::{self, BUNDLE_MAX, Bundle, Digest, hex};
use super::order::{PublicKey, Signed};

const GOOD: &str = "good";
const TRIAL: &str = "trial";
/// Bytes of an order or a trial, at most; a little more than an order has.
const SMALL_MAX: u64 = 128 << 10;

/// A bundle with its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The order.
    pub signed: Signed,
    /// The folder that names in the bundle start at.
    pub root: PathBuf,
    /// The files.
    pub bundle: Bundle,
}

/// The folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

fn failed(path: &Path) -> impl Fn(io::Error) -> String {
    move |why| format!("\"{}\": {why}", path.display())
}

fn read(path: &Path, most: u64) -> Result<Option<Bytes>, String> {
    let of = failed(path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(of(error)),
    };
    let mut bytes = Vec::new();
    let count = file.take(most + 1).read_to_end(&mut bytes).map_err(&of)?;
    if count as u64 > most {
        return Err(of(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(Some(bytes.into()))
}

/// Writes a file that is there whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let new = path.with_extension("new");
    let of = failed(&new);
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new);
    let mut file = opened.map_err(&of)?;
    file.write_all(bytes).map_err(&of)?;
    file.sync_all().map_err(&of)?;
    fs::rename(&new, path).map_err(&of)?;
    sync(path.parent().unwrap_or(path))
}

fn sync(folder: &Path) -> Result<(), String> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(failed(folder))
}

fn make(folder: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(failed(folder))
}

fn name(digest: &Digest) -> String {
    hex(digest.first_chunk::<8>().unwrap_or(&[0; 8]))
}

impl Folder {
    /// The folder of this path.
    pub fn new(path: &Path) -> Folder {
        Folder(path.to_owned())
    }

    /// Makes the folder, where it is not there.
    pub fn prepare(&self) -> Result<(), String> {
        make(&self.0)
    }

    fn bundle_path(&self, digest: &Digest) -> PathBuf {
        self.0.join(format!("{}.bundle", name(digest)))
    }

    /// The bundle that has held last; none if there was none yet.
    pub fn good(&self, keys: &[PublicKey], fleet: &str) -> Result<Option<Held>, String> {
        let path = self.0.join(GOOD);
        let Some(bytes) = read(&path, SMALL_MAX)? else {
            return Ok(None);
        };
        let wrong = |why: &str| format!("\"{}\": {why}", path.display());
        let signed = Signed::read(&bytes, keys, fleet).map_err(wrong)?;
        match self.held(signed)? {
            Some(held) => Ok(Some(held)),
            None => Err(wrong("the bundle that it names is missing")),
        }
    }

    /// The bundle of an order; none if it is not there.
    pub fn held(&self, signed: Signed) -> Result<Option<Held>, String> {
        let digest = signed.order.digest;
        let path = self.bundle_path(&digest);
        let Some(bytes) = read(&path, BUNDLE_MAX as u64)? else {
            return Ok(None);
        };
        if bundle::digest(&bytes) != digest {
            return Err(format!("\"{}\": it is not what was signed", path.display()));
        }
        let read = Bundle::decode(&bytes);
        let bundle = read.map_err(|why| format!("\"{}\": {why}", path.display()))?;
        Ok(Some(Held {
            signed,
            root: self.0.join(name(&digest)),
            bundle,
        }))
    }

    /// Keeps the bundle of an order, and its files.
    pub fn keep(&self, signed: &Signed, bytes: &Bytes) -> Result<Held, String> {
        let digest = signed.order.digest;
        if bundle::digest(bytes) != digest || bytes.len() as u64 != signed.order.len {
            return Err("the bundle is not what was signed".to_owned());
        }
        let bundle = Bundle::decode(bytes).map_err(|why| format!("the bundle is wrong: {why}"))?;
        self.prepare()?;
        let root = self.0.join(name(&digest));
        self.unpack(&bundle, &root)?;
        write(&self.bundle_path(&digest), bytes)?;
        Ok(Held {
            signed: signed.clone(),
            root,
            bundle,
        })
    }

    fn unpack(&self, bundle: &Bundle, root: &Path) -> Result<(), String> {
        let new = root.with_extension("new");
        // What is left of one that was broken off.
        for path in [&new, &root.to_owned()] {
            match fs::remove_dir_all(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(path)(error));
                }
                _ => {}
            }
        }
        // INVARIANT 3.
        let made = DirBuilder::new().mode(0o700).create(&new);
        made.map_err(failed(&new))?;
        for (path, content) in bundle.paths(&new) {
            make(path.parent().unwrap_or(&new))?;
            let mut options = OpenOptions::new();
            let opened = options.write(true).create_new(true).mode(0o600).open(&path);
            let written = opened.and_then(|mut file| file.write_all(content));
            written.map_err(failed(&path))?;
        }
        fs::rename(&new, root).map_err(failed(root))
    }

    /// The bundle of an order has held.
    pub fn settle(&self, signed: &Signed) -> Result<(), String> {
        // INVARIANT 1.
        write(&self.0.join(GOOD), &signed.bytes)?;
        self.end_trial();
        Ok(())
    }

    /// Notes that an order is tried; how often that has begun, this time included.
    pub fn begin_trial(&self, revision: u64) -> Result<u32, String> {
        let path = self.0.join(TRIAL);
        let noted = read(&path, SMALL_MAX)?.unwrap_or_default();
        let before = String::from_utf8_lossy(&noted);
        let (known, count) = before.trim().split_once(' ').unwrap_or_default();
        let is_same = known.parse() == Ok(revision);
        let count = count.parse::<u32>().ok().filter(|_| is_same).unwrap_or(0) + 1;
        write(&path, format!("{revision} {count}\n").as_bytes())?;
        Ok(count)
    }

    /// Nothing is tried any more.
    pub fn end_trial(&self) {
        // One that is left counts too much, for an order that is over.
        let _gone = fs::remove_file(self.0.join(TRIAL));
    }

    /// Removes all bundles but those that are still needed.
    pub fn sweep(&self, needed: &[Digest]) {
        let needed: Vec<String> = needed.iter().map(name).collect();
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let stem = name.split('.').next().unwrap_or_default();
            let is_digest = stem.len() == 16 && stem.bytes().all(|it| it.is_ascii_hexdigit());
            if !is_digest || needed.iter().any(|it| it == stem) {
                continue;
            }
            // What cannot be removed is in nobody's way.
            let _gone = match entry.file_type() {
                Ok(kind) if kind.is_dir() => fs::remove_dir_all(entry.path()),
                _ => fs::remove_file(entry.path()),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::order::tests::{key, order};
    use super::*;

    fn packed(revision: u64, text: &str) -> (Signed, Bytes) {
        let texts = [("main.conf", text), ("conf.d/a.conf", "a;")];
        let files = texts.map(|(name, text)| (name.to_owned(), Bytes::from(text.to_owned())));
        let bundle = Bundle::new("main.conf", BTreeMap::from(files)).unwrap();
        let bytes = bundle.encode().unwrap();
        let mut order = order(revision, 0, &[]);
        (order.digest, order.len) = (bundle::digest(&bytes), bytes.len() as u64);
        (order.sign(&key(1)), bytes)
    }

    #[test]
    fn what_has_held_is_there_after_a_restart_and_what_was_tried_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(&dir.path().join("a/b"));
        let keys = [key(1).public()];
        let good = || folder.good(&keys, "edge");
        assert_eq!(good(), Ok(None));
        let (first, bytes) = packed(1, "one;");
        let held = folder.keep(&first, &bytes).unwrap();
        assert_eq!(good(), Ok(None));
        folder.settle(&first).unwrap();
        assert_eq!(good(), Ok(Some(held.clone())));
        assert_eq!(fs::read(held.root.join("conf.d/a.conf")).unwrap(), b"a;");
        let (second, bytes) = packed(2, "two;");
        folder.keep(&second, &bytes).unwrap();
        assert_eq!(folder.begin_trial(2), Ok(1));
        assert_eq!(folder.begin_trial(2), Ok(2));
        assert_eq!(folder.begin_trial(3), Ok(1));
        assert_eq!(good(), Ok(Some(held)));
        folder.settle(&second).unwrap();
        assert_eq!(folder.begin_trial(3), Ok(1));
        folder.sweep(&[second.order.digest]);
        assert_eq!(good().unwrap().unwrap().signed, second);
        assert_eq!(folder.held(first), Ok(None));
    }

    #[test]
    fn what_is_not_what_was_signed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let (signed, bytes) = packed(1, "one;");
        let (_, other) = packed(1, "two;");
        assert!(folder.keep(&signed, &other).is_err());
        folder.keep(&signed, &bytes).unwrap();
        folder.settle(&signed).unwrap();
        let of = |number| folder.good(&[key(number).public()], "edge");
        assert!(of(1).is_ok());
        assert!(of(2).is_err());
        assert!(folder.good(&[key(1).public()], "core").is_err());
        fs::write(folder.bundle_path(&signed.order.digest), &other).unwrap();
        assert!(of(1).unwrap_err().contains("not what was signed"));
        fs::remove_file(folder.bundle_path(&signed.order.digest)).unwrap();
        assert!(of(1).unwrap_err().contains("is missing"));
    }

    #[test]
    fn links_that_others_have_laid_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(&dir.path().join("fleet"));
        let (signed, bytes) = packed(1, "one;");
        let held = folder.keep(&signed, &bytes).unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::remove_dir_all(&held.root).unwrap();
        std::os::unix::fs::symlink(&outside, held.root.with_extension("new")).unwrap();
        let again = folder.keep(&signed, &bytes).unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(fs::symlink_metadata(&again.root).unwrap().is_dir());
    }
}
