//! Properties that every page has, whatever its names and its format.

use std::collections::HashSet;

use bytes::Bytes;
use millpond_conf::{LoadOptions, ParseContext, load_text};
use millpond_exchange::provenance::Shares;
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::Label;
use millpond_exchange::stats::place::Place;
use millpond_exchange::stats::site::{Answered, Sites};
use millpond_exchange::stats::site_names::Claim;
use millpond_exchange::stats::times::Timed;
use millpond_exchange::trace::{Attempt, Why};
use millpond_exchange::worker::Shared;
use millpond_system::clock;

use super::facts::{Facts, top_sites};
use super::text::Format;
use super::{Kind, Names, render};
use crate::directives;

const NAMES: [Names; 3] = [Names::Millpond, Names::NginxPlus, Names::Vts];

#[test]
fn names_and_labels_are_as_prometheus_wants_them() {
    for names in NAMES {
        let mut seen = HashSet::new();
        for metric in names.metrics() {
            let name = metric.name;
            let is_word = |word: &str| {
                let mut bytes = word.bytes();
                bytes.all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'_'))
            };
            assert!(
                is_word(name) && metric.labels.iter().all(|it| is_word(it)),
                "{name}"
            );
            assert!(seen.insert(name), "{name} is there twice");
            assert!(!metric.labels.contains(&"le"), "{name}");
            assert!(
                metric.doc.ends_with('.') && !metric.doc.contains('\n'),
                "{name}"
            );
            if names == Names::Millpond {
                assert_eq!(
                    metric.kind == Kind::Counter,
                    name.ends_with("_total"),
                    "{name}"
                );
                assert_eq!(metric.kind == Kind::Info, name.ends_with("_info"), "{name}");
            }
        }
    }
}

/// A configuration with everything that has samples, and a server that stands twice in its group.
fn conf() -> Conf {
    let text = "http { upstream u { server 127.0.0.1:1; server 127.0.0.1:1; \
                server 127.0.0.1:2 down; } \
                server { status_zone a; location / { status_zone a; metrics; } } \
                server { status_zone b; } }";
    let mut cx = ParseContext::new("/prefix", "/conf");
    let options = LoadOptions::default();
    let tree = load_text("x.conf", text, &options, &mut cx.diagnostics);
    let (conf, cx) = directives::build(&tree, cx);
    let mistakes = cx.diagnostics.iter().map(|it| &it.message);
    conf.unwrap_or_else(|| panic!("{:?}", Vec::from_iter(mistakes)))
}

/// A hit of so many bytes.
fn answered(bytes: u64) -> Answered {
    Answered {
        label: Label::of(Some("HIT")),
        bytes,
        shares: Shares {
            cache: bytes,
            origin: 0,
        },
    }
}

fn shared() -> Shared {
    let shared = Shared::default();
    let timed = Timed {
        label: Label::of(Some("HIT")),
        status: 200,
        first_byte: std::time::Duration::from_millis(1),
        whole: std::time::Duration::from_millis(2),
    };
    shared.times.answered(Place::shared(0), &timed);
    shared.cache.record(Place::shared(0), timed.label, 10);
    let attempt = Attempt {
        why: Why::Miss,
        status: 504,
        ..Attempt::default()
    };
    shared.times.exchanged(0, &attempt);
    for number in 0..20 {
        let counting = shared.sites.enter(Place::shared(0).shard());
        let site = counting.id(format!("s{number}").as_bytes(), Claim::Kept);
        counting.answered(Place::shared(0), site, &answered(number));
    }
    shared
}

/// The name and the labels of a sample.
fn series(line: &str) -> &str {
    line.rsplit_once(' ').map_or(line, |(series, _)| series)
}

#[test]
fn no_series_of_a_page_is_there_twice() {
    let (conf, shared) = (conf(), shared());
    for names in NAMES {
        let facts = Facts::read(&conf, &shared, 5);
        let page = render(&facts, names, Format::Prometheus);
        let mut seen = HashSet::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            assert!(seen.insert(series(line)), "{line}");
        }
        assert!(seen.len() > 10, "{page}");
    }
}

