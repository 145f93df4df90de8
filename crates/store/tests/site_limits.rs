//! Limits of sites: a site never holds more, loses its own entries that were used longest ago and
//! nobody else's, also when many threads fill, after a restart, and with several disks; who reads
//! an entry that leaves reads all of it.

#[path = "support/classify.rs"]
mod classify;
#[path = "support/read.rs"]
mod read;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    DiskConf, Entry, Key, ManualClock, NotStored, Platform, SiteBook, SiteLimit, Zone, ZoneConf,
};

use classify::classify;
use read::read as read_all;

const START_MS: u64 = 1_790_000_000_000;
const LIMIT: u64 = 100_000;

struct Bench {
    zone: Arc<Zone>,
    clock: Arc<ManualClock>,
    conf: ZoneConf,
}

impl Bench {
    fn new(dir: &Path) -> Self {
        Self::with(ZoneConf {
            max_size: Some(16 << 20),
            segment_size: Some(256 << 10),
            inactive: Duration::from_secs(600),
            flush: Duration::ZERO,
            ..ZoneConf::new("limits", dir)
        })
    }

    fn with(conf: ZoneConf) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let zone = open(&conf, &clock);
        Self { zone, clock, conf }
    }

    fn reopen(&mut self) {
        self.zone.close();
        self.zone = open(&self.conf, &self.clock);
        assert!(self.zone.loaded());
    }

    /// Stores an entry, a second after the one before.
    fn put(&self, head: &str, len: usize) -> Result<Entry, NotStored> {
        self.clock.advance(Duration::from_secs(1));
        put(&self.zone, head, len)
    }

    fn has(&self, head: &str) -> bool {
        self.zone.peek(&Key::of(head.as_bytes()))
    }

    fn held(&self, site: &str) -> u64 {
        let all = self.zone.sites();
        let own = all.iter().filter(|it| it.site == site.as_bytes());
        own.map(|it| it.held.disk_bytes).sum()
    }

    fn limit(&self, site: &str) -> SiteLimit {
        let all = self.zone.limited_sites();
        let own = all.into_iter().find(|it| it.site == site.as_bytes());
        own.expect("a limit")
    }
}

fn open(conf: &ZoneConf, clock: &Arc<ManualClock>) -> Arc<Zone> {
    let platform = Platform {
        sites: Arc::new(SiteBook::new(classify)),
        ..Platform::default()
    };
    let zone = Zone::open_on(conf.clone(), clock.clone(), platform).expect("open");
    assert!(zone.limit_sites([(&b"small"[..], LIMIT)]).is_empty());
    zone
}

fn put(zone: &Zone, head: &str, len: usize) -> Result<Entry, NotStored> {
    let mut writer = zone.begin(Key::of(head.as_bytes()), Some(len as u64))?;
    writer.set_head(Bytes::copy_from_slice(head.as_bytes()));
    writer.append(Bytes::from(vec![7; len]))?;
    writer.finish()
}

#[test]
fn what_was_used_longest_ago_leaves_and_only_of_the_site_itself() {
    let dir = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    for number in 0..20 {
        bench.put(&format!("other/{number}"), 9000).expect("stored");
    }
    let others = bench.held("other");
    for number in 0..10 {
        bench.put(&format!("small/{number}"), 9000).expect("stored");
    }
    assert_eq!(bench.limit("small").evicted, 0);
    bench.clock.advance(Duration::from_secs(1));
    for number in [0, 3] {
        let key = Key::of(format!("small/{number}").as_bytes());
        assert!(bench.zone.find(&key).is_some());
    }
    for number in 10..14 {
        bench.put(&format!("small/{number}"), 9000).expect("stored");
        assert!(bench.held("small") <= LIMIT);
    }
    let left: Vec<_> = (0..14)
        .filter(|it| bench.has(&format!("small/{it}")))
        .collect();
    // 1 and 2 were used before 3, which was asked for again, as 0 was.
    let held = left.len() as u64;
    let first_kept = 14 - held + 2;
    let expected: Vec<_> = [0, 3].into_iter().chain(first_kept..14).collect();
    assert_eq!(left, expected);
    assert_eq!(bench.held("other"), others);
    let limit = bench.limit("small");
    assert_eq!(
        (limit.bytes, limit.evicted, limit.refused),
        (LIMIT, 14 - held, 0)
    );
    assert_eq!(limit.held, bench.held("small"));
    let departed = bench.zone.departed();
    let evicted: BTreeMap<_, _> = departed
        .iter()
        .map(|it| (&it.0[..], it.1.evicted))
        .collect();
    assert_eq!(evicted.get(&b"small"[..]), Some(&(14 - held)));
    assert_eq!(evicted.get(&b"other"[..]), None);
}

