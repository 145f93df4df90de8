//! Lending of slots: questions for slots of limits, and answers to those of other nodes.
//!
//! ```text
//! a key needs a slot ──call──► own ─────────────────────────► places ──► taken at once
//!                         ├──► another's ──► "fleet" thread: questions by owner ──► NATS
//!                         └──► nobody's ──► away: the node has its equal part
//! ```
//!
//! A key that is called is tended until nothing of it is in use: what has ended is given back
//! within a tenth of a second, and what has not is told each second. When the members change, each
//! node tells every other one all that it has, for the keys that it owns from now on.
//!
//! 1. No worker waits for a lock that is held over a question, and a call waits for nothing.
//! 2. A report is whole only if all of its parts have been answered, and no question about a key of
//!    the same owner is on its way to another one.
//! 3. An owner that has not answered is away for `LOST_MS`, with all of its keys.
//! 4. The thread may end with the configuration: each question has an outcome all the same, and the
//!    keys that are tended are called for the next one.
//! 5. There are at most `CALLS_MAX` calls that wait. Keys that are tended are as many as tables of
//!    limits have.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use millpond_store::{Clock as _, SystemClock};
use millpond_system::clock;
use tokio::sync::Notify;

use crate::lease::{ANSWER_MS, KeyId};
use crate::lending::LeaseCounts;
use crate::nats::NatsLog;
use crate::party::{Known, Party, Roll, number_of};
use crate::slot::{
    Places, Seen, SlotGrant, SlotNeed, SlotOutcome, SlotQuestion, SlotWish, Telling, WISHES_MAX,
    decode_slots, encode_slots,
};
use crate::view::Heard;

/// Calls that wait for the thread of the fleet (arbitrary).
const CALLS_MAX: usize = 4_096;
/// Time between two looks at the keys that are tended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for which an owner that has not answered is not asked again.
const LOST_MS: u64 = 100;
/// Time in which calls gather for one question.
const GATHER: Duration = Duration::from_millis(1);
/// Time between two tries to hear questions.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// A limit whose slots are leased, by its keys.
pub trait SlotLessee: Debug + Send + Sync {
    /// Name of a key.
    fn id(&self, key: &[u8]) -> KeyId;

    /// Need of a key. With [`SlotNeed::Ask`] the question is put: an outcome follows.
    fn need(&self, key: &[u8], telling: Telling) -> SlotNeed;

    /// Takes over what became of the question.
    fn take(&self, key: &[u8], outcome: SlotOutcome);

    /// The key is not tended from now on, until it is asked for its need.
    fn leave(&self, key: &[u8]);
}

/// A key that needs slots.
#[derive(Clone, Debug)]
struct Call {
    id: KeyId,
    lessee: Arc<dyn SlotLessee>,
    key: Bytes,
}

/// The owner's side.
#[derive(Debug, Default)]
struct Desk {
    known: Known,
    places: Places,
}

/// Leases of slots in one fleet, on one node.
#[derive(Debug, Default)]
pub struct SlotLeases {
    own: Mutex<String>,
    roll: Mutex<Roll>,
    desk: Mutex<Desk>,
    /// Owners that have not answered, and up to when they are not asked.
    away: Mutex<BTreeMap<Arc<str>, u64>>,
    /// Nodes that were told all, by the party that this one saw.
    told: Mutex<BTreeMap<Arc<str>, Seen>>,
    calls: Mutex<Vec<Call>>,
    called: Notify,
    /// True if there are limits whose slots are leased.
    is_used: AtomicBool,
    counts: [AtomicU64; 3],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SlotLeases {
    /// Takes over what was heard of all nodes.
    pub(crate) fn hear<'a>(&self, own: &str, nodes: impl Iterator<Item = (&'a String, &'a Heard)>) {
        own.clone_into(&mut lock(&self.own));
        *lock(&self.roll) = Roll::new(own, nodes);
    }

