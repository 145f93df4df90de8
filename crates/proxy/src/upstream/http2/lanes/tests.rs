//! The lanes of a line under every order of what may happen to it: streams and waiters that come
//! and are cancelled, events, the peer's words, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Wake;

use millpond_wire::http2::Code;

use super::*;

/// Most streams of the line.
const MOST: usize = 2;
/// Steps of each order.
const DEPTH: usize = 8;

/// A task that somebody may have woken.
#[derive(Default)]
struct Sleeper(AtomicBool);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// A thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Join,
    QuitFirst,
    QuitLast,
    Made,
    TellOne,
    TellMany,
    Open,
    Deliver,
    Take,
    RefuseLast,
    CloseFirst,
    CloseLast,
    Leave,
    End,
}

const STEPS: [Step; 14] = [
    Step::Join,
    Step::QuitFirst,
    Step::QuitLast,
    Step::Made,
    Step::TellOne,
    Step::TellMany,
    Step::Open,
    Step::Deliver,
    Step::Take,
    Step::RefuseLast,
    Step::CloseFirst,
    Step::CloseLast,
    Step::Leave,
    Step::End,
];

/// A stream as its owner sees it.
struct Stream {
    id: u32,
    sleeper: Arc<Sleeper>,
    is_asleep: bool,
    delivered: u8,
    taken: u8,
}

/// The lanes, and what is known of them besides.
struct Model {
    lanes: Lanes,
    waiters: Vec<(u32, Arc<Sleeper>, bool)>,
    streams: Vec<Stream>,
    next: u32,
    told: Option<usize>,
    is_made: bool,
    is_over: bool,
}

impl Model {
    fn new() -> Self {
        Model {
            lanes: Lanes::new(MOST),
            waiters: Vec::new(),
            streams: Vec::new(),
            next: 1,
            told: None,
            is_made: false,
            is_over: false,
        }
    }

