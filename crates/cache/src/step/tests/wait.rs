//! Requests that come while an entry is filled.

use super::origin::{failure, ok, status};
use super::*;
use crate::conformance::Rules;
use millpond_semantics::reuse::RequestRules;

const MS: Duration = Duration::from_millis(1);

/// Texts of requests in the order in which they were started.
async fn texts(running: Vec<JoinHandle<Answer>>) -> Vec<String> {
    let mut texts = Vec::new();
    for one in running {
        texts.push(one.await.unwrap().text());
    }
    texts
}

#[test]
fn a_hundred_waiters_cost_one_fetch_and_get_the_same_body() {
    run(|bench| async move {
        let body: String = (0..5000)
            .map(|at| char::from(b'a' + (at % 26) as u8))
            .collect();
        bench.script([ok(&body)
            .pause(50)
            .piece(&body)
            .pause(50)
            .piece(&body)
            .after(100)]);
        let running = (0..100).map(|_| bench.start(client("k"))).collect();
        let texts = texts(running).await;
        assert_eq!(texts[0], format!("MISS {body}{body}{body}"));
        for text in &texts[1..] {
            assert_eq!(*text, format!("HIT {body}{body}{body}"));
        }
        assert_eq!(bench.asked(), 1);
    });
}

#[test]
fn a_waiter_joins_a_streaming_fill_before_its_end() {
    run(|bench| async move {
        bench.script([ok("one").pause(60_000).piece(" two").after(10)]);
        let first = bench.start(client("k"));
        pass_time(20 * MS).await;
        let second = bench.start(client("k"));
        pass_time(20 * MS).await;
        assert!(!first.is_finished() && !second.is_finished());
        let second = second.await.unwrap();
        assert_eq!(second.text(), "HIT one two");
        assert_eq!(second.trail, "lookup wait deliver");
        assert_eq!(first.await.unwrap().text(), "MISS one two");
    });
}

/// A request under RFC 9111 with this Cache-Control.
fn by_rfc(control: &str) -> Client {
    Client {
        rules: Rules::Rfc9111(RequestRules::parse(&[control.as_bytes()], &[])),
        ..client("k")
    }
}

/// RFC 9111 §4: a response serves other requests where it may be reused for them.
#[test]
fn by_the_rfc_nobody_joins_an_answer_that_is_not_reused_without_validation() {
    for (control, wait) in [("no-cache, max-age=60", 0), ("max-age=1", 3)] {
        run(|bench| async move {
            let old = ok("old").pause(60_000).piece("!");
            let old_with_tag = old.cc(control).field("ETag", "\"1\"");
            bench.script([old_with_tag, ok("new").after(50).pause(100), status(304)]);
            let first = bench.start(by_rfc(""));
            pass_time(20 * MS + wait * SECOND).await;
            let later: Vec<_> = (0..3).map(|_| bench.start(by_rfc(""))).collect();
            assert_eq!(texts(later).await, ["MISS new", "HIT new", "HIT new"]);
            assert_eq!(bench.asked(), 2, "{control}");
            assert_eq!(first.await.unwrap().text(), "MISS old!");
            let kept = bench.send(by_rfc("max-stale")).await;
            assert_eq!(
                kept.text(),
                "HIT new",
                "{control}: the older one ended last"
            );
        });
    }
}

/// RFC 9111 §5.2.1.
#[test]
fn by_the_rfc_a_request_that_wants_more_than_what_arrives_asks_for_itself() {
    for control in ["no-cache", "max-age=1", "min-fresh=59"] {
        run(|bench| async move {
            bench.script([ok("one").pause(60_000), ok("own")]);
            let first = bench.start(by_rfc(""));
            pass_time(3 * SECOND).await;
            let own = bench.send(by_rfc(control)).await;
            assert_eq!(own.text(), "MISS own", "{control}");
            let joined = bench.send(by_rfc("max-age=10")).await;
            assert_eq!(joined.text(), "HIT one", "{control}");
            assert_eq!(first.await.unwrap().text(), "MISS one");
            assert_eq!(bench.asked(), 2, "{control}");
        });
    }
}

