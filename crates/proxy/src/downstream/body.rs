//! `client_max_body_size`, `client_body_timeout`, `client_body_buffer_size`,
//! `client_body_in_file_only`, `client_body_in_single_buffer`, `client_body_temp_path`: request
//! bodies.
//!
//! [`Incoming`] is the part of the current request's body that is still on the connection. A
//! handler reads it piece by piece ([`next_chunk`]), collects it ([`read_all`]), or leaves it to
//! the connection, which discards it before the next request.
//!
//! ```text
//! None ──begin──► Length(n) | Chunked(decoder) ──last byte──► None
//! ```
//!
//! Invariants:
//! 1. The connection is reused only when `Incoming` is `None`.
//! 2. Memory for a collected body never passes `client_body_buffer_size` by more than one read; the
//!    rest is in an unlinked or named file.
//! 3. A body longer than `client_max_body_size` is refused before it is stored anywhere.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_conf::{ByteSize, Offset};

use super::{ClientGone, Downstream};
use crate::failure::Failure;
use crate::http1::chunked::{ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits};
use crate::http1::request::Framing;
use crate::log::error::Level;
use crate::request::Request;
use crate::temp_file::{TempFile, TempFolder};

/// Bytes asked of the socket at once while a body is read.
const READ_SIZE: usize = 16 * 1024;

/// Bytes of an unwanted body that are read before its answer is made; arbitrarily what a socket
/// holds by default. The rest is read after it.
const DISCARDED_BEFORE_ANSWER: usize = 128 * 1024;

/// When a request body is kept in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum InFileOnly {
    /// Only what does not fit into memory; removed after the request.
    #[word("off")]
    Off,
    /// Always, and the file stays.
    #[word("on")]
    On,
    /// Always; removed after the request.
    #[word("clean")]
    Clean,
}

/// How request bodies are read.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct BodyPolicy {
    /// The largest request body; a larger one is answered with 413. 0 switches the check off.
    #[directive(name = "client_max_body_size", default = "1m")]
    pub max_size: Offset,
    /// The time between two reads of a request body, after which the request is answered with 408.
    #[directive(name = "client_body_timeout", default = "60s")]
    pub timeout: Duration,
    /// Memory for a request body; a larger one goes to a temporary file.
    #[directive(name = "client_body_buffer_size", default = "16k")]
    pub buffer_size: ByteSize,
    /// Whether the whole body is kept in a file, for debugging or for `$request_body_file`.
    #[directive(name = "client_body_in_file_only", default = "off")]
    pub in_file_only: InFileOnly,
    /// Whether the body is kept in one buffer, so that `$request_body` needs no copy.
    ///
    /// # Differs from nginx
    ///
    /// A body in memory is always in one buffer.
    #[directive(name = "client_body_in_single_buffer", default = "off")]
    pub in_single_buffer: bool,
    /// Folder of temporary files of request bodies, with up to three levels of subfolders, which
    /// are named after that many of the last digits of a file's number.
    #[directive(name = "client_body_temp_path", default = "client_body_temp")]
    pub temp_path: TempFolder,
}

/// The part of a body that is still to be received.
#[derive(Debug, Default)]
pub enum Incoming {
    /// Nothing.
    #[default]
    None,
    /// So many bytes.
    Length {
        /// Bytes to come.
        left: u64,
    },
    /// Chunked coding.
    Chunked {
        /// Where in the coding it is.
        decoder: Box<ChunkedDecoder>,
    },
}

impl Incoming {
    /// The body that a head announces.
    pub fn begin(framing: Framing) -> Self {
        match framing {
            Framing::Length(left) if left > 0 => Incoming::Length { left },
            Framing::Chunked => Incoming::Chunked {
                decoder: Box::new(ChunkedDecoder::new(
                    Strictness::Request,
                    TrailerLimits::default(),
                )),
            },
            _ => Incoming::None,
        }
    }

    /// True when nothing is left on the connection.
    pub fn is_done(&self) -> bool {
        matches!(self, Incoming::None)
    }

    /// Takes what `inbox` holds of the body: `Some(bytes)` (empty at the end), or `None` for need
    /// of more.
    fn take(&mut self, inbox: &mut BytesMut) -> Result<Option<Bytes>, Failure> {
        match self {
            Incoming::None => Ok(Some(Bytes::new())),
            Incoming::Length { left } => {
                if inbox.is_empty() {
                    return Ok(None);
                }
                let count = (*left).min(inbox.len() as u64);
                *left -= count;
                let bytes = inbox.split_to(count as usize).freeze();
                if *left == 0 {
                    *self = Incoming::None;
                }
                Ok(Some(bytes))
            }
            Incoming::Chunked { decoder } => match decoder.decode(inbox) {
                Ok(ChunkEvent::NeedMore) => Ok(None),
                Ok(ChunkEvent::Data(bytes)) => Ok(Some(bytes)),
                Ok(ChunkEvent::End { .. }) => {
                    *self = Incoming::None;
                    Ok(Some(Bytes::new()))
                }
                Err(error) => Err(Failure::bad_request(error.to_string())),
            },
        }
    }
}

