//! Slots: a number of connections of the whole fleet, handed out by the owner of each key.
//!
//! ```text
//! node: keep, want ──► owner: max(keep, min(want, free)) ──► node: as many, until it asks again
//! no owner, or one that does not answer: the node has its equal part of the number (`share`)
//! ```
//!
//! All is without sockets and clocks; who asks whom, and how, is in `slot_lending`, and who is an
//! owner that knows, in `party`.
//!
//! 1. An owner that knows what all nodes have gives no slot that is not free: together they have no
//!    more than the number, or what they had anyhow.
//! 2. What a node has been told is its own until it asks again; from that question on it has no
//!    more than it said to keep, until the answer. So no slot is with two nodes.
//! 3. A slot in use is not taken away: who has too many, as after having been alone, gets no more,
//!    and nobody does before enough have ended.
//! 4. What a node has not asked for again in `KEPT_MS` is free; the node itself counts on it for
//!    `VALID_MS` only.
//! 5. Where an owner does not know, or does not answer, the node keeps what it has, and has its
//!    equal part when that goes on for `DOUBT_MS`: one answer that is late makes no more of them.
//!    Where there is no owner it has that at once.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::sync::Notify;

use crate::lease::{AWAY_MS, KeyId};

/// Time after which an owner takes slots for free that were not asked for again.
const KEPT_MS: u64 = 3_000;
/// Time for which a node counts on an answer, from its question on.
const VALID_MS: u64 = 2_000;
/// Time after which slots are asked for again of which all are in use.
const RENEW_MS: u64 = 1_000;
/// Time for which a node waits for an owner that knows and answers.
const DOUBT_MS: u64 = 1_000;
/// Time between a question that was not granted in full, and the next one.
const PAUSE_MS: u64 = 10;
/// The same where the owner does not know yet.
const UNKNOWN_PAUSE_MS: u64 = 20;
/// The same where it has not answered.
const LOST_PAUSE_MS: u64 = 100;
/// Keys of an owner (arbitrary: some megabytes).
const KEYS_MAX: usize = 64 << 10;
/// Time between two looks for keys of an owner that nobody asks for.
const SWEEP_MS: u64 = 1_000;
/// Nodes that are told apart for one key (arbitrary).
const PLACES_MAX: usize = 4096;
/// Wishes in one question: less than a message of NATS may have.
pub(crate) const WISHES_MAX: usize = 1_000;
const VERSION: u8 = 1;
const WISH_LEN: usize = 22;
const GRANT_LEN: usize = 3;

/// A question for slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWish {
    /// The key.
    pub id: KeyId,
    /// Slots that all nodes have together.
    pub limit: u16,
    /// Slots that the node has in any case.
    pub keep: u16,
    /// Slots that it could use, these included.
    pub want: u16,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotGrant {
    /// The node has so many.
    Slots(u16),
    /// The owner does not know what other nodes have. The node has what it keeps.
    Unknown,
}

/// Completeness of what an owner knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// All nodes have told what they have.
    Whole,
    /// Some have not.
    Part,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    node: u64,
    slots: u16,
    at_ms: u64,
}

fn is_kept(place: &Place, now_ms: u64) -> bool {
    now_ms.saturating_sub(place.at_ms) <= KEPT_MS
}

/// The slots that an owner has handed out.
#[derive(Debug, Default)]
pub(crate) struct Places {
    keys: HashMap<KeyId, Vec<Place>>,
    /// Time of the last look for keys that nobody asks for.
    swept_ms: Option<u64>,
}

impl Places {
    /// Answers a wish of a node, which is told apart from others by a number.
    pub(crate) fn grant(
        &mut self,
        (node, wish): (u64, &SlotWish),
        knowledge: Knowledge,
        now_ms: u64,
    ) -> SlotGrant {
        if self.keys.len() >= KEYS_MAX && !self.keys.contains_key(&wish.id) {
            self.sweep(now_ms);
            if self.keys.len() >= KEYS_MAX {
                return SlotGrant::Unknown;
            }
        }
        let places = self.keys.entry(wish.id).or_default();
        places.retain(|it| it.node != node && is_kept(it, now_ms));
        let others: u64 = places.iter().map(|it| u64::from(it.slots)).sum();
        let free = u64::from(wish.limit).saturating_sub(others);
        let given = u16::try_from(free).map_or(wish.want, |free| wish.want.min(free));
        let slots = match knowledge {
            // INVARIANTS 1 and 3.
            Knowledge::Whole if places.len() < PLACES_MAX => given.max(wish.keep),
            _ => wish.keep,
        };
        if slots > 0 {
            places.push(Place {
                node,
                slots,
                at_ms: now_ms,
            });
        }
        if places.is_empty() {
            self.keys.remove(&wish.id);
        }
        match knowledge {
            Knowledge::Whole => SlotGrant::Slots(slots),
            Knowledge::Part => SlotGrant::Unknown,
        }
    }

