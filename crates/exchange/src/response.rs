//! The answer to a request, between the handler that makes it and the filters that send it.
//!
//! A handler fills in status, fields, length and body. The filters (`filter/mod.rs`) then change it
//! in their order, and the downstream writer frames and sends it.
//!
//! Invariants:
//! 1. `fields` holds neither Content-Length, Transfer-Encoding, Connection, Date nor Server: the
//!    writer owns them (Date and Server of an upstream are kept only when passed by name).
//! 2. `length` is the body's exact length when it is known.

pub mod tokens;
pub mod type_set;

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_semantics::range::ByteRange;
use millpond_system::backlog::Backlog;
use millpond_system::body::Body;
use millpond_system::transport::Transport;
use millpond_wire::header::{Fields, Known, KnownSet};

use crate::provenance::Provenance;

/// Digests of the content of one message (RFC 9530 §2; Content-MD5 was the first): of a part, that
/// of the whole is wrong.
pub const CONTENT_DIGESTS: KnownSet = KnownSet::of(&[Known::ContentDigest, Known::ContentMd5]);

/// All digests: those of the content, and of the representation (RFC 9530 §3; Digest was the
/// first), which parts have in common.
pub const DIGESTS: KnownSet = CONTENT_DIGESTS.or(KnownSet::of(&[Known::ReprDigest, Known::Digest]));

/// Rule for cutting a body into ranges.
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

/// Maker of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The answer is made by this server: a file, `return`, an error page.
    #[default]
    Own,
    /// An upstream or the cache.
    Upstream,
}

/// Range of an answer as the look for its first bytes saw it, so that the range need not be found
/// out again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstLook {
    /// The one range that the request asks for, of a body of this length.
    pub range: Option<(ByteRange, u64)>,
    /// Range of bytes in their file that can be read at once.
    pub ready: Range<u64>,
}

/// A connection that an upstream has switched to another protocol (101, RFC 9110 §15.2.2); it gives
/// its place among the peer's connections back when it is dropped.
pub trait Switched {
    /// The connection, and what was read of it and not passed on yet; none once it is gone.
    fn connection(&mut self) -> Option<(&Transport, &mut BytesMut)>;

    /// Counts what was sent to the upstream and received from it.
    fn note_tunnelled(&self, sent: usize, received: usize);
}

/// The rest of an answer that switched protocols: bytes both ways.
pub struct Tunnel {
    /// The upstream's side.
    pub upstream: Box<dyn Switched>,
    /// The longest time without a byte in any direction.
    pub idle: Duration,
}

/// Words of an upstream about its answer, for this server.
#[derive(Default)]
pub struct Orders {
    /// Status and reason as it wrote them, when they are passed on (`404 Nothing here`).
    pub status_text: Option<Bytes>,
    /// The path that it redirects to inside this server (X-Accel-Redirect).
    pub redirect: Option<Bytes>,
    /// The character set that it ordered (X-Accel-Charset).
    pub charset: Option<Bytes>,
    /// True when an `error_page` may take the place of the answer (`proxy_intercept_errors`).
    pub may_be_intercepted: bool,
    /// True when only an upstream says the date: none is added.
    pub hides_date: bool,
    /// True when only an upstream names the server: no name is added.
    pub hides_server: bool,
}

/// Rules for conditions of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// True when `not_modified` and precondition checks do not apply.
    pub are_skipped: bool,
    /// True when conditions are weighed by RFC 9110 and not as nginx does.
    pub are_by_rfc: bool,
}

/// Parts of a body, and the rules for them.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Rule for the range filter.
    pub rule: RangeRule,
    /// True for an answer that answers for a range already (a 206 of the origin, a slice).
    pub is_one: bool,
    /// True for a body that is put together of slices, each of which may have to be fetched.
    pub are_assembled: bool,
    /// Range of the answer as it was seen before the filters.
    pub first_look: FirstLook,
}

/// Rules for filters that change a body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Set when the filters must not compress, convert or search the body.
    pub are_barred: bool,
    /// True for an answer that may not be transformed on its way (`no-transform`); as a part of a
    /// page it may.
    pub are_forbidden: bool,
    /// True when the answer depends on what codings the client takes, so that `gzip_vary` applies.
    pub are_by_coding: bool,
    /// True when the answer may be one from a stored encoding (`proxy_cache_encodings`), whether or
    /// not it is: its date says nothing of its bytes, and Vary tells.
    pub have_stored_encodings: bool,
    /// True when that may be one by a dictionary that the client has (RFC 9842).
    pub are_by_dictionary: bool,
    /// True once `charset` has written a character set behind the type, which is none of the type.
    pub have_charset: bool,
}

/// Rules for the sending of an answer.
#[derive(Default)]
pub struct Delivery {
    /// True when the connection must close after the answer.
    pub must_close: bool,
    /// True when trailer fields are to follow, so that the body is chunked where the client allows.
    pub expects_trailers: bool,
    /// True when the head waits for the begin of the body, whose parts may fail the whole.
    pub waits_for_body: bool,
    /// Note of how much of the body waits for the client, if its source wants to know.
    pub backlog: Option<Backlog>,
    /// The tunnel that goes on after the head of a 101.
    pub tunnel: Option<Tunnel>,
}

/// An answer.
#[derive(Default)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Header fields, less the framing (invariant 1).
    pub fields: Fields,
    /// Length of the body, when known.
    pub length: Option<u64>,
    /// The body.
    pub body: Body,
    /// `Last-Modified` in seconds since the epoch, when there is one.
    pub last_modified: Option<i64>,
    /// Maker of the answer.
    pub source: Source,
    /// Sources of the body.
    pub provenance: Provenance,
    /// Orders of an upstream.
    pub orders: Orders,
    /// Rules for conditions.
    pub conditions: Conditions,
    /// Parts of the body.
    pub parts: Parts,
    /// Rules for changes of the body.
    pub changes: Changes,
    /// Rules for the sending.
    pub delivery: Delivery,
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

    /// Forgets what a changed body makes wrong: its length, ranges, strong validator, digests.
    ///
    /// nginx: ngx_http_clear_content_length, _accept_ranges and weak_etag belong together in
    /// every filter that rewrites a body. It knows no digests, and passes on those of other bytes.
    pub fn body_changes(&mut self) {
        self.length = None;
        self.parts.rule = RangeRule::Refused;
        self.fields.remove(Known::AcceptRanges);
        self.fields.remove_all(DIGESTS);
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