#[test]
fn without_the_lock_everybody_fetches_and_one_writes() {
    run(|mut bench| async move {
        bench.policies.lock.enabled = false;
        let slow = |body, ms| ok(body).after(ms).pause(100);
        bench.script([slow("1", 120), slow("2", 100), slow("3", 110)]);
        let running = (0..3).map(|_| bench.start(client("k"))).collect();
        pass_time(150 * MS).await;
        let joined = bench.send(client("k")).await;
        assert_eq!(joined.text(), "HIT 2", "reads along with the first answer");
        assert_eq!(texts(running).await, ["MISS 1", "MISS 2", "MISS 3"]);
        assert_eq!(bench.ask(2).purpose, Purpose::Fill);
        assert_eq!(bench.get("k").await, "HIT 2");
        assert_eq!(bench.asked(), 3);
    });
}

#[test]
fn without_the_lock_what_is_answered_last_stays() {
    run(|mut bench| async move {
        bench.policies.lock.enabled = false;
        let slow = |body, ms| ok(body).after(ms).pause(5);
        bench.script([slow("1", 100), slow("2", 110), slow("3", 120)]);
        let running = (0..3).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["MISS 1", "MISS 2", "MISS 3"]);
        assert_eq!(bench.get("k").await, "HIT 3");
    });
}

#[test]
fn without_the_lock_a_fill_that_stands_still_is_not_joined_and_does_not_keep_others_from_writing() {
    run(|mut bench| async move {
        bench.policies.lock.enabled = false;
        bench.script([ok("stuck").pause(60_000), ok("new")]);
        let first = bench.start(client("k"));
        pass_time(6 * SECOND).await;
        assert_eq!(bench.get("k").await, "MISS new");
        assert_eq!(bench.get("k").await, "HIT new");
        first.abort();
    });
}

#[test]
fn a_waiter_whose_patience_ends_is_passed_unstored() {
    run(|mut bench| async move {
        bench.policies.lock.timeout = 200 * MS;
        bench.script([ok("1").after(1100), ok("2"), ok("3")]);
        let running = (0..3).map(|_| bench.start(client("k"))).collect();
        let mut texts = texts(running).await;
        texts.sort();
        assert_eq!(texts, ["MISS 1", "MISS 2", "MISS 3"]);
        assert_eq!(bench.ask(1).purpose, Purpose::Pass);
        assert_eq!(bench.get("k").await, "HIT 1");
    });
}

#[test]
fn no_patience_is_no_waiting() {
    run(|mut bench| async move {
        bench.policies.lock.timeout = Duration::ZERO;
        bench.script([ok("1").after(100), ok("2")]);
        let running = (0..2).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["MISS 1", "MISS 2"]);
    });
}

#[test]
fn an_old_fill_lets_one_more_request_lead_and_the_others_wait_for_that() {
    run(|mut bench| async move {
        bench.policies.lock.age = SECOND;
        bench.script([ok("1").after(10_000), ok("2").after(500)]);
        let running = (0..4).map(|_| bench.start(client("k"))).collect();
        let mut texts = texts(running).await;
        texts.sort();
        assert_eq!(texts, ["HIT 2", "HIT 2", "MISS 1", "MISS 2"]);
        // nginx: the first was slower, and what is finished last stays.
        assert_eq!(bench.get("k").await, "HIT 1");
    });
}

#[test]
fn a_waiter_leads_when_the_fill_is_old_even_if_its_patience_is_shorter_than_the_age() {
    run(|mut bench| async move {
        bench.policies.lock.age = 5 * SECOND;
        bench.policies.lock.timeout = 2 * SECOND;
        bench.script([ok("1").after(20_000), ok("2").after(100)]);
        let _first = bench.start(client("k"));
        pass_time(4 * SECOND).await;
        let second = bench.send(client("k")).await;
        assert_eq!(second.text(), "MISS 2");
        assert_eq!(second.trail, "lookup wait lookup fetch deliver");
        assert_eq!(bench.get("k").await, "HIT 2");
    });
}

#[test]
fn patience_is_counted_once_for_all_fills_that_are_waited_for() {
    run(|mut bench| async move {
        bench.policies.lock.age = 3 * SECOND;
        bench.policies.lock.timeout = 5 * SECOND;
        bench.script([ok("1").after(20_000), ok("2").after(20_000), ok("3")]);
        let _running = [bench.start(client("k")), bench.start(client("k"))];
        let began = Instant::now();
        let third = bench.send(client("k")).await;
        assert_eq!(third.text(), "MISS 3");
        assert_eq!(third.trail, "lookup wait lookup wait pass deliver");
        assert_eq!(began.elapsed().as_millis() / 100, 50);
        assert_eq!(bench.ask(2).purpose, Purpose::Pass);
    });
}

