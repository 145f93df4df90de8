//! A connection against itself: two engines, pipes between them, and a script of random steps.
//!
//! Every byte of every body arrives, in order; no window is exceeded (the other engine would say
//! so); and what is held stays within its bounds. A second test changes bytes on their way: nothing
//! panics, loops or grows.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Bytes of a body, which tell where they belong.
fn body_byte(stream: u32, at: usize) -> u8 {
    (stream as usize * 31 + at * 7 + at / 251) as u8
}

fn body(stream: u32, range: std::ops::Range<usize>) -> Bytes {
    range.map(|at| body_byte(stream, at)).collect()
}

/// One end's view of a stream.
#[derive(Debug, Default)]
struct Lane {
    /// Bytes to be sent, and how many were pushed.
    total: usize,
    pushed: usize,
    is_finished: bool,
    /// Bytes that came, and how many of them were consumed.
    came: usize,
    consumed: usize,
    has_ended: bool,
    has_head: bool,
    is_sent: bool,
}

/// An engine, its owner, and the pipe to it.
struct Side {
    connection: Connection,
    pipe: BytesMut,
    input: BytesMut,
    lanes: BTreeMap<u32, Lane>,
    most_held: usize,
}

impl Side {
    fn new(role: Role, config: Config) -> Self {
        Side {
            connection: Connection::new(role, config),
            pipe: BytesMut::new(),
            input: BytesMut::new(),
            lanes: BTreeMap::new(),
            most_held: 0,
        }
    }

    /// Reads up to so many bytes of the pipe.
    fn read(&mut self, len: usize, lens: &[usize]) {
        let len = len.min(self.pipe.len());
        self.input.extend_from_slice(&self.pipe.split_to(len));
        while let Some(event) = self.connection.next_event(&mut self.input, NOW) {
            self.heed(event, lens);
        }
        let held = self.lanes.values().map(|lane| lane.came - lane.consumed);
        self.most_held = self.most_held.max(held.sum());
    }

    fn heed(&mut self, event: Event, lens: &[usize]) {
        match event {
            Event::Request { stream, .. } => {
                let total = lens[stream as usize / 2 % lens.len()];
                let lane = Lane {
                    total,
                    has_head: true,
                    ..Lane::default()
                };
                assert!(self.lanes.insert(stream, lane).is_none());
                let length = (200, End::Later);
                self.connection
                    .send_answer(stream, length, |head| head.content_length(total as u64));
            }
            Event::Answer { stream, status, .. } => {
                assert_eq!(status, 200);
                self.lanes.get_mut(&stream).unwrap().has_head = true;
            }
            Event::Data { stream, bytes } => {
                let lane = self.lanes.get_mut(&stream).unwrap();
                assert!(lane.has_head && !lane.has_ended && !bytes.is_empty());
                for byte in bytes {
                    assert_eq!(byte, body_byte(stream, lane.came), "{stream} {}", lane.came);
                    lane.came += 1;
                }
            }
            Event::End { stream, .. } => {
                let lane = self.lanes.get_mut(&stream).unwrap();
                assert!(!std::mem::replace(&mut lane.has_ended, true));
            }
            Event::Sent { stream } => self.lanes.get_mut(&stream).unwrap().is_sent = true,
            Event::Room { .. } | Event::SettingsChanged | Event::SettingsAcknowledged => {}
            other => panic!("{other:?}"),
        }
    }

    /// Pushes as much as there is room for, up to so many bytes, to one of the streams.
    fn push(&mut self, which: usize, len: usize) {
        let lanes = self.lanes.iter_mut();
        let mut open: Vec<_> = lanes.filter(|(_, lane)| !lane.is_finished).collect();
        if open.is_empty() {
            return;
        }
        let at = which % open.len();
        let (stream, lane) = &mut open[at];
        let room = self.connection.room(**stream);
        let len = len.min(room).min(lane.total - lane.pushed);
        let piece = body(**stream, lane.pushed..lane.pushed + len);
        self.connection.push(**stream, piece);
        lane.pushed += len;
        if lane.pushed == lane.total {
            lane.is_finished = true;
            self.connection.finish(**stream, None);
        }
    }

