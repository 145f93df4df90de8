//! The objects of NGINX Plus's API, as they are written.
//!
//! Members have the names, types and meanings of version 9 of that API. What this server has not
//! (health checks, TLS, queues of groups) is zero or left out, as `docs/api.md`
//! says.

use std::collections::BTreeMap;

use millpond_exchange::stats::cache_zone::ZoneStatusCount;
use millpond_exchange::stats::limit::{LimitCount, Outcome};
use millpond_exchange::stats::responses::ResponseCount;
use millpond_exchange::stats::status_zone::ZoneCount;
use serde::Serialize;

/// `/nginx`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Nginx {
    pub(super) version: &'static str,
    pub(super) build: &'static str,
    pub(super) address: String,
    pub(super) generation: u64,
    pub(super) load_timestamp: String,
    pub(super) timestamp: String,
    pub(super) pid: u32,
    pub(super) ppid: u32,
}

/// `/processes`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Processes {
    pub(super) respawned: u64,
}

/// `/connections`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Connections {
    pub(super) accepted: u64,
    pub(super) dropped: u64,
    pub(super) active: u64,
    pub(super) idle: u64,
    pub(super) displaced: u64,
}

/// `/http/requests`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Requests {
    pub(super) total: u64,
    pub(super) current: u64,
}

/// `/ssl`.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Ssl {
    pub(super) handshakes: u64,
    pub(super) handshakes_failed: u64,
    pub(super) session_reuses: u64,
}

/// One of `/workers`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) pid: u32,
    pub(super) connections: Connections,
    pub(super) http: WorkerHttp,
}

/// Answer of a worker.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct WorkerHttp {
    pub(super) requests: Requests,
}

/// Answers by status.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Responses {
    #[serde(rename = "1xx")]
    informational: u64,
    #[serde(rename = "2xx")]
    successful: u64,
    #[serde(rename = "3xx")]
    redirection: u64,
    #[serde(rename = "4xx")]
    client_error: u64,
    #[serde(rename = "5xx")]
    server_error: u64,
    codes: BTreeMap<String, u64>,
    total: u64,
}

impl From<&ResponseCount> for Responses {
    fn from(count: &ResponseCount) -> Self {
        let [
            informational,
            successful,
            redirection,
            client_error,
            server_error,
        ] = count.classes;
        let codes = count.codes.iter();
        Responses {
            informational,
            successful,
            redirection,
            client_error,
            server_error,
            codes: codes.map(|(code, n)| (code.to_string(), *n)).collect(),
            total: count.total(),
        }
    }
}

/// One of `/http/server_zones` or, without `processing`, of `/http/location_zones`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Zone {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processing: Option<u64>,
    pub(super) requests: u64,
    pub(super) responses: Responses,
    pub(super) discarded: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Zone {
    pub(super) fn server(count: &ZoneCount, processing: u64) -> Self {
        Zone {
            processing: Some(processing),
            ..Zone::location(count)
        }
    }

    pub(super) fn location(count: &ZoneCount) -> Self {
        Zone {
            processing: None,
            requests: count.requests,
            responses: Responses::from(&count.responses),
            discarded: count.discarded,
            received: count.received,
            sent: count.sent,
        }
    }
}

/// One of `/http/limit_conns`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct LimitConn {
    passed: u64,
    rejected: u64,
    rejected_dry_run: u64,
}

impl From<LimitCount> for LimitConn {
    fn from(count: LimitCount) -> Self {
        LimitConn {
            passed: count.of(Outcome::Passed),
            rejected: count.of(Outcome::Rejected),
            rejected_dry_run: count.of(Outcome::RejectedDryRun),
        }
    }
}

/// One of `/http/limit_reqs`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct LimitReq {
    passed: u64,
    delayed: u64,
    rejected: u64,
    delayed_dry_run: u64,
    rejected_dry_run: u64,
}

impl From<LimitCount> for LimitReq {
    fn from(count: LimitCount) -> Self {
        LimitReq {
            passed: count.of(Outcome::Passed),
            delayed: count.of(Outcome::Delayed),
            rejected: count.of(Outcome::Rejected),
            delayed_dry_run: count.of(Outcome::DelayedDryRun),
            rejected_dry_run: count.of(Outcome::RejectedDryRun),
        }
    }
}

