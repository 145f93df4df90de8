//! A zone on a FUSE file system whose reads fail: who reads along with a fill has its whole body,
//! later readers have the right bytes or an error before the first of them, and nobody waits for
//! ever.
//!
//! Only root may mount one; where that is not permitted, the tests say so and end. `SEED=n` tries
//! another sequence of reads that fail.

#[path = "support/fuse_files.rs"]
mod fuse_files;
#[path = "support/fuse_server.rs"]
mod fuse_server;
#[path = "support/random.rs"]
mod random;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{
    Entry, Haste, HeldFile, Key, LoadError, Look, ManualClock, NotStored, Platform, Region, View,
    Zone, ZoneConf,
};

use fuse_files::{FuseFiles, Reads};

const KEYS: u64 = 24;
const PIECE: usize = 100_000;
/// Rounds of all keys while some reads fail.
const ROUNDS: u64 = 6;
/// A look that is cold is followed by one that is not; what is not loaded yet takes one more.
const LOOKS: u64 = 4;
/// Nothing takes so long, unless a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    files: FuseFiles,
    clock: Arc<ManualClock>,
    _home: tempfile::TempDir,
}

impl Scene {
    fn new() -> Option<Self> {
        let home = tempfile::tempdir().expect("directory");
        let seed = std::env::var("SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let Some(files) = FuseFiles::mount(home.path(), seed.unwrap_or(1)) else {
            millpond_testkit::skip("no FUSE file system can be mounted here");
            return None;
        };
        Some(Self {
            files,
            clock: Arc::new(ManualClock::new(1_790_000_000_000)),
            _home: home,
        })
    }

    fn open(&self) -> Arc<Zone> {
        let conf = ZoneConf {
            max_size: Some(256 << 20),
            segment_size: Some(8 << 20),
            memory: 0,
            inactive: Duration::from_secs(1 << 30),
            ..ZoneConf::new("fuse", self.files.dir().join("zone"))
        };
        let clock = Arc::<ManualClock>::clone(&self.clock);
        Zone::open_on(conf, clock, Platform::default()).expect("opens")
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

/// Body of a version: from some hundred bytes to more than what is kept in memory of a fill.
fn body(number: u64, version: u64) -> Vec<u8> {
    let len = 300 + number % 6 * 950_000 + number * 1000 + version;
    let seed = number << 32 | version;
    let byte = |at: u64| (seed + at / 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..len).map(|at| byte(at) as u8).collect()
}

/// Takes bytes of a file as who sends them does: when a thread has read them into memory.
async fn load(file: &HeldFile, offset: u64, len: u64) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        let (at, rest) = (offset + bytes.len() as u64, len - bytes.len() as u64);
        if file.ready_len(at, rest) == 0 {
            let loading = file.load(at, rest, Haste::Patient);
            let loaded = tokio::time::timeout(PATIENCE, loading.done()).await;
            loaded.expect("a read that fails is no read that hangs")?;
        }
        match file.in_memory(at, rest) {
            Some(kept) => bytes.extend_from_slice(&kept),
            None => bytes.extend_from_slice(&send(file, at, rest)?),
        }
    }
    Ok(bytes)
}

/// Bytes that the kernel sends of a file whose page cache is believed.
fn send(file: &HeldFile, offset: u64, len: u64) -> Result<Vec<u8>, LoadError> {
    assert!(file.is_local(), "a thread has read it, but not into memory");
    let mut bytes = vec![0; len as usize];
    let sent = file.read_exact_at(&mut bytes, offset);
    sent.map_err(|error| LoadError::Io(error.to_string()))?;
    Ok(bytes)
}

/// Appends what comes of the regions, up to the first error.
async fn take(
    bytes: &mut Vec<u8>,
    regions: impl IntoIterator<Item = Region>,
) -> Result<(), LoadError> {
    for region in regions {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                bytes.extend_from_slice(&load(&file, offset, len).await?);
            }
        }
    }
    Ok(())
}

/// Reader that reads along with a fill.
struct Reader {
    view: View,
    bytes: Vec<u8>,
}

impl Reader {
    async fn read_on(&mut self) {
        let range = self.bytes.len() as u64..self.view.len();
        let regions = self.view.regions(range);
        let taken = take(&mut self.bytes, regions).await;
        taken.expect("who reads along reads memory");
        assert_eq!(self.bytes.len() as u64, self.view.len());
    }
}

/// Stores a version while somebody reads along, who has all of it, stored or not.
async fn fill(zone: &Zone, number: u64, version: u64) -> Result<Entry, NotStored> {
    let wanted = body(number, version);
    let expected = number.is_multiple_of(2).then_some(wanted.len() as u64);
    let mut writer = zone.begin(key(number), expected)?;
    writer.set_head(Bytes::from(version.to_string()));
    let mut reader = Reader {
        view: writer.view(),
        bytes: Vec::new(),
    };
    let mut appended = 0;
    for piece in wanted.chunks(PIECE) {
        if let Err(why) = writer.append(Bytes::copy_from_slice(piece)) {
            reader.read_on().await;
            assert!(reader.bytes.len() >= appended);
            assert!(wanted.starts_with(&reader.bytes), "{number}: other bytes");
            return Err(why);
        }
        appended += piece.len();
        // Everything is written, and some of it lies behind who reads.
        zone.flush();
        if appended / PIECE % 7 != 3 {
            reader.read_on().await;
        }
    }
    let finished = writer.finish();
    zone.flush();
    reader.read_on().await;
    assert!(reader.bytes == wanted, "{number}: other bytes");
    finished
}

