//! The configuration of a process that comes from its fleet: the machine, what it has to do, and
//! the task that drives it.
//!
//! ```text
//! news ──► machine ──► actions ──┬─ bundle fetched, kept ──► step ──► main thread: a reload
//!   ▲        ▲                   ├─ `good` on disk                         │
//!   │        └── outcome ◄───────┼──────────────────────────────────────────┘
//!   └── reports, verdicts ◄──────┘
//! ```
//!
//! It is one for the life of the process: nodes are stopped and started by the very reloads that
//! are asked for here.
//!
//! 1. Nothing is decided before everything is heard that there is: an order and its end may both be
//!    there.
//! 2. What cannot be fetched is fetched again; what is wrong is refused.
//! 3. An order that was begun `TRIALS_MAX` times and never ended is refused: the process may end
//!    with it.
//! 4. No bundle is removed that `good` names: first it names another one. Where it cannot be
//!    written, that is tried again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::OptionFuture;
use millpond_store::{Clock as _, SystemClock};
use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::ConfigConf;
use super::folder::{Folder, Held};
use super::machine::{Action, Machine, Tone};
use super::order::{Order, Signed};
use super::report::{Figures, Report, State, Verdict};
use super::stream::{News, NewsFeed};
use crate::follower::MEMBERS_MAX;
use crate::log::LogError;
use crate::nats::NatsLog;

/// Time between two looks at the clock.
const TICK: Duration = Duration::from_secs(1);
/// Time between two reports of a node that has nothing new to say, and of one that counts for a
/// trial.
const REPORT_EVERY_MS: u64 = 15_000;
const COUNT_EVERY_MS: u64 = 2_000;
/// Time in which a bundle must have come (arbitrary: the longest has 32 parts).
const FETCH_WITHIN: Duration = Duration::from_secs(60);
/// Time in which a message must have been stored.
const TELL_WITHIN: Duration = Duration::from_secs(3);
/// Times that an order may begin.
const TRIALS_MAX: u32 = 3;
/// Orders of a course (as many as the stream keeps).
const COURSE_MAX: usize = 16;
/// News that are taken together.
const BATCH_MAX: usize = 1024;
/// Numbers of wrong orders that are remembered, so that each is told once.
const WRONG_MAX: usize = 256;

/// Counters of the process.
pub trait Meter: Debug + Send + Sync {
    /// The figures at present.
    fn figures(&self) -> Figures;
}

/// Something that the process is to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The bundle; none for the process's own file alone.
    pub held: Option<Arc<Held>>,
}

/// State of the configuration, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Words of the node about itself.
    pub report: Report,
    /// Digest of the bundle that is in force.
    pub digest: Option<[u8; 32]>,
    /// Orders that were applied, refused, and taken back since the start.
    pub applied: u64,
    /// Orders that were refused.
    pub refused: u64,
    /// Orders that were taken back.
    pub back: u64,
    /// Orders that were not signed right.
    pub unsigned: u64,
    /// The reason why the stream is not followed.
    pub trouble: Option<String>,
}

/// An order that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The order.
    pub order: Order,
    /// The end of its trial, if it has one.
    pub verdict: Option<Verdict>,
}

/// Course of the orders of a fleet, as a node has heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// The newest orders, the newest first.
    pub orders: Vec<Heard>,
    /// Words of nodes about themselves, and milliseconds that they are older than the newest.
    pub nodes: Vec<(Report, u64)>,
}

#[derive(Debug)]
struct Inner {
    fleet: String,
    conf: ConfigConf,
    meter: Arc<dyn Meter>,
    machine: Machine,
    queue: VecDeque<Action>,
    step: Option<Step>,
    /// Wrong orders that were told.
    wrong: BTreeSet<u64>,
    /// Times of the last words of nodes, by the clock of the servers; as many as the machine has.
    told_ms: BTreeMap<String, u64>,
    status: Status,
}

/// The configuration of a process from its fleet, if it takes any.
#[derive(Debug, Default)]
pub struct Rollout {
    inner: Mutex<Option<Inner>>,
    /// There is something to apply.
    wanted: Notify,
    /// There is something to do for the task.
    changed: Notify,
}

