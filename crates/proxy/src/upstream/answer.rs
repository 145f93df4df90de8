//! `proxy_hide_header`, `proxy_pass_header`, `proxy_intercept_errors`, `proxy_force_ranges`: what
//! the client gets of an upstream's answer.
//!
//! It is the same for an answer that has just come and for one from the cache: the cache keeps what
//! the upstream said, and the location that serves it decides what of it is shown.
//!
//! Invariants:
//! 1. Fields of the connection and of framing are never passed on; the writer makes its own.
//! 2. X-Accel fields act only when `proxy_ignore_headers` does not name them, and are hidden unless
//!    passed by name.

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::ignore::{IgnorableField, IgnorePolicy};
use millpond_semantics::date::{parse_http_date, parse_http_date_by_rfc};
use millpond_system::backlog::Bound;
use millpond_system::body::Body;
use millpond_wire::header::{Field, Fields, Known, KnownSet};
use millpond_wire::http1;

use super::exchange::Fetched;
use super::pass::PassTarget;
use super::store::StoreTarget;
use super::{buffer, cookie, redirect, store};
use crate::content::error_pages;
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::client::wire::Wire;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::provenance::{Provenance, Whence};
use millpond_exchange::response::{Orders, Parts, RangeRule, Response, Source, Tunnel};
use millpond_exchange::settings::Location;

/// Settings of which parts of an upstream's answer the client sees.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct AnswerPolicy {
    /// A field of the upstream's answer that is not passed to the client.
    #[directive(name = "proxy_hide_header", repeat)]
    pub hide: Vec<String>,
    /// A field that is passed to the client although it usually is not: Date, Server, X-Pad,
    /// X-Accel-….
    #[directive(name = "proxy_pass_header", repeat)]
    pub pass: Vec<String>,
    /// Subjects answers with a status of 300 and more to `error_page`.
    #[directive(name = "proxy_intercept_errors", default = "off")]
    pub intercept_errors: bool,
    /// Serves ranges also of answers that do not say Accept-Ranges.
    #[directive(
        name = "proxy_force_ranges",
        default = "off",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub force_ranges: bool,
    /// Passes trailer fields of the upstream's answer to the client, but for those that
    /// `proxy_hide_header` names, and those that are about the connection.
    ///
    /// # Differs from nginx
    ///
    /// An answer that goes through a cache has none, not even the first time, so that all clients
    /// get the same: what is stored is a head and a body.
    #[directive(name = "proxy_pass_trailers", default = "off", only("proxy"))]
    pub pass_trailers: bool,
}

/// Place of the answer, as far as ranges of it can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The answer comes from the upstream and goes to this client only.
    No,
    /// The answer is being stored while it is sent.
    Filling,
    /// The answer is in the cache.
    Yes,
}

/// A head, from an upstream or from the cache.
pub(crate) struct AnswerHead {
    /// Status code.
    pub status: u16,
    /// Status and reason as the upstream wrote them.
    pub status_text: Option<Bytes>,
    /// All its fields.
    pub fields: Fields,
}

/// The answer for an upstream's answer, which is not stored: `stored` is [`Stored::No`], or
/// [`Stored::Filling`] for one that was asked for as if it were.
pub(crate) fn from_fetched(
    req: &mut Request,
    target: &PassTarget,
    mut fetched: Box<Fetched>,
    stored: Stored,
) -> Result<Box<Response>, Failure> {
    let length = fetched.length;
    let settings = req.location.settings.pass(target.protocol);
    let idle = settings.exchange.read_timeout;
    let keeps_file = settings.store.target != StoreTarget::Off;
    // nginx: gRPC has its status in trailers.
    if settings.answer.pass_trailers || target.protocol == Protocol::Grpc {
        let location = Arc::clone(&req.location);
        fetched.body.show_trailers(location, target.protocol);
    }
    let head = &mut fetched.head;
    let announced = head.fields.get(Known::ContentLength);
    let announced = announced
        .filter(|_| req.is_head())
        .and_then(|value| http1::content_length(value));
    let answer = AnswerHead {
        status: head.status,
        status_text: Some(std::mem::take(&mut head.status_line)).filter(|text| !text.is_empty()),
        fields: std::mem::take(&mut head.fields),
    };
    let is_buffered = buffer::is_buffered(req, target.protocol, &answer.fields);
    let bound = if is_buffered {
        Bound::read_ahead(settings.buffer.buffers, settings.exchange.head_size)
    } else {
        Bound::passed_on(settings.exchange.head_size)
    };
    let last_modified = answer.fields.get(Known::LastModified);
    let last_modified = last_modified
        .filter(|_| keeps_file)
        .and_then(|value| parse_http_date(value));
    let mut response = from_head(req, target, answer, stored);
    if fetched.body.is_switched() {
        response.delivery.tunnel = Some(Tunnel {
            upstream: Box::new(fetched.body),
            idle,
        });
        return Ok(response);
    }
    let hides_length = hides_length(req, target) && !fetched.body.is_bare();
    response.length = length.or(announced).filter(|_| !hides_length);
    response.delivery.backlog = Some(bound.backlog.clone());
    fetched.body.bound(bound);
    response.body = fetched.into_body();
    if !is_buffered {
        // nginx: what is not read ahead is not held back either.
        req.limit_rate = Some(0);
        return Ok(response);
    }
    if let Some(rate) = buffer::limit_rate(req, target.protocol) {
        response.body = Body::stream(buffer::Paced::new(response.body, rate));
    }
    if keeps_file && response.orders.redirect.is_none() {
        let answer = store::Answer {
            status: response.status,
            length,
            last_modified,
            body: std::mem::take(&mut response.body),
            backlog: response.delivery.backlog.take(),
        };
        let location = Arc::clone(&req.location);
        let settings = location.settings.pass(target.protocol);
        (response.body, response.delivery.backlog) =
            store::keep(req, &settings.store, &settings.buffer.temp_path, answer);
    }
    Ok(response)
}

