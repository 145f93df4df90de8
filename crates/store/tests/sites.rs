//! Counts of what sites hold: right after filling, after restarts and crashes, after removal by
//! inactivity, on demand and for space, and on which disk; always what a walk through all heads
//! comes to.

#[path = "support/classify.rs"]
mod classify;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Departed, DiskConf, Held, Key, Looked, ManualClock, Platform, Role, SiteBook, Zone, ZoneConf,
};

use classify::classify;

const START_MS: u64 = 1_790_000_000_000;

struct Bench {
    zone: Arc<Zone>,
    clock: Arc<ManualClock>,
    conf: ZoneConf,
}

impl Bench {
    fn new(dir: &Path) -> Self {
        Self::with(ZoneConf {
            max_size: Some(4 << 20),
            segment_size: Some(64 << 10),
            inactive: Duration::from_secs(600),
            // Nobody evicts while a test counts: what is synced first leaves at its own time.
            flush: Duration::ZERO,
            ..ZoneConf::new("sites", dir)
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

    fn put(&self, head: &str, len: usize) {
        let mut writer = self
            .zone
            .begin(Key::of(head.as_bytes()), None)
            .expect("room");
        writer.set_head(Bytes::copy_from_slice(head.as_bytes()));
        writer.append(Bytes::from(vec![7; len])).expect("room");
        writer.finish().expect("stored");
        self.zone.flush();
    }

    /// Entries, slices and bytes of bodies of a site, after what is counted was compared with all
    /// heads.
    fn held(&self, site: &str) -> (u64, u64, u64) {
        let counted = self.counted();
        assert_eq!(counted, self.walked());
        let held = counted.get(site).copied().unwrap_or_default();
        (held.entries, held.slices, held.body_bytes)
    }

    fn counted(&self) -> BTreeMap<String, Held> {
        let mut counted = BTreeMap::<String, Held>::new();
        for one in self.zone.sites() {
            let site = String::from_utf8(one.site.to_vec()).expect("a name");
            counted.entry(site).or_default().add(&one.held);
        }
        counted
    }

    fn walked(&self) -> BTreeMap<String, Held> {
        let mut walked = BTreeMap::<String, Held>::new();
        let flow = self.zone.inspect(&mut |glance| {
            let Looked::Found(record) = glance.read() else {
                panic!("{} is not read", glance.key());
            };
            let class = classify(&record.head);
            let site = String::from_utf8(class.site.to_vec()).expect("a name");
            walked.entry(site).or_default().add(&Held {
                entries: u64::from(class.role == Role::Entry),
                slices: u64::from(class.role == Role::Slice),
                disk_bytes: glance.summary().disk_size,
                body_bytes: glance.summary().body_len,
            });
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
        walked
    }

    fn departed(&self, site: &str) -> Departed {
        let all = self.zone.departed().into_iter();
        let found = all.filter(|(name, _)| name == site.as_bytes());
        found
            .map(|(_, departed)| departed)
            .next()
            .unwrap_or_default()
    }
}

fn open(conf: &ZoneConf, clock: &Arc<ManualClock>) -> Arc<Zone> {
    let platform = Platform {
        sites: Arc::new(SiteBook::new(classify)),
        ..Platform::default()
    };
    Zone::open_on(conf.clone(), clock.clone(), platform).expect("open")
}

#[test]
fn sites_hold_what_was_stored_for_them_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("dir");
    let mut bench = Bench::new(dir.path());
    bench.put("one/a", 100);
    bench.put("one/b", 20_000);
    bench.put("one+b0", 30_000);
    bench.put("two/a", 5);
    bench.put("no name", 1);
    for _ in 0..3 {
        assert_eq!(bench.held("one"), (2, 1, 50_100));
        assert_eq!(bench.held("two"), (1, 0, 5));
        assert_eq!(bench.held(""), (1, 0, 1));
        bench.reopen();
    }
    // What comes in its place counts in its place.
    let key = Key::of(b"two/a");
    let entry = bench.zone.find(&key).expect("there");
    let renewed = bench
        .zone
        .replace_head(&entry, Bytes::from_static(b"two/a, renewed"));
    assert!(renewed.is_ok());
    assert_eq!(bench.departed("two"), Departed::default());
    bench.put("one/a", 300);
    assert_eq!(bench.held("one"), (2, 1, 50_300));
    assert_eq!(bench.departed("one").replaced, 1);
    bench.reopen();
    assert_eq!(bench.held("one"), (2, 1, 50_300));
    assert_eq!(bench.held("two"), (1, 0, 5));
}

#[test]
fn sites_hold_what_a_killed_process_left() {
    let dir = tempfile::tempdir().expect("dir");
    let copy = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    for number in 0..40 {
        bench.put(&format!("site {}/{number}", number % 3), 5000);
    }
    bench.zone.remove(&Key::of(b"site 0/0"));
    // From then on it outlives the process.
    bench.zone.flush();
    let expected = bench.counted();
    for file in std::fs::read_dir(dir.path()).expect("list") {
        let file = file.expect("file");
        std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("copy");
    }
    let mut after = Bench::new(copy.path());
    assert!(after.zone.loaded());
    for _ in 0..2 {
        assert_eq!(after.held("site 0"), (13, 0, 13 * 5000));
        assert_eq!(after.counted(), expected);
        after.reopen();
    }
}

#[test]
fn what_leaves_is_taken_from_its_site_and_told_why() {
    let dir = tempfile::tempdir().expect("dir");
    let bench = Bench::new(dir.path());
    bench.put("one/a", 100);
    bench.put("two/a", 100);
    bench.put("two+a", 9000);
    bench.clock.advance(Duration::from_secs(300));
    assert!(bench.zone.find(&Key::of(b"one/a")).is_some());
    bench.clock.advance(Duration::from_secs(400));
    bench.zone.sweep();
    assert_eq!(
        (bench.held("one"), bench.held("two")),
        ((1, 0, 100), (0, 0, 0))
    );
    assert!(bench.zone.remove(&Key::of(b"one/a")));
    assert!(!bench.zone.remove(&Key::of(b"one/a")));
    assert_eq!(bench.held("one"), (0, 0, 0));
    assert_eq!(bench.departed("one").removed, 1);
    let two = bench.departed("two");
    assert_eq!((two.swept, two.removed, two.evicted), (1, 0, 0));
}

#[test]
fn a_zone_that_overflows_counts_what_is_left() {
    let dir = tempfile::tempdir().expect("dir");
    let mut bench = Bench::new(dir.path());
    for number in 0..900 {
        bench.put(&format!("site {}/{number}", number % 7), 7000);
        if number % 5 == 0 {
            bench
                .zone
                .find(&Key::of(format!("site {}/{number}", number % 7).as_bytes()));
        }
    }
    let (mut left, mut evicted) = (0, 0);
    for site in 0..7 {
        let site = format!("site {site}");
        left += bench.held(&site).0;
        evicted += bench.departed(&site).evicted;
    }
    assert!(left > 100 && evicted > 100, "{left} are left of 900");
    assert_eq!(left + evicted, 900);
    assert_eq!(evicted, bench.zone.usage().evicted);
    let before = bench.counted();
    bench.reopen();
    assert_eq!(bench.held("site 1").0, before["site 1"].entries);
    assert_eq!(bench.counted(), before);
}

#[test]
fn each_disk_has_its_share() {
    let dir = tempfile::tempdir().expect("dir");
    let second = DiskConf {
        path: dir.path().join("b"),
        weight: 1,
    };
    let mut bench = Bench::with(ZoneConf {
        disks: vec![second.clone()],
        segment_size: Some(64 << 10),
        ..ZoneConf::new("sites", dir.path().join("a"))
    });
    for number in 0..50 {
        bench.put(&format!("one/{number}"), 10);
    }
    for _ in 0..2 {
        assert_eq!(bench.held("one"), (50, 0, 500));
        let held = bench.zone.sites();
        let disks: Vec<_> = held.iter().map(|it| it.disk.clone()).collect();
        assert_eq!(disks, [dir.path().join("a"), second.path.clone()]);
        assert!(held.iter().all(|it| it.held.entries > 5), "{held:?}");
        bench.reopen();
    }
}
