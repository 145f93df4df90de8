//! The head of a request: its bytes, where its parts stand in them, and what it asks for.
//!
//! 1. Every part that is given out is a slice of the head's own bytes.
//! 2. `present` has a name if and only if a field of that name is among the spans.
//! 3. Nothing is allocated for a head of up to sixteen fields.
//!
//! The parser makes heads; what a proxy sends on is built anew. A subrequest has the client's head
//! without the fields that are about the answer as a whole.
//!
//! Sources: RFC 9112 §6.3 and §9.3; RFC 9110 §7.6.1, §10.1.1; nginx for the words in Connection.

use std::num::NonZeroU32;

use bytes::Bytes;
use smallvec::SmallVec;

use super::place::{Extent, Span};
use super::{Connect, Host, Method, Refusal, Version, content_length};
use crate::header::{Fields, Known, KnownSet, is_underscored, list_has};

/// The framing of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The request has no body.
    None,
    /// The body has so many bytes; not zero.
    Length(u64),
    /// The body ends where the chunked coding says.
    Chunked,
}

/// The name at the begin of the value of the Host field, and the port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostPlace {
    pub(crate) name_len: u32,
    pub(crate) port: Option<u16>,
    pub(crate) has_capitals: bool,
}

/// The parts of a head, by place.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) line: Extent,
    pub(crate) method_bytes: Extent,
    pub(crate) target: Extent,
    pub(crate) scheme: Extent,
    pub(crate) authority: Extent,
    pub(crate) uri: Extent,
    pub(crate) protocol: Extent,
    pub(crate) present: KnownSet,
    /// A list that came in several lines, which nginx refuses.
    pub(crate) repeated: Option<Known>,
    /// The host of the Host field: the length of its name, its port, and if it has capitals.
    pub(crate) host: HostPlace,
    /// The protocol that a CONNECT is for (RFC 8441).
    pub(crate) connect_protocol: Extent,
    /// Bytes that the head took on the wire, if these are not its own bytes.
    pub(crate) wire_len: Option<NonZeroU32>,
    pub(crate) spans: SmallVec<[Span; 16]>,
}

impl Parts {
    /// Forgets the head. The room for fields is kept where it is.
    pub(crate) fn clear(&mut self) {
        self.method = Method::Other;
        self.version = Version::Http11;
        self.line = Extent::default();
        self.method_bytes = Extent::default();
        self.target = Extent::default();
        self.scheme = Extent::default();
        self.authority = Extent::default();
        self.uri = Extent::default();
        self.protocol = Extent::default();
        self.present = KnownSet::default();
        self.repeated = None;
        self.host = HostPlace::default();
        self.connect_protocol = Extent::default();
        self.wire_len = None;
        self.spans.clear();
    }
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
            repeated: None,
            host: HostPlace::default(),
            connect_protocol: Extent::default(),
            wire_len: None,
            spans: SmallVec::new(),
        }
    }
}

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    pub(crate) buf: Bytes,
    pub(crate) parts: Parts,
}

