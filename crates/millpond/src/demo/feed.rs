//! Pages that show what changes: the text of a page, and the stream of events that it listens to.
//!
//! A page asks nothing of any other host, and says so to the browser (Content-Security-Policy).
//!
//! Invariants:
//! 1. A stream that has nothing new to say says so every `HEARTBEAT`, so that a reader that is gone
//!    is found.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use millpond_system::clock;

use super::http::{Answer, Stop};

/// Pause between two looks at the state: smooth to the eye, and nothing to a CPU.
const LOOK: Duration = Duration::from_millis(200);
/// Looks between two signs of life.
const HEARTBEAT: u32 = 25;

/// The answer with a page.
pub(super) fn page(html: &str) -> Answer {
    Answer::whole(200, "text/html; charset=utf-8", html.as_bytes())
        .field("Cache-Control", "no-store")
        .field(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:",
        )
}

/// The answer that sends a state, as one line of text, whenever it has changed.
pub(super) fn answer(stop: &Arc<Stop>, state: impl Fn() -> String + 'static) -> Answer {
    let stop = Arc::clone(stop);
    let mut answer = Answer::whole(200, "text/event-stream", "");
    answer.length = None;
    answer.body = Box::new(move |out| send(out, &stop, &state));
    answer.field("Cache-Control", "no-store")
}

/// Sends until the reader or the demo is gone.
fn send(out: &mut dyn Write, stop: &Stop, state: &dyn Fn() -> String) -> io::Result<()> {
    let mut last = String::new();
    let mut silent = 0;
    let mut due = clock::instant();
    loop {
        let now = state();
        if now != last {
            write!(out, "data: {now}\n\n")?;
            (last, silent) = (now, 0);
        } else if silent >= HEARTBEAT {
            out.write_all(b": nothing new\n\n")?;
            silent = 0;
        }
        silent += 1;
        due += LOOK;
        stop.wait(due.saturating_duration_since(clock::instant()))?;
    }
}
