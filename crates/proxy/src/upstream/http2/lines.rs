//! `keepalive_streams`: lines of a worker, by group, and the way to a place on one.
//!
//! ```text
//! a line with room, the one with the most streams ──────────────► LineStream
//! else one that is being made, with a place among its waiters ─┐     ▲
//! else a new one ──────────────────────────────────────────────┴─wait┘
//! ```
//!
//! 1. Who waits waits for a line that is being made, never for one that is full: a stream that ends
//!    owes nobody anything.
//! 2. Between the look at a line and the opening of a stream on it nothing else runs.
//! 3. A worker keeps no more idle connections of a group than `keepalive` says, lines among them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use hashbrown::HashMap;
use millpond_system::clock::{self, Instant};
use millpond_system::timer::Timer;

use super::super::connect::{ConnectError, Maker, Way};
use super::super::group::Group;
use super::super::peer::Peer;
use super::lanes::End;
use super::line::Line;
use crate::upstream::keepalive::IdlePeers;
use millpond_exchange::failure::{UpstreamFailure, UpstreamKind};
use millpond_exchange::settings::Location;
use millpond_exchange::worker::Worker;

/// Lines that a request begins to get a place on one: a peer that goes away as soon as it is
/// connected to, or bears no stream, would have it begin others for ever (arbitrary).
const BEGUN_MOST: u32 = 3;

/// A line as a request wants it.
#[derive(Clone, Copy)]
pub(in super::super) struct Wanted<'a> {
    pub(in super::super) group: &'a Arc<Group>,
    pub(in super::super) peer: &'a Arc<Peer>,
    pub(in super::super) location: &'a Arc<Location>,
    pub(in super::super) way: Way<'a>,
    /// Number from which lines are young enough.
    pub(in super::super) from: u64,
}

/// The lines of one worker.
#[derive(Default)]
pub struct Lines {
    groups: RefCell<HashMap<usize, Vec<Rc<Line>>>>,
    next: Rc<Cell<u64>>,
}

impl Lines {
    /// Lines that a request may use.
    fn usable(&self, wanted: &Wanted<'_>) -> Vec<Rc<Line>> {
        let groups = self.groups.borrow();
        let lines = groups.get(&id(wanted.group)).into_iter().flatten();
        let is_usable = |line: &&Rc<Line>| line.number >= wanted.from && line.is_wanted(wanted);
        lines.filter(is_usable).cloned().collect()
    }

    /// A line with room.
    fn with_room(&self, wanted: &Wanted<'_>, now: Instant) -> Option<Rc<Line>> {
        let mut lines = self.usable(wanted);
        lines.sort_by_key(|line| std::cmp::Reverse(line.lanes.borrow().len()));
        let mut lines = lines.into_iter();
        lines.find(|line| line.has_room(now) && line.is_live(now))
    }

    /// A line that is being made, and may have one more waiter.
    fn forming(&self, wanted: &Wanted<'_>) -> Option<Rc<Line>> {
        let lines = self.usable(wanted);
        let told = lines.iter().filter_map(|line| line.lanes.borrow().told());
        let expected = told.min().unwrap_or(usize::MAX).max(1);
        let mut lines = lines.iter();
        let found = lines.find(|line| line.lanes.borrow().may_join(expected));
        found.cloned()
    }

    /// Begins a line.
    fn begin(&self, wanted: &Wanted<'_>) -> Rc<Line> {
        let line = Rc::new(Line::new(wanted, &self.next));
        let mut groups = self.groups.borrow_mut();
        let lines = groups.entry(id(wanted.group)).or_default();
        lines.push(Rc::clone(&line));
        line
    }

    /// Forgets a line that is over.
    fn forget(&self, line: &Rc<Line>) {
        let mut groups = self.groups.borrow_mut();
        if let Some(lines) = groups.get_mut(&id(&line.group)) {
            lines.retain(|other| !Rc::ptr_eq(other, line));
            if lines.is_empty() {
                groups.remove(&id(&line.group));
            }
        }
    }

    /// Lets no line take streams any more, and the idle ones close.
    pub(in super::super) fn clear(&self) {
        let groups = std::mem::take(&mut *self.groups.borrow_mut());
        groups.into_values().flatten().for_each(|line| line.leave());
    }

    /// The idle lines of a group, the one that became idle first at the begin.
    fn idle(&self, group: usize) -> Vec<Rc<Line>> {
        let groups = self.groups.borrow();
        let lines = groups.get(&group).into_iter().flatten();
        let mut idle: Vec<_> = lines.filter(|line| line.may_be_closed()).cloned().collect();
        idle.sort_by_key(|line| line.idle_since.get());
        idle
    }

