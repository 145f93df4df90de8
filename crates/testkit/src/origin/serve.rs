//! One connection of the origin: read a request, record it, send its answer, again.
//!
//! ```text
//! read head ─► 100-continue? ─► read body ─► record ─► answer ─► keep alive? ─┐
//!     ▲                                                                       │
//!     └───────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. The connection is kept only when both sides may keep it: HTTP/1.1 without `close` (or 1.0
//!    with `keep-alive`), and an answer that tells its own end.

use super::answer::{Answer, Body, Framing, Ranges};
use super::{Recorded, Shared, lock};
use crate::deadline::Deadline;
use crate::message::{Fields, RequestHead};
use crate::wire::{Delimited, End, Stream, Wire};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a connection may be idle; longer than any test.
const IDLE: Duration = Duration::from_secs(120);
/// Largest piece that is written at once.
const PIECE: u64 = 8 << 10;
/// How many pieces a second a rate limit is made of.
const PIECES_PER_SECOND: u64 = 20;

/// Whether a connection goes on after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Keep,
    Close,
}

/// Serves a connection until one side wants to close it.
pub(super) fn serve(shared: &Shared, wire: &mut Wire, connection: u64) -> Result<()> {
    wire.stream.set_timeout(IDLE)?;
    loop {
        // A proxy may drop a connection at any time between requests.
        if !matches!(wire.wait_for_byte(), Ok(true)) {
            break;
        }
        let Some(bytes) = wire.take_head()? else {
            break;
        };
        let head = RequestHead::parse(&bytes)?;
        let mut keep = may_keep(&head);
        let Some(request) = read_request(wire, head, connection)? else {
            break;
        };
        lock(&shared.requests).push(request.clone());
        let answer = shared.answer(&request);
        match send(shared, &mut wire.stream, &request, &answer) {
            // A proxy may drop a connection whose answer nobody wants any more.
            Err(_) | Ok(After::Close) => keep = After::Close,
            Ok(After::Keep) => {}
        }
        if keep == After::Close {
            break;
        }
    }
    Ok(())
}

fn may_keep(head: &RequestHead) -> After {
    let is_persistent = match head.version.as_str() {
        "HTTP/1.1" => !head.fields.has_token("Connection", "close"),
        _ => head.fields.has_token("Connection", "keep-alive"),
    };
    if is_persistent {
        After::Keep
    } else {
        After::Close
    }
}

/// Reads the body; `None` when the client left within it, which a proxy may do.
fn read_request(wire: &mut Wire, head: RequestHead, connection: u64) -> Result<Option<Recorded>> {
    let when = Instant::now();
    if head.fields.has_token("Expect", "100-continue") {
        wire.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let chunked = head.fields.contains("Transfer-Encoding");
    let delimited = match (head.fields.value("Content-Length"), chunked) {
        (Some(_), true) => bail!("both Content-Length and Transfer-Encoding"),
        (Some(len), false) => Delimited::Length(len.parse().context("bad Content-Length")?),
        (None, true) => Delimited::Chunked,
        (None, false) => Delimited::None,
    };
    let mut body = Vec::new();
    let mut trailers = Fields::default();
    if wire.take_body(delimited, &mut body, &mut trailers)? != End::Complete {
        return Ok(None);
    }
    Ok(Some(Recorded {
        method: head.method,
        target: head.target,
        version: head.version,
        headers: head.fields,
        body,
        when,
        connection,
    }))
}

/// What is sent of an answer, once the request's conditions and range are considered.
struct Selected {
    status: u16,
    range: Range<u64>,
    extra: Vec<(String, String)>,
}

fn select(request: &Recorded, answer: &Answer) -> Selected {
    let len = answer.body.len();
    let whole = Selected {
        status: answer.status,
        range: 0..len,
        extra: Vec::new(),
    };
    if answer.revalidates && is_not_modified(request, answer) {
        return Selected {
            status: 304,
            range: 0..0,
            ..whole
        };
    }
    if answer.ranges == Ranges::Ignored || answer.status != 200 {
        return whole;
    }
    let accepts = ("Accept-Ranges".to_string(), "bytes".to_string());
    let whole = Selected {
        extra: vec![accepts.clone()],
        ..whole
    };
    let condition = request.header("If-Range");
    let holds = condition.is_none_or(|v| {
        Some(v) == answer.field("ETag") || Some(v) == answer.field("Last-Modified")
    });
    let Some(range) = request.header("Range").filter(|_| holds) else {
        return whole;
    };
    match parse_range(range, len) {
        Asked::Part(range) => {
            let value = format!("bytes {}-{}/{len}", range.start, range.end - 1);
            Selected {
                status: 206,
                range,
                extra: vec![accepts, ("Content-Range".to_string(), value)],
            }
        }
        Asked::Outside => Selected {
            status: 416,
            range: 0..0,
            extra: vec![("Content-Range".to_string(), format!("bytes */{len}"))],
        },
        Asked::Other => whole,
    }
}

fn is_not_modified(request: &Recorded, answer: &Answer) -> bool {
    match request.header("If-None-Match") {
        Some(tags) => answer
            .field("ETag")
            .is_some_and(|etag| tags.split(',').any(|tag| tag.trim() == etag)),
        None => request
            .header("If-Modified-Since")
            .is_some_and(|since| answer.field("Last-Modified") == Some(since)),
    }
}

enum Asked {
    Part(Range<u64>),
    Outside,
    /// Several ranges, or none that is understood: the whole is sent.
    Other,
}

fn parse_range(value: &str, len: u64) -> Asked {
    let Some((first, last)) = value
        .strip_prefix("bytes=")
        .and_then(|spec| spec.split_once('-'))
    else {
        return Asked::Other;
    };
    let range = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..len.min(last.saturating_add(1)),
        (Ok(first), Err(_)) if last.is_empty() => first..len,
        (Err(_), Ok(count)) if first.is_empty() => len.saturating_sub(count)..len,
        _ => return Asked::Other,
    };
    if range.is_empty() {
        Asked::Outside
    } else {
        Asked::Part(range)
    }
}

