//! `millpond sensor log`: lines of a log that match a pattern, by the minute.
//!
//! The times of lines say which of them are of the last minutes: those of error logs, of access
//! logs (`$time_local`), and of ISO 8601 (`$time_iso8601`). A line without a time is of that of the
//! line before. A log that was rotated meanwhile is read together with the file before, `FILE.1`.
//!
//! 1. No more than the last `MOST` bytes of a file are read; where they begin later than the time
//!    that is asked about, the rate is that of the lines that were read.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use millpond_system::clock;
use regex::bytes::Regex;

use super::finding::{Finding, Value};
use super::options::Options;

/// Bytes of a file that are read at most (arbitrary: 300,000 lines).
const MOST: u64 = 64 << 20;
/// The time that is looked at where none is named.
const USUAL: Duration = Duration::from_secs(300);
/// Times at the begin of a line of an error log, and anywhere in one of an access log.
const TIMES: &str = r"^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)|\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]|(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))";

/// Reads the log, and counts.
pub(super) fn find(options: &Options) -> Result<Finding> {
    let path = options.file.as_deref().unwrap_or(Path::new(""));
    let pattern = Regex::new(options.pattern.as_deref().unwrap_or_default())?;
    let over = options.over.unwrap_or(USUAL);
    let now_s = clock::now_ms().div_euclid(1000);
    let since_s = now_s.saturating_sub(i64::try_from(over.as_secs()).unwrap_or(i64::MAX));
    let mut counter = Counter::new(&pattern, since_s)?;
    let mut before = path.as_os_str().to_owned();
    before.push(".1");
    let texts = [read_if_there(&PathBuf::from(before), since_s)?, read(path)?];
    texts.iter().for_each(|text| counter.count(text));
    Ok(counter.judge(now_s))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let place = || path.display().to_string();
    let mut file = File::open(path).with_context(place)?;
    let len = file.metadata().with_context(place)?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(MOST)))?;
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text).with_context(place)?;
    Ok(text)
}

/// The file before, unless nothing was written to it for as long.
fn read_if_there(path: &Path, since_s: i64) -> Result<Vec<u8>> {
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| path.display().to_string())?,
    };
    if std::os::unix::fs::MetadataExt::mtime(&metadata) < since_s {
        return Ok(Vec::new());
    }
    read(path)
}

/// The lines of a time, counted.
struct Counter<'a> {
    pattern: &'a Regex,
    times: Regex,
    since_s: i64,
    /// Time of the first line that counts.
    first_s: Option<i64>,
    /// True if a line was earlier than that, so that none is missing.
    is_whole: bool,
    lines: u64,
    matches: u64,
}

impl<'a> Counter<'a> {
    fn new(pattern: &'a Regex, since_s: i64) -> Result<Self> {
        Ok(Counter {
            pattern,
            times: Regex::new(TIMES)?,
            since_s,
            first_s: None,
            is_whole: true,
            lines: 0,
            matches: 0,
        })
    }

    fn count(&mut self, text: &[u8]) {
        // INVARIANT 1: a text of this length begins amid the file.
        self.is_whole &= (text.len() as u64) < MOST;
        for line in text.split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            if let Some(at) = self.time_of(line) {
                if at < self.since_s {
                    self.is_whole = true;
                    continue;
                }
                self.first_s.get_or_insert(at);
            }
            if self.first_s.is_some() {
                self.lines += 1;
                self.matches += u64::from(self.pattern.is_match(line));
            }
        }
    }

    fn time_of(&self, line: &[u8]) -> Option<i64> {
        let found = self.times.captures(line)?;
        let text = |index| {
            found
                .get(index)
                .and_then(|it| std::str::from_utf8(it.as_bytes()).ok())
        };
        if let Some(text) = text(1) {
            let time = civil::DateTime::strptime("%Y/%m/%d %H:%M:%S", text).ok()?;
            return Some(
                time.to_zoned(TimeZone::system())
                    .ok()?
                    .timestamp()
                    .as_second(),
            );
        }
        if let Some(text) = text(2) {
            let time = Timestamp::strptime("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
            return Some(time.as_second());
        }
        Some(text(3)?.parse::<Timestamp>().ok()?.as_second())
    }

    fn judge(&self, now_s: i64) -> Finding {
        let since_s = match self.first_s {
            Some(first_s) if !self.is_whole => first_s,
            _ => self.since_s,
        };
        let seconds = now_s.saturating_sub(since_s).max(1) as f64;
        let rate = self.matches as f64 * 60.0 / seconds;
        let (matches, lines) = (self.matches, self.lines);
        let text = format!("{matches} of {lines} lines match in {seconds} s, {rate:.2} a minute");
        Finding::new(
            text,
            vec![
                Value::judged("rate", rate, ""),
                Value::shown("matches", matches as f64, ""),
                Value::shown("lines", lines as f64, ""),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_500_000;

    #[test]
    fn times_of_three_forms_are_understood() {
        let pattern = Regex::new("x").unwrap();
        let counter = Counter::new(&pattern, 0).unwrap();
        let civil = civil::DateTime::new(2026, 11, 24, 4, 5, 6, 0).unwrap();
        let local = civil.to_zoned(TimeZone::system()).unwrap();
        for (line, expected) in [
            (
                "2026/11/24 04:05:06 [error] 1#2: x",
                Some(local.timestamp().as_second()),
            ),
            (
                "1.2.3.4 - - [24/Nov/2026:04:05:06 +0100] \"GET\"",
                Some(1_795_489_506),
            ),
            (
                "{\"time\":\"2026-11-24T04:05:06+01:00\"}",
                Some(1_795_489_506),
            ),
            ("2026-11-24T03:05:06.789Z x", Some(1_795_489_506)),
            ("[99/Nov/2026:04:05:06 +0100]", None),
            ("no time", None),
        ] {
            assert_eq!(counter.time_of(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn lines_of_the_time_are_counted_by_the_minute() {
        let line = |before_s: i64, text: &str| {
            let at = Timestamp::from_second(NOW - before_s).unwrap();
            format!("{at} {text}\n")
        };
        let pattern = Regex::new("bad").unwrap();
        let mut counter = Counter::new(&pattern, NOW - 120).unwrap();
        counter.count((line(200, "bad") + "  bad, of the line before\n").as_bytes());
        let text = line(100, "bad") + "  bad, too\n" + &line(50, "good") + &line(1, "bad");
        counter.count(text.as_bytes());
        let finding = counter.judge(NOW);
        assert_eq!(finding.text, "3 of 4 lines match in 120 s, 1.50 a minute");
    }
}
