//! The metrics of nginx-prometheus-exporter for NGINX Plus, for dashboards and alerts made for it.
//!
//! Names, kinds and labels are those of its version 1; what there is nothing to say about here is
//! left out: TLS, health checks, resolvers, stream servers, workers, licences. A server
//! zone and a location zone is a `status_zone`, an upstream's server its address, and a cache a
//! `proxy_cache_path`.
//!
//! Sources: nginx-prometheus-exporter, collector/nginx_plus.go; NGINX Plus's manual of the API.

use millpond_exchange::stats::Count;
use millpond_exchange::stats::limit::{LimitCount, Outcome};
use millpond_exchange::stats::responses::ResponseCount;
use millpond_exchange::stats::status_zone::ZoneCount;

use super::facts::{Facts, PEER_STATES, PeerFacts, ZoneFacts};
use super::text::Samples;
use super::{Kind, Metric, metric};
use Kind::{Counter, Gauge};

const SERVER: &[&str] = &["server_zone"];
const SERVER_CODE: &[&str] = &["server_zone", "code"];
const LOCATION: &[&str] = &["location_zone"];
const LOCATION_CODE: &[&str] = &["location_zone", "code"];
const PEER: &[&str] = &["upstream", "server"];
const PEER_CODE: &[&str] = &["upstream", "server", "code"];
const ZONE: &[&str] = &["zone"];

