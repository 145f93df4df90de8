//! Sensors that ask the process: process, health, reload, hit ratio, errors of origins, peers,
//! zones.
//!
//! What is counted is a difference of two looks with `--over`, and the counters themselves, since
//! the start of the process, without it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use millpond_server::control::health::HealthReport;
use millpond_server::control::peers::{PeerReport, PeersReport};
use millpond_server::control::reload::LoadsReport;
use millpond_server::control::report::{ServerReport, ZoneReport, ZonesReport};
use millpond_system::clock;

use super::ask::ask;
use super::finding::{Finding, State, Value};
use super::options::Options;

/// Statuses whose body came from the cache; `-` is no look-up.
const FROM_CACHE: [&str; 4] = ["HIT", "STALE", "UPDATING", "REVALIDATED"];

/// The process answers. One that does not is critical, not unknown.
pub(super) fn process(options: &Options) -> Result<Finding> {
    let server: ServerReport = match ask(options, &[], &[200]) {
        Ok(server) => server,
        Err(error) => {
            let finding = Finding::new(format!("{error:#}"), Vec::new());
            return Ok(finding.in_state(State::Critical));
        }
    };
    let pid = server.pid.context("nobody serves")?;
    let requests = total(&server);
    let text = format!("process {pid}, version {}", server.version);
    let values = vec![Value::judged("requests", requests as f64, "c")];
    Ok(Finding::new(text, values))
}

pub(super) fn health(options: &Options) -> Result<Finding> {
    let found: HealthReport = match ask(options, &["health"], &[200, 503]) {
        Ok(found) => found,
        Err(error) => {
            let finding = Finding::new(format!("{error:#}"), Vec::new());
            return Ok(finding.in_state(State::Critical));
        }
    };
    let values = vec![Value::judged("reasons", found.reasons.len() as f64, "")];
    Ok(if found.ready {
        Finding::new("ready".to_string(), values)
    } else {
        Finding::new(found.reasons.join(", "), values).in_state(State::Critical)
    })
}

/// The last reload was taken.
pub(super) fn reload(options: &Options) -> Result<Finding> {
    let loads: LoadsReport = ask(options, &["reload"], &[200])?;
    let age = (clock::now_ms() / 1000 - loads.taken_at).max(0);
    let values = vec![
        Value::judged("refused", f64::from(u8::from(!loads.is_taken)), ""),
        Value::shown("age", age as f64, "s"),
        Value::shown("reloads", loads.taken.saturating_sub(1) as f64, "c"),
        Value::shown("refused_reloads", loads.refused as f64, "c"),
    ];
    let in_force = format!("the configuration in force was taken {age} s ago");
    Ok(if loads.is_taken {
        Finding::new(in_force, values)
    } else {
        let text = format!("the last reload was refused; {in_force}");
        Finding::new(text, values).in_state(State::Critical)
    })
}

/// Answers of a process, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Answers that a cache looked at.
    asked: u64,
    hits: u64,
    /// Exchanges with origins.
    exchanges: u64,
    /// Those that failed, or were answered with 500 or more.
    errors: u64,
}

impl Counts {
    fn of(server: &ServerReport) -> Counts {
        let mut counts = Counts::default();
        for (status, count) in server.answers.iter().flatten() {
            if status != "-" {
                counts.asked += count.requests;
            }
            if FROM_CACHE.contains(&status.as_str()) {
                counts.hits += count.requests;
            }
        }
        if let Some(ends) = &server.exchanges {
            counts.errors = ends.refused + ends.failed;
            counts.exchanges = ends.answered + counts.errors;
        }
        counts
    }

    /// The counts that came since an earlier look.
    fn since(self, before: Counts) -> Counts {
        Counts {
            asked: self.asked.saturating_sub(before.asked),
            hits: self.hits.saturating_sub(before.hits),
            exchanges: self.exchanges.saturating_sub(before.exchanges),
            errors: self.errors.saturating_sub(before.errors),
        }
    }
}

