//! The answer to a request, between the handler that makes it and the filters that send it.
//!
//! A handler fills in status, fields, length and body. The filters (`filter/mod.rs`) then change it
//! in their order, and the downstream writer frames and sends it.
//!
//! Invariants:
//! 1. `fields` holds neither Content-Length, Transfer-Encoding, Connection, Date nor Server: the
//!    writer owns them (Date and Server of an upstream are kept only when passed by name).
//! 2. `length` is the body's exact length when it is known.

use std::ops::Range;

use bytes::Bytes;
use millpond_semantics::range::ByteRange;

use crate::body::Body;
use crate::cache::provenance::Provenance;
use crate::header::{Fields, Known};
use crate::upstream::tunnel::Tunnel;

/// Whether a body may be cut into ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangeRule {
    /// No ranges: the client gets the whole.
    #[default]
    Refused,
    /// Ranges allowed, one or several; `Accept-Ranges: bytes` is added.
    Allowed,
    /// Only one range (the body is a stream and can be walked only once).
    Single,
}

impl RangeRule {
    /// The rule for the same answer when its body is a stream.
    pub fn for_stream(self) -> Self {
        match self {
            RangeRule::Allowed => RangeRule::Single,
            other => other,
        }
    }
}

/// Who made the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// This server: a file, `return`, an error page.
    #[default]
    Own,
    /// An upstream or the cache.
    Upstream,
}

/// What was seen of an answer's range when its first bytes were looked for: it need not be found
/// out again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstLook {
    /// The one range that the request asks for, of a body of this length.
    pub range: Option<(ByteRange, u64)>,
    /// Where in their file bytes stand that can be read at once.
    pub ready: Range<u64>,
}

/// An answer.
#[derive(Default)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Status and reason as an upstream wrote them, when they are passed on (`404 Nothing here`).
    pub status_text: Option<Bytes>,
    /// Header fields, less the framing (invariant 1).
    pub fields: Fields,
    /// Length of the body, when known.
    pub length: Option<u64>,
    /// The body.
    pub body: Body,
    /// `Last-Modified` in seconds since the epoch, when there is one.
    pub last_modified: Option<i64>,
    /// Whether the range filter may act.
    pub ranges: RangeRule,
    /// Who made the answer.
    pub source: Source,
    /// Where the body comes from.
    pub provenance: Provenance,
    /// True for an answer that answers for a range already (a 206 of the origin, a slice).
    pub is_partial: bool,
    /// True for a body that is put together of slices, each of which may have to be fetched.
    pub is_assembled: bool,
    /// True when an `error_page` may take the place of the answer (`proxy_intercept_errors`).
    pub may_be_intercepted: bool,
    /// The path that an upstream redirects to inside this server (X-Accel-Redirect).
    pub accel_redirect: Option<Bytes>,
    /// True when only an upstream says the date: none is added.
    pub hides_date: bool,
    /// True when only an upstream names the server: no name is added.
    pub hides_server: bool,
    /// True when the connection must close after the answer.
    pub must_close: bool,
    /// True when `not_modified` and precondition checks do not apply.
    pub skip_conditionals: bool,
    /// True when conditions are weighed by RFC 9110 and not as nginx does.
    pub conditions_by_rfc: bool,
    /// The character set that an upstream ordered (X-Accel-Charset).
    pub charset: Option<Bytes>,
    /// True when the answer depends on what codings the client takes, so that `gzip_vary` applies.
    pub varies_by_encoding: bool,
    /// True when trailer fields are to follow, so that the body is chunked where the client allows.
    pub expects_trailers: bool,
    /// What goes on after the head of a 101.
    pub tunnel: Option<Box<Tunnel>>,
    /// True when the head waits for the begin of the body, whose parts may fail the whole.
    pub waits_for_body: bool,
    /// What was seen of its range before the filters.
    pub first_look: FirstLook,
    /// Set when the filters must not compress, convert or search the body.
    pub is_opaque: bool,
}

impl Response {
    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        Response {
            status,
            length: Some(0),
            ..Response::default()
        }
    }

    /// An answer with a short text of one type.
    pub fn text(status: u16, content_type: Bytes, body: Bytes) -> Self {
        let mut response = Response {
            status,
            length: Some(body.len() as u64),
            body: Body::from(body),
            ..Response::default()
        };
        if !content_type.is_empty() {
            response.fields.set(Known::ContentType, content_type);
        }
        response
    }

    /// Forgets what a changed body makes wrong: its length, ranges, strong validator.
    ///
    /// nginx: ngx_http_clear_content_length, _accept_ranges and weak_etag belong together in
    /// every filter that rewrites a body.
    pub fn body_changes(&mut self) {
        self.length = None;
        self.ranges = RangeRule::Refused;
        self.fields.remove(Known::AcceptRanges);
        self.weaken_etag();
    }

    /// Makes a strong entity tag weak; removes a malformed one.
    pub fn weaken_etag(&mut self) {
        let Some(tag) = self.fields.get(Known::ETag) else {
            return;
        };
        if tag.starts_with(b"W/") {
            return;
        }
        if tag.len() < 2 || tag.first() != Some(&b'"') {
            self.fields.remove(Known::ETag);
            return;
        }
        let mut weak = Vec::with_capacity(tag.len() + 2);
        weak.extend_from_slice(b"W/");
        weak.extend_from_slice(tag);
        self.fields.set(Known::ETag, Bytes::from(weak));
    }
}
