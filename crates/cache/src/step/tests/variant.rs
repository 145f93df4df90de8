//! Vary: several answers under one key.

use super::origin::{failure, ok, status};
use super::*;
use crate::max_variants::VariantCount;
use crate::variant::RequestFields;
use crate::zone::LookedUp;

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
        bench.script([
            varied("A").after(100).pause(500),
            varied("B").after(100).piece("2"),
        ]);
        let start = |value| bench.start(client("k").field("accept", value));
        let running = ["a", "b"].map(start);
        pass_time(SECOND / 3).await;
        let third = start("b").await.unwrap();
        assert_eq!(third.text(), "HIT B2");
        assert_eq!(third.trail, "lookup wait lookup deliver");
        for (one, text) in running.into_iter().zip(["MISS A", "MISS B2"]) {
            assert_eq!(one.await.unwrap().text(), text);
        }
    });
}

#[test]
fn what_removes_the_first_entry_removes_all_variants() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        let walk = bench.walk(&client("k"));
        assert!(walk.zone.store.remove(&walk.key.key));
        bench.script([varied("A2"), varied("B2")]);
        assert_eq!(bench.get_with("k", "accept", "a").await, "MISS A2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "MISS B2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B2");
    });
}

#[test]
fn a_variant_that_was_being_filled_when_the_first_entry_was_removed_is_not_found() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B").pause(500)]);
        bench.get_with("k", "accept", "a").await;
        let running = bench.start(client("k").field("accept", "b"));
        pass_time(SECOND / 10).await;
        let walk = bench.walk(&client("k"));
        assert!(walk.zone.store.remove(&walk.key.key));
        assert_eq!(running.await.unwrap().text(), "MISS B");
        bench.script([varied("A2"), varied("B2")]);
        assert_eq!(bench.get_with("k", "accept", "a").await, "MISS A2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "MISS B2");
    });
}

#[test]
fn variants_that_one_answer_for_all_replaced_do_not_come_back() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B")]);
        bench.get_with("k", "accept", "a").await;
        pass_time(30 * SECOND).await;
        bench.get_with("k", "accept", "b").await;
        pass_time(31 * SECOND).await;
        bench.script([ok("all").cc("max-age=1"), varied("A2"), varied("B2")]);
        assert_eq!(bench.get_with("k", "accept", "a").await, "EXPIRED all");
        pass_time(2 * SECOND).await;
        assert_eq!(bench.get_with("k", "accept", "a").await, "EXPIRED A2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "MISS B2");
    });
}

/// nginx: an answer that was stored is good for requests of its variant as long as it is fresh.
#[test]
fn variants_of_a_vary_that_comes_back_are_found() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B"), ok("C").field("Vary", "X")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        assert_eq!(bench.get_with("k", "accept", "c").await, "MISS C");
        bench.script([varied("A2")]);
        let other = client("k").field("x", "1").field("accept", "a");
        assert_eq!(bench.send(other).await.text(), "MISS A2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B");
    });
}

#[test]
fn an_expired_first_variant_that_is_filled_again_leaves_the_others() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B")]);
        bench.get_with("k", "accept", "a").await;
        pass_time(30 * SECOND).await;
        bench.get_with("k", "accept", "b").await;
        pass_time(31 * SECOND).await;
        bench.script([varied("A2")]);
        assert_eq!(bench.get_with("k", "accept", "a").await, "EXPIRED A2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B");
    });
}

/// Two variants with one hash stay apart.
#[test]
fn a_variant_with_the_key_of_another_is_a_miss() {
    run(|bench| async move {
        bench.script([varied("A"), varied("B")]);
        bench.get_with("k", "accept", "a").await;
        let walk = bench.walk(&client("k"));
        let says_b = RequestFields {
            lookup: &|_| vec![&b"b"[..]],
            spelling: walk.rules.spelling(),
        };
        let LookedUp::Missing(wanted) = walk.zone.look_up(&walk.key, &says_b) else {
            panic!("it is not stored yet");
        };
        let first = walk.zone.store.find(&walk.key.key).unwrap();
        let mut writer = walk.zone.store.begin(wanted.key, None).unwrap();
        writer.set_head(first.head().clone());
        writer.finish().unwrap();
        assert_eq!(bench.get_with("k", "accept", "b").await, "MISS B");
        assert_eq!(bench.get_with("k", "accept", "b").await, "HIT B");
    });
}

