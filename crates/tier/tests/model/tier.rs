//! The second tier: heads of copies as objects that come late, get lost, are put back to older ones
//! and are garbled; and the nodes that write and read them.
//!
//! Heads are those of the tier, encoded and decoded; a copy has the truth beside it, the time at
//! which its origin was asked, of which no node knows.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use millpond_cache::purge::position::Position;
use millpond_tier::head::{Body, Kind, TierHead, sum};
use millpond_tier::judge;

use crate::node::{Fill, Source, Stored};
use crate::world::{Flaw, World};

/// Offers and objects on their way, at most: else none would get there while it matters.
const WAITING_MAX: usize = 12;

/// An object, with the time at which the origin was asked for what it has.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    pub(crate) asked_ms: u64,
}

/// A head that was read.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    pub(crate) head: TierHead,
    pub(crate) asked_ms: u64,
}

/// An entry that is worth a copy.
#[derive(Debug)]
pub(crate) struct Offer {
    node: usize,
    run: u8,
    key: u8,
    stored: Stored,
}

#[derive(Debug, Default)]
pub(crate) struct Tier {
    objects: BTreeMap<u8, Object>,
    /// Objects that others have replaced.
    past: Vec<(u8, Object)>,
    /// Objects on their way.
    coming: Vec<(u8, Object)>,
    pub(crate) offers: Vec<Offer>,
    /// True if it answers nobody.
    is_gone: bool,
}

impl Tier {
    fn read(&self, key: u8) -> Option<Copied> {
        let object = self.objects.get(&key).filter(|_| !self.is_gone)?;
        // What is damaged is no head.
        let head = TierHead::decode(&object.bytes)?;
        Some(Copied {
            head,
            asked_ms: object.asked_ms,
        })
    }

    /// An object arrives, in any order.
    fn land(&mut self, dice: &mut Rng) {
        if self.coming.is_empty() {
            return;
        }
        let (key, object) = self.coming.swap_remove(dice.usize(..self.coming.len()));
        if let Some(before) = self.objects.insert(key, object) {
            self.past.push((key, before));
        }
    }

    fn harm(&mut self, dice: &mut Rng, key: u8) {
        match dice.u32(..5) {
            0 => drop(self.objects.remove(&key)),
            1 => {
                if let Some(object) = self.objects.get_mut(&key) {
                    let mut bytes = object.bytes.to_vec();
                    let at = dice.usize(..bytes.len());
                    bytes[at] ^= 1 << dice.u32(..8);
                    object.bytes = bytes.into();
                }
            }
            2 => {
                if !self.past.is_empty() {
                    let (key, object) = self.past[dice.usize(..self.past.len())].clone();
                    self.objects.insert(key, object);
                }
            }
            3 => self.is_gone = dice.u32(..3) == 0,
            _ => self.coming.clear(),
        }
    }
}

fn head_of(stored: &Stored, position: Position) -> TierHead {
    let mut own = stored.head.clone();
    own.serial = 0;
    let sums = vec![sum(&stored.asked_ms.to_le_bytes())];
    TierHead {
        position,
        kind: Kind::Entry(Body::of(&own, 1, sums)),
        stored: own,
    }
}

impl World {
    /// Something happens between a node and the tier.
    pub(crate) fn tend_tier(&mut self, index: usize) {
        match self.dice.u32(..60) {
            0..28 => self.offer(index),
            28..42 => self.write(),
            42..56 => self.tier.land(&mut self.dice),
            56..58 => self.sweep(index),
            _ => {
                let key = self.key();
                self.tier.harm(&mut self.dice, key);
            }
        }
    }

    fn sweep(&mut self, index: usize) {
        if self.runs(index)
            && let Some(live) = &self.nodes[index].live
        {
            live.zone.sweep();
        }
    }

    /// An entry was served so often that it is worth a copy.
    fn offer(&mut self, index: usize) {
        let key = self.key();
        let node = &self.nodes[index];
        let Some(live) = node.live.as_ref().filter(|_| self.runs(index)) else {
            return;
        };
        let disk = node.disk.borrow();
        let found = disk.entries.get(&key).filter(|it| live.zone.is_fresh(it));
        if let Some(stored) = found.filter(|_| self.tier.offers.len() < WAITING_MAX) {
            self.tier.offers.push(Offer {
                node: index,
                run: live.run,
                key,
                stored: stored.clone(),
            });
        }
    }

