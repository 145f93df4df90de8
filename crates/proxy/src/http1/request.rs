//! Requests: the incremental parser and the head that it makes.
//!
//! ```text
//!            empty lines        "GET /a HTTP/1.1"             "Host: b" …            ""
//! start ──────(dropped)──────► line ─────────────► fields ───(one span each)──► Done(head)
//!                               │ HTTP/0.9 ──► Done  │
//!                               └──────── Refuse(why, with what was read so far) ◄┘
//! ```
//!
//! A [`RequestHead`] owns the bytes of the head, cut from the connection's buffer without a copy,
//! and the places of its parts in them. The first sixteen fields need no allocation.
//!
//! Reading is bounded as `client_header_buffer_size` and `large_client_header_buffers` bound it:
//! the first buffer takes lines while they fit; each line that does not fit the buffer in use goes
//! to the begin of a new one of `line` bytes; all those together are at most `total` bytes.
//! The buffers are only counted, never made. Pipelined requests each start with a fresh count.
//!
//! 1. No two fields of a name that must be unique pass (Host, Content-Length, …).
//! 2. A head's length and framing have one reading: see [`RequestHead::framing`].
//! 3. A present Host field, and the host of an absolute URI, is well-formed.
//! 4. Control bytes and DEL are nowhere in the request line; NUL, CR and LF in no value.
//! 5. A whole line that is too long is refused like a part of it that is already too long.
//!
//! Stricter than nginx: a second CR before LF is refused. What it does not do: decode the path,
//! merge fields, choose a server.
//!
//! Sources: RFC 9112 §2, §3, §5, §6, §9.3; nginx's request line grammar.

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;

use super::host::Host;
use super::line::{self, BadLine, FieldLine, LineScanner, NameKind, Span};
use super::{Method, Version, content_length};
use crate::header::{Fields, Known, KnownSet, is_underscored, list_has};

mod target;

/// Fields that a request may have once only. Two of them would leave it to each reader which one
/// counts. (nginx refuses the same.)
const UNIQUE: KnownSet = KnownSet::of(&[
    Known::Host,
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfMatch,
    Known::IfNoneMatch,
    Known::IfRange,
    Known::ContentLength,
    Known::ContentRange,
    Known::TransferEncoding,
    Known::Expect,
    Known::Authorization,
    Known::ProxyAuthorization,
]);

/// What becomes of field names with underscores (`underscores_in_headers`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// They are ordinary names.
    Allow,
    /// They are invalid names.
    Ignore,
}

/// What becomes of fields with invalid names (`ignore_invalid_headers`): names with anything but
/// letters, digits, hyphens and allowed underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidNames {
    /// They are dropped, as if they had not been sent.
    Ignore,
    /// They are kept like others.
    Keep,
}

/// Bounds of a request head, and what is let through.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the first buffer (`client_header_buffer_size`).
    pub first: usize,
    /// Bytes of each further buffer: the longest line, line end included
    /// (the size in `large_client_header_buffers`).
    pub line: usize,
    /// Bytes of all further buffers together (number times size in the same directive).
    pub total: usize,
    /// How many fields a request may have (`max_headers`).
    pub fields: usize,
    /// What becomes of names with underscores.
    pub underscores: Underscores,
    /// What becomes of fields with invalid names.
    pub invalid: InvalidNames,
}

/// nginx's defaults.
impl Default for Limits {
    fn default() -> Self {
        Self {
            first: 1024,
            line: 8 * 1024,
            total: 4 * 8 * 1024,
            fields: 1000,
            underscores: Underscores::Ignore,
            invalid: InvalidNames::Ignore,
        }
    }
}

/// Whether CONNECT is served here (`allow_connect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// It is answered by 405.
    Refuse,
    /// It is let through, in HTTP/1.1 and without a body.
    Allow,
}

