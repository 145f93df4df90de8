//! Generations by themselves: who claims which bytes, what is cut, shortened and given up.
//!
//! There is no origin here: runs are claimed and ended by hand, over a real zone in a directory of
//! its own.

use bytes::Bytes;
use millpond_store::{Fault, ManualClock, Platform, Region, SimIo, ZoneConf};

use super::super::run::Look;
use super::*;
use crate::head::FieldsWriter;

const SIZE: u64 = 4 * DEEP;

fn zone(dir: &tempfile::TempDir, disk: &Arc<SimIo>) -> Arc<Zone> {
    let platform = Platform {
        io: disk.clone(),
        ..Platform::default()
    };
    let conf = ZoneConf::new("slices", dir.path());
    Zone::open_on(conf, Arc::new(ManualClock::new(1000)), platform).unwrap()
}

fn generation(dir: &tempfile::TempDir) -> Generation {
    generation_in(zone(dir, &Arc::default()))
}

fn generation_in(store: Arc<Zone>) -> Generation {
    let head = StoredHead::new(200, FieldsWriter::default());
    let set = SliceSet {
        generation: [1; 16],
        total: 8 * SIZE,
        size: SIZE,
    };
    Generation::new(store, Key::of(b"owner"), &head, set)
}

fn claimed(source: Option<Source>) -> Arc<Run> {
    match source {
        Some(Source::Claimed(run)) => run,
        _ => panic!("somebody else brings it"),
    }
}

fn span(run: &Run) -> Range<u64> {
    run.start..run.end()
}

#[test]
fn an_answer_that_ends_in_the_slice_of_its_tail_leaves_none() {
    let dir = tempfile::tempdir().unwrap();
    let generation = generation(&dir);
    let deep = 2 * DEEP..SIZE;
    let run = claimed(generation.source(&deep, Purpose::Readers));
    let tail = generation.tail(0).unwrap();
    tail.filling.push(Bytes::from_static(b"first"));
    generation.shorten(&run, 3 * DEEP);
    assert!(generation.tail(0).is_none());
    // What does not come is claimed from where it is wanted, beside what does.
    let rest = claimed(generation.source(&(3 * DEEP + 5..SIZE), Purpose::Readers));
    assert_eq!(span(&rest), 3 * DEEP + 5..SIZE);
    let before = claimed(generation.source(&(5..10), Purpose::Readers));
    assert_eq!(span(&before), 0..2 * DEEP);
}

#[test]
fn an_answer_that_ends_in_a_later_slice_gives_that_slice_up() {
    let dir = tempfile::tempdir().unwrap();
    let generation = generation(&dir);
    let run = claimed(generation.source(&(0..3 * SIZE), Purpose::Readers));
    assert_eq!(span(&run), 0..3 * SIZE);
    generation.shorten(&run, 2 * SIZE + 100);
    assert_eq!(span(&run), 0..2 * SIZE);
    let adopted = generation.adopt(4 * SIZE..5 * SIZE + 7, Purpose::Cache);
    assert_eq!(span(&adopted.unwrap()), 4 * SIZE..5 * SIZE);
}

#[test]
fn a_tail_whose_gap_did_not_come_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let generation = generation(&dir);
    let run = claimed(generation.source(&(2 * DEEP..SIZE), Purpose::Readers));
    let tail = generation.tail(0).unwrap();
    let gap = generation.claim_gap(&tail).unwrap();
    tail.finish(true);
    generation.end(&run, RunEnd::Done);
    assert!(generation.tail(0).is_some());
    generation.end(&gap, RunEnd::Refused(503));
    assert!(generation.tail(0).is_none());
}

#[test]
fn a_slice_that_the_disk_does_not_read_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::<SimIo>::default();
    let store = zone(&dir, &disk);
    let set = generation_in(Arc::clone(&store)).set;
    let mut writer = store.begin(set.key(store.keys(), 0), Some(SIZE)).unwrap();
    writer.set_head(set.record_head((&Key::of(b"owner"), b""), 0));
    writer.append(vec![b'x'; SIZE as usize].into()).unwrap();
    writer.finish().unwrap();
    store.close();
    let generation = generation_in(zone(&dir, &disk));
    // What another process wrote is compared before its first use, and that takes a thread.
    assert!(generation.store.find(&generation.key(0)).is_some());
    assert!(generation.source(&(0..SIZE), Purpose::Readers).is_none());
    generation.store.close();
    let generation = generation_in(zone(&dir, &disk));
    disk.set(Fault::ReadError);
    let run = claimed(generation.source(&(0..SIZE), Purpose::Readers));
    assert_eq!(span(&run), 0..SIZE);
}