    /// A node writes a copy of what was offered, unless the entry has gone or the tier has one.
    fn write(&mut self) {
        if self.tier.offers.is_empty() {
            return;
        }
        let at = self.dice.usize(..self.tier.offers.len());
        let offer = self.tier.offers.swap_remove(at);
        let node = &self.nodes[offer.node];
        let is_same = |run| node.live.as_ref().is_some_and(|live| live.run == run);
        if !is_same(offer.run) || !self.runs(offer.node) {
            return;
        }
        let Some(own) = self.source(&offer) else {
            return;
        };
        let Some(live) = &self.nodes[offer.node].live else {
            return;
        };
        let there = self.tier.read(offer.key);
        let position = live.zone.book.position();
        let is_as_good = there
            .zip(position)
            .is_some_and(|(there, position)| live.known(position).is_as_good(&there.head, &own));
        if !is_as_good && self.tier.coming.len() < WAITING_MAX {
            let object = Object {
                bytes: own.encode(),
                asked_ms: offer.stored.asked_ms,
            };
            self.tier.coming.push((offer.key, object));
        }
    }

    /// The head of a copy. Before and after the search for the entry the node may take purges, and
    /// forget them.
    fn source(&mut self, offer: &Offer) -> Option<TierHead> {
        let (index, flaw) = (offer.node, self.flaw);
        let zone = self.nodes[index].live.as_ref()?.zone.clone();
        let subject = offer.stored.head.subject();
        let disk = std::rc::Rc::clone(&zone.disk);
        let find = || {
            let disk = disk.borrow();
            let found = disk.entries.get(&offer.key);
            found.filter(|it| it.head == offer.stored.head).map(|_| ())
        };
        let mut meanwhile = || {
            for _ in 0..self.dice.usize(..4) {
                self.feed(index);
            }
            if self.dice.bool() {
                zone.sweep();
            }
        };
        let position = if flaw == Flaw::AsksForThePositionLast {
            find()?;
            meanwhile();
            zone.book.position_untouched(&subject)?
        } else {
            let found = judge::source(&zone.book, &subject, || {
                meanwhile();
                let found = find();
                meanwhile();
                found
            });
            found?.0
        };
        Some(head_of(&offer.stored, position))
    }

    /// A fill of a key that is asked of the tier, if that may be.
    pub(crate) fn ask_tier(&self, index: usize, key: u8) -> Option<Source> {
        let (live, now) = (self.nodes[index].live.as_ref()?, self.now());
        let text = crate::log::key_text(key);
        let mut own = live.zone.book.position_to_ask(&text, now)?;
        if self.flaw == Flaw::AsksWithAnOldPosition {
            own.sequence = 0;
        }
        let is_settled = live.known(own).is_settled();
        is_settled.then_some(Source::Tier(own, None))
    }

    /// A fill goes on: its copy is read, or its origin is asked, or something is to be stored.
    pub(crate) fn advance(&mut self, index: usize, fill: &mut Fill) -> Option<Stored> {
        let now = self.now();
        let live = self.nodes[index].live.as_ref()?;
        let (own, copied) = match &fill.source {
            Source::Origin => return Some(self.stored(index, fill)),
            Source::Peer(question) => {
                let question = *question;
                return self.advance_question(index, fill, question);
            }
            Source::Tier(own, copied) => (*own, copied.clone()),
        };
        let Some(copied) = copied else {
            fill.source = match self.tier.read(fill.key) {
                Some(copied) => Source::Tier(own, Some(Box::new(copied))),
                None => Source::Origin,
            };
            fill.asked_ms = now;
            return None;
        };
        let (stored, position) = (&copied.head.stored, copied.head.position);
        let is_untouched = live.known(own).is_untouched(stored, position);
        if !is_untouched && self.flaw != Flaw::BelievesTheTier {
            (fill.source, fill.asked_ms) = (Source::Origin, now);
            return None;
        }
        let mut head = copied.head.stored;
        head.serial = fill.serial;
        self.copied += 1;
        Some(Stored {
            asked_ms: copied.asked_ms,
            is_fresh: true,
            head,
        })
    }
}