/// Why a request is refused. The text is what the error log says at level `info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The method has other bytes than capital letters, `_` and `-`.
    #[error("client sent invalid method")]
    InvalidMethod,
    /// The rest of the request line is malformed.
    #[error("client sent invalid request")]
    InvalidRequest,
    /// The major version is 2 or more.
    #[error("client sent invalid version")]
    VersionNotSupported,
    /// A request without a version whose method is not GET.
    #[error("client sent invalid method in HTTP/0.9 request")]
    InvalidMethodHttp09,
    /// The host of an absolute URI is malformed.
    #[error("client sent invalid host in request line")]
    InvalidHostInLine,
    /// The request line does not fit the limits.
    #[error("client sent too long URI")]
    UriTooLong,
    /// A field line, or all of them together, do not fit the limits.
    #[error("client sent too long header line")]
    HeaderTooLarge,
    /// There are more fields than allowed.
    #[error("client sent too many header lines")]
    TooManyFields,
    /// A field line is malformed.
    #[error("client sent invalid header line")]
    InvalidField,
    /// A field that must be unique came twice.
    #[error("client sent duplicate header line: \"{}\"", .0.canonical())]
    DuplicateField(Known),
    /// The Host field is malformed.
    #[error("client sent invalid host header")]
    InvalidHost,
    /// An HTTP/1.1 request without a Host field.
    #[error("client sent HTTP/1.1 request without \"Host\" header")]
    MissingHost,
    /// The Content-Length field is not a number.
    #[error("client sent invalid \"Content-Length\" header")]
    InvalidLength,
    /// Transfer-Encoding in a version that does not know it.
    #[error("client sent HTTP/1.0 request with \"Transfer-Encoding\" header")]
    EncodingInHttp10,
    /// Content-Length and Transfer-Encoding together.
    #[error("client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time")]
    LengthAndEncoding,
    /// A Transfer-Encoding other than exactly `chunked`.
    #[error("client sent unknown \"Transfer-Encoding\"")]
    UnknownEncoding,
    /// CONNECT where it is not served.
    #[error("client sent CONNECT method")]
    ConnectNotAllowed,
    /// CONNECT with a body.
    #[error("client sent CONNECT request with body")]
    ConnectWithBody,
    /// TRACE, which is served nowhere.
    #[error("client sent TRACE method")]
    TraceNotAllowed,
}

impl Refusal {
    /// The status for variables and error pages; 494 goes out as 400 (see
    /// [`super::encode::wire_status`]).
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Refusal::VersionNotSupported => 505,
            Refusal::UriTooLong => 414,
            Refusal::HeaderTooLarge | Refusal::TooManyFields => 494,
            Refusal::UnknownEncoding => 501,
            Refusal::ConnectNotAllowed | Refusal::TraceNotAllowed => 405,
            _ => 400,
        }
    }
}

/// A refused request: why, and all that was read of it, for logs and error pages.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub why: Refusal,
    /// What was understood before the fault. Its request line is whatever came up to the first
    /// line end; its version is `Http11` unless another one was read.
    pub head: RequestHead,
}

impl Refused {
    /// The status to answer with.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.why.status()
    }
}

/// What a call of the parser led to.
#[derive(Debug)]
pub enum Progress {
    /// The head is not complete.
    NeedMore,
    /// The head; its bytes were taken from the buffer.
    Done(RequestHead),
    /// No request; all bytes were taken from the buffer. The connection cannot go on.
    Refuse(Refused),
}

/// How long the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes; not zero.
    Length(u64),
    /// As many as the chunked coding says.
    Chunked,
}

/// A range of bytes of the head. Short, since a head carries several.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    start: u32,
    end: u32,
}