#[test]
fn entry_in_the_place_of_another_one_needs_the_difference() {
    let dir = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    bench.put("small/a", 60_000).expect("stored");
    bench.put("small/b", 30_000).expect("stored");
    bench.put("small/a", 65_000).expect("stored");
    assert!(bench.has("small/b"));
    bench.put("small/a", 80_000).expect("stored");
    assert!(bench.has("small/a") && !bench.has("small/b"));
    // A head that grows is charged, too.
    let entry = bench.zone.find(&Key::of(b"small/a")).expect("there");
    let head = Bytes::from([&b"small/"[..], &[b'x'; 30_000]].concat());
    let refused = bench.zone.replace_head(&entry, head).map(drop);
    assert_eq!(refused, Err(NotStored::SiteFull));
    assert!(bench.held("small") <= LIMIT);
}

#[test]
fn entry_that_is_larger_than_the_limit_is_refused_and_costs_nobody_anything() {
    let dir = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    bench.put("small/a", 50_000).expect("stored");
    let refused = bench.put("small/b", LIMIT as usize).map(drop);
    assert_eq!(refused, Err(NotStored::SiteFull));
    assert!(bench.has("small/a"));
    assert_eq!(bench.limit("small").refused, 1);
    let mut writer = bench.zone.begin(Key::of(b"c"), None).expect("begun");
    writer.set_head(Bytes::from_static(b"small/c"));
    assert_eq!(writer.fits_site(), Ok(()));
    // Its first bytes say so.
    let longer = Bytes::from(vec![0; LIMIT as usize + 1]);
    assert_eq!(writer.append(longer), Err(NotStored::SiteFull));
    assert_eq!(bench.limit("small").refused, 2);
    let mut writer = bench
        .zone
        .begin(Key::of(b"d"), Some(LIMIT + 1))
        .expect("begun");
    writer.set_head(Bytes::from_static(b"small/d"));
    assert_eq!(writer.fits_site(), Err(NotStored::SiteFull));
    bench.put("other/b", LIMIT as usize * 2).expect("stored");
}

/// The head of a body in slices is older than they are, and they are of no use without it.
#[test]
fn head_of_a_body_in_slices_outlasts_them() {
    let dir = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    bench.put("small/head", 0).expect("stored");
    for number in 0..30 {
        bench.put(&format!("small+{number}"), 9000).expect("stored");
        assert!(bench.held("small") <= LIMIT);
    }
    assert!(bench.has("small/head") && bench.has("small+29") && !bench.has("small+0"));
    bench.clock.advance(Duration::from_secs(300));
    for number in 30..33 {
        bench.put(&format!("small+{number}"), 9000).expect("stored");
    }
    assert!(bench.has("small/head"));
}

#[test]
fn who_reads_an_entry_that_leaves_reads_all_of_it() {
    let dir = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    let read_on = bench.put("small/read", 90_000).expect("stored");
    bench.zone.flush();
    bench.put("small/next", 50_000).expect("stored");
    assert!(!bench.has("small/read"));
    bench.zone.flush();
    bench.zone.sweep();
    assert_eq!(read_all(read_on.regions(0..read_on.len())), vec![7; 90_000]);
}

#[test]
fn limits_hold_after_restarts_and_those_that_are_lowered_by_the_next_sweeps() {
    let dir = tempfile::tempdir().expect("dir");
    let mut bench = Bench::new(dir.path());
    for number in 0..30 {
        bench.put(&format!("small/{number}"), 9000).expect("stored");
    }
    let held = bench.held("small");
    bench.zone.flush();
    bench.reopen();
    assert_eq!(bench.held("small"), held);
    for number in 30..40 {
        bench.put(&format!("small/{number}"), 9000).expect("stored");
        assert!(bench.held("small") <= LIMIT);
    }
    assert!(bench.has("small/39") && bench.has("small/31") && !bench.has("small/29"));
    bench.zone.limit_sites([(&b"small"[..], 30_000)]);
    bench.zone.sweep();
    assert!(bench.held("small") <= 30_000);
    assert!(bench.has("small/39") && bench.has("small/38") && !bench.has("small/31"));
    bench.zone.limit_sites([]);
    assert!(bench.zone.limited_sites().is_empty());
    for number in 40..60 {
        bench.put(&format!("small/{number}"), 9000).expect("stored");
    }
    assert!(bench.held("small") > LIMIT);
    // What came without a limit is known to the next one.
    bench.zone.limit_sites([(&b"small"[..], LIMIT)]);
    bench.zone.sweep();
    assert!(bench.held("small") <= LIMIT);
    assert!(bench.has("small/59") && !bench.has("small/45"));
}

