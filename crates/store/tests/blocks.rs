//! Power cuts below a file system: ext4 on a block device that loses what no flush followed.
//!
//! While one thread stores, replaces, removes and notes, the power fails again and again; each time
//! what is left is mounted and opened. Nothing is found that was replaced or removed before a sync
//! that went well, no byte is another one, and each record of the journal is there that was
//! acknowledged. `CUTS=200` runs the long form, `SEED=n` another sequence.
//!
//! Only root may mount one; where that is not permitted, or there are no tools for it, the test
//! says so and ends.

#[path = "support/block_device.rs"]
mod block_device;
#[path = "support/fuse_server.rs"]
mod fuse_server;
#[path = "support/random.rs"]
mod random;
#[path = "support/read.rs"]
mod read;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{Event, JournalError, Key, Platform, SystemClock, Zone, ZoneConf};

use block_device::BlockDevice;
use random::Random;
use read::read;

const CUTS: u64 = 8;
const DEVICE: usize = 64 << 20;
const KEYS: u64 = 60;
/// Steps between two syncs that are waited for.
const STEPS: u64 = 25;
/// Records that a user of the journal keeps when it is written anew.
const KEPT: usize = 20;
/// No state that is waited for takes so long to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Promises of the store, as of now.
#[derive(Clone)]
struct Promised {
    /// The least version of each key that may be found.
    least: Vec<u64>,
    /// The record that was acknowledged last; it and those before it that were kept are there.
    noted: u64,
    /// Steps so far.
    steps: u64,
}

fn conf(dir: &Path) -> ZoneConf {
    ZoneConf {
        max_size: Some(24 << 20),
        segment_size: Some(256 << 10),
        memory: 0,
        inactive: Duration::from_secs(1 << 30),
        flush: Duration::from_millis(100),
        ..ZoneConf::new("blocks", dir.join("zone"))
    }
}

fn open(dir: &Path) -> (Arc<Zone>, Arc<Mutex<Vec<Event>>>) {
    let told = Arc::<Mutex<Vec<Event>>>::default();
    let heard = Arc::clone(&told);
    let platform = Platform {
        events: Arc::new(move |event| heard.lock().expect("whole").push(event.clone())),
        ..Platform::default()
    };
    let zone = Zone::open_on(conf(dir), Arc::new(SystemClock), platform).expect("opens");
    (zone, told)
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// Small ones, and some in slices.
fn body(number: u64, version: u64) -> Vec<u8> {
    let len = match number % 4 {
        0 => 30_000 + version % 7 * 10_000,
        1 => 0,
        _ => 300 + number * 10,
    };
    let seed = number << 32 | version;
    let byte = |at: u64| (seed + at / 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..len).map(|at| byte(at) as u8).collect()
}

fn store(zone: &Zone, number: u64, version: u64) -> bool {
    let Ok(mut writer) = zone.begin(key(number), None) else {
        return false;
    };
    writer.set_head(Bytes::from(version.to_string()));
    let appended = writer.append(Bytes::from(body(number, version)));
    appended.is_ok() && writer.finish().is_ok()
}

fn record(number: u64) -> Bytes {
    Bytes::from(format!("purge {number}"))
}

fn note(zone: &Zone, number: u64) {
    let noted = match zone.note(&record(number)) {
        Err(JournalError::NoRoom) => {
            let first = number.saturating_sub(KEPT as u64).max(1);
            let kept: Vec<Bytes> = (first..=number).map(record).collect();
            zone.rewrite_journal(&kept)
        }
        noted => noted,
    };
    noted.expect("noted");
}

/// Stores, replaces, removes and notes until it is told to end.
fn traffic(zone: &Zone, promised: &Mutex<Promised>, (is_over, seed): (&AtomicBool, u64)) {
    let mut random = Random(seed);
    // What may be found of each key from the next sync on.
    let mut least = vec![0; KEYS as usize];
    let mut version = 0;
    while !is_over.load(Ordering::Acquire) {
        let number = random.below(KEYS);
        version += 1;
        match random.below(10) {
            0 | 1 => {
                zone.remove(&key(number));
                least[number as usize] = version;
            }
            2 => {
                let noted = promised.lock().expect("whole").noted + 1;
                note(zone, noted);
                promised.lock().expect("whole").noted = noted;
            }
            _ => {
                if store(zone, number, version) {
                    least[number as usize] = version;
                }
            }
        }
        if version % STEPS == 0 && zone.sync() {
            promised.lock().expect("whole").least.clone_from(&least);
        }
        promised.lock().expect("whole").steps += 1;
    }
}

/// Compares what a cut has left with what was promised before; how many entries are found.
fn check(dir: &Path, promised: &Promised, cut: u64) -> usize {
    let (zone, told) = open(dir);
    assert!(zone.loaded(), "cut {cut}");
    let mut found = 0;
    for number in 0..KEYS {
        let Some(entry) = zone.find(&key(number)) else {
            continue;
        };
        let version: u64 = std::str::from_utf8(entry.head())
            .expect("digits")
            .parse()
            .expect("a number");
        let least = promised.least[number as usize];
        assert!(
            version >= least,
            "cut {cut}: {number} is {version} and not {least}"
        );
        let bytes = read(entry.regions(0..entry.len()));
        let wanted = body(number, version);
        // Of what was not synced a slice may be gone; then it is not given.
        assert!(
            wanted.starts_with(&bytes),
            "cut {cut}: {number}: other bytes"
        );
        found += usize::from(bytes == wanted);
    }
    let journal = zone.take_journal();
    assert!(!journal.is_damaged, "cut {cut}");
    let first = promised.noted.saturating_sub(KEPT as u64).max(1);
    for number in first..=promised.noted {
        assert!(
            journal.records.contains(&record(number)),
            "cut {cut}: {number} is lost"
        );
    }
    let told = told.lock().expect("whole");
    let is_gap = |event: &Event| matches!(event, Event::Gap { .. } | Event::JournalLost { .. });
    assert!(!told.iter().any(is_gap), "cut {cut}: {told:?}");
    found
}

#[test]
fn nothing_that_was_synced_is_undone_by_a_power_cut_below_the_file_system() {
    let home = tempfile::tempdir().expect("directory");
    let Some(device) = BlockDevice::new(home.path(), DEVICE) else {
        millpond_testkit::skip("no file system can be mounted here");
        return;
    };
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let (cuts, seed) = (number("CUTS").unwrap_or(CUTS), number("SEED").unwrap_or(1));
    let (zone, _told) = open(&device.dir);
    let promised = Mutex::new(Promised {
        least: vec![0; KEYS as usize],
        noted: 0,
        steps: 0,
    });
    let is_over = AtomicBool::new(false);
    let mut found = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| traffic(&zone, &promised, (&is_over, seed)));
        let _ends = Ends(&is_over);
        let mut random = Random(seed ^ 0x5555);
        let mut seen = 0;
        for cut in 0..cuts {
            // Each cut is in the middle of something else.
            let wanted = seen + 1 + random.below(60);
            let began = Instant::now();
            let before = loop {
                let now = promised.lock().expect("whole").clone();
                if now.steps >= wanted {
                    break now;
                }
                assert!(began.elapsed() < PATIENCE, "nothing is stored any more");
                std::thread::yield_now();
            };
            seen = before.steps;
            device.cut(&mut random, |dir| found += check(dir, &before, cut));
        }
    });
    println!(
        "{cuts} cuts, {found} entries found, {} flushes",
        device.flushes()
    );
    assert!(found as u64 > cuts * KEYS / 4, "{found}");
    zone.close();
    drop(zone);
}

/// Ends the traffic in any way.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
