//! A connection against frames that are written by hand, one test for each MUST of RFC 9113 that a
//! machine can break; and against itself.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::super::frame::Kind;
use super::super::hpack::decode::{Bounds, Decoded, Decoder};
use super::super::hpack::encode::Encoder;
use super::super::{BodyLength, ExtendedConnect, Manner};
use super::*;
use crate::head::Refusal;
use crate::header::{Fields, Known};

mod client;
mod floods;
mod frames;
mod model;
mod server;

const NOW: Duration = Duration::ZERO;
const HEADERS_END: u8 = 0x5;

/// A frame that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    kind: Kind,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn code(&self) -> Code {
        let at = if self.kind == Kind::GoAway { 4 } else { 0 };
        Code(frame::number_32(&self.payload[at..]))
    }

    fn number(&self) -> u32 {
        frame::number_31(&self.payload)
    }
}

/// Takes the frames of what is written; a preface before them is passed over.
fn take_frames(bytes: &mut BytesMut) -> Vec<Frame> {
    if bytes.starts_with(PREFACE) {
        let _ = bytes.split_to(PREFACE.len());
    }
    let mut frames = Vec::new();
    while let Some(head) = bytes.first_chunk::<9>() {
        let head = frame::Head::read(*head);
        let payload = bytes.split_to(9 + head.len as usize)[9..].to_vec();
        frames.push(Frame {
            kind: head.kind,
            flags: head.flags,
            stream: head.stream,
            payload,
        });
    }
    frames
}

fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A field as it is, whatever it is.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// A connection whose peer is played by a test.
struct Played {
    connection: Connection,
    input: BytesMut,
    encoder: Encoder,
    decoder: Decoder,
    now: Duration,
}

impl Played {
    fn with(role: Role, config: Config) -> Self {
        let mut played = Played {
            connection: Connection::new(role, config),
            input: BytesMut::new(),
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            now: NOW,
        };
        if role == Role::Server {
            played.input.extend_from_slice(PREFACE);
        }
        played
    }

    /// A server behind the exchange of settings.
    fn server(config: Config) -> Self {
        let mut played = Played::with(Role::Server, config);
        played.greet();
        played
    }

    /// A client behind the exchange of settings.
    fn client(config: Config) -> Self {
        let mut played = Played::with(Role::Client, config);
        played.greet();
        played
    }

    fn greet(&mut self) {
        self.send(4, 0, 0, &[]);
        self.send(4, 1, 0, &[]);
        let events = self.events();
        assert!(matches!(
            events[..],
            [Event::SettingsChanged, Event::SettingsAcknowledged]
        ));
        self.frames();
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.input
            .extend_from_slice(&raw(kind, flags, stream, payload));
    }

