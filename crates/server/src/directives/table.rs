//! The tables of everything that has directives beside its settings: rows, and hooks of families.
//!
//! A file of directives is named here once for each kind of thing that it brings. The settings of
//! families stand in the tables of `settings`.

use millpond_exchange::scope::block::Row;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Parts};
use millpond_exchange::settings::level::{Hooks, keep};
use millpond_exchange::settings::location::LocationSettings;
use millpond_exchange::settings::main::MainSettings;
use millpond_exchange::settings::room::Room;
use millpond_exchange::stats;
use millpond_exchange::stats::status_zone::{StatusZone, ZoneNames};
use millpond_proxy::cache::ruling::RulingHook;
use millpond_proxy::cache::zones::{LocationCaches, Zones};
use millpond_proxy::conditional::not_modified::ConditionPolicy;
use millpond_proxy::content::ContentHandler;
use millpond_proxy::content::settings::ContentSettings;
use millpond_proxy::filter::charset::CharsetMaps;
use millpond_proxy::filter::settings::FilterSettings;
use millpond_proxy::filter::{HeadHook, Texts};
use millpond_proxy::handler::limit_zone::LimitZones;
use millpond_proxy::handler::settings::HandlerSettings;
use millpond_proxy::handler::try_files::TryFiles;
use millpond_proxy::log::settings::LogSettings;
use millpond_proxy::rewrite::{RewritePolicy, Script};
use millpond_proxy::subrequest::SubrequestPolicy;
use millpond_proxy::tls::acme::Orders;
use millpond_proxy::tls::settings::SslPolicy;
use millpond_proxy::upstream::groups::Groups;
use millpond_proxy::upstream::settings::UpstreamSettings;
use millpond_proxy::var::VariablePolicy;
use millpond_proxy::{
    cache, collector, content, filter, handler, log, map, otel, rewrite, steps, tls, upstream,
};

#[cfg(feature = "script")]
use millpond_proxy::script;

use crate::handler::{api, dashboard, health, metrics};

/// Directives that are no plain setting.
const ROWS: &[&[Row]] = &[
    super::blocks::ROWS,
    super::stream::BLOCK,
    super::listen::ROWS,
    super::ssl::ROWS,
    cache::zones::ROWS,
    cache::fleet::ROWS,
    stats::ledger::ROWS,
    stats::status_zone::ROWS,
    stats::site_info::ROWS,
    stats::site_quota::ROWS,
    crate::control::events_log::ROWS,
    log::format::ROWS,
    collector::ROWS,
    handler::access::ROWS,
    api::ROWS,
    dashboard::ROWS,
    handler::empty_gif::ROWS,
    handler::flv::ROWS,
    handler::limit_conn::ROWS,
    handler::limit_req::ROWS,
    health::ROWS,
    metrics::ROWS,
    handler::mp4::ROWS,
    #[cfg(feature = "script")]
    script::content::ROWS,
    #[cfg(feature = "script")]
    script::environment::ROWS,
    #[cfg(feature = "script")]
    script::periodic::ROWS,
    #[cfg(feature = "script")]
    script::shared::ROWS,
    #[cfg(feature = "script")]
    script::variable::ROWS,
    handler::stub_status::ROWS,
    upstream::declare::ROWS,
    upstream::pass::ROWS,
    upstream::tunnel::ROWS,
    map::ROWS,
    rewrite::ROWS,
    rewrite::computed::ROWS,
    handler::try_files::ROWS,
    filter::charset::ROWS,
    tls::acme::issuer::ROWS,
    tls::acme::certificate::ROWS,
];

/// Rooms of locations.
pub(super) const ROOMS: &[Room] = &[
    Room::of::<UpstreamSettings>(),
    Room::of::<LogSettings>(),
    Room::of_family::<ConditionPolicy>(),
    Room::of_family::<VariablePolicy>(),
    Room::of_family::<RewritePolicy>(),
    Room::of::<ContentSettings>(),
    Room::of::<HandlerSettings>(),
    Room::of_family::<SubrequestPolicy>(),
    Room::of::<FilterSettings>(),
];

/// Rooms of servers.
pub(super) const SERVER_ROOMS: &[Room] = &[Room::of_family::<SslPolicy>()];

/// The things that lines declare by name for all requests.
pub(super) const DECLARED: &[fn(&mut Builder, &mut Parts)] = &[
    keep_declared::<CharsetMaps>,
    keep_declared::<Groups>,
    keep_declared::<LimitZones>,
    keep_declared::<Orders>,
    keep_declared::<ZoneNames>,
    keep_declared::<Zones>,
    #[cfg(feature = "script")]
    script::variable::keep,
];

/// Keeps what lines have declared, if only that it is nothing, as a part of the configuration.
fn keep_declared<T: Part + Default>(builder: &mut Builder, parts: &mut Parts) {
    parts.put(builder.take::<T>());
}

/// Hooks of families, in the order in which they run.
pub(crate) const HOOKS: Hooks = Hooks {
    rooms: ROOMS,
    server_rooms: SERVER_ROOMS,
    families: &[
        handler::mp4::FAMILY,
        otel::policy::FAMILY,
        #[cfg(feature = "script")]
        script::FAMILY,
        #[cfg(feature = "script")]
        script::fetch::FAMILY,
    ],
    check: &[upstream::redirect::check, upstream::cookie::check],
    parts: &[
        keep::<ContentHandler>,
        keep::<LocationCaches>,
        keep::<Script>,
        keep::<HeadHook>,
        keep::<RulingHook>,
        #[cfg(feature = "script")]
        keep::<script::Scripts>,
        keep::<StatusZone>,
        keep::<Texts>,
        keep::<TryFiles>,
    ],
    close: &[
        upstream::pass_settings::close,
        upstream::memcached::close,
        upstream::tunnel::close,
        content::path::close,
        cache::purge::location::close,
        // The handler of the block is known from here on.
        handler::close,
        rewrite::close,
        handler::access::close,
        upstream::pass::close,
        upstream::encryption::close,
        handler::referer::close,
        log::access::close,
        log::upstream::close,
        handler::limit_zone::close,
        filter::ssi::close,
        handler::realip::close,
        #[cfg(feature = "script")]
        script::close,
        cache::zones::close,
        cache::peers::close,
        filter::sub::close,
        filter::charset::close,
        filter::close,
        otel::policy::close,
        steps::close,
    ],
};

/// Ends of the http block, with its settings.
pub(crate) const END_OF_HTTP: &[fn(&mut Builder, &LocationSettings)] = &[
    upstream::declare::settle,
    upstream::declare::check_zones,
    tls::acme::issuer::settle,
    collector::settle,
];

/// Checks of a configuration that was read to its end.
pub(crate) const END: &[fn(&mut Builder, &MainSettings)] = &[
    |builder, _| handler::limit_zone::check_uses(builder),
    |builder, _| cache::zones::check_uses(builder),
    #[cfg(feature = "script")]
    script::periodic::check_masks,
];

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    let of_stream = super::stream::ROWS.iter().copied().flatten();
    ROWS.iter().copied().flatten().chain(of_stream)
}

/// The row of a name, outside of `stream` where it has two.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == name)
}
