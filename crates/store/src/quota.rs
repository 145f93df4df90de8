//! Quotas of sites (`cache_site_quota`): a site that would hold more than it may loses the entries
//! that were used longest ago.
//!
//! ```text
//!   an entry of a limited site ──► has room ───────────────────────────────────► published
//!            ▲                └─► one of its own leaves, up to AT_ONCE ──► again ──┘
//!            └─ a sweep makes that room ◄── not stored: wanted ◄── none can now
//! ```
//!
//! 1. What a site with a limit holds on all disks in use, as `site` counts it, is never more than
//!    that because of an entry that is published: who publishes has the site's turn, and only such
//!    make it hold more. What was there before the limit, or was loaded, leaves by sweeps; so do
//!    the few bytes by which the head of an entry may grow that is written again.
//! 2. Only entries of that site leave for it: that is looked at under the lock of the shard.
//! 3. Who reads an entry that leaves reads on: it leaves the index, and its segment stays while it
//!    is read.
//! 4. A worker lists the entries of a site only where that is short ([`SHORT`]); the disk thread
//!    lists ahead where it is long.
//!
//! Of several disks those entries leave that stand on the disk on which the new one is to be; if
//! they are too few, a sweep takes those of the others.

use std::sync::atomic::Ordering;

use crate::admit::{EXTENT, NewBody, NotStored, Publish, Writer};
use crate::disk::format::{RECORD_HEADER, SLICE_REF, aligned};
use crate::disk::writer::Job;
use crate::entry::Entry;
use crate::index::Slot;
use crate::key::Key;
use crate::lock::{lock, read};
use crate::site::{Account, Leave, Leaving, Limit};
use crate::volume::Inner;

/// Entries that leave for one that comes, at most (arbitrary: about a millisecond).
const AT_ONCE: usize = 512;
/// Entries of one site that one sweep takes; the next one goes on. Arbitrary.
const SWEPT: usize = 1 << 14;
/// Entries of a disk that a worker looks through to list those of a site (a fifth of a
/// millisecond).
const SHORT: u64 = 1 << 16;
/// Entries of a list that are looked at for one that may leave: each may have been used since.
const LOOKS: usize = 1 << 10;

/// Seconds by which a head without a body leaves later than others that were used last when it was
/// (arbitrary: longer than somebody reads a body, whose slices are used after the head).
const HEAD_GRACE_S: u32 = 3600;

/// An entry that is to leave, and its time in the order of those that do.
struct Victim {
    key: Key,
    turn: u32,
}

/// The time of an entry in the order in which those of a site leave: that of its last use, and for
/// a head whose slices are of no use without it some more.
fn turn_of(slot: &Slot) -> u32 {
    let is_head = slot.body_len() == 0 && !slot.account().is_slice();
    slot.used
        .saturating_add(if is_head { HEAD_GRACE_S } else { 0 })
}

impl Writer {
    /// Refuses a body of which is known beforehand that it is more than its site may hold.
    pub fn fits_site(&self) -> Result<(), NotStored> {
        match self.expected_len {
            Some(len) if len > self.site_most => {
                self.give_up(NotStored::SiteFull);
                Err(NotStored::SiteFull)
            }
            _ => Ok(()),
        }
    }
}

impl Publish {
    /// Bytes of the disk that the entry will take, as they are charged to its site.
    fn disk_size(&self) -> u64 {
        let (inline, sliced) = match &self.body {
            NewBody::Inline(_) => (self.body_len(), 0),
            NewBody::Sliced(_) => (0, self.body_len()),
        };
        let table = self.slices().len() as u64 * u64::from(SLICE_REF);
        let record = u64::from(RECORD_HEADER) + table + self.head.len() as u64 + inline;
        aligned(record) + sliced
    }
}

impl Inner {
    /// The most that the site of an entry may hold that is about to come with a body of so many
    /// bytes; of a long one the next sweep begins to make the room.
    pub(crate) fn site_most(&self, account: Account, expected_len: Option<u64>) -> u64 {
        let Some(limit) = self.disk.book.limit_of(account) else {
            return u64::MAX;
        };
        if let Some(len) = expected_len.filter(|len| *len >= EXTENT) {
            limit.want(len);
        }
        limit.bytes()
    }