/// One field of a request.
#[derive(Clone, Copy, Debug)]
pub struct FieldRef<'a> {
    /// The known name; `Other` for any that is not known.
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
            [] if self.parts.target.is_empty() => b"",
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
            [] => self.host_of_field(),
            authority => Host::parse(authority),
        }
    }

    /// The host of the Host field, which was read with the field.
    fn host_of_field(&self) -> Option<Host<'_>> {
        let HostPlace {
            name_len,
            port,
            has_capitals,
        } = self.parts.host;
        let name = self.get(Known::Host)?.get(..name_len as usize)?;
        Some(Host {
            name,
            port,
            has_capitals,
        })
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

    /// The protocol that an extended CONNECT is for (RFC 8441); empty for all others.
    #[must_use]
    pub fn connect_protocol(&self) -> &[u8] {
        self.parts.connect_protocol.of(&self.buf)
    }

    /// Bytes of the whole head on the wire: line ends included, or fields as they were compressed.
    #[must_use]
    pub fn head_len(&self) -> usize {
        let wire_len = self.parts.wire_len.map(|len| len.get() as usize);
        wire_len.unwrap_or(self.buf.len())
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

    /// A list that came in several lines, which nginx refuses.
    #[must_use]
    pub fn repeated(&self) -> Option<Known> {
        self.parts.repeated
    }

    /// True if there is a field of a known name.
    #[must_use]
    pub fn has(&self, known: Known) -> bool {
        self.parts.present.contains(known)
    }

    /// True if there is a field of one of these names.
    #[must_use]
    pub fn has_any(&self, names: KnownSet) -> bool {
        !self.parts.present.and(names).is_empty()
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

    /// All values whose name, in small letters and with `_` for `-`, is `name`, in order: how the
    /// names of variables such as `$http_x_real_ip` are looked up. With hyphens it is `known`.
    pub fn find_all_spelled<'a>(
        &'a self,
        known: Known,
        name: &'a [u8],
    ) -> impl Iterator<Item = &'a [u8]> {
        let present = self.parts.present;
        let spans: &[Span] = if present.contains(known) || present.contains(Known::Other) {
            &self.parts.spans
        } else {
            &[]
        };
        let is_it = move |span: &&Span| match span.known {
            // A known name written with an underscore is another one.
            Known::Other => is_underscored(span.name(&self.buf), name),
            other => other == known,
        };
        spans.iter().filter(is_it).map(|span| span.value(&self.buf))
    }

    /// The framing of the body, or the reason why nobody can tell its end.
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
                if connect == Connect::Refuse || self.parts.version < Version::Http11 {
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

    /// True if the client wants the connection to live on.
    ///
    /// As in nginx, `close` and `keep-alive` are looked for anywhere in a Connection field, and
    /// the last field that has one of them counts.
    #[must_use]
    pub fn keep_alive_wanted(&self) -> bool {
        let mut wanted = self.parts.version >= Version::Http11;
        for value in self.get_all(Known::Connection) {
            if contains_word(value, b"close") {
                wanted = false;
            } else if contains_word(value, b"keep-alive") {
                wanted = true;
            }
        }
        wanted
    }

    /// True if the client waits for a `100 Continue` before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.parts.version >= Version::Http11
            && self
                .get(Known::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// True if a Connection field lists `token`, in any case.
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

    /// A copy of the head without the fields of some names.
    #[must_use]
    pub fn without(&self, names: KnownSet) -> RequestHead {
        let mut parts = self.parts.clone();
        parts.spans.retain(|span| !names.contains(span.known));
        parts.present = KnownSet::default();
        for span in &parts.spans {
            parts.present.insert(span.known);
        }
        RequestHead {
            buf: self.buf.clone(),
            parts,
        }
    }

    /// A copy of the head as it was when its line had been read, and nothing behind that.
    #[must_use]
    pub fn line_alone(&self) -> RequestHead {
        let mut parts = self.parts.clone();
        parts.spans.clear();
        parts.present = KnownSet::default();
        parts.repeated = None;
        parts.host = HostPlace::default();
        let end = usize::try_from(parts.line.end).unwrap_or(usize::MAX);
        let line_end = memchr::memchr(b'\n', self.buf.get(end..).unwrap_or_default());
        let len = line_end.map_or(end, |at| end + at + 1);
        parts.wire_len = u32::try_from(len).ok().and_then(NonZeroU32::new);
        RequestHead {
            buf: self.buf.clone(),
            parts,
        }
    }

    /// A copy of the head in which fields have other values: they stand behind all others, and one
    /// without a value is not there. What the head took on the wire stays as it was.
    #[must_use]
    pub fn with(&self, fields: &[(Known, &[u8], &[u8])]) -> RequestHead {
        let mut text = self.buf.to_vec();
        let mut parts = self.parts.clone();
        parts.wire_len = u32::try_from(self.head_len())
            .ok()
            .and_then(NonZeroU32::new);
        let is_set = |name: &[u8]| {
            let mut names = fields.iter().map(|(_, name, _)| name);
            names.any(|set| set.eq_ignore_ascii_case(name))
        };
        parts.spans.retain(|span| !is_set(span.name(&self.buf)));
        let valued = fields.iter().filter(|(_, _, value)| !value.is_empty());
        for (known, name, value) in valued {
            let start = text.len();
            text.extend_from_slice(name);
            let value_start = text.len();
            text.extend_from_slice(value);
            let places = (start, value_start, text.len());
            parts.spans.extend(Span::between(places, *known));
        }
        parts.present = KnownSet::default();
        for span in &parts.spans {
            parts.present.insert(span.known);
        }
        RequestHead {
            buf: Bytes::from(text),
            parts,
        }
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

/// True if `word` stands anywhere in `value`, in any case.
fn contains_word(value: &[u8], word: &[u8]) -> bool {
    value
        .windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word))
}