    /// Forgets keys that nobody asks for; not for each of those that there is no room for.
    fn sweep(&mut self, now_ms: u64) {
        let is_due = |at_ms| now_ms.saturating_sub(at_ms) >= SWEEP_MS;
        if self.swept_ms.is_none_or(is_due) {
            self.swept_ms = Some(now_ms);
            let kept = |places: &Vec<Place>| places.iter().any(|it| is_kept(it, now_ms));
            self.keys.retain(|_, places| kept(places));
        }
    }
}

/// The end of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOutcome {
    /// The owner has answered.
    Answered(SlotGrant),
    /// The owner has not answered.
    Away,
    /// There is no owner.
    Nobody,
}

/// Need of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotNeed {
    /// The question is put: an outcome follows.
    Ask(SlotWish),
    /// Nothing now; true if a question has no answer yet.
    Later {
        /// True if one is on its way.
        is_asked: bool,
    },
    /// Nothing any more.
    Nothing,
}

/// Extent of what an owner is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// News, and what was not told for long.
    News,
    /// All that there is.
    All,
}

/// A key as it is used on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The key.
    pub id: KeyId,
    /// Slots that all nodes have together.
    pub limit: u16,
    /// Slots in use.
    pub used: u16,
}

/// A question that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at_ms: u64,
    want: u16,
}

/// Slots of one key on a node that asks for them. Times are milliseconds of one clock.
#[derive(Debug, Default)]
pub struct SlotsHeld {
    slots: u16,
    /// Time of the question that they are the answer to; none without one.
    since_ms: Option<u64>,
    asked: Option<Asked>,
    next_ms: u64,
    /// True if the owner had no more in its last answer.
    is_full: bool,
    /// True if the node has its equal part.
    is_alone: bool,
    /// Time since which no owner has answered that knows.
    doubt_ms: Option<u64>,
    /// Requests that wait for a slot.
    waiting: u16,
    /// Told of each answer.
    news: Arc<Notify>,
    /// True while somebody asks for the key again and again.
    pub is_tended: bool,
}

impl SlotsHeld {
    /// Slots that may be in use, on a node whose equal part is `share`.
    pub fn allowance(&self, share: u16, now_ms: u64) -> u16 {
        let is_valid = self
            .since_ms
            .is_some_and(|at_ms| now_ms.saturating_sub(at_ms) <= VALID_MS);
        match () {
            // INVARIANT 2.
            () if self.asked.is_some() => self.slots,
            () if self.is_alone => share,
            // INVARIANT 4.
            () if is_valid => self.slots,
            () => 0,
        }
    }

    /// A request waits for a slot.
    pub fn begin_waiting(&mut self) {
        self.waiting = self.waiting.saturating_add(1);
    }

    /// True if the key is to stay, though none of its slots is in use.
    pub fn is_needed(&self) -> bool {
        self.is_tended || self.waiting > 0
    }

