//! Lending: questions for leases of limits, and answers to those of other nodes.
//!
//! ```text
//! a key needs tokens ──call──► own ──────────────────────────► pools ──► taken at once
//!                        ├──► another's ──► "fleet" thread: questions by owner ──► NATS
//!                        └──► nobody's ──► away: the node has its equal part
//! ```
//!
//! A key that is called is tended: each tenth of a second it is asked for again, until its bucket
//! is empty and nothing of it is spent any more. So a bucket runs out while no request comes.
//!
//! 1. No worker waits for a lock that is held over a question, and a call waits for nothing.
//! 2. Who does not hear its own beats knows no owner: it may be the one that is cut off.
//! 3. An owner that has not answered is away for [`AWAY_MS`], with all of its keys.
//! 4. There are at most `CALLS_MAX` calls that wait, and `TENDED_MAX` keys that are tended. What is
//!    called beyond is asked for once.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use millpond_store::{Clock as _, SystemClock};
use millpond_system::clock;
use tokio::sync::Notify;

use crate::lease::{
    ANSWER_MS, AWAY_MS, Grant, KeyId, LEASE_MS, Outcome, Pools, WISHES_MAX, Wish, decode_grants,
    decode_wishes, encode_grants, encode_wishes, owned_by,
};
use crate::nats::NatsLog;
use crate::owner::{self, Candidate};
use crate::peers::LIVE_MS;
use crate::view::Heard;

/// Calls that wait for the thread of the fleet (arbitrary).
const CALLS_MAX: usize = 4_096;
/// Keys that are asked for again and again (arbitrary: as many questions a second as ten messages
/// with a thousand wishes each for one owner).
const TENDED_MAX: usize = 10_000;
/// Time in which calls gather for one question.
const GATHER: Duration = Duration::from_millis(1);
/// Time between two tries to hear questions.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// An owner is one however much it has to do.
const UNBOUNDED: u32 = u32::MAX;

/// A limit that is leased, by its keys.
pub trait Lessee: Debug + Send + Sync {
    /// Name of a key.
    fn id(&self, key: &[u8]) -> KeyId;

    /// Need of a key. With [`Need::Ask`] the question is put: an outcome follows.
    fn need(&self, key: &[u8]) -> Need;

    /// Takes over what became of the question.
    fn take(&self, key: &[u8], outcome: Outcome);
}

/// Need of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Tokens, now.
    Ask {
        /// Tokens a second that all nodes have together.
        rate: u64,
        /// Tokens that could be used.
        want: u64,
    },
    /// Nothing now.
    Later,
    /// Nothing any more.
    Nothing,
}

/// A key that needs tokens.
#[derive(Clone, Debug)]
struct Call {
    id: KeyId,
    lessee: Arc<dyn Lessee>,
    key: Bytes,
}

/// Nodes that live, and this one.
#[derive(Debug, Default)]
struct Members {
    own: Arc<str>,
    /// Nodes, and when each was heard of last.
    all: Vec<(Candidate, u64)>,
}

/// The owner of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Own,
    Other(Arc<str>),
    Nobody,
}

/// Counts of questions about keys, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Tokens were granted.
    pub granted: u64,
    /// There were none.
    pub empty: u64,
    /// There was no owner, or it did not answer.
    pub away: u64,
}

impl LeaseCounts {
    /// The sums with those of other questions.
    #[must_use]
    pub fn with(self, other: LeaseCounts) -> LeaseCounts {
        LeaseCounts {
            granted: self.granted + other.granted,
            empty: self.empty + other.empty,
            away: self.away + other.away,
        }
    }
}

/// Leases of one fleet, on one node.
#[derive(Debug, Default)]
pub struct Leases {
    members: Mutex<Members>,
    pools: Mutex<Pools>,
    /// Owners that have not answered, and up to when they are not asked.
    away: Mutex<BTreeMap<Arc<str>, u64>>,
    calls: Mutex<Vec<Call>>,
    called: Notify,
    counts: [AtomicU64; 3],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leases {
    /// Takes over what was heard of all nodes.
    pub(crate) fn hear<'a>(&self, own: &str, nodes: impl Iterator<Item = (&'a String, &'a Heard)>) {
        let recent = nodes.filter(|(_, heard)| heard.was_recent);
        let all = recent.map(|(name, heard)| (Candidate::new(name, 1, 0), heard.at_ms));
        let members = Members {
            own: Arc::from(own),
            all: all.collect(),
        };
        *lock(&self.members) = members;
    }

    /// Counts of outcomes.
    pub fn counts(&self) -> LeaseCounts {
        let [granted, empty, away] = self.counts.each_ref().map(|it| it.load(Relaxed));
        LeaseCounts {
            granted,
            empty,
            away,
        }
    }

