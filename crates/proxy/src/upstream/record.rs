//! The records of the protocols that upstreams speak: what one does otherwise than the others.
//!
//! The words of a protocol (its directives, its schemes) are in [`millpond_exchange::protocol`],
//! its settings in `pass_settings`; its bytes are made and read in a file of its own. Whoever
//! passes requests asks the record and knows no protocol by name.

use millpond_wire::http1::response::{MAX_INTERIM, ResponseHead, ResponseParser};

use super::ask::Ask;
use super::head::{HeadReader, StdoutHead, Switching};
use super::http::{self, UpstreamVersion};
use super::memcached::KeyedHead;
use super::pass::{PassTarget, Resolved};
use super::request::{OutBody, Prepared};
use super::{fastcgi, memcached, scgi, tunnel, uwsgi};
use crate::request::Request;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::location::LocationSettings;

/// Encoder of a request, with its body, for a target as it is for this request.
type Encode = fn(&mut Request, &PassTarget, &Resolved, &Ask, OutBody) -> Result<Prepared, Failure>;

/// The behaviour of one protocol.
pub(crate) struct Record {
    /// Encodes a request for a place.
    pub(crate) encode: Encode,
    /// A reader of the head of an answer.
    pub(crate) head: fn(Switching, &Prepared, &LocationSettings) -> HeadReader,
    /// True if the connection may be used again after an answer of HTTP/1 framing or none.
    pub(crate) keeps: fn(&LocationSettings, &ResponseHead) -> bool,
    /// True if a body of unknown length cannot be sent.
    pub(crate) needs_length: fn(&LocationSettings) -> bool,
    /// True if it is spoken in streams of HTTP/2.
    pub(crate) is_in_streams: fn(&LocationSettings) -> bool,
    /// True if the body of an answer goes by the method that was asked with. Others are read to
    /// their end whatever was asked, as in nginx: an answer to HEAD that is stored is served to
    /// GET.
    pub(crate) heeds_method: bool,
    /// True if a request may be a stream that nobody waits for the end of.
    pub(crate) is_live: bool,
    /// True if this server says nothing to the peer: the connection is the client's.
    pub(crate) is_clients: bool,
}

/// The record of a protocol.
pub(crate) fn of(protocol: Protocol) -> &'static Record {
    match protocol {
        Protocol::Http => &HTTP,
        Protocol::FastCgi => &FASTCGI,
        Protocol::Scgi => &SCGI,
        Protocol::Uwsgi => &UWSGI,
        Protocol::Memcached => &MEMCACHED,
        Protocol::Grpc => &GRPC,
        Protocol::Tunnel => &TUNNEL,
    }
}

const HTTP: Record = Record {
    encode: http::encode,
    head: http_head,
    keeps: |_, head| head.keeps_alive(),
    needs_length: |settings| {
        settings.of::<UpstreamSettings>().pass_http.version == UpstreamVersion::Http10
    },
    is_in_streams: |settings| {
        settings.of::<UpstreamSettings>().pass_http.version == UpstreamVersion::Http2
    },
    heeds_method: true,
    is_live: false,
    is_clients: false,
};

const GRPC: Record = Record {
    needs_length: |_| false,
    is_in_streams: |_| true,
    is_live: true,
    ..HTTP
};

const FASTCGI: Record = Record {
    encode: |req, _, _, ask, body| Ok(fastcgi::encode(req, ask, body)),
    head: |_, _, _| HeadReader::FastCgi(Box::new(StdoutHead::new())),
    keeps: |settings, _| settings.of::<UpstreamSettings>().fastcgi_app.keep_conn,
    needs_length: |_| false,
    is_in_streams: |_| false,
    heeds_method: true,
    is_live: false,
    is_clients: false,
};

const SCGI: Record = Record {
    encode: |req, _, _, ask, body| Ok(scgi::encode(req, ask, body)),
    head: |_, _, _| HeadReader::Cgi(Some(Box::default()), Box::default()),
    keeps: |_, _| false,
    needs_length: |_| true,
    is_in_streams: |_| false,
    heeds_method: false,
    is_live: false,
    is_clients: false,
};

const UWSGI: Record = Record {
    encode: |req, _, _, ask, body| uwsgi::encode(req, ask, body),
    ..SCGI
};

const MEMCACHED: Record = Record {
    encode: |req, target, _, _, _| memcached::encode(req, target),
    head: |_, prepared, settings| {
        let head = KeyedHead::new(
            prepared,
            &settings.of::<UpstreamSettings>().memcached_server,
        );
        HeadReader::Keyed(Box::new(head))
    },
    keeps: |_, _| true,
    needs_length: |_| false,
    is_in_streams: |_| false,
    heeds_method: false,
    is_live: false,
    is_clients: false,
};

/// No byte of it is read here.
const TUNNEL: Record = Record {
    encode: |req, _, _, _, _| Ok(tunnel::nothing(req)),
    keeps: |_, _| false,
    needs_length: |_| false,
    is_in_streams: |_| false,
    is_clients: true,
    ..HTTP
};

/// HTTP/2 has a reader of its own.
fn http_head(switching: Switching, _: &Prepared, _: &LocationSettings) -> HeadReader {
    HeadReader::Http {
        parser: ResponseParser::new(),
        interim_left: MAX_INTERIM,
        switching,
    }
}