/// A run of three slices, of which the first has come and is not stored.
fn past_the_first(generation: &Generation) -> Arc<Run> {
    let run = claimed(generation.source(&(0..3 * SIZE), Purpose::Readers));
    for at in [0, DEEP] {
        run.push(at, Region::Memory(vec![b'x'; DEEP as usize].into()));
    }
    run.advance(SIZE + 5);
    run
}

#[test]
fn a_run_covers_what_is_ahead_of_it_and_what_it_still_has() {
    let dir = tempfile::tempdir().unwrap();
    let generation = generation(&dir);
    let run = past_the_first(&generation);
    let covered = |position| {
        let source = generation.source(&(position..SIZE), Purpose::Readers);
        matches!(source, Some(Source::Run(by)) if Arc::ptr_eq(&by, &run))
    };
    assert!(covered(0) && covered(DEEP + 7) && covered(SIZE + 5));
    let seat = run.sit(0);
    seat.move_to(DEEP);
    // What it has passed and does not have is claimed, up to what it brings.
    let before = claimed(generation.source(&(0..3 * SIZE), Purpose::Readers));
    assert_eq!(span(&before), 0..SIZE);
}

#[test]
fn a_slice_that_is_given_up_twice_stays_once() {
    let dir = tempfile::tempdir().unwrap();
    let generation = generation(&dir);
    let run = claimed(generation.source(&(0..3 * SIZE), Purpose::Readers));
    let filling = Arc::new(Filling::new(generation.set.span(0), 0));
    filling.push(vec![b'x'; DEEP as usize].into());
    run.add(&filling);
    run.give_up(&filling);
    run.push(DEEP, Region::Memory(vec![b'y'; DEEP as usize].into()));
    run.give_up(&filling);
    let Look::Bytes(regions) = run.look(0..SIZE) else {
        panic!("it has come");
    };
    let lens: Vec<u64> = regions.iter().map(Region::len).collect();
    assert_eq!(lens, [DEEP, DEEP]);
}

#[test]
fn who_was_let_go_in_a_slice_gets_the_whole_of_it_by_another_run() {
    let dir = tempfile::tempdir().unwrap();
    let generation = generation(&dir);
    let run = past_the_first(&generation);
    // The run is in the middle of the second slice, whose beginning it does not have.
    let own = claimed(generation.source(&(SIZE..3 * SIZE), Purpose::Readers));
    assert_eq!(span(&own), SIZE..2 * SIZE);
    assert!(run.brings(&(2 * SIZE..3 * SIZE)));
}

#[test]
fn a_stored_slice_is_read_from_its_run_while_somebody_stands_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let generation = generation(&dir);
    let run = claimed(generation.source(&(0..3 * SIZE), Purpose::Readers));
    let seats = [run.sit(0), run.sit(SIZE)];
    for index in 0..3 {
        let filling = Arc::new(Filling::new(generation.set.span(index), index * SIZE));
        filling.push(vec![b'x'; SIZE as usize].into());
        run.add(&filling);
        run.advance((index + 1) * SIZE);
        run.land(&filling);
    }
    let is_there = |position| matches!(run.look(position..3 * SIZE), Look::Bytes(_));
    assert_eq!([0, SIZE, 2 * SIZE].map(is_there), [true, true, false]);
    seats[0].move_to(SIZE);
    assert_eq!([0, SIZE].map(is_there), [false, true]);
    drop(seats);
    assert!(!is_there(SIZE));
}

#[test]
fn tails_take_no_more_memory_than_they_may() {
    let memory = TailMemory::default();
    let rooms: Vec<Room> = (0..TAILS_BYTES >> 20)
        .map(|_| memory.take(1 << 20))
        .collect();
    assert!(!memory.has_room(1));
    drop(rooms);
    assert!(memory.has_room(TAILS_BYTES));
}
