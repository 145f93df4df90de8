//! The metrics of nginx-module-vts, for dashboards that were made for it.
//!
//! Names, kinds and labels are those of its Prometheus format. A host is a `status_zone` of
//! servers, and `*` all requests; for cache statuses it is a site. What there is nothing to say
//! about is left out: filters, shared memory, times of single hosts, status `scarce`.
//!
//! Source: nginx-module-vts, src/ngx_http_vhost_traffic_status_display_prometheus.h.

use millpond_exchange::stats::peer::TimeCount;
use millpond_exchange::stats::responses::ResponseCount;
use millpond_exchange::stats::times::Histogram;

use super::facts::{Facts, ZoneFacts};
use super::plus::{answers, classes, written};
use super::text::{Samples, seconds};
use super::{Kind, Metric, metric};
use Kind::{Counter, Gauge};

/// The host that stands for all.
const ALL: &str = "*";

/// Statuses as the module writes them.
const STATUSES: [&str; 7] = [
    "miss",
    "bypass",
    "expired",
    "stale",
    "updating",
    "revalidated",
    "hit",
];

/// The metrics.
#[rustfmt::skip]
pub(super) const METRICS: &[Metric] = &[
    metric("nginx_vts_info", Gauge, &["hostname", "module_version", "version"], (
        "The version that runs; it is Millpond's.",
        |_, out| out.add(&[&hostname(), "millpond", env!("CARGO_PKG_VERSION")], true))),
    metric("nginx_vts_start_time_seconds", Gauge, &[], (
        "When the process started, seconds since 1970.",
        |facts, out| if let Some(started) = facts.process.started {
            out.add(&[], started);
        })),
    metric("nginx_vts_main_connections", Gauge, &["status"], (
        "Connections.", main_connections)),
    metric("nginx_vts_server_bytes_total", Counter, &["host", "direction"], (
        "Bytes from and to clients.",
        |facts, out| for (host, count) in &facts.servers {
            out.add(&[host, "in"], count.received);
            out.add(&[host, "out"], count.sent);
        })),
    metric("nginx_vts_server_requests_total", Counter, &["host", "code"], (
        "Answers by class.",
        |facts, out| {
            for (host, count) in facts.servers.iter().filter(|(host, _)| host != ALL) {
                classes(out, &[host], &count.responses);
            }
            classes(out, &[ALL], &facts.responses);
        })),
    metric("nginx_vts_status_code_requests_total", Counter, &["host", "code"], (
        "Answers by code.",
        |facts, out| {
            for (host, count) in facts.servers.iter().filter(|(host, _)| host != ALL) {
                codes(out, host, &count.responses);
            }
            codes(out, ALL, &facts.responses);
        })),
    metric("nginx_vts_server_request_seconds_total", Counter, &["host"], (
        "Time that answers took.",
        |facts, out| out.add(&[ALL], seconds(all_answers(facts).sum_us)))),
    metric("nginx_vts_server_request_seconds", Gauge, &["host"], (
        "Time that answers took on average.",
        |facts, out| {
            let all = all_answers(facts);
            out.add(&[ALL], seconds(all.sum_us.checked_div(all.count()).unwrap_or(0)));
        })),
    metric("nginx_vts_server_request_duration_seconds", Kind::Histogram, &["host"], (
        "Time that answers took.",
        |facts, out| out.add_histogram(&[ALL], &all_answers(facts)))),
    metric("nginx_vts_server_cache_total", Counter, &["host", "status"], (
        "Answers by cache status.",
        |facts, out| for (site, count) in &facts.sites {
            for (status, count) in count.by_status() {
                let status = status.to_ascii_lowercase();
                if STATUSES.contains(&status.as_str()) {
                    out.add(&[site, &status], count.requests);
                }
            }
        })),
    metric("nginx_vts_upstream_bytes_total", Counter, &["upstream", "backend", "direction"], (
        "Bytes to and from servers of groups.",
        |facts, out| for peer in &facts.peers {
            out.add(&[&peer.group, &peer.name, "in"], peer.count.sent);
            out.add(&[&peer.group, &peer.name, "out"], peer.count.received);
        })),
    metric("nginx_vts_upstream_requests_total", Counter, &["upstream", "backend", "code"], (
        "Their answers by class.",
        |facts, out| for peer in &facts.peers {
            classes(out, &[&peer.group, &peer.name], &peer.count.responses);
        })),
    metric("nginx_vts_upstream_response_seconds_total", Counter, &["upstream", "backend"], (
        "Time that their answers took.",
        |facts, out| for peer in &facts.peers {
            let TimeCount { sum, .. } = peer.count.response_time;
            out.add(&[&peer.group, &peer.name], sum.as_secs_f64());
        })),
    metric("nginx_vts_upstream_response_seconds", Gauge, &["upstream", "backend"], (
        "Time that their answers took on average.",
        |facts, out| for peer in &facts.peers {
            let TimeCount { average, .. } = peer.count.response_time;
            out.add(&[&peer.group, &peer.name], average.as_secs_f64());
        })),
    metric("nginx_vts_cache_usage_bytes", Gauge, &["cache_zone", "cache_size"], (
        "Bytes of a cache, and the most that it may have.",
        |facts, out| for zone in &facts.zones {
            out.add(&[zone.name(), "max"], zone.declared.max_size.unwrap_or(0));
            out.add(&[zone.name(), "used"], zone.usage.bytes);
        })),
    metric("nginx_vts_cache_bytes_total", Counter, &["cache_zone", "direction"], (
        "Bytes that were stored in a cache, and those of answers that looked into it.",
        |facts, out| for zone in &facts.zones {
            let sum = |of: fn(&ZoneFacts, &str) -> u64| -> u64 {
                let statuses = STATUSES.iter();
                statuses.map(|status| of(zone, &status.to_ascii_uppercase())).sum()
            };
            out.add(&[zone.name(), "in"], sum(|zone, status| written(zone, status).bytes));
            out.add(&[zone.name(), "out"], sum(|zone, status| answers(zone, status).bytes));
        })),
    metric("nginx_vts_cache_requests_total", Counter, &["cache_zone", "status"], (
        "Answers by cache status.",
        |facts, out| for zone in &facts.zones {
            for status in STATUSES {
                let count = answers(zone, &status.to_ascii_uppercase());
                out.add(&[zone.name(), status], count.requests);
            }
        })),
];

fn main_connections(facts: &Facts, out: &mut Samples<'_>) {
    let count = &facts.connections;
    for (status, number) in [
        ("accepted", count.accepted),
        ("active", count.active),
        ("handled", count.handled),
        ("reading", count.reading),
        ("requests", count.requests),
        ("waiting", count.waiting()),
        ("writing", count.writing),
    ] {
        out.add(&[status], number);
    }
}

fn codes(out: &mut Samples<'_>, host: &str, responses: &ResponseCount) {
    for (code, count) in &responses.codes {
        out.add(&[host, &code.to_string()], *count);
    }
}

fn all_answers(facts: &Facts) -> Histogram {
    let mut all = Histogram::default();
    for times in &facts.answer_times {
        all.add(&times.answer);
    }
    all
}

fn hostname() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
