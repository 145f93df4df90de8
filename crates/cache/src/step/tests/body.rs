//! Bodies on their way into the store: truncated, refused, large.

use super::origin::{ok, status};
use super::*;
use crate::reason::Reason;
use crate::slice::{ClientWish, First, Trust};

/// The reason why the last answer of a key was not stored.
fn unstored(bench: &Bench, key: &str) -> Option<Reason> {
    let own = bench.zone.primary(Bytes::copy_from_slice(key.as_bytes()));
    let mark = bench.zone.mark(&own.key, &own.text);
    let noted = bench.zone.unstored.find(&mark);
    noted.and_then(|noted| noted.account.reason)
}

#[test]
fn a_truncated_body_is_never_stored_and_who_reads_it_sees_it_end() {
    for script in [ok("one").pause(10).broken(), ok("one").pause(10).length(7)] {
        run(|bench| async move {
            bench.script([script.after(10), ok("whole")]);
            let running: Vec<_> = (0..3).map(|_| bench.start(client("k"))).collect();
            for (index, one) in running.into_iter().enumerate() {
                let label = if index == 0 { "MISS" } else { "HIT" };
                assert_eq!(one.await.unwrap().text(), format!("{label} one!"));
            }
            assert_eq!(bench.zone.store.usage().entries, 0);
            assert_eq!(unstored(&bench, "k"), Some(Reason::Truncated));
            assert_eq!(bench.get("k").await, "MISS whole");
        });
    }
}

#[test]
fn a_body_that_is_broken_when_its_head_comes_is_asked_for_once_more_by_one() {
    for script in [ok("one").broken(), ok("one").length(7)] {
        run(|bench| async move {
            bench.script([script.after(10), ok("whole").after(10)]);
            let running: Vec<_> = (0..10).map(|_| bench.start(client("k"))).collect();
            let mut texts = Vec::new();
            for one in running {
                texts.push(one.await.unwrap().text());
            }
            assert_eq!(texts.remove(0), "MISS one!");
            texts.sort();
            assert_eq!(texts.pop().unwrap(), "MISS whole");
            assert!(texts.iter().all(|text| text == "HIT whole"), "{texts:?}");
            assert_eq!(bench.asked(), 2);
        });
    }
}

#[test]
fn a_body_that_is_broken_twice_is_a_failure_for_who_waited_for_both() {
    run(|bench| async move {
        bench.script([ok("one").broken().after(10), ok("two").broken().after(10)]);
        let running: Vec<_> = (0..10).map(|_| bench.start(client("k"))).collect();
        let mut texts = Vec::new();
        for one in running {
            texts.push(one.await.unwrap().text());
        }
        assert_eq!(texts.remove(0), "MISS one!");
        texts.sort();
        assert_eq!(texts.pop().unwrap(), "MISS two!");
        let is_told = |text: &String| text == "MISS shared 502";
        assert!(texts.iter().all(is_told), "{texts:?}");
        assert_eq!(bench.asked(), 2);
    });
}