/// True for an answer of a gRPC server to a stream: what ends it are its trailers, not its length,
/// unless its head was all of it.
fn hides_length(req: &Request, target: &PassTarget) -> bool {
    target.protocol == Protocol::Grpc && matches!(req.client.wire, Wire::Stream(_))
}

/// The answer for a head; the caller adds length and body.
pub(crate) fn from_head(
    req: &mut Request,
    target: &PassTarget,
    head: AnswerHead,
    stored: Stored,
) -> Box<Response> {
    let location = Arc::clone(&req.location);
    let settings = location.settings.pass(target.protocol);
    let (policy, ignore) = (&settings.answer, &settings.ignore);
    let mut response = Box::new(Response {
        status: head.status,
        source: Source::Upstream,
        provenance: Provenance::One(match stored {
            Stored::Yes => Whence::Cache,
            Stored::No | Stored::Filling => Whence::Origin,
        }),
        orders: Orders {
            status_text: head.status_text,
            may_be_intercepted: policy.intercept_errors,
            ..Orders::default()
        },
        parts: Parts {
            is_one: head.status == 206,
            ..Parts::default()
        },
        ..Response::default()
    });
    // nginx: an error page comes before where the upstream redirects to.
    if !error_pages::takes_over(req, &response) {
        act_on_accel(req, &mut response, &head.fields, ignore);
    }
    if policy.force_ranges {
        response.parts.rule = match stored {
            Stored::Yes => RangeRule::Allowed,
            _ => RangeRule::Single,
        };
    }
    // nginx: an answer that is not for the cache was made for the client's own conditions.
    response.conditions.are_skipped = stored == Stored::No;
    let mut fields = head.fields;
    let by_rfc = by_rfc::is_on(req, target);
    let date = fields.get(Known::Date).filter(|_| by_rfc).cloned();
    if by_rfc {
        response.changes.are_forbidden = by_rfc::forbids_transform(req, target, &fields);
        by_rfc::drop_hop_fields(response.status, &mut fields);
    }
    fields.retain_mut(|field| keep_field(req, target, policy, field, (&mut response, stored)));
    response.fields = fields;
    response.orders.hides_date = is_passed(policy, Known::Date);
    response.orders.hides_server = is_passed(policy, Known::Server);
    if by_rfc {
        by_rfc::keep_date(&mut response, date);
    }
    response
}

fn is_passed(policy: &AnswerPolicy, known: Known) -> bool {
    policy
        .pass
        .iter()
        .any(|name| name.eq_ignore_ascii_case(known.canonical()))
}

