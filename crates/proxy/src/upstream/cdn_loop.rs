//! `proxy_cdn_loop`: requests that go round in a circle of proxies are answered (RFC 8586).
//!
//! Two caches that are each other's origins pass a request on until something gives way. With an
//! identity of its own, this server adds itself to CDN-Loop in what it asks of upstreams, and
//! answers a request that names it already with 508.
//!
//! 1. A loop is seen before anything is looked up: a request that waited for the fill that it
//!    belongs to itself would wait for ever.
//! 2. What others wrote in the field is passed on as it is.

use bytes::BytesMut;
use millpond_conf::OffOr;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_semantics::cdn_loop::{is_identity, passages};
use millpond_system::log::error::Level;
use millpond_wire::http1::encode;

use crate::log::request_error;
use crate::request::Request;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;

/// The field.
const FIELD: &[u8] = b"CDN-Loop";

/// Settings of how loops of requests between servers are found.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct CdnLoopPolicy {
    /// The name that this server adds to CDN-Loop (RFC 8586) in requests to HTTP upstreams: a host
    /// of its own, or a word. A request that names it already has gone round in a circle and is
    /// answered with 508; with a number, only one that names it more often than so. In a
    /// configuration that passes requests to itself on purpose the number is how often it does.
    #[directive(name = "proxy_cdn_loop", default = "off")]
    pub identity: OffOr<Identity>,
}

/// A name, and how often it may be there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: String,
    passages_max: usize,
}

impl FromArgs for Identity {
    const SYNTAX: &'static str = "name [number]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let passages_max = match args.at_least(1)?.len() {
            1 => 0,
            2 => args.word::<u32>(1)? as usize,
            _ => return Err(ArgError::Count),
        };
        let name: String = args.word(0)?;
        if is_identity(name.as_bytes()) {
            Ok(Identity { name, passages_max })
        } else {
            Err(ArgError::value(0, "it must be a host or a word"))
        }
    }
}

/// Refuses a request that has come through here too often.
pub(crate) fn check(req: &Request, protocol: Protocol) -> Result<(), Failure> {
    let OffOr::On(identity) = &req
        .location
        .settings
        .of::<UpstreamSettings>()
        .cdn_loop
        .identity
    else {
        return Ok(());
    };
    if !protocol.has_heads_of_http() {
        return Ok(());
    }
    let count = passages(req.head.find_all(FIELD), identity.name.as_bytes());
    if count <= identity.passages_max {
        return Ok(());
    }
    let name = &identity.name;
    let message = format_args!("request loop: CDN-Loop names \"{name}\" {count} times");
    request_error::write(req, Level::Error, message);
    Err(Failure::Status(508))
}

/// True if the field is written here, so that the client's own is not copied.
pub(crate) fn is_ours(req: &Request, name: &[u8]) -> bool {
    req.location
        .settings
        .of::<UpstreamSettings>()
        .cdn_loop
        .identity
        != OffOr::Off
        && name.eq_ignore_ascii_case(FIELD)
}

/// Writes the client's list with this server at its end.
pub(crate) fn write(req: &Request, head: &mut BytesMut) {
    let OffOr::On(identity) = &req
        .location
        .settings
        .of::<UpstreamSettings>()
        .cdn_loop
        .identity
    else {
        return;
    };
    let mut list = Vec::new();
    for value in req.head.find_all(FIELD) {
        list.extend_from_slice(value);
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(identity.name.as_bytes());
    encode::write_field(head, FIELD, &list);
}
