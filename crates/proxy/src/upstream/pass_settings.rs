//! Settings that a location has for upstreams of each protocol.
//!
//! What `proxy_X` says of an HTTP upstream, `fastcgi_X`, `scgi_X`, `uwsgi_X`, `memcached_X` and
//! `grpc_X` say of theirs: one group of families, which a location holds once for each protocol.
//! What only one protocol has (`proxy_set_header`, `fastcgi_index`) is a family of its own beside
//! the groups.

use std::path::Path;

use millpond_cache::admit::AdmissionPolicy;
use millpond_cache::bypass::BypassPolicy;
use millpond_cache::conformance::{Conformance, ConformancePolicy};
use millpond_cache::disk_timeout::DiskPolicy;
use millpond_cache::fill::lock::LockPolicy;
use millpond_cache::hit_for_pass::HitForPassPolicy;
use millpond_cache::ignore::IgnorePolicy;
use millpond_cache::key::KeyPolicy;
use millpond_cache::lag::LagPolicy;
use millpond_cache::max_variants::MaxVariantsPolicy;
use millpond_cache::method::MethodPolicy;
use millpond_cache::no_vary_search::NoVarySearchPolicy;
use millpond_cache::range::RangePolicy;
use millpond_cache::refresh_backoff::BackoffPolicy;
use millpond_cache::revalidate::RevalidatePolicy;
use millpond_cache::tag::TagPolicy;
use millpond_cache::targeted::TargetedPolicy;
use millpond_cache::use_stale::StalePolicy;
use millpond_cache::valid::ValidPolicy;
use millpond_cache::vary_as::VaryAsPolicy;
use millpond_cache::zone::ZonePolicy;
use millpond_conf::{Family, FamilyGroup, OffOr, ParseContext, Span};
use millpond_system::temp_file::TempFolders;
use millpond_wire::http1::request::Reading;

use crate::cache_settings::peers::PeersPolicy;
use crate::cache_settings::purge::PurgePolicy;

use super::answer::AnswerPolicy;
use super::buffer::BufferPolicy;
use super::connect::{ConnectPolicy, Owner};
use super::exchange::ExchangePolicy;
use super::next::NextPolicy;
use super::params::ParamPolicy;
use super::request::RequestPolicy;
use super::store::{self, Keeping, StorePolicy, StoreTarget};
use crate::cache_settings::encodings::EncodingsPolicy;
use crate::cache_settings::status_header::StatusHeaderPolicy;
use crate::tls::settings::OriginSslPolicy;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::protocol::{Protocol, Protocols};
use millpond_exchange::settings::level::Level;
use millpond_exchange::settings::location::LocationSettings;
use millpond_exchange::settings::{Uses, declared::Declared, level::Closing};

