//! Tour of the demo: command lines to try, each with what it shows.
//!
//! The same list is printed at the start and shown on the page. It is in the order in which it
//! should be tried: later lines expect what the earlier ones left in the cache.
//!
//! Invariants:
//! 1. Every command is one line for a shell that has curl 7.66 or later.
//! 2. What is expected names the status, the cache status and the time, so that a test can check
//!    it.

use std::fmt::Write;

/// One thing to try.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// Title of the trial.
    pub(super) title: String,
    /// The line to run.
    pub(super) command: String,
    /// Description of what is to be seen.
    pub(super) expect: String,
}

/// The list, for Millpond at `front` (`http://127.0.0.1:8080`).
pub(super) fn trials(front: &str) -> Vec<Trial> {
    let timed = "curl -s -D - -w '\\n%{time_total} s\\n'";
    let range = format!("{timed} -r 5000000-5000009");
    [
        (
            "Ten bytes from the middle of a file that is not cached. All of it is fetched behind them.",
            format!("{range} {front}/10Mb.txt"),
            "206, X-Cache: MISS, at once, though 5 MB lie before them, at 1 MB/s",
        ),
        (
            "The same bytes again, while the rest of the file is still coming.",
            format!("{range} {front}/10Mb.txt"),
            "206, X-Cache: HIT, at once; the origin is not asked again",
        ),
        (
            "The whole file, from what is there and then along with what comes.",
            format!("{timed} -o /dev/null {front}/10Mb.txt"),
            "200, X-Cache: HIT, within 10 s: as soon as the origin has sent the rest",
        ),
        (
            "The same ten bytes of the same file, cached in slices of 1 MB.",
            format!("{range} {front}/sliced/10Mb.txt"),
            "206, X-Cache: MISS, at once; the origin is asked for the rest of their slice afterwards",
        ),
        (
            "And again.",
            format!("{range} {front}/sliced/10Mb.txt"),
            "206, X-Cache: HIT, at once",
        ),
        (
            "A page that takes the origin 300 ms and is kept for a second. Twenty clients at once.",
            format!("seq 20 | xargs -P 20 -I {{}} curl -s {front}/time"),
            "200 for all, the same answer number twenty times, after about 0.3 s",
        ),
        (
            "Two seconds later: the old page at once, while a new one is made.",
            format!("{timed} {front}/time"),
            "200, X-Cache: STALE, at once",
        ),
        (
            "Half a second after that.",
            format!("{timed} {front}/time"),
            "200, X-Cache: HIT, at once, and answer number 2",
        ),
    ]
    .into_iter()
    .map(|(title, command, expect)| Trial {
        title: title.to_string(),
        command,
        expect: expect.to_string(),
    })
    .collect()
}

/// The list as text for a terminal.
pub(super) fn text(trials: &[Trial]) -> String {
    let mut out = String::new();
    for (index, trial) in trials.iter().enumerate() {
        let number = index + 1;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{number:>3}. {}\n     {}\n     => {}\n",
            trial.title, trial.command, trial.expect
        );
    }
    out
}
