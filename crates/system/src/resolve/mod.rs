//! Names become addresses while the program runs: `resolver`.
//!
//! ```text
//! find ──► known and good? ──► addresses
//!   │          └─ an alias ──► find the other name (50 times at most)
//!   ├──► somebody asks already ──► wait for that
//!   └──► a task that asks the name servers (exchange.rs) ──► known, or an error that is not kept
//! ```
//!
//! One [`Resolver`] is one `resolver` line. It is shared by all workers; the task that asks for a
//! name belongs to the worker whose request came first. If that worker ends, those who wait ask
//! again.
//!
//! Invariants:
//! 1. A name is asked for by one task at a time, and for as long as somebody waits.
//! 2. Errors are not remembered.
//! 3. At most `MOST_NAMES` names are remembered.

pub(crate) mod exchange;
pub(crate) mod message;
pub mod policy;
pub mod service;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use self::exchange::Servers;
use self::message::{Kind, Target};
use crate::chance;
use crate::clock::{self, Instant};

/// Names that a resolver remembers (arbitrary: some megabytes).
const MOST_NAMES: usize = 16 * 1024;

/// Aliases that are followed (nginx's number).
const MOST_ALIASES: u32 = 50;

/// Time for which a group does not ask again for a name that does not exist (nginx's number).
const ABSENT_TIME: Duration = Duration::from_secs(10);

/// The name servers of one line, and what they said.
#[derive(Debug)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    valid: Option<Duration>,
    kinds: Vec<Kind>,
    next: AtomicUsize,
    names: Mutex<HashMap<Question, State>>,
}

/// Kind of addresses that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    Addresses,
    Targets,
}

/// A name, and what of it.
type Question = (String, Wanted);

/// A name's state.
#[derive(Debug)]
enum State {
    /// The name is asked for; the task holds the channel.
    Asked(Weak<watch::Sender<Option<Outcome>>>),
    /// The name was answered.
    Known(Arc<Record>),
}

type Outcome = Result<Arc<Record>, ResolveError>;

/// Record of a name.
#[derive(Debug)]
struct Record {
    content: Content,
    valid_until: Instant,
}

#[derive(Debug)]
enum Content {
    Addresses(Vec<IpAddr>),
    Targets(Vec<Target>),
    Alias(String),
}

/// A name's addresses.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The addresses, one at least.
    pub ips: Vec<IpAddr>,
    /// Until when they are good.
    pub valid_until: Instant,
}

/// A service's targets.
#[derive(Clone, Debug)]
pub struct Targets {
    /// The targets, the best priority first.
    pub targets: Vec<Target>,
    /// Until when they are good.
    pub valid_until: Instant,
}

/// The reason why a name has no addresses; the numbers and words are nginx's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// A server said so.
    #[error("{code}: {words}", code = .0, words = words(*.0))]
    Code(u8),
    /// Nobody answered in time.
    #[error("110: Operation timed out")]
    TimedOut,
}

impl ResolveError {
    /// There is no such name, or it has nothing of what was asked for.
    pub const NOT_FOUND: ResolveError = ResolveError::Code(3);
}

fn words(code: u8) -> &'static str {
    match code {
        1 => "Format error",
        2 => "Server failure",
        3 => "Host not found",
        4 => "Unimplemented",
        5 => "Operation refused",
        _ => "Unknown error",
    }
}

impl Resolver {
    /// A resolver that knows nothing; `families` says whether IPv4 and IPv6 are wanted.
    pub fn new(servers: Vec<SocketAddr>, valid: Option<Duration>, families: (bool, bool)) -> Self {
        let kinds = [(families.0, Kind::A), (families.1, Kind::Aaaa)];
        let wanted = kinds.into_iter().filter(|(is_wanted, _)| *is_wanted);
        Resolver {
            servers,
            valid,
            kinds: wanted.map(|(_, kind)| kind).collect(),
            next: AtomicUsize::new(0),
            names: Mutex::default(),
        }
    }

    /// Time for which a name that does not exist is not asked for again.
    pub fn absent_time(&self) -> Duration {
        self.valid.unwrap_or(ABSENT_TIME)
    }

    /// The addresses of a name, within a time.
    pub async fn addresses(
        self: &Arc<Self>,
        name: &str,
        timeout: Duration,
    ) -> Result<Addresses, ResolveError> {
        let found = self.find(name, Wanted::Addresses, timeout).await?;
        let (record, source, valid_until) = found;
        let Content::Addresses(ips) = &record.content else {
            return Err(ResolveError::NOT_FOUND);
        };
        let mut ips = ips.clone();
        // nginx: who finds them in memory begins with any of them.
        if source == Source::Memory {
            let start = chance::below(ips.len() as u64) as usize;
            ips.rotate_left(start);
        }
        Ok(Addresses { ips, valid_until })
    }

    /// The targets of a service, such as `_http._tcp.example.com`, within a time.
    pub async fn targets(
        self: &Arc<Self>,
        name: &str,
        timeout: Duration,
    ) -> Result<Targets, ResolveError> {
        let (record, _, valid_until) = self.find(name, Wanted::Targets, timeout).await?;
        match &record.content {
            Content::Targets(targets) => Ok(Targets {
                targets: targets.clone(),
                valid_until,
            }),
            _ => Err(ResolveError::NOT_FOUND),
        }
    }

