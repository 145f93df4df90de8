//! Stale entries: while they are updated, when the origin fails, remembered failures.

use super::origin::{failure, ok, status};
use super::*;

const MS: Duration = Duration::from_millis(1);

/// A bench with a stale entry "old" under "k".
async fn with_stale(mut bench: Bench, causes: &[StaleCause], cc: &str) -> Bench {
    bench.policies.stale.causes = causes.iter().copied().collect();
    bench.script([ok("old").cc(cc)]);
    assert_eq!(bench.get("k").await, "MISS old");
    pass_time(61 * SECOND).await;
    bench
}

#[test]
fn while_one_updates_the_others_get_the_stale_entry() {
    run(|bench| async move {
        let bench = with_stale(bench, &[StaleCause::Updating], "max-age=60").await;
        bench.script([ok("new").after(100)]);
        let first = bench.start(client("k"));
        tokio::task::yield_now().await;
        let second = bench.send(client("k")).await;
        assert_eq!(second.text(), "UPDATING old");
        assert_eq!(second.trail, "lookup deliver");
        assert_eq!(first.await.unwrap().text(), "EXPIRED new");
        assert_eq!(bench.get("k").await, "HIT new");
    });
}

#[test]
fn an_update_in_the_background_makes_nobody_wait() {
    run(|mut bench| async move {
        bench.policies.revalidate.in_background = true;
        let bench = with_stale(bench, &[StaleCause::Updating], "max-age=60").await;
        bench.script([ok("new").after(100)]);
        let began = Instant::now();
        let first = bench.send(client("k")).await;
        assert_eq!(first.text(), "STALE old");
        assert_eq!(first.trail, "lookup deliver");
        assert_eq!(bench.get("k").await, "UPDATING old");
        assert_eq!(began.elapsed(), Duration::ZERO);
        pass_time(200 * MS).await;
        assert_eq!(bench.get("k").await, "HIT new");
        assert_eq!(bench.asked(), 2);
    });
}

/// RFC 9111 §4.3.3: what the origin says now counts; a failure says nothing (RFC 5861 §4).
#[test]
fn an_update_in_the_background_that_may_not_be_stored_ends_the_entry_and_a_failure_does_not() {
    let private = || ok("own").cc("private");
    for (answer, next) in [
        (status(404), Some("MISS ")),
        (status(301), Some("MISS ")),
        (private(), Some("MISS own")),
        (ok("silent").silent(), Some("MISS silent")),
        (status(429), None),
        (status(503), None),
        (failure(StaleCause::Timeout, 504), None),
    ] {
        run(|mut bench| async move {
            bench.policies.revalidate.in_background = true;
            let bench = with_stale(bench, &[StaleCause::Updating], "max-age=60").await;
            bench.script([answer.clone(), answer]);
            assert_eq!(bench.get("k").await, "STALE old");
            pass_time(200 * MS).await;
            assert_eq!(bench.get("k").await, next.unwrap_or("STALE old"));
        });
    }
}

#[test]
fn a_stale_entry_is_updated_once_without_the_lock_too() {
    for in_background in [false, true] {
        run(|mut bench| async move {
            bench.policies.lock.enabled = false;
            bench.policies.revalidate.in_background = in_background;
            let bench = with_stale(bench, &[StaleCause::Updating], "max-age=60").await;
            bench.script([ok("new").after(100)]);
            let first = bench.start(client("k"));
            tokio::task::yield_now().await;
            assert_eq!(bench.get("k").await, "UPDATING old");
            assert_eq!(bench.get("k").await, "UPDATING old");
            let label = first.await.unwrap().label;
            assert_eq!(label, if in_background { "STALE" } else { "EXPIRED" });
            pass_time(SECOND).await;
            assert_eq!(bench.get("k").await, "HIT new");
        });
    }
}

#[test]
fn a_background_update_that_fails_leaves_the_entry() {
    let failures = [
        failure(StaleCause::Error, 502).after(100),
        status(500).piece("oops").after(100),
        ok("half").pause(100).broken(),
    ];
    for script in failures {
        run(|mut bench| async move {
            bench.policies.revalidate.in_background = true;
            bench.policies.valid.times = vec![valid(&[], 60)];
            let causes = [StaleCause::Updating, StaleCause::Error, StaleCause::Http500];
            let bench = with_stale(bench, &causes, "max-age=60").await;
            bench.script([script, ok("new")]);
            assert_eq!(bench.get("k").await, "STALE old");
            pass_time(SECOND).await;
            assert_eq!(bench.get("k").await, "STALE old");
            pass_time(SECOND).await;
            assert_eq!(bench.get("k").await, "HIT new");
        });
    }
}