/// The counts of the time that is asked about.
fn counts(options: &Options) -> Result<Counts> {
    let look = || ask::<ServerReport>(options, &[], &[200]);
    let first = look()?;
    let Some(over) = options.over else {
        return Ok(Counts::of(&first));
    };
    let until = clock::instant() + over;
    while clock::instant() < until {
        std::thread::park_timeout(until.duration_since(clock::instant()));
    }
    let second = look()?;
    ensure!(first.pid == second.pid, "the process was changed meanwhile");
    Ok(Counts::of(&second).since(Counts::of(&first)))
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// The part of the answers that came from the cache.
pub(super) fn hit_ratio(options: &Options) -> Result<Finding> {
    Ok(hits_in(counts(options)?))
}

/// Nothing that was asked is no bad ratio.
fn hits_in(counts: Counts) -> Finding {
    let Counts { asked, hits, .. } = counts;
    let shown = Value::shown("requests", asked as f64, "c");
    match percent(hits, asked) {
        Some(ratio) => Finding::new(
            format!("{ratio:.1} % of {asked} answers came from the cache"),
            vec![Value::judged("hit_ratio", ratio, "%"), shown],
        ),
        None => Finding::new("nothing was asked of a cache".to_string(), vec![shown]),
    }
}

/// The part of the exchanges with origins that failed.
pub(super) fn origin_errors(options: &Options) -> Result<Finding> {
    Ok(errors_in(counts(options)?))
}

fn errors_in(counts: Counts) -> Finding {
    let Counts {
        exchanges, errors, ..
    } = counts;
    let part = percent(errors, exchanges).unwrap_or(0.0);
    Finding::new(
        format!("{errors} of {exchanges} exchanges with origins failed"),
        vec![
            Value::judged("errors", part, "%"),
            Value::shown("exchanges", exchanges as f64, "c"),
        ],
    )
}

/// The zones are filled so far.
pub(super) fn zone(options: &Options) -> Result<Finding> {
    let report: ZonesReport = ask(options, &["zones"], &[200])?;
    let is_meant = |zone: &&ZoneReport| options.zone.as_ref().is_none_or(|it| *it == zone.name);
    let zones: Vec<&ZoneReport> = report.zones.iter().filter(is_meant).collect();
    ensure!(!zones.is_empty(), "there is no such zone");
    let mut texts = Vec::new();
    let mut values = Vec::new();
    for zone in zones {
        let (name, bytes) = (&zone.name, zone.bytes);
        let filled = zone.max_size.and_then(|most| percent(bytes, most));
        texts.push(match filled {
            Some(filled) => format!("{name} {filled:.1} % of its size, {} records", zone.records),
            None => format!("{name} {bytes} bytes, {} records", zone.records),
        });
        values.extend(filled.map(|filled| Value::judged(name, filled, "%")));
        values.push(Value::shown(&format!("{name} bytes"), bytes as f64, "B"));
        let errors = zone.live.as_ref().map_or(0, |live| live.write_errors);
        values.push(Value::shown(
            &format!("{name} write errors"),
            errors as f64,
            "c",
        ));
    }
    Ok(Finding::new(texts.join(", "), values))
}

/// The peers of upstreams are up; those that the configuration takes out do not count.
pub(super) fn peer(options: &Options) -> Result<Finding> {
    let report: PeersReport = ask(options, &["peers"], &[200])?;
    let is_meant = |it: &&PeerReport| {
        options
            .upstream
            .as_ref()
            .is_none_or(|is| *is == it.upstream)
    };
    let peers: Vec<&PeerReport> = report.peers.iter().filter(is_meant).collect();
    let is_there = options.upstream.is_none() || !peers.is_empty();
    ensure!(is_there, "there is no such upstream");
    Ok(peers_in(&peers))
}

fn peers_in(peers: &[&PeerReport]) -> Finding {
    let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut texts = Vec::new();
    for peer in peers.iter().filter(|it| it.state != "down") {
        let (all, unavailable) = groups.entry(&peer.upstream).or_default();
        *all += 1;
        if peer.state == "unavail" {
            *unavailable += 1;
            texts.push(format!(
                "{} of {} is unavailable",
                peer.server, peer.upstream
            ));
        }
    }
    let all: usize = groups.values().map(|(all, _)| all).sum();
    let without = groups
        .iter()
        .filter(|(_, (all, unavailable))| all == unavailable);
    let lost: Vec<&str> = without.map(|(name, _)| *name).collect();
    let values = vec![
        Value::judged("unavailable", texts.len() as f64, ""),
        Value::shown("peers", all as f64, ""),
        Value::shown("lost_upstreams", lost.len() as f64, ""),
    ];
    if !lost.is_empty() {
        let text = format!("no peer is left of {}", lost.join(", "));
        return Finding::new(text, values).in_state(State::Critical);
    }
    if texts.is_empty() {
        return Finding::new(format!("{all} peers are available"), values);
    }
    Finding::new(texts.join(", "), values)
}

fn total(server: &ServerReport) -> u64 {
    let answers = server.answers.iter().flatten();
    answers.map(|(_, count)| count.requests).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_time_are_differences() {
        let before = Counts {
            asked: 10,
            hits: 5,
            exchanges: 5,
            errors: 0,
        };
        let after = Counts {
            asked: 20,
            hits: 14,
            exchanges: 9,
            errors: 2,
        };
        let counts = after.since(before);
        assert!(hits_in(counts).text.starts_with("90.0 % of 10"));
        assert_eq!(
            errors_in(counts).text,
            "2 of 4 exchanges with origins failed"
        );
        assert_eq!(hits_in(Counts::default()).state, State::Ok);
    }

    #[test]
    fn upstream_without_a_peer_is_critical_and_what_is_taken_out_does_not_count() {
        let peer = |upstream: &str, state: &str| PeerReport {
            upstream: upstream.to_string(),
            server: "10.0.0.1:80".to_string(),
            name: String::new(),
            state: state.to_string(),
            is_backup: false,
            requests: 0,
            fails: 0,
            unavailable: 0,
            downtime_ms: 0,
        };
        for (states, expected, unavailable) in [
            (&[("a", "up"), ("b", "down")][..], State::Ok, 0.0),
            (&[("a", "up"), ("a", "unavail")], State::Ok, 1.0),
            (&[("a", "up"), ("b", "unavail")], State::Critical, 1.0),
            (&[], State::Ok, 0.0),
        ] {
            let peers: Vec<PeerReport> = states.iter().map(|(up, is)| peer(up, is)).collect();
            let finding = peers_in(&peers.iter().collect::<Vec<_>>());
            assert_eq!(finding.state, expected, "{states:?}");
            assert_eq!(
                finding.values[0],
                Value::judged("unavailable", unavailable, "")
            );
        }
    }
}
