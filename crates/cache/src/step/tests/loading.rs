//! Walks over a zone of which not all is loaded yet.

use std::task::Poll;

use millpond_semantics::range::RangeSpec;
use millpond_store::{Key, Look};

use super::origin::*;
use super::*;
use crate::head::{FieldsWriter, SliceSet};
use crate::slice::generation::Generation;
use crate::slice::reader::SliceReader;
use crate::slice::{ClientWish, First, Trust};

/// Segments are so small that a few bodies fill one.
const SEGMENT: u64 = 64 << 10;
const SLICE: u64 = 1000;

/// Runs a test whose zone has no memory tier and is loaded in the background.
fn run_small<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    run_on(conf, test);
}

fn conf(conf: ZoneConf) -> ZoneConf {
    ZoneConf {
        memory: 0,
        segment_size: Some(SEGMENT),
        warm_up: 0,
        ..conf
    }
}

impl Bench {
    /// Ends the segment that is written to.
    fn fill_segment(&self) {
        let store = &self.zone.store;
        for number in 0..10 {
            let key = Key::of(format!("filler {number}").as_bytes());
            let mut writer = store.begin(key, None).unwrap();
            writer.set_head(Bytes::from_static(b"filler"));
            writer.append(Bytes::from(vec![0; 8000])).unwrap();
            writer.finish().unwrap();
        }
        store.flush();
    }

    /// Opens the zone again, of which nothing but its newest segment is loaded before the fault is
    /// another one.
    fn reopen(&mut self) {
        self.zone.store.close();
        let dir = self._dir.path().join("zone");
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if let Some(number) = name.strip_prefix("segment-") {
                let number: u32 = number.parse().unwrap();
                segments.push((number, entry.path(), entry.metadata().unwrap().len()));
            }
        }
        segments.sort();
        segments.pop().expect("a segment");
        assert!(!segments.is_empty(), "there is more than the newest");
        for (_, path, len) in segments {
            // Its header and its footer can be read.
            self.io.damage(&path, 64..len - 64).unwrap();
        }
        self.io.set(Fault::StallSectors);
        let platform = Platform {
            io: self.io.clone(),
            ..Platform::default()
        };
        let conf = conf(ZoneConf {
            max_size: Some(64 << 20),
            flush: Duration::ZERO,
            ..ZoneConf::new("test", dir)
        });
        let store = Zone::open_on(conf, self.clock.clone(), platform).unwrap();
        self.zone = Arc::new(CacheZone::new("test".to_string(), store));
    }

    /// Lets loading go on, while `waiting` waits for it.
    async fn load_during<T>(&self, waiting: impl Future<Output = T>) -> T {
        // The paused clock stands still while a thread of the runtime works.
        let (done, works) = std::sync::mpsc::channel::<()>();
        let works = tokio::task::spawn_blocking(move || works.recv().is_err());
        let mut waiting = std::pin::pin!(waiting);
        for _ in 0..10 {
            let waits = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx)));
            assert!(waits.await.is_pending(), "it does not wait");
            tokio::task::yield_now().await;
        }
        self.io.set(Fault::None);
        let waited = waiting.await;
        drop(done);
        assert!(works.await.unwrap());
        waited
    }

    /// Loads the rest, to its end.
    fn load(&self) {
        self.io.set(Fault::None);
        assert!(self.zone.store.loaded());
    }
}

#[test]
fn what_is_held_and_not_loaded_yet_is_waited_for_and_a_hit() {
    run_small(|mut bench| async move {
        bench.script([ok("old")]);
        bench.get("k").await;
        bench.fill_segment();
        bench.reopen();
        let waiting: Vec<_> = (0..100).map(|_| bench.start(client("k"))).collect();
        let answers = bench.load_during(async {
            let mut answers = Vec::new();
            for answer in waiting {
                answers.push(answer.await.unwrap());
            }
            answers
        });
        for answer in answers.await {
            assert_eq!(answer.text(), "HIT old");
            assert!(
                answer.trail.starts_with("lookup read lookup"),
                "{}",
                answer.trail
            );
        }
        assert_eq!(bench.asked(), 1);
    });
}

#[test]
fn who_has_waited_long_enough_passes_and_replaces_nothing() {
    run_small(|mut bench| async move {
        bench.script([ok("old")]);
        bench.get("k").await;
        bench.fill_segment();
        bench.reopen();
        bench.script([ok("new"), ok("never there")]);
        let began = Instant::now();
        let answer = bench.send(client("k")).await;
        assert_eq!(answer.text(), "MISS new");
        assert_eq!(answer.trail, "lookup read lookup pass deliver");
        assert_eq!(answer.account.reason, Some(Reason::Loading));
        assert_eq!(began.elapsed(), SECOND);
        assert_eq!(bench.ask(1).purpose, Purpose::Pass);
        assert_eq!(bench.get("other").await, "MISS never there");
        bench.load();
        assert_eq!(bench.get("k").await, "HIT old");
        bench.script([ok("stored")]);
        assert_eq!(bench.get("other").await, "MISS stored");
        assert_eq!(bench.get("other").await, "HIT stored");
    });
}