    /// There are limits whose slots are leased, from now on.
    pub fn join(&self) {
        self.is_used.store(true, Relaxed);
        self.called.notify_one();
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

    /// A key needs slots: its own places give some at once, or they are asked for. False if it is
    /// not tended, because too many wait for that.
    pub fn call(&self, lessee: &Arc<dyn SlotLessee>, key: &Bytes) -> bool {
        let call = Call {
            id: lessee.id(key),
            lessee: Arc::clone(lessee),
            key: key.clone(),
        };
        let now_ms = SystemClock.since_boot();
        let party = lock(&self.roll).party(now_ms);
        if self.asked_of(party.as_ref(), &call.id, now_ms).is_none() {
            self.settle((&call, Telling::News), party, now_ms);
        }
        let mut calls = lock(&self.calls);
        let has_room = calls.len() < CALLS_MAX;
        if has_room {
            calls.push(call);
            drop(calls);
            self.called.notify_one();
        }
        has_room
    }

    /// The other node that is asked about a key; none if there is none, or it is away.
    fn asked_of(&self, party: Option<&Party>, id: &KeyId, now_ms: u64) -> Option<Arc<str>> {
        let owner = party?.other_owner(id)?;
        (!self.is_away(owner, now_ms)).then(|| Arc::from(owner))
    }

    /// Answers a need of a key that no other node answers.
    fn settle(
        &self,
        (call, telling): (&Call, Telling),
        party: Option<Party>,
        now_ms: u64,
    ) -> SlotNeed {
        let need = call.lessee.need(&call.key, telling);
        let SlotNeed::Ask(wish) = need else {
            return need;
        };
        let is_own = party
            .as_ref()
            .is_some_and(|it| it.other_owner(&call.id).is_none());
        let outcome = if party.is_none() {
            SlotOutcome::Nobody
        } else if is_own {
            let mut desk = lock(&self.desk);
            desk.known.see(party, now_ms);
            let (node, knowledge) = (number_of(&lock(&self.own)), desk.known.of(&call.id));
            SlotOutcome::Answered(desk.places.grant((node, &wish), knowledge, now_ms))
        } else {
            SlotOutcome::Away
        };
        self.tell(call, (&wish, outcome));
        need
    }

    fn tell(&self, call: &Call, (wish, outcome): (&SlotWish, SlotOutcome)) {
        let place = match outcome {
            SlotOutcome::Answered(SlotGrant::Slots(slots)) => usize::from(slots < wish.want),
            SlotOutcome::Answered(SlotGrant::Unknown) => 1,
            SlotOutcome::Away | SlotOutcome::Nobody => 2,
        };
        if let Some(count) = self.counts.get(place).filter(|_| wish.want > wish.keep) {
            count.fetch_add(1, Relaxed);
        }
        call.lessee.take(&call.key, outcome);
    }

    /// Answers a question of another node.
    fn answer(&self, question: &SlotQuestion) -> Vec<SlotGrant> {
        let now_ms = SystemClock.since_boot();
        let party = lock(&self.roll).party(now_ms);
        let mut desk = lock(&self.desk);
        if let Some(party) = party.as_ref().filter(|_| !self.is_used.load(Relaxed)) {
            // Nothing is tended here.
            let seen = Seen {
                digest: party.digest(),
                is_sure: desk.known.is_sure(now_ms),
            };
            desk.known.hear(number_of(&lock(&self.own)), seen);
        }
        desk.known.see(party.clone(), now_ms);
        let mut grants = Vec::with_capacity(question.wishes.len());
        for wish in &question.wishes {
            let knowledge = desk.known.of(&wish.id);
            let asked = (question.node, wish);
            grants.push(desk.places.grant(asked, knowledge, now_ms));
        }
        if let Some(seen) = question.whole {
            desk.known.hear(question.node, seen);
            desk.known.see(party, now_ms);
        }
        grants
    }

    fn is_away(&self, owner: &str, now_ms: u64) -> bool {
        let mut away = lock(&self.away);
        away.retain(|_, until_ms| now_ms < *until_ms);
        away.contains_key(owner)
    }

    fn lose(&self, owner: &Arc<str>) {
        // INVARIANT 3.
        lock(&self.away).insert(Arc::clone(owner), SystemClock.since_boot() + LOST_MS);
    }
}

/// Keys that are tended, by the limit and the key.
type Tended = HashMap<(usize, Bytes), Call>;

/// Things that are told to one node at once.
#[derive(Debug, Default)]
struct Batch {
    asked: VecDeque<(Call, SlotWish)>,
    /// The members that are seen, if it is all that there is.
    whole: Option<Seen>,
}

/// Puts questions and answers those of others, as long as the node lives. `connected` gives the
/// log, where there is a connection.
pub(crate) async fn run(
    leases: &Arc<SlotLeases>,
    node: &str,
    connected: impl Fn() -> Option<NatsLog>,
) {
    tokio::join!(
        lend(leases, node, &connected),
        borrow_slots(leases, &connected)
    );
}

/// Answers questions.
async fn lend(leases: &SlotLeases, node: &str, connected: &impl Fn() -> Option<NatsLog>) {
    loop {
        let Some(log) = connected() else {
            clock::pause(TRY_EVERY).await;
            continue;
        };
        let Ok(mut questions) = log.slot_questions(node).await else {
            clock::pause(TRY_EVERY).await;
            continue;
        };
        while let Some(message) = questions.next().await {
            let asked = SlotQuestion::decode(message.payload);
            let (Some(reply), Some(question)) = (message.reply, asked) else {
                continue;
            };
            let answer = leases.answer(&question);
            // Who asked has its part without an answer.
            let _ = log.reply(reply, encode_slots(&answer)).await;
        }
    }
}

/// Keys that the thread tends. INVARIANT 4.
struct Tender<'a> {
    leases: &'a SlotLeases,
    tended: Tended,
}