/// Sends an answer.
fn send(shared: &Shared, out: &mut Stream, request: &Recorded, answer: &Answer) -> Result<After> {
    if let Some(gate) = &answer.head_gate {
        gate.pass();
    }
    Deadline::after(answer.head_delay).pass();
    if let Some(raw) = &answer.raw {
        out.write_all(raw)?;
        return Ok(After::Close);
    }
    let selected = select(request, answer);
    let has_body = request.method != "HEAD" && !matches!(selected.status, 100..200 | 204 | 304);
    out.write_all(&encode_head(request, answer, &selected, has_body))?;
    if has_body {
        let mut writer = BodyWriter {
            shared,
            out,
            answer,
            sent: 0,
        };
        if writer.write(selected.range)? == After::Close {
            return Ok(After::Close);
        }
    }
    let closes = answer
        .field("Connection")
        .is_some_and(|v| v.eq_ignore_ascii_case("close"));
    if closes || (has_body && answer.framing == Framing::UntilClose) {
        return Ok(After::Close);
    }
    Ok(After::Keep)
}

fn encode_head(
    request: &Recorded,
    answer: &Answer,
    selected: &Selected,
    has_body: bool,
) -> Vec<u8> {
    let reason = answer.reason.as_deref();
    let reason = reason.unwrap_or_else(|| reason_of(selected.status));
    let mut fields = Fields(answer.fields.clone());
    fields.0.extend(selected.extra.iter().cloned());
    let tells_length = request.method == "HEAD" || has_body;
    match answer.framing {
        Framing::Length if tells_length && !fields.contains("Content-Length") => {
            let len = selected.range.end - selected.range.start;
            fields.push("Content-Length", &len.to_string());
        }
        Framing::Chunked if tells_length => fields.push("Transfer-Encoding", "chunked"),
        Framing::UntilClose if has_body => fields.push("Connection", "close"),
        _ => {}
    }
    // A connection that will be closed is announced, as an honest HTTP/1.0 keep-alive needs it too.
    if request.version == "HTTP/1.0"
        && request.headers.has_token("Connection", "keep-alive")
        && !fields.contains("Connection")
    {
        fields.push("Connection", "keep-alive");
    }
    let mut out = format!("HTTP/1.1 {} {reason}\r\n", selected.status).into_bytes();
    fields.encode(&mut out);
    out.extend(b"\r\n");
    out
}

fn reason_of(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        404 => "Not Found",
        416 => "Range Not Satisfiable",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}

struct BodyWriter<'a> {
    shared: &'a Shared,
    out: &'a mut Stream,
    answer: &'a Answer,
    sent: u64,
}

impl BodyWriter<'_> {
    fn write(&mut self, range: Range<u64>) -> Result<After> {
        let total = range.end - range.start;
        let rate = self.answer.rate;
        let piece = rate.map_or(PIECE, |rate| (rate / PIECES_PER_SECOND).clamp(1, PIECE));
        let start = Instant::now();
        while self.sent < total {
            let mut end = total.min(self.sent + piece);
            if let Some((at, gate)) = &self.answer.body_gate {
                if self.sent >= *at {
                    gate.pass();
                } else {
                    end = end.min(*at);
                }
            }
            if let Some(drop_after) = self.answer.drop_after {
                if self.sent >= drop_after {
                    return Ok(After::Close);
                }
                end = end.min(drop_after);
            }
            let at = range.start + self.sent..range.start + end;
            self.write_piece(&self.answer.body, at)?;
            self.sent = end;
            if let Some(rate) = rate {
                let due = Duration::from_secs_f64(self.sent as f64 / rate as f64);
                Deadline::after(due.saturating_sub(start.elapsed())).pass();
            }
        }
        self.finish(total)
    }

    fn write_piece(&mut self, body: &Body, range: Range<u64>) -> Result<()> {
        let bytes = body.bytes(range);
        if self.answer.framing == Framing::Chunked {
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
            chunk.extend(&bytes);
            chunk.extend(b"\r\n");
            self.out.write_all(&chunk)?;
        } else {
            self.out.write_all(&bytes)?;
        }
        let count = bytes.len() as u64;
        self.shared.sent.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&mut self, total: u64) -> Result<After> {
        if self.answer.drop_after.is_some_and(|at| at <= total) {
            return Ok(After::Close);
        }
        if self.answer.framing == Framing::Chunked {
            let mut last = b"0\r\n".to_vec();
            Fields(self.answer.trailers.clone()).encode(&mut last);
            last.extend(b"\r\n");
            self.out.write_all(&last)?;
        }
        Ok(After::Keep)
    }
}
