//! Statistics of the demo's traffic: the origin's [`Ledger`] and the cache's counters, as one JSON
//! text.
//!
//! The origin enters every exchange when it begins, adds the bytes as they leave, and closes it
//! when the [`Exchange`] is dropped. The cache's side comes from the proxy's own counters.
//!
//! Invariants:
//! 1. At most `MOST_EXCHANGES` exchanges are kept; those that run are never the ones forgotten, but
//!    for a flood of more than that many.
//! 2. Totals count every exchange, kept or not.
//! 3. What a client wrote is escaped before it is shown.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millpond_exchange::stats::CacheSnapshot;
use millpond_system::clock::{self, Instant};

use super::http::lock;

/// Exchanges that are kept; a page shows fewer.
const MOST_EXCHANGES: usize = 64;
/// Exchanges that the page shows.
const SHOWN: usize = 24;
/// Seconds of [`Minute`].
const SECONDS: usize = 60;
/// Longest text of a client that is kept: a target or a range.
const MOST_TEXT: usize = 120;

/// Record of what the origin was asked.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<VecDeque<Arc<Entry>>>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// One exchange as it is shown.
#[derive(Debug)]
struct Entry {
    number: u64,
    method: String,
    target: String,
    range: Option<String>,
    started: Instant,
    sent: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    status: u16,
    announced: u64,
    ended: Option<Instant>,
}

/// Requests of the last minute, second by second: what clients asked, and what the origin was
/// asked.
#[derive(Debug, Default)]
pub(super) struct Minute {
    /// Totals at the beginning of each second, the present one last.
    totals: Mutex<VecDeque<[u64; 2]>>,
}

impl Minute {
    /// A second begins.
    pub(super) fn tick(&self, cache: &CacheSnapshot, ledger: &Ledger) {
        let mut totals = lock(&self.totals);
        if totals.len() >= SECONDS {
            totals.pop_front();
        }
        totals.push_back(now(cache, ledger));
    }

    /// Writes how many requests each second had, as an array of pairs; the present second is last.
    fn write_json(&self, out: &mut String, now: [u64; 2]) {
        let totals = lock(&self.totals);
        let ends = totals.iter().skip(1).chain([&now]);
        out.push('[');
        for (index, (begin, end)) in totals.iter().zip(ends).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let [asked, passed] = [0, 1].map(|at: usize| {
                let (end, begin) = (end.get(at).copied(), begin.get(at).copied());
                end.unwrap_or_default()
                    .saturating_sub(begin.unwrap_or_default())
            });
            put(out, format_args!("{comma}[{asked},{passed}]"));
        }
        out.push(']');
    }
}

fn now(cache: &CacheSnapshot, ledger: &Ledger) -> [u64; 2] {
    [
        cache.total().requests,
        ledger.requests.load(Ordering::Relaxed),
    ]
}

/// A running exchange; it is over when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Exchange(Arc<Running>);

#[derive(Debug)]
struct Running {
    ledger: Arc<Ledger>,
    entry: Arc<Entry>,
}

impl Ledger {
    /// Enters a request.
    pub(super) fn begin(
        self: &Arc<Self>,
        method: &str,
        target: &str,
        range: Option<&str>,
    ) -> Exchange {
        let clip = |text: &str| text.chars().take(MOST_TEXT).collect::<String>();
        let entry = Arc::new(Entry {
            number: self.requests.fetch_add(1, Ordering::Relaxed) + 1,
            method: clip(method),
            target: clip(target),
            range: range.map(clip),
            started: clock::instant(),
            sent: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let mut entries = lock(&self.entries);
        if entries.len() >= MOST_EXCHANGES {
            let done = entries.iter().position(|entry| entry.is_over());
            entries.remove(done.unwrap_or(0));
        }
        entries.push_back(Arc::clone(&entry));
        Exchange(Arc::new(Running {
            ledger: Arc::clone(self),
            entry,
        }))
    }

    /// Writes totals and the last exchanges, newest first, as an object.
    fn write_json(&self, out: &mut String) {
        let entries = lock(&self.entries).clone();
        let running = entries.iter().filter(|entry| !entry.is_over()).count();
        put(
            out,
            format_args!(
                "{{\"requests\":{},\"bytes\":{},\"running\":{running},\"exchanges\":[",
                self.requests.load(Ordering::Relaxed),
                self.bytes.load(Ordering::Relaxed),
            ),
        );
        for (index, entry) in entries.iter().rev().take(SHOWN).enumerate() {
            if index > 0 {
                out.push(',');
            }
            entry.write_json(out);
        }
        out.push_str("]}");
    }
}

impl Exchange {
    /// The head leaves, and announces so many bytes.
    pub(super) fn answered(&self, status: u16, announced: u64) {
        let mut state = lock(&self.0.entry.state);
        state.status = status;
        state.announced = announced;
    }

    /// Bytes of the body have left.
    pub(super) fn sent(&self, bytes: u64) {
        self.0.entry.sent.fetch_add(bytes, Ordering::Relaxed);
        self.0.ledger.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.entry.state).ended = Some(clock::instant());
    }
}

impl Entry {
    fn is_over(&self) -> bool {
        lock(&self.state).ended.is_some()
    }

