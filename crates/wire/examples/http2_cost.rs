//! Cost of requests over HTTP/2 on one connection, in nanoseconds of the server's side.
//!
//! `cargo run --release -p millpond-wire --example http2_cost`
//!
//! A client of the same engine sends so many requests at once, with the fields of a browser; the
//! server reads them, answers each with 200 and a body, and all that is to be written is given out.
//! Only the server is measured. Each row is the best of seven rounds, so that what else the machine
//! does matters little. With a number, the first row alone is run so many times: for callgrind,
//! which counts instructions (`--toggle-collect='*serve*'`).
//!
//! 1. Nothing here is a test; the numbers are for comparing before and after a change.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use millpond_wire::header::{Field, Fields, Known};
use millpond_wire::http2::{Config, Connection, End, Event, RequestLine, Role};

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

/// Both ends of a connection.
struct Bench {
    client: Connection,
    server: Connection,
    request: Fields,
    answer: Fields,
    body: Bytes,
    to_server: BytesMut,
    to_client: BytesMut,
    paths: usize,
    spent: Duration,
}

impl Bench {
    fn new(body_len: usize) -> Self {
        let config = Config {
            connection_window: 1 << 30,
            stream_window: 1 << 30,
            ..Config::default()
        };
        Bench {
            client: Connection::new(Role::Client, config),
            server: Connection::new(Role::Server, config),
            request: fields(),
            answer: answer(),
            body: Bytes::from(vec![b'x'; body_len]),
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
            paths: 0,
            spent: Duration::ZERO,
        }
    }

    /// Sends so many requests at once, and takes their answers.
    fn exchange(&mut self, streams: usize) {
        for _ in 0..streams {
            self.paths += 1;
            let path = format!(
                "/shop/2026/11/images/large/front-{}.jpg?v=17",
                self.paths % 977
            );
            let line = RequestLine {
                method: b"GET",
                scheme: b"https",
                authority: b"www.example.org",
                path: path.as_bytes(),
            };
            let opened = self
                .client
                .open(&line, End::WithHead, |head| head.fields(&self.request));
            assert!(opened.is_some(), "the server bears so many");
        }
        self.client.produce(usize::MAX);
        while let Some(piece) = self.client.output().take() {
            self.to_server.extend_from_slice(&piece);
        }
        let start = Instant::now();
        self.serve();
        self.spent += start.elapsed();
        self.take_answers();
    }

    // By itself, so that a profiler finds it.
    #[inline(never)]
    fn serve(&mut self) {
        while let Some(event) = self.server.next_event(&mut self.to_server, Duration::ZERO) {
            let Event::Request { stream, head, .. } = event else {
                if let Event::Sent { stream } = event {
                    self.server.release(stream);
                }
                continue;
            };
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
        self.server.produce(usize::MAX);
        while let Some(event) = self.server.next_event(&mut self.to_server, Duration::ZERO) {
            if let Event::Sent { stream } = event {
                self.server.release(stream);
            }
        }
        while let Some(piece) = self.server.output().take() {
            self.to_client.extend_from_slice(black_box(&piece));
        }
    }

    fn take_answers(&mut self) {
        while let Some(event) = self.client.next_event(&mut self.to_client, Duration::ZERO) {
            match event {
                Event::Data { stream, bytes } => self.client.consume(stream, bytes.len()),
                Event::End { stream, .. } => self.client.release(stream),
                Event::Gone { why, .. } => panic!("{why:?}"),
                Event::Failed(fault) => panic!("{fault}"),
                _ => {}
            }
        }
    }
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
