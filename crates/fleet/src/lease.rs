//! Leases: a rate of the whole fleet, handed out for a tenth of a second by the owner of each key.
//!
//! ```text
//! owner of the key: pool, which fills at the rate ──grant──► node that asked: tokens
//!                                                             └─ spent within LEASE_MS
//! no owner, or one that does not answer: the node leaks its equal part of the rate (`share`)
//! ```
//!
//! Numbers are thousandths of requests, as in the buckets of `limit_req`. All is without sockets
//! and clocks; who asks whom, and how, is in `lending`.
//!
//! 1. A pool gives no more than fills it, and what it holds when it is made: `pool_max`.
//! 2. What a node was granted and has not spent is nothing after [`LEASE_MS`], but for what its
//!    bucket was too full by.
//! 3. Tokens are granted in whole requests: parts of one would end unspent on several nodes.
//! 4. Of nodes that ask within the same time none gets more than its equal part of what is there,
//!    and one request.
//! 5. Who has asked and hears nothing within [`ANSWER_MS`] is on its own: it has its equal part
//!    from the moment of the question on.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

/// Time for which tokens are granted.
pub const LEASE_MS: u64 = 100;
/// Time in which an owner answers; a request waits no longer.
pub const ANSWER_MS: u64 = 100;
/// Time for which an owner that has not answered is not asked again.
pub const AWAY_MS: u64 = 1_000;
/// Tokens of one request.
pub const REQUEST: u64 = 1_000;

/// Time after a question for which a node counts among those that ask.
const ASKING_MS: u64 = 3 * LEASE_MS;
/// Least and longest time between two questions about a key.
const PAUSES_MS: (u64, u64) = (5, 250);
/// Nodes that are told apart for one key; others are not counted (arbitrary).
const ASKERS_MAX: usize = 256;
/// Pools in each of two generations (arbitrary: some megabytes).
const POOLS_MAX: usize = 32 << 10;
/// Wishes in one question: less than a message of NATS may have.
pub(crate) const WISHES_MAX: usize = 1_000;
const VERSION: u8 = 1;
const WISH_LEN: usize = 32;
const GRANT_LEN: usize = 16;

/// A key of a limit.
pub type KeyId = [u8; 16];

/// The name of a key in a zone of limits.
pub fn key_id(zone: &[u8], key: &[u8]) -> KeyId {
    let mut digest = Sha256::new();
    for part in [zone, key] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    digest.first_chunk::<16>().copied().unwrap_or_default()
}

/// The number by which a key has an owner.
pub(crate) fn owned_by(id: &KeyId) -> u64 {
    let first = id.first_chunk::<8>().copied().unwrap_or_default();
    u64::from_le_bytes(first)
}

/// A question for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key.
    pub id: KeyId,
    /// Tokens a second that all nodes have together.
    pub rate: u64,
    /// Tokens that could be used.
    pub want: u64,
}

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Tokens, whole requests.
    pub tokens: u64,
    /// Nodes that ask for the key at present.
    pub askers: u32,
    /// Milliseconds after which there is another one.
    pub after_ms: u32,
}

/// Most tokens that a pool holds: one that is asked once in a while has those of two leases, and
/// the next whole request.
fn pool_max(rate: u64) -> u64 {
    (rate.saturating_mul(2 * LEASE_MS) / 1000).saturating_add(REQUEST)
}

#[derive(Debug)]
struct Pool {
    /// Thousandths of tokens, so that slow rates fill it, too.
    level: u128,
    last_ms: u64,
    askers: Vec<(u64, u64)>,
}

impl Pool {
    fn new(rate: u64, now_ms: u64) -> Self {
        Pool {
            level: u128::from(pool_max(rate) - REQUEST) * 1000,
            last_ms: now_ms,
            askers: Vec::new(),
        }
    }

