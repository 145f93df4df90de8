//! Keys, from values or from a file as the tools of AWS have it.
//!
//! ```text
//! [default]
//! aws_access_key_id = …
//! aws_secret_access_key = …
//! aws_session_token = …
//! ```
//!
//! 1. A file is read on a thread of its own, at most once in [`KEPT_FOR`]; one that cannot be read
//!    leaves the keys that it had.
//! 2. No more than [`MAX_FILE`] bytes are read of it, and no more than [`MOST_KEPT`] are kept.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ParseContext, Template, Word};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::{Level, os_error};
use zeroize::Zeroizing;

use super::signature::{Key, Scope};
use super::unsigned;
use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::failure::Failure;

/// The time within which a file is not read again (arbitrary: keys are changed hours before they
/// end).
const KEPT_FOR: Duration = Duration::from_secs(1);
/// The longest file (arbitrary: hundreds of profiles).
const MAX_FILE: u64 = 1 << 20;
/// The most keys that one line keeps, where file or profile depend on requests (arbitrary).
const MOST_KEPT: usize = 64;

/// Keys.
#[derive(Clone)]
pub(super) struct Credentials {
    access_key: String,
    secret_key: Zeroizing<String>,
    session_token: Option<Zeroizing<String>>,
}

// Keys are shown to nobody.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Keys by their bytes; an empty token is none.
    ///
    /// # Errors
    /// One is empty, or has bytes that no key has.
    pub(super) fn new(
        access_key: &[u8],
        secret_key: &[u8],
        session_token: Option<&[u8]>,
    ) -> Result<Self, String> {
        let told = session_token.filter(|token| !token.is_empty());
        let token = told.map(|token| word("session token", token)).transpose()?;
        Ok(Credentials {
            access_key: word("access key", access_key)?,
            secret_key: Zeroizing::new(word("secret key", secret_key)?),
            session_token: token.map(Zeroizing::new),
        })
    }

    /// The name of the key.
    pub(super) fn access_key(&self) -> &str {
        &self.access_key
    }

    /// The token of keys that end.
    pub(super) fn session_token(&self) -> Option<&str> {
        self.session_token.as_ref().map(|token| token.as_str())
    }

    /// The key of a scope.
    pub(super) fn key(&self, scope: &Scope) -> Key {
        scope.key(&self.secret_key)
    }

    /// The keys of a profile in a file's text.
    pub(super) fn parse(text: &str, profile: &str) -> Result<Self, String> {
        let mut is_inside = false;
        let mut found = HashMap::new();
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                is_inside = name.trim() == profile;
            } else if is_inside && let Some((name, value)) = line.split_once('=') {
                found.insert(name.trim(), value.trim().as_bytes());
            }
        }
        let value = |name: &str| found.get(name).copied();
        let needed = |name: &str| {
            value(name).ok_or_else(|| format!("the profile \"{profile}\" has no \"{name}\""))
        };
        let access_key = needed("aws_access_key_id")?;
        let secret_key = needed("aws_secret_access_key")?;
        Credentials::new(access_key, secret_key, value("aws_session_token"))
    }
}

/// A key's text: visible characters, since it goes into a field.
fn word(of: &str, bytes: &[u8]) -> Result<String, String> {
    let is_key = |text: &&str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_graphic());
    let text = str::from_utf8(bytes).ok().filter(is_key);
    text.map(str::to_string)
        .ok_or_else(|| format!("the {of} is empty or has characters that no key has"))
}

/// A path that may have variables, and the folder that it starts in.
#[derive(Clone, Debug)]
pub(super) struct FilePath {
    path: Template,
    start: Arc<Path>,
}

impl FromWord for FilePath {
    const SYNTAX: &'static str = "file";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        let path = Template::from_word(word, cx)?;
        let start = Arc::from(cx.conf_dir.as_path());
        Ok(FilePath { path, start })
    }
}

impl FilePath {
    fn of(&self, req: &mut Request) -> PathBuf {
        let path = req.eval(&self.path);
        self.start.join(OsStr::from_bytes(&path))
    }
}

/// A file of keys.
#[derive(Clone, Debug)]
pub(super) struct CredentialFile {
    file: FilePath,
    profile: Template,
    kept: Arc<Mutex<HashMap<Name, Kept>>>,
}

/// Path and profile.
type Name = (PathBuf, Bytes);

#[derive(Clone, Debug)]
struct Kept {
    until: Instant,
    keys: Credentials,
}

impl CredentialFile {
    pub(super) fn new(file: FilePath, profile: Template) -> Self {
        CredentialFile {
            file,
            profile,
            kept: Arc::default(),
        }
    }

    /// The keys of a request.
    pub(super) async fn read(&self, req: &mut Request) -> Result<Rc<Credentials>, Failure> {
        let name = (self.file.of(req), req.eval(&self.profile));
        let kept = self.find(&name);
        if let Some(kept) = &kept
            && clock::instant() < kept.until
        {
            return Ok(Rc::new(kept.keys.clone()));
        }
        match read(name.clone()).await {
            Ok(keys) => {
                self.keep(name, &keys);
                Ok(Rc::new(keys))
            }
            Err(why) => {
                let why = format!("no keys in \"{}\": {why}", name.0.display());
                let Some(kept) = kept else {
                    return Err(unsigned(why));
                };
                // INVARIANT 1.
                request_error::write(
                    req,
                    Level::Error,
                    format_args!("{why}; older ones are used"),
                );
                self.keep(name, &kept.keys);
                Ok(Rc::new(kept.keys))
            }
        }
    }

    fn find(&self, name: &Name) -> Option<Kept> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(name).cloned()
    }

    fn keep(&self, name: Name, keys: &Credentials) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT && !kept.contains_key(&name) {
            // INVARIANT 2.
            kept.clear();
        }
        let entry = Kept {
            until: clock::instant() + KEPT_FOR,
            keys: keys.clone(),
        };
        kept.insert(name, entry);
    }
}

/// Reads keys; the error is for the log.
async fn read((path, profile): Name) -> Result<Credentials, String> {
    let job = tokio::task::spawn_blocking(move || {
        let failed = |failure: std::io::Error| format!("open() failed ({})", os_error(&failure));
        let bytes = read_now(&path).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        Credentials::parse(&text, &String::from_utf8_lossy(&profile))
    });
    job.await
        .unwrap_or_else(|_| Err("reading was given up".to_string()))
}

fn read_now(path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::new());
    let file = std::fs::File::open(path)?;
    file.take(MAX_FILE).read_to_end(&mut text)?;
    Ok(text)
}
