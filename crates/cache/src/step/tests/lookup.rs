//! Misses, hits, bypasses, admission, ranges, collisions.

use super::origin::{failure, ok, status};
use super::*;

#[test]
fn what_was_missed_is_hit_until_its_time_is_over() {
    run(|bench| async move {
        bench.script([ok("one"), ok("two")]);
        let first = bench.send(client("k")).await;
        assert_eq!(first.text(), "MISS one");
        assert_eq!(first.trail, "lookup fetch deliver");
        pass_time(60 * SECOND).await;
        let second = bench.send(client("k")).await;
        assert_eq!(second.text(), "HIT one");
        assert_eq!(second.trail, "lookup deliver");
        pass_time(SECOND).await;
        let third = bench.send(client("k")).await;
        assert_eq!(third.text(), "EXPIRED two");
        assert_eq!(third.trail, "lookup fetch deliver");
        assert_eq!(bench.get("k").await, "HIT two");
    });
}

#[test]
fn status_and_fields_are_stored_with_the_body() {
    run(|bench| async move {
        bench.script([ok("gone").field("X-A", "1")]);
        bench.script([status(404).piece("no").cc("max-age=5").field("X-B", "2")]);
        bench.get("a").await;
        bench.get("b").await;
        for (key, wanted, name, value) in [("a", 200, "x-a", "1"), ("b", 404, "x-b", "2")] {
            let walk = bench.walk(&client(key));
            let fields = crate::variant::RequestFields {
                lookup: &|_| vec![],
                spelling: walk.rules.spelling(),
            };
            let found = walk.zone.look_up(&walk.key, &fields);
            let crate::zone::LookedUp::Found(found) = found else {
                panic!("{key} is missing");
            };
            assert_eq!(found.head.status, wanted);
            assert_eq!(found.head.field(name.as_bytes()).unwrap(), value);
        }
    });
}

#[test]
fn the_configuration_says_how_long_when_the_answer_does_not() {
    run(|mut bench| async move {
        bench.policies.valid.times = vec![valid(&[200], 10), valid(&[], 2)];
        bench.script([ok("a").silent(), status(404).piece("b")]);
        bench.script([ok("c").silent(), status(404).piece("d")]);
        assert_eq!(bench.get("a").await, "MISS a");
        assert_eq!(bench.get("b").await, "MISS b");
        pass_time(3 * SECOND).await;
        assert_eq!(bench.get("a").await, "HIT a");
        assert_eq!(bench.get("b").await, "EXPIRED c");
        pass_time(20 * SECOND).await;
        assert_eq!(bench.get("a").await, "EXPIRED d");
    });
}

#[test]
fn answers_that_must_not_be_stored_are_passed() {
    run(|bench| async move {
        let cases = [
            ok("").silent(),
            ok("").cc("no-cache"),
            ok("").cc("private"),
            ok("").field("Set-Cookie", "a=b"),
            ok("").field("X-Accel-Redirect", "/inside"),
            ok("").field("Vary", "*"),
            ok("").field("Vary", &"x".repeat(200)),
            ok("").field("X-Accel-Expires", "0"),
        ];
        for script in cases {
            bench.script([script.piece("p")]);
            assert_eq!(bench.get("k").await, "MISS p");
        }
        assert_eq!(bench.zone.store.usage().entries, 0);
    });
}

#[test]
fn ignored_fields_do_not_keep_an_answer_out() {
    run(|mut bench| async move {
        let ignored = [
            crate::ignore::IgnorableField::SetCookie,
            crate::ignore::IgnorableField::Vary,
            crate::ignore::IgnorableField::CacheControl,
        ];
        bench.policies.ignore.fields = Some(ignored.into_iter().collect());
        bench.policies.valid.times = vec![valid(&[], 5)];
        bench.script([ok("a")
            .cc("no-store")
            .field("Set-Cookie", "a=b")
            .field("Vary", "accept")]);
        assert_eq!(bench.get_with("k", "accept", "x").await, "MISS a");
        assert_eq!(bench.get_with("k", "accept", "y").await, "HIT a");
    });
}

#[test]
fn a_bypassed_answer_replaces_the_stored_one() {
    run(|bench| async move {
        bench.script([ok("one"), ok("two")]);
        bench.get("k").await;
        let bypassed = bench.send(client("k").bypassed()).await;
        assert_eq!(bypassed.text(), "BYPASS two");
        assert_eq!(bypassed.trail, "lookup fetch deliver");
        assert_eq!(bench.ask(1).purpose, Purpose::Fill);
        assert_eq!(bench.get("k").await, "HIT two");
    });
}

#[test]
fn a_bypass_during_a_fill_is_passed_unstored() {
    run(|bench| async move {
        bench.script([ok("one").after(100), ok("two")]);
        let first = bench.start(client("k"));
        tokio::task::yield_now().await;
        let bypassed = bench.send(client("k").bypassed()).await;
        assert_eq!(bypassed.text(), "BYPASS two");
        assert_eq!(bench.ask(1).purpose, Purpose::Pass);
        assert_eq!(first.await.unwrap().text(), "MISS one");
        assert_eq!(bench.get("k").await, "HIT one");
    });
}

#[test]
fn no_cache_keeps_an_answer_out_and_the_stored_one_in() {
    run(|bench| async move {
        bench.script([ok("one"), ok("two"), ok("three")]);
        bench.get("k").await;
        let answer = bench.send(client("k").bypassed().not_stored()).await;
        assert_eq!(answer.text(), "BYPASS two");
        assert_eq!(bench.get("k").await, "HIT one");
        let answer = bench.send(client("new").not_stored()).await;
        assert_eq!(answer.text(), "MISS three");
        assert_eq!(bench.zone.store.usage().entries, 1);
    });
}

