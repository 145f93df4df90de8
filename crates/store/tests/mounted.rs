//! A disk with a file system of its own that others fill up, that becomes read-only under the zone,
//! and that is mended: ext4 on a loop device.
//!
//! Only root may mount one; where that is not permitted, or there are no tools for it, the test
//! says so and ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{DiskConf, DiskState, Key, ManualClock, Platform, Zone, ZoneConf};

const KEYS: u64 = 100;
const LEN: usize = 5_000;
const IMAGE: u64 = 24 << 20;
/// Rounds after which something that must happen has happened.
const ROUNDS: u64 = 100;

/// Whether a program went well.
fn run(program: &str, words: &[&str], path: &Path) -> bool {
    let ran = Command::new(program).args(words).arg(path).output();
    ran.is_ok_and(|output| output.status.success())
}

/// A mounted image.
struct Mounted {
    image: PathBuf,
    dir: PathBuf,
}

impl Mounted {
    /// None where that is not permitted.
    fn new(home: &Path) -> Option<Self> {
        let (image, dir) = (home.join("image"), home.join("b"));
        let file = std::fs::File::create(&image).expect("image");
        file.set_len(IMAGE).expect("as long");
        std::fs::create_dir(&dir).expect("directory");
        let is_made = run("mkfs.ext4", &["-q", "-F"], &image);
        let mounted = Self { image, dir };
        (is_made && mounted.mount()).then_some(mounted)
    }

    fn mount(&self) -> bool {
        let Some(image) = self.image.to_str() else {
            return false;
        };
        run("mount", &["-o", "loop", image], &self.dir)
    }

    fn unmount(&self) -> bool {
        run("umount", &[], &self.dir)
    }

    /// What ext4 does after an error of the device.
    fn abort(&self) {
        assert!(run("mount", &["-o", "remount,abort"], &self.dir));
    }

    fn others(&self) -> PathBuf {
        self.dir.join("others")
    }

    /// Takes all the room that is left.
    fn fill_up(&self) {
        let mut file = std::fs::File::create(self.others()).expect("made");
        for size in [1 << 20, 4096] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, if need be, so that nothing stays in any case.
        let _ = self.unmount() || run("umount", &["-l"], &self.dir);
    }
}

struct Bench {
    clock: Arc<ManualClock>,
    zone: Arc<Zone>,
}

impl Bench {
    fn new(home: &Path) -> Self {
        let conf = ZoneConf {
            disks: vec![DiskConf {
                path: home.join("b/zone"),
                weight: 1,
            }],
            max_size: Some(4 * IMAGE),
            segment_size: Some(64 << 10),
            memory: 0,
            inactive: Duration::from_secs(1_000_000),
            ..ZoneConf::new("mounted", home.join("a"))
        };
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let zone = Zone::open_on(conf, clock.clone(), Platform::default()).expect("opens");
        Self { clock, zone }
    }

    fn store(&self, number: u64, version: u64) -> bool {
        let Ok(mut writer) = self.zone.begin(Key::of(&number.to_le_bytes()), None) else {
            return false;
        };
        writer.set_head(Bytes::from(version.to_string()));
        let appended = writer.append(Bytes::from(vec![version as u8; LEN]));
        appended.and_then(|()| writer.finish()).is_ok()
    }

    /// How many keys got this version.
    fn store_all(&self, version: u64) -> u64 {
        let stored = (0..KEYS).filter(|number| self.store(*number, version));
        let count = stored.count() as u64;
        self.zone.flush();
        count
    }

    /// How many keys have this version; none has another one.
    fn count(&self, version: u64) -> u64 {
        let head = Bytes::from(version.to_string());
        let found = (0..KEYS).filter_map(|number| self.zone.find(&Key::of(&number.to_le_bytes())));
        let heads = found.inspect(|entry| assert_eq!(*entry.head(), head));
        heads.count() as u64
    }

    fn state(&self) -> DiskState {
        self.zone.disks()[1].state
    }

    /// Lets the time pass after which a disk is tried again, and waits until it was.
    fn pass(&self) {
        self.clock.advance(Duration::from_secs(61));
        self.zone.sweep();
        self.zone.wait_for_disks();
    }

    /// Stores versions from one on until the disk is in a state; the last one.
    fn until(&self, state: DiskState, first: u64) -> u64 {
        for version in first..first + ROUNDS {
            self.store_all(version);
            self.zone.sync();
            self.pass();
            if self.state() == state {
                return version;
            }
        }
        panic!("never {state:?}: {:?}", self.zone.disks());
    }
}

/// The other disk has all keys meanwhile, and nothing old is found.
#[test]
fn file_system_that_fills_up_and_goes_read_only_costs_its_share_only() {
    let home = tempfile::tempdir().expect("directory");
    let Some(mounted) = Mounted::new(home.path()) else {
        println!("no image can be mounted here");
        return;
    };
    let bench = Bench::new(home.path());
    assert_eq!(bench.store_all(1), KEYS);
    assert_eq!(bench.count(1), KEYS);

    mounted.fill_up();
    // It makes room for what is new out of its own; what does not fit is not stored.
    let others = std::fs::metadata(mounted.others()).expect("there").len();
    assert!(others > IMAGE / 2, "{others}");
    for version in 1_000..1_010 {
        assert!(bench.store_all(version) > 0);
        bench.pass();
        assert_ne!(bench.state(), DiskState::Failed);
    }
    std::fs::remove_file(mounted.others()).expect("removed");
    let last = bench.until(DiskState::Live, 2_000);
    assert_eq!(bench.store_all(last + 1), KEYS);
    assert_eq!(bench.count(last + 1), KEYS);

    mounted.abort();
    let last = bench.until(DiskState::Failed, 3_000);
    assert_eq!(bench.store_all(last + 1), KEYS);
    assert_eq!(bench.count(last + 1), KEYS);

    // The next process finds it mended, and with what was written before the error.
    bench.zone.close();
    drop(bench);
    // What held it last may take a moment to end.
    assert!((0..ROUNDS).any(|_| mounted.unmount()) && mounted.mount());
    let bench = Bench::new(home.path());
    assert!(bench.zone.loaded());
    let _ = bench.count(last + 1);
    let last = bench.until(DiskState::Live, 4_000);
    assert_eq!(bench.store_all(last + 1), KEYS);
    assert_eq!(bench.count(last + 1), KEYS);
    let before = bench.zone.disks()[1].usage.entries;
    assert!(before > 0, "it has its share again");
    bench.zone.close();
}