/// Takes what has come of the current request's body, and counts it, framing and all, as a part of
/// the request.
fn take(down: &Downstream) -> Result<Option<Bytes>, Failure> {
    let mut inbox = down.inbox.borrow_mut();
    let before = inbox.len();
    let taken = down.incoming.borrow_mut().take(&mut inbox);
    let count = before.saturating_sub(inbox.len()) as u64;
    down.request_bytes.set(down.request_bytes.get() + count);
    taken
}

/// The next bytes of the current request's body; empty at the end.
///
/// Sends `100 Continue` before it waits for the first byte, when the client asked for it.
pub async fn next_chunk(down: &Downstream, timeout: Duration) -> Result<Bytes, Failure> {
    loop {
        let taken = take(down)?;
        if let Some(bytes) = taken {
            return Ok(bytes);
        }
        send_continue(down).await?;
        if !down.fill_inbox(READ_SIZE, timeout).await? {
            return Err(ClientGone::Closed.into());
        }
    }
}

/// What has come of the current request's body, up to about `max` bytes, without waiting; and
/// whether that is all of it.
pub fn take_ready(down: &Downstream, max: usize) -> Result<(Bytes, Remains), Failure> {
    let mut ready = BytesMut::new();
    let mut asked = false;
    while !down.incoming.borrow().is_done() && ready.len() < max {
        let taken = take(down)?;
        match taken {
            Some(bytes) => ready.extend_from_slice(&bytes),
            // One look at the socket: what the kernel has already is as good as read.
            None if !asked => {
                asked = true;
                let mut inbox = down.inbox.borrow_mut();
                inbox.reserve(READ_SIZE);
                let mut cx = Context::from_waker(Waker::noop());
                match down.socket.poll_recv(&mut cx, &mut inbox) {
                    Poll::Ready(Ok(0)) => return Err(ClientGone::Closed.into()),
                    Poll::Ready(Err(error)) => return Err(ClientGone::Io(error).into()),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                }
            }
            None => break,
        }
    }
    let remains = match down.incoming.borrow().is_done() {
        true => Remains::Nothing,
        false => Remains::More,
    };
    Ok((ready.freeze(), remains))
}

/// Throws away what has come of a body that nobody will read, before the answer is made: a fault
/// in it is then answered, and not found only when the answer is on its way. A body that the
/// client was not asked for is let be: its connection ends with the answer.
pub fn discard_ready(down: &Downstream) -> Result<(), Failure> {
    if down.wants_continue.get() {
        return Ok(());
    }
    let counted = down.request_bytes.get();
    let outcome = discard_arrived(down);
    // nginx: what is thrown away is no part of `$request_length`.
    down.request_bytes.set(counted);
    outcome
}