/// Settings of a location for upstreams of one protocol.
#[derive(Clone, Debug, FamilyGroup)]
#[expect(
    clippy::duplicated_attributes,
    reason = "protocols share some of the families"
)]
#[only("memcached", connect, exchange, next)]
#[only("tunnel", connect, exchange, next)]
#[only("grpc", buffer, connect, ssl, exchange, next, answer, ignore)]
pub struct PassSettings {
    /// Settings of how answers flow through.
    pub buffer: BufferPolicy,
    /// Connections to peers.
    pub connect: ConnectPolicy,
    /// Encryption of connections to peers.
    pub ssl: OriginSslPolicy,
    /// Time and size of exchanges.
    pub exchange: ExchangePolicy,
    /// Other peers.
    pub next: NextPolicy,
    /// Settings of the parameters that applications are told.
    pub param: ParamPolicy,
    /// Settings of the request that upstreams are asked.
    pub request: RequestPolicy,
    /// Settings of which parts of an answer clients get.
    pub answer: AnswerPolicy,
    /// Answers that are kept as files.
    pub store: StorePolicy,
    /// The zone.
    pub zone: ZonePolicy,
    /// Rules that the cache follows.
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
    /// Trust in what is stored while purges may be missing.
    pub lag: LagPolicy,
    /// Nodes of the fleet that are asked in place of the origin.
    pub peers: PeersPolicy,
    /// Keys that nobody waits for.
    pub hit_for_pass: HitForPassPolicy,
    /// Limit of the variants of a cache key.
    pub max_variants: MaxVariantsPolicy,
    /// Values in the place of the fields that Vary names.
    pub vary_as: VaryAsPolicy,
    /// Arguments that origins do not tell answers apart by.
    pub no_vary_search: NoVarySearchPolicy,
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
    /// Rules for requests that are not looked up, and answers that are not stored.
    pub bypass: BypassPolicy,
    /// Tags that entries can be purged by.
    pub tag: TagPolicy,
    /// Rules for the requests that purge.
    pub purge: PurgePolicy,
    /// Fields of answers that are not obeyed.
    pub ignore: IgnorePolicy,
    /// Fields of answers that are obeyed instead of Cache-Control.
    pub targeted: TargetedPolicy,
    /// Content codings that answers are kept in.
    pub encodings: EncodingsPolicy,
    /// Fields that tell clients what the cache did.
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

/// Settles storing and caching, and notes what upstreams need of the process.
pub fn close(level: &mut Closing<'_>) {
    for (protocol, span) in settle_stores(level) {
        let prefix = protocol.prefix();
        let message =
            format!("\"{prefix}_cache\" directive is incompatible with \"{prefix}_store\"");
        level.error_once(span, message);
    }
    let (declared, cx) = level.builder.with_cx::<Declared>();
    let settings = &mut *level.settings;
    settings.by_rfc = Protocols::that_are(|protocol| {
        settings.pass(protocol).conformance.rules == Conformance::Rfc9111
    });
    settings.note_temp_folders(&mut declared.temp_folders, &cx.prefix);
    let uses = level.builder.of::<Uses>();
    uses.foreign_sources |= settings.has_foreign_source();
    uses.reading = uses.reading.max(settings.reading());
}

/// Switches off one of storing and caching where a level has the other; returns the protocols for
/// which one has both, with the place of the cache.
fn settle_stores(level: &mut Closing<'_>) -> Vec<(Protocol, Span)> {
    let mut faults = Vec::new();
    for protocol in Protocol::ALL {
        let raws = level
            .levels
            .iter()
            .filter_map(Level::raw::<UpstreamSettings>);
        let levels = raws.map(|raw| match protocol {
            Protocol::Http => &raw.proxy,
            Protocol::FastCgi => &raw.fastcgi,
            Protocol::Scgi => &raw.scgi,
            Protocol::Uwsgi => &raw.uwsgi,
            Protocol::Memcached => &raw.memcached,
            Protocol::Grpc => &raw.grpc,
            Protocol::Tunnel => &raw.tunnel,
        });
        let settings = level.settings.pass_mut(protocol);
        let cx = &mut level.builder.cx;
        let fault = settings.settle_store(levels, protocol, cx).err();
        faults.extend(fault.map(|span| (protocol, span)));
    }
    faults
}

/// Settings of a location that every protocol of upstreams has.
pub trait SettingsByProtocol {
    /// Settings for upstreams of a protocol.
    fn pass(&self, protocol: Protocol) -> &PassSettings;

    /// The settings for upstreams of a protocol, to be changed.
    fn pass_mut(&mut self, protocol: Protocol) -> &mut PassSettings;

    /// Notes the folders of temporary files that requests of a location may need.
    fn note_temp_folders(&self, folders: &mut TempFolders, prefix: &Path);

    /// True when connections to peers may come from addresses that are not this machine's.
    fn has_foreign_source(&self) -> bool;

    /// Way in which requests are read, fit for answers of every protocol.
    fn reading(&self) -> Reading;
}

impl SettingsByProtocol for LocationSettings {
    fn pass(&self, protocol: Protocol) -> &PassSettings {
        let all = self.of::<UpstreamSettings>();
        match protocol {
            Protocol::Http => &all.proxy,
            Protocol::FastCgi => &all.fastcgi,
            Protocol::Scgi => &all.scgi,
            Protocol::Uwsgi => &all.uwsgi,
            Protocol::Memcached => &all.memcached,
            Protocol::Grpc => &all.grpc,
            Protocol::Tunnel => &all.tunnel,
        }
    }

    fn pass_mut(&mut self, protocol: Protocol) -> &mut PassSettings {
        let all = self.of_mut::<UpstreamSettings>();
        match protocol {
            Protocol::Http => &mut all.proxy,
            Protocol::FastCgi => &mut all.fastcgi,
            Protocol::Scgi => &mut all.scgi,
            Protocol::Uwsgi => &mut all.uwsgi,
            Protocol::Memcached => &mut all.memcached,
            Protocol::Grpc => &mut all.grpc,
            Protocol::Tunnel => &mut all.tunnel,
        }
    }

    fn note_temp_folders(&self, folders: &mut TempFolders, prefix: &Path) {
        folders.note_bodies(&self.body.temp_path, prefix);
        for protocol in Protocol::ALL {
            let pass = self.pass(protocol);
            if pass.store.target != StoreTarget::Off {
                folders.note_answers(&pass.buffer.temp_path);
            }
        }
    }

    fn has_foreign_source(&self) -> bool {
        let is_foreign = |protocol| {
            let bind = self.pass(protocol).connect.bind.on();
            bind.is_some_and(|bind| bind.owner == Owner::Anybody)
        };
        Protocol::ALL.into_iter().any(is_foreign)
    }

    fn reading(&self) -> Reading {
        if self.by_rfc == Protocols::default() {
            Reading::AsNginx
        } else {
            Reading::ByRfc
        }
    }
}
