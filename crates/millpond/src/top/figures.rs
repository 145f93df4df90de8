//! Figures that are shown: the counters of a look at the process, and how fast they grew since the
//! one before.
//!
//! 1. Counters of two processes are never compared: after a restart there are no rates until the
//!    next look.
//! 2. A counter that went down grew by nothing.

use std::collections::BTreeMap;

use millpond_system::clock::Instant;
use serde::Serialize;

use super::report::{Count, Disk, Fill, Held, Server, Site, Zone};

/// Statuses whose body came from the cache, without waiting for the origin to send one.
const FROM_CACHE: [&str; 4] = ["HIT", "STALE", "UPDATING", "REVALIDATED"];
/// The status of answers that no cache looked at.
const NO_CACHE: &str = "-";

/// Statements of a process at one moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) time_ms: i64,
    pub(super) server: Server,
    /// Sites; none if nobody counts them.
    pub(super) sites: Option<Vec<Site>>,
    /// None if the process does not tell.
    pub(super) fills: Option<Vec<Fill>>,
}

/// All that is shown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    /// Time when the process was asked, milliseconds since 1970.
    pub(super) time_ms: i64,
    pub(super) version: String,
    pub(super) pid: Option<u32>,
    /// Since the look before, which rates are made from; none for the first.
    pub(super) seconds: Option<f64>,
    pub(super) answers: Flow,
    /// Share of hits among the answers since the look before, or since the process began.
    pub(super) hit_ratio: Option<f64>,
    pub(super) hit_ratio_in_all: Option<f64>,
    pub(super) statuses: Vec<StatusFigures>,
    /// Answers by class of status.
    pub(super) classes: Vec<ClassFigures>,
    /// Rates at which exchanges with origins end; none if the process does not tell.
    pub(super) exchanges: Option<ExchangeFigures>,
    pub(super) origin: Flow,
    pub(super) sites: Option<Vec<SiteFigures>>,
    pub(super) zones: Vec<ZoneFigures>,
    pub(super) fills: Option<Vec<Fill>>,
}

/// Requests and bytes: how many, and how many in a second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Flow {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) requests_per_s: f64,
    pub(super) bytes_per_s: f64,
}

/// Answers with one cache status.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StatusFigures {
    pub(super) status: String,
    #[serde(flatten)]
    pub(super) flow: Flow,
}

/// Answers with one class of status.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ClassFigures {
    pub(super) class: String,
    pub(super) answers: u64,
    pub(super) per_s: f64,
}

/// Rates at which exchanges with origins end, by their outcome.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ExchangeFigures {
    /// Answered below 500.
    pub(super) answered_per_s: f64,
    /// Answered from 500 on.
    pub(super) refused_per_s: f64,
    /// Rate of exchanges without an answer.
    pub(super) failed_per_s: f64,
}

/// A site.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SiteFigures {
    pub(super) site: String,
    pub(super) answers: Flow,
    /// Share of hits among the answers since the look before, or of all.
    pub(super) hit_ratio: Option<f64>,
    pub(super) origin: Flow,
    pub(super) held: Option<Held>,
}

/// A zone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ZoneFigures {
    pub(super) name: String,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Bytes of the files that entries take.
    pub(super) live_bytes: u64,
    pub(super) max_size: Option<u64>,
    pub(super) memory_bytes: u64,
    pub(super) memory_limit: u64,
    pub(super) queued_bytes: u64,
    pub(super) written_per_s: f64,
    /// Entries removed for space, and because nobody used them.
    pub(super) removed_per_s: f64,
    /// Write errors, and entries that were corrupt, lost or not stored.
    pub(super) troubles: u64,
    pub(super) disks: Vec<Disk>,
}

/// Pace at which counters grow between two looks.
struct Pace<'a> {
    before: Option<&'a Look>,
    seconds: Option<f64>,
}

impl Pace<'_> {
    fn per_s(&self, now: u64, before: u64) -> f64 {
        match self.seconds {
            // INVARIANT 2.
            Some(seconds) => now.saturating_sub(before) as f64 / seconds,
            None => 0.0,
        }
    }

    fn flow(&self, now: Count, before: Option<Count>) -> Flow {
        // What is new since the look before was nothing then.
        let before = before.unwrap_or_default();
        Flow {
            requests: now.requests,
            bytes: now.bytes,
            requests_per_s: self.per_s(now.requests, before.requests),
            bytes_per_s: self.per_s(now.bytes, before.bytes),
        }
    }
}