/// Fills for two sites, and removes now and then. Nothing but a full queue may refuse one.
fn fill_and_remove(zone: &Zone, thread: usize) {
    for number in 0..400_usize {
        let site = if number % 4 == 0 { "tiny" } else { "small" };
        let head = format!("{site}/{thread}/{}", number % 60);
        let stored = put(zone, &head, 500 + number * 37 % 9000);
        assert!(stored.map_or_else(|why| why == NotStored::QueueFull, |_| true));
        if number % 50 == thread {
            zone.remove(&Key::of(head.as_bytes()));
        }
    }
}

/// Threads fill for two limited sites, and another one looks all the time.
#[test]
fn limits_hold_at_every_moment_while_many_fill() {
    let dir = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    let limits = [(&b"small"[..], LIMIT), (&b"tiny"[..], LIMIT / 4)];
    bench.zone.limit_sites(limits);
    for number in 0..50 {
        bench.put(&format!("other/{number}"), 5000).expect("stored");
    }
    let others = bench.held("other");
    let are_done = AtomicBool::new(false);
    let look = || {
        while !are_done.load(Ordering::Acquire) {
            bench.zone.sweep();
            assert!(bench.held("small") <= LIMIT);
            assert!(bench.held("tiny") <= LIMIT / 4);
        }
    };
    std::thread::scope(|scope| {
        let zone = &bench.zone;
        let fillers = [0, 1, 2, 3].map(|it| scope.spawn(move || fill_and_remove(zone, it)));
        scope.spawn(look);
        let ended = fillers.map(|it| it.join());
        are_done.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_eq!(bench.held("other"), others);
    assert!(bench.limit("small").evicted > 0 && bench.limit("tiny").evicted > 0);
    assert!(bench.held("small") > LIMIT / 2);
}

#[test]
fn limit_is_one_of_all_disks_and_counts_slices() {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("dir"));
    let bench = Bench::with(ZoneConf {
        max_size: Some(16 << 20),
        segment_size: Some(256 << 10),
        flush: Duration::ZERO,
        disks: vec![DiskConf {
            path: two.path().join("zone"),
            weight: 1,
        }],
        ..ZoneConf::new("limits", one.path().join("zone"))
    });
    let mut refused = 0;
    for number in 0..60 {
        let head = format!("small+{number}");
        refused += u32::from(bench.put(&head, 9000).is_err());
        assert!(bench.held("small") <= LIMIT);
        // Of two disks one may have nothing of the site that could leave; a sweep sees to that.
        bench.zone.sweep();
    }
    assert!(refused < 10, "{refused}");
    let by_disk = bench.zone.sites();
    assert_eq!(by_disk.iter().filter(|it| it.held.slices > 0).count(), 2);
    // As large as all of it: what stands on the other disk goes, too.
    let whole = (0..3).any(|_| {
        let stored = bench.put("small/whole", LIMIT as usize - 2000).is_ok();
        bench.zone.sweep();
        stored
    });
    assert!(whole && bench.held("small") <= LIMIT);
}

#[test]
fn number_that_none_is_left_for_has_no_limit_and_the_others_together_may_have_one() {
    let dir = tempfile::tempdir().expect("dir");
    let book = Arc::new(SiteBook::with_room(classify, 4));
    let platform = Platform {
        sites: Arc::clone(&book),
        ..Platform::default()
    };
    let clock = Arc::new(ManualClock::new(START_MS));
    let conf = ZoneConf::new("limits", dir.path());
    let zone = Zone::open_on(conf, clock, platform).expect("open");
    let limits = ["a", "b", "c", "*"].map(|site| (site.as_bytes(), LIMIT));
    assert_eq!(zone.limit_sites(limits), [Bytes::from_static(b"c")]);
    for number in 0..40 {
        put(&zone, &format!("c/{number}"), 5000).expect("stored");
    }
    let limited = zone.limited_sites();
    let excess = limited.iter().find(|it| it.site == "*").expect("a limit");
    assert!(excess.evicted > 0 && excess.held <= LIMIT);
}