    fn owner(&self, id: &KeyId, now_ms: u64) -> Owner {
        let members = lock(&self.members);
        let lives = |at_ms: u64| now_ms.saturating_sub(at_ms) <= LIVE_MS;
        let heard = members.all.iter().filter(|(_, at_ms)| lives(*at_ms));
        let live: Vec<Candidate> = heard.map(|(candidate, _)| candidate.clone()).collect();
        // INVARIANT 2.
        if !live.iter().any(|it| *it.name == *members.own) {
            return Owner::Nobody;
        }
        let place = owner::owner(&live, owned_by(id), UNBOUNDED);
        match place.and_then(|place| live.get(place)) {
            None => Owner::Nobody,
            Some(owner) if *owner.name == *members.own => Owner::Own,
            Some(owner) => Owner::Other(Arc::from(owner.name.as_str())),
        }
    }

    /// A key needs tokens: its own pool gives some at once, or they are asked for.
    pub fn call(&self, lessee: &Arc<dyn Lessee>, key: &Bytes) {
        let call = Call {
            id: lessee.id(key),
            lessee: Arc::clone(lessee),
            key: key.clone(),
        };
        let now_ms = SystemClock.since_boot();
        let is_asked = match self.owner(&call.id, now_ms) {
            Owner::Other(owner) => !self.is_away(&owner, now_ms),
            Owner::Own | Owner::Nobody => false,
        };
        if !is_asked {
            self.settle(&call, now_ms);
        }
        let mut calls = lock(&self.calls);
        if calls.len() < CALLS_MAX {
            calls.push(call);
            drop(calls);
            self.called.notify_one();
        }
    }

    /// Answers a need of a key that no other node answers.
    fn settle(&self, call: &Call, now_ms: u64) -> Need {
        let need = call.lessee.need(&call.key);
        let Need::Ask { rate, want } = need else {
            return need;
        };
        let outcome = match self.owner(&call.id, now_ms) {
            Owner::Own => {
                let wish = Wish {
                    id: call.id,
                    rate,
                    want,
                };
                let own = self.own();
                Outcome::Granted(lock(&self.pools).grant(own, &wish, now_ms))
            }
            _ => Outcome::Away,
        };
        self.tell(call, outcome);
        need
    }

    fn tell(&self, call: &Call, outcome: Outcome) {
        let place = match outcome {
            Outcome::Granted(Grant { tokens: 1.., .. }) => 0,
            Outcome::Granted(_) => 1,
            Outcome::Away => 2,
        };
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Relaxed);
        }
        call.lessee.take(&call.key, outcome);
    }

    /// The number of this node for pools.
    fn own(&self) -> u64 {
        owner::key(b"node", lock(&self.members).own.as_bytes())
    }

    fn is_away(&self, owner: &str, now_ms: u64) -> bool {
        let mut away = lock(&self.away);
        away.retain(|_, until_ms| now_ms < *until_ms);
        away.contains_key(owner)
    }

    fn lose(&self, owner: &Arc<str>) {
        // INVARIANT 3.
        lock(&self.away).insert(Arc::clone(owner), SystemClock.since_boot() + AWAY_MS);
    }
}

/// Keys that are tended, by the limit and the key.
type Tended = HashMap<(usize, Bytes), Call>;

/// Puts questions and answers those of others, as long as the node lives. `connected` gives the
/// log, where there is a connection.
pub(crate) async fn run(leases: &Arc<Leases>, node: &str, connected: impl Fn() -> Option<NatsLog>) {
    tokio::join!(
        lend(leases, node, &connected),
        borrow_tokens(leases, &connected)
    );
}

/// Answers questions.
async fn lend(leases: &Leases, node: &str, connected: &impl Fn() -> Option<NatsLog>) {
    loop {
        let Some(log) = connected() else {
            clock::pause(TRY_EVERY).await;
            continue;
        };
        let Ok(mut questions) = log.lease_questions(node).await else {
            clock::pause(TRY_EVERY).await;
            continue;
        };
        while let Some(message) = questions.next().await {
            let asked = decode_wishes(message.payload);
            let (Some(reply), Some((asker, wishes))) = (message.reply, asked) else {
                continue;
            };
            let answer = answer(leases, asker, &wishes);
            // Who asked has its part without an answer.
            let _ = log.reply(reply, encode_grants(&answer)).await;
        }
    }
}

fn answer(leases: &Leases, asker: u64, wishes: &[Wish]) -> Vec<Grant> {
    let now_ms = SystemClock.since_boot();
    let mut pools = lock(&leases.pools);
    let answers = wishes.iter().map(|wish| pools.grant(asker, wish, now_ms));
    answers.collect()
}

