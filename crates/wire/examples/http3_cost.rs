//! Cost of requests over HTTP/3 on one connection, in nanoseconds of the server's side, without
//! QUIC.
//!
//! `cargo run --release -p millpond-wire --example http3_cost`
//!
//! A client sends so many requests at once, with the fields of a browser and a dynamic table; the
//! server reads them, answers each with 200 and a body, and all that is to be written is given out.
//! The rest is as in `http2_cost`: with a number, the first row alone is run so many times, for
//! callgrind (`--toggle-collect='*serve*'`).
//!
//! 1. Nothing here is a test; the numbers are for comparing before and after a change.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use millpond_wire::header::{Field, Fields, Known};
use millpond_wire::http2::hpack::name::Class;
use millpond_wire::http3::qpack::decode::Decoder;
use millpond_wire::http3::qpack::encode::Encoder;
use millpond_wire::http3::{Code, Config, Connection, End, Event, Transport, Unsent};

/// Fields that a browser sends with each request.
const BROWSER: &[(&str, &str)] = &[
    (
        "sec-ch-ua",
        "\"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"",
    ),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
         Safari/537.36",
    ),
    (
        "accept",
        "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
    ),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "no-cors"),
    ("sec-fetch-dest", "image"),
    ("referer", "https://www.example.org/shop/"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "de-DE,de;q=0.9,en;q=0.8"),
    (
        "cookie",
        "session=0123456789abcdef0123456789abcdef; theme=dark",
    ),
    ("priority", "u=5, i"),
];

/// Rounds of a row.
const ROUNDS: usize = 7;
/// Requests of a round, at least.
const REQUESTS: usize = 100_000;

fn fields() -> Fields {
    let field = |(name, value): &(&'static str, &'static str)| {
        Field::new(
            Bytes::from_static(name.as_bytes()),
            Bytes::from_static(value.as_bytes()),
        )
    };
    BROWSER.iter().map(field).collect()
}

