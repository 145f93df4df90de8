//! Numbers of sites that are given, taken back and given again, while entries come and go: what is
//! charged to a site is its own, whatever number it had, and everything is charged to somebody.
//!
//! The book has room for a few sites, and there are many times as many names. The model knows for
//! each entry whom the store charged it to when it came: its own site, or `*` when there was no
//! number. (It does not sweep: what is written again may be charged to its own site then.)
//!
//! The seed of each run is printed when it fails; `SEED=n` replays it, `SEEDS=n` runs more.

#[path = "support/random.rs"]
mod random;
#[path = "support/seeds.rs"]
mod seeds;

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Class, Departed, Held, Key, Looked, ManualClock, Platform, Role, SiteBook, Zone, ZoneConf,
};

use random::Random;
use seeds::{run_each, seeds};

const START_MS: u64 = 1_790_000_000_000;
const SEEDS: Range<u64> = 0..12;
const OPERATIONS: usize = 300;
/// Numbers, those of nobody and of the excess among them.
const ROOM: usize = 10;
/// Number of names; two of them are expected.
const NAMES: u64 = 40;
const EXPECTED: [&str; 2] = ["site 0", "site 1"];
const KEYS: u64 = 60;
const EXCESS: &str = "*";

/// `site/…`.
fn classify(head: &[u8]) -> Class<'_> {
    let end = head.iter().position(|byte| *byte == b'/');
    Class {
        site: end.and_then(|end| head.get(..end)).unwrap_or_default(),
        role: Role::Entry,
    }
}

fn open(
    dir: &Path,
    clock: &Arc<ManualClock>,
) -> Result<(Arc<Zone>, Arc<SiteBook>), Box<dyn Error>> {
    let book = Arc::new(SiteBook::with_room(classify, ROOM));
    book.expect(EXPECTED.map(str::as_bytes));
    let platform = Platform {
        sites: Arc::clone(&book),
        ..Platform::default()
    };
    let conf = ZoneConf {
        max_size: Some(4 << 20),
        segment_size: Some(16 << 10),
        flush: Duration::ZERO,
        ..ZoneConf::new("sites", dir)
    };
    let zone = Zone::open_on(conf, clock.clone(), platform)?;
    assert!(zone.loaded());
    Ok((zone, book))
}

fn put(zone: &Zone, key: u64, site: &str, len: usize) -> Result<(), Box<dyn Error>> {
    let mut writer = zone
        .begin(Key::of(&key.to_le_bytes()), None)
        .map_err(|why| format!("{why:?}"))?;
    writer.set_head(Bytes::from(format!("{site}/{key}")));
    writer.append(Bytes::from(vec![7; len]))?;
    writer.finish()?;
    Ok(())
}

/// Counts of what each site holds, as the store says.
fn counted(zone: &Zone) -> BTreeMap<String, Held> {
    let mut counted = BTreeMap::<String, Held>::new();
    for one in zone.sites() {
        let site = String::from_utf8_lossy(&one.site).into_owned();
        counted.entry(site).or_default().add(&one.held);
    }
    counted
}

