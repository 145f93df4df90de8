//! Modules: the actions of users, one module for each thing that a cache must do right.
//!
//! A module is what one user does until the run is over, and what must be true of all in the end
//! ([`Claim`]s). Every answer is checked to the byte whatever the module; a claim is about what a
//! single answer cannot show: how often the origin was asked, or that nothing came too late.
//!
//! 1. A module that needs the built-in origin says so ([`Module::needs_origin`]) before it runs.

mod coalesce;
mod cold;
mod given;
mod micro;
mod placement;
mod purge;
mod range;
mod simple;
mod slice;
mod soak;
mod stale;
mod stats;
mod zipf;

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use self::cold::{FETCHED, SENT_AHEAD};
use crate::load::{Record, Shared, User};

/// Settings of a module; each uses what it needs.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Bytes of a body; for `zipf` and `soak` the median.
    pub size: u64,
    /// Resources.
    pub objects: u64,
    /// Time for which the server's configuration keeps an answer fresh.
    pub ttl: Duration,
    /// Exponent of popularity, by Zipf's law; larger is steeper.
    pub alpha: f64,
    /// The longest time of a waiter's first byte behind the leader's.
    pub behind: Duration,
    /// Most requests to the origin for one resource that all ask for at once.
    pub asks: u64,
    /// Number of times that all ask at once for the same resource.
    pub repeats: u64,
    /// After how long the server's configuration drops what nobody asks for; zero: not in a run.
    pub inactive: Duration,
    /// Path of the server's API.
    pub api: String,
    /// Zone that the server's API is asked about.
    pub zone: String,
    /// Paths of an origin that is not the gauge's.
    pub paths: Vec<String>,
    /// Address of that origin; without it the server's first answers are taken for right.
    pub against: Option<SocketAddr>,
    /// The method that purges.
    pub purge_method: String,
    /// Told apart from other runs: part of all paths, so that a run begins cold.
    pub run: String,
}

/// Something that must be true in the end.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Claim {
    /// Text of the claim.
    pub text: String,
    /// True if the claim is kept.
    pub is_kept: bool,
    /// Finding that the claim was judged by.
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

/// Actions of users, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Each resource twice: right, and from the cache the second time.
    Simple,
    /// A whole resource, then about a hundred ranges of it at random.
    Range,
    /// A range of a large resource: cold, while it comes, and when it is there.
    Cold,
    /// All users ask at once for what nobody has asked for.
    Coalesce,
    /// Ranges far apart of large resources: no byte is fetched twice.
    Slice,
    /// Answers that are fresh for seconds, under load.
    Micro,
    /// The origin fails, and what was stored is served.
    Stale,
    /// Purged answers do not come back.
    Purge,
    /// New resources as fast as they go.
    Placement,
    /// A catalogue with popularity and sizes.
    Zipf,
    /// Everything at once, for as long as wanted.
    Soak,
    /// The server's word about its cache is what it was asked for.
    Stats,
    /// Named paths of an origin that is not the gauge's.
    Given,
}

/// Actions of users, with what they share for it.
#[derive(Debug)]
enum Does {
    Simple,
    Range,
    Cold,
    Coalesce(coalesce::Rounds),
    Slice,
    Micro,
    Stale,
    Purge,
    Placement,
    Zipf(zipf::Catalogue),
    Soak(zipf::Catalogue),
    Stats,
    Given(given::Bodies),
}

impl Does {
    fn new(kind: Kind, knobs: &Knobs) -> Self {
        match kind {
            Kind::Simple => Self::Simple,
            Kind::Range => Self::Range,
            Kind::Cold => Self::Cold,
            Kind::Coalesce => Self::Coalesce(coalesce::Rounds::default()),
            Kind::Slice => Self::Slice,
            Kind::Micro => Self::Micro,
            Kind::Stale => Self::Stale,
            Kind::Purge => Self::Purge,
            Kind::Placement => Self::Placement,
            Kind::Zipf => Self::Zipf(zipf::Catalogue::new(knobs)),
            Kind::Soak => Self::Soak(zipf::Catalogue::new(knobs)),
            Kind::Stats => Self::Stats,
            Kind::Given => Self::Given(given::Bodies::default()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Range => "range",
            Self::Cold => "cold",
            Self::Coalesce(_) => "coalesce",
            Self::Slice => "slice",
            Self::Micro => "micro",
            Self::Stale => "stale",
            Self::Purge => "purge",
            Self::Placement => "placement",
            Self::Zipf(_) => "zipf",
            Self::Soak(_) => "soak",
            Self::Stats => "stats",
            Self::Given(_) => "given",
        }
    }
}

/// Module: the actions of users, and its settings.
#[derive(Debug)]
pub struct Module {
    does: Does,
    knobs: Knobs,
}

impl Module {
    /// Module of a kind, with what its users share.
    pub fn new(kind: Kind, knobs: Knobs) -> Self {
        Self {
            does: Does::new(kind, &knobs),
            knobs,
        }
    }

    /// Name of the module.
    pub fn name(&self) -> &'static str {
        self.does.name()
    }

    /// True if the module works with the built-in origin alone.
    pub fn needs_origin(&self) -> bool {
        match self.does {
            Does::Cold
            | Does::Coalesce(_)
            | Does::Slice
            | Does::Micro
            | Does::Stale
            | Does::Purge => true,
            Does::Simple
            | Does::Range
            | Does::Placement
            | Does::Zipf(_)
            | Does::Soak(_)
            | Does::Stats
            | Does::Given(_) => false,
        }
    }

    /// Actions of one user, until the run is over.
    pub async fn run(&self, user: &mut User) {
        let knobs = &self.knobs;
        match &self.does {
            Does::Simple => simple::run(user, knobs).await,
            Does::Range => range::run(user, knobs).await,
            Does::Cold => cold::run(user, knobs).await,
            Does::Coalesce(rounds) => coalesce::run(user, knobs, rounds).await,
            Does::Slice => slice::run(user, knobs).await,
            Does::Micro => micro::run(user, knobs).await,
            Does::Stale => stale::run(user, knobs).await,
            Does::Purge => purge::run(user, knobs).await,
            Does::Placement => placement::run(user, knobs).await,
            Does::Zipf(catalogue) => zipf::run(user, knobs, catalogue).await,
            Does::Soak(catalogue) => soak::run(user, knobs, catalogue).await,
            Does::Stats => stats::run(user, knobs).await,
            Does::Given(bodies) => given::run(user, knobs, bodies).await,
        }
    }

    /// Claims that must be true in the end.
    pub fn claims(&self, shared: &Shared, record: &Record, elapsed: Duration) -> Vec<Claim> {
        if let Does::Stats = self.does {
            return record.claims.clone();
        }
        let Some(origin) = &shared.origin else {
            return Vec::new();
        };
        match &self.does {
            Does::Cold => cold::claims(record, &self.knobs),
            Does::Coalesce(_) => coalesce::claims(origin, record, &self.knobs),
            Does::Slice => slice::claims(origin),
            Does::Micro => micro::claims(origin, &self.knobs, elapsed),
            _ => Vec::new(),
        }
    }
}
