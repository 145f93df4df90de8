//! The tables of everything that has directives beside its settings: rows, and hooks of families.
//!
//! A file of directives is named here once for each kind of thing that it brings. The settings of
//! families stand in the tables of `settings`.

use millpond_proxy::scope::block::Row;
use millpond_proxy::scope::build::Builder;
use millpond_proxy::settings::level::Hooks;
use millpond_proxy::settings::location::LocationSettings;
use millpond_proxy::{
    cache, collector, filter, handler, log, map, otel, phase, rewrite, stats, tls, upstream,
};

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
    handler::stub_status::ROWS,
    upstream::declare::ROWS,
    upstream::pass::ROWS,
    map::ROWS,
    rewrite::ROWS,
    rewrite::computed::ROWS,
    handler::try_files::ROWS,
    filter::charset::ROWS,
    tls::acme::issuer::ROWS,
    tls::acme::certificate::ROWS,
];

/// Hooks of families, in the order in which they run.
pub(crate) const HOOKS: Hooks = Hooks {
    families: &[handler::mp4::FAMILY, otel::policy::FAMILY],
    check: &[upstream::redirect::check, upstream::cookie::check],
    close: &[
        upstream::pass_settings::close,
        upstream::memcached::close,
        handler::path::close,
        cache::purge::form::close,
        // The handler of the block is known from here on.
        handler::close,
        rewrite::close,
        handler::access::close,
        upstream::pass::close,
        tls::origins::close,
        handler::referer::close,
        log::access::close,
        log::upstream::close,
        handler::limit_zone::close,
        filter::ssi::close,
        handler::realip::close,
        handler::auth_request::close,
        cache::zones::close,
        cache::peers::close,
        filter::sub::close,
        filter::charset::close,
        otel::policy::close,
        phase::close,
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
pub(crate) const END: &[fn(&mut Builder)] =
    &[handler::limit_zone::check_uses, cache::zones::check_uses];

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    let of_stream = super::stream::ROWS.iter().copied().flatten();
    ROWS.iter().copied().flatten().chain(of_stream)
}

/// The row of a name, outside of `stream` where it has two.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == name)
}