impl Extent {
    fn of<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        buf.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// The parts of a head, by place.
#[derive(Debug)]
struct Parts {
    method: Method,
    version: Version,
    line: Extent,
    method_bytes: Extent,
    target: Extent,
    scheme: Extent,
    authority: Extent,
    uri: Extent,
    protocol: Extent,
    present: KnownSet,
    spans: SmallVec<[Span; 16]>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            method: Method::Other,
            version: Version::Http11,
            line: Extent::default(),
            method_bytes: Extent::default(),
            target: Extent::default(),
            scheme: Extent::default(),
            authority: Extent::default(),
            uri: Extent::default(),
            protocol: Extent::default(),
            present: KnownSet::default(),
            spans: SmallVec::new(),
        }
    }
}

/// The head of a request.
#[derive(Debug)]
pub struct RequestHead {
    buf: Bytes,
    parts: Parts,
}

/// One field of a request.
#[derive(Clone, Copy, Debug)]
pub struct FieldRef<'a> {
    /// What the name is, if it is known.
    pub known: Known,
    /// The name as written.
    pub name: &'a [u8],
    /// The value without the spaces around it.
    pub value: &'a [u8],
    buf: &'a Bytes,
}

impl FieldRef<'_> {
    /// The name, sharing the head's bytes.
    #[must_use]
    pub fn name_bytes(&self) -> Bytes {
        self.buf.slice_ref(self.name)
    }

    /// The value, sharing the head's bytes.
    #[must_use]
    pub fn value_bytes(&self) -> Bytes {
        self.buf.slice_ref(self.value)
    }
}

impl RequestHead {
    /// The method, if it has a name here.
    #[must_use]
    pub fn method(&self) -> Method {
        self.parts.method
    }