    fn write_json(&self, out: &mut String) {
        let state = *lock(&self.state);
        let until = state.ended.unwrap_or_else(clock::instant);
        put(
            out,
            format_args!("{{\"number\":{},\"method\":", self.number),
        );
        write_text(out, &self.method);
        out.push_str(",\"target\":");
        write_text(out, &self.target);
        if let Some(range) = &self.range {
            out.push_str(",\"range\":");
            write_text(out, range);
        }
        put(
            out,
            format_args!(
                ",\"status\":{},\"announced\":{},\"sent\":{},\"ms\":{},\"running\":{}}}",
                state.status,
                state.announced,
                self.sent.load(Ordering::Relaxed),
                until.saturating_duration_since(self.started).as_millis(),
                state.ended.is_none(),
            ),
        );
    }
}

/// Everything the page shows, as JSON on one line.
pub(super) fn json(cache: &CacheSnapshot, ledger: &Ledger, minute: &Minute) -> String {
    let mut out = String::with_capacity(4096);
    let total = cache.total();
    put(
        &mut out,
        format_args!(
            "{{\"requests\":{},\"bytes\":{},\"cached_bytes\":{},\"hit_ratio\":{:.4},\"statuses\":[",
            total.requests,
            total.bytes,
            cache.from_cache().bytes,
            cache.hit_ratio(),
        ),
    );
    for (index, (name, count)) in cache.by_status().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let (requests, bytes) = (count.requests, count.bytes);
        put(
            &mut out,
            format_args!(
                "{comma}{{\"name\":\"{name}\",\"requests\":{requests},\"bytes\":{bytes}}}"
            ),
        );
    }
    out.push_str("],\"minute\":");
    minute.write_json(&mut out, now(cache, ledger));
    out.push_str(",\"origin\":");
    ledger.write_json(&mut out);
    out.push('}');
    out
}

/// Appends formatted text.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

/// Appends a JSON string; HTML's characters are escaped too, so that it may stand in a page.
pub(super) fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' | '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\0'..='\x1f' => {
                put(out, format_args!("\\u{:04x}", character as u32));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_counted_shown_newest_first_and_over_when_dropped() {
        let ledger = Arc::new(Ledger::default());
        let first = ledger.begin("GET", "/a\"<b>", Some("bytes=0-9"));
        first.answered(206, 10);
        first.sent(10);
        let second = ledger.begin("GET", "/c", None);
        drop(first);
        let mut out = String::new();
        ledger.write_json(&mut out);
        assert!(
            out.starts_with("{\"requests\":2,\"bytes\":10,\"running\":1,"),
            "{out}"
        );
        assert!(
            out.contains(r#""target":"/a\u0022\u003cb\u003e","range":"bytes=0-9","status":206"#)
        );
        assert!(out.find("/c").unwrap() < out.find("/a").unwrap());
        drop(second);
    }

    #[test]
    fn a_minute_is_counted_by_second_and_no_longer() {
        let (ledger, minute) = (Arc::new(Ledger::default()), Minute::default());
        let cache = CacheSnapshot::default();
        for requests in [2, 0, 1] {
            minute.tick(&cache, &ledger);
            (0..requests).for_each(|_| drop(ledger.begin("GET", "/", None)));
        }
        let mut out = String::new();
        minute.write_json(&mut out, now(&cache, &ledger));
        assert_eq!(out, "[[0,2],[0,0],[0,1]]");
        (0..2 * SECONDS).for_each(|_| minute.tick(&cache, &ledger));
        assert_eq!(lock(&minute.totals).len(), SECONDS);
    }

    #[test]
    fn what_runs_is_not_forgotten() {
        let ledger = Arc::new(Ledger::default());
        let running = ledger.begin("GET", "/long", None);
        for _ in 0..MOST_EXCHANGES * 2 {
            drop(ledger.begin("GET", "/short", None));
        }
        assert_eq!(lock(&ledger.entries).len(), MOST_EXCHANGES);
        assert!(
            lock(&ledger.entries)
                .iter()
                .any(|entry| entry.target == "/long")
        );
        drop(running);
    }
}
