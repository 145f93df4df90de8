//! The store itself as a policy: a real zone on a disk without bodies.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Admission, Key, ManualClock, NotStored, Platform, RealIo, Zone, ZoneConf};

use crate::hollow::HollowIo;
use crate::policy::Policy;
use crate::workload::Request;

/// Bytes of a head of an ordinary answer.
const HEAD: usize = 320;
/// The disk thread is waited for after so many bytes: it is faster than the origin of real life.
const AHEAD: u64 = 1 << 20;

/// The name of a zone in the table.
pub(crate) fn name(admission: Admission) -> &'static str {
    match admission {
        Admission::All => "Millpond, admission=all",
        Admission::SecondHit => "Millpond, admission=second-hit",
        Admission::Trial => "Millpond",
    }
}

/// A zone.
pub(crate) struct Store {
    zone: Arc<Zone>,
    admission: Admission,
    clock: Arc<ManualClock>,
    now_ms: u64,
    zeros: Bytes,
    ahead: u64,
}

impl Store {
    /// Opens a zone of `limit` bytes in `dir`.
    pub(crate) fn new(limit: u64, admission: Admission, dir: &Path) -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let conf = ZoneConf {
            max_size: Some(limit),
            inactive: Duration::from_secs(1_000_000),
            queue: 64 << 20,
            admission,
            ..ZoneConf::new("replay", dir)
        };
        let platform = Platform {
            io: Arc::new(HollowIo(RealIo)),
            ..Platform::default()
        };
        let zone = Zone::open_on(conf, Arc::clone(&clock) as _, platform).expect("a zone opens");
        Self {
            zone,
            admission,
            clock,
            now_ms: 0,
            zeros: Bytes::from(vec![0; 16 << 20]),
            ahead: 0,
        }
    }

    fn store(&mut self, key: Key, size: u32) {
        let stored = self
            .zone
            .begin(key, Some(size.into()))
            .and_then(|mut writer| {
                writer.set_head(self.zeros.slice(..HEAD));
                let mut left = size as usize;
                while left > 0 {
                    let part = left.min(self.zeros.len());
                    writer.append(self.zeros.slice(..part))?;
                    left -= part;
                    if !writer.has_room() {
                        self.zone.flush();
                    }
                }
                writer.finish()
            });
        if stored.is_err_and(|why| !matches!(why, NotStored::AskedSeldom | NotStored::TooLarge)) {
            panic!("the disk thread does not keep up");
        }
        self.ahead += u64::from(size) + 1024;
        if self.ahead > AHEAD {
            self.zone.flush();
            self.ahead = 0;
        }
    }
}

impl Policy for Store {
    fn name(&self) -> String {
        name(self.admission).to_string()
    }

    fn request(&mut self, request: &Request) -> bool {
        let passed = request.at_ms - self.now_ms;
        if passed > 0 {
            self.clock.advance(Duration::from_millis(passed));
            self.now_ms = request.at_ms;
        }
        let key = Key::of(&request.object.to_le_bytes());
        let is_hit = self.zone.find(&key).is_some();
        if !is_hit {
            self.store(key, request.size);
        }
        is_hit
    }

    fn amplification(&self) -> Option<f64> {
        let usage = self.zone.usage();
        let new = usage.written_bytes - usage.rewritten_bytes;
        Some(usage.written_bytes as f64 / new.max(1) as f64)
    }

    fn written(&self) -> u64 {
        self.zone.usage().written_bytes
    }
}