    fn grant(&mut self, node: u64, wish: &Wish, now_ms: u64) -> Grant {
        let ms = now_ms.saturating_sub(self.last_ms);
        self.last_ms = self.last_ms.max(now_ms);
        // INVARIANT 1.
        let filled = self.level + u128::from(wish.rate) * u128::from(ms);
        self.level = filled.min(u128::from(pool_max(wish.rate)) * 1000);
        self.askers
            .retain(|(other, at_ms)| *other != node && now_ms.saturating_sub(*at_ms) <= ASKING_MS);
        if self.askers.len() < ASKERS_MAX {
            self.askers.push((node, now_ms));
        }
        let askers = self.askers.len().max(1) as u64;
        let level = u64::try_from(self.level / 1000).unwrap_or(u64::MAX);
        // INVARIANT 4.
        let part = (level / askers).max(REQUEST);
        // INVARIANT 3.
        let whole = wish.want.min(part).min(level) / REQUEST * REQUEST;
        self.level -= u128::from(whole) * 1000;
        let missing = (u128::from(REQUEST) * 1000).saturating_sub(self.level);
        let after_ms = missing.div_ceil(u128::from(wish.rate.max(1)));
        Grant {
            tokens: whole,
            askers: u32::try_from(askers).unwrap_or(u32::MAX),
            after_ms: u32::try_from(after_ms).unwrap_or(u32::MAX),
        }
    }
}

/// The pools of an owner.
#[derive(Debug, Default)]
pub struct Pools {
    now: HashMap<KeyId, Pool>,
    before: HashMap<KeyId, Pool>,
}

impl Pools {
    /// Answers a wish of a node, which is told apart from others by a number.
    pub fn grant(&mut self, node: u64, wish: &Wish, now_ms: u64) -> Grant {
        if let Some(pool) = self.now.get_mut(&wish.id) {
            return pool.grant(node, wish, now_ms);
        }
        if self.now.len() >= POOLS_MAX {
            self.before = std::mem::take(&mut self.now);
        }
        let known = self.before.remove(&wish.id);
        let mut pool = known.unwrap_or_else(|| Pool::new(wish.rate, now_ms));
        let grant = pool.grant(node, wish, now_ms);
        self.now.insert(wish.id, pool);
        grant
    }
}

/// The end of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The owner has answered.
    Granted(Grant),
    /// There is no owner, or it has not answered.
    Away,
}

/// Tokens of one key on a node that asks for them. Times are milliseconds of one clock.
#[derive(Debug, Default)]
pub struct Held {
    tokens: u64,
    until_ms: u64,
    /// Tokens that were spent since the last question.
    spent: u64,
    /// A question that has no answer yet, and what it was for.
    asked: Option<(u64, u64)>,
    next_ms: u64,
    askers: u32,
    /// The time from which on the node has its equal part.
    alone: Option<u64>,
    /// Told of each answer.
    news: Arc<Notify>,
    /// True while somebody asks for the key again and again.
    pub is_tended: bool,
    /// True if a request wanted more tokens than there were since the last question.
    pub is_wanted: bool,
}

impl Held {
    /// Time from which on the node has its equal part of the rate, if it has that.
    pub fn alone_since(&self, now_ms: u64) -> Option<u64> {
        // INVARIANT 5.
        let is_late = |at_ms: &u64| now_ms.saturating_sub(*at_ms) > ANSWER_MS;
        let unanswered = self.asked.map(|(at_ms, _)| at_ms).filter(is_late);
        self.alone.or(unanswered.map(|at_ms| self.since(at_ms)))
    }

    /// The time from which on a node is alone whose question has no answer. Who was never granted
    /// anything has been it all the time.
    fn since(&self, asked_ms: u64) -> u64 {
        if self.until_ms == 0 { 0 } else { asked_ms }
    }

    /// Tokens that may be spent.
    pub fn tokens(&self, now_ms: u64) -> u64 {
        // INVARIANT 2.
        if now_ms <= self.until_ms {
            self.tokens
        } else {
            0
        }
    }

    /// Notes that tokens were spent, or parts of the rate while the node was alone.
    pub fn spend(&mut self, tokens: u64, now_ms: u64) {
        self.tokens = self.tokens(now_ms).saturating_sub(tokens);
        self.spent = self.spent.saturating_add(tokens);
    }

    /// Nodes that share the rate of the key at present.
    pub fn askers(&self) -> u64 {
        u64::from(self.askers.max(1))
    }

