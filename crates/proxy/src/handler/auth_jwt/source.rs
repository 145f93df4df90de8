//! `auth_jwt_key_file`, `auth_jwt_key_request`: where sets of keys come from, and for how long one
//! is used again.
//!
//! Invariants:
//! 1. A file is read on a thread of its own, an answer by a subrequest: neither holds up others.
//! 2. No more than `MAX_TEXT` bytes are read of a set, and no more than `MOST_KEPT` are kept for a
//!    line.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ParseContext, Template, Word};
use millpond_exchange::failure::Failure;
use millpond_system::body::Body;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::os_error;

use super::keys::KeySet;
use crate::handler::auth_basic::UserFile;
use crate::request::Request;
use crate::request::page::Kind;
use crate::subrequest::{self, Target};

/// The longest set of keys (arbitrary: hundreds of keys with their certificates).
const MAX_TEXT: usize = 1 << 20;

/// The most sets that one line keeps, where its value depends on requests.
const MOST_KEPT: usize = 64;

/// A source of keys, by one line.
#[derive(Clone, Debug)]
pub(super) struct Source {
    place: Place,
    kept: Arc<Mutex<HashMap<Name, Kept>>>,
}

#[derive(Clone, Debug)]
enum Place {
    File(UserFile),
    Request(Template),
}

/// The server that asks, since a path is its own, and the value of the line.
type Name = (usize, Bytes);

#[derive(Clone, Debug)]
struct Kept {
    until: Instant,
    keys: Arc<KeySet>,
}

/// A file of keys.
#[derive(Clone, Debug)]
pub struct KeyFile(pub(super) Source);

/// A path that is asked for keys.
#[derive(Clone, Debug)]
pub struct KeyRequest(pub(super) Source);

impl FromWord for KeyFile {
    const SYNTAX: &'static str = "file";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        let file = UserFile::from_word(word, cx)?;
        Ok(KeyFile(Source::of(Place::File(file))))
    }
}

impl FromWord for KeyRequest {
    const SYNTAX: &'static str = "uri";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        let path = Template::from_word(word, cx)?;
        Ok(KeyRequest(Source::of(Place::Request(path))))
    }
}

impl Source {
    fn of(place: Place) -> Source {
        Source {
            place,
            kept: Arc::default(),
        }
    }

    /// The keys, read anew unless they were within that time.
    pub(super) async fn keys(
        &self,
        req: &mut Request,
        kept_for: Duration,
    ) -> Result<Arc<KeySet>, Failure> {
        let server = Arc::as_ptr(&req.server) as usize;
        let value = match &self.place {
            Place::File(file) => {
                let path = file.path(req);
                Bytes::copy_from_slice(path.as_os_str().as_encoded_bytes())
            }
            Place::Request(path) => req.eval(path),
        };
        let name = (server, value);
        if let Some(keys) = self.find(&name) {
            return Ok(keys);
        }
        let text = match &self.place {
            Place::File(file) => read(file.path(req)).await,
            Place::Request(_) => Box::pin(ask(req, &name.1)).await,
        };
        let value = String::from_utf8_lossy(&name.1);
        let unusable = |why| Failure::Internal(format!("no keys in \"{value}\": {why}"));
        let read = text.and_then(|text| KeySet::parse(&text));
        let keys = Arc::new(read.map_err(unusable)?);
        if !kept_for.is_zero() {
            self.keep(name, kept_for, &keys);
        }
        Ok(keys)
    }

    fn find(&self, name: &Name) -> Option<Arc<KeySet>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(name)?;
        (clock::instant() < found.until).then(|| Arc::clone(&found.keys))
    }

    fn keep(&self, name: Name, kept_for: Duration, keys: &Arc<KeySet>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT && !kept.contains_key(&name) {
            // INVARIANT 2.
            kept.clear();
        }
        let entry = Kept {
            until: clock::instant() + kept_for,
            keys: Arc::clone(keys),
        };
        kept.insert(name, entry);
    }
}

/// Reads a file; the error is for the log.
async fn read(path: std::path::PathBuf) -> Result<Vec<u8>, String> {
    // INVARIANT 1.
    let job = tokio::task::spawn_blocking(move || read_now(&path));
    match job.await {
        Ok(read) => read.map_err(|failure| format!("open() failed ({})", os_error(&failure))),
        Err(_) => Err("reading was given up".to_string()),
    }
}

fn read_now(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_TEXT as u64).read_to_end(&mut text)?;
    Ok(text)
}

/// Asks a path of this server; the error is for the log.
async fn ask(req: &mut Request, path: &Bytes) -> Result<Vec<u8>, String> {
    let (uri, args) = match memchr::memchr(b'?', path) {
        Some(mark) => (path.slice(..mark), path.slice(mark + 1..)),
        None => (path.clone(), Bytes::new()),
    };
    let sub = req
        .subrequest(Target { uri, args }, Kind::Asked)
        .ok_or("no subrequest is possible")?;
    let (mut sub, mut response) = subrequest::answer(sub).await;
    sub.sent.status = response.status;
    let text = match response.status {
        200 => whole(&mut response.body).await,
        status => Err(format!("the answer has status {status}")),
    };
    subrequest::finish(&mut sub);
    text
}

async fn whole(body: &mut Body) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    while let Some(piece) = poll_fn(|cx| body.poll_next(cx)).await {
        let mut piece = piece.map_err(|failure| failure.to_string())?;
        while !piece.is_empty() {
            let bytes = piece.take_memory().map_err(|failure| failure.to_string())?;
            if text.len() + bytes.len() > MAX_TEXT {
                return Err(format!("the answer is longer than {MAX_TEXT} bytes"));
            }
            text.extend_from_slice(&bytes);
        }
    }
    Ok(text)
}
