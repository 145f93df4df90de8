//! From a handler's answer to bytes on the connection: filters, framing, head, body.
//!
//! `server_tokens`, `etag` and `chunked_transfer_encoding` are obeyed by the filters; here is only
//! what every answer needs.
//!
//! ```text
//! begin ─┬─ all of it is in memory, and the socket takes it ──────────────► Ended
//!        └─ Refused ► BodyBegins ► Send: each only where it is needed (go_on) ──► Ended
//! ```
//!
//! Invariants:
//! 1. An answer to HEAD, and 204, 304 and 1xx, have no body (RFC 9112 §6.3).
//! 2. A body whose length is unknown is chunked for HTTP/1.1 and ends with the connection before
//!    that.
//! 3. `req.sent` is right when the answer has ended, also after an error.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_conf::value::SizeTemplate;

use crate::body::{Body, BodyError, Piece};
use crate::cache::loaded::ready_len;
use crate::clock;
use crate::downstream::writer::{self, Answer, OutFraming, SendError, SendLimits, SentBytes};
use crate::downstream::{ClientGone, Downstream};
use crate::filter::fragment;
use crate::filter::{self, Refusal};
use crate::header::{Fields, Known, KnownSet};
use crate::http1::Version;
use crate::http1::encode;
use crate::request::Request;
use crate::response::{Response, Source};
use crate::socket::JOINED;
use crate::stats::Label;
use crate::stats::site::Answered;
use crate::stats::times::Timed;

/// Status of an answer that is none: the connection is closed instead (nginx: `return 444`).
pub const CLOSE_WITHOUT_ANSWER: u16 = 444;

/// How far an answer came without waiting.
pub enum Begun {
    /// To its end; an error means that the connection must be closed.
    Ended(Result<(), SendError>),
    /// The rest is for [`go_on`].
    Waits(Rest),
}

/// What is left to do of an answer.
pub enum Rest {
    /// Another answer is to be made in its place.
    Refused(Refusal),
    /// The begin of its body is to be waited for.
    BodyBegins(OutFraming),
    /// It is to be sent.
    Send(Unsent),
}

/// An answer whose head is written, and of which the socket has taken something, or nothing.
pub struct Unsent {
    head: Bytes,
    framing: OutFraming,
    limits: SendLimits,
    /// Bytes that the socket has taken.
    taken: u64,
}

/// Filters the answer, and sends it if its body is there and the socket takes all of it.
pub fn begin(req: &mut Request, response: &mut Response) -> Begun {
    // An upstream may answer with these statuses; of our own they mean that nobody is to be told.
    let is_unspoken = matches!(response.status, CLOSE_WITHOUT_ANSWER | 408 | 499);
    if is_unspoken && response.source == Source::Own {
        req.sent.status = response.status;
        req.keep_alive = false;
        return Begun::Ended(Err(ClientGone::Closed.into()));
    }
    if let Err(refusal) = filter::run(req, response) {
        return Begun::Waits(Rest::Refused(refusal));
    }
    let framing = framing(req, response);
    if response.waits_for_body && framing != OutFraming::NoBody {
        return Begun::Waits(Rest::BodyBegins(framing));
    }
    match start(req, response, framing) {
        Ok(sent) => Begun::Ended(sent),
        Err(unsent) => Begun::Waits(Rest::Send(unsent)),
    }
}

/// Does the rest; an error means that the connection must be closed.
pub async fn go_on(
    req: &mut Request,
    response: &mut Response,
    rest: Rest,
) -> Result<(), SendError> {
    let framing = match rest {
        Rest::Send(unsent) => return finish(req, response, unsent).await,
        Rest::BodyBegins(framing) => framing,
        Rest::Refused(refusal) => {
            replace(req, response, refusal).await;
            framing(req, response)
        }
    };
    if response.waits_for_body && framing != OutFraming::NoBody {
        begin_body(req, response).await?;
    }
    match start(req, response, framing) {
        Ok(sent) => sent,
        Err(unsent) => finish(req, response, unsent).await,
    }
}

/// Puts the answer to a refusal in the place of the refused one.
async fn replace(req: &mut Request, response: &mut Response, refusal: Refusal) {
    let kept = refusal.take_fields(response);
    *response = *crate::phase::answer_refused(req, refusal.status).await;
    refusal.complete(response);
    // The conditions and ranges of the answer are settled: nothing is refused twice.
    let _ = filter::run(req, response);
    for field in kept {
        if response.fields.find(&field.name).is_none() {
            response.fields.push(field);
        }
    }
}

