//! `ssl_certificate_cache`: certificates whose names have variables, kept from one handshake to the
//! next.
//!
//! A certificate and its key are kept together. They are taken as they are for the time `valid`;
//! then the files are looked at, and read again where they are others. What nobody asks for goes
//! after the time `inactive`, and what was asked for longest ago makes room.
//!
//! 1. A pair is read by a thread that may wait; whoever asks for one that is kept never does.
//! 2. A key that needed a password is not kept, as in nginx.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_system::clock::Instant;
use millpond_tls::Identity;

use super::objects::Stamp;

/// The time for which files are not looked at, unless it is told.
const VALID: Duration = Duration::from_secs(60);
/// The time after which a pair goes that nobody asks for, unless it is told.
const INACTIVE: Duration = Duration::from_secs(10);

/// The names of a certificate and of its key.
pub type Pair = [Arc<str>; 2];

/// The cache of a directive; whoever inherits the line shares it.
#[derive(Clone, Debug, Default)]
pub struct CacheLine(pub Option<Arc<CertificateCache>>);

impl FromArgs for CacheLine {
    const SYNTAX: &'static str = "off | max=number [inactive=time] [valid=time]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        if let [word] = words
            && word.text == "off"
        {
            return Ok(CacheLine(None));
        }
        let (mut max, mut inactive, mut valid) = (None, INACTIVE, VALID);
        for (at, word) in words.iter().enumerate() {
            if let Some(number) = args.after::<u32>(at, "max=") {
                max = Some(number?);
            } else if let Some(time) = args.after(at, "inactive=") {
                inactive = time?;
            } else if let Some(time) = args.after(at, "valid=") {
                valid = time?;
            } else {
                let message = format!("invalid parameter \"{}\"", word.text);
                return Err(ArgError::value(at, message));
            }
        }
        match max {
            Some(0) => Err(ArgError::value(0, "\"max\" must be at least 1")),
            Some(max) => Ok(CacheLine(Some(Arc::new(CertificateCache {
                max: max as usize,
                inactive,
                valid,
                kept: Mutex::default(),
            })))),
            None => Err(ArgError::other(
                "a cache of certificates must have the \"max\" parameter",
            )),
        }
    }
}

/// Knowledge of a pair.
#[derive(Debug)]
pub enum Found {
    /// The pair, to be used.
    Fresh(Arc<Identity>),
    /// The pair, to be used if its files are still as they were.
    Stale(Arc<Identity>, [Stamp; 2]),
    /// Nothing.
    Nothing,
}

impl Found {
    /// The pair, if its files, in their present state, are those that it was read from.
    pub fn still(self, now: &[Stamp; 2]) -> Option<Arc<Identity>> {
        match self {
            Found::Fresh(identity) => Some(identity),
            Found::Stale(identity, then) => {
                let is_still = then.iter().zip(now).all(|(then, now)| then.is_still(now));
                is_still.then_some(identity)
            }
            Found::Nothing => None,
        }
    }
}

/// Pairs that were read.
#[derive(Debug)]
pub struct CertificateCache {
    /// The most certificates and keys, counted one by one.
    max: usize,
    inactive: Duration,
    valid: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    pairs: HashMap<Pair, Entry>,
    /// Names in the order in which they were asked for last, by [`Entry::turn`].
    turns: BTreeMap<u64, Pair>,
    next_turn: u64,
}

#[derive(Debug)]
struct Entry {
    identity: Arc<Identity>,
    stamps: [Stamp; 2],
    checked: Instant,
    used: Instant,
    turn: u64,
}

impl CertificateCache {
    /// Looks for a pair.
    pub fn find(&self, pair: &Pair, now: Instant) -> Found {
        let kept = &mut *self.lock();
        let turn = kept.next_turn();
        let Some(entry) = kept.pairs.get_mut(pair) else {
            return Found::Nothing;
        };
        kept.turns.remove(&entry.turn);
        kept.turns.insert(turn, pair.clone());
        entry.turn = turn;
        let is_inactive = now.saturating_duration_since(entry.used) > self.inactive;
        entry.used = now;
        let identity = Arc::clone(&entry.identity);
        let is_valid = now.saturating_duration_since(entry.checked) <= self.valid;
        let is_text = entry.stamps.iter().all(|stamp| stamp == &Stamp::Text);
        match (is_inactive, is_valid || is_text) {
            (false, true) => Found::Fresh(identity),
            (false, false) => Found::Stale(identity, entry.stamps.clone()),
            (true, _) => {
                kept.remove(pair);
                Found::Nothing
            }
        }
    }

    /// Keeps a pair whose files were in these states.
    pub fn keep(&self, pair: Pair, identity: Arc<Identity>, stamps: [Stamp; 2], now: Instant) {
        let kept = &mut *self.lock();
        kept.remove(&pair);
        // Two of a pair, but one pair at least.
        let room = (self.max / 2).max(1) - 1;
        while let Some((_, oldest)) = kept.turns.first_key_value() {
            let is_inactive =
                |entry: &Entry| now.saturating_duration_since(entry.used) > self.inactive;
            let must_go = kept.pairs.len() > room || kept.pairs.get(oldest).is_none_or(is_inactive);
            if !must_go {
                break;
            }
            let oldest = oldest.clone();
            kept.remove(&oldest);
        }
        let turn = kept.next_turn();
        kept.turns.insert(turn, pair.clone());
        let entry = Entry {
            identity,
            stamps,
            checked: now,
            used: now,
            turn,
        };
        kept.pairs.insert(pair, entry);
    }

    /// Forgets a pair that cannot be read any more.
    pub fn forget(&self, pair: &Pair) {
        self.lock().remove(pair);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn next_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    fn remove(&mut self, pair: &Pair) {
        if let Some(entry) = self.pairs.remove(pair) {
            self.turns.remove(&entry.turn);
        }
    }
}