    /// True if a question may be put.
    pub fn may_ask(&self, now_ms: u64) -> bool {
        let is_asked = self.asked.is_some() && self.alone_since(now_ms).is_none();
        !is_asked && now_ms >= self.next_ms
    }

    /// The next answer, if there is one to wait for: a question is put or may be.
    pub fn awaited(&self, now_ms: u64) -> Option<Arc<Notify>> {
        let may_come = self.asked.is_some() || now_ms >= self.next_ms;
        let is_alone = self.alone_since(now_ms).is_some();
        (may_come && !is_alone).then(|| Arc::clone(&self.news))
    }

    /// True if nothing is needed: the bucket is empty, and nothing was spent or wanted since the
    /// last question.
    pub fn is_idle(&self, excess: u64) -> bool {
        excess == 0 && self.spent == 0 && !self.is_wanted
    }

    /// Puts a question for a bucket that is too full by so much: the tokens that could be used
    /// before the next one.
    pub fn ask(&mut self, excess: u64, rate: u64, now_ms: u64) -> u64 {
        let lease = rate.saturating_mul(LEASE_MS) / 1000;
        // A little more than before, so that a rate that grows is followed.
        let coming = (self.spent + self.spent / 4).clamp(REQUEST, lease.max(REQUEST));
        let missing = (excess + coming).saturating_sub(self.tokens(now_ms));
        let want = missing.next_multiple_of(REQUEST).max(REQUEST);
        self.spent = 0;
        self.is_wanted = false;
        self.asked = Some((now_ms, want));
        self.next_ms = now_ms + PAUSES_MS.0;
        want
    }

    /// Takes over what became of the question; the bucket that is too full gets the first part.
    pub fn take(&mut self, outcome: Outcome, excess: &mut u64, now_ms: u64) {
        let (asked_ms, want) = self.asked.take().unwrap_or((now_ms, 0));
        match outcome {
            Outcome::Granted(grant) => {
                let drained = grant.tokens.min(*excess);
                *excess -= drained;
                self.tokens = self.tokens(now_ms) + grant.tokens - drained;
                self.until_ms = now_ms + LEASE_MS;
                self.askers = grant.askers;
                self.alone = None;
                let pause_ms = if grant.tokens >= want {
                    PAUSES_MS.0
                } else {
                    u64::from(grant.after_ms).clamp(PAUSES_MS.0, PAUSES_MS.1)
                };
                self.next_ms = now_ms + pause_ms;
            }
            Outcome::Away => {
                self.next_ms = now_ms + AWAY_MS;
                self.alone = self.alone.or(Some(self.since(asked_ms)));
            }
        }
        self.news.notify_waiters();
    }
}

/// Bytes of the wishes of a node.
pub(crate) fn encode_wishes(node: u64, wishes: &[Wish]) -> Bytes {
    let mut out = BytesMut::with_capacity(9 + wishes.len() * WISH_LEN);
    out.put_u8(VERSION);
    out.put_u64_le(node);
    for wish in wishes {
        out.put_slice(&wish.id);
        out.put_u64_le(wish.rate);
        out.put_u64_le(wish.want);
    }
    out.freeze()
}

/// The wishes of a node; none if they are not understood.
pub(crate) fn decode_wishes(mut bytes: Bytes) -> Option<(u64, Vec<Wish>)> {
    let version = bytes.try_get_u8().ok()?;
    let node = bytes.try_get_u64_le().ok()?;
    let is_whole = bytes.len().is_multiple_of(WISH_LEN) && bytes.len() <= WISHES_MAX * WISH_LEN;
    if version != VERSION || !is_whole {
        return None;
    }
    let mut wishes = Vec::with_capacity(bytes.len() / WISH_LEN);
    while bytes.has_remaining() {
        let mut id = KeyId::default();
        bytes.try_copy_to_slice(&mut id).ok()?;
        let rate = bytes.try_get_u64_le().ok()?;
        let want = bytes.try_get_u64_le().ok()?;
        wishes.push(Wish { id, rate, want });
    }
    Some((node, wishes))
}