    /// A block of these fields.
    fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = BytesMut::new();
        self.encoder.begin(&mut out);
        for (name, value) in fields {
            match *name {
                ":method" => self.encoder.write_method(&mut out, value.as_bytes()),
                ":scheme" => self.encoder.write_scheme(&mut out, value.as_bytes()),
                ":authority" => self.encoder.write_authority(&mut out, value.as_bytes()),
                ":path" => self.encoder.write_path(&mut out, value.as_bytes()),
                ":status" => self.encoder.write_status(&mut out, value.parse().unwrap()),
                // The encoder writes none of these.
                name if name == "connection" || name.starts_with(':') => {
                    out.put_slice(&literal(name, value));
                }
                name => self
                    .encoder
                    .write_any(&mut out, name.as_bytes(), value.as_bytes()),
            }
        }
        out.to_vec()
    }

    fn request_block(&mut self, more: &[(&str, &str)]) -> Vec<u8> {
        let mut fields = vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "a"),
        ];
        fields.extend(more);
        self.block(&fields)
    }

    /// Sends a request, with its end or without.
    fn ask(&mut self, stream: u32, end: End) {
        self.ask_with(stream, end, &[]);
    }

    fn ask_with(&mut self, stream: u32, end: End, more: &[(&str, &str)]) {
        let block = self.request_block(more);
        let flags = if end == End::WithHead { 5 } else { 4 };
        self.send(1, flags, stream, &block);
    }

    fn data(&mut self, stream: u32, bytes: &[u8], end: End) {
        let flags = u8::from(end == End::WithHead);
        self.send(0, flags, stream, bytes);
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.connection.next_event(&mut self.input, self.now) {
            events.push(event);
        }
        events
    }

    /// All that is written.
    fn frames(&mut self) -> Vec<Frame> {
        self.connection.produce(usize::MAX);
        let mut bytes = BytesMut::new();
        while let Some(piece) = self.connection.output().take() {
            bytes.put_slice(&piece);
        }
        take_frames(&mut bytes)
    }

    /// Handles what has come, and gives what is written.
    fn turn(&mut self) -> (Vec<Event>, Vec<Frame>) {
        (self.events(), self.frames())
    }

    /// The fields of a head that was written.
    fn fields(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut sink = |field: Decoded<'_>| fields.push((text(field.name), text(field.value)));
        let bounds = Bounds {
            text: 1 << 20,
            list: 1 << 20,
        };
        self.decoder.decode(block, bounds, &mut sink).unwrap();
        fields
    }

    /// Asserts that what was sent is an error of the connection.
    #[track_caller]
    fn assert_fails(mut self, fault: Fault) {
        let (events, frames) = self.turn();
        assert!(
            matches!(events.last(), Some(Event::Failed(it)) if *it == fault),
            "{events:?}"
        );
        let last = frames.last().expect("a frame");
        assert_eq!((last.kind, last.code()), (Kind::GoAway, fault.code()));
        assert!(self.connection.is_finished() && !self.connection.wants_input());
        assert_eq!(self.connection.unfinished_head(), None);
        // Nothing is read or written any more.
        self.send(6, 0, 0, &[0; 8]);
        let (events, frames) = self.turn();
        assert!(events.is_empty() && frames.is_empty());
    }

    /// Asserts that what was sent is an error of a stream.
    #[track_caller]
    fn assert_breaks(&mut self, stream: u32, fault: Fault) {
        let (events, frames) = self.turn();
        let is_gone = |event: &Event| {
            matches!(event, Event::Gone { stream: it, why: Gone::ByFault(why) }
                if *it == stream && *why == fault)
        };
        assert!(events.iter().any(is_gone), "{events:?}");
        let mut resets = frames.iter().filter(|frame| frame.kind == Kind::RstStream);
        let reset = resets.next().expect("a reset");
        assert_eq!((reset.stream, reset.code()), (stream, fault.code()));
        // The connection goes on.
        self.send(6, 0, 0, &[7; 8]);
        let (_, frames) = self.turn();
        assert!(
            frames
                .iter()
                .any(|frame| frame.kind == Kind::Ping && frame.flags == 1)
        );
    }

    /// Answers a request by a body.
    fn answer(&mut self, stream: u32, body: &'static [u8]) {
        self.connection
            .send_answer(stream, (200, End::Later), |_| {});
        self.connection.push(stream, Bytes::from_static(body));
        self.connection.finish(stream, None);
    }
}

/// Streams, kinds and lengths of frames in short.
fn shape(frames: &[Frame]) -> Vec<(Kind, u32, usize, u8)> {
    let of = |frame: &Frame| (frame.kind, frame.stream, frame.payload.len(), frame.flags);
    frames.iter().map(of).collect()
}

/// Bytes of DATA.
fn data_of(frames: &[Frame], stream: u32) -> Vec<u8> {
    let is_data = |frame: &&Frame| frame.kind == Kind::Data && frame.stream == stream;
    let data = frames.iter().filter(is_data);
    data.flat_map(|frame| frame.payload.clone()).collect()
}
