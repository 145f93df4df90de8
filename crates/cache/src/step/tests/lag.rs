//! Zones that are behind the log of their fleet: what a stored answer is worth then, and what is
//! shared.

use super::origin::{failure, ok, status};
use super::*;
use crate::lag::OnLag;
use crate::purge::log::{Issuer, LogPurge};
use crate::purge::position::Position;
use crate::purge::{Mode, Target};

const MAX_LAG: Duration = Duration::from_secs(5);

/// A bench with a fresh entry "old" under "k", whose zone was confirmed longer ago than it may be.
async fn behind(bench: Bench, on_lag: OnLag) -> Bench {
    bench.script([ok("old").field("ETag", "\"1\"")]);
    let lag = &bench.zone.purges.lag;
    lag.join(MAX_LAG, on_lag);
    lag.confirm(bench.zone.store.since_boot_ms());
    assert_eq!(bench.get("k").await, "MISS old");
    bench.clock.advance(MAX_LAG);
    assert_eq!(bench.get("k").await, "HIT old", "as old as it may be");
    bench.clock.advance(Duration::from_millis(1));
    bench
}

#[test]
fn behind_a_fresh_entry_is_validated_by_each_request() {
    run(|bench| async move {
        let bench = behind(bench, OnLag::Revalidate).await;
        assert!(!bench.policies.revalidate.conditional);
        bench.script([status(304), status(304), ok("new")]);
        assert_eq!(bench.get("k").await, "REVALIDATED old");
        assert_eq!(bench.ask(1).if_none_match.unwrap(), "\"1\"");
        assert_eq!(bench.get("k").await, "REVALIDATED old");
        assert_eq!(bench.get("k").await, "EXPIRED new");
        bench
            .zone
            .purges
            .lag
            .confirm(bench.zone.store.since_boot_ms());
        assert_eq!(bench.get("k").await, "HIT new");
        assert_eq!(bench.asked(), 4);
    });
}

#[test]
fn behind_a_fresh_entry_is_no_answer_to_a_failure() {
    run(|mut bench| async move {
        let causes = [StaleCause::Error, StaleCause::Updating, StaleCause::Http500];
        bench.policies.stale.causes = causes.into_iter().collect();
        let bench = behind(bench, OnLag::Revalidate).await;
        bench.script([failure(StaleCause::Error, 502), status(500)]);
        assert_eq!(bench.send(client("k")).await.status, 502);
        assert_eq!(bench.send(client("k")).await.status, 500);
    });
}

#[test]
fn behind_an_entry_counts_as_missing_where_that_is_chosen() {
    run(|bench| async move {
        let bench = behind(bench, OnLag::Miss).await;
        bench.script([ok("1"), ok("2")]);
        assert_eq!(bench.get("k").await, "MISS 1");
        assert_eq!(bench.ask(1).if_none_match, None);
        assert_eq!(bench.get("k").await, "MISS 2");
    });
}

#[test]
fn behind_an_entry_is_served_where_that_is_chosen() {
    run(|mut bench| async move {
        bench.policies.lag.on_lag = Some(OnLag::Serve);
        let bench = behind(bench, OnLag::Miss).await;
        assert_eq!(bench.get("k").await, "HIT old");
        assert_eq!(bench.asked(), 1);
    });
}

#[test]
fn behind_requests_of_one_moment_share_one_validation() {
    for on_lag in [OnLag::Revalidate, OnLag::Miss] {
        run(|bench| async move {
            let bench = behind(bench, on_lag).await;
            bench.script([ok("new").after(100)]);
            let running: Vec<_> = (0..20).map(|_| bench.start(client("k"))).collect();
            for answer in running {
                let answer = answer.await.unwrap();
                assert_eq!(answer.body, Ok("new".to_string()), "{on_lag:?}");
            }
            assert_eq!(bench.asked(), 2, "{on_lag:?}");
        });
    }
}

/// An answer that was asked of the origin before `max_lag` may have been purged since.
#[test]
fn behind_a_fill_that_is_older_than_the_limit_is_not_joined() {
    for on_lag in [OnLag::Revalidate, OnLag::Miss] {
        run(|mut bench| async move {
            bench.policies.lock.age = 1000 * SECOND;
            let bench = behind(bench, on_lag).await;
            bench.script([ok("before").after(8_000), ok("after")]);
            let first = bench.start(client("k"));
            pass_time(MAX_LAG + SECOND).await;
            let second = bench.send(client("k")).await;
            assert_eq!(second.body, Ok("after".to_string()), "{on_lag:?}");
            first.await.unwrap();
        });
    }
}

#[test]
fn purges_of_the_log_are_in_force_with_their_position() {
    run(|bench| async move {
        bench.script([ok("old"), ok("new")]);
        assert_eq!(bench.get("k").await, "MISS old");
        let position = |sequence| Position {
            log: [1; 16],
            sequence,
            at_ms: 5,
        };
        let zone = &bench.zone;
        assert_eq!(zone.purges.position(), None);
        zone.take_from_log(&[], position(3), 1_000).unwrap();
        assert_eq!(zone.purges.position(), Some(position(3)));
        assert_eq!(bench.get("k").await, "HIT old");
        let key = Target::Key(Bytes::from_static(b"k"));
        let host = Target::Host(Bytes::from_static(b"h"));
        let purges = [(host, Mode::Soft), (key, Mode::Hard)].map(|(target, mode)| LogPurge {
            target,
            mode,
            issuer: Issuer::Other,
            id: None,
            since_ms: 0,
        });
        zone.take_from_log(&purges, position(9), 2_000).unwrap();
        assert_eq!(zone.purges.position(), Some(position(9)));
        assert_eq!(bench.get("k").await, "MISS new");
    });
}