/// True if a field is passed on; its value becomes what the client gets.
fn keep_field(
    req: &mut Request,
    target: &PassTarget,
    policy: &AnswerPolicy,
    field: &mut Field,
    (response, stored): (&mut Response, Stored),
) -> bool {
    // nginx: only HTTP upstreams are told of in terms of this server.
    let is_http = target.protocol == Protocol::Http;
    match field.known {
        _ if is_framing(field) => return false,
        _ if is_hidden(policy, target.protocol, field) => return false,
        Known::AcceptRanges if policy.force_ranges => return false,
        Known::AcceptRanges if stored != Stored::No => {
            // nginx: a stored answer is cut into ranges when its origin says that it can be.
            response.parts.rule = if stored == Stored::Yes {
                RangeRule::Allowed
            } else {
                RangeRule::Single
            };
            return false;
        }
        // nginx: a type that says nothing is none.
        Known::ContentType if field.value.is_empty() => return false,
        Known::LastModified => {
            response.last_modified = if by_rfc::is_on(req, target) {
                parse_http_date_by_rfc(&field.value, req.now_s())
            } else {
                parse_http_date(&field.value)
            }
        }
        Known::Location if is_http => {
            // nginx: only a location that was rewritten becomes absolute.
            if let Some(value) = redirect::rewrite(req, target, &field.value) {
                field.value = req.redirect_to(value);
            }
        }
        Known::Refresh if is_http => {
            if let Some(value) = redirect::rewrite_refresh(req, target, &field.value) {
                field.value = value;
            }
        }
        Known::SetCookie if is_http => {
            if let Some(value) = cookie::rewrite(req, &field.value) {
                field.value = value;
            }
        }
        _ => {}
    }
    true
}

/// The trailer fields that a location shows to its clients, if there are any.
pub(super) fn shown_trailers(
    (location, protocol): (Arc<Location>, Protocol),
    mut trailers: Fields,
) -> Option<Fields> {
    let policy = &location.settings.pass(protocol).answer;
    trailers.retain(|field| !is_framing(field) && !is_hidden(policy, protocol, field));
    Some(trailers).filter(|trailers| !trailers.is_empty())
}

/// True for a field that is about the connection, or about where the body ends; each connection has
/// its own. RFC 9110 §6.5.1: behind a body it could only mislead.
fn is_framing(field: &Field) -> bool {
    matches!(
        field.known,
        Known::Connection | Known::TransferEncoding | Known::ContentLength | Known::KeepAlive
    )
}

/// nginx's list of fields that are not passed on unless a location passes them by name.
pub(super) fn is_hidden(policy: &AnswerPolicy, protocol: Protocol, field: &Field) -> bool {
    let is_named = |names: &[String]| {
        names
            .iter()
            .any(|name| name.as_bytes().eq_ignore_ascii_case(&field.name))
    };
    let is_http = protocol.has_heads_of_http();
    let is_usually_hidden = match field.known {
        Known::Date | Known::Server => is_http,
        Known::XPad => protocol == Protocol::Http,
        // nginx: applications of uwsgi speak to clients in theirs.
        Known::Status => !is_http && protocol != Protocol::Uwsgi,
        known => matches!(
            known,
            Known::XAccelExpires
                | Known::XAccelRedirect
                | Known::XAccelLimitRate
                | Known::XAccelBuffering
                | Known::XAccelCharset
        ),
    };
    (!policy.hide.is_empty() && is_named(&policy.hide))
        || (is_usually_hidden && !is_named(&policy.pass))
}

fn act_on_accel(
    req: &mut Request,
    response: &mut Response,
    fields: &Fields,
    ignore: &IgnorePolicy,
) {
    const ACCEL: KnownSet = KnownSet::of(&[
        Known::XAccelLimitRate,
        Known::XAccelCharset,
        Known::XAccelRedirect,
    ]);
    if !fields.has_any(ACCEL) {
        return;
    }
    if let Some(rate) = fields.get(Known::XAccelLimitRate)
        && ignore.obeys(IgnorableField::XAccelLimitRate)
    {
        req.limit_rate = std::str::from_utf8(rate)
            .ok()
            .and_then(|rate| rate.parse().ok());
    }
    if let Some(charset) = fields.get(Known::XAccelCharset)
        && ignore.obeys(IgnorableField::XAccelCharset)
    {
        response.orders.charset = Some(charset.clone());
    }
    if let Some(to) = fields.get(Known::XAccelRedirect)
        && ignore.obeys(IgnorableField::XAccelRedirect)
    {
        response.orders.redirect = Some(to.clone());
        keep_for_redirect(req, fields);
    }
}

/// nginx: these fields of the answer that redirects go to the client with the answer that it
/// redirects to.
fn keep_for_redirect(req: &mut Request, fields: &Fields) {
    for field in fields.iter() {
        if matches!(
            field.known,
            Known::ContentType
                | Known::SetCookie
                | Known::ContentDisposition
                | Known::CacheControl
                | Known::Expires
                | Known::AcceptRanges
        ) {
            req.answer_fields.push(field.clone());
        }
    }
}
