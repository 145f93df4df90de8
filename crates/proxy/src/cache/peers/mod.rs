//! `proxy_cache_peers`: a miss is asked of the node of the fleet that owns its key, which asks the
//! origin once for all nodes.
//!
//! - `field`: the field of requests and answers between nodes, with its signature
//! - `ask`: asking the owner in place of the origin
//! - `answer`: the owner's side
//! - `part`: what a peer asks of a body in slices
//! - `certificates`: the certificates that nodes show each other
//! - `rest`: the rest of an answer that the owner has broken off
//!
//! A location with peers has two twins, which stand in for it while a request is answered to a
//! peer, or asked of one:
//!
//! | twin | |
//! |---|---|
//! | answering | the cache and the upstream of the location, without peers, filters, and rules for what clients see |
//! | asking | none of the location's words about requests to its upstream |
//!
//! 1. The answering twin has no peers, so that what comes from one is never passed to another.
//! 2. What a peer gets has the fields of the origin, all of them and no others but `field::NAME`.
//! 3. Whoever asks falls back to the origin for every reason there is.
//! 4. A request of a peer waits for no fill that may itself wait for a peer: where a node is asked
//!    for a key that it does not own, because views differ, it asks the origin beside its own fill.
//!    Else two nodes would wait for each other. Where bodies are in slices, it refuses instead.

pub(crate) mod answer;
pub(crate) mod ask;
pub mod certificates;
pub(crate) mod field;
pub(super) mod part;
pub(super) mod rest;

use std::sync::Arc;

use millpond_cache::conformance::Conformance;
use millpond_cache::extent::Extents;
use millpond_cache::ignore::IgnorableField;
use millpond_cache::slice::SliceSize;
use millpond_conf::{Flags, OffOr, Span, Template};
use millpond_wire::header::Known;

use self::certificates::OfFleets;
use super::zones::LocationCache;
use crate::cache::zones::LocationCaches;
use crate::cache_settings::peers::PeersRule;
use crate::content::ContentHandler;
use crate::log::settings::LogSettings;
use crate::upstream::http::SetHeader;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::redirect::RedirectRule;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::scope::parts::Parts;
use millpond_exchange::settings::Location;
use millpond_exchange::settings::level::{Closing, Due, DueFilters, Hooks, Levels};
use millpond_exchange::settings::location::LocationSettings;
use millpond_exchange::settings::tree::{LocationKind, LocationTree};

/// Bytes of the head of an answer between nodes, beside what the origin's may have.
const HEAD_EXTRA: u64 = 4096;

/// Peers of a location.
#[derive(Debug)]
pub struct LocationPeers {
    /// The rule.
    pub(super) rule: PeersRule,
    /// Stands in for the location while a peer is answered whose key is owned here.
    answering: Arc<Location>,
    /// The same for other keys, of which a fill of this node may wait for a peer.
    answering_alone: Arc<Location>,
    /// Stands in for the location while a peer is asked.
    asking: Arc<Location>,
    /// Extents of bodies in slices, each with an owner; none where ranges are asked of the origin.
    pub(super) extents: Option<Extents>,
    /// Certificates that nodes of the fleet show each other.
    certificates: OfFleets,
}

/// Makes the peers of a location's caches.
pub fn close(level: &mut Closing<'_>) {
    let Some(LocationCaches(mut caches)) = level.draft.take() else {
        return;
    };
    if let Some(handler) = level.draft.get::<ContentHandler>().cloned()
        && let Some(target) = PassTarget::of(&handler)
    {
        let protocol = target.protocol;
        for cache in &mut caches {
            let peers = &level.settings.pass(cache.protocol).peers.peers;
            if let (OffOr::On(rule), true) = (peers.clone(), cache.protocol == protocol) {
                let peers = LocationPeers {
                    extents: extents(level, (protocol, &rule)),
                    rule,
                    answering: Arc::new(answering(level, cache.locked(), handler.clone())),
                    answering_alone: Arc::new(answering(level, cache.unlocked(), handler.clone())),
                    asking: Arc::new(asking(level, protocol)),
                    certificates: level.builder.of::<OfFleets>().clone(),
                };
                cache.join(peers);
            }
        }
    }
    level.draft.put(LocationCaches(caches));
}

/// The extents of a location. Slices of other protocols have no validators, and what `slice auto`
/// takes whole is asked for whole.
fn extents(level: &Closing<'_>, (protocol, rule): (Protocol, &PeersRule)) -> Option<Extents> {
    let SliceSize::Bytes(_) = level.settings.slice.size else {
        return None;
    };
    (protocol == Protocol::Http).then(|| Extents::of(rule.extent))
}