/// Bench like that of [`with_stale`], with a back-off of 2 to 5 seconds.
async fn with_backoff(mut bench: Bench, causes: &[StaleCause], cc: &str) -> Bench {
    let (min, max) = (2 * SECOND, 5 * SECOND);
    bench.policies.backoff.backoff = OffOr::On(Backoff { min, max });
    with_stale(bench, causes, cc).await
}

#[test]
fn a_failing_refresh_backs_off_and_the_stale_entry_is_served_meanwhile() {
    let failures = [failure(StaleCause::Error, 502), status(500).piece("oops")];
    for script in failures {
        run(|bench| async move {
            let causes = [StaleCause::Error, StaleCause::Http500];
            let bench = with_backoff(bench, &causes, "max-age=60").await;
            let mut asked_at = Vec::new();
            for second in 0..16 {
                bench.script([script.clone(), script.clone()]);
                let before = bench.asked();
                for _ in 0..3 {
                    assert_eq!(bench.get("k").await, "STALE old");
                }
                asked_at.extend((before..bench.asked()).map(|_| second));
                bench.unscript();
                pass_time(SECOND).await;
            }
            assert_eq!(asked_at, [0, 0, 2, 6, 11]);
            bench.script([ok("new")]);
            assert_eq!(bench.get("k").await, "EXPIRED new");
        });
    }
}

#[test]
fn who_may_not_be_served_the_stale_entry_asks_during_the_back_off() {
    run(|bench| async move {
        let bench = with_backoff(bench, &[StaleCause::Error], "max-age=60").await;
        let failed = || failure(StaleCause::Error, 502);
        bench.script([failed(), failed(), ok("new")]);
        for _ in 0..3 {
            assert_eq!(bench.get("k").await, "STALE old");
        }
        let mut strict = bench.policies.clone();
        strict.stale.causes = Flags::empty();
        let answer = bench.send(client("k").under(strict)).await;
        assert_eq!(answer.text(), "EXPIRED new");
        assert_eq!(bench.get("k").await, "HIT new", "a success ends it");
    });
}

#[test]
fn a_background_update_that_fails_or_breaks_off_backs_off() {
    let failures = [
        failure(StaleCause::Error, 502).after(100),
        status(500).piece("oops").after(100),
        ok("half").pause(100).broken(),
    ];
    for script in failures {
        run(|mut bench| async move {
            bench.policies.revalidate.in_background = true;
            let bench = with_backoff(bench, &[StaleCause::Updating], "max-age=60").await;
            bench.script([script.clone(), script]);
            for _ in 0..10 {
                let text = bench.get("k").await;
                assert!(matches!(&text[..], "STALE old" | "UPDATING old"), "{text}");
                pass_time(199 * MS).await;
            }
            assert_eq!(bench.asked(), 3);
            pass_time(SECOND).await;
            bench.script([ok("new")]);
            assert_eq!(bench.get("k").await, "STALE old");
            pass_time(SECOND).await;
            assert_eq!(bench.get("k").await, "HIT new");
        });
    }
}

#[test]
fn stale_while_revalidate_ends_with_its_window() {
    run(|mut bench| async move {
        bench.policies.revalidate.in_background = true;
        let bench = with_stale(bench, &[], "max-age=60, stale-while-revalidate=10").await;
        bench.script([failure(StaleCause::Error, 502)]);
        assert_eq!(bench.get("k").await, "STALE old");
        pass_time(10 * SECOND).await;
        bench.script([ok("new")]);
        assert_eq!(bench.get("k").await, "EXPIRED new");
    });
}

#[test]
fn stale_if_error_covers_a_missing_answer_for_its_window() {
    run(|bench| async move {
        let bench = with_stale(bench, &[], "max-age=60, stale-if-error=10").await;
        bench.script([failure(StaleCause::Error, 502)]);
        assert_eq!(bench.get("k").await, "STALE old");
        pass_time(10 * SECOND).await;
        bench.script([failure(StaleCause::Error, 502)]);
        assert_eq!(bench.get("k").await, "EXPIRED failed 502");
    });
}

#[test]
fn stale_if_error_does_not_cover_an_answer_with_an_error_status() {
    run(|bench| async move {
        let bench = with_stale(bench, &[], "max-age=60, stale-if-error=10").await;
        bench.script([status(500).piece("oops"), ok("new")]);
        assert_eq!(bench.get("k").await, "EXPIRED oops");
        assert_eq!(bench.get("k").await, "EXPIRED new");
    });
}