#[test]
fn a_page_has_what_was_counted() {
    let facts = Facts::read(&conf(), &shared(), 2);
    let page = render(&facts, Names::Millpond, Format::OpenMetrics);
    for line in [
        "millpond_http_responses_total{code=\"200\"} 1",
        "millpond_http_request_seconds_count{status=\"hit\"} 1",
        "millpond_cache_response_bytes_total{status=\"hit\"} 10",
        "millpond_cache_responses_total{status=\"none\"} 0",
        "millpond_origin_exchanges_total{reason=\"miss\",result=\"timeout\"} 1",
        "millpond_log_lost_lines_total{reason=\"syslog\"} 0",
        "millpond_site_requests_total{site=\"*\",status=\"hit\"} 18",
        "millpond_upstream_peer_state{upstream=\"u\",peer=\"127.0.0.1:1#2\",state=\"up\"} 1",
        "millpond_upstream_peer_state{upstream=\"u\",peer=\"127.0.0.1:2\",state=\"down\"} 1",
        "millpond_server_zone_requests_total{zone=\"b\"} 0",
        "# EOF",
    ] {
        assert!(page.lines().any(|it| it == line), "{line}\n{page}");
    }
}

#[test]
fn sites_beyond_the_limit_are_summed() {
    let sites = Sites::default();
    for (name, answers) in [("a", 1), ("b", 3), ("c", 2), ("d", 2), ("*", 9)] {
        for _ in 0..answers {
            let counting = sites.enter(Place::shared(0).shard());
            let site = counting.id(name.as_bytes(), Claim::Kept);
            counting.answered(Place::shared(0), site, &answered(10));
        }
    }
    sites.enter(0).id(b"never asked for", Claim::Kept);
    for (most, expected) in [
        (0, vec![("*", 17)]),
        (2, vec![("b", 3), ("c", 2), ("*", 12)]),
        (9, vec![("b", 3), ("c", 2), ("d", 2), ("a", 1), ("*", 9)]),
    ] {
        let (found, all) = top_sites(sites.snapshot(), most);
        let found: Vec<_> = found
            .iter()
            .map(|(name, count)| (name.as_str(), count.total().requests))
            .collect();
        assert_eq!(found, expected);
        assert_eq!((all.total().requests, all.total().bytes), (17, 170));
    }
}

#[test]
fn hundreds_of_sites_make_a_page_of_bounded_size() {
    let shared = shared();
    for number in 0..5000 {
        let counting = shared.sites.enter(Place::shared(0).shard());
        let name = format!("www.site-{number}.example");
        let site = counting.id(name.as_bytes(), Claim::Kept);
        for status in ["HIT", "MISS", "EXPIRED"] {
            let answer = Answered {
                label: Label::of(Some(status)),
                ..answered(number)
            };
            counting.answered(Place::shared(0), site, &answer);
        }
        counting.exchanged(site, (number, 1));
    }
    let conf = conf();
    let began = clock::instant();
    let facts = Facts::read(&conf, &shared, 500);
    let page = render(&facts, Names::Millpond, Format::OpenMetrics);
    let took = clock::instant() - began;
    println!("{} bytes in {took:?}", page.len());
    let lines = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("millpond_site_origin_exchanges_total{"), 501);
    assert!(page.len() < 1 << 20, "{}", page.len());
}

#[test]
fn names_that_are_no_text_do_not_collide() {
    let sites = Sites::default();
    for name in [&b"x\xff"[..], b"x\xfe"] {
        let counting = sites.enter(0);
        counting.exchanged(counting.id(name, Claim::Kept), (1, 2));
    }
    let (found, _) = top_sites(sites.snapshot(), 10);
    let names: HashSet<_> = found
        .iter()
        .map(|(name, _)| Bytes::from(name.clone()))
        .collect();
    assert_eq!((found.len(), names.len()), (2, 2));
}
