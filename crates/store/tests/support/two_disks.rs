//! A zone on two disks, of which the second is to fail and to come back.
//!
//! Its segments are so small that a dozen bodies fill one: a disk that takes no new file is soon
//! noticed. Its clock stands still but for `pass`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{DiskConf, DiskState, Key, ManualClock, Platform, Zone, ZoneConf};

const LEN: usize = 5_000;

pub(crate) struct TwoDisks {
    clock: Arc<ManualClock>,
    pub(crate) zone: Arc<Zone>,
}

impl TwoDisks {
    /// Disks in two folders, which share `max_size` bytes.
    pub(crate) fn new(first: &Path, second: &Path, max_size: u64) -> Self {
        let second = DiskConf {
            path: second.to_path_buf(),
            weight: 1,
        };
        let conf = ZoneConf {
            disks: vec![second],
            max_size: Some(max_size),
            segment_size: Some(64 << 10),
            memory: 0,
            inactive: Duration::from_secs(1_000_000),
            ..ZoneConf::new("two", first)
        };
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let zone = Zone::open_on(conf, clock.clone(), Platform::default()).expect("opens");
        Self { clock, zone }
    }

    /// Stores a version of a key; true if it was stored.
    pub(crate) fn store(&self, number: u64, version: u64) -> bool {
        let Ok(mut writer) = self.zone.begin(Key::of(&number.to_le_bytes()), None) else {
            return false;
        };
        writer.set_head(Bytes::from(version.to_string()));
        let appended = writer.append(Bytes::from(vec![version as u8; LEN]));
        appended.and_then(|()| writer.finish()).is_ok()
    }

    /// The version of a key that is found.
    pub(crate) fn version(&self, number: u64) -> Option<u64> {
        let entry = self.zone.find(&Key::of(&number.to_le_bytes()))?;
        let version = std::str::from_utf8(entry.head()).expect("digits");
        Some(version.parse().expect("a number"))
    }

    /// State of the second disk.
    pub(crate) fn state(&self) -> DiskState {
        self.zone.disks()[1].state
    }

    /// Number of entries on the second disk.
    pub(crate) fn entries(&self) -> u64 {
        self.zone.disks()[1].usage.entries
    }

    /// Lets the time pass after which a disk is tried again, and waits until it was.
    pub(crate) fn pass(&self) {
        self.clock.advance(Duration::from_secs(61));
        self.zone.sweep();
        self.zone.wait_for_disks();
    }
}
