//! `proxy_pass_request_headers`, `proxy_pass_request_body`, `proxy_request_buffering`: what an
//! upstream is asked, whatever its protocol.
//!
//! The client's body is read as far as the policy wants; then the module of the protocol encodes
//! the request, once for all peers.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::conformance::Conformance;
use millpond_system::body::{FileRegion, FileSource, Piece};
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use super::ask::Ask;
use super::aws_sign;
use super::aws_sign::chunks::ChunkSigner;
use super::encryption::Encryption;
use super::pass::{PassTarget, Resolved};
use crate::request::Request;
use crate::request_body;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::record;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::client::body::{BodyFile, Remains, RequestBody};
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;

/// Settings of the request that an upstream is asked.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct RequestPolicy {
    /// Passes the client's fields on.
    #[directive(name = "proxy_pass_request_headers", default = "on")]
    pub pass_headers: bool,
    /// Passes the client's body on.
    ///
    /// # Differs from nginx
    ///
    /// A body that is not passed on is not announced, either: Content-Length is left out, so that
    /// the upstream does not wait for it. nginx needs `proxy_set_header Content-Length "";`.
    #[directive(name = "proxy_pass_request_body", default = "on")]
    pub pass_body: bool,
    /// Reads the client's body whole before the upstream is asked.
    #[directive(name = "proxy_request_buffering", default = "on")]
    pub buffering: bool,
}

/// Bytes of a client's body that are put together to one chunk, about (arbitrary: two reads).
pub(super) const READY_MAX: usize = 32 * 1024;

/// The body that goes to the upstream.
#[derive(Clone, Debug)]
pub enum OutBody {
    /// None.
    None,
    /// From memory.
    Memory(Bytes),
    /// From a file.
    File(Rc<BodyFile>),
    /// From the client, while it sends; can be sent once only.
    Client {
        /// Length of the body; sent with chunked coding when unknown.
        length: Option<u64>,
        /// Bytes of the body that have come already.
        first: Bytes,
    },
}

impl OutBody {
    /// Length of the body, when it is known.
    pub fn len(&self) -> Option<u64> {
        match self {
            OutBody::None => Some(0),
            OutBody::Memory(bytes) => Some(bytes.len() as u64),
            OutBody::File(file) => Some(file.len),
            OutBody::Client { length, .. } => *length,
        }
    }

    /// True when it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The body, if it is there and not empty.
    pub fn whole(&self) -> Option<Piece> {
        let whole = match self {
            OutBody::None | OutBody::Client { .. } => return None,
            OutBody::Memory(bytes) => Piece::Memory(bytes.clone()),
            OutBody::File(file) => Piece::File(FileRegion {
                file: FileSource::Plain(Arc::clone(&file.file)),
                offset: 0,
                len: file.len,
            }),
        };
        // What is empty would never be sent.
        Some(whole).filter(|whole| !whole.is_empty())
    }
}

/// Framing around the parts of a body.
#[derive(Clone, Debug)]
pub enum OutFraming {
    /// Nothing.
    Plain,
    /// HTTP's chunks.
    Chunked,
    /// FastCGI's records.
    Stdin,
    /// Chunks with signatures, inside of what the head frames.
    Signed(Rc<ChunkSigner>),
}

/// A request ready to be sent to any peer.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The encoded head.
    pub head: Bytes,
    /// The body.
    pub body: OutBody,
    /// Framing around the parts of the body.
    pub framing: OutFraming,
    /// The method sent.
    pub method: Method,
    /// Encryption of the connection that it is to go out on.
    pub encryption: Option<Box<Encryption>>,
}

/// Encodes the request, whose body was read as far as it [must be](must_read_body).
pub(crate) fn prepare(
    req: &mut Request,
    target: &PassTarget,
    resolved: &Resolved,
    ask: &Ask,
) -> Result<Prepared, Failure> {
    if req.method == Method::Connect && target.protocol != Protocol::Tunnel {
        // RFC 9110 §9.3.6: a success would mean a tunnel, which nothing else than a tunnel is.
        return Err(Failure::Status(405));
    }
    let body = out_body(req, target.protocol)?;
    let encode = record::of(target.protocol).encode;
    let prepared = encode(req, target, resolved, ask, body)?;
    // Nobody is asked what an expression that gave up may have had a part in.
    req.heed_expressions()?;
    Ok(prepared)
}

