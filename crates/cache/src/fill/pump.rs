//! The body of a fill: from the origin into the store, at the origin's speed, for whoever reads.
//!
//! The pump is a task that belongs to no client. It stops reading the origin while the disk is
//! behind, unless the disk stands still, finishes the entry when the body is whole, and gives it up
//! when it is not and the rest cannot be had either (`again.rs`). If the store takes no more
//! half-way (full, failing, stalled), all who read along still get the rest ([`Rest`]), at the
//! speed of those who keep up.
//!
//! Invariants:
//! 1. A body that did not end well, or ends before its announced length, is never finished.
//! 2. The view's bytes and the rest's, one after the other, are the body: none is missing, none
//!    comes twice.
//! 3. Memory is bounded: the store's write window, or the rest's (`crate::window`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Entry, NotStored, View, Writer};

use super::again::Again;
use super::rest::{Rest, Seat, Source};
use super::{FillEnd, Lead, Streaming};
use crate::clock;
use crate::exchange::{Clients, Exchange, FetchEnd, Fetched, Outcome};
use crate::head::StoredHead;
use crate::reason::Reason;

/// Pieces that are read at once before the answer is handed on: a small body is then stored and
/// sent whole.
const PRIME_PIECES: usize = 8;

/// A disk that has written nothing for so long is not waited for (arbitrary: what a disk that works
/// takes for its slowest request).
const STALLED: Duration = Duration::from_secs(1);

/// Reads a running fill.
#[derive(Debug)]
pub struct Reader {
    /// The body as far as the store has it.
    pub view: View,
    /// Seat at the rest, which comes after the store has refused.
    pub seat: Seat,
}

impl Reader {
    /// A reader from the first byte on; `None` where that is too late.
    pub fn new(view: &View, rest: &Arc<Rest>) -> Option<Self> {
        Some(Reader {
            seat: rest.sit()?,
            view: view.clone(),
        })
    }

    /// A reader of what a writer is given, and no more.
    pub fn of_writer(writer: &Writer) -> Self {
        Reader {
            view: writer.view(),
            seat: Rest::of_nothing(Err(FetchEnd::Truncated)).first_seat(),
        }
    }
}

/// A fill in progress.
pub struct Pump<F> {
    fetched: F,
    /// Length of the whole body, when the origin announced it.
    length: Option<u64>,
    writer: Writer,
    held: Option<Held>,
}

/// A whole body that nobody but the leader's client gets.
pub struct Alone {
    length: Option<u64>,
    view: View,
}

impl Alone {
    /// Reads an entry like a fill that runs, with this head.
    pub fn read(self, head: StoredHead) -> (Arc<Streaming>, Reader) {
        let rest = Rest::of_nothing(Ok(()));
        let reader = Reader {
            view: self.view.clone(),
            seat: rest.first_seat(),
        };
        let streaming = Streaming {
            head,
            length: self.length,
            is_delimited: true,
            view: self.view,
            rest,
            ahead: OnceLock::new(),
        };
        (Arc::new(streaming), reader)
    }
}

/// Waits until the disk has caught up with a writer; false if it stands still.
pub(crate) async fn has_room(writer: &Writer) -> bool {
    // The usual case needs no clock.
    while !writer.has_room() {
        let backlog = writer.backlog();
        let deadline = clock::now().checked_add(STALLED);
        if clock::within(deadline, writer.room()).await.is_some() {
            return true;
        }
        // Each round, the disk has written some of it.
        if writer.backlog() >= backlog {
            return false;
        }
    }
    true
}

/// Result of the round that does not wait, for the one that does.
enum Held {
    /// The store refused, and does not have these bytes.
    Refused(Bytes, Reason),
    /// The body broke off.
    Failed(FetchEnd),
}

/// Progress of the round that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primed {
    /// The whole body is written.
    Whole,
    /// The body broke off already; the pump must run to say so.
    Broken,
    /// The pump must run.
    More,
}

impl<F: Fetched> Pump<F> {
    /// A pump of what was fetched.
    pub fn new(fetched: F, writer: Writer) -> Self {
        Pump {
            length: fetched.length(),
            fetched,
            writer,
            held: None,
        }
    }

    /// Length of the body, when the origin announced it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Streaming state for those who join, once the head is known.
    pub fn streaming(&self, head: StoredHead, rest: &Arc<Rest>) -> Arc<Streaming> {
        Arc::new(Streaming {
            head,
            length: self.length,
            is_delimited: self.fetched.is_delimited(),
            view: self.writer.view(),
            rest: Arc::clone(rest),
            ahead: OnceLock::new(),
        })
    }

    /// The leader's reader; only before the pump runs.
    pub fn reader(&self, rest: &Arc<Rest>) -> Reader {
        Reader {
            view: self.writer.view(),
            seat: rest.first_seat(),
        }
    }

    /// The body for the leader's client alone; only after [`Primed::Whole`].
    pub fn alone(&self) -> Alone {
        Alone {
            length: self.length,
            view: self.writer.view(),
        }
    }

    /// Takes what the origin has sent already, without waiting.
    pub fn prime(&mut self) -> Primed {
        for _ in 0..PRIME_PIECES {
            match self.fetched.next_ready() {
                None => return Primed::More,
                Some(None) if self.is_short() => {
                    self.held = Some(Held::Failed(FetchEnd::Truncated));
                    return Primed::Broken;
                }
                Some(None) => return Primed::Whole,
                Some(Some(Err(end))) => {
                    self.held = Some(Held::Failed(end));
                    return Primed::Broken;
                }
                Some(Some(Ok(bytes))) => {
                    if let Err((rest, why)) = self.append(bytes) {
                        self.held = Some(Held::Refused(rest, why));
                        return Primed::More;
                    }
                }
            }
        }
        Primed::More
    }