/// The metrics.
#[rustfmt::skip]
pub(super) const METRICS: &[Metric] = &[
    metric("nginxplus_up", Gauge, &[], (
        "Always 1: the counters were read.", |_, out| out.add(&[], true))),
    metric("nginxplus_connections_accepted", Counter, &[], (
        "Accepted client connections.", |facts, out| out.add(&[], facts.connections.accepted))),
    metric("nginxplus_connections_dropped", Counter, &[], (
        "Dropped client connections.", |facts, out| out.add(&[], facts.connections.dropped()))),
    metric("nginxplus_connections_active", Gauge, &[], (
        "Client connections with a request.",
        |facts, out| out.add(&[], facts.connections.current()))),
    metric("nginxplus_connections_idle", Gauge, &[], (
        "Client connections without a request.",
        |facts, out| out.add(&[], facts.connections.waiting()))),
    metric("nginxplus_http_requests_total", Counter, &[], (
        "Requests.", |facts, out| out.add(&[], facts.connections.requests))),
    metric("nginxplus_http_requests_current", Gauge, &[], (
        "Requests being read or answered.",
        |facts, out| out.add(&[], facts.connections.current()))),

    metric("nginxplus_server_zone_processing", Gauge, SERVER, (
        "Requests being answered.",
        |facts, out| zones(&facts.servers, out, ZoneCount::processing))),
    metric("nginxplus_server_zone_requests", Counter, SERVER, (
        "Requests.", |facts, out| zones(&facts.servers, out, |it| it.requests))),
    metric("nginxplus_server_zone_responses", Counter, SERVER_CODE, (
        "Answers by class.", |facts, out| zone_classes(&facts.servers, out))),
    metric("nginxplus_server_zone_responses_codes", Counter, SERVER_CODE, (
        "Answers by code.", |facts, out| zone_codes(&facts.servers, out))),
    metric("nginxplus_server_zone_discarded", Counter, SERVER, (
        "Requests that ended without an answer.",
        |facts, out| zones(&facts.servers, out, |it| it.discarded))),
    metric("nginxplus_server_zone_received", Counter, SERVER, (
        "Bytes from clients.", |facts, out| zones(&facts.servers, out, |it| it.received))),
    metric("nginxplus_server_zone_sent", Counter, SERVER, (
        "Bytes to clients.", |facts, out| zones(&facts.servers, out, |it| it.sent))),

    metric("nginxplus_location_zone_requests", Counter, LOCATION, (
        "Requests.", |facts, out| zones(&facts.locations, out, |it| it.requests))),
    metric("nginxplus_location_zone_responses", Counter, LOCATION_CODE, (
        "Answers by class.", |facts, out| zone_classes(&facts.locations, out))),
    metric("nginxplus_location_zone_responses_codes", Counter, LOCATION_CODE, (
        "Answers by code.", |facts, out| zone_codes(&facts.locations, out))),
    metric("nginxplus_location_zone_discarded", Counter, LOCATION, (
        "Requests that ended without an answer.",
        |facts, out| zones(&facts.locations, out, |it| it.discarded))),
    metric("nginxplus_location_zone_received", Counter, LOCATION, (
        "Bytes from clients.", |facts, out| zones(&facts.locations, out, |it| it.received))),
    metric("nginxplus_location_zone_sent", Counter, LOCATION, (
        "Bytes to clients.", |facts, out| zones(&facts.locations, out, |it| it.sent))),

    metric("nginxplus_upstream_server_state", Gauge, PEER, (
        "1: up, 2: draining, 3: down, 4: unavailable after failures.",
        |facts, out| peers(facts, out, state))),
    metric("nginxplus_upstream_server_active", Gauge, PEER, (
        "Exchanges under way.", |facts, out| peers(facts, out, |it| it.active))),
    metric("nginxplus_upstream_server_limit", Gauge, PEER, (
        "Most exchanges at once (`max_conns`); 0: any number.",
        |facts, out| peers(facts, out, |it| it.max_conns))),
    metric("nginxplus_upstream_server_requests", Counter, PEER, (
        "Exchanges.", |facts, out| peers(facts, out, |it| it.count.requests))),
    metric("nginxplus_upstream_server_responses", Counter, PEER_CODE, (
        "Answers by class.", |facts, out| {
            for peer in &facts.peers {
                classes(out, &[&peer.group, &peer.name], &peer.count.responses);
            }
        })),
    metric("nginxplus_upstream_server_responses_codes", Counter, PEER_CODE, (
        "Answers by code.", |facts, out| {
            for peer in &facts.peers {
                codes(out, &[&peer.group, &peer.name], &peer.count.responses);
            }
        })),
    metric("nginxplus_upstream_server_sent", Counter, PEER, (
        "Bytes that it was sent.", |facts, out| peers(facts, out, |it| it.count.sent))),
    metric("nginxplus_upstream_server_received", Counter, PEER, (
        "Bytes that came from it.", |facts, out| peers(facts, out, |it| it.count.received))),
    metric("nginxplus_upstream_server_fails", Counter, PEER, (
        "Tries that failed.", |facts, out| peers(facts, out, |it| it.count.fails))),
    metric("nginxplus_upstream_server_unavail", Counter, PEER, (
        "How often it was set aside.", |facts, out| peers(facts, out, |it| it.count.unavailable))),
    metric("nginxplus_upstream_server_header_time", Gauge, PEER, (
        "Average time to the heads of its answers, milliseconds.",
        |facts, out| peers(facts, out, |it| millis(it.count.header_time.average)))),
    metric("nginxplus_upstream_server_response_time", Gauge, PEER, (
        "Average time to the ends of its answers, milliseconds.",
        |facts, out| peers(facts, out, |it| millis(it.count.response_time.average)))),

    metric("nginxplus_limit_request_passed", Counter, ZONE, (
        "Requests that were let through at once.",
        |facts, out| limits(&facts.limit_reqs, out, Outcome::Passed))),
    metric("nginxplus_limit_request_delayed", Counter, ZONE, (
        "Requests that were let through after a wait.",
        |facts, out| limits(&facts.limit_reqs, out, Outcome::Delayed))),
    metric("nginxplus_limit_request_rejected", Counter, ZONE, (
        "Requests that were refused.",
        |facts, out| limits(&facts.limit_reqs, out, Outcome::Rejected))),
    metric("nginxplus_limit_request_delayed_dry_run", Counter, ZONE, (
        "Requests that would have waited but for a dry run.",
        |facts, out| limits(&facts.limit_reqs, out, Outcome::DelayedDryRun))),
    metric("nginxplus_limit_request_rejected_dry_run", Counter, ZONE, (
        "Requests that would have been refused but for a dry run.",
        |facts, out| limits(&facts.limit_reqs, out, Outcome::RejectedDryRun))),
    metric("nginxplus_limit_connection_passed", Counter, ZONE, (
        "Requests that were let through.",
        |facts, out| limits(&facts.limit_conns, out, Outcome::Passed))),
    metric("nginxplus_limit_connection_rejected", Counter, ZONE, (
        "Requests that were refused.",
        |facts, out| limits(&facts.limit_conns, out, Outcome::Rejected))),
    metric("nginxplus_limit_connection_rejected_dry_run", Counter, ZONE, (
        "Requests that would have been refused but for a dry run.",
        |facts, out| limits(&facts.limit_conns, out, Outcome::RejectedDryRun))),

    metric("nginxplus_cache_size", Gauge, ZONE, (
        "Bytes of the cache.", |facts, out| caches(facts, out, |it| it.usage.bytes))),
    metric("nginxplus_cache_max_size", Gauge, ZONE, (
        "The most that it may have; 0: no limit.",
        |facts, out| caches(facts, out, |it| it.declared.max_size.unwrap_or(0)))),
    metric("nginxplus_cache_cold", Gauge, ZONE, (
        "Always 0: the cache serves while it is read in.", |facts, out| caches(facts, out, |_| 0))),
    metric("nginxplus_cache_hit_responses", Counter, ZONE, (
        "Answers HIT.", |facts, out| caches(facts, out, |it| answers(it, "HIT").requests))),
    metric("nginxplus_cache_hit_bytes", Counter, ZONE, (
        "Bytes of bodies of answers HIT.",
        |facts, out| caches(facts, out, |it| answers(it, "HIT").bytes))),
    metric("nginxplus_cache_stale_responses", Counter, ZONE, (
        "Answers STALE.", |facts, out| caches(facts, out, |it| answers(it, "STALE").requests))),
    metric("nginxplus_cache_stale_bytes", Counter, ZONE, (
        "Bytes of bodies of answers STALE.",
        |facts, out| caches(facts, out, |it| answers(it, "STALE").bytes))),
    metric("nginxplus_cache_updating_responses", Counter, ZONE, (
        "Answers UPDATING.",
        |facts, out| caches(facts, out, |it| answers(it, "UPDATING").requests))),
    metric("nginxplus_cache_updating_bytes", Counter, ZONE, (
        "Bytes of bodies of answers UPDATING.",
        |facts, out| caches(facts, out, |it| answers(it, "UPDATING").bytes))),
    metric("nginxplus_cache_revalidated_responses", Counter, ZONE, (
        "Answers REVALIDATED.",
        |facts, out| caches(facts, out, |it| answers(it, "REVALIDATED").requests))),
    metric("nginxplus_cache_revalidated_bytes", Counter, ZONE, (
        "Bytes of bodies of answers REVALIDATED.",
        |facts, out| caches(facts, out, |it| answers(it, "REVALIDATED").bytes))),
    metric("nginxplus_cache_miss_responses", Counter, ZONE, (
        "Answers MISS.", |facts, out| caches(facts, out, |it| answers(it, "MISS").requests))),
    metric("nginxplus_cache_miss_bytes", Counter, ZONE, (
        "Bytes of bodies of answers MISS.",
        |facts, out| caches(facts, out, |it| answers(it, "MISS").bytes))),
    metric("nginxplus_cache_expired_responses", Counter, ZONE, (
        "Answers EXPIRED.", |facts, out| caches(facts, out, |it| answers(it, "EXPIRED").requests))),
    metric("nginxplus_cache_expired_bytes", Counter, ZONE, (
        "Bytes of bodies of answers EXPIRED.",
        |facts, out| caches(facts, out, |it| answers(it, "EXPIRED").bytes))),
    metric("nginxplus_cache_expired_responses_written", Counter, ZONE, (
        "Answers of origins stored for answers EXPIRED.",
        |facts, out| caches(facts, out, |it| written(it, "EXPIRED").requests))),
    metric("nginxplus_cache_expired_bytes_written", Counter, ZONE, (
        "Bytes of bodies stored for answers EXPIRED.",
        |facts, out| caches(facts, out, |it| written(it, "EXPIRED").bytes))),
    metric("nginxplus_cache_bypass_responses", Counter, ZONE, (
        "Answers BYPASS.", |facts, out| caches(facts, out, |it| answers(it, "BYPASS").requests))),
    metric("nginxplus_cache_bypass_bytes", Counter, ZONE, (
        "Bytes of bodies of answers BYPASS.",
        |facts, out| caches(facts, out, |it| answers(it, "BYPASS").bytes))),
    metric("nginxplus_cache_bypass_responses_written", Counter, ZONE, (
        "Answers of origins stored for answers BYPASS.",
        |facts, out| caches(facts, out, |it| written(it, "BYPASS").requests))),
    metric("nginxplus_cache_bypass_bytes_written", Counter, ZONE, (
        "Bytes of bodies stored for answers BYPASS.",
        |facts, out| caches(facts, out, |it| written(it, "BYPASS").bytes))),
];

