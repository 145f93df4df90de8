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

use super::answer::{Answer, Body, Framing};
use super::select::{Selected, select};
use super::{Exchange, Recorded, Shared, lock};
use crate::deadline::Deadline;
use crate::message::{Fields, RequestHead};
use crate::wire::{Delimited, End, Stream, Wire};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time that a connection may be idle; longer than any test.
const IDLE: Duration = Duration::from_secs(120);
/// Largest piece that is written at once.
const PIECE: u64 = 8 << 10;
/// Number of pieces a second that a rate limit is made of.
const PIECES_PER_SECOND: u64 = 20;

/// Decision about a connection after an answer.
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
    let exchange = shared.record_exchange(request, answer, &selected);
    out.write_all(&encode_head(request, answer, &selected, has_body))?;
    if has_body {
        let mut writer = BodyWriter {
            shared,
            out,
            answer,
            exchange: &exchange,
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
    exchange: &'a Exchange,
    sent: u64,
}

impl BodyWriter<'_> {
    fn write(&mut self, range: Range<u64>) -> Result<After> {
        let total = range.end - range.start;
        let drop_after = self.drop_after(&range);
        let rate = self.answer.rate;
        let piece = rate.map_or(PIECE, |rate| (rate / PIECES_PER_SECOND).clamp(1, PIECE));
        let start = Instant::now();
        while self.sent < total {
            if drop_after.is_some_and(|after| self.sent >= after) {
                return Ok(After::Close);
            }
            let most = total.min(drop_after.unwrap_or(total));
            let end = self
                .pass_gates(range.start, most)
                .min(self.sent.saturating_add(piece));
            let at = range.start + self.sent..range.start + end;
            self.write_piece(&self.answer.body, at)?;
            self.sent = end;
            if let Some(rate) = rate {
                let due = Duration::from_secs_f64(self.sent as f64 / rate as f64);
                Deadline::after(due.saturating_sub(start.elapsed())).pass();
            }
        }
        self.finish(total, drop_after)
    }

    /// After how many bytes of this answer the connection is dropped.
    fn drop_after(&self, range: &Range<u64>) -> Option<u64> {
        let at = self.answer.drop_at.filter(|at| range.contains(at));
        let at = at.map(|at| at - range.start);
        [self.answer.drop_after, at].into_iter().flatten().min()
    }

    /// Waits at the gates that hold the next byte, and says up to where no other gate stands.
    fn pass_gates(&self, start: u64, most: u64) -> u64 {
        let mut end = most;
        if let Some((at, gate)) = &self.answer.body_gate {
            if self.sent >= *at {
                gate.pass();
            } else {
                end = end.min(*at);
            }
        }
        let next = start + self.sent;
        for (held, gate) in &self.answer.held {
            if held.contains(&next) {
                gate.pass();
            } else if held.start > next {
                end = end.min(held.start - start);
            }
        }
        end
    }

    fn write_piece(&mut self, body: &Body, range: Range<u64>) -> Result<()> {
        let bytes = body.bytes(range);
        let count = bytes.len() as u64;
        // Before they are sent: who has got them may ask for more at once, by another connection.
        if let Some(tally) = &self.answer.tally {
            tally.fetch_add(count, Ordering::Relaxed);
        }
        if self.answer.framing == Framing::Chunked {
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
            chunk.extend(&bytes);
            chunk.extend(b"\r\n");
            self.out.write_all(&chunk)?;
        } else {
            self.out.write_all(&bytes)?;
        }
        self.shared.sent.fetch_add(count, Ordering::Relaxed);
        self.exchange.add_sent(count);
        Ok(())
    }

    fn finish(&mut self, total: u64, drop_after: Option<u64>) -> Result<After> {
        if drop_after.is_some_and(|after| after <= total) {
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