    /// Does a step; false if it cannot be done now.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Join => self.join(),
            Step::QuitFirst => self.quit(0),
            // With one of them it is the same as the first.
            Step::QuitLast => self.waiters.len() > 1 && self.quit(self.waiters.len() - 1),
            Step::Made if !self.is_made && !self.is_over => {
                self.is_made = true;
                wake(self.lanes.made());
                true
            }
            Step::TellOne => self.tell(1),
            Step::TellMany => self.tell(9),
            Step::Open => self.open(),
            Step::Deliver => self.deliver(),
            Step::Take => self.take(),
            Step::RefuseLast => self.refuse(),
            Step::CloseFirst => self.close(0),
            Step::CloseLast => self.streams.len() > 1 && self.close(self.streams.len() - 1),
            Step::Leave if !self.lanes.is_leaving() => {
                wake(self.lanes.leave());
                true
            }
            Step::End if !self.is_over => {
                self.is_over = true;
                wake(self.lanes.end(End::Closed));
                true
            }
            _ => false,
        }
    }

    fn join(&mut self) -> bool {
        if !self.lanes.may_join(MOST) {
            return false;
        }
        let (number, sleeper) = (self.lanes.join(), Arc::new(Sleeper::default()));
        let is_asleep = poll(&sleeper, |cx| self.lanes.poll_wait(number, cx)).is_pending();
        self.waiters.push((number, sleeper, is_asleep));
        true
    }

    fn quit(&mut self, at: usize) -> bool {
        if at >= self.waiters.len() {
            return false;
        }
        let (number, ..) = self.waiters.remove(at);
        self.lanes.quit(number);
        true
    }

    fn tell(&mut self, most: usize) -> bool {
        if !self.is_made || self.is_over {
            return false;
        }
        self.told = Some(most);
        wake(self.lanes.tell(most));
        true
    }

    fn open(&mut self) -> bool {
        if !self.lanes.has_room() {
            return false;
        }
        let (id, sleeper) = (self.next, Arc::new(Sleeper::default()));
        self.next += 2;
        self.lanes.open(id);
        let is_asleep = poll(&sleeper, |cx| self.lanes.poll_more(id, cx)).is_pending();
        self.streams.push(Stream {
            id,
            sleeper,
            is_asleep,
            delivered: 0,
            taken: 0,
        });
        // INVARIANT 3.
        let most = self.told.map_or(1, |told| told.min(MOST));
        assert!(self.is_made && !self.is_over && self.streams.len() <= most);
        true
    }

    fn deliver(&mut self) -> bool {
        let Some(stream) = self.streams.last_mut() else {
            return false;
        };
        let event = Event::Data {
            stream: stream.id,
            bytes: Bytes::copy_from_slice(&[stream.delivered]),
        };
        stream.delivered += 1;
        wake(self.lanes.deliver(stream.id, event));
        true
    }

    /// Takes all that there is: in order, and nothing twice.
    fn take(&mut self) -> bool {
        let Some(stream) = self.streams.last_mut() else {
            return false;
        };
        while let Some(event) = self.lanes.next(stream.id) {
            let Event::Data { bytes, .. } = event else {
                continue;
            };
            for byte in bytes {
                assert_eq!(byte, stream.taken);
                stream.taken += 1;
            }
        }
        assert_eq!(stream.taken, stream.delivered);
        stream.sleeper.0.store(false, SeqCst);
        let polled = poll(&stream.sleeper, |cx| self.lanes.poll_more(stream.id, cx));
        stream.is_asleep = polled.is_pending();
        assert_eq!(stream.is_asleep, !self.is_over);
        true
    }

    fn refuse(&mut self) -> bool {
        // RFC 9113 §3.4: SETTINGS came before.
        let (Some(stream), Some(_), false) = (self.streams.last(), self.told, self.is_over) else {
            return false;
        };
        let why = Gone::ByPeer(Code::REFUSED_STREAM);
        let stream = stream.id;
        wake(self.lanes.deliver(stream, Event::Gone { stream, why }));
        assert!(!self.lanes.has_room(), "it bears no more than it has");
        true
    }

    fn close(&mut self, at: usize) -> bool {
        if at >= self.streams.len() {
            return false;
        }
        let stream = self.streams.remove(at);
        wake(self.lanes.close(stream.id));
        assert!(self.lanes.next(stream.id).is_none());
        true
    }

    /// True for all orders, whatever was done.
    fn check(&mut self) {
        let lanes = &mut self.lanes;
        assert_eq!(lanes.len(), self.streams.len());
        assert_eq!(lanes.is_awaited(), !self.waiters.is_empty());
        // INVARIANT 1.
        let is_hopeful = lanes.ended().is_none() && !lanes.is_leaving() && lanes.told().is_none();
        let must_wait = is_hopeful && !lanes.has_room();
        for (number, sleeper, was_asleep) in &self.waiters {
            let is_awake = !was_asleep || sleeper.0.load(SeqCst);
            assert!(must_wait || is_awake, "waiter {number} sleeps for ever");
        }
        // INVARIANT 2.
        for stream in &self.streams {
            let has_news = stream.delivered > stream.taken || self.is_over;
            let is_awake = !stream.is_asleep || stream.sleeper.0.load(SeqCst);
            assert!(
                !has_news || is_awake,
                "stream {} sleeps for ever",
                stream.id
            );
        }
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

fn poll<T>(sleeper: &Arc<Sleeper>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let waker = Waker::from(Arc::clone(sleeper));
    poll(&mut Context::from_waker(&waker))
}

/// Goes through all orders that begin with these steps; their number.
fn explore(steps: &mut Vec<Step>) -> usize {
    let mut count = 0;
    for step in STEPS {
        let mut model = Model::new();
        for before in &*steps {
            model.step(*before);
        }
        if !model.step(step) {
            continue;
        }
        steps.push(step);
        model.check();
        count += 1;
        if steps.len() < DEPTH {
            count += explore(steps);
        }
        steps.pop();
        // Cancelled where they stand, they leave nothing.
        while model.quit(0) {}
        while model.close(0) {}
        model.check();
    }
    count
}

#[test]
fn nobody_sleeps_for_ever_in_any_order() {
    let count = explore(&mut Vec::new());
    assert!(count > 100_000, "{count} orders");
}

/// INVARIANT 2: what a peer sends in small pieces takes no more memory than in long ones.
#[test]
fn short_pieces_that_wait_are_put_together() {
    let mut lanes = Lanes::new(1);
    wake(lanes.made());
    lanes.open(1);
    let read = Bytes::from(vec![b'x'; 64 * 1024]);
    for at in 0..40_000 {
        let bytes = read.slice(at..at + 1);
        wake(lanes.deliver(1, Event::Data { stream: 1, bytes }));
    }
    let (mut count, mut len) = (0, 0);
    while let Some(Event::Data { bytes, .. }) = lanes.next(1) {
        count += 1;
        len += bytes.len();
    }
    assert_eq!(len, 40_000);
    assert!(count <= 1 + len / SHORT, "{count} pieces");
}

#[test]
fn interim_answers_that_nobody_reads_are_bounded() {
    let mut lanes = Lanes::new(1);
    wake(lanes.made());
    lanes.open(1);
    for _ in 0..1000 {
        let event = Event::Interim {
            stream: 1,
            status: 103,
            fields: Default::default(),
        };
        wake(lanes.deliver(1, event));
    }
    let count = std::iter::from_fn(|| lanes.next(1)).count();
    assert_eq!(count, INTERIM_MOST as usize);
}

/// A fault of the connection is told to each stream, behind what came before it.
#[test]
fn the_end_comes_behind_what_came() {
    let mut lanes = Lanes::new(1);
    wake(lanes.made());
    lanes.open(1);
    let bytes = Bytes::from_static(b"x");
    wake(lanes.deliver(1, Event::Data { stream: 1, bytes }));
    wake(lanes.end(End::Fault(Fault::Push)));
    assert!(matches!(lanes.next(1), Some(Event::Data { .. })));
    assert!(matches!(lanes.next(1), Some(Event::Failed(Fault::Push))));
}