    /// The method as written.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        self.parts.method_bytes.of(&self.buf)
    }

    /// The request target as written: a path, an absolute URI, or CONNECT's host and port.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.parts.target.of(&self.buf)
    }

    /// Path and query of the target, undecoded (`$request_uri`). It begins with `/`, or with `?`
    /// when an absolute URI has a query but no path; it is `/` when there is neither.
    #[must_use]
    pub fn uri(&self) -> &[u8] {
        match self.parts.uri.of(&self.buf) {
            [] if self.parts.target.start == self.parts.target.end => b"",
            [] => b"/",
            uri => uri,
        }
    }

    /// The scheme of an absolute URI, as written; empty for other targets.
    #[must_use]
    pub fn scheme(&self) -> &[u8] {
        self.parts.scheme.of(&self.buf)
    }

    /// Host and port of an absolute URI or of CONNECT, as written; empty for other targets.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        self.parts.authority.of(&self.buf)
    }

    /// The host that the request is for: from the request line, else from the Host field.
    #[must_use]
    pub fn host(&self) -> Option<Host<'_>> {
        match self.authority() {
            [] => self.get(Known::Host).and_then(Host::parse),
            authority => Host::parse(authority),
        }
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.parts.version
    }

    /// The version as written (`HTTP/1.1`); empty for HTTP/0.9.
    #[must_use]
    pub fn protocol(&self) -> &[u8] {
        self.parts.protocol.of(&self.buf)
    }

    /// The request line, without its line end.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        self.parts.line.of(&self.buf)
    }

    /// Bytes of the whole head, line ends included.
    #[must_use]
    pub fn head_len(&self) -> usize {
        self.buf.len()
    }

    /// All bytes of the head.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.buf
    }

    /// Shares a part of the head that one of the other methods gave out.
    #[must_use]
    pub fn share(&self, part: &[u8]) -> Bytes {
        // `slice_ref` asserts that `part` lies in `buf`; a static or foreign slice is copied.
        let whole = self.buf.as_ptr_range();
        let range = part.as_ptr_range();
        if !part.is_empty() && whole.start <= range.start && range.end <= whole.end {
            self.buf.slice_ref(part)
        } else {
            Bytes::copy_from_slice(part)
        }
    }

    /// The fields in order.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = FieldRef<'_>> {
        self.parts.spans.iter().map(|span| self.field(span))
    }

    /// The fields as an owned list that shares the head's bytes.
    #[must_use]
    pub fn to_fields(&self) -> Fields {
        let spans = self.parts.spans.iter();
        spans.map(|span| span.to_field(&self.buf)).collect()
    }

    /// The first value of a known name.
    #[must_use]
    pub fn get(&self, known: Known) -> Option<&[u8]> {
        if !self.parts.present.contains(known) {
            return None;
        }
        let span = self.parts.spans.iter().find(|span| span.known == known)?;
        Some(span.value(&self.buf))
    }

    /// Whether there is a field of a known name.
    #[must_use]
    pub fn has(&self, known: Known) -> bool {
        self.parts.present.contains(known)
    }

    /// All values of a known name, in order.
    pub fn get_all(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        let spans: &[Span] = if self.parts.present.contains(known) {
            &self.parts.spans
        } else {
            &[]
        };
        let of_name = spans.iter().filter(move |span| span.known == known);
        of_name.map(|span| span.value(&self.buf))
    }

    /// The first value of a name, in any case.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&[u8]> {
        self.find_all(name).next()
    }

    /// All values of a name, in any case, in order.
    pub fn find_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.fields()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    }

    /// The first value whose name, in small letters and with `_` for `-`, is `name`: how the
    /// names of variables such as `$http_x_real_ip` are looked up.
    #[must_use]
    pub fn find_underscored(&self, name: &[u8]) -> Option<&[u8]> {
        self.find_all_underscored(name).next()
    }

    /// All values that [`Self::find_underscored`] would find, in order.
    pub fn find_all_underscored<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.fields()
            .filter(move |field| is_underscored(field.name, name))
            .map(|field| field.value)
    }

    /// How long the body is, or why nobody can tell.
    ///
    /// # Errors
    /// A malformed Content-Length, a Transfer-Encoding other than exactly `chunked`, both
    /// together, or a Transfer-Encoding before HTTP/1.1.
    pub fn framing(&self) -> Result<Framing, Refusal> {
        let length = self.get(Known::ContentLength);
        let length = match length.map(content_length) {
            Some(None) => return Err(Refusal::InvalidLength),
            Some(length) => length,
            None => None,
        };
        if let Some(encoding) = self.get(Known::TransferEncoding) {
            if self.parts.version < Version::Http11 {
                return Err(Refusal::EncodingInHttp10);
            }
            if !encoding.eq_ignore_ascii_case(b"chunked") {
                return Err(Refusal::UnknownEncoding);
            }
            // RFC 9112 §6.3: such a message may be an attempt at request smuggling.
            if length.is_some() {
                return Err(Refusal::LengthAndEncoding);
            }
            return Ok(Framing::Chunked);
        }
        Ok(match length {
            None | Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
        })
    }

    /// The checks that need the whole head, in nginx's order, and the framing.
    ///
    /// # Errors
    /// HTTP/1.1 without Host, the errors of [`Self::framing`], CONNECT where it is not served or
    /// with a body, TRACE.
    pub fn check(&self, connect: Connect) -> Result<Framing, Refusal> {
        if self.parts.version == Version::Http09 {
            return Ok(Framing::None);
        }
        if self.parts.version == Version::Http11 && !self.has(Known::Host) {
            return Err(Refusal::MissingHost);
        }
        let framing = self.framing()?;
        match self.parts.method {
            Method::Connect => {
                if connect == Connect::Refuse || self.parts.version != Version::Http11 {
                    return Err(Refusal::ConnectNotAllowed);
                }
                if framing != Framing::None {
                    return Err(Refusal::ConnectWithBody);
                }
            }
            Method::Trace => return Err(Refusal::TraceNotAllowed),
            _ => {}
        }
        Ok(framing)
    }

    /// Whether the client wants the connection to live on.
    ///
    /// As in nginx, `close` and `keep-alive` are looked for anywhere in a Connection field, and
    /// the last field that has one of them counts.
    #[must_use]
    pub fn keep_alive_wanted(&self) -> bool {
        let mut wanted = self.parts.version == Version::Http11;
        for value in self.get_all(Known::Connection) {
            if contains_word(value, b"close") {
                wanted = false;
            } else if contains_word(value, b"keep-alive") {
                wanted = true;
            }
        }
        wanted
    }

    /// Whether the client waits for a `100 Continue` before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.parts.version == Version::Http11
            && self
                .get(Known::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// Whether a Connection field lists `token`, in any case.
    #[must_use]
    pub fn connection_has(&self, token: &[u8]) -> bool {
        self.get_all(Known::Connection)
            .any(|value| list_has(value, token))
    }

    /// The protocol that the client wants to change to: the Upgrade field, if a Connection field
    /// lists it.
    #[must_use]
    pub fn upgrade(&self) -> Option<&[u8]> {
        let upgrade = self.get(Known::Upgrade)?;
        self.connection_has(b"upgrade").then_some(upgrade)
    }

    fn field(&self, span: &Span) -> FieldRef<'_> {
        FieldRef {
            known: span.known,
            name: span.name(&self.buf),
            value: span.value(&self.buf),
            buf: &self.buf,
        }
    }
}

