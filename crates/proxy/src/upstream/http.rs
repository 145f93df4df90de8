//! `proxy_set_header`, `proxy_method`, `proxy_http_version`, `proxy_set_body`: what HTTP upstreams
//! are asked.
//!
//! The head is encoded once for all peers of a request. Fields that the configuration sets replace
//! the client's of the same name; a set field with an empty value is left out. Fields of the
//! connection are never passed on.
//!
//! Invariants:
//! 1. The framing of the request is ours: neither Content-Length nor Transfer-Encoding of the
//!    client goes on unless it describes the body that is sent.
//! 2. When the answer is for the cache, no condition or range of the client goes on but those that
//!    are the origin's to weigh by RFC 9111; a range of the cache's own stands above what the
//!    configuration says.
//! 3. By RFC 9111 no fragment of a target goes on.

use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millpond_cache::conformance::Conformance;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Template, Words};
use millpond_semantics::uri::{EscapeKind, escape_into};
use millpond_wire::header::Known;
use millpond_wire::http1::request::FieldRef;
use millpond_wire::http1::{Method, Version, encode};

use super::ask::Ask;
use super::aws_sign;
use super::cdn_loop;
use super::early_data;
use super::grpc;
use super::max_forwards;
use super::pass::{PassTarget, Resolved};
use super::pass_settings::PassSettings;
use super::request::{OutBody, OutFraming, Prepared, is_kept_back};
use crate::request::Request;
use crate::request::scratch::put_together;
use crate::upstream::by_rfc;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::location::LocationSettings;

/// A field to send.
#[derive(Clone, Debug)]
pub struct SetHeader {
    /// Name.
    pub name: String,
    /// Value; empty leaves the field out.
    pub value: Template,
}

impl FromArgs for SetHeader {
    const SYNTAX: &'static str = "field value";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [name, _] = args.words else {
            return Err(ArgError::Count);
        };
        Ok(SetHeader {
            name: name.text.clone(),
            value: args.word(1)?,
        })
    }
}

/// HTTP version of requests to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum UpstreamVersion {
    /// HTTP/1.0.
    #[word("1.0")]
    Http10,
    /// HTTP/1.1.
    #[word("1.1")]
    Http11,
    /// HTTP/2.
    #[word("2")]
    Http2,
}

/// Settings that only HTTP upstreams have.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct HttpPolicy {
    /// A field of the request to the upstream; an empty value leaves it out. Inherited only where
    /// none is set.
    #[directive(name = "proxy_set_header", repeat)]
    pub set_headers: Vec<SetHeader>,
    /// The method of the request to the upstream instead of the client's.
    #[directive(name = "proxy_method")]
    pub method: Option<Template>,
    /// The HTTP version of requests to the upstream. Version 2 is spoken at once, without an
    /// upgrade; over TLS it is offered as `h2`.
    ///
    /// # Differs from nginx
    ///
    /// With version 2, a peer that goes away in peace before it has looked at a request on a kept
    /// connection is asked again on another one.
    #[directive(name = "proxy_http_version", default = "1.1")]
    pub version: UpstreamVersion,
    /// A body to send instead of the client's.
    #[directive(name = "proxy_set_body")]
    pub set_body: Option<Template>,
}

/// Words of a location about the heads of requests.
struct Wording<'a> {
    protocol: Protocol,
    pass: &'a PassSettings,
    set_headers: &'a [SetHeader],
    method: Option<&'a Template>,
    version: UpstreamVersion,
}

impl<'a> Wording<'a> {
    fn of(settings: &'a LocationSettings, protocol: Protocol) -> Self {
        let pass = settings.pass(protocol);
        if protocol == Protocol::Grpc {
            return Wording {
                protocol,
                pass,
                set_headers: &settings.of::<UpstreamSettings>().grpc_server.set_headers,
                method: None,
                version: UpstreamVersion::Http2,
            };
        }
        let http = &settings.of::<UpstreamSettings>().pass_http;
        Wording {
            protocol,
            pass,
            set_headers: &http.set_headers,
            method: http.method.as_ref(),
            version: http.version,
        }
    }
}

