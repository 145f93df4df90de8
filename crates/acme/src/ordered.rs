//! A certificate that is ordered: what it is to be for, and what came of it.
//!
//! ```text
//! waiting ──issued──► held ──issued again──► held        no connection notices
//!    └──failed──► waiting, and why       └──failed──► held, and why
//! ```
//!
//! 1. Whoever names the same names, key and authority has the same one, as long as anybody has it:
//!    a reload finds what is there, and orders nothing again.
//! 2. Handshakes take what is there, and never wait.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::identifier::{self, Identifier};
use crate::issued::Issued;
use crate::issuer::Issuer;
use crate::key::KeyKind;
use crate::schedule::Timing;
use millpond_semantics::hex::Hex;

/// A certificate that is ordered.
#[derive(Debug)]
pub struct Ordered {
    /// The name of the issuer.
    pub issuer: String,
    /// The name of its files.
    pub label: String,
    /// The names that it is for.
    pub names: Vec<Identifier>,
    /// The kind of its key.
    pub kind: KeyKind,
    state: Mutex<State>,
}

/// The state of an order.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) issued: Option<Arc<Issued>>,
    pub(crate) timing: Timing,
    /// The end of a pause that the authority asked for.
    pub(crate) until: Option<i64>,
    /// The authority will not have it as it is configured.
    pub(crate) is_refused: bool,
    /// True once the folder was looked into.
    pub(crate) is_loaded: bool,
    why: String,
    counts: Counts,
}

/// Counts of orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// First certificates that were issued.
    pub issued: u64,
    /// Certificates that were issued in place of others.
    pub renewed: u64,
    /// Orders that failed.
    pub failed: u64,
}

/// All that there are.
static KNOWN: LazyLock<Mutex<HashMap<String, Weak<Ordered>>>> = LazyLock::new(Mutex::default);

impl Ordered {
    /// The order of names and a key from an authority (INVARIANT 1).
    pub fn of(issuer: &Issuer, names: Vec<Identifier>, kind: KeyKind) -> Arc<Ordered> {
        let label = label(issuer, &names, kind);
        let key = format!("{} {label} {:?}", issuer.name, issuer.folder);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, order| order.strong_count() > 0);
        if let Some(same) = known.get(&key).and_then(Weak::upgrade) {
            return same;
        }
        let new = Arc::new(Ordered {
            issuer: issuer.name.clone(),
            label,
            names,
            kind,
            state: Mutex::new(State {
                issued: None,
                timing: Timing::NOTHING,
                until: None,
                is_refused: false,
                is_loaded: false,
                why: "it has not been ordered yet".to_owned(),
                counts: Counts::default(),
            }),
        });
        known.insert(key, Arc::downgrade(&new));
        new
    }

    /// The certificate, if it is there.
    pub fn issued(&self) -> Option<Arc<Issued>> {
        self.state().issued.clone()
    }

    /// The reason for which it is not there, or was not renewed; empty if all is well.
    pub fn why(&self) -> String {
        self.state().why.clone()
    }

    /// Counts of what was done.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Its names in one line.
    pub fn shown(&self) -> String {
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// Puts a certificate in the place of what was there.
    pub(crate) fn put(&self, issued: Issued, timing: Timing) {
        let mut state = self.state();
        match state.issued.replace(Arc::new(issued)) {
            None => state.counts.issued += 1,
            Some(_) => state.counts.renewed += 1,
        }
        state.timing = timing;
        state.until = None;
        state.why.clear();
    }

    /// Puts a certificate that was kept.
    pub(crate) fn restore(&self, issued: Issued, timing: Timing) {
        let mut state = self.state();
        state.issued = Some(Arc::new(issued));
        state.timing = timing;
        state.why.clear();
    }

    /// Notes why an order failed.
    pub(crate) fn fail(&self, why: &str) {
        let mut state = self.state();
        why.clone_into(&mut state.why);
        state.counts.failed += 1;
    }

    /// Notes what an order waits for.
    pub(crate) fn say(&self, why: &str) {
        why.clone_into(&mut self.state().why);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Each change leaves it right: none can panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name for people, and a digest of all that is ordered.
fn label(issuer: &Issuer, names: &[Identifier], kind: KeyKind) -> String {
    let mut text = format!("{}\n{kind}\n", issuer.uri);
    for name in names {
        // A string takes all that is written.
        let _ = writeln!(text, "{name}");
    }
    if let Some(profile) = &issuer.profile {
        let _ = writeln!(text, "profile {}", profile.name);
    }
    let digest = openssl::sha::sha256(text.as_bytes());
    let first = identifier::first(names).map(ToString::to_string);
    format!("{}-{}", first.unwrap_or_default(), Hex(&digest[..8]))
}
