//! The feed of dashboards: one thread makes an event a second for all who look.
//!
//! ```text
//! nobody ──join──► a thread makes events ──the last one leaves──► nobody
//!                     └─► the newest event (watch) ──► each viewer, when it has room
//! ```
//!
//! An event has all that there is to be shown, so a viewer that was slow goes on with the newest
//! one and has missed nothing; there are no queues. One that takes nothing for `send_timeout` is
//! disconnected as any client is.
//!
//! Invariants:
//! 1. There is a thread if and only if there are viewers, and never two.
//! 2. The configuration that is shown is that of the viewer that came last, so that after a reload
//!    it is the new one.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_exchange::settings::Conf;
use millpond_exchange::worker::Shared;
use millpond_system::clock;
use tokio::sync::watch;

use super::event;

/// Viewers at once (arbitrary: a team, with some windows each).
pub(crate) const VIEWERS_MAX: usize = 64;
/// Time from one event to the next.
const PERIOD: Duration = Duration::from_secs(1);

/// The source of the events of the process.
#[derive(Debug)]
pub(crate) struct Feed {
    state: Mutex<State>,
    changed: Condvar,
    newest: watch::Sender<Bytes>,
    /// The time when the process began, milliseconds since 1970.
    started_ms: i64,
}

#[derive(Debug, Default)]
struct State {
    viewers: usize,
    /// True if there is a thread.
    is_made: bool,
    conf: Option<Arc<Conf>>,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            state: Mutex::default(),
            changed: Condvar::new(),
            newest: watch::Sender::new(Bytes::new()),
            started_ms: clock::now_ms(),
        }
    }
}

impl Feed {
    /// The time when the process began, milliseconds since 1970.
    pub(crate) fn started_ms(&self) -> i64 {
        self.started_ms
    }

    /// The count of viewers.
    pub(crate) fn viewers(&self) -> usize {
        self.state().viewers
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A viewer of dashboards.
pub(crate) struct Viewer {
    feed: Arc<Feed>,
    events: watch::Receiver<Bytes>,
}

impl Viewer {
    /// Begins to look; `None` when there are too many, or no thread is to be had.
    pub(crate) fn join(shared: &Arc<Shared>, conf: &Arc<Conf>) -> Option<Viewer> {
        let feed = shared.guests.of::<Feed>();
        let mut state = feed.state();
        if state.viewers >= VIEWERS_MAX {
            return None;
        }
        if !state.is_made {
            let (feed, shared) = (Arc::clone(&feed), Arc::clone(shared));
            let thread = std::thread::Builder::new().name("dashboard".to_string());
            thread.spawn(move || make_events(&feed, &shared)).ok()?;
            state.is_made = true;
        }
        state.viewers += 1;
        // INVARIANT 2.
        state.conf = Some(Arc::clone(conf));
        drop(state);
        let mut events = feed.newest.subscribe();
        // The newest event is new to this one.
        events.mark_changed();
        Some(Viewer { feed, events })
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.events.changed().await.ok()?;
            let event = self.events.borrow_and_update().clone();
            if !event.is_empty() {
                return Some(event);
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let feed = &self.feed;
        let mut state = feed.state();
        state.viewers = state.viewers.saturating_sub(1);
        if state.viewers == 0 {
            feed.changed.notify_one();
        }
    }
}

/// Makes events until nobody looks.
fn make_events(feed: &Feed, shared: &Arc<Shared>) {
    let mut due = clock::instant();
    let mut state = feed.state();
    while state.viewers > 0 {
        let conf = state.conf.clone();
        drop(state);
        if let Some(conf) = conf {
            feed.newest.send_replace(event::make(&conf, shared));
        }
        let now = clock::instant();
        // An event that could not be made in time is not made up for.
        due = (due + PERIOD).max(now);
        let patience = due.duration_since(now);
        let waited = feed
            .changed
            .wait_timeout_while(feed.state(), patience, |state| state.viewers > 0);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    // INVARIANT 1: said under the lock, so that whoever joins now starts another thread.
    state.is_made = false;
    state.conf = None;
    feed.newest.send_replace(Bytes::new());
}
