//! `proxy_store`, `proxy_store_access`: answers that are kept as files.
//!
//! The whole answer to a request is written to a temporary file on its way to the client, and moved
//! to its place when it is complete. Nothing is looked up: who wants the files served says so with
//! `root`, `try_files` or an `error_page`.
//!
//! ```text
//! upstream ──► task: piece ─► temporary file ─► channel ──► client
//!                └ end: right length? ─► time, mode, rename
//! ```
//!
//! Invariants:
//! 1. Only a 200 that came to its end, with the announced length, becomes a file; it is there from
//!    one moment to the next, whole.
//! 2. The task goes on when the client leaves, as long as the generation does.
//! 3. At most `READ_AHEAD` pieces wait for a client, in the file.
//! 4. A disk that fails ends the storing, not the answer.
//!
//! Sources: nginx ngx_http_upstream_store, ngx_http_proxy_merge_loc_conf.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use millpond_conf::Template;
use millpond_conf::value::{ArgError, Args, FromArgs, WordError};
use millpond_system::backlog::Backlog;
use millpond_system::body::{Body, BodyError, BodyStream, FileRegion, FileSource, Piece};
use millpond_system::log::error::{Level, os_error};
use millpond_system::temp_file::{TempFile, TempFolder};
use tokio::sync::mpsc;

use crate::content::path;
use crate::log::request_error::{self, RememberedRequest};
use crate::request::Request;
use millpond_wire::header::Fields;

/// Pieces that are written but not sent (arbitrary: enough that neither side waits for the other's
/// wake-up).
const READ_AHEAD: usize = 4;

/// Settings of the answers that are kept as files.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct StorePolicy {
    /// Keeps answers with status 200 as files: where `root` or `alias` says, or under the name
    /// given, which may hold variables; a name that turns out empty keeps nothing. The file gets
    /// the time of Last-Modified.
    ///
    /// # Differs from nginx
    ///
    /// The answer to a HEAD request is never kept.
    #[directive(name = "proxy_store", default = "off")]
    pub target: StoreTarget,
    /// Rights of users to the files, and to enter the folders that are made for them.
    #[directive(name = "proxy_store_access", default = "user:rw")]
    pub access: StoreAccess,
}

/// Place where answers are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreTarget {
    /// Nowhere.
    Off,
    /// The file of the request under `root` or `alias`.
    Root,
    /// Under this name.
    Name(Template),
}

impl FromArgs for StoreTarget {
    const SYNTAX: &'static str = "on | off | string";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let word = args.one()?;
        match word.text.as_str() {
            "off" => return Ok(StoreTarget::Off),
            "on" => return Ok(StoreTarget::Root),
            "" => return Err(ArgError::value(0, "empty path".to_string())),
            text if text.contains('\0') => return Err(WordError::Invalid.at(0)),
            _ => {}
        }
        Template::parse(&word.text, word.span, &mut args.cx.variables)
            .map(StoreTarget::Name)
            .map_err(|error| WordError::Message(error.to_string()).at(0))
    }
}

/// The permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreAccess(pub u32);

impl FromArgs for StoreAccess {
    const SYNTAX: &'static str = "users:permissions ...";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let mut mode = 0;
        // nginx: who is not named has what they have by default.
        let mut user = 0o600;
        for (index, word) in args.at_least(1)?.iter().enumerate().take(3) {
            let invalid = || ArgError::value(index, format!("invalid value \"{}\"", word.text));
            let (who, rights) = word.text.split_once(':').ok_or_else(invalid)?;
            let rights = match rights {
                "rw" => 6,
                "r" => 4,
                _ => return Err(invalid()),
            };
            match who {
                "user" => {
                    user = 0;
                    mode |= rights << 6;
                }
                "group" => mode |= rights << 3,
                "all" => mode |= rights,
                _ => return Err(invalid()),
            }
        }
        match args.words.len() {
            0..=3 => Ok(StoreAccess(mode | user)),
            _ => Err(ArgError::Count),
        }
    }
}

/// Words of a level about keeping answers; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeping {
    /// Choice of keeping answers as files.
    pub files: Option<bool>,
    /// In a cache.
    pub cache: Option<bool>,
}

