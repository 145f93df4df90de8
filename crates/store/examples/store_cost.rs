//! Costs of a zone: nanoseconds a lookup, bytes an index entry, seconds to open.
//!
//! `cargo run --release -p millpond-store --example store_cost -- [ENTRIES] [BODY_BYTES]`

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use millpond_store::{Key, SystemClock, Zone, ZoneConf};

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse::<u64>().ok());
    let entries = arguments.next().unwrap_or(1_000_000);
    let size = arguments.next().unwrap_or(1024) as usize;
    let dir = std::env::temp_dir().join(format!("store-cost-{}", std::process::id()));
    let conf = ZoneConf {
        max_size: Some(entries * (size as u64 + 1024) + (1 << 30)),
        ..ZoneConf::new("cost", &dir)
    };
    let zone = Zone::open(conf.clone(), Arc::new(SystemClock)).expect("open");
    fill(&zone, entries, size);
    lookups("all, mostly from disk", &zone, entries, entries);
    lookups(
        "10,000 in turn, from memory",
        &zone,
        entries,
        entries.min(10_000),
    );
    let usage = zone.usage();
    println!(
        "index: {:.1} bytes an entry",
        usage.index_bytes as f64 / usage.entries as f64
    );
    let began = Instant::now();
    zone.close();
    println!("close: {:?}", began.elapsed());
    let began = Instant::now();
    let zone = Zone::open(conf, Arc::new(SystemClock)).expect("open");
    println!(
        "open: {:?} for {} entries",
        began.elapsed(),
        zone.usage().entries
    );
    drop(zone);
    std::fs::remove_dir_all(dir).expect("removed");
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn fill(zone: &Arc<Zone>, entries: u64, size: usize) {
    let body = Bytes::from(vec![b'x'; size]);
    let head = Bytes::from(vec![b'h'; 300]);
    let began = Instant::now();
    for number in 0..entries {
        loop {
            let mut writer = zone.begin(key(number), Some(size as u64)).expect("begun");
            writer.set_head(head.clone());
            let stored = writer.append(body.clone()).and_then(|()| writer.finish());
            if stored.is_ok() {
                break;
            }
            zone.flush();
        }
    }
    zone.flush();
    report("store", began, entries);
}

fn lookups(what: &str, zone: &Zone, entries: u64, among: u64) {
    for number in 0..among.min(20_000) {
        zone.find(&key(number));
    }
    let began = Instant::now();
    let mut found = 0;
    for step in 0..entries {
        found += u64::from(zone.find(&key(step * 7919 % among)).is_some());
    }
    assert_eq!(found, entries);
    report(what, began, entries);
}

fn report(what: &str, began: Instant, count: u64) {
    let nanos = began.elapsed().as_nanos() as f64 / count as f64;
    println!("{what}: {nanos:.0} ns each");
}
