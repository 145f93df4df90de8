//! Responses of upstreams: the incremental parser and the head that it makes.
//!
//! ```text
//! start ──"HTTP/1.1 200"──► status line ──► fields ──""──► Done(head)
//!   └── anything else ──► NotHttp              └── malformed, too big ──► Refuse
//! ```
//!
//! 1. `NotHttp` consumes nothing: the bytes are the body of an answer without a head.
//! 2. A head of more than `max` bytes never passes, however it is cut; what cannot be a status
//!    line is `NotHttp` whatever `max` is.
//! 3. A head's framing has one reading: see [`ResponseHead::framing`].
//! 4. Values hold neither NUL nor CR nor LF; names neither controls nor spaces.
//!
//! Line ends may be a bare LF, and CR may be repeated before it, since origins do so. Interim
//! answers (1xx) are given out like others; the caller goes on with the next head.
//!
//! Heads without a status line are read by [`cgi`].
//!
//! Sources: RFC 9112 §4 and §6.3; nginx's status line grammar.

pub mod cgi;

use std::cell::Cell;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use super::line::{self, LineEnd, LineScanner};
use super::{Method, Version, content_length};
use crate::head::place::{NameKind, Span};
use crate::header::{Fields, Known, list_has};

/// Longest begin of a status line, up to the end of the status: `HTTP/1.1 200` is 12 bytes, and
/// long version numbers and further spaces are let through up to this, arbitrarily.
const PREFIX_MAX: usize = 64;

/// Interim answers that may come before a final one (arbitrary: far more than any honest peer
/// sends).
pub const MAX_INTERIM: u32 = 100;

/// The begin of a status line.
const STATUS_LINE: &[u8] = b"HTTP/";

/// The reason why an upstream's answer is refused. The text is what the error log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The head does not fit the limit.
    #[error("upstream sent too big header")]
    TooBig,
    /// A field line is malformed.
    #[error("upstream sent invalid header")]
    InvalidField,
    /// A status below 100, or with more than three digits behind a dot.
    #[error("upstream sent invalid status")]
    InvalidStatus,
    /// An interim answer in a version that does not know them.
    #[error("upstream sent HTTP/1.0 response with early hints")]
    EarlyHintsInHttp10,
    /// A field that must be unique came twice.
    #[error("upstream sent duplicate header line: \"{}\"", .0.canonical())]
    DuplicateField(Known),
    /// The Content-Length field is not a number.
    #[error("upstream sent invalid \"Content-Length\" header")]
    InvalidLength,
    /// Content-Length and Transfer-Encoding together.
    #[error("upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time")]
    LengthAndEncoding,
    /// A Transfer-Encoding other than exactly `chunked`.
    #[error("upstream sent unknown \"Transfer-Encoding\"")]
    UnknownEncoding,
}

/// The result of one call of the parser.
#[derive(Debug)]
pub enum Progress {
    /// The head is not complete.
    NeedMore,
    /// The head; its bytes were taken from the buffer.
    Done(ResponseHead),
    /// The answer has no status line: all that came and comes is the body (nginx: "upstream sent no
    /// valid HTTP/1.0 header"). Nothing was taken from the buffer.
    NotHttp,
    /// The answer cannot be used.
    Refuse(Fault),
}

/// The framing of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The answer has no body, whatever the fields say: HEAD, 1xx, 204, 304.
    None,
    /// The body has so many bytes; may be zero.
    Length(u64),
    /// The body ends where the chunked coding says.
    Chunked,
    /// The body goes on until the upstream closes the connection.
    UntilClose,
    /// None, and no further answer either: the connection belongs to another protocol from here on
    /// (101, RFC 9110 §15.2.2).
    Switched,
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The version; later minor and major versions count as HTTP/1.1.
    pub version: Version,
    /// The status, 100 to 999.
    pub status: u16,
    /// Status and text as written, to be passed on (`404 Not Found`).
    pub status_line: Bytes,
    /// The fields in order.
    pub fields: Fields,
    /// Bytes of the whole head, line ends included.
    pub head_len: usize,
}