fn answer() -> Fields {
    let mut fields = Fields::new();
    for (known, value) in [
        (Known::ContentType, "image/jpeg"),
        (Known::ETag, "\"5f3c-61a7b0d2c4e80\""),
        (Known::LastModified, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (Known::CacheControl, "max-age=3600"),
        (Known::AcceptRanges, "bytes"),
    ] {
        fields.push_known(known, value);
    }
    fields
}

/// A transport that counts, and keeps what goes on our own streams.
#[derive(Default)]
struct Sink {
    own: BTreeMap<u64, BytesMut>,
    /// Streams whose heads refer to the table.
    referring: Vec<u64>,
    len: usize,
}

impl Transport for Sink {
    fn send(&mut self, stream: u64, pieces: &mut [Bytes]) -> Result<usize, Unsent> {
        let mut taken = 0;
        for piece in pieces {
            let piece = black_box(std::mem::take(piece));
            taken += piece.len();
            // A head of less than 64 bytes, or of more, and what it needs of the table.
            if let [1, 0..0x40, 1..=255, ..] | [1, 0x40..=255, _, 1..=255, ..] = piece[..] {
                self.referring.push(stream);
            }
            if stream % 4 == 3 {
                self.own
                    .entry(stream)
                    .or_default()
                    .extend_from_slice(&piece);
            }
        }
        self.len += taken;
        Ok(taken)
    }

    fn finish(&mut self, _stream: u64) {}
    fn reset(&mut self, _stream: u64, _code: Code) {}
    fn stop(&mut self, _stream: u64, _code: Code) {}
}

/// Both ends of a connection.
struct Bench {
    server: Connection,
    sink: Sink,
    encoder: Encoder,
    decoder: Decoder,
    next: u64,
    request: Fields,
    answer: Fields,
    body: Bytes,
    /// Streams with their requests.
    requests: Vec<(u64, Bytes)>,
    instructions: Bytes,
    words: BytesMut,
    spent: Duration,
}

impl Bench {
    fn new(body_len: usize) -> Self {
        let mut server = Connection::new(Config::default());
        [3, 7, 11].into_iter().for_each(|own| server.attach(own));
        // A capacity of 4096.
        for (stream, begin) in [
            (2, &b"\0\x04\x03\x01\x50\0"[..]),
            (6, b"\x02"),
            (10, b"\x03"),
        ] {
            server.opened(stream, Duration::ZERO);
            server.receive(stream, Bytes::from_static(begin), Duration::ZERO);
        }
        let mut encoder = Encoder::new();
        encoder.set_max_size(4096);
        Bench {
            server,
            sink: Sink::default(),
            encoder,
            decoder: Decoder::new(4096),
            next: 0,
            request: fields(),
            answer: answer(),
            body: Bytes::from(vec![b'x'; body_len]),
            requests: Vec::new(),
            instructions: Bytes::new(),
            words: BytesMut::new(),
            spent: Duration::ZERO,
        }
    }

    /// Sends so many requests at once, and takes their answers.
    fn exchange(&mut self, streams: usize) {
        for _ in 0..streams {
            let path = format!(
                "/shop/2026/11/images/large/front-{}.jpg?v=17",
                self.next % 977
            );
            self.encoder.begin();
            for (class, name, value) in [
                (Class::Method, ":method", "GET"),
                (Class::Scheme, ":scheme", "https"),
                (Class::Authority, ":authority", "www.example.org"),
                (Class::Path, ":path", &path),
            ] {
                self.encoder
                    .write_pseudo(class, name.as_bytes(), value.as_bytes());
            }
            self.encoder.write_fields(&self.request);
            let mut out = BytesMut::new();
            self.encoder.end(self.next, &mut out);
            self.requests.push((self.next, out.freeze()));
            self.next += 4;
        }
        self.instructions = self.encoder.take_instructions().freeze();
        let start = Instant::now();
        self.serve();
        self.spent += start.elapsed();
        self.heed_own();
    }

    // By itself, so that a profiler finds it.
    #[inline(never)]
    fn serve(&mut self) {
        // Second after second, so that what a client may do is never used up.
        let now = Duration::from_secs(self.next);
        for (stream, bytes) in [
            (6, self.instructions.clone()),
            (10, self.words.split().freeze()),
        ] {
            if !bytes.is_empty() {
                self.server.receive(stream, bytes, now);
            }
        }
        for (stream, bytes) in std::mem::take(&mut self.requests) {
            self.server.opened(stream, now);
            self.server.receive(stream, bytes, now);
            self.server.receive_end(stream, now);
        }
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Request { stream, head, .. } => {
                    black_box(head.uri());
                    self.server.send_answer(stream, (200, End::Later), |out| {
                        out.known(Known::Server, b"millpond");
                        out.known(Known::Date, b"Sun, 06 Nov 1994 08:49:37 GMT");
                        out.fields(&self.answer);
                        out.content_length(self.body.len() as u64);
                    });
                    self.server.push(stream, self.body.clone());
                    self.server.finish(stream, None);
                    millpond_wire::head::give_back(head);
                }
                Event::Failed(fault) => panic!("{fault}"),
                _ => {}
            }
        }
        self.server.flush(&mut self.sink, usize::MAX);
        while let Some(event) = self.server.next_event() {
            if let Event::Sent { stream } = event {
                self.server.release(stream);
            }
        }
    }

    /// Obeys and answers what the server said of the tables.
    fn heed_own(&mut self) {
        for (stream, mut bytes) in std::mem::take(&mut self.sink.own) {
            if self.next <= 4 {
                // The kind of the stream.
                let _ = bytes.split_to(1);
            }
            match stream {
                7 => self.encoder.heed(&bytes, || true).expect("it was sent"),
                11 => self.decoder.obey(&bytes, || true).expect("it can be"),
                _ => {}
            }
        }
        for stream in self.sink.referring.drain(..) {
            write_acknowledgement(&mut self.words, stream);
        }
        let mut increment = self.decoder.take_increment();
        while increment > 0 {
            let word = increment.min(62);
            self.words.extend_from_slice(&[word as u8]);
            increment -= word;
        }
    }
}

/// RFC 9204 §4.4.1.
fn write_acknowledgement(out: &mut BytesMut, stream: u64) {
    if stream < 0x7f {
        return out.extend_from_slice(&[0x80 | stream as u8]);
    }
    out.extend_from_slice(&[0xff]);
    let mut rest = stream - 0x7f;
    while rest >= 0x80 {
        out.extend_from_slice(&[rest as u8 | 0x80]);
        rest >>= 7;
    }
    out.extend_from_slice(&[rest as u8]);
}

fn measure(streams: usize, body_len: usize) {
    let mut bench = Bench::new(body_len);
    bench.exchange(1);
    let turns = REQUESTS / streams / (1 + body_len / 16_384);
    let round = |bench: &mut Bench| {
        bench.spent = Duration::ZERO;
        (0..turns).for_each(|_| bench.exchange(streams));
        bench.spent.as_nanos() / (turns * streams) as u128
    };
    let best = (0..ROUNDS).map(|_| round(&mut bench)).min();
    println!(
        "{streams:>3} streams, {body_len:>8} bytes {:>8} ns a request",
        best.unwrap_or_default()
    );
}

fn main() {
    if let Some(count) = std::env::args().nth(1).and_then(|count| count.parse().ok()) {
        let mut bench = Bench::new(1024);
        bench.exchange(1);
        return (0..count).for_each(|_| bench.exchange(32));
    }
    for (streams, body_len) in [
        (32, 1024),
        (1, 1024),
        (100, 1024),
        (32, 0),
        (32, 16_384),
        (4, 1 << 20),
    ] {
        measure(streams, body_len);
    }
}