    /// A request does not wait any more.
    pub fn end_waiting(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// The next answer, if it is worth to wait for: none for a moment after the owner had nothing,
    /// and where it is away.
    pub fn awaited(&self, now_ms: u64) -> Option<Arc<Notify>> {
        let is_over = now_ms < self.next_ms && (self.is_full || self.is_alone);
        let may_come = self.asked.is_some() || !is_over;
        may_come.then(|| Arc::clone(&self.news))
    }

    /// True if a question may be put.
    pub fn may_ask(&self, now_ms: u64) -> bool {
        self.asked.is_none() && now_ms >= self.next_ms
    }

    /// Need of a key of which so many slots are in use.
    pub fn need(&mut self, of: &InUse, telling: Telling, now_ms: u64) -> SlotNeed {
        let InUse { id, limit, used } = *of;
        if self.asked.is_some() {
            return SlotNeed::Later { is_asked: true };
        }
        if used == 0 && self.waiting == 0 && self.slots == 0 {
            return SlotNeed::Nothing;
        }
        let is_old = self
            .since_ms
            .is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= RENEW_MS);
        let is_due = now_ms >= self.next_ms
            && (self.waiting > 0 || self.slots != used || is_old || self.doubt_ms.is_some());
        if !is_due && telling == Telling::News {
            return SlotNeed::Later { is_asked: false };
        }
        // INVARIANT 2.
        self.slots = used;
        let want = used.saturating_add(self.waiting);
        self.asked = Some(Asked {
            at_ms: now_ms,
            want,
        });
        SlotNeed::Ask(SlotWish {
            id,
            limit,
            keep: used,
            want,
        })
    }

    /// Takes over what became of the question.
    pub fn take(&mut self, outcome: SlotOutcome, now_ms: u64) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let pause_ms = match outcome {
            SlotOutcome::Answered(SlotGrant::Slots(slots)) => {
                self.slots = self.slots.max(slots);
                self.since_ms = Some(asked.at_ms);
                self.is_full = slots < asked.want;
                (self.is_alone, self.doubt_ms) = (false, None);
                if self.is_full { PAUSE_MS } else { 0 }
            }
            SlotOutcome::Answered(SlotGrant::Unknown) => {
                self.since_ms = Some(asked.at_ms);
                self.doubt(asked.at_ms, now_ms);
                UNKNOWN_PAUSE_MS
            }
            SlotOutcome::Away => {
                self.doubt(asked.at_ms, now_ms);
                LOST_PAUSE_MS
            }
            SlotOutcome::Nobody => {
                (self.is_alone, self.doubt_ms) = (true, None);
                AWAY_MS
            }
        };
        self.next_ms = now_ms + pause_ms;
        self.news.notify_waiters();
    }

    /// INVARIANT 5.
    fn doubt(&mut self, asked_ms: u64, now_ms: u64) {
        let since_ms = *self.doubt_ms.get_or_insert(asked_ms);
        self.is_full = false;
        self.is_alone |= now_ms.saturating_sub(since_ms) >= DOUBT_MS;
    }
}

/// Members as a node sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) digest: u64,
    /// True if it has heard the log for so long that it knows of all.
    pub(crate) is_sure: bool,
}

/// A message of a node to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotQuestion {
    /// Number of the node.
    pub(crate) node: u64,
    /// Members that it sees, if with this all is told that it has.
    pub(crate) whole: Option<Seen>,
    pub(crate) wishes: Vec<SlotWish>,
}

impl SlotQuestion {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(18 + self.wishes.len() * WISH_LEN);
        out.put_u8(VERSION);
        out.put_u64_le(self.node);
        out.put_u8(self.whole.map_or(0, |seen| 1 + u8::from(seen.is_sure)));
        out.put_u64_le(self.whole.map_or(0, |seen| seen.digest));
        for wish in &self.wishes {
            out.put_slice(&wish.id);
            out.put_u16_le(wish.limit);
            out.put_u16_le(wish.keep);
            out.put_u16_le(wish.want);
        }
        out.freeze()
    }

    /// Reads a question; none if it is not understood.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<SlotQuestion> {
        let version = bytes.try_get_u8().ok()?;
        let node = bytes.try_get_u64_le().ok()?;
        let (is_whole, digest) = (bytes.try_get_u8().ok()?, bytes.try_get_u64_le().ok()?);
        let is_right = bytes.len().is_multiple_of(WISH_LEN) && bytes.len() <= WISHES_MAX * WISH_LEN;
        if version != VERSION || !is_right {
            return None;
        }
        let mut wishes = Vec::with_capacity(bytes.len() / WISH_LEN);
        while bytes.has_remaining() {
            let mut id = KeyId::default();
            bytes.try_copy_to_slice(&mut id).ok()?;
            wishes.push(SlotWish {
                id,
                limit: bytes.try_get_u16_le().ok()?,
                keep: bytes.try_get_u16_le().ok()?,
                want: bytes.try_get_u16_le().ok()?,
            });
        }
        Some(SlotQuestion {
            node,
            whole: (is_whole > 0).then_some(Seen {
                digest,
                is_sure: is_whole == 2,
            }),
            wishes,
        })
    }
}