/// Two keys with one hash stay apart.
#[test]
fn a_waiter_does_not_join_the_fill_of_another_key() {
    run(|bench| async move {
        bench.script([ok("A").after(100).pause(100), ok("B")]);
        let first = bench.start(client("a"));
        pass_time(SECOND / 100).await;
        let mut other = bench.walk(&client("b"));
        other.key.key = bench.walk(&client("a")).key.key;
        let second = bench.start_walk(other, client("b")).await.unwrap();
        assert_eq!(second.text(), "MISS B");
        assert_eq!(first.await.unwrap().text(), "MISS A");
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

/// Two keys with one hash stay apart also for failures that are remembered.
#[test]
fn a_failure_of_another_key_is_not_answered() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[502], 10)];
        bench.script([failure(StaleCause::Error, 502), ok("B")]);
        assert_eq!(bench.get("a").await, "MISS failed 502");
        assert_eq!(bench.get("a").await, "HIT shared 502");
        let mut other = bench.walk(&client("b"));
        other.key.key = bench.walk(&client("a")).key.key;
        let answer = bench.start_walk(other, client("b")).await.unwrap();
        assert_eq!(answer.text(), "MISS B");
    });
}

#[test]
fn requests_that_take_the_same_codings_share_a_variant() {
    run(|bench| async move {
        let coded = |body: &str, coding: &str| {
            ok(body)
                .field("Vary", "Accept-Encoding")
                .field("Content-Encoding", coding)
        };
        bench.script([coded("br", "br"), coded("gzip", "gzip")]);
        let get = |value: &'static str| bench.get_with("k", "accept-encoding", value);
        assert_eq!(get("gzip, deflate, br").await, "MISS br");
        assert_eq!(get("br,GZIP").await, "HIT br");
        assert_eq!(get("br;q=0.9, gzip;q=1.0, deflate;q=0").await, "HIT br");
        assert_eq!(get("gzip, deflate, br;q=0").await, "MISS gzip");
        assert_eq!(get("x-gzip").await, "HIT gzip");
        // Who takes deflate and gzip may be given deflate, and must not share it.
        bench.script([coded("deflate", "deflate"), coded("zstd", "zstd")]);
        assert_eq!(get("zstd, deflate").await, "MISS deflate");
        assert_eq!(get("zstd").await, "MISS zstd");
        assert_eq!(get("zstd, deflate").await, "HIT zstd");
    });
}

#[test]
fn variants_beyond_the_bound_take_the_place_of_the_least_used() {
    run(|mut bench| async move {
        bench.policies.max_variants.max = VariantCount(3);
        bench.script([varied("A"), varied("B"), varied("C"), varied("D")]);
        let get = |value: &'static str| bench.get_with("k", "accept", value);
        for value in ["a", "b", "c"] {
            get(value).await;
        }
        bench.clock.advance(5 * SECOND);
        assert_eq!(get("b").await, "HIT B");
        assert_eq!(get("d").await, "MISS D");
        assert_eq!(bench.zone.variants.excess(), 1);
        assert_eq!(bench.zone.store.usage().entries, 3);
        for (value, text) in [("a", "HIT A"), ("b", "HIT B"), ("d", "HIT D")] {
            assert_eq!(get(value).await, text);
        }
        bench.script([varied("C2")]);
        assert_eq!(get("c").await, "MISS C2");
    });
}

#[test]
fn a_variant_for_which_there_is_no_room_is_passed_on_unstored() {
    run(|mut bench| async move {
        bench.policies.max_variants.max = VariantCount(1);
        bench.script([varied("A"), varied("B"), varied("B2")]);
        let get = |value: &'static str| bench.get_with("k", "accept", value);
        assert_eq!(get("a").await, "MISS A");
        assert_eq!(get("b").await, "MISS B");
        assert_eq!(get("b").await, "MISS B2");
        assert_eq!(get("a").await, "HIT A");
        assert_eq!(bench.zone.variants.excess(), 2);
    });
}
