//! Purges: what is found after them, by whom, and what becomes of fills that run.

use super::origin::{failure, ok, status};
use super::*;
use crate::purge::{Mode, Target};

const MS: Duration = Duration::from_millis(1);

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// All targets that are about what is stored under "k" with the tag "t".
fn targets() -> Vec<Target> {
    vec![
        Target::Key(text("k")),
        Target::Prefix(text("k")),
        Target::Prefix(text("")),
        Target::Wildcard(text("*k*")),
        Target::Host(text("HOST")),
        Target::Site(text("site")),
        Target::Tags(vec![text("none"), text("t")]),
        Target::All,
    ]
}

impl Bench {
    fn now_ms(&self) -> u64 {
        self.world.now() as u64 * 1000
    }

    fn purge(&self, target: &Target, mode: Mode) -> Option<bool> {
        let purged = self.zone.purge(target, mode, self.now_ms()).unwrap();
        purged.was_there
    }

    /// Label and body of a request that tags its answer "t".
    async fn tagged(&self, key: &'static str) -> String {
        self.get_with(key, "tags", "s t").await
    }
}

#[test]
fn a_hard_purge_of_any_kind_is_a_miss_from_then_on() {
    for target in targets() {
        run(|bench| async move {
            bench.script([ok("old"), ok("new")]);
            assert_eq!(bench.tagged("k").await, "MISS old");
            let count = bench.zone.count_purged(&target, &|| false);
            assert_eq!(count, Some(1), "{target:?}");
            assert_eq!(
                bench.tagged("k").await,
                "HIT old",
                "counting purges nothing"
            );
            bench.purge(&target, Mode::Hard);
            assert_eq!(bench.tagged("k").await, "MISS new", "{target:?}");
            assert_eq!(bench.tagged("k").await, "HIT new", "{target:?}");
        });
    }
}

#[test]
fn a_soft_purge_of_any_kind_makes_stale() {
    for target in targets() {
        run(|mut bench| async move {
            bench.policies.stale.causes = [StaleCause::Error].into_iter().collect();
            bench.policies.revalidate.conditional = true;
            bench.script([ok("old").field("ETag", "1")]);
            bench.tagged("k").await;
            bench.purge(&target, Mode::Soft);
            bench.script([failure(StaleCause::Error, 502), status(304)]);
            assert_eq!(bench.tagged("k").await, "STALE old", "{target:?}");
            assert_eq!(bench.tagged("k").await, "REVALIDATED old", "{target:?}");
            assert_eq!(bench.ask(2).if_none_match.unwrap(), "1");
            assert_eq!(bench.tagged("k").await, "HIT old", "{target:?}");
        });
    }
}

#[test]
fn stale_while_revalidate_counts_from_a_soft_purge() {
    run(|bench| async move {
        let swr = "max-age=1000, stale-while-revalidate=10";
        bench.script([ok("old").cc(swr)]);
        bench.get("k").await;
        pass_time(100 * SECOND).await;
        bench.purge(&Target::All, Mode::Soft);
        let mut policies = bench.policies.clone();
        policies.revalidate.in_background = true;
        bench.script([ok("new")]);
        let served = bench.send(client("k").under(policies)).await;
        assert_eq!(served.text(), "STALE old");
        pass_time(MS).await;
        assert_eq!(bench.get("k").await, "HIT new");
    });
}

#[test]
fn others_are_not_touched() {
    let others = [
        Target::Key(text("kk")),
        Target::Prefix(text("kk")),
        Target::Wildcard(text("k*k")),
        Target::Host(text("site")),
        Target::Site(text("host")),
        Target::Tags(vec![text("T"), text("k"), text("")]),
    ];
    run(|bench| async move {
        bench.script([ok("old")]);
        bench.tagged("k").await;
        for target in others {
            for mode in [Mode::Soft, Mode::Hard] {
                bench.purge(&target, mode);
                assert_eq!(bench.tagged("k").await, "HIT old", "{target:?}");
            }
        }
    });
}