/// Settings that a twin has of its location, whatever is asked.
fn common(level: &mut Closing<'_>) -> LocationSettings {
    let hooks = Hooks::of(level.builder);
    let mut settings = Levels::default().location(&hooks, &mut level.builder.cx);
    let own = &*level.settings;
    settings.body = own.body.clone();
    settings.send = own.send.clone();
    settings.keep_alive = own.keep_alive.clone();
    let logs = own.of::<LogSettings>();
    settings.of_mut::<LogSettings>().access_log = logs.access_log.clone();
    settings.error_log = own.error_log.clone();
    settings.cache_site = own.cache_site.clone();
    settings
}

/// INVARIANTS 1 and 2.
fn answering(level: &mut Closing<'_>, cache: LocationCache, handler: ContentHandler) -> Location {
    let protocol = cache.protocol;
    let mut settings = common(level);
    let own = &*level.settings;
    *settings.pass_mut(protocol) = own.pass(protocol).clone();
    settings.by_rfc = own.by_rfc;
    settings.resolver = own.resolver.clone();
    settings.slice = own.slice.clone();
    // What lies ahead may be another node's, and who asks fetches it in advance by itself.
    settings.slice.prefetch = OffOr::Off;
    settings.cache_args = own.cache_args.clone();
    settings.cached_only = own.cached_only.clone();
    let logs = own.of::<LogSettings>();
    settings.of_mut::<LogSettings>().upstream_log = logs.upstream_log.clone();
    let (upstreams, theirs) = (
        settings.of_mut::<UpstreamSettings>(),
        own.of::<UpstreamSettings>(),
    );
    upstreams.proxy.method = theirs.proxy.method.clone();
    upstreams.cdn_loop = theirs.cdn_loop.clone();
    upstreams.pass_http = theirs.pass_http.clone();
    upstreams.fastcgi_app = theirs.fastcgi_app.clone();
    upstreams.uwsgi_app = theirs.uwsgi_app.clone();
    upstreams.pass_redirect.rules = vec![RedirectRule::Off];
    let pass = settings.pass_mut(protocol);
    pass.answer.hide = Vec::new();
    pass.answer.pass = SHOWN.map(|known| known.canonical().to_owned()).to_vec();
    pass.answer.intercept_errors = false;
    pass.encodings.encodings = OffOr::Off;
    let fields = pass.ignore.fields.get_or_insert_with(Flags::empty);
    for field in ORDERS {
        fields.insert(field);
    }
    // The origin is not told of the peer.
    let nothing = Template::parse(
        "",
        level.draft.span.unwrap_or(Span::NONE),
        &mut level.builder.cx.variables,
    );
    let upstreams = settings.of_mut::<UpstreamSettings>();
    let set_headers = &mut upstreams.pass_http.set_headers;
    set_headers.extend(nothing.ok().map(|value| SetHeader {
        name: field::NAME.to_owned(),
        value,
    }));
    let mut twin = twin(level, settings);
    twin.parts.put(LocationCaches(vec![cache]));
    twin.parts.put(handler);
    twin
}

/// Fields of an origin that clients do not see, unless they are told to.
const SHOWN: [Known; 9] = [
    Known::Date,
    Known::Server,
    Known::XPad,
    Known::Status,
    Known::XAccelExpires,
    Known::XAccelRedirect,
    Known::XAccelLimitRate,
    Known::XAccelBuffering,
    Known::XAccelCharset,
];

/// Orders of an origin that who asks obeys, and not the owner.
const ORDERS: [IgnorableField; 3] = [
    IgnorableField::XAccelRedirect,
    IgnorableField::XAccelLimitRate,
    IgnorableField::XAccelCharset,
];

fn asking(level: &mut Closing<'_>, protocol: Protocol) -> Location {
    let mut settings = common(level);
    let own = level.settings.pass(protocol);
    let proxy = &mut settings.of_mut::<UpstreamSettings>().proxy;
    proxy.buffer = own.buffer.clone();
    proxy.exchange = own.exchange.clone();
    proxy.exchange.head_size.0 += HEAD_EXTRA;
    proxy.request.pass_body = false;
    proxy.next.tries = 1;
    // What the origin said has become what the RFC wants at the owner.
    proxy.conformance.rules = Conformance::Nginx;
    twin(level, settings)
}

/// A location with settings, and nothing else.
fn twin(level: &Closing<'_>, settings: LocationSettings) -> Location {
    Location {
        name: level.draft.name.clone().into_bytes().into(),
        kind: LocationKind::Unnamed,
        parts: Parts::default(),
        filters: DueFilters::default(),
        redirects_slashless: false,
        children: LocationTree::build(Vec::new()),
        due: Due::default(),
        otel: None,
        limit_except: None,
        is_internal: true,
        is_server: false,
        is_limit: false,
        span: level.draft.span.unwrap_or(Span::NONE),
        settings,
    }
}