#[test]
fn a_fill_that_moves_does_not_grow_old() {
    run(|bench| async move {
        let mut script = ok("0");
        for piece in ["1", "2", "3", "4", "5"] {
            script = script.pause(4000).piece(piece);
        }
        bench.script([script, ok("late")]);
        let first = bench.start(client("k"));
        pass_time(19 * SECOND).await;
        let second = bench.start(client("k"));
        assert_eq!(second.await.unwrap().text(), "HIT 012345");
        assert_eq!(first.await.unwrap().text(), "MISS 012345");
    });
}

#[test]
fn a_fill_that_stands_still_grows_old() {
    run(|bench| async move {
        bench.script([ok("0").pause(60_000).piece("1"), ok("new")]);
        let first = bench.start(client("k"));
        pass_time(6 * SECOND).await;
        assert_eq!(bench.get("k").await, "MISS new");
        assert_eq!(first.await.unwrap().text(), "MISS 01");
    });
}

#[test]
fn a_fill_is_waited_for_until_it_has_stood_still_for_its_age() {
    run(|mut bench| async move {
        bench.policies.lock.age = SECOND;
        let stuck = ok("0").until_close().after(300).pause(60_000);
        bench.script([stuck, ok("new"), ok("other")]);
        let first = bench.start(client("k"));
        pass_time(100 * MS).await;
        let began = Instant::now();
        let second = bench.send(client("k")).await;
        assert_eq!(second.text(), "MISS new");
        assert_eq!(second.trail, "lookup wait lookup fetch deliver");
        // Its head came after 300 ms.
        assert_eq!(began.elapsed().as_millis() / 10, 120);
        assert_eq!(bench.get("k").await, "HIT new");
        assert_eq!(first.await.unwrap().text(), "MISS 0");
    });
}

#[test]
fn an_answer_that_is_not_stored_lets_all_waiters_pass_at_once() {
    run(|bench| async move {
        bench.script([ok("1").cc("no-store").after(100)]);
        for _ in 0..10 {
            bench.script([ok("n").cc("no-store").after(100)]);
        }
        let began = Instant::now();
        let running = (0..11).map(|_| bench.start(client("k"))).collect();
        let texts = texts(running).await;
        assert_eq!(texts[0], "MISS 1");
        assert!(texts[1..].iter().all(|text| text == "MISS n"));
        assert_eq!(began.elapsed().as_millis() / 10, 20, "in parallel");
        assert_eq!(bench.ask(10).purpose, Purpose::Fill);
    });
}

#[test]
fn without_hit_for_pass_the_waiters_of_an_answer_that_is_not_stored_are_passed() {
    run(|mut bench| async move {
        bench.policies.hit_for_pass.time = OffOr::Off;
        let answer = |body| ok(body).cc("no-store").after(100);
        bench.script([answer("1"), answer("2"), ok("3").after(100), ok("4")]);
        let began = Instant::now();
        let running = (0..3).map(|_| bench.start(client("k"))).collect();
        let mut texts = texts(running).await;
        // Which waiter is woken first is not said.
        texts.sort();
        assert_eq!(texts, ["MISS 1", "MISS 2", "MISS 3"]);
        assert_eq!(began.elapsed().as_millis() / 10, 20, "in parallel");
        assert_eq!(bench.ask(2).purpose, Purpose::Pass);
        assert_eq!(bench.get("k").await, "MISS 4");
    });
}

#[test]
fn a_key_whose_answer_may_not_be_stored_is_remembered_and_nobody_waits() {
    run(|bench| async move {
        bench.script([ok("0").cc("no-store")]);
        assert_eq!(bench.get("k").await, "MISS 0");
        let answer = |body| ok(body).cc("no-store").after(100);
        bench.script([answer("1"), answer("2"), answer("3")]);
        pass_time(9 * SECOND).await;
        let began = Instant::now();
        let running = (0..3).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["MISS 1", "MISS 2", "MISS 3"]);
        assert_eq!(began.elapsed().as_millis() / 10, 10, "in parallel");
        // The time counts from the last of them.
        pass_time(9 * SECOND).await;
        bench.script([answer("4"), answer("5")]);
        let began = Instant::now();
        let running = (0..2).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["MISS 4", "MISS 5"]);
        assert_eq!(began.elapsed().as_millis() / 10, 10, "in parallel");
    });
}

