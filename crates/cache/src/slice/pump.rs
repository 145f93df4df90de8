//! A run: the bytes of neighbouring slices, from the origin into the store.
//!
//! The task that drives a run belongs to no client. It stops reading the origin while the disk is
//! behind, stores each slice when it is whole, and ends with the body, with what others bring, or
//! when nobody reads any more. A slice that the store does not take goes through the run's window
//! to those who read along; then, and before the disk has caught up, the origin waits for them.
//!
//! Invariants:
//! 1. A slice that is not whole is not stored.
//! 2. Whatever way the task ends, also dropped, its run is ended.
//! 3. Memory is bounded: the store's write window, and the run's own (`crate::window`).
//! 4. What is not stored is brought only while somebody reads it, or may be about to.
//! 5. A run is cut only when all that has come of it was read: it is slow, and not its worker.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use millpond_store::{Region, Writer};

use super::answer::{Asked, Judged, judge};
use super::filling::Filling;
use super::generation::{Generation, Tail};
use super::run::{Purpose, Run, RunEnd};
use crate::exchange::{self, Ask, Clients, Exchange, FetchEnd, FetchFailure, Fetched, Outcome};
use crate::fill::pump::has_room;
use crate::reason::Reason;

/// A claimed run, which is ended in whatever way its task ends.
pub(crate) struct Driven {
    generation: Arc<Generation>,
    run: Arc<Run>,
    end: RunEnd,
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.generation.end(&self.run, self.end);
    }
}

impl Driven {
    /// Claims a run for bytes that arrive already; `None` if somebody else brings the first of
    /// them, or they are held.
    pub(crate) fn adopt(
        generation: &Arc<Generation>,
        span: Range<u64>,
        purpose: Purpose,
    ) -> Option<Driven> {
        let run = generation.adopt(span, purpose)?;
        Some(Driven::new(generation, &run))
    }

    fn new(generation: &Arc<Generation>, run: &Arc<Run>) -> Self {
        Driven {
            generation: Arc::clone(generation),
            run: Arc::clone(run),
            end: BROKEN_OFF,
        }
    }
}

/// End of a run that was given up.
const BROKEN_OFF: RunEnd = RunEnd::Failed {
    status: 502,
    cause: None,
};

/// Asks the origin for a claimed run and brings it, and the gap before it, if it leaves one.
pub(crate) fn drive<X: Exchange>(
    mut x: X,
    generation: Arc<Generation>,
    run: Arc<Run>,
) -> impl Future<Output = ()> {
    // INVARIANT 2: the task may be dropped before it begins.
    let mut driven = Driven::new(&generation, &run);
    async move {
        driven.end = match ask(&mut x, &generation, &run).await {
            Ok(fetched) => pump(&x, fetched, &generation, &run).await,
            Err(end) => end,
        };
        drop(driven);
        fill_gap(&mut x, &generation, &run).await;
    }
}

/// Brings a run whose answer is there already, and the gap before it, if it leaves one.
pub(crate) fn adopt<X: Exchange>(
    mut x: X,
    mut driven: Driven,
    fetched: X::Fetched,
) -> impl Future<Output = ()> {
    let (generation, run) = (Arc::clone(&driven.generation), Arc::clone(&driven.run));
    async move {
        driven.end = pump(&x, fetched, &generation, &run).await;
        drop(driven);
        fill_gap(&mut x, &generation, &run).await;
    }
}

/// Fetches the beginning of a slice that was fetched from its middle on, so that the slice is kept.
async fn fill_gap<X: Exchange>(x: &mut X, generation: &Arc<Generation>, run: &Run) {
    let index = generation.set.index_of(run.start);
    let is_deep = run.start > generation.set.span(index).start;
    let Some(tail) = generation.tail(index).filter(|_| is_deep) else {
        return;
    };
    let Some(gap) = generation.claim_gap(&tail) else {
        return;
    };
    let mut driven = Driven::new(generation, &gap);
    driven.end = match ask(x, generation, &gap).await {
        Ok(fetched) => pump(x, fetched, generation, &gap).await,
        Err(end) => end,
    };
    drop(driven);
    generation.drop_tail(index);
}

/// Asks for the run; what is not its bytes ends it.
async fn ask<X: Exchange>(
    x: &mut X,
    generation: &Generation,
    run: &Run,
) -> Result<X::Fetched, RunEnd> {
    if generation.is_retired() {
        return Err(RunEnd::Changed);
    }
    let asked = Asked::From {
        start: run.start,
        end: run.end(),
    };
    let if_range = generation.validator.if_range();
    let size = generation.set.size;
    let ask = Ask {
        purpose: exchange::Purpose::Fill,
        range: Some(asked.field()),
        // Of a version that cannot be named nobody but the origin has more.
        extent: x
            .extents()
            .filter(|_| if_range.is_some())
            .map(|extents| extents.number(size, run.start)),
        if_range,
        missing: Some(generation.text().clone()),
        ..Ask::default()
    };
    let fetched = x.fetch(ask).await.map_err(|failure| RunEnd::Failed {
        status: failure.status(),
        cause: failure.cause(),
    })?;
    match verdict(generation, &fetched, &asked) {
        Answer::Ours { end } => {
            generation.shorten(run, end);
            Ok(fetched)
        }
        Answer::Changed => {
            generation.note_gone();
            generation.retire();
            Err(RunEnd::Changed)
        }
        Answer::Refused => Err(RunEnd::Refused(fetched.status())),
    }
}