/// Bytes of answers, in the order of the wishes.
pub(crate) fn encode_grants(grants: &[Grant]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + grants.len() * GRANT_LEN);
    out.put_u8(VERSION);
    for grant in grants {
        out.put_u64_le(grant.tokens);
        out.put_u32_le(grant.askers);
        out.put_u32_le(grant.after_ms);
    }
    out.freeze()
}

/// The answers to so many wishes; none if they are not understood.
pub(crate) fn decode_grants(mut bytes: Bytes, count: usize) -> Option<Vec<Grant>> {
    let version = bytes.try_get_u8().ok()?;
    if version != VERSION || bytes.len() != count * GRANT_LEN {
        return None;
    }
    let mut grants = Vec::with_capacity(count);
    for _ in 0..count {
        grants.push(Grant {
            tokens: bytes.try_get_u64_le().ok()?,
            askers: bytes.try_get_u32_le().ok()?,
            after_ms: bytes.try_get_u32_le().ok()?,
        });
    }
    Some(grants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(rate: u64, want: u64) -> Wish {
        Wish {
            id: key_id(b"zone", b"key"),
            rate,
            want,
        }
    }

    /// Tokens that nodes get in some seconds which ask every so many milliseconds.
    fn granted(rate: u64, seconds: u64, nodes: &[(u64, u64)]) -> Vec<u64> {
        let mut pools = Pools::default();
        let mut sums = vec![0; nodes.len()];
        for now_ms in 0..seconds * 1000 {
            for (node, (every_ms, want)) in nodes.iter().enumerate() {
                if now_ms % every_ms == 0 {
                    let grant = pools.grant(node as u64, &wish(rate, *want), now_ms);
                    assert_eq!(grant.tokens % REQUEST, 0);
                    sums[node] += grant.tokens;
                }
            }
        }
        sums
    }

    #[test]
    fn nodes_get_the_rate_together_and_no_more() {
        for (rate, nodes) in [
            (4_000, vec![(100, 1_000)]),
            (4_000, vec![(100, 1_000), (70, 1_000), (30, 9_000)]),
            (1_000_000, vec![(100, 200_000)]),
            (
                1_000_000,
                vec![(100, 200_000), (90, 200_000), (100, 10_000)],
            ),
            (500, vec![(5, 1_000)]),
            (17, vec![(5, 1_000), (7, 1_000)]),
        ] {
            let sum: u64 = granted(rate, 60, &nodes).iter().sum();
            assert!(sum <= rate * 60 + pool_max(rate), "{rate}: {sum}");
            assert!(sum + 2 * REQUEST >= rate * 60 * 9 / 10, "{rate}: {sum}");
        }
    }

    #[test]
    fn nodes_that_ask_for_much_have_equal_parts_and_those_for_little_that() {
        let sums = granted(300_000, 20, &[(103, 90_000), (97, 90_000), (100, 2_000)]);
        assert!(sums[0].abs_diff(sums[1]) < 600_000, "{sums:?}");
        assert!((390_000..=400_000).contains(&sums[2]), "{sums:?}");
        assert!(sums.iter().sum::<u64>() > 300_000 * 19, "{sums:?}");
    }

    #[test]
    fn pools_are_bounded_and_those_that_are_asked_stay() {
        let mut pools = Pools::default();
        let own = wish(10_000, 10_000);
        assert_eq!(pools.grant(1, &own, 0).tokens, 2_000);
        for number in 0..3 * POOLS_MAX as u64 {
            pools.grant(
                1,
                &Wish {
                    id: key_id(b"z", &number.to_le_bytes()),
                    ..own
                },
                0,
            );
            if number % 1_000 == 0 {
                // It is empty, and is not made anew.
                let grant = pools.grant(1, &own, 0);
                assert_eq!(grant.tokens, 0);
            }
        }
        assert!(pools.now.len() + pools.before.len() <= 2 * POOLS_MAX);
    }

    #[test]
    fn tokens_end_with_their_lease_but_for_what_the_bucket_owes() {
        let mut held = Held::default();
        let mut excess = 2_500;
        assert!(held.may_ask(0));
        assert_eq!(held.ask(excess, 1_000_000, 0), 4_000);
        assert!(!held.may_ask(50));
        let grant = |tokens| {
            Outcome::Granted(Grant {
                tokens,
                askers: 2,
                after_ms: 40,
            })
        };
        held.take(grant(4_000), &mut excess, 10);
        assert_eq!((excess, held.tokens(10), held.askers()), (0, 1_500, 2));
        assert_eq!((held.tokens(110), held.tokens(111)), (1_500, 0));
        held.spend(1_000, 20);
        assert_eq!(held.tokens(20), 500);
        // There is more than was asked for, so it may ask again soon; else when there is more.
        assert!(held.may_ask(20));
        held.ask(0, 1_000_000, 20);
        held.take(grant(0), &mut excess, 30);
        assert!(!held.may_ask(69) && held.may_ask(70));
        assert!(held.awaited(50).is_none() && held.awaited(70).is_some());
    }

    #[test]
    fn who_hears_nothing_is_alone_from_its_question_on() {
        let mut held = Held::default();
        let mut excess = 0;
        held.ask(0, 1_000, 400);
        // It was never granted anything.
        assert_eq!(
            (held.alone_since(500), held.alone_since(501)),
            (None, Some(0))
        );
        held.take(Outcome::Granted(Grant::default()), &mut excess, 450);
        held.ask(0, 1_000, 500);
        assert_eq!(held.alone_since(600), None);
        assert_eq!(held.alone_since(601), Some(500));
        assert!(held.awaited(550).is_some() && held.awaited(601).is_none());
        held.take(Outcome::Away, &mut excess, 601);
        assert_eq!(held.alone_since(5_000), Some(500));
        assert!(!held.may_ask(1_600) && held.may_ask(1_601));
        held.ask(0, 1_000, 1_601);
        held.take(Outcome::Away, &mut excess, 1_700);
        assert_eq!(held.alone_since(1_700), Some(500));
        assert!(held.awaited(2_700).is_none());
        held.ask(0, 1_000, 2_701);
        held.take(Outcome::Granted(Grant::default()), &mut excess, 2_702);
        assert_eq!(held.alone_since(2_702), None);
    }

    #[test]
    fn a_node_asks_for_what_it_has_spent_and_a_little_more() {
        let mut held = Held::default();
        let mut excess = 0;
        let mut wanted = Vec::new();
        for round in 0..40 {
            let now_ms = round * LEASE_MS;
            let want = held.ask(excess, 100_000, now_ms);
            wanted.push(want);
            let grant = Grant {
                tokens: want,
                askers: 1,
                after_ms: 0,
            };
            held.take(Outcome::Granted(grant), &mut excess, now_ms);
            held.spend(want, now_ms + 50);
        }
        assert_eq!(wanted[..2], [1_000, 2_000]);
        // No more than the rate of a lease.
        assert_eq!(wanted.last(), Some(&10_000));
        assert!(wanted.is_sorted());
        held.ask(0, 100_000, 9_000);
        held.take(Outcome::Granted(Grant::default()), &mut excess, 9_000);
        assert!(held.is_idle(0) && !held.is_idle(1));
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let wishes = [wish(4_000, 1_000), wish(1, u64::MAX)];
        let bytes = encode_wishes(7, &wishes);
        assert_eq!(decode_wishes(bytes.clone()), Some((7, wishes.to_vec())));
        let grants = [
            Grant {
                tokens: 1,
                askers: 2,
                after_ms: 3,
            },
            Grant::default(),
        ];
        let answer = encode_grants(&grants);
        assert_eq!(decode_grants(answer.clone(), 2), Some(grants.to_vec()));
        assert_eq!(decode_grants(answer.clone(), 1), None);
        for len in 0..bytes.len() {
            let cut = decode_wishes(bytes.slice(..len));
            assert!(cut.is_none_or(|(_, cut)| cut.len() < 2), "{len}");
        }
        for len in 0..answer.len() {
            assert_eq!(decode_grants(answer.slice(..len), 2), None, "{len}");
        }
        let many = vec![wish(1, 1); WISHES_MAX + 1];
        assert_eq!(decode_wishes(encode_wishes(7, &many)), None);
    }
}
