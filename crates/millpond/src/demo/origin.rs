//! The demo's origin: slow on purpose, as an application behind a thin line is.
//!
//! | path | answer |
//! |---|---|
//! | `/10Mb.txt` | 1,048,576 lines, each its own offset: 10,485,760 bytes at 1 MB/s for each connection |
//! | `/time` | the time of day, made in 300 ms |
//! | `/` | a word on what is here |
//!
//! Every request is entered in the [`Ledger`], with the range it asks for and how many bytes left.
//!
//! Invariants:
//! 1. A body is made from its offsets, never held: any range costs one piece of memory.
//! 2. Range, If-Range and If-None-Match are obeyed, so that a cache can ask for what it lacks.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond_semantics::conditional::{Comparison, etag_matches, if_range_holds};
use millpond_semantics::date::{civil, format_http_date};
use millpond_semantics::range::{ByteRange, RangeSet, parse_range};
use millpond_system::clock;

use super::http::{Answer, Request, Site, Stop};
use super::stats::{Exchange, Ledger};

/// Path of the file with offsets.
pub(super) const FILE: &str = "/10Mb.txt";
/// Path of the time of day.
pub(super) const TIME: &str = "/time";
/// Length of the file.
pub(super) const FILE_LEN: u64 = 1024 * 1024 * LINE_LEN;
/// Bytes a second of one connection.
const RATE: u64 = 1024 * 1024;
/// Time that the time of day takes to make.
const THINKING: Duration = Duration::from_millis(300);

const LINE_LEN: u64 = 10;
/// Bytes written at once: a 64th of a second at the rate, so that progress looks smooth.
const PIECE: u64 = RATE / 64;
const ETAG: &str = "\"offsets-1\"";
/// 14 July 2015 08:29:12: any date of the past does.
const MODIFIED: i64 = 1_436_862_552;

/// The origin.
pub(super) struct Origin {
    ledger: Arc<Ledger>,
    stop: Arc<Stop>,
    times: AtomicU64,
}

impl Origin {
    /// An origin that enters what it is asked in `ledger`.
    pub(super) fn new(ledger: Arc<Ledger>, stop: Arc<Stop>) -> Origin {
        Origin {
            ledger,
            stop,
            times: AtomicU64::new(0),
        }
    }

    fn time(&self) -> io::Result<Answer> {
        self.stop.wait(THINKING)?;
        let now_ms = clock::now_ms();
        let time = civil(now_ms.div_euclid(1000));
        let number = self.times.fetch_add(1, Ordering::Relaxed) + 1;
        let text = format!(
            "{:02}:{:02}:{:02}.{:03} UTC, answer number {number} of the origin\n",
            time.hour,
            time.minute,
            time.second,
            now_ms.rem_euclid(1000),
        );
        Ok(Answer::text(200, &text))
    }

    fn file(&self, request: &Request, exchange: &Exchange) -> Answer {
        let date = format_http_date(MODIFIED);
        let validators = vec![
            ("Content-Type", "text/plain".to_string()),
            ("ETag", ETAG.to_string()),
            ("Last-Modified", String::from_utf8_lossy(&date).into_owned()),
            ("Accept-Ranges", "bytes".to_string()),
        ];
        let (status, range) = choose(request);
        let mut answer = Answer::text(status, "");
        answer.fields = validators;
        match status {
            206 => {
                let (first, last) = (range.start, range.end_exclusive.saturating_sub(1));
                answer = answer.field("Content-Range", format!("bytes {first}-{last}/{FILE_LEN}"));
            }
            416 => answer = answer.field("Content-Range", format!("bytes */{FILE_LEN}")),
            _ => {}
        }
        answer.length = Some(range.len());
        let (exchange, stop) = (exchange.clone(), Arc::clone(&self.stop));
        answer.body = Box::new(move |out| send_slowly(out, range, &exchange, &stop));
        answer
    }
}