/// Test whether the configuration sets a field, by its name.
type IsSet<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Encodes the request.
pub fn encode(
    req: &mut Request,
    target: &PassTarget,
    resolved: &Resolved,
    ask: &Ask,
    body: OutBody,
) -> Result<Prepared, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &Wording::of(&location.settings, target.protocol);
    let method = method(req, policy, ask);
    let uri = match (&resolved.path, req.path.is_changed) {
        (None, false) => None,
        _ => Some(put_together(|uri| write_uri(req, target, resolved, uri))),
    };
    if uri.as_deref().unwrap_or(req.unparsed_uri()).is_empty() {
        return Err(Failure::Internal("zero length URI to proxy".to_string()));
    }
    let version = match policy.version {
        UpstreamVersion::Http10 => Version::Http10,
        UpstreamVersion::Http11 | UpstreamVersion::Http2 => Version::Http11,
    };
    let worker = Rc::clone(req.worker());
    let head = worker.upstream_heads.write(|head| {
        let uri = uri.as_deref();
        let uri = uri.unwrap_or_else(|| raw_target(req, req.unparsed_uri()));
        encode::write_request_line(head, &method, uri, version);
        write_fields(req, policy, resolved, ask, (&body, head));
        encode::end_head(head);
    });
    let framing = match &body {
        OutBody::Client { length: None, .. } if policy.version != UpstreamVersion::Http2 => {
            OutFraming::Chunked
        }
        _ => OutFraming::Plain,
    };
    Ok(Prepared {
        encryption: None,
        head,
        body,
        framing,
        method: Method::of(&method),
    })
}

fn method(req: &mut Request, policy: &Wording<'_>, ask: &Ask) -> Bytes {
    if ask.is_get_for_head && req.method == Method::Head {
        return Bytes::from_static(b"GET");
    }
    match policy.method {
        Some(template) => req.eval(template),
        None => match req.method.name() {
            Some(name) => Bytes::from_static(name.as_bytes()),
            None => Bytes::copy_from_slice(req.head.method_bytes()),
        },
    }
}

/// The target: the address's own path in place of the location's, or the client's as it came.
pub fn write_uri(req: &Request, target: &PassTarget, resolved: &Resolved, out: &mut Vec<u8>) {
    match &resolved.path {
        Some(path) if target.has_variables() => out.extend_from_slice(raw_target(req, path)),
        Some(path) => {
            let skipped = if req.path.has_left_prefix {
                0
            } else {
                out.extend_from_slice(path);
                target.location_prefix.len().min(req.uri.len())
            };
            write_rest(req, skipped, out);
        }
        None if !req.path.is_changed => {
            out.extend_from_slice(raw_target(req, req.unparsed_uri()));
        }
        None => write_rest(req, 0, out),
    }
}

/// A target that was not taken apart, as it goes on. INVARIANT 3.
fn raw_target<'t>(req: &Request, target: &'t [u8]) -> &'t [u8] {
    match req
        .location
        .settings
        .of::<UpstreamSettings>()
        .proxy
        .conformance
        .rules
    {
        Conformance::Rfc9111 => by_rfc::without_fragment(target),
        Conformance::Nginx => target,
    }
}

fn write_rest(req: &Request, skipped: usize, out: &mut Vec<u8>) {
    let rest = req.uri.get(skipped..).unwrap_or_default();
    if req.path.is_quoted || req.is_internal {
        escape_into(rest, EscapeKind::Uri, out);
    } else {
        out.extend_from_slice(rest);
    }
    if !req.args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&req.args);
    }
}

/// The client's fields that never go on by themselves: those of its connection and framing.
pub(crate) fn is_hop_by_hop(known: Known) -> bool {
    matches!(
        known,
        Known::Host
            | Known::Connection
            | Known::ProxyConnection
            | Known::ContentLength
            | Known::TransferEncoding
            | Known::Te
            | Known::KeepAlive
            | Known::Expect
            | Known::Upgrade
    )
}