impl ResponseHead {
    /// The text after the status and one space; may be empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        match self.status_line.get(3..) {
            Some([b' ', text @ ..] | text) => text,
            None => &[],
        }
    }

    /// The framing of the body, or the reason why nobody can tell its end.
    ///
    /// # Errors
    /// Content-Length or Transfer-Encoding twice or both, malformed or unknown ones. These are
    /// refused even where there is no body, since the next reader may not know that.
    pub fn framing(&self, request: Method) -> Result<Framing, Fault> {
        let (mut length, mut encoding) = (Once::default(), Once::default());
        for field in &self.fields {
            match field.known {
                Known::ContentLength => length.add(&field.value),
                Known::TransferEncoding => encoding.add(&field.value),
                _ => {}
            }
        }
        let length = length.value(Known::ContentLength)?;
        let encoding = encoding.value(Known::TransferEncoding)?;
        let length = match length.map(|value| content_length(value)) {
            Some(None) => return Err(Fault::InvalidLength),
            Some(length) => length,
            None => None,
        };
        if let Some(encoding) = encoding {
            if length.is_some() {
                return Err(Fault::LengthAndEncoding);
            }
            if !encoding.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::UnknownEncoding);
            }
        }
        if self.status == 101 {
            return Ok(Framing::Switched);
        }
        let has_no_body = request == Method::Head || matches!(self.status, 100..=199 | 204 | 304);
        Ok(match (has_no_body, encoding, length) {
            (true, _, _) => Framing::None,
            (false, Some(_), _) => Framing::Chunked,
            (false, None, Some(length)) => Framing::Length(length),
            (false, None, None) => Framing::UntilClose,
        })
    }

    /// True if the upstream lets the connection live on, as far as the head says. As in nginx,
    /// `close` is looked for anywhere in a Connection field, and HTTP/1.0 always closes.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.version == Version::Http11
            && !self
                .fields
                .iter()
                .any(|field| field.known == Known::Connection && says_close(&field.value))
    }

    /// True if a Connection field lists `token`, in any case.
    #[must_use]
    pub fn connection_has(&self, token: &[u8]) -> bool {
        self.fields
            .get_all(Known::Connection)
            .any(|value| list_has(value, token))
    }
}

/// The value of a field that must be unique.
#[derive(Default)]
struct Once<'a> {
    first: Option<&'a Bytes>,
    is_repeated: bool,
}

impl<'a> Once<'a> {
    fn add(&mut self, value: &'a Bytes) {
        self.is_repeated |= self.first.is_some();
        self.first.get_or_insert(value);
    }

    fn value(self, known: Known) -> Result<Option<&'a Bytes>, Fault> {
        if self.is_repeated {
            Err(Fault::DuplicateField(known))
        } else {
            Ok(self.first)
        }
    }
}

/// True if `close` is anywhere in a Connection field.
fn says_close(value: &[u8]) -> bool {
    // Most upstreams say just this.
    if value == b"keep-alive" {
        return false;
    }
    let mut windows = value.windows(b"close".len());
    windows.any(|window| window.eq_ignore_ascii_case(b"close"))
}

/// The parser's position in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Prefix,
    StatusLine,
    Fields,
}

/// The meaning of the begin of a status line.
#[derive(Clone, Copy, Debug, Default)]
struct Prefix {
    is_http11: bool,
    status: u16,
    /// The offset at which the status begins.
    at: usize,
}

/// Reads the heads of one exchange with an upstream.
#[derive(Debug, Default)]
pub struct ResponseParser {
    stage: Stage,
    scanner: LineScanner,
    prefix: Prefix,
    status_line: Range<usize>,
    /// The places of the fields. Their memory is that of the head that was read last: an exchange
    /// that waits for its head has none.
    spans: Vec<Span>,
}

/// Most spans whose memory is used again (arbitrary: more than most heads have).
const SPARE_SPANS: usize = 64;

thread_local! {
    static SPARE: Cell<Vec<Span>> = const { Cell::new(Vec::new()) };
}

