//! From a question to a copy.
//!
//! ```text
//! circuit ─► head of the key ─┬─ an entry ───────────────────────┐
//!    │           │            └─ variants ─► head of the variant ─┴─► judged ─► slices ─► Found
//!    │           └ none: Miss                       └ none: Miss         │         └ fault: none
//!    └ open: Skipped                                                     └ purged, stale: none
//! ```
//!
//! A question runs on the worker of its request, and has objects fetched by the tier's own thread.
//!
//! 1. All of it takes no longer than the tier's time. Of a body that is longer than `WHOLE` only
//!    the first slice is waited for, and each of the others has that time again.
//! 2. What is read at once takes no more memory than `MEMORY` (`shared.rs`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use millpond_cache::fill::can_resume;
use millpond_cache::head::StoredHead;
use millpond_cache::purge::position::Position;
use millpond_cache::slice::Trust;
use millpond_cache::slice::version::Validator;
use millpond_fleet::node::Node;
use millpond_semantics::range::RangeSpec;
use millpond_system::clock;
use object_store::UpdateVersion;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use crate::counts::Read;
use crate::head::{self, Body, HEAD_MAX, Kind, TierHead, slice_len, sum};
use crate::judge::Known;
use crate::objects::Fault;
use crate::place::{Name, SLICE};
use crate::shared::{Core, UNIT};

/// Bodies up to this length are read whole before they are used (arbitrary: four slices, which are
/// fetched at once).
pub const WHOLE: u64 = 4 * SLICE;
/// Slices of a long body that are in memory at once: one that is fetched, one that waits, one that
/// is taken.
const AHEAD: u64 = 3;

/// A question for what is missing in a zone.
pub struct Question<'a> {
    /// Text of the cache key.
    pub text: &'a [u8],
    /// Values of the fields that a Vary names, as the request has them.
    pub variant: &'a dyn Fn(&[u8]) -> Bytes,
    /// Position of the zone, read after the fill's lead began.
    pub own: Position,
    /// Now, seconds since 1970.
    pub now_s: i64,
    /// True if the origin may be asked for the rest of a body that breaks off.
    pub may_resume: bool,
    /// The part of the body that is wanted; all of it, if there is none.
    pub part: Option<Part>,
}

/// A part of a body, as an origin is asked for it.
pub struct Part {
    /// The bytes.
    pub range: RangeSpec,
    /// The strong validator of the version that they are wanted of, if they belong to one.
    pub if_range: Option<Bytes>,
}

impl Part {
    /// The bytes of the part, if a copy with this head and length has it and its version is known
    /// for sure.
    fn of(&self, stored: &StoredHead, total: u64) -> Option<Range<u64>> {
        let version = Validator::of_head(stored, Trust::Validated)?.if_range()?;
        let is_same = self.if_range.as_ref().is_none_or(|own| *own == version);
        let found = self.range.resolve(total);
        let range = found.start..found.end_exclusive;
        (is_same && !range.is_empty() && range.end - range.start <= WHOLE).then_some(range)
    }
}

/// A copy that may be used.
pub struct Found {
    /// The stored head.
    pub stored: StoredHead,
    /// Length of the whole body.
    pub total: u64,
    /// The bytes of it that are there, if they are not all.
    pub part: Option<Range<u64>>,
    /// These bytes.
    pub body: Incoming,
}

/// A body that broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// A body as it comes.
pub struct Incoming {
    ready: VecDeque<Bytes>,
    /// The slices behind those.
    rest: Option<mpsc::Receiver<Result<Bytes, Broken>>>,
    _task: Option<Task<()>>,
    _memory: OwnedSemaphorePermit,
}

impl Incoming {
    /// The next bytes.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if let Some(bytes) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(bytes)));
        }
        match &mut self.rest {
            Some(rest) => rest.poll_recv(cx),
            None => Poll::Ready(None),
        }
    }
}