/// Writes the head, and has the socket take it, with the body if that is in memory. Comes back
/// with what is left to be sent.
fn start(
    req: &mut Request,
    response: &mut Response,
    framing: OutFraming,
) -> Result<Result<(), SendError>, Unsent> {
    let keep_alive_allowed = req.location.settings.keep_alive.allows(req);
    req.keep_alive &=
        keep_alive_allowed && !response.must_close && framing != OutFraming::UntilClose;
    let mut block = HEADS.with(Cell::take).unwrap_or_default();
    reserve_head(&mut block, response);
    write_head(req, response, framing, &mut block);
    let head_len = block.len();
    if let OutFraming::Length(_) = framing {
        // Not before the head is written: what it says of the upstream is said without the body.
        response.body.settle();
    }
    let limits = limits(req);
    let sent = match body_at_once(response, framing) {
        _ if limits.rate > 0 => Ok(0),
        Some(body) => send_at_once(&req.down, &mut block, body),
        None if join_file(response, framing, &mut block) => req.down.socket.try_send(&block),
        None => Ok(0),
    };
    let whole = match framing {
        OutFraming::Length(len) => Some(head_len as u64 + len),
        OutFraming::NoBody => Some(head_len as u64),
        OutFraming::Chunked | OutFraming::UntilClose => None,
    };
    match sent {
        Ok(count) if Some(count as u64) != whole => {
            block.truncate(head_len);
            let head = block.split().freeze();
            HEADS.with(|it| it.set(Some(block)));
            Err(Unsent {
                head,
                framing,
                limits,
                taken: count as u64,
            })
        }
        sent => {
            block.clear();
            HEADS.with(|it| it.set(Some(block)));
            let count = *sent.as_ref().unwrap_or(&0);
            let bytes = SentBytes::of(count as u64, head_len as u64);
            let outcome = sent
                .map(|_| ())
                .map_err(|error| ClientGone::Io(error).into());
            // It was sent when its head was written.
            let whole = (req.started == req.head_at).then_some(req.sent.first_byte);
            end(req, response, (bytes, whole), &outcome);
            Ok(outcome)
        }
    }
}

/// The body, if all of it is there and goes out as it is.
fn body_at_once(response: &Response, framing: OutFraming) -> Option<&[u8]> {
    match (framing, &response.body) {
        (OutFraming::NoBody | OutFraming::Length(0), _) => Some(&[]),
        (OutFraming::Length(len), Body::One(Piece::Memory(bytes))) => Some(bytes)
            .filter(|bytes| bytes.len() as u64 == len)
            .map(|bytes| &**bytes),
        _ => None,
    }
}

/// Reads a short body from its file to behind the head, if no disk must be waited for: that costs
/// less than a call of its own to send it. What cannot be read is left to who sends files.
fn join_file(response: &Response, framing: OutFraming, block: &mut BytesMut) -> bool {
    let (OutFraming::Length(len), Body::One(Piece::File(region))) = (framing, &response.body)
    else {
        return false;
    };
    let head_len = block.len();
    let is_short = len == region.len && len <= JOINED.saturating_sub(head_len) as u64;
    let ready = &response.first_look.ready;
    let is_ready = ready.start <= region.offset && region.offset + len <= ready.end;
    if !is_short || !is_ready && ready_len(region, len) < len {
        return false;
    }
    block.resize(head_len + len as usize, 0);
    let is_read = match block.get_mut(head_len..) {
        Some(place) => region.read_into(place).is_ok(),
        None => false,
    };
    if !is_read {
        block.truncate(head_len);
    }
    is_read
}

/// Sends a head and the body behind it, as far as the socket takes them; says how many bytes. A
/// short body is in the block of the head then.
fn send_at_once(down: &Downstream, head: &mut BytesMut, body: &[u8]) -> io::Result<usize> {
    if head.len() + body.len() <= JOINED {
        head.extend_from_slice(body);
        return down.socket.try_send(head);
    }
    down.socket.try_send_both(head, body)
}

/// Sends what the socket has not taken, and what of the body is still to come.
async fn finish(
    req: &mut Request,
    response: &mut Response,
    unsent: Unsent,
) -> Result<(), SendError> {
    if unsent.framing == OutFraming::Chunked {
        response.provenance.is_changed();
    }
    let down = Rc::clone(&req.down);
    let mut body = std::mem::take(&mut response.body);
    let mut trailers = |own: Option<Fields>| filter::trailers(req, own);
    let answer = Answer {
        head: unsent.head,
        body: &mut body,
        framing: unsent.framing,
        taken: unsent.taken,
        trailers: &mut trailers,
    };
    let mut sent = SentBytes::default();
    let outcome = writer::send(&down, answer, &unsent.limits, &mut sent).await;
    req.sent.ended = Some(clock::instant());
    end(req, response, (sent, None), &outcome);
    outcome
}

