//! Owners: nodes that are asked in place of the origin, and answer from what they have, by a fill
//! that runs, or by one of their own.
//!
//! A question is on its way for any time, and so is its answer; any other node may be taken for the
//! owner, as views are advice. Positions are judged as nodes judge them.

use std::rc::Rc;

use bytes::Bytes;
use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Judged, Subject};
use millpond_fleet::view::View;

use crate::node::{Fill, Live, Source, Stored, ZONE};
use crate::world::{Flaw, NODES, World};

/// A question to an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    owner: usize,
    /// The position that the owner must have come to.
    wanted: Position,
    told: Option<Told>,
}

/// An owner's answer.
#[derive(Clone, Copy, Debug)]
struct Told {
    position: Position,
    /// Time at which the origin was asked for it.
    asked_ms: u64,
}

impl World {
    /// A fill of a key that is asked of another node, if that may be.
    pub(crate) fn ask_owner(&mut self, index: usize, text: &Bytes) -> Option<Source> {
        let owner = (index + self.dice.usize(1..NODES)) % NODES;
        let (live, now) = (self.nodes[index].live.as_ref()?, self.now());
        let book = &live.zone.book;
        let wanted = if self.flaw == Flaw::AsksForWhatItRemoved {
            let noted = book.position();
            noted.filter(|_| book.lag.is_up_to_date(now))?
        } else {
            book.position_to_ask(text, now)?
        };
        Some(Source::Peer(Question {
            owner,
            wanted,
            told: None,
        }))
    }

    /// A fill goes on whose owner was asked.
    pub(crate) fn advance_question(
        &mut self,
        index: usize,
        fill: &mut Fill,
        question: Question,
    ) -> Option<Stored> {
        let now = self.now();
        let told = match question.told {
            Some(told) => told,
            None => {
                let told = self.answer(question.owner, (fill.key, question.wanted));
                // Who waits for too long asks the origin.
                if told.is_some() || self.dice.u32(..3) > 0 {
                    fill.source = Source::Peer(Question { told, ..question });
                } else {
                    (fill.source, fill.asked_ms) = (Source::Origin, now);
                }
                return None;
            }
        };
        if !told.position.covers(&question.wanted) {
            (fill.source, fill.asked_ms) = (Source::Origin, now);
            return None;
        }
        fill.asked_ms = told.asked_ms;
        self.fetched += 1;
        Some(self.stored(index, fill))
    }

    /// The answer of an owner; none while it has less of the log than who asks, or is away.
    fn answer(&mut self, owner: usize, (key, wanted): (u8, Position)) -> Option<Told> {
        let live = self.nodes[owner].live.as_ref().filter(|_| self.runs(owner));
        let position = Self::position_of(live?)?;
        if !position.covers(&wanted) && self.flaw != Flaw::AnswersAtOnce {
            return None;
        }
        // It may go on before it looks up.
        for _ in 0..self.dice.usize(..3) {
            self.feed(owner);
        }
        let asked_ms = self.look_up(owner, key)?;
        let position = match self.flaw {
            Flaw::AnswersAtOnce => wanted,
            _ => position,
        };
        Some(Told { position, asked_ms })
    }

    /// The position that a node has come to, as it knows that.
    fn position_of(live: &Live) -> Option<Position> {
        let view = View {
            log: live.follower.log(),
            taken: live.follower.settled(),
            ..View::default()
        };
        view.position(ZONE)
    }

    /// The time at which the origin was asked for what an owner answers with.
    fn look_up(&mut self, owner: usize, key: u8) -> Option<u64> {
        let (node, now) = (&self.nodes[owner], self.now());
        let live = node.live.as_ref()?;
        let book = &live.zone.book;
        let disk = Rc::clone(&live.zone.disk);
        let text = crate::log::key_text(key);
        let found = disk.borrow().entries.get(&key).cloned();
        if let Some(stored) = found
            && live.zone.is_fresh(&stored)
            && self.is_trusted(node, live)
        {
            return Some(stored.asked_ms);
        }
        let may_join = |fill: &&Fill| {
            let subject = Subject {
                text: &text,
                tags: &[],
                serial: fill.serial,
            };
            let is_of_origin = matches!(fill.source, Source::Origin);
            fill.key == key && is_of_origin && book.judge(&subject) == Judged::Untouched
        };
        let running = disk.borrow().fills.iter().find(may_join).cloned();
        if let Some(fill) = running {
            return Some(fill.asked_ms);
        }
        disk.borrow_mut().fills.push(Fill {
            key,
            asked_ms: now,
            serial: book.newest(),
            source: Source::Origin,
        });
        Some(now)
    }
}