impl Drop for Tender<'_> {
    fn drop(&mut self) {
        let left: Vec<Call> = self.tended.drain().map(|(_, call)| call).collect();
        for call in &left {
            call.lessee.leave(&call.key);
        }
        lock(&self.leases.calls).extend(left);
    }
}

/// Calls of one owner that have no outcome yet. INVARIANT 4.
struct Unanswered {
    leases: Arc<SlotLeases>,
    left: VecDeque<(Call, SlotWish)>,
}

impl Unanswered {
    /// The wishes of the next question.
    fn next(&self) -> Vec<SlotWish> {
        let next = self.left.iter().take(WISHES_MAX);
        next.map(|(_, wish)| *wish).collect()
    }

    fn tell(&mut self, outcome: SlotOutcome) {
        if let Some((call, wish)) = self.left.pop_front() {
            self.leases.tell(&call, (&wish, outcome));
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        while !self.left.is_empty() {
            self.tell(SlotOutcome::Away);
        }
    }
}

/// Puts questions.
async fn borrow_slots(leases: &Arc<SlotLeases>, connected: &impl Fn() -> Option<NatsLog>) {
    let mut tender = Tender {
        leases,
        tended: Tended::new(),
    };
    loop {
        let called = leases.called.notified();
        if leases.is_used.load(Relaxed) {
            let _tick = clock::within(LOOK_EVERY, called).await;
        } else {
            called.await;
        }
        clock::pause(GATHER).await;
        for call in std::mem::take(&mut *lock(&leases.calls)) {
            let limit = Arc::as_ptr(&call.lessee).cast::<()>().addr();
            tender.tended.insert((limit, call.key.clone()), call);
        }
        put_questions(leases, &mut tender.tended, connected);
    }
}

/// Puts the questions that are due, one for each owner, and tells all to who has not heard it.
fn put_questions(
    leases: &Arc<SlotLeases>,
    tended: &mut Tended,
    connected: &impl Fn() -> Option<NatsLog>,
) {
    let now_ms = SystemClock.since_boot();
    let party = lock(&leases.roll).party(now_ms);
    lock(&leases.desk).known.see(party.clone(), now_ms);
    let mut batches = untold(leases, party.as_ref(), now_ms);
    // This node is told first of all.
    let own: Arc<str> = Arc::from(lock(&leases.own).as_str());
    let mut own_batch = batches.remove(&own).unwrap_or_default();
    tended.retain(|_, call| {
        let owner = leases.asked_of(party.as_ref(), &call.id, now_ms);
        let batch = match owner.clone() {
            Some(owner) => batches.entry(owner).or_default(),
            None => &mut own_batch,
        };
        let telling = batch.whole.map_or(Telling::News, |_| Telling::All);
        let need = match owner {
            Some(_) => call.lessee.need(&call.key, telling),
            None => leases.settle((call, telling), party.clone(), now_ms),
        };
        match need {
            SlotNeed::Ask(wish) if owner.is_some() => batch.asked.push_back((call.clone(), wish)),
            // INVARIANT 2.
            SlotNeed::Later { is_asked: true } => batch.whole = None,
            _ => {}
        }
        need != SlotNeed::Nothing
    });
    if let Some(seen) = own_batch.whole {
        lock(&leases.desk).known.hear(number_of(&own), seen);
        lock(&leases.told).insert(own, seen);
    }
    let log = connected();
    for (owner, batch) in batches {
        if batch.asked.is_empty() && batch.whole.is_none() {
            continue;
        }
        let unanswered = Unanswered {
            leases: Arc::clone(leases),
            left: batch.asked,
        };
        let (log, whole) = (log.clone(), batch.whole);
        tokio::spawn(async move { ask(&owner, log, unanswered, whole).await });
    }
}

/// Nodes that were not told all that there is since the members have changed, this one included.
fn untold(leases: &SlotLeases, party: Option<&Party>, now_ms: u64) -> BTreeMap<Arc<str>, Batch> {
    let Some(party) = party else {
        return BTreeMap::new();
    };
    let seen = Seen {
        digest: party.digest(),
        is_sure: lock(&leases.desk).known.is_sure(now_ms),
    };
    let mut told = lock(&leases.told);
    // Who gets sure tells it.
    told.retain(|_, known| *known == seen);
    let untold = party.names().filter(|name| !told.contains_key(*name));
    let reachable = untold.filter(|name| !leases.is_away(name, now_ms));
    let whole = || Batch {
        asked: VecDeque::new(),
        whole: Some(seen),
    };
    reachable.map(|name| (Arc::from(name), whole())).collect()
}

/// Puts the questions of one batch, and hands on their answers. Those after one that is lost are
/// not put.
async fn ask(
    owner: &Arc<str>,
    log: Option<NatsLog>,
    mut unanswered: Unanswered,
    whole: Option<Seen>,
) {
    let leases = Arc::clone(&unanswered.leases);
    loop {
        let wishes = unanswered.next();
        let count = wishes.len();
        let is_last = count == unanswered.left.len();
        let question = SlotQuestion {
            node: number_of(&lock(&leases.own)),
            // INVARIANT 2.
            whole: whole.filter(|_| is_last),
            wishes,
        };
        let answer = match &log {
            Some(log) => {
                let patience = Duration::from_millis(ANSWER_MS);
                clock::within(patience, log.ask_for_slots(owner, question.encode())).await
            }
            None => None,
        };
        let read = |answer| decode_slots(answer, count);
        let Some(grants) = answer.and_then(Result::ok).and_then(read) else {
            return leases.lose(owner);
        };
        let outcomes = grants.into_iter().map(SlotOutcome::Answered);
        outcomes.for_each(|outcome| unanswered.tell(outcome));
        if is_last {
            break;
        }
    }
    if let Some(seen) = whole {
        lock(&leases.told).insert(Arc::clone(owner), seen);
    }
}