    /// Consumes up to so many bytes of one of the streams.
    fn consume(&mut self, which: usize, len: usize) {
        let mut all: Vec<_> = self.lanes.iter_mut().collect();
        if all.is_empty() {
            return;
        }
        let at = which % all.len();
        let (stream, lane) = &mut all[at];
        let len = len.min(lane.came - lane.consumed);
        lane.consumed += len;
        self.connection.consume(**stream, len);
    }

    /// Releases what is over.
    fn release(&mut self) {
        for (stream, lane) in &self.lanes {
            if lane.has_ended && lane.is_sent && lane.consumed == lane.came {
                self.connection.release(*stream);
            }
        }
    }

    /// Writes up to so many bytes.
    fn write(&mut self, len: usize) -> Bytes {
        self.connection.produce(len);
        let output = self.connection.output();
        let mut slices = [std::io::IoSlice::new(&[]); 4];
        let count = output.slices(&mut slices);
        let mut bytes: Vec<u8> = slices[..count].iter().flat_map(|it| it.to_vec()).collect();
        bytes.truncate(len);
        output.advance(bytes.len());
        bytes.into()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Push(bool, usize, usize),
    Consume(bool, usize, usize),
    Carry(bool, usize),
    Priority(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Open),
        4 => (any::<bool>(), 0..8_usize, 0..30_000_usize)
            .prop_map(|(side, which, len)| Step::Push(side, which, len)),
        4 => (any::<bool>(), 0..8_usize, 0..30_000_usize)
            .prop_map(|(side, which, len)| Step::Consume(side, which, len)),
        6 => (any::<bool>(), prop_oneof![1..40_usize, 1..20_000_usize])
            .prop_map(|(side, len)| Step::Carry(side, len)),
        1 => (0..8_usize, 0..8_u8).prop_map(|(which, urgency)| Step::Priority(which, urgency)),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (
        // A window of a byte is told of for each byte, which is a flood some time.
        64..40_000_u32,
        65_535..200_000_u32,
        1..20_000_usize,
        1..80_000_usize,
    )
        .prop_map(
            |(stream_window, connection_window, chunk_len, send_buffer)| Config {
                stream_window,
                connection_window,
                chunk_len,
                send_buffer,
                ..Config::default()
            },
        )
}

/// Both ends.
struct Pair {
    sides: [Side; 2],
    lens: Vec<usize>,
}

impl Pair {
    fn new(configs: [Config; 2], lens: Vec<usize>) -> Self {
        let [client, server] = configs;
        Pair {
            sides: [
                Side::new(Role::Client, client),
                Side::new(Role::Server, server),
            ],
            lens,
        }
    }

    fn carry(&mut self, from: usize, len: usize) -> usize {
        let bytes = self.sides[from].write(len);
        let other = &mut self.sides[1 - from];
        other.pipe.extend_from_slice(&bytes);
        other.read(len, &self.lens);
        bytes.len()
    }

    fn open(&mut self) {
        // Not before the settings of the server are known: a body would be refused.
        let client = &mut self.sides[0];
        if client.lanes.len() >= self.lens.len() || !client.connection.has_ack {
            return;
        }
        let line = RequestLine {
            method: b"POST",
            scheme: b"http",
            authority: b"a",
            path: b"/",
        };
        if let Some(stream) = client.connection.open(&line, End::Later, |_| {}) {
            let total = self.lens[(stream as usize / 2 + 1) % self.lens.len()];
            let lane = Lane {
                total,
                ..Lane::default()
            };
            client.lanes.insert(stream, lane);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Open => self.open(),
            Step::Push(side, which, len) => self.sides[usize::from(side)].push(which, len),
            Step::Consume(side, which, len) => self.sides[usize::from(side)].consume(which, len),
            Step::Carry(side, len) => {
                self.carry(usize::from(side), len);
            }
            Step::Priority(which, urgency) => {
                let priority = Priority {
                    urgency,
                    manner: Manner::Whole,
                };
                let stream = 2 * which as u32 + 1;
                self.sides[1].connection.set_priority(stream, priority);
            }
        }
    }

