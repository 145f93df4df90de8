//! From an offer to a copy.
//!
//! ```text
//! offer ─► lane of the key ─► position, entry ─► checksums ─► head there ─┬─ as good: Present
//!                               └ gone: Gone                              └► slices ─► head
//! ```
//!
//! A lane does one thing after the other, so that what is withdrawn behind an offer is withdrawn
//! after it was written.
//!
//! 1. The position is asked before the entry is looked up again (invariant 2 of the crate).
//! 2. Slices are written before the head that names them, and never replaced: their name is made of
//!    what they have. A head is replaced by one of an entry that is no older.
//! 3. What waits is bounded: `tier_queue` in bytes of bodies, and `JOBS_MAX`.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use millpond_cache::copies::{Keeper, Offer};
use millpond_cache::fill::can_resume;
use millpond_cache::head::{SliceSet, StoredHead};
use millpond_cache::purge::position::Position;
use millpond_cache::slice::held::{self, is_whole};
use millpond_store::{Entry, Zone};
use millpond_system::chance;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::counts::Write;
use crate::head::{Body, Kind, SLICES_MAX, TierHead, slice_count, slice_len, sum};
use crate::judge::{self, Known};
use crate::objects::{Fault, Put};
use crate::place::Name;
use crate::read::WHOLE;
use crate::shared::{Core, Job};

/// Times that a head is looked at which others replace at the same time (arbitrary).
const ROUNDS: usize = 3;

impl Keeper for Core {
    fn offer(&self, offer: Offer) {
        let len = offer.len;
        // INVARIANT 3.
        let before = self.queued.fetch_add(len, Ordering::Relaxed);
        let fits = before.saturating_add(len) <= self.path.queue;
        let text = offer.head.key.clone();
        if !(fits && self.queue.push(&Name::of_key(&text), Job::Write(offer))) {
            self.queued.fetch_sub(len, Ordering::Relaxed);
            self.counts.note_write(Write::Dropped);
        }
    }

    fn withdraw(&self, text: &Bytes) {
        let name = Name::of_key(text);
        self.queue.push(&name.clone(), Job::Withdraw(name));
    }
}

/// An entry that is copied.
struct Source {
    entry: Entry,
    /// The slices that the entry is kept in, if it is.
    sliced: Option<SliceSet>,
    stored: StoredHead,
    position: Position,
    body: Body,
}

impl Core {
    /// Does the jobs of a lane, one after the other, as long as there is a tier.
    pub(crate) async fn write_all(core: Weak<Core>, mut lane: UnboundedReceiver<Job>) {
        while let Some(job) = lane.recv().await {
            let Some(core) = core.upgrade() else { return };
            core.queue.count.fetch_sub(1, Ordering::Relaxed);
            match job {
                Job::Write(offer) => {
                    let len = offer.len;
                    let outcome = core.write(offer).await;
                    core.queued.fetch_sub(len, Ordering::Relaxed);
                    core.counts.note_write(outcome);
                }
                Job::Withdraw(name) => core.note(core.remove(&name, None).await),
                Job::Spoil(name, place) => core.note(core.remove(&name, place).await),
            }
        }
    }

    fn note(&self, outcome: Result<(), Fault>) {
        match outcome {
            Ok(()) => self.writing.answered(),
            Err(fault) => self.writing.failed(&fault),
        }
    }

    async fn remove(
        &self,
        name: &Name,
        place: Option<object_store::path::Path>,
    ) -> Result<(), Fault> {
        for place in [Some(self.places.head(name)), place].iter().flatten() {
            self.objects.delete(place).await?;
            self.counts.note_removed_object();
        }
        Ok(())
    }

    async fn write(self: &Arc<Self>, offer: Offer) -> Write {
        if !self.writing.lets_through() {
            return Write::Dropped;
        }
        let core = Arc::clone(self);
        // It waits for the disk.
        let finding = tokio::task::spawn_blocking(move || {
            let source = core.source(&offer);
            if source.is_none() {
                // More of it may be there with its next hits.
                core.zone.copies.offer_again(&offer);
            }
            source
        });
        let Ok(Some(source)) = finding.await else {
            return Write::Gone;
        };
        let written = self.copy(&Arc::new(source)).await;
        match &written {
            Ok(_) => self.writing.answered(),
            Err(fault) => self.writing.failed(fault),
        }
        match written {
            Ok(outcome) => outcome,
            Err(_) => Write::Fault,
        }
    }

    /// The entry that was offered, if it is still what it was, and can be copied.
    fn source(&self, offer: &Offer) -> Option<Source> {
        // INVARIANT 1.
        let (position, entry) = judge::source(&self.zone.purges, &offer.head.subject(), || {
            self.zone.store.find(&offer.key)
        })?;
        let mut stored = StoredHead::decode(entry.head())?;
        let is_same = stored == *offer.head;
        let store = &self.zone.store;
        let sliced = stored.sliced.take();
        let total = sliced.as_ref().map_or(entry.len(), |set| set.total);
        let is_same = is_same && total == offer.len;
        if sliced.as_ref().is_some_and(|set| !is_whole(store, set)) {
            return None;
        }
        let fits = total <= WHOLE || can_resume(&stored, Some(total));
        let count = slice_count(total);
        if !is_same || !fits || count > SLICES_MAX {
            return None;
        }
        let mut sums = Vec::with_capacity(count);
        for number in 0..count {
            sums.push(sum(&read(
                store,
                (&entry, sliced.as_ref()),
                (total, number),
            )?));
        }
        let body = Body::of(&stored, total, sums);
        // They mean something in this zone only.
        (stored.seed, stored.serial) = (0, 0);
        Some(Source {
            entry,
            sliced,
            stored,
            position,
            body,
        })
    }