/// Notes what was sent, and how long it took if that is known.
fn end(
    req: &mut Request,
    response: &Response,
    (sent, whole): (SentBytes, Option<Duration>),
    outcome: &Result<(), SendError>,
) {
    req.sent.head_bytes = sent.head;
    req.sent.body_bytes = sent.body;
    req.sent.shares = response.provenance.shares(sent.body);
    req.sent.is_complete = outcome.is_ok();
    count(req, whole);
    if let Err(error) = outcome {
        req.keep_alive = false;
        crate::log::error::send_failed(req, error);
    }
}

/// Waits for the begin of a page's body; a page whose part fails before that is not answered.
async fn begin_body(req: &mut Request, response: &mut Response) -> Result<(), SendError> {
    let mut body = std::mem::take(&mut response.body);
    let first = match Box::pin(body.next()).await {
        Some(Err(
            error @ (BodyError::Subrequest(_) | BodyError::ClientLeft | BodyError::Slice(_)),
        )) => {
            req.sent.status = response.status;
            req.keep_alive = false;
            let error = SendError::from(error);
            crate::log::error::send_failed(req, &error);
            return Err(error);
        }
        first => first,
    };
    response.body = match first {
        Some(first) => Body::stream(fragment::Begun::new(first, body)),
        None => Body::Empty,
    };
    Ok(())
}

/// Enters the answer in the worker's counters.
fn count(req: &mut Request, whole: Option<Duration>) {
    let site = crate::cache::site::id(req);
    let worker = &req.down.generation.worker;
    let (label, zone) = {
        let trace = req.upstream.borrow();
        (Label::of(trace.cache_status), trace.zone)
    };
    let answered = Answered {
        label,
        bytes: req.sent.body_bytes,
        shares: req.sent.shares,
    };
    let shared = &worker.shared;
    let place = worker.place.place;
    shared.cache.record(place, label, answered.bytes);
    if let Some(site) = site {
        shared.sites.answered(place, site, &answered);
    }
    let until_end = || req.sent.ended.unwrap_or_else(clock::instant) - req.started;
    let timed = Timed {
        label,
        status: req.sent.status,
        first_byte: req.sent.first_byte,
        whole: whole.unwrap_or_else(until_end),
    };
    shared.times.answered(place, &timed);
    if let Some(zone) = zone {
        let answer = (label, answered.bytes);
        shared.cache_zones.answered(place, zone, answer);
    }
    if label.is_miss() {
        let missing = &worker.shared.missing;
        missing.record(worker.index, &req.host, req.unparsed_uri());
    }
}

fn framing(req: &Request, response: &Response) -> OutFraming {
    if req.is_head() || matches!(response.status, 204 | 304) || response.status < 200 {
        return OutFraming::NoBody;
    }
    match response.length {
        Some(length) => OutFraming::Length(length),
        None if may_chunk(req) => OutFraming::Chunked,
        None => OutFraming::UntilClose,
    }
}

fn may_chunk(req: &Request) -> bool {
    req.head.version() == Version::Http11 && req.location.settings.chunked.enabled
}

fn limits(req: &mut Request) -> SendLimits {
    let policy = &req.location.settings.send;
    let (mut rate, mut rate_after) = (req.limit_rate, 0);
    if policy.rate.is_some() || policy.rate_after.is_some() {
        let location = std::sync::Arc::clone(&req.location);
        let policy = &location.settings.send;
        rate = rate.or_else(|| Some(eval_size(req, policy.rate.as_ref())));
        rate_after = eval_size(req, policy.rate_after.as_ref());
    }
    // nginx: `$limit_rate` is from now on the rate that the answer is sent at.
    req.limit_rate = rate;
    let policy = &req.location.settings.send;
    SendLimits {
        timeout: policy.timeout,
        rate: rate.unwrap_or(0),
        rate_after,
        file_chunk: match policy.sendfile_max_chunk.0 {
            0 => u64::MAX,
            chunk => chunk,
        },
    }
}

fn eval_size(req: &mut Request, template: Option<&SizeTemplate>) -> u64 {
    let Some(template) = template else { return 0 };
    let text = req.eval(&template.0);
    std::str::from_utf8(&text)
        .ok()
        .and_then(millpond_conf::value::parse_offset)
        .unwrap_or(0)
}

/// Bytes of the block that heads are written into, one behind the other; it is used again when they
/// were all sent. (Arbitrary: a short answer or some heads, and no more than a slow client may
/// keep.)
const HEADS_BLOCK: usize = 8192;
/// Space for all of a head but the fields that it shares with others: most fit without growing.
const HEAD_RESERVE: usize = 512;