    /// Goes on until nothing more can happen.
    fn run_out(&mut self) {
        for turn in 0..200_000 {
            self.open();
            let mut moved = 0;
            for side in 0..2 {
                for which in 0..self.sides[side].lanes.len() {
                    self.sides[side].push(which, usize::MAX);
                    self.sides[side].consume(which, usize::MAX);
                }
                self.sides[side].release();
                moved += self.carry(side, 100_000);
            }
            let is_opened = self.sides[0].lanes.len() == self.lens.len();
            if moved == 0 && turn > 5 && is_opened {
                return;
            }
        }
        panic!("it does not end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_arrives_whatever_happens_between(
        configs in (config(), config()),
        lens in prop::collection::vec(0..120_000_usize, 1..7),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut pair = Pair::new([configs.0, configs.1], lens.clone());
        for step in steps {
            pair.take(step);
        }
        pair.run_out();
        for (side, config) in pair.sides.iter().zip([configs.0, configs.1]) {
            prop_assert_eq!(side.lanes.len(), lens.len());
            for (stream, lane) in &side.lanes {
                let both = stream / 2 + u32::from(side.connection.role == Role::Server);
                let expected = lens[both as usize % lens.len()];
                prop_assert!(lane.has_ended && lane.is_sent, "{} {:?}", stream, lane);
                prop_assert_eq!(lane.came, expected);
            }
            prop_assert!(side.most_held <= config.connection_window as usize);
            prop_assert_eq!(side.connection.stream_count(), 0);
            prop_assert_eq!(side.connection.receive.held(), 0);
            prop_assert!(side.connection.scheduler.is_empty());
        }
    }

    #[test]
    fn bytes_that_are_changed_on_their_way_do_no_harm(
        lens in prop::collection::vec(0..5000_usize, 1..5),
        changes in prop::collection::vec((0..4000_usize, any::<u8>()), 1..6),
        step in 1..3000_usize,
    ) {
        let mut pair = Pair::new([Config::default(); 2], lens);
        let mut sent = 0;
        for _ in 0..30 {
            pair.open();
            for which in 0..8 {
                pair.sides[0].push(which, step);
            }
            let mut bytes = pair.sides[0].write(step).to_vec();
            for (at, byte) in &changes {
                if let Some(place) = at.checked_sub(sent).and_then(|at| bytes.get_mut(at)) {
                    *place = *byte;
                }
            }
            sent += bytes.len();
            pair.sides[1].input.extend_from_slice(&bytes);
            let server = &mut pair.sides[1].connection;
            while let Some(event) = server.next_event(&mut pair.sides[1].input, NOW) {
                match event {
                    Event::Request { stream, .. } => {
                        server.send_answer(stream, (200, End::Later), |_| {});
                        server.push(stream, Bytes::from_static(b"answer"));
                        server.finish(stream, None);
                    }
                    Event::End { stream, .. } | Event::Gone { stream, .. } => {
                        server.release(stream);
                    }
                    Event::Data { stream, bytes } => server.consume(stream, bytes.len()),
                    _ => {}
                }
            }
            server.produce(usize::MAX);
            prop_assert!(server.output().len() < 100_000);
            prop_assert!(!server.block.is_of_use() || !server.is_finished());
            let mut answers = BytesMut::new();
            while let Some(piece) = server.output().take() {
                answers.extend_from_slice(&piece);
            }
            let client = &mut pair.sides[0].connection;
            while client.next_event(&mut answers, NOW).is_some() {}
        }
    }
}
