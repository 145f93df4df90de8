//! Conditional requests for stale entries and what a 304 does.

use super::origin::{ok, status};
use super::*;

const DATE: &str = "Mon, 02 Mar 2015 17:20:58 GMT";

/// A bench with an entry "old" under "k", stored with these fields and stale.
async fn with_stale(mut bench: Bench, stored: Script) -> Bench {
    bench.policies.revalidate.conditional = true;
    bench.script([stored.field("ETag", "\"1\"").field("Last-Modified", DATE)]);
    bench.get("k").await;
    pass_time(61 * SECOND).await;
    bench
}

#[test]
fn a_304_renews_the_entry() {
    run(|bench| async move {
        let bench = with_stale(bench, ok("old")).await;
        bench.script([status(304), ok("new")]);
        let first = bench.send(client("k")).await;
        assert_eq!(first.text(), "REVALIDATED old");
        assert_eq!(first.trail, "lookup fetch deliver");
        let ask = bench.ask(1);
        assert_eq!(ask.if_none_match.unwrap(), "\"1\"");
        assert_eq!(ask.if_modified_since.unwrap(), DATE);
        assert_eq!(ask.purpose, Purpose::Fill);
        pass_time(60 * SECOND).await;
        assert_eq!(bench.get("k").await, "HIT old");
        pass_time(SECOND).await;
        assert_eq!(bench.get("k").await, "EXPIRED new");
    });
}

#[test]
fn another_answer_replaces_the_entry() {
    run(|bench| async move {
        let bench = with_stale(bench, ok("old")).await;
        bench.script([ok("new")]);
        assert_eq!(bench.get("k").await, "EXPIRED new");
        assert_eq!(bench.get("k").await, "HIT new");
    });
}

#[test]
fn without_revalidation_no_condition_is_sent() {
    run(|bench| async move {
        let mut bench = with_stale(bench, ok("old")).await;
        bench.policies.revalidate.conditional = false;
        bench.script([ok("new")]);
        assert_eq!(bench.get("k").await, "EXPIRED new");
        let ask = bench.ask(1);
        assert_eq!((ask.if_none_match, ask.if_modified_since), (None, None));
    });
}

#[test]
fn only_what_was_200_or_206_is_asked_for_with_its_validators() {
    for (code, is_conditional) in [(200, true), (206, true), (201, false), (404, false)] {
        run(|bench| async move {
            let stored = status(code).piece("old").cc("max-age=60");
            let bench = with_stale(bench, stored).await;
            bench.script([ok("new")]);
            assert_eq!(bench.get("k").await, "EXPIRED new", "{code}");
            let ask = bench.ask(1);
            assert_eq!(ask.if_none_match.is_some(), is_conditional, "{code}");
            assert_eq!(ask.if_modified_since.is_some(), is_conditional, "{code}");
        });
    }
}

/// Stored with `stored`, found unchanged with `fresh`: how many seconds it is a hit after that.
#[test]
fn the_304s_own_fields_count_then_the_stored_ones_then_the_configuration() {
    let silent = || ok("old").silent();
    let cases = [
        (ok("old"), status(304).cc("max-age=5"), Some(5)),
        (ok("old"), status(304), Some(60)),
        (silent(), status(304), Some(30)),
        (silent(), status(304).cc("max-age=5"), Some(5)),
        (silent(), status(304).field("X-Accel-Expires", "7"), Some(7)),
        // A cookie forbids to store its own answer, which is not what is stored here.
        (ok("old"), status(304).field("Set-Cookie", "a=b"), Some(60)),
        (
            ok("old"),
            status(304).cc("max-age=5").field("Set-Cookie", "a=b"),
            Some(5),
        ),
        (ok("old"), status(304).field("Vary", "*"), Some(60)),
        // # Differs from nginx: what must not be reused unasked is not made fresh.
        (ok("old"), status(304).cc("no-cache"), None),
    ];
    for (stored, fresh, seconds) in cases {
        run(|mut bench| async move {
            bench.policies.valid.times = vec![valid(&[200], 30)];
            let bench = with_stale(bench, stored).await;
            bench.script([fresh, ok("new")]);
            assert_eq!(bench.get("k").await, "REVALIDATED old");
            if let Some(seconds) = seconds {
                pass_time(Duration::from_secs(seconds)).await;
                assert_eq!(bench.get("k").await, "HIT old", "{seconds}");
            }
            pass_time(SECOND).await;
            assert_eq!(bench.get("k").await, "EXPIRED new", "{seconds:?}");
        });
    }
}

