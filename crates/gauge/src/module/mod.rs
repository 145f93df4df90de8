//! What users do: one module for each thing that a cache must do right.
//!
//! A module is what one user does until the run is over, and what must be true of all in the end
//! ([`Claim`]s). Every answer is checked to the byte whatever the module; a claim is about what a
//! single answer cannot show: how often the origin was asked, or that nothing came too late.
//!
//! 1. A module that needs the built-in origin says so ([`Module::needs_origin`]) before it runs.

mod coalesce;
mod micro;
mod placement;
mod purge;
mod range;
mod simple;
mod slice;
mod soak;
mod stale;
mod zipf;

use std::time::Duration;

use crate::load::{Record, Shared, User};

/// What can be chosen about a module; each uses what it needs.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Bytes of a body; for `zipf` and `soak` the median.
    pub size: u64,
    /// Resources.
    pub objects: u64,
    /// For how long the server's configuration keeps an answer fresh.
    pub ttl: Duration,
    /// How steep popularity is: the exponent of Zipf's law.
    pub alpha: f64,
    /// The longest time of a waiter's first byte behind the leader's.
    pub behind: Duration,
    /// The method that purges.
    pub purge_method: String,
    /// Told apart from other runs: part of all paths, so that a run begins cold.
    pub run: String,
}

/// Something that must be true in the end.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Claim {
    /// What.
    pub text: String,
    /// Whether it is.
    pub is_kept: bool,
    /// What was found.
    pub found: String,
}

impl Claim {
    /// A number that must not be above a limit.
    pub fn at_most(text: &str, found: u64, limit: u64) -> Self {
        Self {
            text: format!("{text}: at most {limit}"),
            is_kept: found <= limit,
            found: found.to_string(),
        }
    }
}

/// What users do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Each resource twice: right, and from the cache the second time.
    Simple,
    /// A whole resource, then about a hundred ranges of it at random.
    Range,
    /// All users ask at once for what nobody has asked for.
    Coalesce,
    /// Ranges far apart of large resources: no byte is fetched twice.
    Slice,
    /// Answers that are fresh for seconds, under load.
    Micro,
    /// The origin fails, and what was stored is served.
    Stale,
    /// What was purged does not come back.
    Purge,
    /// New resources as fast as they go.
    Placement,
    /// A catalogue with popularity and sizes.
    Zipf,
    /// All of it, for as long as wanted.
    Soak,
}

/// What users do, and how.
#[derive(Debug)]
pub struct Module {
    /// What.
    pub kind: Kind,
    knobs: Knobs,
    state: State,
}

/// What users of a module share.
#[derive(Debug)]
enum State {
    None,
    Coalesce(coalesce::Rounds),
    Zipf(zipf::Catalogue),
}

impl Module {
    /// Makes it ready.
    pub fn new(kind: Kind, knobs: Knobs) -> Self {
        let state = match kind {
            Kind::Coalesce => State::Coalesce(coalesce::Rounds::default()),
            Kind::Zipf | Kind::Soak => State::Zipf(zipf::Catalogue::new(&knobs)),
            _ => State::None,
        };
        Self { kind, knobs, state }
    }

    /// Whether it works with the built-in origin alone.
    pub fn needs_origin(&self) -> bool {
        matches!(
            self.kind,
            Kind::Coalesce | Kind::Slice | Kind::Micro | Kind::Stale | Kind::Purge
        )
    }

    /// What one user does.
    pub async fn run(&self, user: &mut User) {
        let knobs = &self.knobs;
        match (self.kind, &self.state) {
            (Kind::Coalesce, State::Coalesce(rounds)) => coalesce::run(user, knobs, rounds).await,
            (Kind::Zipf, State::Zipf(catalogue)) => zipf::run(user, knobs, catalogue).await,
            (Kind::Soak, State::Zipf(catalogue)) => soak::run(user, knobs, catalogue).await,
            (Kind::Range, _) => range::run(user, knobs).await,
            (Kind::Slice, _) => slice::run(user, knobs).await,
            (Kind::Micro, _) => micro::run(user, knobs).await,
            (Kind::Stale, _) => stale::run(user, knobs).await,
            (Kind::Purge, _) => purge::run(user, knobs).await,
            (Kind::Placement, _) => placement::run(user, knobs).await,
            _ => simple::run(user, knobs).await,
        }
    }

    /// What must be true in the end.
    pub fn claims(&self, shared: &Shared, record: &Record, elapsed: Duration) -> Vec<Claim> {
        let Some(origin) = &shared.origin else {
            return Vec::new();
        };
        match (self.kind, &self.state) {
            (Kind::Coalesce, _) => coalesce::claims(origin, record, &self.knobs),
            (Kind::Slice, _) => slice::claims(origin),
            (Kind::Micro, _) => micro::claims(origin, &self.knobs, elapsed),
            _ => Vec::new(),
        }
    }
}