/// Time by a clock that does not go back.
fn now_ms() -> u64 {
    SystemClock.since_boot()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn figures(&self) -> Figures {
        self.meter.figures()
    }

    fn tell(&self, text: &str, tone: Tone) {
        let level = match tone {
            Tone::Good => Level::Notice,
            Tone::Bad => Level::Error,
        };
        let fleet = &self.fleet;
        error::process(
            level,
            format_args!("fleet \"{fleet}\": configuration: {text}"),
        );
    }

    /// Takes the outcome of what was to be applied.
    fn applied(&mut self, outcome: Result<(), String>, now_ms: u64) {
        let figures = self.figures();
        let before = self.machine.report(&figures).state;
        match (before, &outcome) {
            (State::Applying, Ok(())) => self.status.applied += 1,
            (State::Applying, Err(_)) => self.status.refused += 1,
            (State::Back, Ok(())) => self.status.back += 1,
            _ => {}
        }
        let actions = self.machine.applied(outcome, now_ms, &figures);
        self.queue.extend(actions);
    }

    /// Keeps for later what could not be done yet, unless there is something newer to be tried.
    fn put_off(&mut self, action: Action) {
        if let Action::Try(_) = &action
            && self.machine.leave_for_newer()
        {
            return;
        }
        self.queue.push_front(action);
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Order(number, bytes) => self.hear_order(number, &bytes),
            News::Verdict(number, verdict) => self.machine.hear_verdict(number, verdict),
            News::Report(report, at_ms) => {
                if self.told_ms.len() < MEMBERS_MAX || self.told_ms.contains_key(&report.node) {
                    self.told_ms.insert(report.node.clone(), at_ms);
                }
                self.machine.hear_report(report);
            }
            News::Unknown => {}
        }
    }

    fn hear_order(&mut self, number: u64, bytes: &Bytes) {
        let read = Signed::read(bytes, &self.conf.trusted, &self.fleet);
        let why = match read {
            Ok(signed) if signed.order.revision == number => {
                return self.machine.hear_order(signed);
            }
            Ok(_) => "it has another number",
            Err(why) => why,
        };
        if self.wrong.len() < WRONG_MAX && self.wrong.insert(number) {
            self.status.unsigned += 1;
            self.tell(&format!("order {number} is not taken: {why}"), Tone::Bad);
        }
    }
}

impl Rollout {
    /// The process takes configuration of this fleet from here on, and runs this one; none for no
    /// fleet at all.
    pub fn serve(
        &self,
        conf: Option<(&str, &str, &ConfigConf)>,
        held: Option<&Held>,
        meter: Arc<dyn Meter>,
    ) {
        let mut inner = lock(&self.inner);
        let Some((fleet, node, conf)) = conf else {
            *inner = None;
            return;
        };
        if let Some(known) = inner.as_mut()
            && known.fleet == fleet
            && known.machine.node() == node
            && known.conf.folder == conf.folder
        {
            known.conf = conf.clone();
            known.wrong.clear();
            return;
        }
        *inner = Some(Inner {
            fleet: fleet.to_owned(),
            conf: conf.clone(),
            meter,
            machine: Machine::new(node, held.map(|held| held.signed.clone())),
            queue: VecDeque::new(),
            step: None,
            wrong: BTreeSet::new(),
            told_ms: BTreeMap::new(),
            status: Status::default(),
        });
    }

    /// The process has read its own file again: what was refused may be right now.
    pub fn forget_refusals(&self) {
        if let Some(inner) = lock(&self.inner).as_mut() {
            inner.machine.forget_refusals();
        }
        self.changed.notify_one();
    }

    /// The next configuration that is to be applied; its outcome is to be told.
    pub async fn next_step(&self) -> Step {
        loop {
            let step = lock(&self.inner).as_mut().and_then(|it| it.step.take());
            if let Some(step) = step {
                return step;
            }
            self.wanted.notified().await;
        }
    }

    /// The outcome of a step.
    pub fn tell(&self, outcome: Result<(), String>) {
        if let Some(inner) = lock(&self.inner).as_mut() {
            if outcome.is_err() {
                // It has ended, and did not end the process.
                Folder::new(&inner.conf.folder).end_trial();
            }
            inner.applied(outcome, now_ms());
        }
        self.changed.notify_one();
    }

    /// State of the configuration of a fleet; none if it gives none.
    pub fn status(&self, fleet: &str) -> Option<Status> {
        let known = lock(&self.inner);
        let inner = known.as_ref().filter(|it| it.fleet == fleet)?;
        let mut status = inner.status.clone();
        status.report = inner.machine.report(&inner.figures());
        status.digest = inner.machine.in_force().map(|it| it.order.digest);
        Some(status)
    }