/// True if the body must be read whole before the request can be encoded.
pub(crate) fn must_read_body(req: &mut Request, protocol: Protocol) -> bool {
    if !request_body::is_to_be_read(req) {
        return false;
    }
    let location = Arc::clone(&req.location);
    let policy = &location.settings.pass(protocol).request;
    let http = &location.settings.of::<UpstreamSettings>().pass_http;
    // nginx: a body that is set may name the client's, which is read whole for it.
    if protocol == Protocol::Http && http.set_body.is_some() {
        return true;
    }
    if protocol == Protocol::Http && aws_sign::must_read_body(req) {
        return true;
    }
    // nginx: some protocols have no way to send a body of unknown length.
    let record = record::of(protocol);
    let needs_length = (record.needs_length)(&location.settings);
    let has_no_length = matches!(req.body, RequestBody::Unread { length: None });
    // nginx: a gRPC request is a stream.
    if record.is_live {
        return false;
    }
    policy.pass_body && (policy.buffering || (has_no_length && needs_length))
}

fn out_body(req: &mut Request, protocol: Protocol) -> Result<OutBody, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.pass(protocol).request;
    let http = &location.settings.of::<UpstreamSettings>().pass_http;
    if protocol == Protocol::Http
        && let Some(template) = &http.set_body
    {
        return Ok(OutBody::Memory(req.eval(template)));
    }
    if !policy.pass_body {
        return Ok(OutBody::None);
    }
    let first = begin_body(req)?;
    Ok(match &req.body {
        RequestBody::None => OutBody::None,
        RequestBody::Memory(bytes) => OutBody::Memory(bytes.clone()),
        RequestBody::File(file) => OutBody::File(Rc::clone(file)),
        RequestBody::Unread { length } => OutBody::Client {
            length: *length,
            first,
        },
    })
}

/// Takes what has come of a body that is sent on while it comes. One that came whole is kept, as
/// nginx keeps it, for `$request_body` and further tries.
fn begin_body(req: &mut Request) -> Result<Bytes, Failure> {
    if !matches!(req.body, RequestBody::Unread { .. }) {
        return Ok(Bytes::new());
    }
    let max = req.location.settings.body.buffer_size.as_usize();
    let (first, remains) = req.client.take_ready(max)?;
    request_body::check_received(req, first.len() as u64)?;
    if remains == Remains::Nothing {
        req.body = if first.is_empty() {
            RequestBody::None
        } else {
            RequestBody::Memory(first.clone())
        };
    }
    Ok(first)
}

/// True if a field of the client stays here because of what is asked.
///
/// RFC 9111 §4.3.2: If-Match and If-Unmodified-Since are the origin's to weigh; an answer that they
/// decide is for this client, so that a request without one has none.
pub(crate) fn is_kept_back(req: &Request, (ask, rules): (&Ask, Conformance), known: Known) -> bool {
    if !is_condition(known) {
        return false;
    }
    if rules == Conformance::Nginx {
        return ask.is_for_cache;
    }
    match known {
        Known::IfMatch | Known::IfUnmodifiedSince => ask.is_for_cache && req.is_background,
        // RFC 9110 §14.2: a range of a HEAD means nothing, but would as that of a GET.
        Known::Range | Known::IfRange if req.method == Method::Head => {
            ask.is_for_cache || ask.is_get_for_head
        }
        _ => ask.is_for_cache,
    }
}

/// The client's conditions, which a fill does not pass on.
pub(crate) fn is_condition(known: Known) -> bool {
    matches!(
        known,
        Known::IfModifiedSince
            | Known::IfUnmodifiedSince
            | Known::IfNoneMatch
            | Known::IfMatch
            | Known::Range
            | Known::IfRange
    )
}
