//! A zone that was damaged at random bytes opens by itself, and serves no wrong byte.
//!
//! `CASES=10000` runs the long form, `CASE=n` one case alone. A case is a zone that was closed in
//! order or killed, with up to twenty stretches of its files changed: bits flipped, bytes replaced,
//! pages zeroed, pages of other files put there. What is found afterwards must be a version that
//! was finished under that key; where the newest is damaged an older one may be found if the
//! summary of its segment is gone, too. A body may end early, never differ.

#[path = "support/home.rs"]
mod home;
#[path = "support/random.rs"]
mod random;
#[path = "support/read.rs"]
mod read;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Key, ManualClock, Platform, RealIo, Zone, ZoneConf};

use home::home;
use random::Random;
use read::read;

const KEYS: u64 = 40;
const CASES: u64 = 120;

fn conf(path: &Path) -> ZoneConf {
    ZoneConf {
        max_size: Some(600 << 10),
        segment_size: Some(32 << 10),
        inactive: Duration::from_secs(1 << 30),
        memory: 0,
        small: 2048,
        ..ZoneConf::new("damage", path)
    }
}

fn open(path: &Path) -> Arc<Zone> {
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let platform = Platform {
        io: Arc::new(RealIo),
        ..Platform::default()
    };
    Zone::open_on(conf(path), clock, platform).expect("opens by itself")
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// Small ones, empty ones, and some in slices over several segments.
fn len(number: u64, version: u64) -> u64 {
    match number % 5 {
        0 => 9_000 + version * 800,
        1 => version,
        2 => 50_000 * u64::from(number == 7),
        _ => 300 + number,
    }
}

fn body(number: u64, version: u64) -> Vec<u8> {
    let seed = number << 8 | version;
    let byte = |at: u64| (seed + at / 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..len(number, version)).map(|at| byte(at) as u8).collect()
}

fn head(number: u64, version: u64) -> String {
    format!("{number} {version} {}", "h".repeat(number as usize))
}

/// Two versions of most keys; some are removed.
fn fill(zone: &Zone) {
    for version in 0..2 {
        for number in 0..KEYS {
            let mut writer = zone.begin(key(number), None).expect("begun");
            writer.set_head(Bytes::from(head(number, version)));
            writer
                .append(Bytes::from(body(number, version)))
                .expect("taken");
            writer.finish().expect("finished");
        }
        zone.flush();
    }
    for number in (0..KEYS).step_by(9) {
        zone.remove(&key(number));
    }
    zone.rewrite_journal(&[Bytes::from_static(b"purge")])
        .expect("noted");
    zone.note(&Bytes::from_static(b"another")).expect("noted");
    zone.flush();
}

type Files = Vec<(String, Vec<u8>)>;

fn files(dir: &Path) -> Files {
    let mut files: Files = std::fs::read_dir(dir)
        .expect("list")
        .map(|entry| {
            let entry = entry.expect("entry");
            let bytes = std::fs::read(entry.path()).expect("read");
            (entry.file_name().into_string().expect("text"), bytes)
        })
        .collect();
    files.sort();
    files
}

fn damage(files: &mut Files, random: &mut Random) {
    for _ in 0..=random.below(20) {
        let other = random.below(files.len() as u64) as usize;
        let other = files[other].1.clone();
        let chosen = random.below(files.len() as u64) as usize;
        let bytes = &mut files[chosen].1;
        let len = bytes.len() as u64;
        // Where things stand is damaged more often than where nothing does.
        let at = match random.below(4) {
            0 => random.below(64),
            1 => len.saturating_sub(1 + random.below(300)),
            _ => random.below(len),
        } as usize;
        let page = at / 4096 * 4096;
        let end = bytes.len().min(page + 4096);
        match random.below(8) {
            0..4 => bytes[at] ^= 1 << random.below(8),
            4 | 5 => bytes[at] = random.below(256) as u8,
            6 => bytes[page..end].fill(0),
            _ if other.len() >= end => bytes[page..end].copy_from_slice(&other[page..end]),
            _ => bytes.truncate(at),
        }
    }
}

/// How many entries are whole.
fn check(zone: &Zone) -> u64 {
    let mut whole = 0;
    for number in 0..KEYS {
        let Some(entry) = zone.find(&key(number)) else {
            continue;
        };
        let is_it = |version: &u64| *entry.head() == head(number, *version);
        let version = (0..2).find(is_it).expect("a head that was stored");
        let found = read(entry.regions(0..u64::MAX));
        let wanted = body(number, version);
        assert!(wanted.starts_with(&found), "{number}: other bytes");
        whole += u64::from(found == wanted);
    }
    whole
}

fn run(files: &Files, case: u64) -> u64 {
    let mut random = Random(case);
    let mut files = files.clone();
    damage(&mut files, &mut random);
    let home = home();
    for (name, bytes) in &files {
        std::fs::write(home.path().join(name), bytes).expect("written");
    }
    let zone = open(home.path());
    let whole = check(&zone);
    // It takes new entries, and what was found corrupt does not come back.
    zone.verify(&mut |_| true);
    let left = check(&zone);
    let mut writer = zone.begin(key(1000), None).expect("begun");
    writer.set_head(Bytes::from_static(b"new"));
    writer.finish().expect("finished");
    zone.close();
    let zone = open(home.path());
    assert!(zone.find(&key(1000)).is_some());
    assert!(check(&zone) >= left.min(KEYS / 2), "case {case}");
    whole
}

#[test]
fn damaged_zone_opens_and_serves_no_wrong_byte() {
    let home = tempfile::tempdir().expect("directory");
    let path = home.path().join("zone");
    let zone = open(&path);
    fill(&zone);
    let killed = files(&path);
    zone.close();
    let closed = files(&path);
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let all = 0..number("CASES").unwrap_or(CASES);
    let cases = number("CASE").map_or(all, |case| case..case + 1);
    let count = cases.end - cases.start;
    let mut whole = 0;
    for case in cases {
        let files = [&killed, &closed][case as usize % 2];
        let outcome = std::panic::catch_unwind(|| run(files, case));
        whole += outcome.unwrap_or_else(|_| panic!("CASE={case} fails"));
    }
    let share = whole * 100 / (count * (KEYS - 5));
    println!("{count} damaged zones opened, {share} % of their entries are whole");
    assert!(count < 100 || share > 40, "{share} %");
}
