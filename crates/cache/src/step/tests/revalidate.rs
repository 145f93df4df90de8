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

/// RFC 9111 §4.3.4: a 304 of another strong validator updates nothing. The origin is asked for the
/// whole, and what it says then counts, though nobody waits for it.
#[test]
fn a_304_of_another_version_has_the_whole_asked_for_in_the_background() {
    let new = || ok("new").cc("max-age=60");
    let own = || ok("own").cc("private");
    for (answer, next) in [
        (new(), "HIT new"),
        (own(), "MISS own"),
        (status(404), "MISS "),
    ] {
        run(|mut bench| async move {
            bench.policies.revalidate.in_background = true;
            let ask = || Client {
                rules: by_rfc(),
                ..client("k")
            };
            let stored = ok("old").cc("max-age=60, stale-while-revalidate=1000");
            let bench = with_stale(bench, stored).await;
            let other = status(304).field("ETag", "\"2\"");
            bench.script([other, answer.clone(), answer]);
            assert_eq!(bench.send(ask()).await.text(), "STALE old");
            pass_time(SECOND).await;
            assert_eq!(bench.ask(1).if_none_match.unwrap(), "\"1\"");
            assert_eq!(bench.ask(2).if_none_match, None);
            assert_eq!(bench.send(ask()).await.text(), next);
        });
    }
}

/// RFC 9111 §4.4: what was asked before a change is not found after it, whether it was stored.
#[test]
fn an_invalidation_covers_the_entry_and_the_fills_that_run() {
    run(|bench| async move {
        let key = bench.zone.primary(Bytes::from_static(b"k"));
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

/// RFC 9111 §4.1, under any rules: who is served is told by the Vary that was told last.
#[test]
fn the_vary_of_a_304_selects() {
    for rules in [Rules::Nginx, by_rfc()] {
        run(|bench| async move {
            let ask = |value: &'static str| Client {
                rules,
                ..client("k").field("accept", value)
            };
            let bench = with_stale(bench, ok("A")).await;
            bench.script([
                status(304).field("Vary", "Accept").cc("max-age=60"),
                ok("B").field("Vary", "Accept"),
            ]);
            assert_eq!(bench.send(ask("a")).await.text(), "REVALIDATED A");
            assert_eq!(bench.send(ask("b")).await.text(), "MISS B", "{rules:?}");
            assert_eq!(bench.send(ask("a")).await.text(), "HIT A");
            assert_eq!(bench.send(ask("b")).await.text(), "HIT B");
        });
    }
}

#[test]
fn a_304_that_varies_by_everything_leaves_nothing() {
    for rules in [Rules::Nginx, by_rfc()] {
        run(|bench| async move {
            let ask = || Client {
                rules,
                ..client("k")
            };
            let bench = with_stale(bench, ok("old")).await;
            bench.script([status(304).field("Vary", "*").after(100), ok("new")]);
            let leader = bench.start(ask());
            assert_eq!(bench.send(ask()).await.text(), "MISS new", "{rules:?}");
            assert_eq!(leader.await.unwrap().text(), "REVALIDATED old");
            assert_eq!(bench.send(ask()).await.text(), "HIT new");
        });
    }
}

/// A variant besides the first cannot be found by a Vary that is not that of the first.
#[test]
fn a_304_of_a_variant_that_tells_another_vary_begins_anew() {
    run(|mut bench| async move {
        bench.policies.revalidate.conditional = true;
        let varied = |body: &str| ok(body).field("Vary", "Accept").field("ETag", "\"1\"");
        bench.script([varied("A"), varied("B")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        pass_time(61 * SECOND).await;
        bench.script([
            status(304).field("Vary", "X"),
            ok("C").field("Vary", "X"),
            ok("D").field("Vary", "X"),
        ]);
        let renewed = bench.get_with("k", "accept", "b").await;
        assert_eq!(renewed, "REVALIDATED B");
        assert_eq!(bench.get_with("k", "accept", "b").await, "MISS C");
        assert_eq!(bench.get_with("k", "accept", "a").await, "HIT C");
        assert_eq!(bench.get_with("k", "x", "1").await, "MISS D");
    });
}

/// Names in another order and case, or none at all, change nothing.
#[test]
fn a_304_with_the_same_vary_leaves_the_variants() {
    for told in ["x,  ACCEPT", "Accept, X, x"] {
        run(|mut bench| async move {
            bench.policies.revalidate.conditional = true;
            let varied = |body: &str| ok(body).field("Vary", "Accept, X").field("ETag", "\"1\"");
            bench.script([varied("A"), varied("B").cc("max-age=600")]);
            bench.get_with("k", "accept", "a").await;
            bench.get_with("k", "accept", "b").await;
            pass_time(61 * SECOND).await;
            bench.script([status(304).field("Vary", told)]);
            assert_eq!(bench.get_with("k", "accept", "a").await, "REVALIDATED A");
            assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B", "{told}");
            assert_eq!(bench.get_with("k", "accept", "a").await, "HIT A");
        });
    }
}

/// RFC 9111 §5.2.2.2: what must be validated and cannot be is answered with 504, also to those who
/// wait; what is not stale, or not bound, with the failure as it was.
#[test]
fn a_failed_validation_of_what_must_be_validated_is_504() {
    for (control, rules, expected) in [
        ("max-age=60, must-revalidate", by_rfc(), 504),
        ("s-maxage=60", by_rfc(), 504),
        ("no-cache", by_rfc(), 504),
        ("max-age=60, stale-if-error=0", by_rfc(), 502),
        ("max-age=60, must-revalidate", Rules::Nginx, 502),
    ] {
        run(|bench| async move {
            let ask = || Client {
                rules,
                ..client("k")
            };
            bench.script([ok("old").cc(control).field("ETag", "\"1\"")]);
            assert_eq!(bench.send(ask()).await.label, "MISS");
            pass_time(61 * SECOND).await;
            bench.script([origin::failure(StaleCause::Error, 502).after(100)]);
            let (leader, waiter) = (bench.start(ask()), bench.start(ask()));
            let leader = leader.await.unwrap().text();
            assert_eq!(leader, format!("EXPIRED failed {expected}"), "{control}");
            let waiter = waiter.await.unwrap().text();
            assert_eq!(waiter, format!("EXPIRED shared {expected}"), "{control}");
        });
    }
}

/// RFC 9110 §13.2.1: what came of one client's condition is neither stored nor shared.
#[test]
fn a_failed_condition_of_a_client_is_its_own() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[], 60)];
        let ask = || Client {
            rules: by_rfc(),
            ..client("k")
        };
        bench.script([status(412).after(100), ok("new")]);
        let leader = bench.start(ask().field("if-match", "\"x\""));
        let waiter = bench.start(ask());
        assert_eq!(leader.await.unwrap().status, 412);
        assert_eq!(waiter.await.unwrap().text(), "MISS new");
        assert_eq!(bench.send(ask()).await.text(), "HIT new");
        let unasked = || Client {
            rules: by_rfc(),
            ..client("other")
        };
        bench.script([status(412)]);
        assert_eq!(bench.send(unasked()).await.label, "MISS");
        assert_eq!(bench.send(unasked()).await.label, "HIT", "412 as such");
    });
}

fn by_rfc() -> Rules {
    Rules::Rfc9111(millpond_semantics::reuse::RequestRules::default())
}
