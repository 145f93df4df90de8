//! The live page: one HTML text, and the stream of events that it listens to.
//!
//! `/` is the page, `/events` sends what `stats.rs` knows as server-sent events whenever it
//! changed, and `/stats` once as JSON.
//!
//! Invariants:
//! 1. What is put into the page's text cannot end the script it stands in.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use millpond_exchange::worker::Shared;
use millpond_system::clock;

use super::feed;
use super::http::{Answer, Request, Site, Stop, Waited};
use super::stats::{self, Ledger, Minute};
use super::tour::Trial;

const HTML: &str = include_str!("page.html");

/// The page and its events.
pub(super) struct Page {
    html: String,
    state: Arc<State>,
}

/// State that the page shows.
struct State {
    proxy: Arc<Shared>,
    ledger: Arc<Ledger>,
    minute: Minute,
    stop: Arc<Stop>,
}

impl Page {
    /// A page that shows the counters of `proxy` and the `ledger`, and what to try. It counts by
    /// the second from now on, on a thread of its own.
    pub(super) fn start(
        proxy: Arc<Shared>,
        ledger: Arc<Ledger>,
        stop: Arc<Stop>,
        trials: &[Trial],
    ) -> io::Result<Page> {
        let state = Arc::new(State {
            proxy,
            ledger,
            minute: Minute::default(),
            stop,
        });
        let counting = Arc::clone(&state);
        std::thread::Builder::new()
            .name("demo-minute".to_string())
            .spawn(move || counting.count_seconds())?;
        Ok(Page {
            html: HTML.replace("\"{{trials}}\"", &trials_json(trials)),
            state,
        })
    }

    fn events(&self) -> Answer {
        let state = Arc::clone(&self.state);
        feed::answer(&Arc::clone(&self.state.stop), move || state.json())
    }
}

impl State {
    fn json(&self) -> String {
        stats::json(&self.proxy.cache.snapshot(), &self.ledger, &self.minute)
    }

    fn count_seconds(&self) {
        let mut due = clock::instant();
        while self.stop.wait_until(due) == Waited::Elapsed {
            self.minute.tick(&self.proxy.cache.snapshot(), &self.ledger);
            due += Duration::from_secs(1);
        }
    }
}

impl Site for Page {
    fn answer(&self, request: &Request) -> io::Result<Answer> {
        Ok(match request.path() {
            "/" => feed::page(&self.html),
            "/events" => self.events(),
            "/stats" => Answer::whole(200, "application/json", self.state.json())
                .field("Cache-Control", "no-store"),
            _ => Answer::text(404, "The page is at /.\n"),
        })
    }
}

fn trials_json(trials: &[Trial]) -> String {
    let mut out = String::from("[");
    for (index, trial) in trials.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push('[');
        for (part, text) in [&trial.title, &trial.command, &trial.expect]
            .iter()
            .enumerate()
        {
            if part > 0 {
                out.push(',');
            }
            stats::write_text(&mut out, text);
        }
        out.push(']');
    }
    out.push(']');
    out
}
