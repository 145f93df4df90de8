//! The protocols that upstreams speak, and what all of them have alike.
//!
//! What `proxy_X` says of an HTTP upstream, `fastcgi_X`, `scgi_X`, `uwsgi_X` and `memcached_X` say
//! of theirs: one group of families, which a location holds once for each protocol. What only one
//! protocol has (`proxy_set_header`, `fastcgi_index`) is a family of its own beside the groups.

use millpond_cache::admit::AdmissionPolicy;
use millpond_cache::bypass::BypassPolicy;
use millpond_cache::conformance::ConformancePolicy;
use millpond_cache::disk_timeout::DiskPolicy;
use millpond_cache::fill::lock::LockPolicy;
use millpond_cache::hit_for_pass::HitForPassPolicy;
use millpond_cache::ignore::IgnorePolicy;
use millpond_cache::key::KeyPolicy;
use millpond_cache::max_variants::MaxVariantsPolicy;
use millpond_cache::method::MethodPolicy;
use millpond_cache::purge::tag::TagPolicy;
use millpond_cache::range::RangePolicy;
use millpond_cache::refresh_backoff::BackoffPolicy;
use millpond_cache::revalidate::RevalidatePolicy;
use millpond_cache::targeted::TargetedPolicy;
use millpond_cache::use_stale::StalePolicy;
use millpond_cache::valid::ValidPolicy;
use millpond_cache::zone::ZonePolicy;
use millpond_conf::{Family, FamilyGroup, OffOr, ParseContext, Span};

use crate::cache::purge::form::PurgePolicy;

use super::answer::AnswerPolicy;
use super::buffer::BufferPolicy;
use super::connect::{ConnectPolicy, Owner};
use super::exchange::ExchangePolicy;
use super::next::NextPolicy;
use super::params::ParamPolicy;
use super::request::RequestPolicy;
use super::store::{self, Keeping, StorePolicy, StoreTarget};
use crate::cache::status_header::StatusHeaderPolicy;
use crate::scope::location::LocationSettings;

/// How an upstream is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1: `proxy_pass`.
    Http,
    /// FastCGI: `fastcgi_pass`.
    FastCgi,
    /// SCGI: `scgi_pass`.
    Scgi,
    /// uwsgi: `uwsgi_pass`.
    Uwsgi,
    /// memcached: `memcached_pass`.
    Memcached,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 5] = [
        Protocol::Http,
        Protocol::FastCgi,
        Protocol::Scgi,
        Protocol::Uwsgi,
        Protocol::Memcached,
    ];

    /// What its directives begin with, without the underscore.
    pub fn prefix(self) -> &'static str {
        match self {
            Protocol::Http => "proxy",
            Protocol::FastCgi => "fastcgi",
            Protocol::Scgi => "scgi",
            Protocol::Uwsgi => "uwsgi",
            Protocol::Memcached => "memcached",
        }
    }

    /// The protocol that a directive belongs to by its name.
    pub fn of_directive(name: &str) -> Option<Protocol> {
        let (prefix, _) = name.split_once('_')?;
        Self::ALL.into_iter().find(|it| it.prefix() == prefix)
    }
}

/// What a location says of upstreams of one protocol.
#[derive(Clone, Debug, FamilyGroup)]
#[only("memcached", connect, exchange, next)]
pub struct PassSettings {
    /// How answers flow through.
    pub buffer: BufferPolicy,
    /// Connections to peers.
    pub connect: ConnectPolicy,
    /// Time and size of exchanges.
    pub exchange: ExchangePolicy,
    /// Other peers.
    pub next: NextPolicy,
    /// What applications are told.
    pub param: ParamPolicy,
    /// What upstreams are asked.
    pub request: RequestPolicy,
    /// What clients get of an answer.
    pub answer: AnswerPolicy,
    /// Answers that are kept as files.
    pub store: StorePolicy,
    /// The zone.
    pub zone: ZonePolicy,
    /// Whose rules the cache follows.
    pub conformance: ConformancePolicy,
    /// The cache key.
    pub key: KeyPolicy,
    /// Methods.
    pub method: MethodPolicy,
    /// Times of freshness.
    pub valid: ValidPolicy,
    /// Waiting for fills.
    pub lock: LockPolicy,
    /// Waiting for disks.
    pub disk: DiskPolicy,
    /// Keys that nobody waits for.
    pub hit_for_pass: HitForPassPolicy,
    /// How many variants.
    pub max_variants: MaxVariantsPolicy,
    /// Stale answers.
    pub stale: StalePolicy,
    /// Updates of stale entries.
    pub revalidate: RevalidatePolicy,
    /// Updates that fail.
    pub backoff: BackoffPolicy,
    /// Ranges of missing entries.
    pub range: RangePolicy,
    /// Popularity.
    pub admission: AdmissionPolicy,
    /// What is not looked up, and what is not stored.
    pub bypass: BypassPolicy,
    /// What entries can be purged by.
    pub tag: TagPolicy,
    /// Which requests purge.
    pub purge: PurgePolicy,
    /// Fields of answers that are not obeyed.
    pub ignore: IgnorePolicy,
    /// Fields of answers that are obeyed instead of Cache-Control.
    pub targeted: TargetedPolicy,
    /// What clients are told of the cache.
    pub status_header: StatusHeaderPolicy,
}

impl PassSettings {
    /// Switches off one of storing and caching where a level has the other; the error is for one
    /// that has both, with the place of the cache.
    pub fn settle_store<'a>(
        &mut self,
        outer_to_inner: impl Iterator<Item = &'a PassSettingsRaw>,
        protocol: Protocol,
        cx: &mut ParseContext,
    ) -> Result<(), Span> {
        let prefix = protocol.prefix();
        let mut place = None;
        let levels = outer_to_inner.map(|raw| {
            let span_of = |name| Self::span_of(raw, prefix, &format!("{prefix}_{name}"));
            let files = StorePolicy::resolve(&[&raw.store], cx).target;
            let cache = ZonePolicy::resolve(&[&raw.zone], cx).zone;
            place = span_of("cache");
            Keeping {
                files: span_of("store").map(|_| files != StoreTarget::Off),
                cache: place.map(|_| cache.on().is_some()),
            }
        });
        let Ok(keeping) = store::settle(levels) else {
            return Err(place.unwrap_or(Span::NONE));
        };
        if keeping.files != Some(true) {
            self.store.target = StoreTarget::Off;
        }
        if keeping.cache != Some(true) {
            self.zone.zone = OffOr::Off;
        }
        Ok(())
    }
}

impl LocationSettings {
    /// What is said of upstreams of a protocol.
    pub fn pass(&self, protocol: Protocol) -> &PassSettings {
        match protocol {
            Protocol::Http => &self.proxy,
            Protocol::FastCgi => &self.fastcgi,
            Protocol::Scgi => &self.scgi,
            Protocol::Uwsgi => &self.uwsgi,
            Protocol::Memcached => &self.memcached,
        }
    }

    /// True when connections to peers may come from addresses that are not this machine's.
    pub fn has_foreign_source(&self) -> bool {
        let is_foreign = |protocol| {
            let bind = self.pass(protocol).connect.bind.on();
            bind.is_some_and(|bind| bind.owner == Owner::Anybody)
        };
        Protocol::ALL.into_iter().any(is_foreign)
    }
}