/// Answer to a later reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Whole,
    /// An error after some bytes.
    Cut,
    /// An error before the first byte, or nothing was found.
    Nothing,
}

async fn look(zone: &Zone, number: u64) -> Option<Entry> {
    // What was read is found as long as this is kept.
    let mut _asked = None;
    for _ in 0..LOOKS {
        match zone.look(&key(number)) {
            Look::Found(entry) => return Some(entry),
            Look::Missing | Look::Stalled | Look::Unknown(None) => return None,
            Look::Cold(cold) | Look::Unknown(Some(cold)) => {
                let waited = tokio::time::timeout(PATIENCE, cold.wait()).await;
                waited.expect("a read that fails is no read that hangs");
                _asked = Some(cold);
            }
        }
    }
    panic!("{number} is read again and again");
}

/// Reads an entry once more; no byte is another one than that of the version.
async fn read_later(zone: &Zone, number: u64) -> Given {
    let Some(entry) = look(zone, number).await else {
        return Given::Nothing;
    };
    let version = std::str::from_utf8(entry.head()).expect("digits");
    let wanted = body(number, version.parse().expect("a number"));
    let mut bytes = Vec::new();
    let taken = take(&mut bytes, entry.regions_to_load(0..entry.len())).await;
    assert!(wanted.starts_with(&bytes), "{number}: other bytes");
    match taken {
        Ok(()) => {
            assert_eq!(
                bytes.len(),
                wanted.len(),
                "{number} is cut without an error"
            );
            Given::Whole
        }
        Err(_) if bytes.is_empty() => Given::Nothing,
        Err(_) => Given::Cut,
    }
}

async fn count_whole(zone: &Zone) -> u64 {
    let mut whole = 0;
    for number in 0..KEYS {
        whole += u64::from(read_later(zone, number).await == Given::Whole);
    }
    whole
}

/// No read of a segment is answered, as any of them shows; readers along do not notice.
#[tokio::test]
async fn who_reads_along_has_all_of_a_body_though_no_read_succeeds() {
    let Some(scene) = Scene::new() else { return };
    let zone = scene.open();
    scene.files.set(Reads::Fail);
    for number in 0..KEYS {
        fill(&zone, number, 1).await.expect("stored");
    }
    let names = std::fs::read_dir(scene.files.dir().join("zone")).expect("listed");
    let mut paths = names.map(|name| name.expect("a name").path());
    let is_segment = |path: &std::path::PathBuf| path.to_string_lossy().contains("segment-");
    let segment = paths.find(is_segment).expect("something was stored");
    let error = std::fs::read(segment).expect_err("reads fail");
    assert_eq!(error.raw_os_error(), Some(5));
    scene.files.set(Reads::Answer);
    assert_eq!(count_whole(&zone).await, KEYS, "it is all there");
    zone.close();
}

/// Another process finds what was stored, and cannot read it: nothing is given, and nothing hangs.
/// The one after it has everything.
#[tokio::test]
async fn later_readers_are_given_nothing_while_no_read_succeeds() {
    let Some(scene) = Scene::new() else { return };
    let zone = scene.open();
    for number in 0..KEYS {
        fill(&zone, number, 1).await.expect("stored");
    }
    zone.close();
    drop(zone);
    let zone = scene.open();
    assert!(zone.loaded());
    scene.files.set(Reads::Fail);
    for number in 0..KEYS {
        assert_eq!(read_later(&zone, number).await, Given::Nothing, "{number}");
    }
    assert!(scene.files.refused() > 0);
    scene.files.set(Reads::Answer);
    zone.close();
    drop(zone);
    let zone = scene.open();
    assert!(zone.loaded());
    assert_eq!(count_whole(&zone).await, KEYS);
    zone.close();
}

/// Fills, readers along and later readers while one of four reads fails; when it is over, what is
/// stored is found again, also by the next process.
#[tokio::test]
async fn no_byte_is_wrong_while_some_reads_fail() {
    let Some(scene) = Scene::new() else { return };
    let zone = scene.open();
    let (mut stored, mut given) = (0, [0; 3]);
    for version in 1..=ROUNDS {
        scene.files.set(Reads::FailOneOf(4));
        for number in 0..KEYS {
            stored += u64::from(fill(&zone, number, version).await.is_ok());
            for other in [number, (number * 7 + version) % KEYS] {
                given[read_later(&zone, other).await as usize] += 1;
            }
        }
        scene.files.set(Reads::Answer);
        scene.clock.advance(Duration::from_secs(61));
        zone.sweep();
        zone.wait_for_disks();
    }
    let [whole, cut, nothing] = given;
    let refused = scene.files.refused();
    println!("{stored} stored; {whole} whole, {cut} cut, {nothing} not; {refused} reads failed");
    assert!(stored > 0 && whole > 0 && refused > 0);
    let version = ROUNDS + 1;
    for number in 0..KEYS {
        fill(&zone, number, version).await.expect("stored");
    }
    assert_eq!(count_whole(&zone).await, KEYS);
    zone.close();
    drop(zone);
    let zone = scene.open();
    assert!(zone.loaded());
    assert_eq!(count_whole(&zone).await, KEYS);
    zone.close();
}