/// Choice of the two that is in force inside of these levels.
///
/// nginx: a level that has the one switches off the other, which it may have from outside.
/// The error is for a level that has both.
pub(crate) fn settle(levels: impl Iterator<Item = Keeping>) -> Result<Keeping, Incompatible> {
    let mut now = Keeping::default();
    for level in levels {
        if level.files == Some(true) && level.cache == Some(true) {
            return Err(Incompatible);
        }
        if level.files == Some(true) {
            now.cache = Some(false);
        }
        if level.cache == Some(true) {
            now.files = Some(false);
        }
        now.files = level.files.or(now.files);
        now.cache = level.cache.or(now.cache);
    }
    Ok(now)
}

/// A level keeps answers in both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incompatible;

/// An answer that may be kept.
pub(crate) struct Answer {
    /// Status of the answer.
    pub status: u16,
    /// Length of the answer, when announced.
    pub length: Option<u64>,
    /// Last-Modified of the answer, seconds.
    pub last_modified: Option<i64>,
    /// Body of the answer.
    pub body: Body,
    /// Note of how much of the answer waits for the client.
    pub backlog: Option<Backlog>,
}

/// The answer's body, which is kept as a file on its way when that is wanted and possible, and
/// where to note how much of it waits.
pub(crate) fn keep(
    req: &mut Request,
    policy: &StorePolicy,
    folder: &TempFolder,
    answer: Answer,
) -> (Body, Option<Backlog>) {
    if answer.status != 200 || req.is_head() {
        return (answer.body, answer.backlog);
    }
    let to = match &policy.target {
        StoreTarget::Off => return (answer.body, answer.backlog),
        StoreTarget::Name(name) => req.eval(name).to_vec(),
        StoreTarget::Root => match path::map(req) {
            Ok(path) => path.bytes,
            Err(failure) => {
                crate::log::request_error::failure(req, &failure);
                return (answer.body, answer.backlog);
            }
        },
    };
    if to.is_empty() {
        return (answer.body, answer.backlog);
    }
    let file = match TempFile::create(folder) {
        Ok(file) => file,
        Err(error) => {
            let why = os_error(&error);
            let message = format_args!("open() of a temporary file failed ({why})");
            request_error::write(req, Level::Crit, message);
            return (answer.body, answer.backlog);
        }
    };
    let storing = Storing {
        file: Some(file),
        to: PathBuf::from(OsStr::from_bytes(&to)),
        mode: policy.access.0,
        announced: answer.length,
        written: 0,
        last_modified: answer.last_modified,
        log: request_error::remember(req),
    };
    let (sender, parts) = mpsc::channel(READ_AHEAD);
    // The task belongs to the generation: a graceful shutdown waits for it.
    let member = req.generation().enter();
    tokio::task::spawn_local(async move {
        storing.run(answer.body, sender).await;
        drop(member);
    });
    let body = Body::stream(Stored {
        parts,
        trailers: None,
    });
    // The task does not wait for the client: what does is in the file.
    (body, None)
}

/// Message of the task to the client's side.
enum Part {
    Piece(Piece),
    Failed(BodyError),
    End(Option<Fields>),
}

/// The writing side.
struct Storing {
    /// The file; none after the disk failed.
    file: Option<TempFile>,
    to: PathBuf,
    mode: u32,
    announced: Option<u64>,
    written: u64,
    last_modified: Option<i64>,
    log: RememberedRequest,
}

impl Storing {
    async fn run(mut self, mut body: Body, client: mpsc::Sender<Part>) {
        loop {
            let part = match body.next().await {
                Some(Ok(piece)) => Part::Piece(self.write(piece)),
                Some(Err(error)) => {
                    // INVARIANT 2: a client that has gone is no reason to stop.
                    let _ = client.send(Part::Failed(error)).await;
                    return;
                }
                None => break,
            };
            if client.send(part).await.is_err() && self.file.is_none() {
                return;
            }
        }
        self.finish();
        let _ = client.send(Part::End(body.take_trailers())).await;
    }

    /// Writes a piece; what the client is to be sent for it. That is what was written, which takes
    /// no memory while the client is slow.
    fn write(&mut self, piece: Piece) -> Piece {
        let Some(temp) = &self.file else { return piece };
        let mut rest = piece.clone();
        while !rest.is_empty() {
            let written = rest
                .take_memory()
                .map_err(std::io::Error::other)
                .and_then(|bytes| (&*temp.file).write_all(&bytes));
            if let Err(error) = written {
                // INVARIANT 4.
                let (why, name) = (os_error(&error), temp.path().display());
                let message = format_args!("write() \"{name}\" failed ({why})");
                self.log.write(Level::Crit, message);
                self.file = None;
                return piece;
            }
        }
        let region = FileRegion {
            file: FileSource::Plain(Arc::clone(&temp.file)),
            offset: self.written,
            len: piece.len(),
        };
        self.written += region.len;
        Piece::File(region)
    }

