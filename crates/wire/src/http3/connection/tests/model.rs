//! A server against a client of this file: streams that are carried in any order, in pieces of any
//! size, and tables that are used both ways.
//!
//! Every byte of every body arrives, in order, and nothing is left. A second test changes bytes on
//! their way: nothing panics, loops or grows.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::http2::hpack::decode::{Bounds, Decoded};
use crate::http3::frame::Kind;
use crate::http3::qpack::decode::Decoder;

/// Bytes of a body, which tell where they belong.
fn body(stream: u64, len: usize) -> Vec<u8> {
    let byte = |at: usize| (stream as usize * 31 + at * 7 + at / 251) as u8;
    (0..len).map(byte).collect()
}

/// Bytes of a client's stream that are on their way.
#[derive(Debug, Default)]
struct Way {
    bytes: Vec<u8>,
    carried: usize,
    is_open: bool,
    has_ended: bool,
}

/// The parts of the server's answer that a stream has brought.
#[derive(Debug, Default)]
struct Answer {
    buffer: Vec<u8>,
    body: Vec<u8>,
    heads: usize,
}

struct Model {
    side: Side,
    encoder: Encoder,
    decoder: Decoder,
    ways: BTreeMap<u64, Way>,
    /// Bytes of each of the server's streams that the client has read.
    read: BTreeMap<u64, usize>,
    answers: BTreeMap<u64, Answer>,
    /// Bytes of bodies that came to the server.
    came: BTreeMap<u64, Vec<u8>>,
    unread: BTreeMap<u64, usize>,
    ended: Vec<u64>,
    has_settings: bool,
}

const STATUS: &[(&str, &str)] = &[("x-request", "the same in each"), ("user-agent", "model")];

impl Model {
    fn new(config: Config) -> Self {
        let mut model = Model {
            side: Side::bare(config),
            encoder: Encoder::new(),
            decoder: Decoder::new(4096),
            ways: BTreeMap::new(),
            read: BTreeMap::new(),
            answers: BTreeMap::new(),
            came: BTreeMap::new(),
            unread: BTreeMap::new(),
            ended: Vec::new(),
            has_settings: false,
        };
        // Capacity 4096, blocked streams 16.
        model.write(2, &[0, 4, 5, 1, 0x50, 0, 7, 16]);
        model.write(6, &[2]);
        model.write(10, &[3]);
        model
    }

    fn write(&mut self, stream: u64, bytes: &[u8]) {
        let way = self.ways.entry(stream).or_default();
        way.bytes.extend_from_slice(bytes);
    }

    /// Begins a request with a body.
    fn request(&mut self, stream: u64, len: usize) {
        let mut out = BytesMut::new();
        write_headers(&mut self.encoder, stream, &[GET, STATUS].concat(), &mut out);
        let instructions = self.encoder.take_instructions();
        self.write(6, &instructions);
        for piece in body(stream, len).chunks(5000) {
            out.extend_from_slice(&frame_of(0, piece));
        }
        self.write(stream, &out);
        self.ways.get_mut(&stream).unwrap().has_ended = true;
        self.answers.insert(stream, Answer::default());
    }

    /// Carries up to so many bytes of one of the client's streams; true if something has moved.
    fn carry(&mut self, which: usize, len: usize) -> bool {
        let streams: Vec<u64> = self.ways.keys().copied().collect();
        let stream = streams[which % streams.len()];
        let way = self.ways.get_mut(&stream).unwrap();
        if !std::mem::replace(&mut way.is_open, true) {
            self.side.connection.opened(stream, NOW);
        }
        if !self.side.connection.wants_input(stream) {
            return false;
        }
        let len = len.min(way.bytes.len() - way.carried);
        let bytes = way.bytes[way.carried..way.carried + len].to_vec();
        way.carried += len;
        let ends = way.has_ended && way.carried == way.bytes.len();
        self.side.give(stream, &bytes);
        if ends {
            self.ways.remove(&stream);
            self.side.end(stream);
        }
        self.heed();
        len > 0 || ends
    }

