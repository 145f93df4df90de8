//! A zone on a file system that another machine or process serves: what is in its page cache is not
//! believed to stay there, so nothing is sent from it, and who reads along reads from memory.

#[path = "support/read.rs"]
mod read;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Entry, Fault, Haste, HeldFile, Key, LoadError, Look, ManualClock, Platform, Region, SimIo,
    Written, Zone, ZoneConf,
};

use read::read;

const LEN: usize = 3 << 20;

struct Scene {
    zone: Arc<Zone>,
    io: Arc<SimIo>,
    _home: tempfile::TempDir,
}

fn open() -> Scene {
    let home = tempfile::tempdir().expect("directory");
    let io = Arc::new(SimIo::new());
    io.set_remote();
    let platform = Platform {
        io: Arc::<SimIo>::clone(&io),
        ..Platform::default()
    };
    let conf = ZoneConf {
        memory: 0,
        ..ZoneConf::new("remote", home.path().join("zone"))
    };
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let zone = Zone::open_on(conf, clock, platform).expect("opens");
    Scene {
        zone,
        io,
        _home: home,
    }
}

fn key() -> Key {
    Key::of(b"k")
}

fn body() -> Vec<u8> {
    (0..LEN as u64).map(|at| ((at * 31) >> 7) as u8).collect()
}

fn is_in_memory(regions: &[Region]) -> bool {
    regions.iter().all(|it| matches!(it, Region::Memory(_)))
}

fn region_of(entry: &Entry) -> (HeldFile, u64, u64) {
    match entry.regions_to_load(0..entry.len()).next() {
        Some(Region::File { file, offset, len }) => (file, offset, len),
        other => panic!("{other:?}"),
    }
}

fn store(scene: &Scene) -> Entry {
    let mut writer = scene.zone.begin(key(), None).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    writer.append(Bytes::from(body())).expect("taken");
    writer.finish().expect("stored");
    scene.zone.flush();
    scene.zone.find(&key()).expect("found")
}

/// A reader that reads along gets what was written out of memory, also where reading it back goes
/// wrong.
#[test]
fn running_fill_is_read_from_memory() {
    let scene = open();
    scene.io.set(Fault::ReadError);
    let mut writer = scene.zone.begin(key(), None).expect("begun");
    writer.set_head(Bytes::from_static(b"head"));
    let view = writer.view();
    for piece in body().chunks(100_000) {
        writer.append(Bytes::copy_from_slice(piece)).expect("taken");
        scene.zone.flush();
        assert!(matches!(view.written(0..view.len()), Written::No));
        let regions = view.regions(0..view.len());
        assert!(is_in_memory(&regions));
        assert!(read(regions) == body()[..view.len() as usize]);
    }
    writer.finish().expect("stored");
    scene.zone.flush();
    // From any place, and to any.
    for range in [0..10, 5_000..2_000_000, 3_000_000..LEN as u64] {
        let regions = view.regions(range.clone());
        assert!(is_in_memory(&regions));
        assert!(read(regions) == body()[range.start as usize..range.end as usize]);
    }
}

/// Memory that is kept of a fill is bounded; what is before that is in the file.
#[test]
fn what_is_kept_of_a_fill_is_bounded() {
    let scene = open();
    let mut writer = scene.zone.begin(key(), None).expect("begun");
    let view = writer.view();
    for _ in 0..4 {
        writer.append(Bytes::from(body())).expect("taken");
        scene.zone.flush();
    }
    let memory = |regions: &[Region]| -> u64 {
        let in_memory = regions.iter().filter(|it| matches!(it, Region::Memory(_)));
        in_memory.map(Region::len).sum()
    };
    let regions = view.regions(0..view.len());
    let kept = memory(&regions);
    assert!((LEN as u64..8 << 20).contains(&kept), "{kept}");
    assert!(read(regions) == body().repeat(4));
}

/// Bytes that were just written are not ready before a thread has read them, into memory.
#[tokio::test]
async fn body_is_ready_once_a_thread_has_read_it_into_memory() {
    let scene = open();
    let entry = store(&scene);
    let (file, offset, len) = region_of(&entry);
    assert_eq!(file.ready_len(offset, len), 0);
    let mut at = 0;
    while at < len {
        if file.ready_len(offset + at, len - at) == 0 {
            let loaded = file
                .load(offset + at, len - at, Haste::Patient)
                .done()
                .await;
            loaded.expect("read");
        }
        let bytes = file.in_memory(offset + at, len - at).expect("in memory");
        let from = at as usize;
        assert!(bytes[..] == body()[from..from + bytes.len()]);
        at += bytes.len() as u64;
    }
    let other = store(&scene);
    scene.io.set(Fault::ReadError);
    // It was read a while ago, and is gone from memory only when others take its place.
    assert!(file.ready_len(offset, len) > 0);
    let (file, offset, len) = region_of(&other);
    let loaded = file.load(offset, len, Haste::Patient).done().await;
    assert!(matches!(loaded, Err(LoadError::Io(_))), "{loaded:?}");
    assert_eq!(file.ready_len(offset, len), 0);
}

/// A look reads nothing itself, as fast as the server may be at the moment.
#[tokio::test]
async fn look_leaves_the_reading_to_a_thread() {
    let scene = open();
    drop(store(&scene));
    scene.io.set(Fault::Stall);
    let Look::Cold(cold) = scene.zone.look(&key()) else {
        panic!("it was read");
    };
    scene.io.set(Fault::None);
    let waited = tokio::time::timeout(Duration::from_secs(30), cold.wait());
    waited.await.expect("answers");
    assert!(matches!(scene.zone.look(&key()), Look::Found(_)));
}