/// Bytes of answers, in the order of the wishes.
pub(crate) fn encode_slots(grants: &[SlotGrant]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + grants.len() * GRANT_LEN);
    out.put_u8(VERSION);
    for grant in grants {
        let (is_known, slots) = match grant {
            SlotGrant::Slots(slots) => (1, *slots),
            SlotGrant::Unknown => (0, 0),
        };
        out.put_u8(is_known);
        out.put_u16_le(slots);
    }
    out.freeze()
}

/// The answers to so many wishes; none if they are not understood.
pub(crate) fn decode_slots(mut bytes: Bytes, count: usize) -> Option<Vec<SlotGrant>> {
    let version = bytes.try_get_u8().ok()?;
    if version != VERSION || bytes.len() != count * GRANT_LEN {
        return None;
    }
    let mut grants = Vec::with_capacity(count);
    for _ in 0..count {
        let (is_known, slots) = (bytes.try_get_u8().ok()?, bytes.try_get_u16_le().ok()?);
        grants.push(match is_known {
            0 => SlotGrant::Unknown,
            _ => SlotGrant::Slots(slots),
        });
    }
    Some(grants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::key_id;

    fn wish(keep: u16, want: u16) -> SlotWish {
        SlotWish {
            id: key_id(b"zone", b"key"),
            limit: 4,
            keep,
            want,
        }
    }

    fn grant(places: &mut Places, node: u64, keep_want: (u16, u16), now_ms: u64) -> u16 {
        let wish = wish(keep_want.0, keep_want.1);
        match places.grant((node, &wish), Knowledge::Whole, now_ms) {
            SlotGrant::Slots(slots) => slots,
            SlotGrant::Unknown => panic!("known"),
        }
    }

    #[test]
    fn owner_gives_what_is_free_and_takes_nothing_that_is_in_use() {
        let mut places = Places::default();
        assert_eq!(grant(&mut places, 1, (0, 3), 0), 3);
        assert_eq!(grant(&mut places, 2, (0, 3), 0), 1);
        assert_eq!(grant(&mut places, 3, (0, 1), 0), 0);
        // It was alone for a while.
        assert_eq!(grant(&mut places, 3, (3, 4), 0), 3);
        assert_eq!(grant(&mut places, 1, (1, 2), 0), 1);
        assert_eq!(grant(&mut places, 2, (0, 0), 0), 0);
        assert_eq!(grant(&mut places, 1, (1, 2), 0), 1);
        assert_eq!(grant(&mut places, 3, (0, 0), 0), 0);
        assert_eq!(grant(&mut places, 1, (1, 9), 0), 4);
        // Those of a node that died.
        assert_eq!(grant(&mut places, 2, (0, 1), KEPT_MS), 0);
        assert_eq!(grant(&mut places, 2, (0, 1), KEPT_MS + 1), 1);
    }

    #[test]
    fn owner_that_does_not_know_gives_nothing_and_notes_what_there_is() {
        let mut places = Places::default();
        let part = |places: &mut Places, node, wish| {
            assert_eq!(
                places.grant((node, &wish), Knowledge::Part, 0),
                SlotGrant::Unknown
            );
        };
        part(&mut places, 1, wish(2, 4));
        part(&mut places, 2, wish(1, 1));
        assert_eq!(grant(&mut places, 3, (0, 4), 0), 1);
        part(&mut places, 1, wish(0, 0));
        assert_eq!(grant(&mut places, 3, (1, 4), 0), 3);
    }

    fn in_use(used: u16) -> InUse {
        InUse {
            id: key_id(b"zone", b"key"),
            limit: 4,
            used,
        }
    }

    fn asked(held: &mut SlotsHeld, used: u16, now_ms: u64) -> Option<(u16, u16)> {
        match held.need(&in_use(used), Telling::News, now_ms) {
            SlotNeed::Ask(wish) => Some((wish.keep, wish.want)),
            _ => None,
        }
    }

    fn answered(slots: u16) -> SlotOutcome {
        SlotOutcome::Answered(SlotGrant::Slots(slots))
    }

    #[test]
    fn node_has_what_it_was_told_and_gives_back_what_it_does_not_use() {
        let mut held = SlotsHeld::default();
        assert_eq!(held.allowance(2, 0), 0);
        held.begin_waiting();
        held.begin_waiting();
        assert_eq!(asked(&mut held, 0, 10), Some((0, 2)));
        assert_eq!(held.allowance(2, 10), 0, "it is asked");
        held.take(answered(2), 20);
        assert_eq!(held.allowance(2, 20), 2);
        held.end_waiting();
        held.end_waiting();
        assert_eq!(asked(&mut held, 2, 30), None, "all is in use");
        assert_eq!(asked(&mut held, 1, 40), Some((1, 1)));
        assert_eq!(held.allowance(2, 40), 1, "the other one is given back");
        held.take(answered(1), 50);
        assert_eq!(asked(&mut held, 1, 40 + RENEW_MS - 1), None);
        assert_eq!(held.allowance(2, 40 + VALID_MS), 1);
        assert_eq!(held.allowance(2, 41 + VALID_MS), 0);
        assert_eq!(asked(&mut held, 1, 40 + RENEW_MS), Some((1, 1)));
        held.take(answered(1), 2_000);
        assert_eq!(asked(&mut held, 0, 2_100), Some((0, 0)));
        held.take(answered(0), 2_100);
        let need = held.need(&in_use(0), Telling::News, 2_200);
        assert_eq!(need, SlotNeed::Nothing);
    }

    #[test]
    fn node_without_an_answer_has_its_part_and_asks_again() {
        let mut held = SlotsHeld::default();
        held.begin_waiting();
        assert_eq!(asked(&mut held, 3, 10), Some((3, 4)));
        held.take(SlotOutcome::Nobody, 110);
        assert_eq!(held.allowance(2, 110), 2);
        assert!(held.awaited(110).is_none() && !held.may_ask(110));
        assert_eq!(asked(&mut held, 3, 110 + AWAY_MS), Some((3, 4)));
        assert_eq!(held.allowance(2, 110 + AWAY_MS), 3, "no more than it keeps");
        held.take(answered(3), 1_200);
        assert_eq!(held.allowance(2, 1_200), 3);
        // Nothing is free: for a moment nobody waits for more.
        assert!(held.awaited(1_200).is_none());
        assert!(held.awaited(1_200 + PAUSE_MS).is_some());
    }

    #[test]
    fn node_whose_owner_does_not_know_keeps_what_it_has_for_a_while() {
        let mut held = SlotsHeld::default();
        let unknown = SlotOutcome::Answered(SlotGrant::Unknown);
        held.begin_waiting();
        assert_eq!(asked(&mut held, 1, 0), Some((1, 2)));
        held.take(unknown, 1);
        assert_eq!(held.allowance(2, 1), 1);
        assert!(held.awaited(1).is_some());
        assert_eq!(asked(&mut held, 1, 100), Some((1, 2)));
        held.take(SlotOutcome::Away, 200);
        assert_eq!(held.allowance(2, 200), 1);
        assert_eq!(asked(&mut held, 1, DOUBT_MS), Some((1, 2)));
        held.take(unknown, DOUBT_MS);
        assert_eq!(held.allowance(2, DOUBT_MS), 2);
    }

    #[test]
    fn what_is_written_reads_back_and_what_is_cut_does_not() {
        let question = SlotQuestion {
            node: 7,
            whole: Some(Seen {
                digest: 9,
                is_sure: true,
            }),
            wishes: vec![wish(1, 2), wish(3, 4)],
        };
        let bytes = question.encode();
        assert_eq!(SlotQuestion::decode(bytes.clone()), Some(question));
        let grants = [SlotGrant::Slots(3), SlotGrant::Unknown];
        let answer = encode_slots(&grants);
        assert_eq!(decode_slots(answer.clone(), 2), Some(grants.to_vec()));
        assert_eq!(decode_slots(answer.clone(), 1), None);
        for len in 0..bytes.len() {
            let cut = SlotQuestion::decode(bytes.slice(..len));
            assert!(cut.is_none_or(|cut| cut.wishes.len() < 2), "{len}");
        }
        for len in 0..answer.len() {
            assert_eq!(decode_slots(answer.slice(..len), 2), None, "{len}");
        }
        let many = SlotQuestion {
            node: 7,
            whole: None,
            wishes: vec![wish(1, 1); WISHES_MAX + 1],
        };
        assert_eq!(SlotQuestion::decode(many.encode()), None);
    }
}