    fn heed(&mut self) {
        for event in std::mem::take(&mut self.side.events) {
            match event {
                Event::Request { stream, head, body } => {
                    assert_eq!(head.line(), b"GET /a?b HTTP/3.0");
                    assert_eq!(head.find(b"x-request").unwrap(), b"the same in each");
                    self.came.insert(stream, Vec::new());
                    let write = |out: &mut HeadWriter<'_>| {
                        out.known(Known::Server, b"millpond");
                        out.any(b"X-Answer", b"the same in each");
                    };
                    let connection = &mut self.side.connection;
                    connection.send_answer(stream, (200, End::Later), write);
                    if body == BodyLength::None {
                        self.ended.push(stream);
                    }
                }
                Event::Data { stream, bytes } => {
                    self.came.get_mut(&stream).unwrap().extend(&bytes[..]);
                    *self.unread.entry(stream).or_default() += bytes.len();
                }
                Event::End { stream, .. } => self.ended.push(stream),
                Event::Sent { stream } => self.side.connection.release(stream),
                Event::Room { .. } | Event::Wanted { .. } | Event::Settings => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Takes what came, sends it back, and ends what has ended.
    fn echo(&mut self) {
        for (stream, unread) in std::mem::take(&mut self.unread) {
            let came = &self.came[&stream];
            let piece = Bytes::copy_from_slice(&came[came.len() - unread..]);
            self.side.connection.consume(stream, unread);
            self.side.connection.push(stream, piece);
        }
        for stream in std::mem::take(&mut self.ended) {
            self.side.connection.finish(stream, None);
        }
        self.side.collect();
        self.heed();
    }

    /// Writes, and reads on the other end; true if something has moved.
    fn answer(&mut self, budget: usize) -> bool {
        self.side.connection.flush(&mut self.side.pipes, budget);
        self.side.collect();
        self.heed();
        let mut news = Vec::new();
        for (stream, sent) in &self.side.pipes.sent {
            assert!(sent.reset.is_none() && sent.stop.is_none(), "{stream}");
            let read = self.read.entry(*stream).or_default();
            if sent.bytes.len() > *read {
                news.push((*stream, sent.bytes[*read..].to_vec()));
                *read = sent.bytes.len();
            }
        }
        let has_moved = !news.is_empty();
        for (stream, bytes) in news {
            self.take(stream, &bytes);
        }
        has_moved
    }

    fn take(&mut self, stream: u64, bytes: &[u8]) {
        let is_first = self.read[&stream] == bytes.len();
        let behind_kind = bytes.get(usize::from(is_first)..).unwrap_or_default();
        match stream {
            3 => {
                if !std::mem::replace(&mut self.has_settings, true) {
                    self.encoder.set_max_size(4096);
                }
            }
            7 => self.encoder.heed(behind_kind, || true).unwrap(),
            11 => self.decoder.obey(behind_kind, || true).unwrap(),
            _ => {
                let answer = self.answers.get_mut(&stream).unwrap();
                answer.buffer.extend_from_slice(bytes);
                self.read_answer(stream);
            }
        }
        let increment = self.decoder.take_increment();
        if increment > 0 {
            let mut word = BytesMut::new();
            integer::write(&mut word, 0, 6, u64::from(increment));
            self.write(10, &word);
        }
    }

    fn read_answer(&mut self, stream: u64) {
        let bounds = Bounds {
            text: 1000,
            list: 10_000,
        };
        loop {
            let answer = self.answers.get_mut(&stream).unwrap();
            let mut rest = &answer.buffer[..];
            let Some(head) = frame::read_head(&mut rest) else {
                return;
            };
            let Some(payload) = rest.get(..head.len as usize).map(<[u8]>::to_vec) else {
                return;
            };
            let used = answer.buffer.len() - rest.len() + payload.len();
            answer.buffer.drain(..used);
            if head.kind == Kind::Data {
                answer.body.extend(payload);
                continue;
            }
            assert_eq!(head.kind, Kind::Headers);
            answer.heads += 1;
            let prefix = self.decoder.prefix(&payload).unwrap();
            assert!(prefix.required <= self.decoder.insertions());
            let mut names = Vec::new();
            let mut sink = |field: Decoded<'_>| names.push(field.name.to_vec());
            self.decoder
                .decode(&payload, (&prefix, bounds), &mut sink)
                .unwrap();
            assert_eq!(names, [&b":status"[..], b"server", b"x-answer"]);
            if prefix.required > 0 {
                let mut word = BytesMut::new();
                integer::write(&mut word, 0x80, 7, stream);
                self.decoder.note_acknowledged(&prefix);
                self.write(10, &word);
            }
        }
    }

    /// Goes on until nothing more can happen.
    fn run_out(&mut self) {
        for _ in 0..10_000 {
            let mut has_moved = false;
            for which in 0..self.ways.len() {
                has_moved |= !self.ways.is_empty() && self.carry(which, usize::MAX);
            }
            self.echo();
            for stream in self.answers.keys() {
                self.side.connection.writable(*stream);
            }
            has_moved |= self.answer(usize::MAX);
            if !has_moved {
                return;
            }
        }
        panic!("it does not end");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Carry(usize, usize),
    Echo,
    Answer(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12_usize, prop_oneof![1..30_usize, 1..9000_usize])
            .prop_map(|(which, len)| Step::Carry(which, len)),
        2 => Just(Step::Echo),
        2 => (1..30_000_usize).prop_map(Step::Answer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_comes_back_whatever_happens_between(
        lens in prop::collection::vec(0..60_000_usize, 1..8),
        steps in prop::collection::vec(step(), 0..300),
        window in 100..100_000_u64,
    ) {
        let config = Config { stream_window: window, ..Config::default() };
        let mut model = Model::new(config);
        let mut lens = lens.iter().enumerate().map(|(at, len)| (at as u64 * 4, *len));
        for (at, step) in steps.into_iter().enumerate() {
            if at % 16 == 0 && let Some((stream, len)) = lens.next() {
                model.request(stream, len);
            }
            match step {
                Step::Carry(which, len) => {
                    model.carry(which, len);
                }
                Step::Echo => model.echo(),
                Step::Answer(budget) => {
                    model.answer(budget);
                }
            }
        }
        for (stream, len) in lens {
            model.request(stream, len);
        }
        model.run_out();
        for (stream, answer) in &model.answers {
            prop_assert_eq!(answer.heads, 1);
            let expected = body(*stream, answer.body.len());
            prop_assert_eq!(&answer.body, &expected);
            prop_assert_eq!(&model.came[stream], &expected);
            prop_assert!(model.side.pipes.sent[stream].has_end);
        }
        prop_assert_eq!(model.side.connection.stream_count(), 0);
        prop_assert!(model.side.connection.scheduler.is_empty());
        prop_assert!(model.side.connection.waiting.is_empty());
    }

    #[test]
    fn bytes_that_are_changed_on_their_way_do_no_harm(
        lens in prop::collection::vec(0..3000_usize, 1..5),
        changes in prop::collection::vec((0..4_usize, 0..4000_usize, any::<u8>()), 1..6),
        step in 1..3000_usize,
    ) {
        let mut model = Model::new(Config::default());
        for (at, len) in lens.iter().enumerate() {
            model.request(at as u64 * 4, *len);
        }
        for (which, at, byte) in &changes {
            let way = model.ways.values_mut().nth(*which).unwrap();
            if let Some(place) = way.bytes.get_mut(*at) {
                *place = *byte;
            }
        }
        let side = &mut model.side;
        for (stream, way) in &model.ways {
            side.connection.opened(*stream, NOW);
            for piece in way.bytes.chunks(step) {
                if side.connection.wants_input(*stream) {
                    side.connection.receive(*stream, Bytes::copy_from_slice(piece), NOW);
                }
                while let Some(event) = side.connection.next_event() {
                    match event {
                        Event::Request { stream, .. } => {
                            side.connection.send_answer(stream, (200, End::WithHead), |_| {});
                        }
                        Event::Data { stream, bytes } => {
                            side.connection.consume(stream, bytes.len());
                        }
                        Event::Sent { stream } | Event::Gone { stream, .. } => {
                            side.connection.release(stream);
                        }
                        _ => {}
                    }
                }
                side.connection.flush(&mut side.pipes, usize::MAX);
            }
            if way.has_ended {
                side.connection.receive_end(*stream, NOW);
            }
        }
        let written: usize = side.pipes.sent.values().map(|sent| sent.bytes.len()).sum();
        prop_assert!(written < 10_000);
    }
}