    /// Course of the orders of a fleet; none if it gives none.
    pub fn course(&self, fleet: &str) -> Option<Course> {
        let known = lock(&self.inner);
        let inner = known.as_ref().filter(|it| it.fleet == fleet)?;
        let newest_ms = inner.told_ms.values().copied().max().unwrap_or(0);
        let aged = |report: &Report| {
            let told_ms = inner.told_ms.get(&report.node).copied().unwrap_or(0);
            (report.clone(), newest_ms.saturating_sub(told_ms))
        };
        let heard = |(signed, verdict): (&Signed, Option<&Verdict>)| Heard {
            order: signed.order.clone(),
            verdict: verdict.cloned(),
        };
        Some(Course {
            orders: inner.machine.orders().take(COURSE_MAX).map(heard).collect(),
            nodes: inner.machine.reports().map(aged).collect(),
        })
    }

    fn with<T>(&self, of: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        lock(&self.inner).as_mut().map(of)
    }

    /// Follows the orders of the fleet, as long as it is polled; `log` is the connection, once
    /// there is one.
    pub(crate) async fn drive(&self, log: impl Fn() -> Option<NatsLog>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut task = Task {
            rollout: self,
            log: &log,
            feed: None,
            pending: u64::MAX,
            is_known: false,
            told: None,
            judged: VecDeque::new(),
            unkept: None,
        };
        loop {
            tokio::select! {
                Some(news) = OptionFuture::from(task.feed.as_mut().map(NewsFeed::next)) => {
                    task.hear(news);
                }
                _ = ticks.tick() => task.open().await,
                () = self.changed.notified() => {}
            }
            task.go_on().await;
        }
    }
}

/// Number of the try: the first one, or another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Yes,
    No,
}

/// The task.
struct Task<'a, L> {
    rollout: &'a Rollout,
    log: &'a L,
    feed: Option<NewsFeed>,
    /// News that are there and were not heard yet.
    pending: u64,
    /// True once everything was heard that there was.
    is_known: bool,
    /// The last report that was told, and when.
    told: Option<(Report, u64)>,
    /// Verdicts that are to be told.
    judged: VecDeque<(u64, Verdict)>,
    /// An order that is good, and not yet so on disk.
    unkept: Option<Signed>,
}

