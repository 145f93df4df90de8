//! A directory that its owner may not write to any more: a real file system's answer, to a process
//! without root's privileges.
//!
//! The test starts itself again as nobody where it is root's, and says so where that cannot be.

#[path = "support/two_disks.rs"]
mod two_disks;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use millpond_store::DiskState;

use two_disks::TwoDisks;

/// Names the directory to the child.
const HOME: &str = "MILLPOND_PERMISSION_TEST_HOME";
const NOBODY: u32 = 65_534;
const KEYS: u64 = 100;

/// The second disk is given up, the first has all keys meanwhile, and what the second held comes
/// back with it but for what has changed.
fn check(home: &Path) {
    let second = home.join("b");
    let disks = TwoDisks::new(&home.join("a"), &second, 8 << 20);
    let allow = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&second, mode).expect("its owner may");
    };
    let store = |number, version| {
        let is_stored = disks.store(number, version);
        disks.zone.flush();
        is_stored
    };
    assert!((0..KEYS).all(|number| store(number, 1)));
    assert!(disks.zone.sync());
    assert!(disks.entries() > 0);
    allow(0o500);
    let mut number = KEYS;
    while disks.state() == DiskState::Live {
        store(number, 1);
        number += 1;
        assert!(number < 100_000, "nobody notices");
    }
    disks.pass();
    for _ in 0..3 {
        assert_eq!(disks.state(), DiskState::Failed);
        disks.pass();
    }
    assert_eq!(disks.zone.disks()[1].failures, 1);
    for number in 0..KEYS / 2 {
        assert!(store(number, 2));
        assert_eq!(disks.version(number), Some(2));
    }
    allow(0o700);
    for _ in 0..50 {
        if disks.state() == DiskState::Live {
            break;
        }
        disks.pass();
    }
    assert_eq!(disks.state(), DiskState::Live, "{:?}", disks.zone.disks());
    for number in 0..KEYS / 2 {
        assert!(disks.version(number).is_none_or(|version| version == 2));
    }
    let rest = KEYS / 2..KEYS;
    assert!({ rest }.all(|number| disks.version(number) == Some(1)));
    assert!(disks.zone.sync());
}

/// Work of a child; nothing in an ordinary run.
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
        millpond_testkit::skip(&format!("nobody may not run {}", this.display()));
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