#[test]
fn what_is_remembered_of_a_key_ends_with_its_time() {
    run(|bench| async move {
        bench.script([ok("0").cc("no-store"), ok("1").after(100)]);
        assert_eq!(bench.get("k").await, "MISS 0");
        pass_time(10 * SECOND).await;
        let running = (0..2).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["MISS 1", "HIT 1"]);
    });
}

#[test]
fn the_first_answer_that_may_be_stored_is_and_ends_what_was_remembered() {
    run(|bench| async move {
        bench.script([ok("private").cc("no-store")]);
        assert_eq!(bench.get("k").await, "MISS private");
        bench.script([ok("1").after(100).pause(50), ok("2").after(120).pause(50)]);
        let running = (0..2).map(|_| bench.start(client("k"))).collect();
        pass_time(130 * MS).await;
        let late = bench.start(client("k"));
        assert_eq!(texts(running).await, ["MISS 1", "MISS 2"], "in parallel");
        assert_eq!(late.await.unwrap().text(), "HIT 1", "one of them is stored");
        assert_eq!(bench.get("k").await, "HIT 1");
        pass_time(61 * SECOND).await;
        bench.script([ok("3").after(100)]);
        let running = (0..2).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["EXPIRED 3", "HIT 3"], "locked again");
    });
}

#[test]
fn an_answer_that_is_kept_out_for_its_clients_sake_makes_one_more_lead() {
    run(|bench| async move {
        bench.script([ok("mine").after(100), ok("all").after(100)]);
        let first = bench.start(client("k").not_stored());
        let mut others = texts((0..9).map(|_| bench.start(client("k"))).collect()).await;
        assert_eq!(first.await.unwrap().text(), "MISS mine");
        others.sort();
        assert_eq!(others.pop().unwrap(), "MISS all");
        assert!(others.iter().all(|text| text == "HIT all"), "{others:?}");
        assert_eq!(bench.asked(), 2);
    });
}

#[test]
fn answers_that_are_all_kept_out_do_not_queue() {
    run(|bench| async move {
        for _ in 0..10 {
            bench.script([ok("mine").after(100)]);
        }
        let began = Instant::now();
        let clients = (0..10).map(|_| bench.start(client("k").not_stored()));
        let texts = texts(clients.collect()).await;
        assert!(texts.iter().all(|text| text == "MISS mine"));
        assert_eq!(began.elapsed().as_millis() / 10, 30);
    });
}

#[test]
fn waiters_share_the_status_of_an_origin_that_answers_with_a_failure() {
    run(|bench| async move {
        bench.script([status(503).piece("busy").after(100), ok("back")]);
        let running = (0..50).map(|_| bench.start(client("k"))).collect();
        let texts = texts(running).await;
        assert_eq!(texts[0], "MISS busy");
        assert!(texts[1..].iter().all(|text| text == "MISS shared 503"));
        assert_eq!(bench.asked(), 1);
        assert_eq!(
            bench.get("k").await,
            "MISS back",
            "and nothing is remembered"
        );
    });
}

#[test]
fn waiters_get_the_leaders_failure_and_ask_nobody() {
    run(|bench| async move {
        bench.script([failure(StaleCause::Timeout, 504).after(100)]);
        let running = (0..50).map(|_| bench.start(client("k"))).collect();
        let texts = texts(running).await;
        assert_eq!(texts[0], "MISS failed 504");
        assert!(texts[1..].iter().all(|text| text == "MISS shared 504"));
        assert_eq!(bench.asked(), 1);
    });
}

#[test]
fn a_leader_that_leaves_before_the_head_hands_over() {
    run(|bench| async move {
        bench.script([ok("1").after(1000), ok("2").after(100)]);
        let first = bench.start(client("k"));
        let others = (0..3).map(|_| bench.start(client("k"))).collect();
        pass_time(10 * MS).await;
        first.abort();
        let mut others = texts(others).await;
        others.sort();
        assert_eq!(others, ["HIT 2", "HIT 2", "MISS 2"]);
        assert_eq!(bench.asked(), 2);
        assert_eq!(bench.get("k").await, "HIT 2");
    });
}