/// The effect of a line: the head goes on, ends, or is none of HTTP.
enum Step {
    More,
    End,
    NotHttp,
}

impl ResponseParser {
    /// A parser at the begin of a response.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with what is in `buf`: all bytes of this head that were not consumed. `max` is the
    /// longest head in bytes (`proxy_buffer_size`).
    ///
    /// After `Done` the parser is at the begin of the next head. `max` must be the same for all
    /// calls for one head.
    pub fn parse(&mut self, buf: &mut BytesMut, max: usize) -> Progress {
        if self.stage == Stage::Prefix {
            match parse_prefix(buf) {
                Ok(Some(prefix)) => self.prefix = prefix,
                // `PREFIX_MAX` bounds this.
                Ok(None) => return Progress::NeedMore,
                Err(NotHttp) => return Progress::NotHttp,
            }
            self.stage = Stage::StatusLine;
        }
        loop {
            if self.stage == Stage::Fields {
                if self.spans.capacity() == 0 {
                    self.spans = SPARE.take();
                }
                self.take_usual_fields(buf, max);
            }
            let Some(range) = self.scanner.next_line(buf) else {
                break;
            };
            if range.end > max {
                return Progress::Refuse(Fault::TooBig);
            }
            match self.handle_line(buf, range) {
                Ok(Step::More) => {}
                Ok(Step::End) => return Progress::Done(self.take_head(buf)),
                Ok(Step::NotHttp) => return Progress::NotHttp,
                Err(fault) => return Progress::Refuse(fault),
            }
        }
        // At least one byte is to come.
        if buf.len() >= max {
            return Progress::Refuse(Fault::TooBig);
        }
        Progress::NeedMore
    }

    /// Takes field lines as most are, up to the first that must be looked at closely: the empty
    /// one, in most heads.
    fn take_usual_fields(&mut self, buf: &[u8], max: usize) {
        // Each round takes a line from the buffer.
        while let Some(start) = self.scanner.untouched()
            && let Some(text) = buf.get(start..)
            && let Some(usual) = line::read_usual_field(text)
        {
            // A slash makes a name an odd one.
            let is_status_line = usual.line.kind == NameKind::Odd && text.starts_with(STATUS_LINE);
            let is_taken_so =
                usual.end == LineEnd::CrLf && start + usual.len <= max && !is_status_line;
            let span = usual.place(start);
            let Some(span) = span.filter(|_| is_taken_so) else {
                return;
            };
            self.spans.push(span);
            self.scanner.take(usual.len);
        }
    }

    fn handle_line(&mut self, buf: &[u8], range: Range<usize>) -> Result<Step, Fault> {
        let start = range.start;
        let whole = buf.get(range).unwrap_or_default();
        match self.stage {
            Stage::Prefix | Stage::StatusLine => self.handle_status_line(line::without_end(whole)),
            Stage::Fields if matches!(whole, b"\n" | b"\r\n") => Ok(Step::End),
            Stage::Fields => self.handle_field(whole, start),
        }
    }

    fn handle_status_line(&mut self, line: &[u8]) -> Result<Step, Fault> {
        let after = line.get(self.prefix.at + 3..).unwrap_or_default();
        let end = after.first();
        if !matches!(end, None | Some(b' ' | b'.')) || after.contains(&b'\r') {
            return Ok(Step::NotHttp);
        }
        // RFC 9112 §4: a status has three digits. nginx takes the "403.1" of old IIS for 403.
        if end == Some(&b'.') || self.prefix.status < 100 || after.contains(&b'\0') {
            return Err(Fault::InvalidStatus);
        }
        if self.prefix.status == 103 && !self.prefix.is_http11 {
            return Err(Fault::EarlyHintsInHttp10);
        }
        self.status_line = self.prefix.at..line.len();
        self.stage = Stage::Fields;
        Ok(Step::More)
    }

