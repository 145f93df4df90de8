//! A file system over thin storage: ext4 in an image whose blocks are on a tmpfs that is too small
//! for it. What is written is taken, and lost when the kernel writes it back.
//!
//! Only root may mount one; where that is not permitted, or there are no tools for it, the test
//! says so and ends.

#[path = "support/read.rs"]
mod read;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Key, SystemClock, Zone, ZoneConf};

use read::read;

const BODY: usize = 300_000;
const KEYS: u64 = 120;
/// Size that the file system believes to have, and the size that there is.
const IMAGE: u64 = 128 << 20;
const STORAGE: &str = "size=24m";

/// True if a program went well.
fn run(program: &str, words: &[&str]) -> bool {
    let ran = Command::new(program).args(words).output();
    ran.is_ok_and(|output| output.status.success())
}

/// An image on a tmpfs, and the file system in it.
struct Thin {
    storage: PathBuf,
    dir: PathBuf,
}

impl Thin {
    /// None where that is not permitted.
    fn new(home: &Path) -> Option<Self> {
        let thin = Self {
            storage: home.join("storage"),
            dir: home.join("thin"),
        };
        std::fs::create_dir(&thin.storage).expect("directory");
        std::fs::create_dir(&thin.dir).expect("directory");
        let storage = thin.storage.to_str()?;
        if !run("mount", &["-t", "tmpfs", "-o", STORAGE, "tmpfs", storage]) {
            return None;
        }
        let image = thin.storage.join("image");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(IMAGE))
            .expect("image");
        let (image, dir) = (image.to_str()?, thin.dir.to_str()?);
        // Without a journal of its own an error ends only what it is about.
        let is_made = run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", image]);
        (is_made && run("mount", &["-o", "loop,errors=continue", image, dir])).then_some(thin)
    }

    /// The page cache lets go what it believes to be written.
    fn forget(&self) {
        std::fs::write("/proc/sys/vm/drop_caches", "1").expect("root may");
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        for dir in [&self.dir, &self.storage] {
            let dir = dir.to_str().unwrap_or_default();
            // Lazily, if need be, so that nothing stays in any case.
            let _ = run("umount", &[dir]) || run("umount", &["-l", dir]);
        }
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: u64) -> Vec<u8> {
    vec![number as u8 | 1; BODY]
}

/// Numbers of the bodies that are served, and of those of them that are not what was stored.
fn served(zone: &Zone) -> (u64, u64) {
    let (mut all, mut wrong) = (0, 0);
    for number in 0..KEYS {
        let Some(entry) = zone.find(&key(number)) else {
            continue;
        };
        let found = read(entry.regions(0..entry.len()));
        let is_whole = found.len() as u64 == entry.len();
        all += u64::from(is_whole);
        wrong += u64::from(is_whole && found != body(number));
    }
    (all, wrong)
}

#[test]
fn what_thin_storage_has_lost_is_never_served() {
    let home = tempfile::tempdir().expect("directory");
    let Some(thin) = Thin::new(home.path()) else {
        millpond_testkit::skip("no file system can be mounted here");
        return;
    };
    let conf = ZoneConf {
        max_size: Some(100 << 20),
        segment_size: Some(4 << 20),
        // Heads are found there, whatever has become of their bodies.
        memory: 8 << 20,
        flush: Duration::from_millis(200),
        ..ZoneConf::new("thin", thin.dir.join("zone"))
    };
    let zone = Zone::open(conf, std::sync::Arc::new(SystemClock)).expect("opens");
    for number in 0..KEYS {
        let Ok(mut writer) = zone.begin(key(number), Some(BODY as u64)) else {
            continue;
        };
        writer.set_head(Bytes::from_static(b"head"));
        if writer.append(Bytes::from(body(number))).is_ok() {
            // What is not stored is no matter here.
            let _ = writer.finish();
        }
        zone.flush();
    }
    // It says that not all is there, until it has let go of what is not.
    let was_synced = zone.sync();
    zone.sync();
    thin.forget();
    let (all, wrong) = served(&zone);
    let usage = zone.usage();
    println!("{all} of {KEYS} bodies served, {wrong} wrong; {usage:?}");
    assert!(
        !was_synced || usage.lost_segments > 0,
        "the storage is not thin"
    );
    assert_eq!(wrong, 0);
    assert!(all > 0, "what was written in time is there");
}