fn discard_arrived(down: &Downstream) -> Result<(), Failure> {
    let mut left = DISCARDED_BEFORE_ANSWER;
    while left > 0 && !down.incoming.borrow().is_done() {
        match take_ready(down, READ_SIZE) {
            Ok((ready, Remains::More)) if !ready.is_empty() => {
                left = left.saturating_sub(ready.len());
            }
            // What is amiss with the connection shows when the answer is sent.
            Ok(_) | Err(Failure::Client(_)) => return Ok(()),
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Whether there is more of a body than was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// That was all.
    Nothing,
    /// More is to come.
    More,
}

/// Refuses a streamed body when more has come than allowed.
pub fn check_received(req: &Request, received: u64) -> Result<(), Failure> {
    let max = req.location.settings.body.max_size.0;
    match max > 0 && received > max {
        true => Err(too_large(received)),
        false => Ok(()),
    }
}

/// RFC 9110 §10.1.1: the interim answer that lets a waiting client send its body; once, if it asked
/// for it.
async fn send_continue(down: &Downstream) -> Result<(), Failure> {
    if !down.wants_continue.take() {
        return Ok(());
    }
    let text: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let slices = [std::io::IoSlice::new(text)];
    // A fresh line of 25 bytes always fits: anything shorter is a connection in trouble.
    let sent = std::future::poll_fn(|cx| {
        down.socket
            .poll_send(cx, &slices, crate::socket::More::Nothing)
    })
    .await;
    match sent {
        Ok(count) if count == text.len() => Ok(()),
        Ok(_) => Err(ClientGone::Closed.into()),
        Err(error) => Err(ClientGone::Io(error).into()),
    }
}

/// A request's body as its handlers see it.
#[derive(Clone, Debug, Default)]
pub enum RequestBody {
    /// There is none.
    #[default]
    None,
    /// It is (still) on the connection.
    Unread {
        /// Its length, when it was announced.
        length: Option<u64>,
    },
    /// Collected in memory.
    Memory(Bytes),
    /// Collected in a file.
    File(Rc<BodyFile>),
}

/// A collected body in a file; removed with its last user unless it is to stay.
#[derive(Debug)]
pub struct BodyFile {
    /// The open file.
    pub file: Arc<File>,
    /// Its name.
    pub path: PathBuf,
    /// Bytes.
    pub len: u64,
    /// Removes it.
    _temp: TempFile,
}

impl RequestBody {
    /// No body.
    pub fn none() -> Self {
        RequestBody::None
    }

    /// The body for a background copy: what is collected is shared, what is not is left out.
    pub fn share(&self) -> Self {
        match self {
            RequestBody::Unread { .. } => RequestBody::None,
            collected => collected.clone(),
        }
    }

    /// Length, when known.
    pub fn len(&self) -> Option<u64> {
        match self {
            RequestBody::None => Some(0),
            RequestBody::Unread { length } => *length,
            RequestBody::Memory(bytes) => Some(bytes.len() as u64),
            RequestBody::File(file) => Some(file.len),
        }
    }

    /// True when there is no body, or an empty one.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// Refuses a body that is announced longer than allowed; called when the location is known.
pub fn check_announced(req: &Request) -> Result<(), Failure> {
    let max = req.location.settings.body.max_size.0;
    match req.body {
        RequestBody::Unread {
            length: Some(length),
        } if max > 0 && length > max => Err(too_large(length)),
        _ => Ok(()),
    }
}

fn too_large(length: u64) -> Failure {
    Failure::too_large(format!(
        "client intended to send too large body: {length} bytes"
    ))
}

/// Whether [`read_all`] has something to do: a body is to come, or its client waits to be told to
/// go on, which nginx tells it also before a body that is empty.
pub fn is_to_be_read(req: &Request) -> bool {
    matches!(req.body, RequestBody::Unread { .. }) || req.down.wants_continue.get()
}

/// Collects the whole body into memory or a file.
pub async fn read_all(req: &mut Request) -> Result<(), Failure> {
    if req.is_clients_own() {
        // nginx: also before a body that is there already, or empty.
        send_continue(&req.down).await?;
    }
    let RequestBody::Unread { length } = req.body else {
        return Ok(());
    };
    let policy = req.location.settings.body.clone();
    let mut sink = Sink::new(&policy, length);
    loop {
        let chunk = next_chunk(&req.down, policy.timeout).await?;
        if chunk.is_empty() {
            break;
        }
        sink.len += chunk.len() as u64;
        if policy.max_size.0 > 0 && sink.len > policy.max_size.0 {
            return Err(too_large(sink.len));
        }
        let was_in_memory = sink.file.is_none();
        sink.write(&policy, &chunk)?;
        if was_in_memory && let Some(temp) = &sink.file {
            note_file(req, &policy, temp);
        }
        if req.down.incoming.borrow().is_done() {
            break;
        }
    }
    req.body = sink.finish();
    Ok(())
}

/// nginx: that a body does not fit into its buffer is worth a warning, unless files were asked for.
fn note_file(req: &Request, policy: &BodyPolicy, temp: &TempFile) {
    let level = match policy.in_file_only {
        InFileOnly::Off => Level::Warn,
        InFileOnly::On | InFileOnly::Clean => Level::Notice,
    };
    let path = temp.path().display();
    let message = format_args!("a client request body is buffered to a temporary file {path}");
    crate::log::error::write(req, level, message);
}

/// Where a body is collected.
struct Sink {
    memory: BytesMut,
    file: Option<TempFile>,
    len: u64,
}

impl Sink {
    fn new(policy: &BodyPolicy, length: Option<u64>) -> Self {
        let buffer = policy.buffer_size.0;
        let capacity = length.unwrap_or(0).min(buffer) as usize;
        Sink {
            memory: BytesMut::with_capacity(capacity),
            file: None,
            len: 0,
        }
    }

    fn write(&mut self, policy: &BodyPolicy, chunk: &[u8]) -> Result<(), Failure> {
        let fits = (self.memory.len() + chunk.len()) as u64 <= policy.buffer_size.0;
        if self.file.is_none() && fits && policy.in_file_only == InFileOnly::Off {
            self.memory.extend_from_slice(chunk);
            return Ok(());
        }
        let temp = match &mut self.file {
            Some(temp) => temp,
            None => {
                let temp = create_file(policy).map_err(Failure::disk)?;
                (&*temp.file)
                    .write_all(&self.memory)
                    .map_err(Failure::disk)?;
                self.memory.clear();
                self.file.insert(temp)
            }
        };
        (&*temp.file).write_all(chunk).map_err(Failure::disk)
    }

    fn finish(self) -> RequestBody {
        match self.file {
            Some(temp) => RequestBody::File(Rc::new(BodyFile {
                file: Arc::clone(&temp.file),
                path: temp.path().to_owned(),
                len: self.len,
                _temp: temp,
            })),
            None if self.memory.is_empty() => RequestBody::None,
            None => RequestBody::Memory(self.memory.freeze()),
        }
    }
}

/// A file for a body.
fn create_file(policy: &BodyPolicy) -> std::io::Result<TempFile> {
    let mut temp = TempFile::create(&policy.temp_path)?;
    match policy.in_file_only {
        // nginx: nobody is to look for it by its name, and so nothing of it is left after a crash.
        InFileOnly::Off => temp.unlink()?,
        InFileOnly::Clean => {}
        // nginx: what came of a body that was broken off stays, too.
        InFileOnly::On => temp.keep(),
    }
    Ok(temp)
}
