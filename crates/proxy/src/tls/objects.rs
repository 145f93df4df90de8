//! Certificates and keys of names: whatever a name means, it is read in one way, with the
//! configuration and at a handshake.
//!
//! Mistakes are told as nginx tells them: what could not be loaded, and why.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_tls::certificate::failure::{Failure, Thing};
use millpond_tls::certificate::load;
use millpond_tls::certificate::password::Password;
use millpond_tls::certificate::source::Source;
use millpond_tls::{CertificateDer, Identity};

use super::settings::FileName;

/// The largest file that is read.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// The way in which files are read.
pub type Reader<'r> = &'r mut dyn FnMut(&Path) -> io::Result<Arc<[u8]>>;

/// A key, and the name that mistakes about it have.
pub struct NamedKey {
    /// The key.
    pub key: load::Key,
    shown: String,
}

/// The state of a file when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// No file: the name is the text.
    Text,
    /// Device, number and time of the last change, in nanoseconds.
    File(u64, u64, i128),
    /// Unknown; no other is the same.
    Unknown,
}

impl Stamp {
    /// The state of the file of a path; none for a text.
    pub fn of(path: Option<PathBuf>) -> Stamp {
        use std::os::unix::fs::MetadataExt;
        let Some(path) = path else {
            return Stamp::Text;
        };
        match std::fs::metadata(path) {
            Ok(file) => {
                let changed = i128::from(file.mtime()) * 1_000_000_000;
                Stamp::File(
                    file.dev(),
                    file.ino(),
                    changed + i128::from(file.mtime_nsec()),
                )
            }
            Err(_) => Stamp::Unknown,
        }
    }

    /// True if nothing has changed.
    pub fn is_still(&self, now: &Stamp) -> bool {
        self != &Stamp::Unknown && self == now
    }
}

/// Reads a file from disk.
pub fn read(path: &Path) -> io::Result<Arc<[u8]>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    let count = file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if count as u64 > MAX_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes.into())
}

/// The certificates of a name, in the place of a directive.
pub fn chain(
    file: &FileName,
    name: &str,
    read: Reader<'_>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let (shown, chain) = match Source::of_certificate(name) {
        Source::Text(text) => ("data:...".to_owned(), load::chain(text.as_bytes())),
        Source::File(name) | Source::Store(name) => {
            let path = file.path(name.as_bytes());
            let text = open(&path, read);
            let shown = path.to_string_lossy().into_owned();
            (shown, text.and_then(|text| load::chain(&text)))
        }
    };
    chain.map_err(|why| Thing::Certificate.cannot_load(&shown, &why))
}

/// The key of a name, in the place of a directive.
pub fn key(
    file: &FileName,
    name: &str,
    passwords: &[Password],
    read: Reader<'_>,
) -> Result<NamedKey, String> {
    let failed = |shown: &str, why: &Failure| Thing::Key.cannot_load(shown, why);
    let source = Source::of_key(name).map_err(|why| failed(name, &why))?;
    let (shown, loaded) = match source {
        Source::Text(text) => ("data:...".to_owned(), load::key(text.as_bytes(), passwords)),
        Source::File(name) => {
            let path = file.path(name.as_bytes());
            let text = open(&path, read);
            let shown = path.to_string_lossy().into_owned();
            (shown, text.and_then(|text| load::key(&text, passwords)))
        }
        Source::Store(path) => {
            let bytes = open(&file.path(path.as_bytes()), read);
            let loaded = bytes.and_then(|bytes| load::stored_key(&bytes, passwords));
            (name.to_owned(), loaded)
        }
    };
    match loaded {
        Ok(key) => Ok(NamedKey { key, shown }),
        Err(why) => Err(failed(&shown, &why)),
    }
}

/// Certificates with their key, if they belong together.
pub fn identity(
    chain: Vec<CertificateDer<'static>>,
    key: &NamedKey,
) -> Result<Arc<Identity>, String> {
    let certified = load::certified(chain, &key.key).map_err(|why| why.of_key(&key.shown))?;
    Ok(Arc::new(Identity::new(certified.cert, certified.key)))
}

/// Puts an identity in the place of that with a key of its kind, or beside those that are there: as
/// in OpenSSL, the last of a kind is the one.
pub fn put_identity(identities: &mut Vec<Arc<Identity>>, new: Arc<Identity>) {
    let kind = new.algorithm();
    match identities
        .iter_mut()
        .find(|known| known.algorithm() == kind)
    {
        Some(place) => *place = new,
        None => identities.push(new),
    }
}

fn open(path: &Path, read: Reader<'_>) -> Result<Arc<[u8]>, Failure> {
    read(path).map_err(|error| Failure::open(&path.to_string_lossy(), &error))
}