    async fn find(
        self: &Arc<Self>,
        name: &str,
        wanted: Wanted,
        timeout: Duration,
    ) -> Result<(Arc<Record>, Source, Instant), ResolveError> {
        let deadline = clock::instant() + timeout;
        let following = self.follow(name, wanted);
        match tokio::time::timeout_at(deadline, following).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ResolveError::TimedOut),
        }
    }

    /// Finds the record of a name or of the last of its aliases, and until when that is good.
    async fn follow(
        self: &Arc<Self>,
        name: &str,
        wanted: Wanted,
    ) -> Result<(Arc<Record>, Source, Instant), ResolveError> {
        let mut name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let mut valid_until: Option<Instant> = None;
        for _ in 0..=MOST_ALIASES {
            let (record, source) = self.record((name, wanted)).await?;
            let until = valid_until.map_or(record.valid_until, |it| it.min(record.valid_until));
            valid_until = Some(until);
            match &record.content {
                Content::Alias(other) => name = other.clone(),
                _ => return Ok((record, source, until)),
            }
        }
        Err(ResolveError::NOT_FOUND)
    }

    /// Finds the record of one name, and asks for it if need be.
    async fn record(
        self: &Arc<Self>,
        question: Question,
    ) -> Result<(Arc<Record>, Source), ResolveError> {
        loop {
            let mut answered = match self.begin(&question) {
                Begun::Known(record) => return Ok((record, Source::Memory)),
                Begun::Asked(receiver) => receiver,
            };
            let outcome = match answered.wait_for(Option::is_some).await {
                Ok(outcome) => outcome.clone(),
                // INVARIANT 1: the task ended with its worker; another one takes its place.
                Err(_) => None,
            };
            if let Some(outcome) = outcome {
                return outcome.map(|record| (record, Source::Server));
            }
        }
    }

    fn begin(self: &Arc<Self>, question: &Question) -> Begun {
        let mut names = self.lock();
        match names.get(question) {
            Some(State::Known(record)) if clock::instant() < record.valid_until => {
                return Begun::Known(Arc::clone(record));
            }
            Some(State::Asked(sender)) => {
                if let Some(sender) = sender.upgrade() {
                    return Begun::Asked(sender.subscribe());
                }
            }
            _ => {}
        }
        make_room(&mut names);
        let (sender, receiver) = watch::channel(None);
        let sender = Arc::new(sender);
        names.insert(question.clone(), State::Asked(Arc::downgrade(&sender)));
        drop(names);
        tokio::task::spawn_local(Arc::clone(self).ask(question.clone(), sender));
        Begun::Asked(receiver)
    }

    /// The task that asks for one name.
    async fn ask(
        self: Arc<Self>,
        question: Question,
        waiters: Arc<watch::Sender<Option<Outcome>>>,
    ) {
        let outcome = self.fetch(&question, &waiters).await;
        let mut names = self.lock();
        match &outcome {
            Ok(record) => {
                names.insert(question, State::Known(Arc::clone(record)));
            }
            // INVARIANT 2.
            Err(_) => {
                names.remove(&question);
            }
        }
        // With the lock held: whoever comes later finds what is known, or asks anew.
        waiters.send_replace(Some(outcome));
        drop(names);
    }

    async fn fetch(
        &self,
        question: &Question,
        waiters: &watch::Sender<Option<Outcome>>,
    ) -> Outcome {
        let (name, wanted) = question;
        let kinds = match wanted {
            Wanted::Addresses => self.kinds.as_slice(),
            Wanted::Targets => &[Kind::Srv],
        };
        if message::question(0, name, Kind::A).is_none() {
            return Err(ResolveError::NOT_FOUND);
        }
        let servers = Servers {
            all: &self.servers,
            first: self.next.fetch_add(1, Ordering::Relaxed),
        };
        let is_wanted = || waiters.receiver_count() > 0;
        let answers = exchange::ask(servers, name, kinds, is_wanted).await;
        let mut answers = answers.ok_or(ResolveError::TimedOut)?;
        if let Some(failed) = answers.iter().find(|answer| answer.code != 0) {
            return Err(ResolveError::Code(failed.code));
        }
        let valid_until = exchange::valid_until(&answers, self.valid);
        let ips = answers
            .iter()
            .flat_map(|answer| answer.addresses.iter().copied());
        let ips: Vec<IpAddr> = ips.collect();
        let mut targets: Vec<Target> = answers
            .iter_mut()
            .flat_map(|answer| std::mem::take(&mut answer.targets))
            .collect();
        targets.sort_by_key(|target| target.priority);
        // nginx: when the answers differ, the one to the last question counts.
        let alias = answers.pop().and_then(|answer| answer.alias);
        let content = match (ips.is_empty(), targets.is_empty(), alias) {
            (false, _, _) => Content::Addresses(ips),
            (_, false, _) => Content::Targets(targets),
            (_, _, Some(alias)) => Content::Alias(alias),
            _ => return Err(ResolveError::NOT_FOUND),
        };
        Ok(Arc::new(Record {
            content,
            valid_until,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Question, State>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Source of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Memory,
    Server,
}

/// Begin of a question.
enum Begun {
    Known(Arc<Record>),
    Asked(watch::Receiver<Option<Outcome>>),
}

/// INVARIANT 3: what is no longer good goes first, then whatever comes first.
fn make_room(names: &mut HashMap<Question, State>) {
    if names.len() < MOST_NAMES {
        return;
    }
    let now = clock::instant();
    names.retain(|_, state| match state {
        State::Known(record) => now < record.valid_until,
        State::Asked(sender) => sender.strong_count() > 0,
    });
    let is_known = |state: &State| matches!(state, State::Known(_));
    while names.len() >= MOST_NAMES {
        let known = names.iter().find(|(_, state)| is_known(state));
        let Some(question) = known.map(|(question, _)| question.clone()) else {
            return;
        };
        names.remove(&question);
    }
}