impl Figures {
    /// Figures of a look, with the one before it.
    pub(super) fn of(now: &Look, before: Option<&Look>) -> Figures {
        // INVARIANT 1.
        let before = before.filter(|before| before.server.pid == now.server.pid);
        let seconds = before.map(|before| now.at.duration_since(before.at).as_secs_f64());
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        let before = before.filter(|_| seconds.is_some());
        let pace = Pace { before, seconds };
        let none = BTreeMap::new();
        let answers = now.server.answers.as_ref().unwrap_or(&none);
        let answers_before = before.and_then(|before| before.server.answers.as_ref());
        let totals_before = answers_before.map(total);
        Figures {
            time_ms: now.time_ms,
            version: now.server.version.clone(),
            pid: now.server.pid,
            seconds,
            answers: pace.flow(total(answers), totals_before),
            hit_ratio: hit_ratio(answers, answers_before),
            hit_ratio_in_all: hit_ratio(answers, None),
            statuses: statuses(&pace, answers, answers_before),
            classes: classes(&pace, now),
            exchanges: ends(&pace, now),
            origin: origin(&pace, now),
            sites: now.sites.as_ref().map(|sites| of_sites(&pace, sites)),
            zones: of_zones(&pace, &now.server.zones),
            fills: now.fills.clone(),
        }
    }
}

fn total(answers: &BTreeMap<String, Count>) -> Count {
    answers.values().fold(Count::default(), |sum, count| Count {
        requests: sum.requests + count.requests,
        bytes: sum.bytes + count.bytes,
    })
}

/// The part that came from the cache, of what a cache looked at.
fn hit_ratio(
    now: &BTreeMap<String, Count>,
    before: Option<&BTreeMap<String, Count>>,
) -> Option<f64> {
    let (mut hits, mut all) = (0, 0);
    for (status, count) in now.iter().filter(|(status, _)| *status != NO_CACHE) {
        let before = before.and_then(|before| before.get(status));
        let more = count
            .requests
            .saturating_sub(before.map_or(0, |it| it.requests));
        all += more;
        if FROM_CACHE.contains(&status.as_str()) {
            hits += more;
        }
    }
    match (all, before) {
        (0, Some(_)) => hit_ratio(now, None),
        (0, None) => None,
        _ => Some(hits as f64 / all as f64),
    }
}

fn statuses(
    pace: &Pace<'_>,
    now: &BTreeMap<String, Count>,
    before: Option<&BTreeMap<String, Count>>,
) -> Vec<StatusFigures> {
    let mut found: Vec<StatusFigures> = now
        .iter()
        .map(|(status, count)| StatusFigures {
            status: status.clone(),
            flow: pace.flow(*count, before.and_then(|it| it.get(status)).copied()),
        })
        .collect();
    found.sort_by_key(|it| (std::cmp::Reverse(it.flow.requests), it.status.clone()));
    found
}

fn classes(pace: &Pace<'_>, now: &Look) -> Vec<ClassFigures> {
    let before = pace.before.and_then(|it| it.server.classes.as_ref());
    let classes = now.server.classes.iter().flatten();
    let figures = |(class, count): (&String, &u64)| ClassFigures {
        class: class.clone(),
        answers: *count,
        per_s: pace.per_s(
            *count,
            before.and_then(|it| it.get(class)).copied().unwrap_or(0),
        ),
    };
    classes.map(figures).collect()
}

fn ends(pace: &Pace<'_>, now: &Look) -> Option<ExchangeFigures> {
    let ends = now.server.exchanges?;
    let before = pace.before.and_then(|it| it.server.exchanges);
    let before = before.unwrap_or_default();
    Some(ExchangeFigures {
        answered_per_s: pace.per_s(ends.answered, before.answered),
        refused_per_s: pace.per_s(ends.refused, before.refused),
        failed_per_s: pace.per_s(ends.failed, before.failed),
    })
}

fn exchanges(site: &Site) -> Count {
    Count {
        requests: site.origin.requests,
        bytes: site.origin.received,
    }
}

fn origin(pace: &Pace<'_>, now: &Look) -> Flow {
    let sum = |look: &Look| {
        let sites = look.sites.iter().flatten().map(exchanges);
        sites.fold(Count::default(), |sum, site| Count {
            requests: sum.requests + site.requests,
            bytes: sum.bytes + site.bytes,
        })
    };
    pace.flow(sum(now), pace.before.map(sum))
}

fn of_sites(pace: &Pace<'_>, sites: &[Site]) -> Vec<SiteFigures> {
    let known = pace.before.and_then(|before| before.sites.as_ref());
    let known: BTreeMap<&str, &Site> = known
        .into_iter()
        .flatten()
        .map(|site| (site.site.as_str(), site))
        .collect();
    let answers = |site: &Site| Count {
        requests: site.requests,
        bytes: site.bytes,
    };
    let figures = |site: &Site| {
        let before = known.get(site.site.as_str()).copied();
        SiteFigures {
            site: site.site.clone(),
            answers: pace.flow(answers(site), before.map(answers)),
            hit_ratio: hit_ratio(&site.answers, before.map(|it| &it.answers)),
            origin: pace.flow(exchanges(site), before.map(exchanges)),
            held: site.held,
        }
    };
    sites.iter().map(figures).collect()
}

