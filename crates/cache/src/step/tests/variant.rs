//! Vary: several answers under one key.

use super::origin::{ok, status};
use super::*;

fn varied(body: &str) -> Script {
    ok(body).field("Vary", "Accept")
}

#[test]
fn each_variant_is_stored_and_found() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B"), varied("C")]);
        for (value, body) in [("a", "A"), ("b", "B"), ("c", "C")] {
            let missed = bench.get_with("k", "accept", value).await;
            assert_eq!(missed, format!("MISS {body}"));
        }
        for (value, body) in [("a", "A"), ("b", "B"), ("c", "C")] {
            let hit = bench.get_with("k", "accept", value).await;
            assert_eq!(hit, format!("HIT {body}"));
        }
        assert_eq!(bench.zone.store.usage().entries, 3);
    });
}

#[test]
fn each_variant_expires_and_is_renewed_by_itself() {
    run(|mut bench| async move {
        bench.policies.revalidate.conditional = true;
        bench.script([varied("A").field("ETag", "1")]);
        bench.get_with("k", "accept", "a").await;
        pass_time(30 * SECOND).await;
        bench.script([varied("B").field("ETag", "2")]);
        bench.get_with("k", "accept", "b").await;
        pass_time(31 * SECOND).await;
        bench.script([status(304), status(304)]);
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B");
        assert_eq!(bench.get_with("k", "accept", "a").await, "REVALIDATED A");
        pass_time(30 * SECOND).await;
        assert_eq!(bench.get_with("k", "accept", "b").await, "REVALIDATED B");
        assert_eq!(bench.ask(3).if_none_match.unwrap(), "2");
        assert_eq!(bench.get_with("k", "accept", "a").await, "HIT A");
    });
}

#[test]
fn an_answer_without_vary_replaces_all_variants() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        pass_time(61 * SECOND).await;
        bench.script([ok("one for all")]);
        let replaced = bench.get_with("k", "accept", "b").await;
        assert_eq!(replaced, "EXPIRED one for all");
        for value in ["a", "b", "c"] {
            let hit = bench.get_with("k", "accept", value).await;
            assert_eq!(hit, "HIT one for all");
        }
    });
}

#[test]
fn an_answer_with_another_vary_takes_the_first_key() {
    run(|bench| async move {
        let other = |body| ok(body).field("Vary", "X, Y");
        bench.script([ok("Z").field("Vary", "Z"), other("1"), other("2")]);
        bench.get_with("k", "z", "1").await;
        assert_eq!(bench.get_with("k", "x", "1").await, "MISS 1");
        assert_eq!(bench.get_with("k", "x", "1").await, "HIT 1");
        assert_eq!(bench.get_with("k", "x", "2").await, "MISS 2");
        assert_eq!(bench.get_with("k", "x", "2").await, "HIT 2");
        assert_eq!(bench.get_with("k", "x", "1").await, "HIT 1");
    });
}

#[test]
fn a_bypass_stores_its_variant_under_the_first_key_and_leaves_the_others() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B"), varied("B2"), varied("A2")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        let bypass = client("k").bypassed().field("accept", "b");
        assert_eq!(bench.send(bypass).await.text(), "BYPASS B2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B2");
        // nginx: the variant that stood under the first key is gone.
        assert_eq!(bench.get_with("k", "accept", "a").await, "MISS A2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B2");
    });
}

#[test]
fn waiters_join_a_fill_of_their_own_variant_only() {
    run(|bench| async move {
        bench.script([
            varied("A").after(100).pause(100).piece("a"),
            varied("B").after(100).pause(100).piece("b"),
        ]);
        let start = |value| bench.start(client("k").field("accept", value));
        let running = ["a", "b", "a", "b", "b"].map(start);
        let mut texts = Vec::new();
        for one in running {
            texts.push(one.await.unwrap().text());
        }
        // Which of the three leads the second variant is not said.
        texts.sort();
        assert_eq!(texts, ["HIT Aa", "HIT Bb", "HIT Bb", "MISS Aa", "MISS Bb"]);
        assert_eq!(bench.asked(), 2, "one for each variant");
        assert_eq!(bench.get_with("k", "accept", "a").await, "HIT Aa");
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT Bb");
    });
}

#[test]
fn a_waiter_of_another_variant_finds_what_is_stored_of_its_own() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        let walk = bench.walk(&client("k"));
        assert!(walk.zone.store.remove(&walk.key.key));
        bench.script([varied("A").after(100).pause(100).piece("2")]);
        let first = bench.start(client("k").field("accept", "a"));
        let second = bench.start(client("k").field("accept", "b"));
        let second = second.await.unwrap();
        assert_eq!(second.text(), "HIT B");
        assert_eq!(second.trail, "lookup wait lookup deliver");
        assert_eq!(first.await.unwrap().text(), "MISS A2");
    });
}

#[test]
fn a_vary_that_changes_with_every_answer_does_not_keep_a_request_for_ever() {
    run(|bench| async move {
        let changing = |index: usize| {
            ok("x")
                .field("Vary", &format!("f{index}, id"))
                .after(100)
                .pause(10)
        };
        for index in 0..30 {
            bench.script([changing(index)]);
        }
        let ids: Vec<String> = (0..8).map(|id| id.to_string()).collect();
        let start = |id: &String| bench.start(client("k").field("id", id));
        let running: Vec<_> = ids.iter().map(start).collect();
        for one in running {
            assert_eq!(one.await.unwrap().body.unwrap(), "x");
        }
        assert!(bench.asked() <= 8);
    });
}