    async fn copy(self: &Arc<Self>, source: &Arc<Source>) -> Result<Write, Fault> {
        let text = &source.stored.key;
        let first = Name::of_key(text);
        if source.stored.vary.is_empty() {
            return self.copy_to(&first, source).await;
        }
        let seed = self.seed(&first, source).await?;
        let variant = &source.stored.variant;
        let name = Name::of_variant(text, (seed, variant));
        self.copy_to(&name, source).await
    }

    /// Seed of the variants of a key, which its head names from then on.
    async fn seed(&self, first: &Name, source: &Source) -> Result<u64, Fault> {
        let vary = &source.stored.vary;
        let seed_of = |head: &TierHead| match head.kind {
            Kind::Variants(seed) if head.stored.vary == vary => Some(seed),
            _ => None,
        };
        let own = TierHead {
            position: source.position,
            kind: Kind::Variants(chance::word()),
            stored: source.stored.clone(),
        };
        self.put_head(first, &own, |there| seed_of(there).is_some())
            .await?;
        // Another node may have been first.
        let there = self.head(first).await?.and_then(|(head, _)| head);
        let seed = there.as_ref().and_then(seed_of);
        seed.ok_or(Fault::Wrong("head of a key"))
    }

    async fn copy_to(self: &Arc<Self>, name: &Name, source: &Arc<Source>) -> Result<Write, Fault> {
        let own = TierHead {
            position: source.position,
            kind: Kind::Entry(source.body.clone()),
            stored: source.stored.clone(),
        };
        let is_as_good = |there: &TierHead| self.is_as_good(there, &own);
        let there = self.head(name).await?.and_then(|(head, _)| head);
        if there.as_ref().is_some_and(is_as_good) {
            return Ok(Write::Present);
        }
        let has_body = there.is_some_and(|there| match there.kind {
            Kind::Entry(body) => body == source.body,
            Kind::Variants(_) => false,
        });
        // INVARIANT 2.
        if !has_body && !self.put_slices(name, source).await? {
            return Ok(Write::Gone);
        }
        Ok(match self.put_head(name, &own, is_as_good).await? {
            Put::Written => Write::Written,
            Put::Other => Write::Present,
        })
    }

    /// True if a head that is there serves as well as another one.
    fn is_as_good(&self, there: &TierHead, own: &TierHead) -> bool {
        let name = &self.zone.name;
        let (node, position) = (self.fleets.of_zone(name), self.zone.purges.position());
        node.zip(position).is_some_and(|(node, position)| {
            let known = Known {
                ledgers: node.ledgers(),
                zone: name,
                own: position,
            };
            known.is_as_good(there, own)
        })
    }

    /// Writes the slices that are not there; false if the entry's body cannot be read.
    async fn put_slices(
        self: &Arc<Self>,
        name: &Name,
        source: &Arc<Source>,
    ) -> Result<bool, Fault> {
        let mut numbers: VecDeque<usize> = (0..source.body.sums.len()).collect();
        while let Some(number) = numbers.pop_front() {
            let (core, from) = (Arc::clone(self), Arc::clone(source));
            let reading = tokio::task::spawn_blocking(move || {
                let of = (&from.entry, from.sliced.as_ref());
                read(&core.zone.store, of, (from.body.total, number))
            });
            let Ok(Some(bytes)) = reading.await else {
                return Ok(false);
            };
            if source.body.sums.get(number) != Some(&sum(&bytes)) {
                return Ok(false);
            }
            let place = self.places.slice(name, &source.body.generation, number);
            let count = bytes.len();
            if self.objects.create(&place, bytes).await? == Put::Written {
                self.counts.note_written_bytes(count);
                self.counts.note_written_object();
            }
        }
        Ok(true)
    }

    /// Writes a head, unless there is one that may stay.
    async fn put_head(
        &self,
        name: &Name,
        own: &TierHead,
        may_stay: impl Fn(&TierHead) -> bool,
    ) -> Result<Put, Fault> {
        let (place, bytes) = (self.places.head(name), own.encode());
        for _ in 0..ROUNDS {
            let put = match self.head(name).await? {
                None => self.objects.create(&place, bytes.clone()).await?,
                Some((Some(there), _)) if may_stay(&there) => return Ok(Put::Other),
                Some((_, version)) => {
                    self.objects
                        .replace(&place, (bytes.clone(), version))
                        .await?
                }
            };
            if put == Put::Written {
                self.counts.note_written_object();
                return Ok(Put::Written);
            }
        }
        Ok(Put::Other)
    }
}

/// A slice of an entry's body; none if it cannot be read. It waits for the disk.
fn read(
    store: &Zone,
    (entry, sliced): (&Entry, Option<&SliceSet>),
    (total, number): (u64, usize),
) -> Option<Bytes> {
    let len = slice_len(total, number);
    let start = number as u64 * crate::place::SLICE;
    if let Some(set) = sliced {
        return held::read(store, set, start..start + len);
    }
    let mut out = BytesMut::with_capacity(usize::try_from(len).ok()?);
    held::append(&mut out, entry.regions(start..start + len))?;
    (out.len() as u64 == len).then(|| out.freeze())
}
