//! Costs and gains of several disks: nanoseconds a look-up with one disk and with three, the share
//! of each, and what moves when one is added.
//!
//! `cargo run --release -p millpond-store --example disks_cost -- [ENTRIES]`
//!
//! The disks are directories on one device. It fails when a share is more than two percent of all
//! from its weight, or when more moves than the share of the disk that was added.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use millpond_store::{DiskConf, Key, SystemClock, Zone, ZoneConf};

const ROUNDS: usize = 5;
/// Bound for the deviation of a share, as a part of all entries.
const BOUND: f64 = 0.02;

fn main() -> ExitCode {
    let entries = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let entries: u64 = entries.unwrap_or(100_000);
    let dir = std::env::temp_dir().join(format!("disks-cost-{}", std::process::id()));
    let alone = open(&dir.join("alone"), &[]);
    let zone = open(&dir.join("a"), &[("b", 1)]);
    fill(&alone, entries);
    fill(&zone, entries);
    let mut is_good = shares(&zone, entries);
    zone.change(conf(&dir.join("a"), &[("b", 1), ("c", 2)]));
    zone.wait_for_disks();
    let kept = zone.usage().entries as f64 / entries as f64;
    println!("kept when a disk with half of all weight is added: {kept:.3}");
    is_good &= (kept - 0.5).abs() <= BOUND;
    fill(&zone, entries);
    is_good &= shares(&zone, entries);
    let (mut one, mut three) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(lookups(&alone, entries));
        three.push(lookups(&zone, entries));
    }
    println!("look-up with one disk:    {:.0} ns", median(one));
    println!("look-up with three disks: {:.0} ns", median(three));
    drop((alone, zone));
    std::fs::remove_dir_all(&dir).expect("removed");
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn conf(path: &Path, others: &[(&str, u32)]) -> ZoneConf {
    let disk = |(name, weight): &(&str, u32)| DiskConf {
        path: path.with_file_name(name),
        weight: *weight,
    };
    ZoneConf {
        disks: others.iter().map(disk).collect(),
        // Look-ups are to be answered from memory.
        memory: 4 << 30,
        queue: 1 << 30,
        ..ZoneConf::new("cost", path)
    }
}

fn open(path: &Path, others: &[(&str, u32)]) -> Arc<Zone> {
    // Of the others only the last directory is made.
    std::fs::create_dir_all(path).expect("a directory");
    Zone::open(conf(path, others), Arc::new(SystemClock)).expect("a zone opens")
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn fill(zone: &Zone, entries: u64) {
    for number in 0..entries {
        let mut writer = zone.begin(key(number), Some(100)).expect("begun");
        writer.set_head(Bytes::from_static(b"head"));
        writer.append(Bytes::from_static(&[7; 100])).expect("room");
        writer.finish().expect("stored");
    }
    zone.flush();
}

fn shares(zone: &Zone, entries: u64) -> bool {
    let disks = zone.disks();
    let all: u32 = disks.iter().map(|disk| disk.weight).sum();
    let mut is_good = true;
    for disk in &disks {
        let wanted = f64::from(disk.weight) / f64::from(all);
        let share = disk.usage.entries as f64 / entries as f64;
        let name = disk.path.file_name().unwrap_or_default().display();
        println!("share of {name}: {share:.3}, by weight {wanted:.3}");
        is_good &= (share - wanted).abs() <= BOUND;
    }
    is_good
}

fn lookups(zone: &Zone, entries: u64) -> f64 {
    let began = Instant::now();
    let found = (0..entries).filter(|number| zone.find(&key(*number)).is_some());
    assert_eq!(found.count() as u64, entries);
    began.elapsed().as_nanos() as f64 / entries as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