impl Site for Origin {
    fn answer(&self, request: &Request) -> io::Result<Answer> {
        let exchange = self
            .ledger
            .begin(&request.method, &request.target, request.field("Range"));
        let mut answer = match request.path() {
            FILE => self.file(request, &exchange),
            TIME => self.time()?,
            "/" => Answer::text(200, "The origin of the demo: /10Mb.txt and /time.\n"),
            _ => Answer::text(404, "The origin has no such page.\n"),
        };
        let announced = match request.method.as_str() {
            "HEAD" => 0,
            _ => answer.length.unwrap_or_default(),
        };
        exchange.answered(answer.status, announced);
        if request.path() != FILE {
            // Small bodies leave whole; those of the file count their own pieces.
            let body = answer.body;
            answer.body = Box::new(move |out| {
                body(out)?;
                exchange.sent(announced);
                Ok(())
            });
        }
        Ok(answer)
    }
}

/// Status and bytes of the file for a request.
fn choose(request: &Request) -> (u16, ByteRange) {
    let whole = ByteRange {
        start: 0,
        end_exclusive: FILE_LEN,
    };
    let nothing = ByteRange {
        start: 0,
        end_exclusive: 0,
    };
    let tag = ETAG.as_bytes();
    let known = request.field("If-None-Match");
    if known.is_some_and(|list| etag_matches(list.as_bytes(), tag, Comparison::Weak)) {
        return (304, nothing);
    }
    // RFC 9110 §13.1.5: a Range whose If-Range does not hold is ignored.
    let holds = |value: &str| if_range_holds(value.as_bytes(), Some(tag), Some(MODIFIED));
    let Some(range) = request
        .field("Range")
        .filter(|_| request.field("If-Range").is_none_or(holds))
    else {
        return (200, whole);
    };
    match parse_range(range.as_bytes(), FILE_LEN, 1) {
        RangeSet::Ignore => (200, whole),
        RangeSet::Unsatisfiable => (416, nothing),
        RangeSet::Ranges(ranges) => match ranges.first() {
            Some(range) => (206, *range),
            None => (416, nothing),
        },
    }
}

/// Writes a range of the file at the rate.
fn send_slowly(
    out: &mut dyn Write,
    range: ByteRange,
    exchange: &Exchange,
    stop: &Stop,
) -> io::Result<()> {
    let started = clock::instant();
    let mut at = range.start;
    while at < range.end_exclusive {
        let end = (at + PIECE).min(range.end_exclusive);
        let sent = end - range.start;
        // The line is busy until the last byte of the piece is through.
        let due = started + Duration::from_micros(sent.saturating_mul(1_000_000) / RATE);
        let left = due.saturating_duration_since(clock::instant());
        stop.wait(left)?;
        out.write_all(&offsets(at, end))?;
        exchange.sent(end - at);
        at = end;
    }
    Ok(())
}

/// The file's bytes from `start` up to and without `end`: each line is its own offset.
fn offsets(start: u64, end: u64) -> Vec<u8> {
    let mut lines = String::new();
    let mut line = start - start % LINE_LEN;
    while line < end {
        lines.push_str(&format!("{line:09}\n"));
        line += LINE_LEN;
    }
    let mut bytes = lines.into_bytes();
    bytes.drain(..usize::try_from(start % LINE_LEN).unwrap_or_default());
    bytes.truncate(usize::try_from(end.saturating_sub(start)).unwrap_or_default());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_equals_that_part_of_the_whole() {
        let whole = offsets(0, 95);
        assert!(whole.starts_with(b"000000000\n000000010\n"));
        for start in 0..95 {
            for end in start..=95 {
                let part = whole.get(start as usize..end as usize).unwrap();
                assert_eq!(offsets(start, end), part, "{start}..{end}");
            }
        }
        assert_eq!(offsets(FILE_LEN - 10, FILE_LEN), b"010485750\n");
    }
}
