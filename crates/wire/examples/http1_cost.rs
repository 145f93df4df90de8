//! Cost of reading a request head and of writing a response head, in nanoseconds.
//!
//! `cargo run --release -p millpond-wire --example http1_cost`
//!
//! Each row is the best of seven rounds, so that what else the machine does matters little. The
//! row "copy only" is the same handling of the buffer without a parser: subtract it.
//!
//! 1. Nothing here is a test; the numbers are for comparing before and after a change.

use std::hint::black_box;
use std::time::Instant;

use bytes::BytesMut;
use millpond_wire::header::{Fields, Known};
use millpond_wire::http1::encode;
use millpond_wire::http1::request::{Connect, Limits, Progress, RequestParser};

/// The request of a health check.
const SMALL: &str = "GET /a/b/c.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

/// The request of a load generator.
const USUAL: &str = "GET /object/1234 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    User-Agent: load/1\r\nAccept: */*\r\n\r\n";

/// The request of a browser.
const BROWSER: &str = "GET /shop/2026/11/images/large/front-page.jpg?v=17 HTTP/1.1\r\n\
    Host: www.example.org\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 \
    Firefox/140.0\r\nAccept: image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8\r\n\
    Accept-Language: de,en-US;q=0.7,en;q=0.3\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\nReferer: https://www.example.org/shop/\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    If-None-Match: \"5f3c-61a7\"\r\n\r\n";

fn main() {
    for (name, input) in [("small", SMALL), ("usual", USUAL), ("browser", BROWSER)] {
        measure_request(name, input.as_bytes());
    }
    measure_response();
}

fn measure_request(name: &str, input: &[u8]) {
    let limits = Limits::default();
    let mut parser = RequestParser::new();
    let mut buf = BytesMut::with_capacity(16 * 1024);
    measure(name, || {
        buf.reserve(8 * 1024);
        buf.extend_from_slice(black_box(input));
        let Progress::Done(head) = parser.parse(&mut buf, &limits) else {
            panic!("the request is good");
        };
        black_box(head.check(Connect::Refuse).is_ok());
        black_box(head.keep_alive_wanted());
        black_box(&head);
    });
    measure("  copy only", || {
        buf.reserve(8 * 1024);
        buf.extend_from_slice(black_box(input));
        black_box(&buf.split().freeze());
    });
}

fn measure_response() {
    let mut fields = Fields::new();
    for (known, value) in [
        (Known::Server, "millpond"),
        (Known::Date, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (Known::ContentType, "text/html"),
        (Known::ContentLength, "1024"),
        (Known::Connection, "keep-alive"),
        (Known::ETag, "\"abc-123\""),
        (Known::LastModified, "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        fields.push_known(known, value);
    }
    let mut out = BytesMut::with_capacity(4096);
    measure("response of 7 fields", || {
        out.clear();
        encode::write_response_head(&mut out, 200, black_box(&fields));
        black_box(&out);
    });
}

/// Prints the least time that one call took on average in a round.
fn measure(name: &str, mut call: impl FnMut()) {
    // Long enough for a clock of a microsecond, short enough to wait for.
    const CALLS: u32 = 200_000;
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        start.elapsed().as_nanos() / u128::from(CALLS)
    };
    let best = (0..7).map(|_| round(&mut call)).min().unwrap_or_default();
    println!("{name:<24}{best:>6} ns");
}