fn zones(zones: &[(String, ZoneCount)], out: &mut Samples<'_>, of: fn(&ZoneCount) -> u64) {
    for (name, count) in zones {
        out.add(&[name], of(count));
    }
}

fn limits(limits: &[(String, LimitCount)], out: &mut Samples<'_>, outcome: Outcome) {
    for (name, count) in limits {
        out.add(&[name], count.of(outcome));
    }
}

fn zone_classes(zones: &[(String, ZoneCount)], out: &mut Samples<'_>) {
    for (name, count) in zones {
        classes(out, &[name], &count.responses);
    }
}

fn zone_codes(zones: &[(String, ZoneCount)], out: &mut Samples<'_>) {
    for (name, count) in zones {
        codes(out, &[name], &count.responses);
    }
}

/// Answers by class, with the names of what they are of.
pub(super) fn classes(out: &mut Samples<'_>, names: &[&str], responses: &ResponseCount) {
    let labels = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    for (class, count) in labels.into_iter().zip(responses.classes) {
        out.add(&[names, &[class]].concat(), count);
    }
}

fn codes(out: &mut Samples<'_>, names: &[&str], responses: &ResponseCount) {
    for (code, count) in &responses.codes {
        out.add(&[names, &[code.to_string().as_str()]].concat(), *count);
    }
}

fn peers(facts: &Facts, out: &mut Samples<'_>, of: fn(&PeerFacts) -> u64) {
    for peer in &facts.peers {
        out.add(&[&peer.group, &peer.name], of(peer));
    }
}

fn state(peer: &PeerFacts) -> u64 {
    let place = PEER_STATES.iter().position(|state| *state == peer.state);
    place.map_or(0, |place| place as u64 + 1)
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn caches(facts: &Facts, out: &mut Samples<'_>, of: fn(&ZoneFacts) -> u64) {
    for zone in &facts.zones {
        out.add(&[zone.name()], of(zone));
    }
}

/// Answers of a zone with a status.
pub(super) fn answers(zone: &ZoneFacts, status: &str) -> Count {
    let mut statuses = zone.statuses.iter();
    let found = statuses.find(|(name, _)| *name == status);
    found.map(|(_, count)| count.answers).unwrap_or_default()
}

/// Answers that were stored in a zone under a status.
pub(super) fn written(zone: &ZoneFacts, status: &str) -> Count {
    let mut statuses = zone.statuses.iter();
    let found = statuses.find(|(name, _)| *name == status);
    found.map(|(_, count)| count.written).unwrap_or_default()
}