    fn handle_field(&mut self, whole: &[u8], start: usize) -> Result<Step, Fault> {
        // nginx: IIS may repeat the status line among the fields.
        if whole.starts_with(STATUS_LINE) {
            return Ok(Step::More);
        }
        let line = without_crs(whole);
        let parsed = line::parse_field_line(line).map_err(|_| Fault::InvalidField)?;
        let known = Known::of(line.get(..parsed.name_len).unwrap_or_default());
        let span = Span::new(start, &parsed, known).ok_or(Fault::InvalidField)?;
        self.spans.push(span);
        Ok(Step::More)
    }

    /// Cuts the head from the buffer and goes to the begin.
    fn take_head(&mut self, buf: &mut BytesMut) -> ResponseHead {
        let scanner = std::mem::take(&mut self.scanner);
        let prefix = std::mem::take(&mut self.prefix);
        self.stage = Stage::Prefix;
        // A copy: fields live as long as the answer, and are not to hold the block that its body is
        // received into.
        let taken = scanner.taken();
        let head = Bytes::copy_from_slice(buf.get(..taken).unwrap_or_default());
        buf.advance(taken);
        let status_line = head.slice(std::mem::take(&mut self.status_line));
        let spans = std::mem::take(&mut self.spans);
        let fields = spans.iter().map(|span| span.to_field(&head)).collect();
        give_back(spans);
        ResponseHead {
            version: if prefix.is_http11 {
                Version::Http11
            } else {
                Version::Http10
            },
            status: prefix.status,
            status_line,
            fields,
            head_len: head.len(),
        }
    }
}

/// Keeps the memory of the spans of a head for the next one.
fn give_back(mut spans: Vec<Span>) {
    if spans.capacity() <= SPARE_SPANS {
        spans.clear();
        SPARE.set(spans);
    }
}

/// A field line without its LF and all CR before it.
fn without_crs(line: &[u8]) -> &[u8] {
    let mut line = line.strip_suffix(b"\n").unwrap_or(line);
    while let Some(rest) = line.strip_suffix(b"\r") {
        line = rest;
    }
    line
}

/// An answer that does not begin like a status line.
#[derive(Debug)]
struct NotHttp;

/// Reads up to the end of the status; `None` if more bytes are needed.
fn parse_prefix(buf: &[u8]) -> Result<Option<Prefix>, NotHttp> {
    let text = buf.get(..PREFIX_MAX).unwrap_or(buf);
    let is_cut = buf.len() < PREFIX_MAX;
    let name = STATUS_LINE;
    let common = text.len().min(name.len());
    if text.get(..common) != name.get(..common) {
        return Err(NotHttp);
    }
    let mut at = name.len();
    let more = |at: usize| {
        if is_cut && at >= text.len() {
            Ok(None)
        } else {
            Err(NotHttp)
        }
    };
    // RFC 9112 §2.3 has one digit each; nginx reads up to three.
    let Some(major) = number(text, &mut at, 3) else {
        return more(at);
    };
    if major == 0 || text.get(name.len()) == Some(&b'0') {
        return Err(NotHttp);
    }
    if text.get(at) != Some(&b'.') {
        return more(at);
    }
    at += 1;
    let Some(minor) = number(text, &mut at, 3) else {
        return more(at);
    };
    if text.get(at) != Some(&b' ') {
        return more(at);
    }
    while text.get(at) == Some(&b' ') {
        at += 1;
    }
    let start = at;
    let status = number(text, &mut at, 3);
    match status {
        Some(status) if at == start + 3 => Ok(Some(Prefix {
            is_http11: major > 1 || minor > 0,
            status,
            at: start,
        })),
        _ => more(at),
    }
}

/// Reads at most `max` digits (three at most) and moves on; `None` if there is none.
fn number(text: &[u8], at: &mut usize, max: usize) -> Option<u16> {
    let digits = text.get(*at..)?.iter().take(max);
    let mut value = 0;
    let mut count = 0;
    for byte in digits.take_while(|byte| byte.is_ascii_digit()) {
        value = value * 10 + u16::from(*byte - b'0');
        count += 1;
    }
    *at += count;
    (count > 0).then_some(value)
}

#[cfg(test)]
mod tests;