#[test]
fn a_leader_that_leaves_during_the_body_does_not_end_the_fill() {
    run(|bench| async move {
        bench.script([ok("one").pause(100).piece(" two")]);
        let first = bench.start(client("k"));
        let second = bench.start(client("k"));
        pass_time(10 * MS).await;
        first.abort();
        assert_eq!(second.await.unwrap().text(), "HIT one two");
        assert_eq!(bench.get("k").await, "HIT one two");
        assert_eq!(bench.asked(), 1);
    });
}

#[test]
fn nobody_needs_to_read_a_fill() {
    run(|bench| async move {
        bench.script([ok("one").pause(100).piece(" two")]);
        let only = bench.start(client("k"));
        pass_time(10 * MS).await;
        only.abort();
        pass_time(SECOND).await;
        assert_eq!(bench.get("k").await, "HIT one two");
    });
}

#[test]
fn a_walk_that_is_handed_over_again_and_again_ends_as_a_pass() {
    run(|mut bench| async move {
        bench.policies.lock.timeout = 1000 * SECOND;
        bench.policies.lock.age = 1000 * SECOND;
        bench.script([ok("passed")]);
        let walk = bench.walk(&client("k"));
        let enter = || {
            walk.zone
                .fills
                .enter(walk.key.key, &walk.key.text, 1000 * SECOND)
        };
        let mut lead = enter();
        let running = bench.start(client("k"));
        for _ in 0..STEPS_MAX {
            tokio::task::yield_now().await;
            drop(lead);
            lead = enter();
        }
        let answer = running.await.unwrap();
        assert_eq!(answer.text(), "MISS passed");
        assert_eq!(answer.trail.split(' ').count(), STEPS_MAX);
    });
}

#[test]
fn a_stale_entrys_waiters_join_its_update() {
    run(|bench| async move {
        bench.script([ok("old"), ok("new").after(100).pause(10)]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        let running = (0..3).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["EXPIRED new", "HIT new", "HIT new"]);
        assert_eq!(bench.asked(), 2);
    });
}

#[test]
fn a_stale_entrys_waiters_get_it_when_its_leader_does() {
    let cases = [
        failure(StaleCause::Error, 502).after(100),
        status(500).piece("oops").after(100),
    ];
    for script in cases {
        run(|mut bench| async move {
            let causes = [StaleCause::Error, StaleCause::Http500];
            bench.policies.stale.causes = causes.into_iter().collect();
            bench.script([ok("old"), script]);
            bench.get("k").await;
            pass_time(61 * SECOND).await;
            let running = (0..3).map(|_| bench.start(client("k"))).collect();
            assert_eq!(
                texts(running).await,
                ["STALE old", "STALE old", "STALE old"]
            );
            assert_eq!(bench.asked(), 2);
        });
    }
}

#[test]
fn a_waiter_whose_location_allows_no_stale_answer_gets_none() {
    run(|mut bench| async move {
        let strict = bench.policies.clone();
        let causes = [StaleCause::Error, StaleCause::Http500];
        bench.policies.stale.causes = causes.into_iter().collect();
        bench.script([ok("old"), failure(StaleCause::Error, 502).after(100)]);
        bench.script([status(500).piece("a").after(100), status(500).piece("b")]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        for expected in ["EXPIRED shared 502", "EXPIRED b"] {
            let first = bench.start(client("k"));
            let second = bench.start(client("k").under(strict.clone()));
            assert_eq!(first.await.unwrap().text(), "STALE old");
            assert_eq!(second.await.unwrap().text(), expected);
        }
    });
}

#[test]
fn without_the_lock_a_stale_entry_is_fetched_by_everybody() {
    run(|mut bench| async move {
        bench.policies.lock.enabled = false;
        bench.script([ok("old"), ok("first").after(100), ok("last").after(200)]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        let running = (0..2).map(|_| bench.start(client("k"))).collect();
        assert_eq!(texts(running).await, ["EXPIRED first", "EXPIRED last"]);
        assert_eq!(bench.get("k").await, "HIT last");
    });
}