    /// Counts an entry that is not stored because of the limit of its site.
    pub(crate) fn note_refused(&self, account: Account) {
        if let Some(limit) = self.disk.book.limit_of(account) {
            limit.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Publishes an entry within the limit of its site.
    pub(crate) fn publish_charged(&self, publish: Publish) -> Result<Entry, NotStored> {
        let book = &self.disk.book;
        if !book.has_limits() {
            return self.publish(publish);
        }
        let claim = book.claim(&publish.head);
        let account = claim.account();
        let Some(limit) = book.limit_of(account) else {
            return self.publish(publish);
        };
        // INVARIANT 1.
        let _turn = lock(&limit.turn);
        let size = publish.disk_size();
        if !self.make_site_room(&limit, account, (size, &publish.key)) {
            limit.want(size);
            return Err(NotStored::SiteFull);
        }
        let key = publish.key;
        let is_known = self.of_site(&key, account).is_some();
        let published = self.publish(publish)?;
        limit.forget_wanted();
        // What it replaced is listed, and one that has left again is not to be.
        let new = self.of_site(&key, account).filter(|_| !is_known);
        let holdings = self.index.holdings();
        holdings.with_leaving(account, |it| it.came(new.as_ref().map(turn_of), key));
        Ok(published)
    }

    /// Lets entries of a site leave until one of `size` bytes has room under `key`; false if there
    /// is none.
    fn make_site_room(&self, limit: &Limit, account: Account, (size, key): (u64, &Key)) -> bool {
        let has_room = || {
            let replaced = self
                .of_site(key, account)
                .map_or(0, |slot| slot.disk_size());
            let held = self.disk.book.held_bytes(account);
            (held + size).saturating_sub(replaced) <= limit.bytes()
        };
        if size > limit.bytes() {
            return false;
        }
        for _ in 0..AT_ONCE {
            if has_room() {
                return true;
            }
            let Some(victim) = self.next_to_leave(account, Some(key)) else {
                return false;
            };
            self.evict_of_site(limit, account, &victim);
        }
        has_room()
    }

    /// The slot of a key, if it is charged to a site.
    fn of_site(&self, key: &Key, account: Account) -> Option<Slot> {
        let slot = self.index.get(key)?;
        (slot.account().number() == account.number()).then_some(slot)
    }

    /// Evicts what sites hold beyond their limits, and makes the room that was refused; the number
    /// of entries. For sweeps.
    pub(crate) fn sweep_limits(&self) -> u64 {
        let book = &self.disk.book;
        let mut swept = 0;
        for (number, limit) in book.limits().iter() {
            let account = Account::of_number(*number);
            for _ in 0..SWEPT {
                let is_over = || book.held_bytes(account) + limit.wanted() > limit.bytes();
                if !is_over() || self.is_closed() {
                    break;
                }
                // Before the turn: workers wait for that.
                self.list_if_empty(account);
                let _turn = lock(&limit.turn);
                if !is_over() {
                    break;
                }
                let Some(victim) = self.next_to_leave(account, None) else {
                    // Something may have come while there was no limit.
                    let holdings = self.index.holdings();
                    holdings.with_leaving(account, Leaving::forget);
                    break;
                };
                swept += u64::from(self.evict_of_site(limit, account, &victim));
            }
        }
        swept
    }

    /// INVARIANT 2.
    fn evict_of_site(&self, limit: &Limit, account: Account, victim: &Victim) -> bool {
        let is_it = |slot: &Slot| {
            slot.account().number() == account.number() && turn_of(slot) <= victim.turn
        };
        let is_gone = self.remove_if(&victim.key, Leave::Evicted, is_it);
        if is_gone {
            limit.evicted.fetch_add(1, Ordering::Relaxed);
            self.counters.evicted.fetch_add(1, Ordering::Relaxed);
        } else {
            // It was used meanwhile, or has left.
            let holdings = self.index.holdings();
            holdings.with_leaving(account, |it| it.put(victim.turn, victim.key));
        }
        is_gone
    }

    /// The entry of a site that was used longest ago; the one of `spared` stays.
    fn next_to_leave(&self, account: Account, spared: Option<&Key>) -> Option<Victim> {
        let holdings = self.index.holdings();
        // A list may turn out to have nothing but what was used since.
        for _ in 0..2 {
            self.list_if_short(account);
            let look = |leaving: &mut Leaving| self.look_for_victim(leaving, account, spared);
            let (found, is_due) = holdings.with_leaving(account, look);
            if is_due {
                self.disk.queue.push(Job::ListLeaving(account));
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The same in a list, and whether that is to be made anew.
    fn look_for_victim(
        &self,
        leaving: &mut Leaving,
        account: Account,
        spared: Option<&Key>,
    ) -> (Option<Victim>, bool) {
        let mut aside = None;
        let mut found = None;
        for _ in 0..LOOKS.max(2 * leaving.count()) {
            let Some((turn, key)) = leaving.pop() else {
                break;
            };
            let Some(slot) = self.of_site(&key, account) else {
                continue;
            };
            if turn_of(&slot) > turn {
                leaving.put(turn_of(&slot), key);
            } else if spared == Some(&key) {
                aside = Some((turn, key));
            } else {
                found = Some(Victim { key, turn });
                break;
            }
        }
        if let Some((turn, key)) = aside {
            leaving.put(turn, key);
        }
        let is_due = leaving.runs_out() && !leaving.is_ordered;
        leaving.is_ordered |= is_due;
        (found, is_due)
    }

    /// INVARIANT 4: lists the entries of a site if the list has run out and that takes no time.
    fn list_if_short(&self, account: Account) {
        if self.has_run_out(account) && self.index.count() <= SHORT {
            self.list_leaving(account);
        }
    }

    /// Lists the entries of a site if the list has run out.
    fn list_if_empty(&self, account: Account) {
        if self.has_run_out(account) {
            self.list_leaving(account);
        }
    }

    fn has_run_out(&self, account: Account) -> bool {
        let holdings = self.index.holdings();
        let has_run_out = |leaving: &mut Leaving| leaving.is_partial() && leaving.count() == 0;
        holdings.with_leaving(account, has_run_out)
    }

    /// Lists the entries of a site that were used longest ago.
    pub(crate) fn list_leaving(&self, account: Account) {
        let holdings = self.index.holdings();
        let began = self.now_s();
        let mut listing = holdings.with_leaving(account, |leaving| leaving.list());
        let is_loading = !self.loading.is_done();
        for shard in self.index.shards() {
            let shard = read(shard);
            let all = shard.table.iter();
            let own = all.filter(|slot| slot.account().number() == account.number());
            own.for_each(|slot| listing.show(turn_of(&slot), slot.key));
        }
        holdings.with_leaving(account, |leaving| {
            leaving.take(listing, (began, is_loading))
        });
    }
}
