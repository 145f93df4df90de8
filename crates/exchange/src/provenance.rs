//! Places that the bytes of an answer come from, and how many came from each.
//!
//! Most answers come from one place, which is known with their head ([`Provenance`]). Where a body
//! is put together of what was held and what is fetched, or a page of several answers, whoever
//! hands out bytes enters them in a [`Tally`], and what the client got of them is divided when the
//! answer is over.
//!
//! A byte is the cache's if it was there when the request came to it, and the origin's if the
//! request asked for it, or waited for who did. A fill that is read along with has so many bytes of
//! the cache as had arrived when it was joined.
//!
//! 1. What is told of an answer is never more than what its client got of its body.
//! 2. A body that nothing changes on its way is divided to the byte, also if it is cut short; one
//!    that is compressed, searched or framed in chunks, in proportion.
//!
//! What this server makes itself (files, error pages, texts around includes) is neither's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_wire::header::Fields;

/// Stretches that may not have been sent when an answer breaks off: more than pieces that wait for
/// a socket.
const RECENT_MAX: usize = 64;

/// The place where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// This server.
    Own,
    /// A stored answer.
    Cache,
    /// An upstream.
    Origin,
}

/// The place where the body of an answer comes from.
#[derive(Clone, Debug)]
pub enum Provenance {
    /// One place.
    One(Whence),
    /// Several; whoever hands bytes out enters them here.
    Several(Rc<Tally>),
}

impl Default for Provenance {
    fn default() -> Self {
        Provenance::One(Whence::Own)
    }
}

/// Shares of the bytes that a client got, by where they come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The cache's.
    pub cache: u64,
    /// The origin's.
    pub origin: u64,
}

impl Provenance {
    /// Divides what a client got of the body.
    pub fn shares(&self, sent: u64) -> Shares {
        match self {
            Provenance::One(Whence::Own) => Shares::default(),
            Provenance::One(Whence::Cache) => Shares {
                cache: sent,
                origin: 0,
            },
            Provenance::One(Whence::Origin) => Shares {
                cache: 0,
                origin: sent,
            },
            Provenance::Several(tally) => tally.shares(sent),
        }
    }

    /// The bytes do not reach the client as they are handed out.
    pub fn is_changed(&self) {
        if let Provenance::Several(tally) = self {
            tally.is_changed.set(true);
        }
    }

    /// Has a body entered in a tally as it is read.
    pub fn enter(&self, body: Body, tally: &Rc<Tally>) -> Body {
        match self {
            Provenance::One(_) if body.is_empty() => body,
            Provenance::One(whence) => Body::stream(Entered {
                body,
                whence: *whence,
                tally: Rc::clone(tally),
            }),
            Provenance::Several(own) => {
                if !Rc::ptr_eq(own, tally) {
                    *own.page.borrow_mut() = Some(Rc::clone(tally));
                }
                body
            }
        }
    }
}

/// The bytes of a body by where they came from, as they are handed out.
#[derive(Debug, Default)]
pub struct Tally {
    own: Cell<u64>,
    cache: Cell<u64>,
    origin: Cell<u64>,
    /// The last stretches.
    recent: RefCell<VecDeque<(Whence, u64)>>,
    is_changed: Cell<bool>,
    /// That of the page that the body is a part of.
    page: RefCell<Option<Rc<Tally>>>,
}

impl Tally {
    /// Enters bytes that are handed out next.
    pub fn add(&self, whence: Whence, len: u64) {
        if len == 0 {
            return;
        }
        let sum = self.sum(whence);
        sum.set(sum.get() + len);
        let mut recent = self.recent.borrow_mut();
        match recent.back_mut() {
            Some((last, sum)) if *last == whence => *sum += len,
            _ => recent.push_back((whence, len)),
        }
        if recent.len() > RECENT_MAX {
            recent.pop_front();
        }
        if let Some(page) = &*self.page.borrow() {
            page.add(whence, len);
        }
    }