/// Meaning of an answer for a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Bytes of the generation, up to here.
    Ours {
        /// Offset of the first byte behind the bytes.
        end: u64,
    },
    /// The origin has another version, or none.
    Changed,
    /// The answer says nothing about the version.
    Refused,
}

pub(crate) fn verdict<F: Fetched>(generation: &Generation, fetched: &F, asked: &Asked) -> Answer {
    match judge(fetched, asked, generation.set.size) {
        Judged::Range { end, total, .. } => {
            let is_ours = total == generation.set.total && generation.validator.names(fetched);
            if is_ours {
                Answer::Ours { end }
            } else {
                Answer::Changed
            }
        }
        Judged::Unusable(_) | Judged::Unmeasured => Answer::Refused,
        Judged::Unsatisfiable { .. } => Answer::Changed,
        // RFC 9110 §13.1.5: the whole comes instead of the range when the validator does not match.
        Judged::Other => match fetched.status() {
            401 | 403 | 407 | 408 | 429 | 500..=599 => Answer::Refused,
            _ => Answer::Changed,
        },
    }
}

/// A slice that arrives, and where it goes.
struct Arriving {
    filling: Arc<Filling>,
    writer: Option<Writer>,
    tail: Option<Arc<Tail>>,
    /// The reason why there is no writer, if the store is why.
    refused: Option<Reason>,
}

/// Fate of a run's bytes.
#[derive(Default)]
struct Fate {
    are_stored: bool,
    /// The reason why some were not.
    refused: Option<Reason>,
}

/// Brings the bytes of a run.
async fn pump<X: Exchange>(
    x: &X,
    mut fetched: X::Fetched,
    generation: &Generation,
    run: &Run,
) -> RunEnd {
    let mut fate = Fate::default();
    let end = {
        let brought = std::pin::pin!(bring(&mut fetched, generation, run, &mut fate));
        heed_wishes(brought, generation, run).await
    };
    fetched.note_outcome(&Outcome {
        entry: fate.are_stored.then_some(*generation.owner()),
        clients: Clients::InAll(run.readers()),
    });
    if let Some(why) = fate.refused {
        generation.note_unstored((why, fetched.status()), x.now());
    }
    end
}

/// Brings the bytes, and cuts the run as readers wish. INVARIANT 5.
async fn heed_wishes(
    mut brought: Pin<&mut impl Future<Output = RunEnd>>,
    generation: &Generation,
    run: &Run,
) -> RunEnd {
    loop {
        tokio::select! {
            biased;
            end = &mut brought => return end,
            () = run.wished() => {}
        }
        tokio::select! {
            biased;
            end = &mut brought => return end,
            // Sockets are looked at before this task's next turn.
            () = tokio::task::yield_now() => generation.cut_as_wished(run),
        }
    }
}

async fn bring<F: Fetched>(
    fetched: &mut F,
    generation: &Generation,
    run: &Run,
    fate: &mut Fate,
) -> RunEnd {
    let mut at = run.start;
    let mut rest = Bytes::new();
    run.answered();
    while at < run.end() {
        if run.purpose == Purpose::Readers && at > run.start && generation.is_deserted() {
            return RunEnd::Done;
        }
        let mut arriving = Arriving::begin(generation, run, at, fate.refused);
        let end = arriving.filling.span().end.min(run.end());
        while at < end {
            if rest.is_empty() {
                if !arriving.room(generation, run).await {
                    fate.refused = arriving.refused.or(fate.refused);
                    return RunEnd::Done;
                }
                rest = match fetched.next().await {
                    Some(Ok(bytes)) => bytes,
                    cut => {
                        arriving.give_up(run);
                        fate.refused = Some(Reason::Truncated);
                        return match cut {
                            Some(Err(FetchEnd::TimedOut)) => TIMED_OUT,
                            _ => BROKEN_OFF,
                        };
                    }
                };
            }
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let bytes = rest.split_to(rest.len().min(left));
            let len = bytes.len() as u64;
            arriving.append(run, at, bytes);
            at += len;
            run.advance(at);
        }
        match arriving.finish(generation, run).await {
            Ok(()) => fate.are_stored = true,
            Err(why) => fate.refused = why.or(fate.refused),
        }
    }
    RunEnd::Done
}

