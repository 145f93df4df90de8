//! Walks over a zone whose disk does not answer.

use std::task::Poll;

use super::origin::*;
use super::*;
use crate::head::{FieldsWriter, SliceSet};
use crate::slice::generation::Generation;
use crate::slice::reader::SliceReader;

/// Runs a test whose zone has no memory tier.
fn run_cold<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    run_on(|conf| ZoneConf { memory: 0, ..conf }, test);
}

impl Bench {
    /// Stalls the disk: it does not answer from now on, and nothing is on its way to it.
    fn stall(&self) {
        self.zone.store.flush();
        self.io.set(Fault::Stall);
    }

    /// Waits until so many reads do not return.
    fn until_stalled(&self, reads: u64) {
        while self.io.stalled() < reads {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_a_disk_does_not_give_in_time_is_asked_of_the_origin() {
    run_cold(|bench| async move {
        bench.script([ok("old"), ok("new")]);
        bench.get("k").await;
        bench.stall();
        let began = Instant::now();
        let answer = bench.send(client("k")).await;
        assert_eq!(answer.text(), "MISS new");
        assert_eq!(answer.trail, "lookup read lookup fetch deliver");
        assert_eq!(answer.account.reason, Some(Reason::DiskStalled));
        assert_eq!(began.elapsed(), SECOND);
        bench.io.set(Fault::None);
        assert_eq!(bench.get("k").await, "HIT new");
    });
}

#[test]
fn what_a_slow_disk_gives_in_time_is_a_hit() {
    run_cold(|bench| async move {
        bench.script([ok("old")]);
        bench.get("k").await;
        bench.stall();
        // The paused clock stands still while a thread of the runtime works.
        let (done, works) = std::sync::mpsc::channel::<()>();
        let works = tokio::task::spawn_blocking(move || works.recv().is_err());
        let waiting = bench.start(client("k"));
        tokio::task::yield_now().await;
        bench.until_stalled(1);
        bench.io.set(Fault::None);
        let answer = waiting.await.unwrap();
        assert_eq!(answer.text(), "HIT old");
        assert_eq!(answer.trail, "lookup read lookup deliver");
        drop(done);
        assert!(works.await.unwrap());
        assert_eq!(bench.asked(), 1);
    });
}

#[test]
fn who_waits_for_one_entry_of_a_stalled_disk_asks_the_origin_once() {
    run_cold(|bench| async move {
        bench.script([ok("old"), ok("new").after(100).pause(5)]);
        bench.get("k").await;
        bench.stall();
        let waiting: Vec<_> = (0..1000).map(|_| bench.start(client("k"))).collect();
        let mut hits = 0;
        for answer in waiting {
            let text = answer.await.unwrap().text();
            assert!(text == "MISS new" || text == "HIT new", "{text}");
            hits += usize::from(text == "HIT new");
        }
        assert_eq!((hits, bench.asked()), (999, 2));
        assert_eq!(bench.io.injected(), 1, "reads of the disk");
        bench.io.set(Fault::None);
    });
}

#[test]
fn a_disk_that_nobody_got_an_answer_from_is_not_waited_for() {
    run_cold(|bench| async move {
        const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
        for key in KEYS {
            bench.script([ok("old")]);
            bench.get(key).await;
        }
        bench.stall();
        let waiting = KEYS.iter().take(4).map(|key| {
            bench.script([ok("new")]);
            bench.start(client(key))
        });
        let waiting: Vec<_> = waiting.collect();
        tokio::task::yield_now().await;
        bench.until_stalled(4);
        for answer in waiting {
            assert_eq!(answer.await.unwrap().text(), "MISS new");
        }
        bench.clock.advance(SECOND);
        let began = Instant::now();
        bench.script([ok("new")]);
        let answer = bench.send(client("e")).await;
        assert_eq!(answer.text(), "MISS new");
        assert_eq!(answer.trail, "lookup fetch deliver");
        assert_eq!(began.elapsed(), Duration::ZERO);
        bench.io.set(Fault::None);
    });
}

#[test]
fn other_disks_and_what_is_in_memory_answer_at_once_meanwhile() {
    run(|bench| async move {
        bench.script([ok("in memory")]);
        bench.get("k").await;
        bench.stall();
        let began = Instant::now();
        let answer = bench.send(client("k")).await;
        assert_eq!(answer.text(), "HIT in memory");
        assert_eq!(began.elapsed(), Duration::ZERO);
        bench.io.set(Fault::None);
    });
}

const SLICE: u64 = 300_000;

/// A body of three slices that are on the disk.
fn sliced(bench: &Bench) -> (SliceReader<FakeExchange>, String) {
    let body: String = ('a'..='z').cycle().take(3 * SLICE as usize).collect();
    let set = SliceSet {
        generation: [7; 16],
        total: 3 * SLICE,
        size: SLICE,
    };
    let mut fields = FieldsWriter::default();
    fields.push(b"ETag", b"\"v\"");
    let mut head = StoredHead::new(200, fields);
    head.sliced = Some(set);
    let store = &bench.zone.store;
    for index in 0..3 {
        let span = set.span(index);
        let bytes = &body.as_bytes()[span.start as usize..span.end as usize];
        let mut writer = store
            .begin(set.key(store.keys(), index), Some(SLICE))
            .unwrap();
        let owner = bench.walk(&client("k")).key.key;
        writer.set_head(set.record_head((&owner, b""), index));
        writer.append(Bytes::copy_from_slice(bytes)).unwrap();
        writer.finish().unwrap();
    }
    let generation = Generation::new(
        Arc::clone(store),
        bench.walk(&client("k")).key.key,
        &head,
        set,
    );
    let x = FakeExchange::new(Rc::clone(&bench.world), client("k"));
    let reader = SliceReader::new(x, &Arc::new(generation), 0..set.total);
    (reader, body)
}

/// The origin's answer to a request for these bytes of a body.
fn range(body: &str, start: usize, end: usize) -> Script {
    let range = format!("bytes {start}-{}/{}", end - 1, body.len());
    status(206)
        .piece(&body[start..end])
        .field("Content-Range", &range)
        .field("ETag", "\"v\"")
}

/// Text that a reader reads next, as far as it is ready.
async fn read_some(reader: &mut SliceReader<FakeExchange>, len: usize) -> String {
    let mut read = Vec::new();
    while read.len() < len {
        let next = std::future::poll_fn(|cx| reader.poll_next(cx)).await;
        match next {
            Some(Ok(region)) => read.extend(regions([region])),
            Some(Err(failure)) => panic!("{failure}"),
            None => break,
        }
    }
    String::from_utf8(read).unwrap()
}

#[test]
fn slices_on_a_stalled_disk_come_from_the_origin() {
    run_cold(|bench| async move {
        let (mut reader, body) = sliced(&bench);
        let first = SLICE as usize;
        assert!(read_some(&mut reader, first).await == body[..first]);
        bench.stall();
        bench.script([
            range(&body, first, 2 * first),
            range(&body, 2 * first, 3 * first),
        ]);
        let began = Instant::now();
        assert!(read_some(&mut reader, 2 * first).await == body[first..]);
        assert_eq!(bench.asked(), 2);
        assert!(began.elapsed() <= 2 * SECOND);
        bench.io.set(Fault::None);
    });
}

#[test]
fn a_reader_of_slices_waits_for_a_disk_that_is_merely_slow() {
    run_cold(|bench| async move {
        let (mut reader, body) = sliced(&bench);
        bench.stall();
        let (done, works) = std::sync::mpsc::channel::<()>();
        let works = tokio::task::spawn_blocking(move || works.recv().is_err());
        let first = std::future::poll_fn(|cx| Poll::Ready(reader.poll_next(cx).is_pending())).await;
        assert!(first, "the disk has not answered yet");
        bench.until_stalled(1);
        bench.io.set(Fault::None);
        assert!(read_some(&mut reader, body.len()).await == body);
        drop(done);
        assert!(works.await.unwrap());
        assert_eq!(bench.asked(), 0);
    });
}

#[test]
fn a_fill_whose_disk_stops_writing_goes_on_for_its_client() {
    run_on(
        |conf| conf,
        |bench| async move {
            const PIECE: usize = 1 << 20;
            let piece = "x".repeat(PIECE);
            bench.io.set(Fault::StallWrites);
            let mut script = status(200).cc("max-age=60");
            for _ in 0..10 {
                script = script.piece(&piece).pause(1);
            }
            bench.script([script]);
            let began = Instant::now();
            let answer = bench.send(client("k")).await;
            assert_eq!(answer.label, "MISS");
            assert_eq!(answer.body.map(|body| body.len()), Ok(10 * PIECE));
            assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
            bench.io.set(Fault::None);
        },
    );
}