    fn sum(&self, whence: Whence) -> &Cell<u64> {
        match whence {
            Whence::Own => &self.own,
            Whence::Cache => &self.cache,
            Whence::Origin => &self.origin,
        }
    }

    fn shares(&self, sent: u64) -> Shares {
        let (own, cache, origin) = (self.own.get(), self.cache.get(), self.origin.get());
        let all = own + cache + origin;
        if self.is_changed.get() || sent > all {
            return in_proportion(sent, (own, cache, origin));
        }
        // INVARIANT 2: what was handed out last was not sent.
        let mut shares = Shares { cache, origin };
        let mut unsent = all - sent;
        for (whence, len) in self.recent.borrow().iter().rev() {
            let part = unsent.min(*len);
            unsent -= part;
            match whence {
                Whence::Own => {}
                Whence::Cache => shares.cache -= part,
                Whence::Origin => shares.origin -= part,
            }
        }
        shares
    }
}

/// Divides `sent` as its sources were.
fn in_proportion(sent: u64, (own, cache, origin): (u64, u64, u64)) -> Shares {
    let part = |of: u64, share: u64, all: u64| {
        let part = u128::from(of) * u128::from(share) / u128::from(all.max(1));
        u64::try_from(part).unwrap_or(of)
    };
    let theirs = part(sent, cache + origin, own + cache + origin);
    let cache = part(theirs, cache, cache + origin);
    Shares {
        cache,
        origin: match origin {
            0 => 0,
            _ => theirs - cache,
        },
    }
}

/// A body that is entered in a tally as it is read.
struct Entered {
    body: Body,
    whence: Whence,
    tally: Rc<Tally>,
}

impl BodyStream for Entered {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let polled = self.body.poll_next(cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            self.tally.add(self.whence, piece.len());
        }
        polled
    }

    fn narrow(mut self: Pin<&mut Self>, wanted: Range<u64>) -> bool {
        self.body.narrow(wanted);
        true
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.body.take_trailers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(stretches: &[(Whence, u64)]) -> Tally {
        let tally = Tally::default();
        for (whence, len) in stretches {
            tally.add(*whence, *len);
        }
        tally
    }

    #[test]
    fn what_was_not_sent_is_missing_at_the_end() {
        use Whence::{Cache, Origin, Own};
        let stretches = [(Cache, 10), (Origin, 5), (Origin, 5), (Own, 2), (Cache, 3)];
        for (sent, cache, origin) in [
            (25, 13, 10),
            (22, 10, 10),
            (21, 10, 10),
            (20, 10, 10),
            (15, 10, 5),
            (10, 10, 0),
            (4, 4, 0),
            (0, 0, 0),
        ] {
            let shares = tally(&stretches).shares(sent);
            assert_eq!(shares, Shares { cache, origin }, "{sent}");
        }
    }

    #[test]
    fn a_changed_body_is_divided_in_proportion() {
        use Whence::{Cache, Origin, Own};
        for (stretches, sent, cache, origin) in [
            (&[(Cache, 75), (Origin, 25)][..], 20, 15, 5),
            (&[(Cache, 3)], 1_000, 1_000, 0),
            (&[(Origin, 3)], 7, 0, 7),
            (&[(Own, 5)], 7, 0, 0),
            (&[], 7, 0, 0),
            (&[(Own, 50), (Cache, 50)], 10, 5, 0),
        ] {
            let tally = tally(stretches);
            tally.is_changed.set(true);
            assert_eq!(
                tally.shares(sent),
                Shares { cache, origin },
                "{stretches:?}"
            );
        }
    }

    #[test]
    fn parts_are_entered_in_their_page() {
        let page = Rc::new(Tally::default());
        let part = Rc::new(Tally::default());
        let whole = Provenance::Several(Rc::clone(&part));
        whole.enter(Body::Empty, &page);
        part.add(Whence::Origin, 4);
        page.add(Whence::Cache, 4);
        let shares = Shares {
            cache: 4,
            origin: 4,
        };
        assert_eq!(page.shares(8), shares);
        assert_eq!(whole.shares(4).origin, 4);
    }
}
