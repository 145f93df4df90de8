//! Threads that keep the board up to date: for each node one that listens to its events, and one
//! that asks how it is.
//!
//! 1. A node that comes back is asked for everything that it has, so that nothing is missed of what
//!    happened before it could be listened to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use millpond_system::clock;

use super::super::http::lock;
use super::board::Said;
use super::{Fleet, LOOK};

/// Pause between two questions how a node is; a lag is told in seconds.
const ASK: Duration = Duration::from_millis(250);

/// Starts the threads of a node.
pub(super) fn start(fleet: &Arc<Fleet>, number: usize) -> io::Result<()> {
    let spawn = |name: &str, run: fn(&Fleet, usize)| {
        let fleet = Arc::clone(fleet);
        let thread = std::thread::Builder::new().name(name.to_string());
        thread.spawn(move || run(&fleet, number)).map(drop)
    };
    spawn("demo-events", follow)?;
    spawn("demo-status", ask)
}

/// Listens to a node's events, whenever it is there.
fn follow(fleet: &Fleet, number: usize) {
    while fleet.stop.wait(LOOK).is_ok() {
        // A node that is not there, or went, is listened to again.
        let _ = listen(fleet, number);
    }
}

fn listen(fleet: &Fleet, number: usize) -> Result<()> {
    let Some(node) = fleet.nodes.get(number) else {
        return Ok(());
    };
    let mut events = node.events()?;
    loop {
        let pages = node.pages()?;
        if let Some(shown) = lock(&fleet.board).nodes.get_mut(number) {
            shown.has = pages;
        }
        let purge = events.next()?;
        let now = clock::instant();
        if let Some(about) = purge {
            lock(&fleet.board).arrived(number, &about, now);
        }
    }
}

/// Asks a node how it is, again and again.
fn ask(fleet: &Fleet, number: usize) {
    let Some(node) = fleet.nodes.get(number) else {
        return;
    };
    while fleet.stop.wait(ASK).is_ok() {
        let said = match (node.status(), node.part.pid()) {
            (_, None) => None,
            (Ok(said), _) => Some(said),
            // It starts, or hangs.
            (Err(_), _) => Some(Said::default()),
        };
        lock(&fleet.board).told(number, said, clock::instant());
    }
}