    /// Makes the written body an entry; only after [`Primed::Whole`].
    pub fn finish(self, lead: &Lead) -> Result<Entry, NotStored> {
        let finished = self.writer.finish();
        note_outcome(&self.fetched, lead, finished.is_ok());
        finished
    }

    /// Ends the written body without making it an entry; only after [`Primed::Whole`].
    pub fn finish_unseen(self) {
        self.writer.finish_unseen();
    }

    /// Runs the fill to its end, and says what that is, and why nothing is stored, before who waits
    /// for the lead hears of it. A body that breaks off goes on with what `again` brings.
    pub async fn run<B: Exchange<Fetched = F>>(
        mut self,
        (source, lead): (Source, Lead),
        mut again: Option<Again<B>>,
        told: impl FnOnce(FillEnd, Option<Reason>),
    ) {
        let mut broken = match self.held.take() {
            Some(Held::Refused(rest, why)) => {
                told(FillEnd::NotStorable, Some(why));
                return self.run_unstored(rest, (source, lead)).await;
            }
            Some(Held::Failed(end)) => Some(end),
            None => None,
        };
        loop {
            if let Some(end) = broken
                && !self.go_on(again.as_mut(), &lead, end).await
            {
                return self.fail(end, source, (lead, told));
            }
            if !has_room(&self.writer).await {
                told(FillEnd::NotStorable, Some(Reason::DiskBusy));
                return self.run_unstored(Bytes::new(), (source, lead)).await;
            }
            broken = match self.fetched.next().await {
                Some(Ok(bytes)) => {
                    lead.moved();
                    if let Err((rest, why)) = self.append(bytes) {
                        told(FillEnd::NotStorable, Some(why));
                        return self.run_unstored(rest, (source, lead)).await;
                    }
                    None
                }
                Some(Err(end)) => Some(end),
                None if self.is_short() => Some(FetchEnd::Truncated),
                None => return self.end(source, (lead, told)),
            };
        }
    }

    /// Goes on with an answer that has the rest; false if there is none.
    async fn go_on<B: Exchange<Fetched = F>>(
        &mut self,
        again: Option<&mut Again<B>>,
        lead: &Lead,
        why: FetchEnd,
    ) -> bool {
        let Some(again) = again else {
            return false;
        };
        let Some(rest) = again.rest(self.writer.view().len(), why).await else {
            return false;
        };
        note_outcome(&self.fetched, lead, false);
        self.fetched = rest;
        true
    }

    /// The body is whole.
    fn end(self, source: Source, (lead, told): (Lead, impl FnOnce(FillEnd, Option<Reason>))) {
        if !lead.may_store() {
            self.writer.finish_unseen();
            source.end(Ok(()));
            note_outcome(&self.fetched, &lead, false);
            told(FillEnd::Abandoned, None);
            return lead.end(FillEnd::Abandoned);
        }
        let (end, why) = match self.writer.finish() {
            Ok(_) => (FillEnd::Complete, None),
            Err(why) => (FillEnd::NotStorable, Some(why.into())),
        };
        // Stored or not, all of it is in the view.
        source.end(Ok(()));
        note_outcome(&self.fetched, &lead, end == FillEnd::Complete);
        told(end, why);
        lead.end(end);
    }

    /// Hands bytes to the store; an error has those that it did not take, and why.
    fn append(&mut self, bytes: Bytes) -> Result<(), (Bytes, Reason)> {
        let before = self.writer.view().len();
        let Err(why) = self.writer.append(bytes.clone()) else {
            return Ok(());
        };
        // INVARIANT 2: what could not be given a place may be in the view all the same.
        let taken = self.writer.view().len().saturating_sub(before);
        let taken = usize::try_from(taken).unwrap_or(bytes.len());
        Err((bytes.slice(taken.min(bytes.len())..), why.into()))
    }

    /// True when fewer bytes have come than the origin announced.
    fn is_short(&self) -> bool {
        self.length
            .is_some_and(|length| self.writer.view().len() < length)
    }

    /// The body broke off.
    fn fail(
        self,
        end: FetchEnd,
        source: Source,
        (lead, told): (Lead, impl FnOnce(FillEnd, Option<Reason>)),
    ) {
        source.end(Err(end));
        drop(self.writer);
        told(FillEnd::Broken(end), Some(Reason::Truncated));
        lead.end(FillEnd::Broken(end));
    }

    /// The store refused: who reads along gets the rest, and nobody else.
    async fn run_unstored(self, first: Bytes, (rest, lead): (Source, Lead)) {
        let Pump {
            mut fetched,
            length,
            writer,
            ..
        } = self;
        let mut sent = writer.view().len();
        drop(writer);
        rest.begin(sent);
        lead.end(FillEnd::NotStorable);
        let mut piece = Some(Ok(first));
        while let Some(next) = piece {
            let bytes = match next {
                Ok(bytes) => bytes,
                Err(end) => return rest.end(Err(end)),
            };
            sent = sent.saturating_add(bytes.len() as u64);
            rest.push(bytes);
            if !rest.room().await {
                return;
            }
            piece = fetched.next().await;
        }
        rest.end(match length {
            Some(length) if sent < length => Err(FetchEnd::Truncated),
            _ => Ok(()),
        });
    }
}

/// Notes at an answer who got it, and if it is stored.
fn note_outcome<F: Fetched>(fetched: &F, lead: &Lead, is_stored: bool) {
    fetched.note_outcome(&Outcome {
        entry: is_stored.then_some(*lead.key()),
        clients: Clients::Besides(lead.followers()),
    });
}