/// Counts that a walk through all heads comes to.
fn walked(zone: &Zone) -> BTreeMap<String, Held> {
    let mut walked = BTreeMap::<String, Held>::new();
    let flow = zone.inspect(&mut |glance| {
        let Looked::Found(record) = glance.read() else {
            panic!("{} is not read", glance.key());
        };
        let site = String::from_utf8_lossy(classify(&record.head).site).into_owned();
        walked.entry(site).or_default().add(&Held {
            entries: 1,
            slices: 0,
            disk_bytes: glance.summary().disk_size,
            body_bytes: glance.summary().body_len,
        });
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    walked
}

/// Nothing is charged to a site that is not its own, and nothing is forgotten.
fn assert_nobody_pays_for_others(zone: &Zone) {
    let (counted, walked) = (counted(zone), walked(zone));
    let sum = |all: &BTreeMap<String, Held>| {
        let mut sum = Held::default();
        all.values().for_each(|held| sum.add(held));
        sum
    };
    assert_eq!(sum(&counted), sum(&walked));
    for (site, held) in counted.iter().filter(|(site, _)| *site != EXCESS) {
        let own = walked.get(site).copied().unwrap_or_default();
        let is_own = held.entries <= own.entries && held.body_bytes <= own.body_bytes;
        assert!(is_own, "{site} is charged {held:?} and has {own:?}");
    }
}

/// State of the model.
#[derive(Default)]
struct Model {
    /// Sites that entries are charged to and lengths of their bodies, by key.
    charged: BTreeMap<u64, (String, u64)>,
    removed: BTreeMap<String, u64>,
    told: BTreeMap<String, u64>,
    /// Number of charges to a name that had no number the last time.
    given: usize,
}

impl Model {
    fn held(&self) -> BTreeMap<String, (u64, u64)> {
        let mut held = BTreeMap::<String, (u64, u64)>::new();
        for (site, len) in self.charged.values() {
            let of_site = held.entry(site.clone()).or_default();
            *of_site = (of_site.0 + 1, of_site.1 + len);
        }
        held
    }

    fn left(&mut self, key: u64) {
        if let Some((site, _)) = self.charged.remove(&key) {
            *self.removed.entry(site).or_default() += 1;
        }
    }

    fn tell(&mut self, departed: Vec<(Bytes, Departed)>) {
        for (site, departed) in departed {
            let site = String::from_utf8_lossy(&site).into_owned();
            *self.told.entry(site).or_default() += departed.removed + departed.replaced;
        }
    }
}

fn compare(zone: &Zone, model: &mut Model) {
    let counted = counted(zone).into_iter();
    let counted: BTreeMap<_, _> = counted
        .map(|(site, held)| (site, (held.entries, held.body_bytes)))
        .collect();
    assert_eq!(counted, model.held());
    model.tell(zone.take_departed());
    assert_eq!(model.told, model.removed);
}

/// The site that has an entry more than before.
fn charged(zone: &Zone, before: &BTreeMap<String, (u64, u64)>) -> Option<String> {
    let has_more = |(site, held): &(String, Held)| {
        let before = before.get(site).map_or(0, |held| held.0);
        held.entries > before
    };
    counted(zone)
        .into_iter()
        .find(has_more)
        .map(|(site, _)| site)
}

fn run(seed: u64) -> Result<(), Box<dyn Error>> {
    let mut random = Random(seed);
    let dir = tempfile::tempdir()?;
    let clock = Arc::new(ManualClock::new(START_MS));
    let (mut zone, mut book) = open(dir.path(), &clock)?;
    let mut model = Model::default();
    for _ in 0..OPERATIONS {
        let key = random.below(KEYS);
        match random.below(40) {
            0..20 => {
                // Names come in turns, so that numbers change hands.
                let name = random.below(NAMES / 4) + NAMES / 4 * random.below(4);
                let site = format!("site {name}");
                let len = 1 + random.below(300);
                zone.remove(&Key::of(&key.to_le_bytes()));
                model.left(key);
                let before = model.held();
                put(&zone, key, &site, len as usize)?;
                let whose = charged(&zone, &before).ok_or("nobody is charged")?;
                let is_right = whose == site || whose == EXCESS && !EXPECTED.contains(&&*site);
                assert!(is_right, "{whose} is charged for {site}");
                model.given += usize::from(whose == site && !before.contains_key(&site));
                model.charged.insert(key, (whose, len));
            }
            20..34 => {
                zone.remove(&Key::of(&key.to_le_bytes()));
                model.left(key);
            }
            34..39 => {
                book.maintain();
                zone.flush();
            }
            _ => {
                model.tell(zone.take_departed());
                zone.close();
                (zone, book) = open(dir.path(), &clock)?;
                assert_nobody_pays_for_others(&zone);
                // Whom each is charged to now is not known, so all begin anew.
                for key in 0..KEYS {
                    zone.remove(&Key::of(&key.to_le_bytes()));
                }
                zone.take_departed();
                model = Model {
                    given: model.given,
                    ..Model::default()
                };
            }
        }
        compare(&zone, &mut model);
    }
    assert_nobody_pays_for_others(&zone);
    // More than there are numbers: they changed hands.
    assert!(model.given > ROOM, "only {} sites had numbers", model.given);
    zone.close();
    Ok(())
}

#[test]
fn numbers_that_change_hands_never_mix_sites() {
    run_each(&seeds(SEEDS), |seed| {
        run(seed).expect("the zone stays usable")
    });
}

/// Threads store and remove under many names at once, while numbers are taken back.
#[test]
fn threads_never_mix_sites() -> Result<(), Box<dyn Error>> {
    const THREADS: u64 = 4;
    let dir = tempfile::tempdir()?;
    let clock = Arc::new(ManualClock::new(START_MS));
    let (zone, _) = open(dir.path(), &clock)?;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let zone = &zone;
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..1000 {
                    let key = random.below(8) * THREADS + thread;
                    let site = format!("site {}", random.below(NAMES));
                    match random.below(8) {
                        0..4 => drop(put(zone, key, &site, 20)),
                        4 => zone.flush(),
                        _ => {
                            zone.remove(&Key::of(&key.to_le_bytes()));
                        }
                    }
                    if random.below(8) == 0 {
                        zone.sweep();
                    }
                }
            });
        }
    });
    zone.flush();
    assert_nobody_pays_for_others(&zone);
    for key in 0..8 * THREADS {
        zone.remove(&Key::of(&key.to_le_bytes()));
    }
    assert_eq!(counted(&zone), BTreeMap::new());
    zone.close();
    Ok(())
}