const TIMED_OUT: RunEnd = RunEnd::Failed {
    status: 504,
    cause: Some(crate::use_stale::StaleCause::Timeout),
};

impl Arriving {
    /// Begins the slice that holds the byte at `at`; `before` is why the one before it was not
    /// stored.
    fn begin(generation: &Generation, run: &Run, at: u64, before: Option<Reason>) -> Self {
        let index = generation.set.index_of(at);
        let span = generation.set.span(index);
        let is_begun = span.start < at;
        let tail = generation.tail(index).filter(|_| is_begun);
        if let Some(tail) = tail.filter(|tail| tail.filling.memory_start() == at) {
            run.add(&tail.filling);
            return Arriving {
                filling: Arc::clone(&tail.filling),
                writer: None,
                tail: Some(tail),
                refused: None,
            };
        }
        let filling = Arc::new(Filling::new(span.clone(), at));
        // A tail that is gone already: the bytes are for those who read along.
        let (writer, refused) = if is_begun {
            (None, None)
        } else if before == Some(Reason::DiskBusy) {
            // The disk would be waited for once more.
            (None, before)
        } else {
            match open(generation, index, span.end - span.start) {
                Ok(writer) => (Some(writer), None),
                Err(why) => (None, Some(why)),
            }
        };
        if let Some(writer) = &writer {
            filling.set_view(writer.view());
        }
        run.add(&filling);
        Arriving {
            filling,
            writer,
            tail: None,
            refused,
        }
    }

    /// The store takes no more: what has come of the slice stays for those who read along.
    fn give_up(&mut self, run: &Run) {
        self.writer = None;
        if self.tail.is_none() {
            run.give_up(&self.filling);
        }
    }

    /// Waits until the disk has caught up, and goes on without it if it stands still; or until who
    /// reads what is not stored has, and is false if nobody does.
    async fn room(&mut self, generation: &Generation, run: &Run) -> bool {
        match &self.writer {
            Some(writer) if has_room(writer).await => return true,
            Some(_) => {
                self.refused = Some(Reason::DiskBusy);
                self.give_up(run);
            }
            None if self.tail.is_some() => return true,
            None => {}
        }
        run.room(|| generation.is_deserted()).await
    }

    fn append(&mut self, run: &Run, at: u64, bytes: Bytes) {
        let Some(writer) = &mut self.writer else {
            return match self.tail {
                Some(_) => self.filling.push(bytes),
                None => run.push(at, Region::Memory(bytes)),
            };
        };
        let before = writer.view().len();
        let Err(why) = writer.append(bytes.clone()) else {
            return;
        };
        // What could not be given a place may be in the view all the same.
        let taken = writer.view().len().saturating_sub(before);
        let taken = usize::try_from(taken).map_or(bytes.len(), |taken| taken.min(bytes.len()));
        self.refused = Some(why.into());
        self.give_up(run);
        run.push(at + taken as u64, Region::Memory(bytes.slice(taken..)));
    }

    /// The bytes have come. An error is that the store has not taken them, and why, if it was the
    /// store.
    async fn finish(mut self, generation: &Generation, run: &Run) -> Result<(), Option<Reason>> {
        if let Some(tail) = self.tail {
            tail.finish(true);
            run.land(&tail.filling);
            return Ok(());
        }
        let index = generation.set.index_of(self.filling.span().start);
        let end = run.end();
        let is_whole = end >= self.filling.span().end;
        if !is_whole && !self.take_tail(generation, (index, end)).await {
            self.give_up(run);
            return Err(self.refused);
        }
        let Some(writer) = self.writer.take() else {
            self.give_up(run);
            return Err(self.refused);
        };
        let finished = writer.finish();
        generation.drop_tail(index);
        match finished {
            Ok(_) => {
                run.land(&self.filling);
                Ok(())
            }
            Err(why) => {
                self.give_up(run);
                Err(Some(why.into()))
            }
        }
    }

    /// Writes the tail that begins at `start` behind the gap before it; false when there is none.
    async fn take_tail(&mut self, generation: &Generation, (index, start): (u64, u64)) -> bool {
        let tail = generation.tail(index);
        let Some(tail) = tail.filter(|tail| tail.filling.memory_start() == start) else {
            return false;
        };
        if !tail.whole().await {
            return false;
        }
        let Some(writer) = &mut self.writer else {
            return false;
        };
        for bytes in tail.filling.memory() {
            if let Err(why) = writer.append(bytes) {
                self.refused = Some(why.into());
                return false;
            }
        }
        true
    }
}

fn open(generation: &Generation, index: u64, len: u64) -> Result<Writer, Reason> {
    let store = generation.store();
    let mut writer = store.begin(generation.key(index), Some(len))?;
    let owner = (generation.owner(), generation.site());
    writer.set_head(generation.set.record_head(owner, index));
    writer.fits_site()?;
    Ok(writer)
}
