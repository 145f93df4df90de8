//! Bodies of more than 4 GiB, beyond what 32 bits count, on a disk that stores no zeros.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    DirEntry, DiskIo, Key, ManualClock, Platform, RealIo, Region, View, Zone, ZoneConf,
};

const MIB: u64 = 1 << 20;
/// Unit that the file system gives or leaves out at once.
const PAGE: usize = 4096;
/// Somewhat more than 4 GiB, and no multiple of anything.
const LEN: u64 = (4 << 30) + 300 * MIB + 777;

/// A file system that allocates nothing ahead and writes no page of zeros.
struct HollowIo;

impl DiskIo for HollowIo {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        RealIo.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        RealIo.list(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        file.set_len(len)?;
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<std::fs::File> {
        RealIo.open(path)
    }

    fn lock(&self, file: &std::fs::File) -> io::Result<bool> {
        RealIo.lock(file)
    }

    fn read_at(&self, file: &std::fs::File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        RealIo.read_at(file, buf, offset)
    }

    fn write_at(&self, file: &std::fs::File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            for part in buf.chunks(PAGE) {
                if part != &[0; PAGE][..part.len()] {
                    file.write_all_at(part, at)?;
                }
                at += part.len() as u64;
            }
        }
        Ok(())
    }

    fn sync(&self, _: &std::fs::File) -> io::Result<()> {
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealIo.unlink(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealIo.rename(from, to)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn available(&self, dir: &Path) -> io::Result<u64> {
        RealIo.available(dir)
    }

    fn random(&self) -> [u8; 16] {
        RealIo.random()
    }
}

fn open(dir: &Path) -> Arc<Zone> {
    let conf = ZoneConf {
        memory: 1 << 20,
        inactive: Duration::from_secs(1_000_000),
        ..ZoneConf::new("long", dir)
    };
    let platform = Platform {
        io: Arc::new(HollowIo),
        ..Platform::default()
    };
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    Zone::open_on(conf, clock, platform).expect("opens")
}

/// The bytes of a mebibyte of the body: its number, and zeros.
fn piece(number: u64) -> Bytes {
    let len = (LEN - number * MIB).min(MIB) as usize;
    let mut bytes = vec![0; len];
    bytes[..8].copy_from_slice(&(number + 1).to_le_bytes());
    Bytes::from(bytes)
}

fn read(regions: impl IntoIterator<Item = Region>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for region in regions {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                file.read_exact_at(&mut bytes[start..], offset)
                    .expect("read");
            }
        }
    }
    bytes
}

/// Looks at places on both sides of where 31 and 32 bits end, and at the last one.
fn check(regions: impl Fn(std::ops::Range<u64>) -> Vec<Region>) {
    let last = LEN / MIB;
    for number in [0, 1, 2047, 2048, 4095, 4096, 4097, last - 1, last] {
        let start = number * MIB;
        // The end of the one before, too.
        let range = start.saturating_sub(100)..(start + 1000).min(LEN);
        let bytes = read(regions(range.clone()));
        assert_eq!(bytes.len() as u64, range.end - range.start, "{number}");
        let (before, own) = bytes.split_at((start - range.start) as usize);
        assert!(before.iter().all(|byte| *byte == 0));
        assert_eq!(own[..8], (number + 1).to_le_bytes());
        assert!(own[8..].iter().all(|byte| *byte == 0));
    }
    let len: u64 = regions(0..LEN).iter().map(Region::len).sum();
    assert_eq!(len, LEN);
    assert!(read(regions(LEN..LEN + 10)).is_empty());
}

/// Waits until the disk has what is ahead of it: a queue that is full refuses.
fn catch_up(zone: &Zone, view: &View) {
    if view.len().is_multiple_of(64 * MIB) {
        zone.flush();
    }
}

/// A body of more than four gibibytes is stored, read along, found with every byte in its place,
/// and so after a restart.
#[test]
fn body_of_more_than_four_gibibytes_is_stored_whole() {
    let home = tempfile::tempdir().expect("directory");
    let key = Key::of(b"long");
    let zone = open(home.path());
    let mut writer = zone.begin(key, Some(LEN)).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    let view = writer.view();
    for number in 0..LEN.div_ceil(MIB) {
        while !writer.has_room() {
            zone.flush();
        }
        writer.append(piece(number)).expect("taken");
        catch_up(&zone, &view);
    }
    assert_eq!(view.len(), LEN);
    check(|range| view.regions(range));
    let entry = writer.finish().expect("stored");
    assert_eq!(entry.len(), LEN);
    drop((view, entry));
    zone.flush();
    let find = |zone: &Zone| {
        let entry = zone.find(&key).expect("found");
        assert_eq!(entry.len(), LEN);
        entry
    };
    let entry = find(&zone);
    check(|range| entry.regions(range).collect());
    drop(entry);
    assert_eq!(zone.usage().lost + zone.usage().not_stored, 0);
    zone.close();
    drop(zone);
    let zone = open(home.path());
    assert!(zone.loaded());
    let entry = find(&zone);
    // Its slices are in doubt now, and are compared where they are read.
    let regions = |range: std::ops::Range<u64>| match range.end - range.start {
        LEN => entry.regions_to_load(range).collect(),
        _ => entry.regions(range).collect::<Vec<_>>(),
    };
    check(regions);
    assert_eq!(zone.usage().corrupt, 0);
}