#[test]
fn the_stale_windows_are_renewed_with_the_time_they_belong_to() {
    let cases = [
        (status(304), true),
        (status(304).cc("max-age=60"), false),
        (status(304).cc("max-age=60, stale-if-error=9"), true),
    ];
    for (fresh, is_covered) in cases {
        run(|bench| async move {
            let stored = ok("old").cc("max-age=60, stale-if-error=9");
            let bench = with_stale(bench, stored).await;
            bench.script([fresh, origin::failure(StaleCause::Error, 502)]);
            assert_eq!(bench.get("k").await, "REVALIDATED old");
            pass_time(61 * SECOND).await;
            let expected = if is_covered {
                "STALE old"
            } else {
                "EXPIRED failed 502"
            };
            assert_eq!(bench.get("k").await, expected);
        });
    }
}

#[test]
fn a_304_that_does_not_renew_leaves_the_stale_windows_where_they_were() {
    run(|bench| async move {
        let stored = ok("old").cc("max-age=60, stale-if-error=9");
        let bench = with_stale(bench, stored).await;
        pass_time(5 * SECOND).await;
        bench.script([
            status(304).cc("no-cache"),
            origin::failure(StaleCause::Error, 502),
        ]);
        assert_eq!(bench.get("k").await, "REVALIDATED old");
        pass_time(5 * SECOND).await;
        assert_eq!(bench.get("k").await, "EXPIRED failed 502");
    });
}

#[test]
fn waiters_of_a_revalidation_get_the_renewed_entry() {
    run(|bench| async move {
        let bench = with_stale(bench, ok("old")).await;
        bench.script([status(304).after(100)]);
        let running: Vec<_> = (0..5).map(|_| bench.start(client("k"))).collect();
        let mut texts = Vec::new();
        for one in running {
            texts.push(one.await.unwrap().text());
        }
        assert_eq!(
            texts,
            [
                "REVALIDATED old",
                "HIT old",
                "HIT old",
                "HIT old",
                "HIT old"
            ]
        );
        assert_eq!(bench.asked(), 2);
    });
}

#[test]
fn a_revalidation_in_the_background_renews_too() {
    run(|mut bench| async move {
        bench.policies.revalidate.in_background = true;
        let stored = ok("old").cc("max-age=60, stale-while-revalidate=100");
        let bench = with_stale(bench, stored).await;
        bench.script([status(304).after(100)]);
        assert_eq!(bench.get("k").await, "STALE old");
        pass_time(SECOND).await;
        assert_eq!(bench.get("k").await, "HIT old");
    });
}

/// RFC 9111 §4.4: what was asked before a change is not found after it, whether it was stored.
#[test]
fn an_invalidation_covers_the_entry_and_the_fills_that_run() {
    run(|bench| async move {
        let key = PrimaryKey::new(Bytes::from_static(b"k"));
        bench.script([
            ok("old"),
            ok("1").after(1000).pause(1000).piece("2"),
            ok("new"),
        ]);
        assert_eq!(bench.get("k").await, "MISS old");
        bench.zone.invalidate(&key);
        let asked = bench.start(client("k"));
        pass_time(SECOND / 2).await;
        bench.zone.invalidate(&key);
        assert_eq!(bench.get("k").await, "MISS new", "it joins nothing");
        assert_eq!(asked.await.unwrap().text(), "MISS 12");
        assert_eq!(bench.get("k").await, "HIT new");
    });
}
