//! A disk with a file system of its own that others fill up, that becomes read-only under the zone,
//! and that is mended: ext4 on a loop device.
//!
//! Only root may mount one; where that is not permitted, or there are no tools for it, the test
//! says so and ends.

#[path = "support/two_disks.rs"]
mod two_disks;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use millpond_store::DiskState;

use two_disks::TwoDisks;

const KEYS: u64 = 100;
const IMAGE: u64 = 24 << 20;
/// Rounds after which something that must happen has happened.
const ROUNDS: u64 = 100;

/// True if a program went well.
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

    /// Does to the file system what ext4 does after an error of the device.
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

/// Stores this version of all keys; returns how many keys got it.
fn store_all(disks: &TwoDisks, version: u64) -> u64 {
    let stored = (0..KEYS).filter(|number| disks.store(*number, version));
    let count = stored.count() as u64;
    disks.zone.flush();
    count
}

/// Number of keys that have this version; none has another one.
fn count(disks: &TwoDisks, version: u64) -> u64 {
    let found = (0..KEYS).filter_map(|number| disks.version(number));
    let same = found.inspect(|found| assert_eq!(*found, version));
    same.count() as u64
}

/// Stores versions from one on until the disk is in a state; the last one.
fn until(disks: &TwoDisks, state: DiskState, first: u64) -> u64 {
    for version in first..first + ROUNDS {
        store_all(disks, version);
        disks.zone.sync();
        disks.pass();
        if disks.state() == state {
            return version;
        }
    }
    panic!("never {state:?}: {:?}", disks.zone.disks());
}

/// All keys are stored and found.
fn check_all(disks: &TwoDisks, version: u64) {
    assert_eq!(store_all(disks, version), KEYS);
    assert_eq!(count(disks, version), KEYS);
}

/// The other disk has all keys meanwhile, and nothing old is found.
#[test]
fn file_system_that_fills_up_and_goes_read_only_costs_its_share_only() {
    let home = tempfile::tempdir().expect("directory");
    let Some(mounted) = Mounted::new(home.path()) else {
        println!("no image can be mounted here");
        return;
    };
    let open = || TwoDisks::new(&home.path().join("a"), &mounted.dir.join("zone"), 4 * IMAGE);
    let disks = open();
    check_all(&disks, 1);

    mounted.fill_up();
    // It makes room for what is new out of its own; what does not fit is not stored.
    let others = std::fs::metadata(mounted.others()).expect("there").len();
    assert!(others > IMAGE / 2, "{others}");
    for version in 1_000..1_010 {
        assert!(store_all(&disks, version) > 0);
        disks.pass();
        assert_ne!(disks.state(), DiskState::Failed);
    }
    std::fs::remove_file(mounted.others()).expect("removed");
    let last = until(&disks, DiskState::Live, 2_000);
    check_all(&disks, last + 1);

    mounted.abort();
    let last = until(&disks, DiskState::Failed, 3_000);
    check_all(&disks, last + 1);

    // It can be unmounted while the zone goes on: nothing there is open any more.
    let may_unmount = |_| {
        disks.pass();
        mounted.unmount()
    };
    assert!((0..ROUNDS).any(may_unmount), "it is still in use");
    assert!(mounted.mount(), "it is mended");
    let last = until(&disks, DiskState::Live, 4_000);
    check_all(&disks, last + 1);
    assert!(disks.entries() > 0, "it has its share again");

    // The next process finds it as it is.
    disks.zone.close();
    drop(disks);
    // What held it last may take a moment to end.
    assert!((0..ROUNDS).any(|_| mounted.unmount()) && mounted.mount());
    let disks = open();
    assert!(disks.zone.loaded());
    assert_eq!(count(&disks, last + 1), KEYS);
    check_all(&disks, last + 2);
    assert!(disks.entries() > 0);
    disks.zone.close();
}