#[test]
fn a_zone_that_does_not_go_on_loading_is_not_waited_for() {
    run_small(|mut bench| async move {
        bench.script([ok("old")]);
        bench.get("k").await;
        bench.fill_segment();
        bench.reopen();
        bench.clock.advance(5 * SECOND);
        bench.script([ok("new")]);
        let began = Instant::now();
        let answer = bench.send(client("k")).await;
        assert_eq!(answer.text(), "MISS new");
        assert_eq!(answer.trail, "lookup pass deliver");
        assert_eq!(began.elapsed(), Duration::ZERO);
        bench.load();
        assert_eq!(bench.get("k").await, "HIT old");
    });
}

#[test]
fn a_bypass_of_what_is_not_loaded_is_passed_unstored() {
    run_small(|mut bench| async move {
        bench.script([ok("old")]);
        bench.get("k").await;
        bench.fill_segment();
        bench.reopen();
        bench.script([ok("new")]);
        let answer = bench.send(client("k").bypassed()).await;
        assert_eq!(answer.text(), "BYPASS new");
        assert_eq!(answer.account.reason, Some(Reason::Loading));
        bench.load();
        assert_eq!(bench.get("k").await, "HIT old");
    });
}

#[test]
fn a_variant_is_waited_for_although_its_first_is_known() {
    run_small(|mut bench| async move {
        bench.policies.revalidate.conditional = true;
        let varied = |body, age| ok(body).field("Vary", "Accept").cc(age);
        bench.script([varied("A", "max-age=60"), varied("B", "max-age=6000")]);
        bench.get_with("k", "accept", "a").await;
        bench.get_with("k", "accept", "b").await;
        bench.fill_segment();
        pass_time(61 * SECOND).await;
        bench.script([status(304).cc("max-age=60")]);
        let renewed = bench.get_with("k", "accept", "a").await;
        assert_eq!(renewed, "REVALIDATED A");
        bench.reopen();
        assert_eq!(bench.get_with("k", "accept", "a").await, "HIT A");
        let second = bench.start(client("k").field("accept", "b"));
        let second = bench.load_during(second).await.unwrap();
        assert_eq!(second.text(), "HIT B");
        assert_eq!(bench.asked(), 3);
    });
}

#[test]
fn a_purge_counts_for_what_is_not_loaded() {
    run_small(|mut bench| async move {
        bench.script([ok("old")]);
        bench.get("k").await;
        bench.fill_segment();
        bench.reopen();
        assert!(bench.zone.has(b"k"), "it may be there");
        bench.zone.store.remove(&bench.zone.keys().of(b"k"));
        assert!(!bench.zone.has(b"k"));
        bench.script([ok("new")]);
        assert_eq!(bench.get("k").await, "MISS new");
        bench.load();
        assert_eq!(bench.get("k").await, "HIT new");
    });
}

/// A body of three slices, of which the head is written last and the slices stand in a segment
/// before it.
fn sliced(bench: &Bench, key: &'static str) -> (SliceSet, StoredHead) {
    let set = SliceSet {
        generation: [7; 16],
        total: 3 * SLICE,
        size: SLICE,
    };
    let mut fields = FieldsWriter::default();
    fields.push(b"ETag", b"\"v\"");
    let mut head = StoredHead::new(200, fields);
    head.sliced = Some(set);
    head.key = Bytes::from_static(key.as_bytes());
    head.valid_until = EPOCH + 1000;
    let store = &bench.zone.store;
    let owner = store.keys().of(key.as_bytes());
    for index in 0..3 {
        let mut writer = store
            .begin(set.key(store.keys(), index), Some(SLICE))
            .unwrap();
        writer.set_head(set.record_head((&owner, b""), index));
        writer.append(slice_body(index)).unwrap();
        writer.finish().unwrap();
    }
    (set, head)
}

fn slice_body(index: u64) -> Bytes {
    Bytes::from(vec![b'a' + index as u8; SLICE as usize])
}

fn store_head(bench: &Bench, key: &'static str, head: &StoredHead) {
    let mut writer = bench
        .zone
        .store
        .begin(bench.zone.keys().of(key.as_bytes()), Some(0))
        .unwrap();
    writer.set_head(head.encode());
    writer.finish().unwrap();
}

