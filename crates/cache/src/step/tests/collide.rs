//! Two texts that have one key: a bench that gives all of them the same.

use super::origin::{failure, ok, status};
use super::*;

const MS: Duration = Duration::from_millis(1);
const ALL: Key = Key([7; 16]);

fn run_colliding<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    run(|mut bench| {
        bench.all = Some(ALL);
        test(bench)
    });
}

async fn texts(running: Vec<JoinHandle<Answer>>) -> Vec<String> {
    let mut texts = Vec::new();
    for one in running {
        texts.push(one.await.unwrap().text());
    }
    texts
}

#[test]
fn fill_of_another_text_is_not_joined_and_not_waited_for() {
    run_colliding(|bench| async move {
        bench.script([ok("of a").after(1700), ok("of b")]);
        let slow = bench.start(client("a"));
        let began = Instant::now();
        assert_eq!(bench.get("b").await, "MISS of b");
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(slow.await.unwrap().text(), "MISS of a");
        assert_eq!(bench.asked(), 2);
    });
}

/// Nor while the body of the other arrives.
#[test]
fn body_of_another_text_that_arrives_is_not_read() {
    run_colliding(|bench| async move {
        let body = ok("begin").pause(1000).piece("end");
        bench.script([body, ok("of b")]);
        let slow = bench.start(client("a"));
        pass_time(100 * MS).await;
        assert_eq!(bench.get("b").await, "MISS of b");
        assert_eq!(slow.await.unwrap().text(), "MISS beginend");
    });
}

#[test]
fn failure_of_another_text_is_not_shared() {
    run_colliding(|bench| async move {
        let fails = [
            status(503).piece("busy").after(1700),
            failure(StaleCause::Timeout, 504).after(1700),
            ok("half").broken().after(1700),
        ];
        for fail in fails {
            bench.script([fail, ok("of b").cc("no-store")]);
            let failing = bench.start(client("a"));
            let began = Instant::now();
            assert_eq!(bench.get("b").await, "MISS of b");
            assert_eq!(began.elapsed(), Duration::ZERO);
            assert_ne!(failing.await.unwrap().text(), "MISS of b");
        }
    });
}

/// Requests of one text still share what comes, though a fill of another has the key.
#[test]
fn requests_of_one_text_are_answered_by_its_own_entry_only() {
    run_colliding(|bench| async move {
        bench.script([ok("of a"), ok("of b"), ok("of a again")]);
        assert_eq!(bench.get("a").await, "MISS of a");
        assert_eq!(bench.get("a").await, "HIT of a");
        // It takes the place, as any newer answer does.
        assert_eq!(bench.get("b").await, "MISS of b");
        assert_eq!(bench.get("b").await, "HIT of b");
        assert_eq!(bench.get("a").await, "MISS of a again");
    });
}

#[test]
fn answers_of_another_text_that_are_not_stored_push_nothing_out() {
    run_colliding(|bench| async move {
        bench.script([ok("of a")]);
        assert_eq!(bench.get("a").await, "MISS of a");
        bench.script([
            ok("of b").cc("no-store"),
            status(503),
            failure(StaleCause::Error, 502),
            ok("half").broken(),
        ]);
        for _ in 0..4 {
            bench.get("b").await;
            assert_eq!(bench.get("a").await, "HIT of a");
        }
        assert_eq!(bench.asked(), 5);
    });
}

/// A mark of one key says nothing of the other.
#[test]
fn mark_of_another_text_lets_nobody_pass_the_lock() {
    run_colliding(|bench| async move {
        bench.script([ok("of a").cc("no-store")]);
        assert_eq!(bench.get("a").await, "MISS of a");
        bench.script([ok("of b").after(100)]);
        let running = (0..3).map(|_| bench.start(client("b"))).collect();
        assert_eq!(texts(running).await, ["MISS of b", "HIT of b", "HIT of b"]);
        assert_eq!(bench.asked(), 2);
    });
}

#[test]
fn origin_that_failed_for_another_text_is_asked() {
    run_colliding(|mut bench| async move {
        let times = Backoff {
            min: 60 * SECOND,
            max: 60 * SECOND,
        };
        bench.policies.backoff.backoff = OffOr::On(times);
        let (a, b) = (client("a"), client("b"));
        let marks = [&a, &b].map(|client| bench.walk(client).mark(&ALL));
        let why = RefreshFailure::Status(503);
        for _ in 0..2 {
            bench
                .zone
                .backoffs
                .note(marks[0], why, &bench.policies.backoff);
        }
        assert_eq!(bench.zone.backoffs.pending(&marks[0]), Some(why));
        assert_eq!(bench.zone.backoffs.pending(&marks[1]), None);
        bench.zone.backoffs.forget(&marks[1]);
        assert_eq!(bench.zone.backoffs.pending(&marks[0]), Some(why));
    });
}