#[test]
fn a_truncated_body_leaves_the_stale_entry() {
    run(|mut bench| async move {
        bench.policies.stale.causes = [StaleCause::Error].into_iter().collect();
        bench.script([ok("old"), ok("half").pause(10).broken()]);
        bench.script([origin::failure(StaleCause::Error, 502)]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        assert_eq!(bench.get("k").await, "EXPIRED half!");
        assert_eq!(bench.get("k").await, "STALE old");
    });
}

#[test]
fn a_body_that_ends_at_once_is_an_entry_at_once() {
    run(|bench| async move {
        bench.script([status(200).cc("max-age=60").length(0), ok("a").length(1)]);
        bench.script([ok("b")]);
        assert_eq!(bench.get("empty").await, "MISS ");
        assert_eq!(bench.get("empty").await, "HIT ");
        assert_eq!(bench.get("a").await, "MISS a");
        assert_eq!(bench.get("a").await, "HIT a");
        assert_eq!(bench.get("b").await, "MISS b");
    });
}

#[test]
fn many_pieces_become_one_body() {
    run(|bench| async move {
        let piece = "0123456789abcdef".repeat(4096);
        let mut script = ok("");
        for at in 0..24 {
            script = script.piece(&piece);
            if at % 5 == 0 {
                script = script.pause(1);
            }
        }
        bench.script([script]);
        let expected = piece.repeat(24);
        let running: Vec<_> = (0..3).map(|_| bench.start(client("k"))).collect();
        for one in running {
            assert!(one.await.unwrap().body.unwrap() == expected);
        }
        assert_eq!(bench.asked(), 1);
        bench.zone.store.flush();
        assert!(bench.send(client("k")).await.body.unwrap() == expected);
    });
}

#[test]
fn a_store_that_refuses_to_begin_lets_everybody_pass() {
    run(|bench| async move {
        let length = 1 << 40;
        bench.script([ok("1").length(length).after(10), ok("2").length(length)]);
        let first = bench.start(client("k"));
        let second = bench.start(client("k"));
        assert_eq!(first.await.unwrap().text(), "MISS 1");
        assert_eq!(second.await.unwrap().text(), "MISS 2");
    });
}

/// A zone that holds less than two mebibytes.
fn small_zone(conf: ZoneConf) -> ZoneConf {
    ZoneConf {
        max_size: Some(2 << 20),
        ..conf
    }
}

#[test]
fn when_the_store_refuses_half_way_all_who_read_get_the_whole() {
    run_on(small_zone, |bench| async move {
        let piece = "0123456789abcdef".repeat(4096);
        let mut script = ok(&piece).after(10).pause(10);
        for _ in 0..39 {
            script = script.piece(&piece).pause(1);
        }
        bench.script([script]);
        let first = bench.start(client("k"));
        let second = bench.start(client("k"));
        let first = first.await.unwrap();
        assert!(first.body.unwrap() == piece.repeat(40));
        assert!(second.await.unwrap().body.unwrap() == piece.repeat(40));
        assert_eq!(bench.asked(), 1);
        assert_eq!(bench.zone.store.usage().entries, 0);
        let why = unstored(&bench, "k");
        assert!(
            matches!(why, Some(Reason::TooLarge | Reason::ZoneFull)),
            "{why:?}"
        );
    });
}

#[test]
fn a_refused_fill_that_breaks_off_is_an_end_for_the_leader_too() {
    let piece = "0123456789abcdef".repeat(4096);
    let mut script = ok(&piece).pause(10);
    for _ in 0..39 {
        script = script.piece(&piece).pause(1);
    }
    let announced = 50 * piece.len() as u64;
    for script in [script.clone().broken(), script.length(announced)] {
        let expected = piece.repeat(40);
        run(|bench| async move {
            bench.io.set(Fault::NoSpace);
            bench.script([script]);
            let body = bench.send(client("k")).await.body;
            assert!(body.unwrap_err() == expected);
            let why = unstored(&bench, "k");
            assert!(
                matches!(why, Some(Reason::DiskError | Reason::Truncated)),
                "{why:?}"
            );
        });
    }
}

#[test]
fn a_refused_fill_whose_client_leaves_ends() {
    run_on(small_zone, |bench| async move {
        let piece = "0123456789abcdef".repeat(4096);
        let mut script = ok(&piece).pause(10);
        for _ in 0..40 {
            script = script.piece(&piece).pause(10);
        }
        bench.script([script]);
        let only = bench.start(client("k"));
        pass_time(Duration::from_millis(380)).await;
        only.abort();
        pass_time(SECOND).await;
        assert!(bench.zone.fills.is_empty());
    });
}

#[test]
fn a_disk_without_space_is_a_miss() {
    run(|bench| async move {
        bench.io.set(Fault::NoSpace);
        let piece = "0123456789abcdef".repeat(64 << 10);
        bench.script([ok(&piece).pause(10).piece(&piece), ok("small")]);
        let body = bench.send(client("k")).await.body;
        assert!(body.unwrap() == piece.repeat(2));
        assert_eq!(bench.get("small").await, "MISS small");
    });
}

#[test]
fn a_closed_zone_passes_everything() {
    run(|bench| async move {
        bench.script([ok("1"), ok("2")]);
        bench.get("k").await;
        bench.zone.store.close();
        assert_eq!(bench.get("k").await, "MISS 2");
    });
}

#[test]
fn why_a_slice_was_not_stored_is_remembered() {
    const SIZE: u64 = 2 << 20;
    let body = "0123456789abcdef".repeat(2 * SIZE as usize / 16);
    let answer = status(206)
        .cc("max-age=60")
        .field("ETag", "\"v\"")
        .field("Content-Range", "bytes 0-4194303/4194304");
    for (script, why) in [
        (answer.clone().piece("half").broken(), Reason::Truncated),
        (answer.piece(&body), Reason::TooLarge),
    ] {
        run_on(small_zone, |bench| async move {
            bench.script([script]);
            let mut walk = bench.walk(&client("k"));
            walk.slicing = Some(Slicing {
                size: SIZE,
                first: First::Range,
                client: ClientWish::Whole,
                is_conditional: false,
                confirms: false,
                trust: Trust::Validated,
            });
            bench.start_walk(walk, client("k")).await.unwrap();
            pass_time(SECOND).await;
            assert_eq!(unstored(&bench, "k"), Some(why));
        });
    }
}