/// Whether `word` stands anywhere in `value`, in any case.
fn contains_word(value: &[u8], word: &[u8]) -> bool {
    value
        .windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word))
}

/// How much of the buffers is used.
#[derive(Debug, Default)]
struct Budget {
    /// Bytes left in the buffer in use; `None` before the first line.
    room: Option<usize>,
    /// Bytes of the further buffers that were taken into use.
    spent: usize,
}

impl Budget {
    /// Takes a line of `len` bytes into account; false if it does not fit.
    fn take(&mut self, len: usize, limits: &Limits) -> bool {
        let room = self.room.unwrap_or(limits.first);
        if len <= room {
            self.room = Some(room - len);
            return true;
        }
        if !self.fits(len, limits) {
            return false;
        }
        self.spent += limits.line;
        self.room = Some(limits.line - len);
        true
    }

    /// Whether a line of `len` bytes would fit.
    fn fits(&self, len: usize, limits: &Limits) -> bool {
        len <= self.room.unwrap_or(limits.first)
            || (len <= limits.line && self.spent.saturating_add(limits.line) <= limits.total)
    }
}

/// Where the parser is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Line,
    Fields,
}

/// Whether a line ended the head.
enum Step {
    More,
    End,
}

/// Reads one request after another from a connection's buffer.
#[derive(Debug, Default)]
pub struct RequestParser {
    stage: Stage,
    scanner: LineScanner,
    budget: Budget,
    parts: Parts,
}