/// Puts questions.
async fn borrow_tokens(leases: &Arc<Leases>, connected: &impl Fn() -> Option<NatsLog>) {
    let mut tended = Tended::new();
    loop {
        let called = leases.called.notified();
        if tended.is_empty() {
            called.await;
        } else {
            let _tick = clock::within(Duration::from_millis(LEASE_MS), called).await;
        }
        clock::pause(GATHER).await;
        let calls = std::mem::take(&mut *lock(&leases.calls));
        let mut beyond = tend(&mut tended, calls, TENDED_MAX);
        for keys in [&mut tended, &mut beyond] {
            put_questions(leases, keys, connected);
        }
    }
}

/// INVARIANT 4: adds calls to what is tended; those that there is no room for.
fn tend(tended: &mut Tended, calls: Vec<Call>, most: usize) -> Tended {
    let mut beyond = Tended::new();
    for call in calls {
        let limit = Arc::as_ptr(&call.lessee).cast::<()>().addr();
        let key = (limit, call.key.clone());
        let has_room = tended.len() < most || tended.contains_key(&key);
        let keys = if has_room { &mut *tended } else { &mut beyond };
        keys.insert(key, call);
    }
    beyond
}

/// Puts the questions that are due, one for each owner.
fn put_questions(
    leases: &Arc<Leases>,
    tended: &mut Tended,
    connected: &impl Fn() -> Option<NatsLog>,
) {
    let now_ms = SystemClock.since_boot();
    let mut by_owner = BTreeMap::<Arc<str>, Vec<(Call, Wish)>>::new();
    tended.retain(|_, call| {
        let owner = match leases.owner(&call.id, now_ms) {
            Owner::Other(owner) if !leases.is_away(&owner, now_ms) => owner,
            _ => return leases.settle(call, now_ms) != Need::Nothing,
        };
        let need = call.lessee.need(&call.key);
        if let Need::Ask { rate, want } = need {
            let id = call.id;
            let wish = Wish { id, rate, want };
            by_owner
                .entry(owner)
                .or_default()
                .push((call.clone(), wish));
        }
        need != Need::Nothing
    });
    let log = connected();
    for (owner, asked) in by_owner {
        for part in asked.chunks(WISHES_MAX) {
            let (leases, owner, part) = (Arc::clone(leases), Arc::clone(&owner), part.to_vec());
            let log = log.clone();
            tokio::spawn(async move { ask(&leases, &owner, log, &part).await });
        }
    }
}

/// Puts one question, and hands on its answers.
async fn ask(leases: &Leases, owner: &Arc<str>, log: Option<NatsLog>, asked: &[(Call, Wish)]) {
    let wishes: Vec<Wish> = asked.iter().map(|(_, wish)| *wish).collect();
    let answer = match log {
        Some(log) => {
            let question = encode_wishes(leases.own(), &wishes);
            let patience = Duration::from_millis(ANSWER_MS);
            clock::within(patience, log.ask_for_leases(owner, question)).await
        }
        None => None,
    };
    let read = |answer| decode_grants(answer, wishes.len());
    let grants = answer.and_then(Result::ok).and_then(read);
    if grants.is_none() {
        leases.lose(owner);
    }
    let granted = grants.unwrap_or_default().into_iter();
    let outcomes = granted
        .map(Outcome::Granted)
        .chain(std::iter::repeat(Outcome::Away));
    for ((call, _), outcome) in asked.iter().zip(outcomes) {
        leases.tell(call, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit of which only the keys are looked at.
    #[derive(Debug)]
    struct Named;

    impl Lessee for Named {
        fn id(&self, key: &[u8]) -> KeyId {
            crate::lease::key_id(b"zone", key)
        }

        fn need(&self, _: &[u8]) -> Need {
            Need::Later
        }

        fn take(&self, _: &[u8], _: Outcome) {}
    }

    #[test]
    fn what_is_called_beyond_the_keys_that_are_tended_is_asked_for_too() {
        let lessee: Arc<dyn Lessee> = Arc::new(Named);
        let call = |key: &'static [u8]| Call {
            id: lessee.id(key),
            lessee: Arc::clone(&lessee),
            key: Bytes::from_static(key),
        };
        let mut tended = Tended::new();
        let beyond = tend(&mut tended, vec![call(b"a"), call(b"b"), call(b"c")], 2);
        let keys = |tended: &Tended| {
            let mut keys: Vec<Bytes> = tended.keys().map(|(_, key)| key.clone()).collect();
            keys.sort();
            keys
        };
        assert_eq!(keys(&tended), ["a", "b"]);
        assert_eq!(keys(&beyond), ["c"]);
        // One that is tended already needs no room.
        let beyond = tend(&mut tended, vec![call(b"b"), call(b"d")], 2);
        assert_eq!(
            (keys(&tended), keys(&beyond)),
            (vec!["a".into(), "b".into()], vec!["d".into()])
        );
    }
}