impl<L: Fn() -> Option<NatsLog>> Task<'_, L> {
    async fn open(&mut self) {
        if self.feed.is_some() {
            return;
        }
        let Some(log) = (self.log)() else { return };
        let opened = clock::within(TELL_WITHIN, log.news()).await;
        match opened {
            Some(Ok((feed, pending))) => {
                (self.feed, self.pending) = (Some(feed), pending);
                self.rollout.with(|inner| inner.status.trouble = None);
                // The stream may have been made anew.
                self.told = None;
            }
            Some(Err(failure)) => self.lose(&failure),
            None => {}
        }
    }

    fn lose(&mut self, failure: &LogError) {
        self.feed = None;
        let text = failure.to_string();
        self.rollout.with(|inner| {
            if inner.status.trouble.as_ref() != Some(&text) {
                inner.tell(&text, Tone::Bad);
            }
            inner.status.trouble = Some(text);
        });
    }

    fn hear(&mut self, news: Result<(News, u64), LogError>) {
        let mut news = Some(news);
        for _ in 0..BATCH_MAX {
            match news {
                Some(Ok((heard, pending))) => {
                    self.pending = pending;
                    self.rollout.with(|inner| inner.hear(heard));
                }
                Some(Err(failure)) => return self.lose(&failure),
                None => return,
            }
            news = self.feed.as_mut().and_then(NewsFeed::ready);
        }
    }

    /// Decides, does what is to be done, and tells.
    async fn go_on(&mut self) {
        self.is_known |= self.feed.is_some() && self.pending == 0;
        // INVARIANT 1. Without a connection a trial goes on.
        let is_whole = self.is_known && (self.feed.is_none() || self.pending == 0);
        if is_whole {
            self.rollout.with(|inner| {
                let figures = inner.figures();
                let actions = inner.machine.step(now_ms(), &figures);
                inner.queue.extend(actions);
            });
        }
        if let Some(signed) = self.unkept.take() {
            self.settle(signed, Again::Yes);
        }
        while let Some(Some(action)) = self.rollout.with(|inner| inner.queue.pop_front()) {
            if let Some(later) = self.obey(action).await {
                self.rollout.with(|inner| inner.put_off(later));
                break;
            }
        }
        self.tell().await;
    }

    /// Does something; gives it back if that was not possible yet.
    async fn obey(&mut self, action: Action) -> Option<Action> {
        let folder = self.rollout.with(|inner| Folder::new(&inner.conf.folder))?;
        match action {
            Action::Tell(text, tone) => {
                self.rollout.with(|inner| inner.tell(&text, tone));
            }
            Action::Judge(number, verdict) => self.judged.push_back((number, verdict)),
            Action::Settle(signed) => self.settle(signed, Again::No),
            Action::Return(None) => self.ask_for(None),
            Action::Return(Some(signed)) => {
                folder.end_trial();
                match folder.held(signed) {
                    Ok(Some(held)) => self.ask_for(Some(held)),
                    Ok(None) => self.refuse("its bundle is missing on disk".to_owned()),
                    Err(why) => self.refuse(why),
                }
            }
            Action::Try(signed) => match self.fetch(&folder, &signed).await {
                None => return Some(Action::Try(signed)),
                Some(Ok(held)) => self.ask_for(Some(held)),
                Some(Err(why)) => self.refuse(why),
            },
        }
        None
    }

    /// Notes on disk that an order is good. INVARIANT 4.
    fn settle(&mut self, signed: Signed, again: Again) {
        let folder = self.rollout.with(|inner| Folder::new(&inner.conf.folder));
        let Some(folder) = folder else { return };
        match folder.settle(&signed) {
            Ok(()) => {
                folder.sweep(&[signed.order.digest]);
                self.unkept = None;
            }
            Err(why) => {
                if again == Again::No {
                    let text = format!("keeping what is good failed, and is tried again: {why}");
                    self.rollout.with(|inner| inner.tell(&text, Tone::Bad));
                }
                self.unkept = Some(signed);
            }
        }
    }

    fn ask_for(&self, held: Option<Held>) {
        let held = held.map(Arc::new);
        self.rollout.with(|inner| inner.step = Some(Step { held }));
        self.rollout.wanted.notify_one();
    }

    fn refuse(&self, why: String) {
        self.rollout.with(|inner| inner.applied(Err(why), now_ms()));
    }

    /// The bundle of an order, on disk; none if it did not come. INVARIANTS 2 and 3.
    async fn fetch(&mut self, folder: &Folder, signed: &Signed) -> Option<Result<Held, String>> {
        let known = folder.held(signed.clone());
        let bytes = match known {
            Ok(Some(held)) => match held.bundle.encode() {
                Some(bytes) => bytes,
                None => return Some(Err("the bundle is too long".to_owned())),
            },
            // What is damaged on disk is fetched anew.
            Ok(None) | Err(_) => {
                let log = (self.log)()?;
                match clock::within(FETCH_WITHIN, log.bundle(&signed.order)).await? {
                    Ok(Some(bytes)) => bytes,
                    // Bundles come before their orders.
                    Ok(None) => return Some(Err("its bundle is not in the stream".to_owned())),
                    Err(failure) => {
                        self.lose(&failure);
                        return None;
                    }
                }
            }
        };
        let kept = folder.keep(signed, &bytes);
        Some(kept.and_then(|held| {
            let count = folder.begin_trial(signed.order.revision)?;
            if count > TRIALS_MAX {
                return Err(format!("it was begun {TRIALS_MAX} times, and never ended"));
            }
            Ok(held)
        }))
    }

    /// Words for the fleet: verdicts of this node, and its report.
    async fn tell(&mut self) {
        if self.feed.is_none() {
            return;
        }
        let Some(log) = (self.log)() else { return };
        while let Some((number, verdict)) = self.judged.front() {
            let told = clock::within(TELL_WITHIN, log.put_verdict(*number, verdict)).await;
            match told {
                // Another one was faster: there is a verdict.
                Some(_) => drop(self.judged.pop_front()),
                None => return,
            }
        }
        let report = self.rollout.with(|inner| {
            let figures = inner.figures();
            inner.machine.report(&figures)
        });
        let Some(report) = report else { return };
        let now_ms = now_ms();
        let is_due = self.told.as_ref().is_none_or(|(last, at_ms)| {
            let without = |report: &Report| Report {
                figures: Figures::default(),
                ..report.clone()
            };
            let counts = matches!(report.state, State::Waiting | State::Watched | State::Held);
            let every_ms = if counts {
                COUNT_EVERY_MS
            } else {
                REPORT_EVERY_MS
            };
            without(last) != without(&report) || now_ms.saturating_sub(*at_ms) >= every_ms
        });
        if !is_due {
            return;
        }
        if let Some(Ok(())) = clock::within(TELL_WITHIN, log.put_report(&report)).await {
            self.told = Some((report, now_ms));
        }
    }
}