    /// Closes idle lines of a group that are too many, `others` being its other idle connections.
    pub(in super::super) fn trim(&self, group: &Arc<Group>, others: usize) {
        let idle = self.idle(id(group));
        let most = group.keep_alive.connections.saturating_sub(others);
        let excess = idle.len().saturating_sub(most);
        idle.iter().take(excess).for_each(|line| line.leave());
    }

    /// Closes the line of each group that became idle first; false if there is none.
    pub(in super::super) fn close_oldest(&self) -> bool {
        let groups: Vec<usize> = self.groups.borrow().keys().copied().collect();
        let oldest = groups.into_iter().filter_map(|group| {
            let line = self.idle(group).into_iter().next()?;
            line.leave();
            Some(())
        });
        oldest.count() > 0
    }
}

/// A group is itself only while somebody holds it; its lines do.
fn id(group: &Arc<Group>) -> usize {
    Arc::as_ptr(group) as usize
}

/// A line with room, and whether it was waited for. `maker` makes one that is missing, and the wait
/// is over at `until`.
///
/// # Errors
/// No line was made, or not in time.
pub(in super::super) async fn find(
    wanted: &Wanted<'_>,
    maker: &Maker,
    until: Instant,
) -> Result<(Rc<Line>, Waited), UpstreamFailure> {
    let timer = Timer::new();
    let lines = &maker.worker.of::<IdlePeers>().lines;
    let mut begun = 0;
    let mut waited = Waited::No;
    loop {
        let now = clock::instant();
        if let Some(line) = lines.with_room(wanted, now) {
            return Ok((line, waited));
        }
        let line = match lines.forming(wanted) {
            Some(line) => line,
            None if begun == BEGUN_MOST => return Err(none_has_room()),
            None => {
                begun += 1;
                let line = lines.begin(wanted);
                tokio::task::spawn_local(run(Rc::clone(&line), maker.clone()));
                line
            }
        };
        waited = Waited::Yes;
        let waiting = Waiting::enter(&line);
        let ready = std::future::poll_fn(|cx| waiting.poll(cx));
        if timer.guard(until, ready).await.is_err() {
            return Err(ConnectError::TimedOut.into());
        }
        let lanes = line.lanes.borrow();
        if let (Some(end), None) = (lanes.ended(), lanes.told()) {
            return Err(failure(end));
        }
    }
}

/// Distinction of who found a line from who waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Waited {
    /// The line was there.
    No,
    /// The line was being made.
    Yes,
}

/// A waiter of a line, for as long as it waits.
struct Waiting<'a> {
    line: &'a Line,
    number: u32,
}

impl<'a> Waiting<'a> {
    fn enter(line: &'a Line) -> Self {
        let number = line.lanes.borrow_mut().join();
        Waiting { line, number }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.line.lanes.borrow_mut().poll_wait(self.number, cx)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.line.lanes.borrow_mut().quit(self.number);
    }
}

/// The failure of those who waited for a line.
fn failure(end: &End) -> UpstreamFailure {
    let doing = "while connecting to upstream";
    let text = match end {
        End::NotMade(failure) => return failure.clone(),
        End::Closed => format!("upstream prematurely closed connection {doing}"),
        End::Failed(error) => {
            return super::super::receive::upstream_error(error, "connecting to upstream");
        }
        End::Fault(fault) => format!("{} {doing}", super::words::of_fault(*fault)),
    };
    UpstreamFailure::new(UpstreamKind::Error, text)
}

fn none_has_room() -> UpstreamFailure {
    let text = "upstream lets no stream be opened while connecting to upstream";
    UpstreamFailure::new(UpstreamKind::Error, text)
}

/// The task of a line.
async fn run(line: Rc<Line>, maker: Maker) {
    let worker: Rc<Worker> = Rc::clone(&maker.worker);
    let made = maker.make().await;
    // It keeps a location, and so its configuration.
    drop(maker);
    match made {
        Err(error) => line.end(End::NotMade(error.into())),
        Ok(connection) => {
            line.made(connection);
            std::future::poll_fn(|cx| {
                worker.of::<IdlePeers>().trim_lines(&line);
                line.poll_turn(cx)
            })
            .await;
        }
    }
    worker.of::<IdlePeers>().lines.forget(&line);
}