thread_local! {
    static HEADS: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// Makes room for a head, and a short body.
fn reserve_head(block: &mut BytesMut, response: &Response) {
    let mut needed = HEAD_RESERVE + response.fields.shared_len();
    if let Body::One(Piece::Memory(bytes)) = &response.body {
        needed += bytes.len().min(JOINED);
    }
    if block.capacity() < needed {
        block.reserve(needed.max(HEADS_BLOCK));
    }
}

fn write_head(
    req: &mut Request,
    response: &mut Response,
    framing: OutFraming,
    head: &mut BytesMut,
) {
    let now = clock::instant();
    req.sent.first_byte = now.saturating_duration_since(req.head_at);
    // What goes out at once was sent now.
    req.sent.ended = Some(now);
    if req.head.version() == Version::Http09 {
        req.sent.status = response.status;
        return;
    }
    match &response.status_text {
        Some(text) => encode::write_status_text(head, text),
        None => encode::write_status(head, response.status),
    }
    write_own_lines(req, response, head);
    encode::write_fields(head, &response.fields);
    encode_framing(head, response, framing);
    encode_end(req, head, response.status);
    req.sent.status = response.status;
    req.sent.length = response.length;
    req.sent.is_chunked = framing == OutFraming::Chunked;
    req.sent.fields = std::mem::take(&mut response.fields);
}

/// What this server says of itself: its name, and its time.
fn write_own_lines(req: &Request, response: &Response, head: &mut BytesMut) {
    const OWN_LINES: KnownSet = KnownSet::of(&[Known::Server, Known::Date]);
    let fields = &response.fields;
    let (mut hides_server, mut hides_date) = (response.hides_server, response.hides_date);
    if fields.has_any(OWN_LINES) {
        hides_server |= fields.contains(Known::Server);
        hides_date |= fields.contains(Known::Date);
    }
    let server = match hides_server {
        true => &[],
        false => req.location.settings.tokens.server_line(),
    };
    if hides_date {
        return encode::write_line(head, server);
    }
    let now_us = match req.has_waited {
        // It was just noted.
        true => req.sent.ended.map_or_else(clock::now_us, clock::wall_us),
        false => req.started_us + req.sent.first_byte.as_micros() as i64,
    };
    clock::with_date_line(now_us, server, |lines| encode::write_line(head, lines));
}

fn encode_framing(head: &mut BytesMut, response: &Response, framing: OutFraming) {
    match (framing, response.length) {
        // RFC 9110 §8.6: no Content-Length in 1xx and 204; nginx sends none with 304 either.
        (OutFraming::NoBody, _) if matches!(response.status, 100..=199 | 204 | 304) => {}
        (OutFraming::NoBody | OutFraming::Length(_), Some(length)) => {
            encode::write_content_length(head, length);
        }
        (OutFraming::Chunked, _) => {
            encode::write_line(head, b"Transfer-Encoding: chunked\r\n");
        }
        _ => {}
    }
}

/// What becomes of the connection, and the end of the head.
fn encode_end(req: &Request, head: &mut BytesMut, status: u16) {
    let keep_alive = &req.location.settings.keep_alive;
    match (status, req.keep_alive) {
        (101, _) => encode::write_line(head, b"Connection: upgrade\r\n\r\n"),
        (_, false) => encode::write_line(head, b"Connection: close\r\n\r\n"),
        (_, true) => match keep_alive.header_timeout() {
            None => encode::write_line(head, b"Connection: keep-alive\r\n\r\n"),
            Some(seconds) => {
                encode::write_line(head, b"Connection: keep-alive\r\n");
                let timeout = format!("timeout={seconds}");
                encode::write_known(head, Known::KeepAlive, timeout.as_bytes());
                encode::end_head(head);
            }
        },
    }
}

/// Whether answers of unknown length are chunked.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct ChunkedPolicy {
    /// When off, an answer of unknown length ends with its connection, for clients that cannot read
    /// chunks.
    #[directive(name = "chunked_transfer_encoding", default = "on")]
    pub enabled: bool,
}

/// What the server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum Tokens {
    /// Name and version.
    #[word("on")]
    On,
    /// The name only.
    #[word("off")]
    Off,
    /// Name and version; there is no build name to add.
    #[word("build")]
    Build,
}

/// How the server names itself in the Server field and on error pages.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct TokensPolicy {
    /// Whether the version is named.
    ///
    /// # Differs from nginx
    ///
    /// The name is Millpond's own.
    #[directive(name = "server_tokens", default = "on")]
    pub tokens: Tokens,
}

impl TokensPolicy {
    /// The Server field as a whole line.
    pub fn server_line(&self) -> &'static [u8] {
        match self.tokens {
            Tokens::Off => b"Server: millpond\r\n",
            Tokens::On | Tokens::Build => {
                concat!("Server: millpond/", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes()
            }
        }
    }

    /// The value of the Server field.
    pub fn server_field(&self) -> &'static [u8] {
        match self.tokens {
            Tokens::Off => b"millpond",
            Tokens::On | Tokens::Build => {
                concat!("millpond/", env!("CARGO_PKG_VERSION")).as_bytes()
            }
        }
    }
}