/// A task that ends with whoever waits for it.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Task<T> {
    async fn outcome(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

/// No copy, and why.
enum NotFound {
    Because(Read),
    Fault(Fault),
}

impl From<Fault> for NotFound {
    fn from(fault: Fault) -> Self {
        NotFound::Fault(fault)
    }
}

/// Reader of a tier's copies.
pub struct Reader {
    pub(crate) core: Arc<Core>,
    /// The tier's thread.
    pub(crate) runtime: Handle,
}

impl Reader {
    /// The copy that answers a question; else what has come of it. It is counted either way.
    pub async fn find(&self, node: &Node, question: &Question<'_>) -> Result<Found, Read> {
        let core = &self.core;
        let known = Known {
            ledgers: node.ledgers(),
            zone: &core.zone.name,
            own: question.own,
        };
        if !known.is_settled() || !core.reading.lets_through() {
            core.counts.note_read(Read::Skipped);
            return Err(Read::Skipped);
        }
        let seeking = self.seek(known, question);
        let found = match clock::within(core.path.timeout, seeking).await {
            Some(found) => found,
            None => Err(NotFound::Fault(Fault::Slow)),
        };
        let outcome = match &found {
            Ok(_) => Read::Hit,
            Err(NotFound::Because(outcome)) => *outcome,
            Err(NotFound::Fault(_)) => Read::Fault,
        };
        match &found {
            Err(NotFound::Fault(fault)) => core.reading.failed(fault),
            Err(NotFound::Because(Read::Skipped)) => {}
            _ => core.reading.answered(),
        }
        core.counts.note_read(outcome);
        found.map_err(|_| outcome)
    }

    async fn seek(&self, known: Known<'_>, question: &Question<'_>) -> Result<Found, NotFound> {
        let core = &self.core;
        let (name, head) = self.select(question).await?;
        let Kind::Entry(body) = head.kind else {
            return Err(NotFound::Because(Read::Miss));
        };
        let stored = head.stored;
        let part = match &question.part {
            Some(part) => {
                let range = part.of(&stored, body.total);
                Some(range.ok_or(NotFound::Because(Read::Miss))?)
            }
            None => None,
        };
        let is_long = part.is_none() && body.total > WHOLE;
        let is_usable = stored.status == 200
            && stored.sliced.is_none()
            && stored.valid_until >= question.now_s
            && (!is_long || question.may_resume && can_resume(&stored, Some(body.total)));
        if !is_usable {
            return Err(NotFound::Because(Read::Miss));
        }
        // INVARIANT 1 of the crate.
        if !known.is_untouched(&stored, head.position) {
            return Err(NotFound::Because(Read::Purged));
        }
        // INVARIANT 2.
        let numbers = match &part {
            Some(range) => slices_of(range),
            None => 0..body.sums.len(),
        };
        let slices = if is_long { AHEAD } else { numbers.len() as u64 };
        let held = body.total.min(slices * SLICE);
        let units = u32::try_from(held.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let taken = Arc::clone(&core.memory).try_acquire_many_owned(units);
        let memory = taken.map_err(|_| NotFound::Because(Read::Skipped))?;
        let total = body.total;
        let (ready, rest) = if is_long {
            self.begin(name, body).await?
        } else {
            (self.some(name, body, (numbers, part.clone())).await?, None)
        };
        let (rest, task) = rest.unzip();
        Ok(Found {
            stored,
            total,
            part,
            body: Incoming {
                ready: ready.into(),
                rest,
                _task: task,
                _memory: memory,
            },
        })
    }

    /// The head of what answers a question.
    async fn select(&self, question: &Question<'_>) -> Result<(Name, TierHead), NotFound> {
        let first = Name::of_key(question.text);
        let head = self.head(first.clone(), question).await?;
        let Kind::Variants(seed) = head.kind else {
            let is_for_all = head.stored.vary.is_empty();
            let found = is_for_all.then_some((first, head));
            return found.ok_or(NotFound::Because(Read::Miss));
        };
        let wanted = (question.variant)(&head.stored.vary);
        let name = Name::of_variant(question.text, (seed, &wanted));
        let own = self.head(name.clone(), question).await?;
        // Compared whole, and not by a digest.
        let is_own = own.stored.vary == head.stored.vary && own.stored.variant == wanted;
        let found = is_own.then_some((name, own));
        found.ok_or(NotFound::Because(Read::Miss))
    }

    async fn head(&self, name: Name, question: &Question<'_>) -> Result<TierHead, NotFound> {
        let core = Arc::clone(&self.core);
        let fetching = async move { core.head(&name).await };
        let head = self.run(fetching).await??.and_then(|(head, _)| head);
        let found = head.filter(|head| head.stored.key == question.text);
        found.ok_or(NotFound::Because(Read::Miss))
    }

    /// Some slices at once, cut to a part of the body.
    async fn some(
        &self,
        name: Name,
        body: Body,
        (numbers, part): (Range<usize>, Option<Range<u64>>),
    ) -> Result<Vec<Bytes>, NotFound> {
        let core = Arc::clone(&self.core);
        let first = numbers.start as u64 * SLICE;
        let fetching = async move {
            let slices = numbers.map(|number| core.slice(&name, &body, number));
            try_join_all(slices).await
        };
        let mut slices = self.run(fetching).await??;
        if let Some(part) = part {
            cut(&mut slices, part.start - first..part.end - first);
        }
        Ok(slices)
    }

    /// The first slice of a long body, and the others as they come.
    async fn begin(
        &self,
        name: Name,
        body: Body,
    ) -> Result<
        (
            Vec<Bytes>,
            Option<(mpsc::Receiver<Result<Bytes, Broken>>, Task<()>)>,
        ),
        NotFound,
    > {
        let (core, of) = (Arc::clone(&self.core), (name, body));
        let (first, (name, body)) = {
            let fetching = async move {
                let first = core.slice(&of.0, &of.1, 0).await;
                (first, of)
            };
            self.run(fetching).await?
        };
        let first = first?;
        let (out, rest) = mpsc::channel(1);
        let core = Arc::clone(&self.core);
        let task = self.runtime.spawn(async move {
            for number in 1..body.sums.len() {
                let slice = core.slice(&name, &body, number).await;
                let next = slice.map_err(|fault| {
                    core.reading.failed(&fault);
                    Broken
                });
                let is_over = next.is_err();
                if out.send(next).await.is_err() || is_over {
                    return;
                }
            }
        });
        Ok((vec![first], Some((rest, Task(task)))))
    }

    /// Runs something on the tier's thread.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NotFound> {
        let outcome = Task(self.runtime.spawn(work)).outcome().await;
        outcome.ok_or(NotFound::Because(Read::Skipped))
    }
}

/// Numbers of the slices that have a part of a body, which is not empty.
fn slices_of(part: &Range<u64>) -> Range<usize> {
    let number = |at: u64| usize::try_from(at / SLICE).unwrap_or(usize::MAX);
    number(part.start)..number(part.end - 1).saturating_add(1)
}

/// Cuts slices that follow each other to a part of what they are together.
fn cut(slices: &mut [Bytes], part: Range<u64>) {
    let mut start = 0;
    for slice in slices {
        let end = start + slice.len() as u64;
        let within = |at: u64| at.clamp(start, end) - start;
        // No longer than a slice.
        let kept = within(part.start) as usize..within(part.end) as usize;
        *slice = slice.slice(kept);
        start = end;
    }
}

impl Core {
    /// A head, if it is understood, with its version; none if there is none. One that is damaged
    /// is removed.
    pub(crate) async fn head(
        &self,
        name: &Name,
    ) -> Result<Option<(Option<TierHead>, UpdateVersion)>, Fault> {
        let limits = (HEAD_MAX, self.patience());
        let object = self.objects.get(&self.places.head(name), limits).await?;
        let Some(object) = object else {
            return Ok(None);
        };
        if head::is_damaged(&object.bytes) {
            self.spoil(name, None);
            return Err(Fault::Wrong("head"));
        }
        Ok(Some((TierHead::decode(&object.bytes), object.version)))
    }

    /// A slice of a body, as it was written; one that is not is removed, with the head that names
    /// it.
    async fn slice(&self, name: &Name, body: &Body, number: usize) -> Result<Bytes, Fault> {
        let place = self.places.slice(name, &body.generation, number);
        let len = slice_len(body.total, number);
        let why = match self.objects.get(&place, (len, self.patience())).await {
            Ok(Some(object)) => {
                let sums = body.sums.get(number);
                // INVARIANT 3 of the crate.
                if object.bytes.len() as u64 == len && sums == Some(&sum(&object.bytes)) {
                    self.counts.note_read_bytes(object.bytes.len());
                    return Ok(object.bytes);
                }
                "slice"
            }
            Ok(None) => "a slice is missing",
            Err(Fault::Wrong(why)) => why,
            Err(fault) => return Err(fault),
        };
        self.spoil(name, Some(place));
        Err(Fault::Wrong(why))
    }

    fn patience(&self) -> Duration {
        self.path.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_cache::head::FieldsWriter;

    #[test]
    #[allow(
        clippy::single_range_in_vec_init,
        reason = "one slice is a list of one"
    )]
    fn slices_are_cut_to_the_part() {
        let len = SLICE;
        let cases = [
            (0..1, 0..1, vec![0..1]),
            (len - 1..len, 0..1, vec![len - 1..len]),
            (len..len + 1, 1..2, vec![0..1]),
            (5..2 * len + 7, 0..3, vec![5..len, 0..len, 0..7]),
            (len..2 * len, 1..2, vec![0..len]),
        ];
        for (part, numbers, kept) in cases {
            assert_eq!(slices_of(&part), numbers, "{part:?}");
            let body = Bytes::from(vec![0; 3 * SLICE as usize]);
            let at = |number: usize| number * SLICE as usize;
            let mut slices: Vec<Bytes> = numbers
                .clone()
                .map(|number| body.slice(at(number)..at(number + 1)))
                .collect();
            let first = numbers.start as u64 * SLICE;
            cut(&mut slices, part.start - first..part.end - first);
            let lengths: Vec<u64> = slices.iter().map(|it| it.len() as u64).collect();
            let expected: Vec<u64> = kept.iter().map(|it| it.end - it.start).collect();
            assert_eq!(lengths, expected, "{part:?}");
        }
    }

    /// RFC 9110 §15.3.7.3: parts are put together by a strong validator only.
    #[test]
    fn part_is_of_a_known_version() {
        let head = |field: &[(&[u8], &[u8])]| {
            let mut fields = FieldsWriter::default();
            field
                .iter()
                .for_each(|(name, value)| fields.push(name, value));
            StoredHead::new(200, fields)
        };
        let of = |range, if_range: Option<&'static [u8]>| Part {
            range,
            if_range: if_range.map(Bytes::from_static),
        };
        let all = RangeSpec::From { start: 0 };
        let strong = head(&[(b"etag", b"\"1\"")]);
        assert_eq!(of(all, None).of(&strong, 9), Some(0..9));
        assert_eq!(of(all, Some(b"\"1\"")).of(&strong, 9), Some(0..9));
        assert_eq!(
            of(RangeSpec::Suffix { len: 2 }, None).of(&strong, 9),
            Some(7..9)
        );
        assert_eq!(of(all, Some(b"\"2\"")).of(&strong, 9), None);
        assert_eq!(of(RangeSpec::From { start: 9 }, None).of(&strong, 9), None);
        assert_eq!(
            of(all, None).of(&strong, WHOLE + 1),
            None,
            "asked for in pieces"
        );
        assert_eq!(of(all, None).of(&head(&[(b"etag", b"W/\"1\"")]), 9), None);
        assert_eq!(of(all, None).of(&head(&[]), 9), None);
    }
}
