//! Entries that were complete for longer than `flush` survive a power failure, also while the write
//! queue is never idle.
//!
//! Time stands still but for the test's steps, and `flush` is so long that the disk thread never
//! finds itself idle: only work makes it look at the clock.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{Clock, Key, ManualClock, Platform, PowerIo, Zone, ZoneConf};

const FLUSH: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_secs(60);

fn open(home: &Path, io: &Arc<PowerIo>, clock: &Arc<ManualClock>) -> Arc<Zone> {
    let conf = ZoneConf {
        max_size: Some(64 << 20),
        // All in one: whoever sees a file synced sees the end of that sync.
        segment_size: Some(16 << 20),
        inactive: FLUSH * 1000,
        flush: FLUSH,
        memory: 0,
        ..ZoneConf::new("flush", home.join("zone"))
    };
    let platform = Platform {
        io: io.clone(),
        ..Platform::default()
    };
    Zone::open_on(conf, clock.clone(), platform).expect("opens")
}

fn body(number: u64) -> Bytes {
    Bytes::from(vec![number as u8; 500 + number as usize * 400])
}

fn store(zone: &Zone, number: u64) {
    let key = Key::of(&number.to_le_bytes());
    let mut writer = zone.begin(key, None).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(body(number)).expect("taken");
    writer.finish().expect("finished");
}

/// Waits until a sync was made; the test fails if nobody makes one.
fn wait_for_sync(io: &PowerIo, before: u64) {
    let began = Instant::now();
    while io.syncs() == before {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody syncs");
        std::thread::yield_now();
    }
}

#[test]
fn busy_disk_is_synced_in_time_all_the_same() {
    for seed in 0..10 {
        let home = tempfile::tempdir().expect("directory");
        let io = Arc::new(PowerIo::new(seed, home.path().join("graves")));
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let zone = open(home.path(), &io, &clock);
        let mut finished = Vec::new();
        let (mut synced_ms, mut syncs) = (clock.now(), io.syncs());
        for number in 0..70 + seed * 9 {
            store(&zone, number);
            finished.push(clock.now());
            clock.advance(STEP);
            zone.flush();
            // A disk that needs no time syncs as soon as it is asked.
            if clock.now() - synced_ms > FLUSH.as_millis() as u64 / 2 + STEP.as_millis() as u64 {
                wait_for_sync(&io, syncs);
                (synced_ms, syncs) = (clock.now(), io.syncs());
            }
        }
        let cut_ms = clock.now();
        io.cut();
        zone.close();
        io.lose().expect("lost");
        let io = Arc::new(PowerIo::new(seed, home.path().join("graves")));
        let zone = open(home.path(), &io, &clock);
        let mut old = 0;
        for (number, finished_ms) in (0_u64..).zip(finished) {
            let entry = zone.find(&Key::of(&number.to_le_bytes()));
            if cut_ms - finished_ms > FLUSH.as_millis() as u64 {
                assert!(entry.is_some(), "seed {seed}: {number} is lost");
                old += 1;
            }
        }
        assert!(old > 5, "{old}");
    }
}
