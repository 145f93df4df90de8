//! Connections of zones with `fleet=name:lease`: slots that the owner of a key hands out.
//!
//! ```text
//! request ──► slots left ──► passes
//!          └► none ──► waits for the owner ──┬─► slots ──────► passes
//!                                            ├─► none free ──► refused
//!                                            └─► PATIENCE is over, away ──► judged by the share
//! ```
//!
//! 1. A key stays in the table as long as the node has slots of it, or somebody waits for one.
//! 2. A request that waits counts as such until it does not, however it ends: [`Waiting`] is a
//!    guard.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_fleet::lease::{KeyId, key_id};
use millpond_fleet::node::now_ms;
use millpond_fleet::slot::{InUse, SlotNeed, SlotOutcome, SlotsHeld, Telling};
use millpond_fleet::slot_lending::{SlotLeases, SlotLessee};
use millpond_system::clock;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::limit_conn::{ConnectionZone, Held, Refusal};
use super::limit_zone::KeyTable;

/// The longest time that a request waits for a slot: an owner that is away, or does not know yet
/// what other nodes have, and a little more.
const PATIENCE: Duration = Duration::from_millis(250);

/// Connections of a key.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Connections that count.
    pub(super) used: u16,
    /// The number of all nodes together, as the last request had it.
    limit: u16,
    /// Slots, where they are leased.
    slots: Option<Box<SlotsHeld>>,
}

impl Entry {
    /// One connection.
    pub(super) fn of_one() -> Self {
        Entry {
            used: 1,
            ..Entry::default()
        }
    }

    /// Gives a connection back; true if the key is to stay.
    pub(super) fn give_back(&mut self) -> bool {
        self.used = self.used.saturating_sub(1);
        self.is_needed()
    }

    /// INVARIANT 1.
    fn is_needed(&self) -> bool {
        self.used > 0 || self.slots.as_ref().is_some_and(|it| it.is_needed())
    }
}

/// A slot that a request needs.
pub(super) struct Slot<'a> {
    zone: &'a Arc<ConnectionZone>,
    leases: &'a Arc<SlotLeases>,
    key: &'a Bytes,
    limit: u16,
    waiting: Option<Waiting>,
}

/// The state of a request that needs a slot.
enum Turn {
    Has(Held),
    Waits(OwnedNotified),
    Refused(Refusal),
}

/// A request that waits. INVARIANT 2.
struct Waiting {
    zone: Arc<ConnectionZone>,
    key: Bytes,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = self.zone.entries();
        let Some(entry) = counts.find(&self.key) else {
            return;
        };
        if let Some(slots) = entry.slots.as_mut() {
            slots.end_waiting();
        }
        // It was not tended if too many waited for that.
        if !entry.is_needed() {
            counts.remove(&self.key);
        }
    }
}

impl<'a> Slot<'a> {
    /// A slot of a key with so many in all.
    pub(super) fn of(
        zone: &'a Arc<ConnectionZone>,
        leases: &'a Arc<SlotLeases>,
        (key, limit): (&'a Bytes, u16),
    ) -> Self {
        Slot {
            zone,
            leases,
            key,
            limit,
            waiting: None,
        }
    }

    /// Takes the slot, if there is one now.
    pub(super) fn take_at_once(mut self) -> Result<Held, Refusal> {
        match self.look() {
            Turn::Has(held) => Ok(held),
            Turn::Refused(refusal) => Err(refusal),
            Turn::Waits(_) => Err(Refusal::TooMany),
        }
    }

    /// Takes the slot, if there is one within [`PATIENCE`].
    pub(super) async fn take(mut self) -> Result<Held, Refusal> {
        let end = clock::instant() + PATIENCE;
        loop {
            let news = match self.look() {
                Turn::Has(held) => return Ok(held),
                Turn::Refused(refusal) => return Err(refusal),
                Turn::Waits(news) => news,
            };
            let left = end.saturating_duration_since(clock::instant());
            if left.is_zero() || clock::within(left, news).await.is_none() {
                return Err(Refusal::TooMany);
            }
        }
    }

    fn look(&mut self) -> Turn {
        let now_ms = now_ms();
        let mut counts = self.zone.entries();
        if counts.use_key(self.key).is_none() && counts.insert(self.key, Entry::default()).is_none()
        {
            return Turn::Refused(Refusal::NoRoom);
        }
        let Some(entry) = counts.find(self.key) else {
            return Turn::Refused(Refusal::NoRoom);
        };
        entry.limit = self.limit;
        let slots = entry.slots.get_or_insert_default();
        let allowance = slots.allowance(self.zone.part_of(self.limit), now_ms);
        if entry.used < allowance.min(self.limit) {
            entry.used += 1;
            let was_tended = std::mem::replace(&mut slots.is_tended, true);
            drop(counts);
            if !was_tended {
                self.call();
            }
            let (zone, key) = (Arc::clone(self.zone), self.key.clone());
            return Turn::Has(Held { zone, key });
        }
        let Some(news) = slots.awaited(now_ms) else {
            return Turn::Refused(Refusal::TooMany);
        };
        // From here on it is told of each answer.
        let news = Notify::notified_owned(news);
        if self.waiting.is_none() {
            slots.begin_waiting();
            self.waiting = Some(Waiting {
                zone: Arc::clone(self.zone),
                key: self.key.clone(),
            });
        }
        let was_tended = std::mem::replace(&mut slots.is_tended, true);
        let must_call = !was_tended || slots.may_ask(now_ms);
        drop(counts);
        if must_call {
            self.call();
        }
        Turn::Waits(news)
    }

    fn call(&self) {
        let lessee: Arc<dyn SlotLessee> = Arc::<ConnectionZone>::clone(self.zone);
        if self.leases.call(&lessee, self.key) {
            return;
        }
        let mut counts = self.zone.entries();
        if let Some(slots) = counts.find(self.key).and_then(|it| it.slots.as_mut()) {
            slots.is_tended = false;
        }
    }
}

impl ConnectionZone {
    fn entries(&self) -> MutexGuard<'_, KeyTable<Entry>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotLessee for ConnectionZone {
    fn id(&self, key: &[u8]) -> KeyId {
        key_id(self.name().as_bytes(), key)
    }

    fn need(&self, key: &[u8], telling: Telling) -> SlotNeed {
        let now_ms = now_ms();
        let mut counts = self.entries();
        let Some(entry) = counts.find(key) else {
            return SlotNeed::Nothing;
        };
        let in_use = InUse {
            id: self.id(key),
            limit: entry.limit,
            used: entry.used,
        };
        let slots = entry.slots.get_or_insert_default();
        let need = slots.need(&in_use, telling, now_ms);
        slots.is_tended = need != SlotNeed::Nothing;
        if need == SlotNeed::Nothing {
            counts.remove(key);
        }
        need
    }

    fn leave(&self, key: &[u8]) {
        let mut counts = self.entries();
        let Some(entry) = counts.find(key) else {
            return;
        };
        if let Some(slots) = entry.slots.as_mut() {
            slots.is_tended = false;
        }
        if !entry.is_needed() {
            counts.remove(key);
        }
    }

    fn take(&self, key: &[u8], outcome: SlotOutcome) {
        let mut counts = self.entries();
        if let Some(slots) = counts.find(key).and_then(|it| it.slots.as_mut()) {
            slots.take(outcome, now_ms());
        }
    }
}