#[test]
fn the_configured_causes_are_covered_and_no_others() {
    use StaleCause::{Error, Http403, Http404, Http429, Http500, Http502, Http503, Http504};
    let statuses = [
        (Http500, 500),
        (Http502, 502),
        (Http503, 503),
        (Http504, 504),
        (Http403, 403),
        (Http404, 404),
        (Http429, 429),
    ];
    for (cause, code) in statuses {
        run(|bench| async move {
            let bench = with_stale(bench, &[cause], "max-age=60").await;
            bench.script([status(code).piece("no"), status(501).piece("other")]);
            bench.script([failure(Error, 502), failure(StaleCause::InvalidHeader, 502)]);
            assert_eq!(bench.get("k").await, "STALE old");
            assert_eq!(bench.get("k").await, "EXPIRED other");
            assert_eq!(bench.get("k").await, "EXPIRED failed 502");
            assert_eq!(bench.get("k").await, "EXPIRED failed 502");
        });
    }
    for (cause, code) in [
        (Error, 502),
        (StaleCause::Timeout, 504),
        (StaleCause::InvalidHeader, 502),
    ] {
        run(|bench| async move {
            let bench = with_stale(bench, &[cause], "max-age=60").await;
            bench.script([failure(cause, code), status(500).piece("no")]);
            assert_eq!(bench.get("k").await, "STALE old");
            assert_eq!(bench.get("k").await, "EXPIRED no");
        });
    }
}

#[test]
fn a_covered_status_is_not_stored_though_it_could_be() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[], 60)];
        let bench = with_stale(bench, &[StaleCause::Http500], "max-age=60").await;
        bench.script([status(500).piece("no"), ok("new")]);
        assert_eq!(bench.get("k").await, "STALE old");
        assert_eq!(bench.get("k").await, "EXPIRED new");
    });
}

#[test]
fn an_error_that_is_not_covered_replaces_the_entry_when_it_may_be_stored() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[404], 60)];
        let bench = with_stale(bench, &[], "max-age=60").await;
        bench.script([status(404).piece("gone")]);
        assert_eq!(bench.get("k").await, "EXPIRED gone");
        assert_eq!(bench.get("k").await, "HIT gone");
    });
}

#[test]
fn a_failure_is_remembered_for_as_long_as_its_status_is_valid() {
    for code in [502, 504] {
        run(|mut bench| async move {
            bench.policies.valid.times = vec![valid(&[502, 504], 10)];
            bench.script([failure(StaleCause::Error, code), ok("back")]);
            assert_eq!(bench.get("k").await, format!("MISS failed {code}"));
            pass_time(10 * SECOND).await;
            assert_eq!(bench.get("k").await, format!("HIT shared {code}"));
            pass_time(SECOND).await;
            assert_eq!(bench.get("k").await, "MISS back");
        });
    }
}

#[test]
fn a_failure_without_a_time_is_not_remembered() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[200], 10)];
        bench.script([failure(StaleCause::Error, 502), ok("back")]);
        assert_eq!(bench.get("k").await, "MISS failed 502");
        assert_eq!(bench.get("k").await, "MISS back");
    });
}

#[test]
fn a_remembered_failure_hides_a_stale_entry_that_may_not_be_served() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[502], 10)];
        let bench = with_stale(bench, &[], "max-age=60").await;
        bench.script([failure(StaleCause::Error, 502), ok("new")]);
        assert_eq!(bench.get("k").await, "EXPIRED failed 502");
        assert_eq!(bench.get("k").await, "HIT shared 502");
        pass_time(11 * SECOND).await;
        assert_eq!(bench.get("k").await, "EXPIRED new");
    });
}

#[test]
fn a_failure_that_the_stale_entry_covers_is_not_remembered() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[], 10)];
        let bench = with_stale(bench, &[StaleCause::Error], "max-age=60").await;
        bench.script([failure(StaleCause::Error, 502), ok("new")]);
        assert_eq!(bench.get("k").await, "STALE old");
        let strict = policies();
        let answer = bench.send(client("k").under(strict)).await;
        assert_eq!(answer.text(), "EXPIRED new");
    });
}

#[test]
fn a_bypass_forgets_a_failure_and_remembers_none() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[], 10)];
        bench.script([failure(StaleCause::Error, 502), ok("new")]);
        bench.script([failure(StaleCause::Error, 502), ok("other")]);
        assert_eq!(bench.get("k").await, "MISS failed 502");
        let bypass = |key| bench.send(client(key).bypassed());
        assert_eq!(bypass("k").await.text(), "BYPASS new");
        assert_eq!(bench.get("k").await, "HIT new");
        assert_eq!(bypass("k2").await.text(), "BYPASS failed 502");
        assert_eq!(bench.get("k2").await, "MISS other");
    });
}
