//! Defects of answers, of a cache that runs within the test.

use std::sync::Arc;
use std::time::Duration;

use crate::broken::{Broken, Defect};
use crate::front::Way;
use millpond_gauge::client::Target;
use millpond_gauge::load::{self, Load, Shared};
use millpond_gauge::module::{Kind, Knobs, Module};
use millpond_gauge::origin::{Origin, OriginConf};
use millpond_gauge::report::About;
use millpond_gauge::report::{Claims, Report};

const USERS: usize = 8;

/// Report of a module on a cache that is asked in clear text.
fn measured(defect: Defect, kind: Kind) -> Report {
    measured_over(Way::Plain, defect, kind)
}

/// Report of a module on a cache.
fn measured_over(way: Way, defect: Defect, kind: Kind) -> Report {
    let conf = OriginConf {
        // Long enough that all of a round ask before the answer is there.
        delay: Duration::from_millis(20),
        ..OriginConf::new()
    };
    let origin = Origin::start(conf).expect("origin");
    let server = Broken::start(defect, origin.address());
    let target = Target {
        timeout: match defect {
            Defect::LostWaiter | Defect::Miscounts => Duration::from_millis(500),
            _ => Duration::from_secs(30),
        },
        ..way.target(server.address())
    };
    let path = "/somewhere/else-20000.bin".to_owned();
    let knobs = Knobs {
        size: 20_000,
        objects: 5,
        ttl: Duration::from_secs(1),
        alpha: 1.0,
        behind: Duration::from_secs(10),
        asks: 1,
        repeats: 1,
        inactive: Duration::ZERO,
        api: "/api".to_owned(),
        zone: "z".to_owned(),
        paths: vec![path],
        against: Some(origin.address()),
        purge_method: "PURGE".to_owned(),
        run: "test".to_owned(),
    };
    let load = Load {
        users: USERS,
        threads: 2,
        requests: Some(64),
        time: None,
        rate: None,
        seed: 1,
    };
    let shared = Arc::new(Shared::new(target, Some(origin), load));
    let module = Arc::new(Module::new(kind, knobs));
    let record = load::run(&shared, &module).expect("run");
    Report::new(&module, &shared, &record, shared.began().elapsed())
}

#[test]
fn a_cache_without_a_defect_is_right() {
    for way in Way::ALL {
        nothing_is_found(way);
    }
}

fn nothing_is_found(way: Way) {
    for kind in [
        Kind::Simple,
        Kind::Range,
        Kind::Coalesce,
        Kind::Purge,
        Kind::Zipf,
        Kind::Soak,
        Kind::Given,
        Kind::Stats,
    ] {
        let report = measured_over(way, Defect::None, kind);
        assert!(
            report.is_right(Claims::Held),
            "{way:?}: {}",
            millpond_gauge::report::table(&report)
        );
        // One user knows what is stored, and asks for each once.
        let least = if kind == Kind::Stats { 5 } else { 64 };
        assert!(report.requests >= least, "{kind:?}: {}", report.requests);
        assert!(report.bytes > 0);
        let it = report.connections;
        match way {
            Way::Plain => assert_eq!((it.full, it.resumed), (0, 0), "{it:?}"),
            // The origin that is compared with is asked in clear text.
            _ => assert_eq!(
                it.full + it.resumed + u64::from(kind == Kind::Given),
                it.opened,
                "{kind:?}: {it:?}"
            ),
        }
    }
}

#[test]
fn every_defect_of_an_answer_is_found_and_named() {
    for way in Way::ALL {
        defects_are_named(way);
    }
}

fn defects_are_named(way: Way) {
    // A stream of HTTP/2 that ends too soon says so.
    let truncated = match way {
        Way::Http2 => ("http2", "unexpected internal error encountered"),
        _ => ("truncated", "ended after 10000 of 20000 bytes"),
    };
    for (defect, kind, fault, place) in [
        (
            Defect::WrongByte,
            Kind::Simple,
            "wrong",
            "wrong byte at 10000",
        ),
        (
            Defect::Mixed,
            Kind::Simple,
            "mixed",
            "belongs to generation",
        ),
        (
            Defect::Shifted,
            Kind::Simple,
            "shifted",
            "belongs to offset",
        ),
        (Defect::Hole, Kind::Simple, "zeros", "wrong byte at 8192"),
        (Defect::Truncated, Kind::Simple, truncated.0, truncated.1),
        (
            Defect::NeverHit,
            Kind::Simple,
            "cache status",
            "MISS, wanted HIT",
        ),
        (
            Defect::RangeOffByOne,
            Kind::Range,
            "shifted",
            "belongs to offset",
        ),
        (
            Defect::WrongByte,
            Kind::Given,
            "wrong",
            "wrong byte at 10000",
        ),
        (Defect::PurgeForgotten, Kind::Purge, "too old", "too old"),
        (
            Defect::LostWaiter,
            Kind::Coalesce,
            "timeout",
            "no answer within",
        ),
    ] {
        let report = measured_over(way, defect, kind);
        let table = millpond_gauge::report::table(&report);
        let found = report.faults.get(fault);
        let examples = found
            .map(|faults| faults.examples.join("\n"))
            .unwrap_or_default();
        assert!(
            examples.contains(place),
            "{way:?}: {defect:?} must be found as {fault}:\n{table}"
        );
        assert!(!report.is_right(Claims::Held), "{defect:?}");
    }
}

#[test]
fn a_cache_that_asks_twice_breaks_the_claim_of_coalescing() {
    let report = measured_over(Way::Http2, Defect::AsksForEach, Kind::Coalesce);
    assert!(report.faults.is_empty(), "every answer by itself is right");
    let broken: Vec<_> = report
        .claims
        .iter()
        .filter(|claim| !claim.is_kept)
        .collect();
    assert!(
        broken.len() == 1 && broken[0].text.contains("requests at the origin"),
        "{broken:?}"
    );
}

#[test]
fn a_cache_that_miscounts_breaks_the_claims_about_its_numbers() {
    let report = measured(Defect::Miscounts, Kind::Stats);
    let broken = report.claims.iter().filter(|claim| !claim.is_kept);
    let broken: Vec<&str> = broken.map(|claim| claim.text.as_str()).collect();
    assert!(
        broken.contains(&"what was filled is told"),
        "{:?}",
        report.claims
    );
}

#[test]
fn limits_judge_a_run() {
    let report = measured(Defect::None, Kind::Simple);
    for (limit, is_broken) in [
        ("ttfb.p99 > 60s", false),
        ("ttfb.p50 > 1us", true),
        ("origin.requests > 5", false),
        ("origin.requests > 4", true),
        ("hit_ratio < 50%", false),
        ("faults > 0", false),
        ("behind.p99 > 1s", true),
    ] {
        let limit: millpond_gauge::report::Limit = limit.parse().expect(limit);
        assert_eq!(limit.broken(&report).is_some(), is_broken, "{limit:?}");
    }
    let about = About {
        what: "a <title>".to_owned(),
        summary: "a / b".to_owned(),
        ..About::default()
    };
    let page = millpond_gauge::report::page(&about, &[("run".to_owned(), report)]);
    assert!(page.contains("a &lt;title&gt;") && page.matches("<polyline").count() == 3);
    assert!(page.contains("<pre>a / b</pre>") && page.matches("<rect").count() == 1);
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "nothing from elsewhere"
    );
}
