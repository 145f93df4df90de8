//! A zone that was not closed, and whose files were damaged: it opens, and hands out nothing but
//! what was stored.
//!
//! The input is a list of changes to the files: overwrite, cut, swap, copy, zero. A zone is made
//! once, with entries of several sizes, and its files are taken while it is open, as a crash leaves
//! them: after a clean stop the store believes bodies in slices without reading them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Key, ManualClock, Platform, Region, SimIo, Zone, ZoneConf};

/// Lengths of the bodies: inline, several slices, empty, and one that ends within a block.
const LENGTHS: [usize; 8] = [0, 10, 300, 5_000, 9_000, 20_000, 3, 12_345];

/// Most changes that an input makes; more would only damage the same files again.
const MAX_CHANGES: usize = 16;

/// The undamaged files, by name.
static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();

/// Damages the files as the input says, and opens them.
pub fn run(data: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let files = FILES.get_or_init(|| made(&dir.path().join("made")));
    let home = dir.path().join("damaged");
    fs::create_dir(&home).expect("a directory");
    let mut files = files.clone();
    for change in data.chunks_exact(8).take(MAX_CHANGES) {
        apply(&mut files, change);
    }
    for (name, bytes) in &files {
        fs::write(home.join(name), bytes).expect("a file");
    }
    let zone = open(&home);
    for (number, len) in LENGTHS.iter().enumerate() {
        check(&zone, number, *len);
    }
    // It is as good as new for what comes.
    store(&zone, 99, 700);
    check(&zone, 99, 700);
    assert!(
        zone.find(&key(99)).is_some(),
        "a damaged zone stores nothing any more"
    );
    assert!(zone.usage().bytes <= 1 << 20);
    zone.close();
}

fn made(home: &Path) -> Vec<(String, Vec<u8>)> {
    let zone = open(home);
    for (number, len) in LENGTHS.iter().enumerate() {
        store(&zone, number, *len);
    }
    zone.flush();
    let mut files: Vec<_> = fs::read_dir(home)
        .expect("the zone's files")
        .map(|entry| entry.expect("a file"))
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("its bytes"))
        })
        .collect();
    files.sort();
    zone.close();
    files
}

fn open(home: &Path) -> Arc<Zone> {
    let conf = ZoneConf {
        max_size: Some(1 << 20),
        segment_size: Some(64 << 10),
        memory: 0,
        flush: Duration::ZERO,
        ..ZoneConf::new("fuzz", PathBuf::from(home))
    };
    let platform = Platform {
        io: Arc::new(SimIo::new()),
        events: Arc::new(|_| {}),
        ..Platform::default()
    };
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    Zone::open_on(conf, clock, platform).expect("a damaged zone opens")
}

/// Applies one change: what, which file, where, how much, and a byte.
fn apply(files: &mut [(String, Vec<u8>)], change: &[u8]) {
    let [what, file, a, b, c, len, byte, other] = *change else {
        return;
    };
    let count = files.len();
    let Some((_, bytes)) = files.get_mut(usize::from(file) % count.max(1)) else {
        return;
    };
    let at = u32::from_le_bytes([a, b, c, 0]) as usize % (bytes.len() + 1);
    let end = (at + usize::from(len)).min(bytes.len());
    match what % 6 {
        0 => bytes[at..end].fill(byte),
        1 => bytes.truncate(at),
        2 => bytes.extend(std::iter::repeat_n(byte, usize::from(len))),
        3 => bytes[at..end].iter_mut().for_each(|it| *it ^= byte),
        4 => {
            let to = at.wrapping_mul(usize::from(other) + 1) % (bytes.len() - (end - at) + 1);
            bytes.copy_within(at..end, to);
        }
        _ => {
            let from = usize::from(file) % count;
            let taken = std::mem::take(&mut files[from].1);
            let to = usize::from(other) % count;
            files[from].1 = std::mem::replace(&mut files[to].1, taken);
        }
    }
}

fn key(number: usize) -> Key {
    Key::of(&number.to_le_bytes())
}

fn head(number: usize, len: usize) -> Bytes {
    Bytes::from(format!("entry {number} of {len} bytes"))
}

fn body(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ number) as u8)
        .collect()
}

fn store(zone: &Arc<Zone>, number: usize, len: usize) {
    let Ok(mut writer) = zone.begin(key(number), Some(len as u64)) else {
        return;
    };
    writer.set_head(head(number, len));
    if writer.append(Bytes::from(body(number, len))).is_ok() {
        let _ = writer.finish();
    }
}

/// Checks that an entry that is found is what was stored, byte for byte.
fn check(zone: &Arc<Zone>, number: usize, len: usize) {
    let Some(entry) = zone.find(&key(number)) else {
        return;
    };
    assert_eq!(entry.head(), &head(number, len));
    assert_eq!(entry.len(), len as u64);
    let mut bytes = Vec::new();
    for region in entry.regions(0..len as u64) {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                file.read_exact_at(&mut bytes[start..], offset)
                    .expect("a region of a file");
            }
        }
    }
    assert!(bytes == body(number, len), "entry {number} has other bytes");
}