/// One of `/http/caches`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Cache {
    pub(super) size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_size: Option<u64>,
    pub(super) cold: bool,
    pub(super) hit: Served,
    pub(super) stale: Served,
    pub(super) updating: Served,
    pub(super) revalidated: Served,
    pub(super) miss: Fetched,
    pub(super) expired: Fetched,
    pub(super) bypass: Fetched,
}

/// Answers from the cache.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Served {
    responses: u64,
    bytes: u64,
}

/// Answers from the origin.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Fetched {
    responses: u64,
    bytes: u64,
    responses_written: u64,
    bytes_written: u64,
}

impl From<ZoneStatusCount> for Served {
    fn from(count: ZoneStatusCount) -> Self {
        Served {
            responses: count.answers.requests,
            bytes: count.answers.bytes,
        }
    }
}

impl From<ZoneStatusCount> for Fetched {
    fn from(count: ZoneStatusCount) -> Self {
        Fetched {
            responses: count.answers.requests,
            bytes: count.answers.bytes,
            responses_written: count.written.requests,
            bytes_written: count.written.bytes,
        }
    }
}

/// One of `/http/upstreams`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[cfg_attr(test, serde(bound(deserialize = "'de: 'static")))]
pub(super) struct Upstream {
    pub(super) peers: Vec<Peer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keepalive: Option<usize>,
    pub(super) zombies: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<UpstreamQueue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zone: Option<String>,
}

/// Requests that wait for a server of a group.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct UpstreamQueue {
    pub(super) size: usize,
    pub(super) max_size: usize,
    pub(super) overflows: u64,
}

/// A server of a group and what was counted of it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Peer {
    pub(super) id: usize,
    pub(super) server: String,
    pub(super) name: String,
    pub(super) backup: bool,
    pub(super) weight: u32,
    pub(super) state: &'static str,
    pub(super) active: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_conns: Option<u32>,
    pub(super) requests: u64,
    pub(super) responses: Responses,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) fails: u64,
    pub(super) unavail: u64,
    pub(super) health_checks: HealthChecks,
    pub(super) downtime: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) downstart: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) header_time: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_time: Option<u64>,
}

/// There are none.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct HealthChecks {
    checks: u64,
    fails: u64,
    unhealthy: u64,
}

/// One of `/http/upstreams/NAME/servers`: how it is configured.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Server {
    pub(super) id: usize,
    pub(super) server: String,
    pub(super) weight: u32,
    pub(super) max_conns: u32,
    pub(super) max_fails: u32,
    pub(super) fail_timeout: String,
    pub(super) slow_start: &'static str,
    pub(super) route: String,
    pub(super) backup: bool,
    pub(super) down: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) drain: bool,
}

/// The reason why there is no such answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Failure<'a> {
    pub(super) error: Why<'a>,
    pub(super) request_id: &'a str,
    pub(super) href: &'static str,
}

/// Reason of the failure, for programs and people.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct Why<'a> {
    pub(super) status: u16,
    pub(super) text: &'a str,
    pub(super) code: &'a str,
}

/// Each schema of the document with members, and those of its type.
#[cfg(test)]
pub(in crate::control) fn described() -> Vec<(&'static str, Vec<&'static str>)> {
    use crate::control::document::members;
    let without =
        |all: Vec<&'static str>, one: &str| all.into_iter().filter(|it| *it != one).collect();
    vec![
        ("Nginx", members::<Nginx>()),
        ("Processes", members::<Processes>()),
        ("Connections", members::<Connections>()),
        ("Requests", members::<Requests>()),
        ("Ssl", members::<Ssl>()),
        ("Worker", members::<Worker>()),
        ("WorkerHttp", members::<WorkerHttp>()),
        ("Responses", members::<Responses>()),
        ("ServerZone", members::<Zone>()),
        ("LocationZone", without(members::<Zone>(), "processing")),
        ("LimitConn", members::<LimitConn>()),
        ("LimitReq", members::<LimitReq>()),
        ("Cache", members::<Cache>()),
        ("CacheServed", members::<Served>()),
        ("CacheFetched", members::<Fetched>()),
        ("Upstream", members::<Upstream>()),
        ("UpstreamQueue", members::<UpstreamQueue>()),
        ("Peer", members::<Peer>()),
        ("HealthChecks", members::<HealthChecks>()),
        ("UpstreamServer", members::<Server>()),
        ("Failure", members::<Failure<'static>>()),
        ("FailureCause", members::<Why<'static>>()),
    ]
}
