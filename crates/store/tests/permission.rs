//! A directory that its owner may not write to any more: a real file system's answer, to a process
//! without root's privileges.
//!
//! The test starts itself again as nobody where it is root's, and says so where that cannot be.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{DiskConf, DiskState, Key, ManualClock, Platform, Zone, ZoneConf};

/// Names the directory to the child.
const HOME: &str = "MILLPOND_PERMISSION_TEST_HOME";
const NOBODY: u32 = 65_534;
const KEYS: u64 = 100;
const LEN: usize = 5_000;

struct Bench {
    home: PathBuf,
    clock: Arc<ManualClock>,
    zone: Arc<Zone>,
}

impl Bench {
    /// Two disks, of segments that a dozen bodies fill.
    fn new(home: &Path) -> Self {
        let other = DiskConf {
            path: home.join("b"),
            weight: 1,
        };
        let conf = ZoneConf {
            disks: vec![other],
            max_size: Some(8 << 20),
            segment_size: Some(64 << 10),
            memory: 0,
            inactive: Duration::from_secs(1_000_000),
            ..ZoneConf::new("permission", home.join("a"))
        };
        let clock = Arc::new(ManualClock::new(1_790_000_000_000));
        let zone = Zone::open_on(conf, clock.clone(), Platform::default()).expect("opens");
        Self {
            home: home.to_path_buf(),
            clock,
            zone,
        }
    }

    fn store(&self, number: u64, version: u8) -> bool {
        let Ok(mut writer) = self.zone.begin(Key::of(&number.to_le_bytes()), None) else {
            return false;
        };
        writer.set_head(Bytes::copy_from_slice(&[version]));
        let appended = writer.append(Bytes::from(vec![version; LEN]));
        let stored = appended.and_then(|()| writer.finish());
        self.zone.flush();
        stored.is_ok()
    }

    fn version(&self, number: u64) -> Option<u8> {
        let entry = self.zone.find(&Key::of(&number.to_le_bytes()))?;
        entry.head().first().copied()
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

    fn allow(&self, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.home.join("b"), mode).expect("its owner may");
    }
}

/// The second disk is given up, the first has all keys meanwhile, and what the second held comes
/// back with it but for what has changed.
fn check(home: &Path) {
    let bench = Bench::new(home);
    for number in 0..KEYS {
        assert!(bench.store(number, 1));
    }
    assert!(bench.zone.sync());
    let before = bench.zone.disks()[1].usage.entries;
    assert!(before > 0);
    bench.allow(0o500);
    let mut number = KEYS;
    while bench.state() == DiskState::Live {
        bench.store(number, 1);
        number += 1;
        assert!(number < 100_000, "nobody notices");
    }
    bench.pass();
    for _ in 0..3 {
        assert_eq!(bench.state(), DiskState::Failed);
        bench.pass();
    }
    assert_eq!(bench.zone.disks()[1].failures, 1);
    for number in 0..KEYS / 2 {
        assert!(bench.store(number, 2));
        assert_eq!(bench.version(number), Some(2));
    }
    bench.allow(0o700);
    for _ in 0..50 {
        if bench.state() == DiskState::Live {
            break;
        }
        bench.pass();
    }
    assert_eq!(bench.state(), DiskState::Live, "{:?}", bench.zone.disks());
    for number in 0..KEYS / 2 {
        assert!(bench.version(number).is_none_or(|version| version == 2));
    }
    let rest = KEYS / 2..KEYS;
    assert!({ rest }.all(|number| bench.version(number) == Some(1)));
    assert!(bench.zone.sync());
}

/// What a child does; nothing in an ordinary run.
#[test]
fn child_that_is_nobody() {
    if let Some(home) = std::env::var_os(HOME) {
        check(Path::new(&home));
    }
}

#[test]
fn folder_whose_owner_may_not_write_to_it_is_given_up_until_he_may() {
    let dir = tempfile::tempdir().expect("directory");
    if !rustix::process::getuid().is_root() {
        return check(dir.path());
    }
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("root may");
    let home = dir.path().join("home");
    std::fs::create_dir(&home).expect("created");
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).expect("root may");
    let as_nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command
    };
    let this = std::env::current_exe().expect("own name");
    // The folders above the program may be root's alone.
    let may = as_nobody().args(["test", "-x"]).arg(&this).status();
    if !may.is_ok_and(|status| status.success()) {
        println!("skipped: nobody may not run {}", this.display());
        return;
    }
    let ran = as_nobody()
        .arg(this)
        .args(["--exact", "child_that_is_nobody", "--nocapture"])
        .env(HOME, &home)
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
}