impl RequestParser {
    /// A parser at the begin of a request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing of a request has been seen, empty lines apart: the connection is idle.
    #[must_use]
    pub fn is_idle(&self, buf: &[u8]) -> bool {
        self.stage == Stage::Line && buf.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// Goes on with what is in `buf`: all bytes of this request that were not consumed.
    ///
    /// After `Done` and `Refuse` the parser is at the begin of the next request. `limits` must be
    /// the same for all calls for one request.
    pub fn parse(&mut self, buf: &mut BytesMut, limits: &Limits) -> Progress {
        if self.stage == Stage::Line {
            skip_empty_lines(buf);
            // Most of what is no HTTP at all shows in its first byte (a TLS handshake on a
            // clear-text port) and should not wait for a line end.
            if buf
                .first()
                .is_some_and(|first| !target::is_method_byte(*first))
            {
                return Progress::Refuse(self.refuse(buf, Refusal::InvalidMethod));
            }
        }
        while let Some(range) = self.scanner.next_line(buf) {
            match self.handle_line(buf, range, limits) {
                Ok(Step::More) => {}
                Ok(Step::End) => return Progress::Done(self.take_head(buf)),
                Err(why) => return Progress::Refuse(self.refuse(buf, why)),
            }
        }
        match self.check_unfinished(buf, limits) {
            Ok(()) => Progress::NeedMore,
            Err(why) => Progress::Refuse(self.refuse(buf, why)),
        }
    }

    /// Takes one whole line.
    fn handle_line(
        &mut self,
        buf: &[u8],
        range: std::ops::Range<usize>,
        limits: &Limits,
    ) -> Result<Step, Refusal> {
        let start = range.start;
        let whole = buf.get(range).unwrap_or_default();
        if !self.budget.take(whole.len(), limits) {
            return Err(self.too_long());
        }
        let line = line::without_end(whole);
        match self.stage {
            Stage::Line => {
                target::parse_request_line(line, &mut self.parts)?;
                self.stage = Stage::Fields;
                Ok(match self.parts.version {
                    Version::Http09 => Step::End,
                    _ => Step::More,
                })
            }
            Stage::Fields if line.is_empty() => Ok(Step::End),
            Stage::Fields => {
                let parsed =
                    line::parse_field_line(line).map_err(|BadLine| Refusal::InvalidField)?;
                self.handle_field(line, start, &parsed, limits)?;
                Ok(Step::More)
            }
        }
    }

    /// Keeps a field, unless its name is to be ignored.
    fn handle_field(
        &mut self,
        line: &[u8],
        start: usize,
        parsed: &FieldLine,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let is_valid = match parsed.kind {
            NameKind::Plain => true,
            NameKind::Underscored => limits.underscores == Underscores::Allow,
            NameKind::Odd => false,
        };
        if !is_valid && limits.invalid == InvalidNames::Ignore {
            return Ok(());
        }
        if self.parts.spans.len() >= limits.fields {
            return Err(Refusal::TooManyFields);
        }
        let known = Known::of(line.get(..parsed.name_len).unwrap_or_default());
        if self.parts.present.contains(known) && UNIQUE.contains(known) {
            return Err(Refusal::DuplicateField(known));
        }
        if known == Known::Host
            && Host::parse(line.get(parsed.value.clone()).unwrap_or_default()).is_none()
        {
            return Err(Refusal::InvalidHost);
        }
        let span = Span::new(start, parsed, known).ok_or(Refusal::HeaderTooLarge)?;
        self.parts.present.insert(known);
        self.parts.spans.push(span);
        Ok(())
    }

    /// Refuses early what no further byte can make good.
    fn check_unfinished(&self, buf: &[u8], limits: &Limits) -> Result<(), Refusal> {
        let rest = buf.get(self.scanner.taken()..).unwrap_or_default();
        // At least the LF is to come.
        if !rest.is_empty() && !self.budget.fits(rest.len() + 1, limits) {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn too_long(&self) -> Refusal {
        match self.stage {
            Stage::Line => Refusal::UriTooLong,
            Stage::Fields => Refusal::HeaderTooLarge,
        }
    }

    /// Cuts the head from the buffer and goes to the begin.
    fn take_head(&mut self, buf: &mut BytesMut) -> RequestHead {
        let done = std::mem::take(self);
        RequestHead {
            buf: buf.split_to(done.scanner.taken()).freeze(),
            parts: done.parts,
        }
    }

    /// Cuts all bytes from the buffer and goes to the begin.
    fn refuse(&mut self, buf: &mut BytesMut, why: Refusal) -> Refused {
        let mut done = std::mem::take(self);
        let buf = buf.split().freeze();
        if done.stage == Stage::Line {
            let end = memchr::memchr2(b'\r', b'\n', &buf).unwrap_or(buf.len());
            done.parts.line = Extent {
                start: 0,
                end: u32::try_from(end).unwrap_or(u32::MAX),
            };
        }
        let head = RequestHead {
            buf,
            parts: done.parts,
        };
        Refused { why, head }
    }
}

/// Drops the CR and LF before a request line (RFC 9112 §2.2).
fn skip_empty_lines(buf: &mut BytesMut) {
    let count = buf
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    if count > 0 {
        buf.advance(count);
    }
}

#[cfg(test)]
mod tests;