#[test]
fn a_purge_of_a_key_says_whether_there_was_an_entry() {
    run(|bench| async move {
        bench.script([ok("old")]);
        let key = Target::Key(text("k"));
        assert_eq!(bench.purge(&key, Mode::Hard), Some(false));
        bench.get("k").await;
        assert_eq!(bench.purge(&key, Mode::Soft), Some(true));
        assert_eq!(bench.purge(&key, Mode::Hard), Some(true));
        assert_eq!(bench.purge(&key, Mode::Hard), Some(false));
        assert_eq!(bench.purge(&Target::All, Mode::Hard), None);
    });
}

#[test]
fn all_variants_go_at_once() {
    run(|bench| async move {
        let varied = |body| ok(body).field("Vary", "Accept");
        bench.script([varied("A"), varied("B"), varied("A2"), varied("B2")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        let key = Target::Key(text("k"));
        assert_eq!(bench.zone.count_purged(&key, &|| false), Some(2));
        bench.purge(&key, Mode::Hard);
        assert_eq!(bench.get_with("k", "accept", "a").await, "MISS A2");
        assert_eq!(bench.get_with("k", "accept", "b").await, "MISS B2");
    });
}

#[test]
fn a_fill_that_began_before_is_neither_joined_nor_found() {
    for target in targets() {
        run(|bench| async move {
            // Purged before its head, after its head, and right before its end.
            for (head, body, purge) in [(100, 0, 50), (10, 100, 50), (0, 100, 50)] {
                bench.script([
                    ok("old ").after(head).pause(body).piece("end"),
                    ok("new ").after(100).piece("end"),
                ]);
                let tagged = || client("k").field("tags", "t");
                let old = bench.start(tagged());
                pass_time(purge * MS).await;
                bench.purge(&target, Mode::Hard);
                let new = bench.start(tagged());
                assert_eq!(old.await.unwrap().text(), "MISS old end", "{target:?}");
                let found = new.await.unwrap().text();
                assert!(found.ends_with("new end"), "{found} {target:?}");
                assert_eq!(bench.tagged("k").await, "HIT new end", "{target:?}");
                bench.purge(&Target::All, Mode::Hard);
            }
        });
    }
}

#[test]
fn what_began_before_is_not_found_when_the_rule_is_gone_either() {
    for target in targets() {
        run(|bench| async move {
            bench.script([ok("old ").pause(100).piece("end").after(10), ok("new")]);
            let old = bench.start(client("k").field("tags", "t"));
            pass_time(50 * MS).await;
            bench.purge(&target, Mode::Hard);
            // The head is known, so the rule need not wait for the end.
            assert!(
                bench
                    .zone
                    .sweep_purges(u64::MAX, &|| false)
                    .unwrap()
                    .is_complete
            );
            assert_eq!(bench.zone.purges.rule_count(), 0);
            assert_eq!(old.await.unwrap().text(), "MISS old end", "{target:?}");
            assert_eq!(bench.tagged("k").await, "MISS new", "{target:?}");
        });
    }
}

#[test]
fn a_rule_waits_for_fills_whose_head_is_not_known() {
    run(|bench| async move {
        bench.script([ok("old").after(100), ok("new")]);
        let old = bench.start(client("k").field("tags", "t"));
        pass_time(50 * MS).await;
        bench.purge(&Target::Tags(vec![text("t")]), Mode::Hard);
        bench.zone.sweep_purges(u64::MAX, &|| false);
        assert_eq!(bench.zone.purges.rule_count(), 1);
        old.await.unwrap();
        assert_eq!(bench.tagged("k").await, "MISS new");
        bench.zone.sweep_purges(u64::MAX, &|| false);
        assert_eq!(bench.zone.purges.rule_count(), 0);
        assert_eq!(bench.tagged("k").await, "HIT new");
    });
}

#[test]
fn a_revalidation_that_began_before_renews_nothing() {
    run(|mut bench| async move {
        bench.policies.revalidate.conditional = true;
        bench.script([ok("old"), status(304).after(100), ok("new")]);
        bench.get("k").await;
        pass_time(61 * SECOND).await;
        let old = bench.start(client("k"));
        pass_time(50 * MS).await;
        bench.purge(&Target::Prefix(text("k")), Mode::Hard);
        assert_eq!(old.await.unwrap().text(), "REVALIDATED old");
        assert_eq!(bench.get("k").await, "MISS new");
    });
}

#[test]
fn remembered_failures_are_purged() {
    for target in [
        Target::Key(text("k")),
        Target::All,
        Target::Host(text("host")),
    ] {
        run(|mut bench| async move {
            bench.policies.valid.times = vec![valid(&[], 60)];
            bench.script([failure(StaleCause::Error, 502), ok("new")]);
            assert_eq!(bench.get("k").await, "MISS failed 502");
            assert_eq!(bench.get("k").await, "HIT shared 502");
            bench.purge(&target, Mode::Hard);
            assert_eq!(bench.get("k").await, "MISS new");
        });
    }
}

#[test]
fn a_sweep_frees_what_is_purged_and_keeps_what_is_stale() {
    run(|mut bench| async move {
        bench.policies.stale.causes = [StaleCause::Error].into_iter().collect();
        bench.script(["a", "b", "c"].map(ok));
        for key in ["a", "b", "c"] {
            bench.get(key).await;
        }
        bench.purge(&Target::Prefix(text("a")), Mode::Hard);
        bench.purge(&Target::Prefix(text("b")), Mode::Soft);
        let swept = bench.zone.sweep_purges(u64::MAX, &|| false).unwrap();
        assert_eq!((swept.removed, swept.changed), (1, 1));
        assert_eq!(bench.zone.purges.rule_count(), 0);
        assert_eq!(bench.zone.sweep_purges(u64::MAX, &|| false), None);
        assert_eq!(bench.zone.store.usage().entries, 2);
        bench.script([failure(StaleCause::Error, 502)]);
        assert_eq!(bench.get("b").await, "STALE b");
        assert_eq!(bench.get("c").await, "HIT c");
    });
}

#[test]
fn a_purge_that_cannot_be_written_down_is_none() {
    run(|bench| async move {
        bench.script([ok("old"), ok("new")]);
        bench.get("k").await;
        bench.zone.store.flush();
        bench.io.set(Fault::WriteError);
        let refused = bench.zone.purge(&Target::All, Mode::Hard, bench.now_ms());
        assert!(refused.is_err());
        bench.io.set(Fault::None);
        assert_eq!(bench.get("k").await, "HIT old");
        bench.purge(&Target::All, Mode::Hard);
        assert_eq!(bench.get("k").await, "MISS new");
    });
}

#[test]
fn a_zone_that_is_opened_again_obeys_its_purges() {
    for target in targets() {
        run(|bench| async move {
            bench.script([ok("old"), ok("new")]);
            bench.tagged("k").await;
            bench.purge(&target, Mode::Hard);
            bench.zone.store.lend();
            bench.zone.store.take_back().unwrap();
            let zone = CacheZone::new("again".to_string(), Arc::clone(&bench.zone.store));
            let bench = Bench {
                zone: Arc::new(zone),
                ..bench
            };
            assert_eq!(bench.tagged("k").await, "MISS new", "{target:?}");
            assert_eq!(bench.tagged("k").await, "HIT new", "{target:?}");
        });
    }
}

/// Purges are taken by the process that has the zone, and here nobody hears of them: so nobody
/// joins what is being fetched here, whenever it began; who reads it already goes on.
#[test]
fn nobody_joins_a_fill_while_the_zone_is_lent() {
    run(|bench| async move {
        bench.script([
            ok("1").pause(1000).piece("2"),
            ok("3").pause(1000).piece("4"),
            ok("5"),
            ok("6").pause(1000).piece("7"),
        ]);
        let before = bench.start(client("k"));
        pass_time(SECOND / 2).await;
        bench.zone.lend();
        let meanwhile = bench.start(client("k"));
        pass_time(SECOND / 4).await;
        assert_eq!(bench.get("k").await, "MISS 5");
        assert_eq!(before.await.unwrap().text(), "MISS 12");
        assert_eq!(meanwhile.await.unwrap().text(), "MISS 34");
        bench.zone.store.take_back().unwrap();
        bench.zone.reload_purges();
        let first = bench.start(client("k"));
        pass_time(SECOND / 4).await;
        let second = bench.start(client("k"));
        assert_eq!(first.await.unwrap().text(), "MISS 67");
        assert!(second.await.unwrap().text().ends_with(" 67"), "joined");
    });
}