/// A request for eleven bytes of the second slice.
fn eleven(bench: &Bench, key: &'static str) -> Walk {
    let mut walk = bench.walk(&client(key));
    walk.slicing = Some(crate::slice::Slicing {
        size: SLICE,
        first: First::Range,
        client: ClientWish::Range(RangeSpec::FromTo {
            start: SLICE + 100,
            end_exclusive: SLICE + 111,
        }),
        is_conditional: false,
        confirms: false,
        trust: Trust::Validated,
    });
    walk
}

fn generation_of(bench: &Bench, key: &'static str) -> Option<[u8; 16]> {
    let key = bench.zone.keys().of(key.as_bytes());
    let entry = bench.zone.store.find(&key)?;
    let head = StoredHead::decode(entry.head())?;
    Some(head.sliced?.generation)
}

fn slice_range(index: u64) -> Script {
    let (start, end) = (index * SLICE, (index + 1) * SLICE);
    let text = String::from_utf8(slice_body(index).to_vec()).unwrap();
    let range = format!("bytes {start}-{}/{}", end - 1, 3 * SLICE);
    status(206)
        .piece(&text)
        .field("Content-Range", &range)
        .field("ETag", "\"v\"")
        .cc("max-age=60")
}

#[test]
fn a_range_of_a_body_in_slices_that_is_not_loaded_begins_no_other_version() {
    run_small(|mut bench| async move {
        let (_, head) = sliced(&bench, "k");
        store_head(&bench, "k", &head);
        bench.fill_segment();
        bench.reopen();
        // One that has waited for long enough.
        bench.script([slice_range(1)]);
        let mut x = FakeExchange::new(Rc::clone(&bench.world), client("k"));
        let walk = eleven(&bench, "k");
        let served = serve(&mut x, &walk, &mut |_| {}).await;
        assert!(matches!(served, Ok(Served::Passed(..))));
        assert_eq!(bench.ask(0).range, None, "the client's own request goes on");
        // One that waits.
        let mut x = FakeExchange::new(Rc::clone(&bench.world), client("k"));
        let served = bench.load_during(serve(&mut x, &walk, &mut |_| {})).await;
        let Ok(Served::Entry(found, CacheStatus::Hit)) = served else {
            panic!("no hit");
        };
        assert_eq!(found.head.sliced.map(|set| set.generation), Some([7; 16]));
        assert_eq!(generation_of(&bench, "k"), Some([7; 16]));
        assert_eq!(bench.asked(), 1);
    });
}

/// A reader of a body whose head is known, and of whose slices nothing is loaded.
fn reader(bench: &mut Bench) -> (SliceSet, SliceReader<FakeExchange>) {
    let (set, head) = sliced(bench, "k");
    bench.fill_segment();
    store_head(bench, "k", &head);
    bench.reopen();
    assert_eq!(generation_of(bench, "k"), Some([7; 16]));
    let store = Arc::clone(&bench.zone.store);
    let owner = bench.zone.keys().of(b"k");
    let generation = Generation::new(store, owner, &head, set);
    let x = FakeExchange::new(Rc::clone(&bench.world), client("k"));
    let reader = SliceReader::new(x, &Arc::new(generation), 0..set.total);
    (set, reader)
}

async fn read_all(reader: &mut SliceReader<FakeExchange>) -> Vec<u8> {
    let mut read = Vec::new();
    while let Some(next) = std::future::poll_fn(|cx| reader.poll_next(cx)).await {
        read.extend(regions([next.unwrap()]));
    }
    read
}

fn whole_body() -> Vec<u8> {
    (0..3).flat_map(slice_body).collect()
}

#[test]
fn slices_that_are_not_loaded_are_waited_for() {
    run_small(|mut bench| async move {
        let (_, mut reader) = reader(&mut bench);
        assert!(reader.is_at_hand(), "they may be held");
        let body = bench.load_during(read_all(&mut reader)).await;
        assert!(body == whole_body());
        assert_eq!(bench.asked(), 0);
    });
}

#[test]
fn slices_that_are_not_loaded_in_time_come_from_the_origin_and_are_not_replaced() {
    run_small(|mut bench| async move {
        let (set, mut reader) = reader(&mut bench);
        bench.script([slice_range(0), slice_range(1), slice_range(2)]);
        let began = Instant::now();
        assert!(read_all(&mut reader).await == whole_body());
        assert_eq!(began.elapsed(), SECOND, "one wait for all slices");
        assert_eq!(bench.asked(), 3);
        let usage = bench.zone.store.usage();
        bench.load();
        for index in 0..3 {
            let found = bench.zone.store.look(&set.key(bench.zone.keys(), index));
            assert!(matches!(found, Look::Found(_) | Look::Cold(_)), "{index}");
        }
        assert_eq!(bench.zone.store.usage().written_bytes, usage.written_bytes);
    });
}
