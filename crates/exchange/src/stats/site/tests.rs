//! Counters of sites: sums over workers, and sites without a number.

use super::*;

#[test]
fn workers_are_summed_by_site_and_status() {
    let sites = Sites::default();
    let id = |name| sites.enter(0).id(name, Claim::Written);
    let (one, two) = (id(b"one"), id(b"two"));
    let answer = |status, cache, origin| Answered {
        label: Label::of(status),
        bytes: cache + origin,
        shares: Shares { cache, origin },
    };
    for (place, status, (cache, origin)) in [
        (0, Some("HIT"), (10, 0)),
        (17, Some("HIT"), (3, 2)),
        (1, None, (0, 1)),
    ] {
        let place = Place::shared(place);
        let counting = sites.enter(place.shard());
        counting.answered(place, one, &answer(status, cache, origin));
    }
    sites.enter(1).exchanged(two, (100, 30));
    let found = sites.snapshot();
    let names: Vec<&[u8]> = found.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [EXCESS, b"one", b"two"]);
    let hits = Count {
        requests: 2,
        bytes: 15,
    };
    assert_eq!(found[1].1.by_status().next(), Some(("HIT", hits)));
    assert_eq!(found[1].1.total().requests, 3);
    let shares = Shares {
        cache: 13,
        origin: 3,
    };
    assert_eq!(found[1].1.shares, shares);
    let exchanges = (found[2].1.exchanges, found[2].1.received, found[2].1.asked);
    assert_eq!(exchanges, (1, 100, 30));
}

fn count(sites: &Sites, name: &str, claim: Claim) {
    let counting = sites.enter(0);
    let id = counting.id(name.as_bytes(), claim);
    counting.exchanged(id, (1, 0));
}

fn counted(sites: &Sites, name: &str) -> Option<u64> {
    let mut all = sites.snapshot().into_iter();
    let found = all.find(|(known, _)| known == name);
    found.map(|(_, count)| count.exchanges)
}

#[test]
fn names_that_were_made_up_get_no_number() {
    let sites = Sites::default();
    for number in 0..SITES_MAX + 10 {
        count(&sites, &format!("invented-{number}"), Claim::None);
    }
    assert_eq!(sites.names().len(), 1);
    assert_eq!(counted(&sites, "*"), Some(SITES_MAX as u64 + 10));
    sites.expect(HashSet::from([Bytes::from_static(b"customer")]));
    count(&sites, "customer", Claim::None);
    assert_eq!(counted(&sites, "customer"), Some(1));
}

#[test]
fn the_oldest_make_room_and_nothing_is_lost() {
    let sites = Sites::default();
    sites.expect(HashSet::from([Bytes::from_static(b"customer")]));
    let all = SITES_MAX + 10;
    for number in 0..all {
        count(&sites, &format!("stored-{number}"), Claim::Kept);
    }
    assert_eq!(sites.read().free_count(), 0);
    assert_eq!(counted(&sites, "*"), Some(12));
    sites.tend(2);
    assert_eq!(sites.read().free_count(), 2 * RESERVE);
    assert_eq!(counted(&sites, "stored-0"), None);
    assert_eq!(counted(&sites, "customer"), Some(0));
    // Names that come now have numbers, and the others' counts.
    count(&sites, "new", Claim::Kept);
    assert_eq!(counted(&sites, "new"), Some(1));
    let sum: u64 = sites
        .snapshot()
        .iter()
        .map(|(_, count)| count.exchanges)
        .sum();
    assert_eq!(sum, all as u64 + 1);
    // Enough are free now.
    sites.tend(2);
    assert_eq!(sites.read().free_count(), 2 * RESERVE - 1);
    sites.tend(3);
    count(&sites, "stored-3000", Claim::Kept);
    // More names are said than there are free numbers: the oldest go, and what was counted just
    // now stays.
    let said = |number| Bytes::from(format!("said-{number}"));
    sites.expect((0..SITES_MAX - 3).map(said).collect());
    assert_eq!(counted(&sites, "said-0"), Some(0));
    assert_eq!(counted(&sites, "stored-3000"), Some(2));
    assert_eq!(
        sites.names().iter().filter(|it| !it.is_empty()).count(),
        SITES_MAX
    );
}

#[test]
fn a_reset_begins_anew_and_keeps_the_sum() {
    let sites = Sites::default();
    sites.expect(HashSet::from([Bytes::from_static(b"customer")]));
    for name in ["customer", "one", "two"] {
        count(&sites, name, Claim::Kept);
    }
    assert_eq!(sites.reset(Some(b"nobody")), 0);
    assert_eq!(sites.reset(Some(b"*")), 0);
    assert_eq!(sites.reset(Some(b"customer")), 1);
    assert_eq!(counted(&sites, "customer"), Some(0));
    assert_eq!(sites.reset(None), 2);
    assert_eq!(
        (counted(&sites, "one"), counted(&sites, "*")),
        (None, Some(3))
    );
}

/// Threads count under names whose numbers are taken from under them all the time: nothing is
/// counted under another name, and nothing is lost.
#[test]
fn numbers_that_change_hands_never_mix_sites() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 3000;
    let (sites, places) = (Sites::default(), super::super::place::Places::default());
    let is_over = AtomicBool::new(false);
    let named = |thread: usize, round: usize| {
        // Each thread has names of its own, which count so many bytes as they say.
        let bytes = thread * 100 + round % 20 + 1;
        (format!("bytes-{bytes}"), bytes as u64)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (sites, places) = (&sites, &places);
                scope.spawn(move || {
                    let taken = places.take(thread);
                    for round in 0..ROUNDS {
                        let (name, bytes) = named(thread, round);
                        let counting = sites.enter(taken.place.shard());
                        let id = counting.id(name.as_bytes(), Claim::Kept);
                        let shares = Shares::default();
                        let label = Label::of(None);
                        let answer = Answered {
                            label,
                            bytes,
                            shares,
                        };
                        counting.answered(taken.place, id, &answer);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                sites.reset(None);
                for (name, count) in sites.snapshot() {
                    assert_is_own(&name, &count);
                }
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let all = sites.snapshot();
    let requests: u64 = all.iter().map(|(_, count)| count.total().requests).sum();
    let bytes: u64 = all.iter().map(|(_, count)| count.total().bytes).sum();
    let expected = (0..THREADS).flat_map(|thread| (0..ROUNDS).map(move |it| named(thread, it).1));
    assert_eq!(requests, (THREADS * ROUNDS) as u64);
    assert_eq!(bytes, expected.sum::<u64>());
}

fn assert_is_own(name: &Bytes, count: &SiteCount) {
    let name = std::str::from_utf8(name).unwrap();
    let Some(each) = name.strip_prefix("bytes-") else {
        return;
    };
    let (each, total) = (each.parse::<u64>().unwrap(), count.total());
    // An answer is counted before its bytes are.
    let missing = (total.requests * each).saturating_sub(total.bytes);
    assert!(
        missing <= each && total.bytes % each == 0,
        "{name}: {total:?}"
    );
}