#[test]
fn min_uses_stores_from_the_nth_request_on() {
    run(|mut bench| async move {
        bench.policies.admission.min_uses = 3;
        bench.script([ok("1"), ok("2"), ok("3")]);
        let first = bench.send(client("k")).await;
        assert_eq!(first.text(), "MISS 1");
        assert_eq!(bench.ask(0).purpose, Purpose::Pass);
        assert_eq!(bench.get("k").await, "MISS 2");
        assert_eq!(bench.get("k").await, "MISS 3");
        assert_eq!(bench.ask(2).purpose, Purpose::Fill);
        assert_eq!(bench.get("k").await, "HIT 3");
    });
}

#[test]
fn requests_beyond_min_uses_join_the_fill_that_it_admitted() {
    run(|mut bench| async move {
        bench.policies.admission.min_uses = 2;
        bench.script([ok("1"), ok("2").after(100)]);
        bench.get("k").await;
        let clients: Vec<_> = (0..5).map(|_| bench.start(client("k"))).collect();
        for (index, running) in clients.into_iter().enumerate() {
            let label = if index == 0 { "MISS" } else { "HIT" };
            assert_eq!(running.await.unwrap().text(), format!("{label} 2"));
        }
        assert_eq!(bench.asked(), 2);
    });
}

#[test]
fn a_range_that_begins_too_deep_is_passed_as_it_is() {
    run(|mut bench| async move {
        bench.policies.range.max_offset = Some(Offset(100));
        bench.script([ok("part"), ok("suffix"), ok("whole")]);
        let deep = bench.send(client("k").field("Range", "bytes=100-")).await;
        assert_eq!(deep.text(), "MISS part");
        assert_eq!(deep.trail, "lookup pass deliver");
        assert_eq!(bench.ask(0).purpose, Purpose::Pass);
        let suffix = bench.get_with("k", "Range", "bytes=-5").await;
        assert_eq!(suffix, "MISS suffix");
        let shallow = bench.get_with("k", "Range", "bytes=99-").await;
        assert_eq!(shallow, "MISS whole");
        assert_eq!(bench.ask(2).purpose, Purpose::Fill);
        let deep = bench.get_with("k", "Range", "bytes=100-").await;
        assert_eq!(deep, "HIT whole");
    });
}

#[test]
fn a_range_that_begins_too_deep_does_not_fetch_a_stale_entry_again() {
    run(|mut bench| async move {
        bench.policies.range.max_offset = Some(Offset(100));
        bench.policies.revalidate.conditional = true;
        bench.policies.stale.causes = [StaleCause::Error].into_iter().collect();
        bench.script([ok("whole").field("ETag", "\"1\""), ok("part")]);
        bench.script([failure(StaleCause::Error, 502), ok("new")]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        let deep = || bench.get_with("k", "Range", "bytes=100-");
        assert_eq!(deep().await, "EXPIRED part");
        assert_eq!(bench.ask(1), Ask::default());
        assert_eq!(deep().await, "STALE whole");
        assert_eq!(bench.get("k").await, "EXPIRED new");
    });
}

#[test]
fn another_text_under_the_same_hash_is_a_miss() {
    run(|bench| async move {
        bench.script([ok("one"), ok("other"), ok("again")]);
        bench.get("k").await;
        let mut walk = bench.walk(&client("k"));
        walk.key.text = Bytes::from_static(b"collides");
        let mut x = origin::FakeExchange::new(Rc::clone(&bench.world), client("k"));
        let mut trail = Trail::new();
        let served = serve(&mut x, &walk, &mut |step| trail.push(step)).await;
        assert_eq!(answer(served, "", String::new()).await.text(), "MISS other");
        assert_eq!(trail, ["lookup", "fetch", "deliver"]);
        // The newer took the place, so the older is a miss now.
        assert_eq!(bench.get("k").await, "MISS again");
    });
}

/// Another worker stores an answer for "k" that is fresh for a long time.
fn stored_elsewhere(walk: Walk) -> Box<dyn FnOnce()> {
    Box::new(move || {
        let mut head = StoredHead::new(200, crate::head::FieldsWriter::default());
        head.valid_until = EPOCH + 1000;
        head.key = walk.key.text.clone();
        let mut writer = walk.zone.store.begin(walk.key.key, None).unwrap();
        writer.set_head(head.encode());
        writer
            .append(Bytes::from_static(b"other worker's"))
            .unwrap();
        writer.finish().unwrap();
    })
}

#[test]
fn what_was_stored_between_look_up_and_fill_is_not_fetched_again() {
    run(|bench| async move {
        let elsewhere = stored_elsewhere(bench.walk(&client("k")));
        bench.world.between.set(Some(elsewhere));
        let answer = bench.send(client("k")).await;
        assert_eq!(answer.text(), "HIT other worker's");
        assert_eq!(answer.trail, "lookup lookup deliver");
        assert_eq!(bench.asked(), 0);
    });
}

#[test]
fn what_was_renewed_between_look_up_and_fill_is_not_fetched_again() {
    run(|bench| async move {
        bench.script([ok("old")]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        let elsewhere = stored_elsewhere(bench.walk(&client("k")));
        bench.world.between.set(Some(elsewhere));
        let answer = bench.send(client("k")).await;
        assert_eq!(answer.text(), "HIT other worker's");
        assert_eq!(answer.trail, "lookup lookup deliver");
        assert_eq!(bench.asked(), 1);
    });
}