fn write_fields(
    req: &mut Request,
    policy: &Wording<'_>,
    resolved: &Resolved,
    ask: &Ask,
    (body, head): (&OutBody, &mut BytesMut),
) {
    let passing = &policy.pass.request;
    let is_set = |name: &[u8]| {
        policy
            .set_headers
            .iter()
            .any(|set| set.name.as_bytes().eq_ignore_ascii_case(name))
    };
    // Another origin has a name of its own.
    let is_host = |set: &&SetHeader| set.name.eq_ignore_ascii_case("host") && !ask.is_foreign();
    let host = policy.set_headers.iter().find(is_host);
    let host = host.map(|set| req.eval(&set.value));
    let host = host.as_deref().unwrap_or(resolved.host.as_bytes());
    if !host.is_empty() {
        encode::write_known(head, Known::Host, host);
    } else if policy.version != UpstreamVersion::Http10 {
        encode::write_known(head, Known::Host, resolved.host.as_bytes());
    }
    for set in policy.set_headers {
        let name = set.name.as_bytes();
        if set.name.eq_ignore_ascii_case("host") || ask.replaces(name) || ask.withholds(name) {
            continue;
        }
        let value = req.eval(&set.value);
        if !value.is_empty() {
            encode::write_field(head, set.name.as_bytes(), &value);
        }
    }
    // A client that announced an empty body is not made to look as if it sent none.
    let announced = [Known::ContentLength, Known::TransferEncoding];
    let announced_empty = passing.pass_body && announced.iter().any(|known| req.head.has(*known));
    write_framing((body, announced_empty), (&is_set, policy.version), head);
    if policy.protocol == Protocol::Grpc && !is_set(b"te") {
        grpc::write_te(req, head);
    }
    write_ask(ask, &is_set, head);
    if !is_set(b"early-data") {
        early_data::write(req, (policy.pass.request.pass_headers, head));
    }
    if !passing.pass_headers {
        return;
    }
    let rules = policy.pass.conformance.rules;
    let by_rfc = rules == Conformance::Rfc9111;
    for field in req.head.fields() {
        let is_dropped = is_left_out(req, (ask, rules), field) || is_set(field.name);
        let left = if by_rfc {
            max_forwards::left(req, field)
        } else {
            None
        };
        match left {
            Some(left) if !is_dropped => {
                encode::write_field(head, field.name, left.to_string().as_bytes())
            }
            None if !is_dropped => encode::write_read_field(head, field.name, field.value),
            _ => {}
        }
    }
    if !is_set(b"cdn-loop") {
        cdn_loop::write(req, head);
    }
    if by_rfc && !is_set(b"via") {
        write_via(req, head);
    }
}

/// True for a field of the client that does not go on, whatever the configuration sets.
fn is_left_out(req: &Request, (ask, rules): (&Ask, Conformance), field: FieldRef<'_>) -> bool {
    let by_rfc = rules == Conformance::Rfc9111;
    is_hop_by_hop(field.known)
        || (by_rfc && (field.known == Known::Via || req.head.connection_has(field.name)))
        || cdn_loop::is_ours(req, field.name)
        || aws_sign::is_kept_back(req, field.name)
        || ask.withholds(field.name)
        || is_kept_back(req, (ask, rules), field.known)
}

/// RFC 9110 §7.6.3: a gateway adds itself to Via.
fn write_via(req: &Request, head: &mut BytesMut) {
    let mut via = Vec::new();
    for value in req.head.find_all(b"via") {
        via.extend_from_slice(value);
        via.extend_from_slice(b", ");
    }
    via.extend_from_slice(match req.head.version() {
        Version::Http2 => b"2.0 millpond",
        Version::Http3 => b"3.0 millpond",
        Version::Http11 => b"1.1 millpond",
        _ => b"1.0 millpond",
    });
    encode::write_known(head, Known::Via, &via);
}

/// Writes the fields that are asked for the cache.
fn write_ask(ask: &Ask, is_set: IsSet<'_>, head: &mut BytesMut) {
    if ask.is_for_cache {
        for (known, value) in [
            (Known::IfModifiedSince, &ask.if_modified_since),
            (Known::IfNoneMatch, &ask.if_none_match),
        ] {
            if let Some(value) = value
                && !is_set(known.lower().as_bytes())
            {
                encode::write_known(head, known, value);
            }
        }
    }
    for (known, value) in ask.range_fields() {
        encode::write_known(head, known, value);
    }
}

fn write_framing(
    (body, announced_empty): (&OutBody, bool),
    (is_set, version): (IsSet<'_>, UpstreamVersion),
    head: &mut BytesMut,
) {
    let length = match body {
        OutBody::None => announced_empty.then_some(0),
        OutBody::Memory(bytes) => Some(bytes.len() as u64),
        OutBody::File(file) => Some(file.len),
        OutBody::Client { length: None, .. } => {
            // HTTP/2 frames every body.
            if version != UpstreamVersion::Http2 && !is_set(b"transfer-encoding") {
                encode::write_known(head, Known::TransferEncoding, b"chunked");
            }
            return;
        }
        OutBody::Client { length, .. } => *length,
    };
    if let Some(length) = length
        && !is_set(b"content-length")
    {
        encode::write_content_length(head, length);
    }
}