    /// Moves the complete file to its place.
    fn finish(&mut self) {
        let Some(temp) = self.file.take() else { return };
        // INVARIANT 1.
        if self.announced.is_some_and(|length| length != self.written) {
            return;
        }
        let name = temp.path().display().to_string();
        let timed = match self.last_modified.map(u64::try_from) {
            Some(Ok(seconds)) => {
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
                temp.file.set_modified(time)
            }
            _ => Ok(()),
        };
        if let Err(error) = timed.and_then(|()| temp.move_to(&self.to, self.mode)) {
            let (why, to) = (os_error(&error), self.to.display());
            let message = format_args!("rename() \"{name}\" to \"{to}\" failed ({why})");
            self.log.write(Level::Crit, message);
        }
    }
}

/// The client's side.
struct Stored {
    parts: mpsc::Receiver<Part>,
    trailers: Option<Fields>,
}

impl BodyStream for Stored {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        Poll::Ready(match ready!(self.parts.poll_recv(cx)) {
            Some(Part::Piece(piece)) => Some(Ok(piece)),
            Some(Part::Failed(error)) => Some(Err(error)),
            Some(Part::End(trailers)) => {
                self.trailers = trailers;
                None
            }
            // The task was ended with its generation.
            None => Some(Err(BodyError::UpstreamTruncated)),
        })
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.trailers.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{ParseContext, Span, Word};

    fn read<T: FromArgs>(text: &str) -> Result<T, ArgError> {
        let word = |text: &str| Word {
            text: text.to_string(),
            span: Span::NONE,
            quoted: false,
        };
        let words: Vec<Word> = text.split(' ').map(word).collect();
        T::from_args(&mut Args {
            name: &word("proxy_store"),
            words: &words,
            body: None,
            cx: &mut ParseContext::default(),
        })
    }

    #[test]
    fn access_is_that_of_the_named_and_of_the_user() {
        for (text, mode) in [
            ("user:rw", 0o600),
            ("user:r", 0o400),
            ("group:r", 0o640),
            ("all:r", 0o604),
            ("user:rw group:rw all:r", 0o664),
        ] {
            assert_eq!(read(text), Ok(StoreAccess(mode)), "{text}");
        }
        for text in [
            "",
            "user",
            "user:",
            "user:w",
            "other:r",
            "user:rw all:r all:r all:r",
        ] {
            assert!(read::<StoreAccess>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_target_is_a_word_or_a_name() {
        assert_eq!(read("on"), Ok(StoreTarget::Root));
        assert_eq!(read("off"), Ok(StoreTarget::Off));
        assert!(matches!(read("/a$uri"), Ok(StoreTarget::Name(_))));
        for text in ["", "/a /b", "/a\0"] {
            assert!(read::<StoreTarget>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_and_cache_exclude_each_other_from_level_to_level() {
        const NO: Option<bool> = None;
        let (on, off) = (Some(true), Some(false));
        // Words of the levels, outermost first, and the choice that is in force.
        for (levels, files, cache) in [
            (&[(NO, NO)][..], false, false),
            (&[(on, NO), (NO, NO)], true, false),
            (&[(NO, on), (NO, NO)], false, true),
            (&[(on, NO), (NO, on)], false, true),
            (&[(NO, on), (on, NO)], true, false),
            (&[(NO, on), (off, NO)], false, true),
            (&[(NO, on), (on, NO), (off, NO)], false, false),
            (&[(on, off)], true, false),
            (&[(off, on)], false, true),
        ] {
            let said = levels.iter().map(|(files, cache)| Keeping {
                files: *files,
                cache: *cache,
            });
            let found = settle(said).map(|it| (it.files == on, it.cache == on));
            assert_eq!(found, Ok((files, cache)), "{levels:?}");
        }
        let both = Keeping {
            files: on,
            cache: on,
        };
        assert_eq!(settle([both].into_iter()).err(), Some(Incompatible));
    }
}