fn of_zones(pace: &Pace<'_>, zones: &[Zone]) -> Vec<ZoneFigures> {
    let known = |zone: &Zone| {
        let before = pace.before?.server.zones.iter();
        before.into_iter().find(|it| it.name == zone.name)
    };
    let figures = |zone: &Zone| {
        let live = zone.live.unwrap_or_default();
        let before = known(zone).and_then(|it| it.live).unwrap_or(live);
        ZoneFigures {
            name: zone.name.clone(),
            records: zone.records,
            bytes: zone.bytes,
            live_bytes: zone.live_bytes,
            max_size: zone.max_size,
            memory_bytes: live.memory_bytes,
            memory_limit: live.memory_limit,
            queued_bytes: live.queued_bytes,
            written_per_s: pace.per_s(live.written_bytes, before.written_bytes),
            removed_per_s: pace.per_s(
                live.evicted + live.inactive_removed,
                before.evicted + before.inactive_removed,
            ),
            troubles: live.write_errors + live.corrupt + live.lost + live.not_stored,
            disks: zone.disks.clone(),
        }
    };
    zones.iter().map(figures).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use millpond_system::clock;
    use serde_json::{Value, json};

    use super::super::report::{Fills, Sites};
    use super::*;

    /// Two looks, a number of seconds apart, at a process whose counters are multiples of `load`.
    pub(in super::super) fn look(pid: u32, second: u64, load: u64) -> Look {
        let count = |part: u64| json!({"requests": part * load, "bytes": part * load * 1000});
        let server = json!({
            "version": "0.1.0", "pid": pid,
            "answers": {"HIT": count(8), "MISS": count(1), "STALE": count(1), "-": count(5)},
            "zones": [{
                "name": "pond", "records": 1200, "bytes": 3_000_000_000_u64,
                "max_size": 10_000_000_000_u64,
                "disks": [
                    {"path": "/a", "state": "live", "bytes": 1, "max_size": 2},
                    {"path": "/b", "state": "failed", "why": "EIO", "bytes": 1, "max_size": null},
                ],
                "live": {"written_bytes": load * 500, "evicted": load, "memory_limit": 100,
                         "memory_bytes": 50},
            }, {"name": "lake", "bytes": 7}],
        });
        let site = |name: &str, part: u64| {
            json!({
                "site": name, "requests": part * load, "bytes": part * load * 1000,
                "answers": {"HIT": count(part)}, "held": {"entries": 3, "bytes": 4096},
                "origin": {"requests": load, "received": load * 10},
            })
        };
        let sites = json!({"sites": [site("blog", 1), site("shop", 9), site("wiki", 5)]});
        let fills = json!({"fills": [{
            "zone": "pond", "key": "shop/video\u{1b}.mp4", "site": "shop", "status": 200,
            "received": 2_000_000, "length": 8_000_000, "followers": 3, "since": 990, "idle_ms": 20,
        }]});
        Look {
            at: clock::instant() + Duration::from_secs(second),
            time_ms: 1_000_000,
            server: read(server),
            sites: Some(read::<Sites>(sites).sites),
            fills: Some(read::<Fills>(fills).fills),
        }
    }

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    /// Figures of two looks at one process; rates are about a hundred times the part.
    pub(in super::super) fn figures() -> Figures {
        Figures::of(&look(7, 2, 300), Some(&look(7, 0, 100)))
    }

    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected.abs() * 0.1
    }

    #[test]
    fn rates_are_what_was_added_in_the_time() {
        let figures = figures();
        assert!(is_near(figures.answers.requests_per_s, 1500.0));
        assert!(is_near(figures.answers.bytes_per_s, 1_500_000.0));
        assert_eq!(figures.hit_ratio, Some(0.9));
        assert!(is_near(figures.origin.requests_per_s, 300.0));
        let sites = figures.sites.unwrap();
        assert!(is_near(sites[1].answers.requests_per_s, 900.0));
        assert!(is_near(figures.zones[0].removed_per_s, 100.0));
        assert_eq!(figures.statuses[0].status, "HIT");
    }

    #[test]
    fn processes_are_not_compared() {
        let (old, new) = (look(7, 0, 100), look(8, 1, 300));
        let figures = Figures::of(&new, Some(&old));
        assert_eq!(figures.seconds, None);
        assert!(figures.answers.requests_per_s.abs() < 1e-9);
        let back = Figures::of(&look(7, 1, 50), Some(&old));
        assert!(back.answers.requests_per_s.abs() < 1e-9);
        // The same moment twice.
        let twice = Figures::of(&old, Some(&old));
        assert_eq!(twice.seconds, None);
    }

    #[test]
    fn what_is_not_told_is_no_mistake() {
        let mut look = look(7, 0, 1);
        look.server = serde_json::from_str("{}").unwrap();
        (look.sites, look.fills) = (None, None);
        let figures = Figures::of(&look, None);
        assert!(figures.sites.is_none() && figures.fills.is_none());
        assert_eq!(figures.hit_ratio, None);
        let site: Site = serde_json::from_str("{\"site\":\"a\",\"new\":1}").unwrap();
        assert!(site.held.is_none());
    }
}
