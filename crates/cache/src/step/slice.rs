//! The part of a fetch that asks for a range, and keeps its answer in slices.
//!
//! ```text
//! 206 of the version that is stored ─► head freshened, bytes adopted by the generation
//! 206 with a strong validator ───────► new entry in slices, bytes adopted
//! 206 that is the whole ─────────────► stored as the whole answer that it is
//! 206 of no known version, 416 ──────► the client's own request, or the whole
//! 416 to a range with If-Range ──────► the first slice, whose version the range is weighed by
//! 206 that cannot be right ──────────► the whole
//! 200 ───────────────────────────────► stored whole; long, and with `slice auto`: in slices
//! ```
//!
//! What cannot be kept in slices is remembered for a minute, so that it is asked for once.
//!
//! Invariant: the slices that arrive are claimed before anybody can find the entry, or find it
//! fresh. Who did before that would ask for them, too.

use std::sync::Arc;

use bytes::Bytes;
use millpond_semantics::range::RangeSpec;
use millpond_store::{Entry, Key};

use super::fetch::{Fetch, Place, Stale, fill, unstored, writer_for};
use super::freshen::renew;
use super::store::{KeptOut, storable};
use super::{Served, Step, Walk, found};
use crate::exchange::{Exchange, FetchEnd, Fetched};
use crate::extent::Extents;
use crate::fill::FillEnd;
use crate::head::{SliceSet, StoredHead};
use crate::reason::{Brought, Note, Reason};
use crate::slice::answer::{Asked, Judged, judge};
use crate::slice::generation::Generation;
use crate::slice::pump::{self, Answer, Driven, adopt};
use crate::slice::run::Purpose;
use crate::slice::table::Habit;
use crate::slice::version::Validator;
use crate::slice::{ClientWish, DEEP, First, RUN_BYTES, RUN_SLICES, SLICES_MAX, Slicing};
use crate::variant::VariantKey;

/// Range of the body that a fetch asks for; `None` for the whole. Where bodies are in extents, it
/// is one of the first, whose owner has the head of all nodes.
pub(super) fn asked(
    walk: &Walk,
    key: &Key,
    (stale, extents): (Option<&Stale>, Option<Extents>),
) -> Option<Asked> {
    let slicing = walk.slicing.as_ref()?;
    if let Some(stale) = stale
        && let Some(set) = &stale.found.head.sliced
    {
        return Some(missing(walk, set, (slicing, extents)));
    }
    if slicing.first == First::Whole || walk.zone.slices.habit(&walk.mark(key)).is_some() {
        return None;
    }
    Some(first(slicing, extents))
}

/// The first slice of a body, whatever the client wants of it.
pub(super) fn beginning(walk: &Walk, extents: Option<Extents>) -> Option<Asked> {
    let client = ClientWish::Head;
    walk.slicing
        .map(|slicing| first(&Slicing { client, ..slicing }, extents))
}

/// The first bytes that are asked for of a body of unknown length.
fn first(slicing: &Slicing, extents: Option<Extents>) -> Asked {
    let size = slicing.size.max(1);
    let most = (RUN_BYTES / size).clamp(1, RUN_SLICES) * size;
    let limit = extents.map_or(u64::MAX, |extents| extents.end(size, 0));
    let from = |start: u64, end: u64| {
        let aligned = start / size * size;
        let end = end.div_ceil(size).saturating_mul(size);
        Asked::From {
            start: if start - aligned >= DEEP {
                start
            } else {
                aligned
            },
            end: end.min(aligned.saturating_add(most)).min(limit),
        }
    };
    match slicing.client {
        ClientWish::Head => from(0, size),
        ClientWish::Whole => from(0, most),
        ClientWish::Range(spec) if is_behind(&spec, limit) => from(0, size),
        ClientWish::Range(RangeSpec::From { start }) => from(start, u64::MAX),
        ClientWish::Range(RangeSpec::FromTo {
            start,
            end_exclusive,
        }) => from(start, end_exclusive),
        ClientWish::Range(RangeSpec::Suffix { len: 0 }) => from(0, size),
        ClientWish::Range(RangeSpec::Suffix { len }) => Asked::Suffix(len),
    }
}

/// True if a range does not begin before the limit, or nobody knows.
fn is_behind(spec: &RangeSpec, limit: u64) -> bool {
    match spec {
        RangeSpec::From { start } | RangeSpec::FromTo { start, .. } => *start >= limit,
        RangeSpec::Suffix { .. } => limit != u64::MAX,
    }
}

/// Part that is missing of a stale entry in slices; its first wanted slice, if nothing is.
fn missing(walk: &Walk, set: &SliceSet, (slicing, extents): (&Slicing, Option<Extents>)) -> Asked {
    let all = match slicing.client {
        ClientWish::Head => 0..1,
        ClientWish::Whole => 0..set.total,
        ClientWish::Range(spec) => {
            let range = spec.resolve(set.total);
            range.start..range.end_exclusive
        }
    };
    let wanted = match extents.map(|extents| extents.end(set.size, 0)) {
        Some(limit) if all.start >= limit => 0..1,
        Some(limit) => all.start..all.end.min(limit),
        None => all,
    };
    let last = set.index_of(wanted.end.saturating_sub(1));
    let first = set.index_of(wanted.start).min(last);
    let peeks = walk.zone.store.peeks();
    let held = |index: u64| peeks.is_there(&set.key(walk.zone.keys(), index));
    let mut indexes = (first..=last).take(RUN_SLICES as usize);
    let index = indexes.find(|index| !held(*index)).unwrap_or(first);
    let mut span = set.span(index);
    for next in indexes.by_ref() {
        let end = set.span(next).end;
        if held(next) || end - span.start > RUN_BYTES {
            break;
        }
        span.end = end;
    }
    Asked::From {
        start: span.start,
        end: span.end.max(span.start.saturating_add(1)),
    }
}

/// Result of taking an answer to a range.
pub(super) enum Taken<X: Exchange> {
    /// The walk goes on with this step.
    Step(Step<X>),
    /// The answer is one like any other.
    Ordinary(Place, X::Fetched),
}

/// Deals with the answer to `asked`.
pub(super) fn take<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    (place, stale): (Place, Option<Stale>),
    (fetched, asked): (X::Fetched, &Asked),
) -> Taken<X> {
    let Some(slicing) = walk.slicing else {
        return Taken::Ordinary(place, fetched);
    };
    let stored = stale.as_ref().and_then(|it| it.found.head.sliced.as_ref());
    let size = stored.map_or(slicing.size, |set| set.size);
    let step = match judge(&fetched, asked, size) {
        Judged::Other => return Taken::Ordinary(place, fetched),
        Judged::Unsatisfiable { .. } if slicing.is_conditional && asked.skips_bytes() => {
            Step::Fetch(Fetch::beginning(place, stale))
        }
        Judged::Unsatisfiable { .. } if slicing.client.is_range() => {
            // It says nothing of the ranges of those who wait.
            place.lead.end(FillEnd::Withheld);
            Step::Done(Served::Passed(fetched, place.status))
        }
        Judged::Unsatisfiable { .. } | Judged::Unmeasured => {
            give_up(walk, (place, stale), Habit::Pass)
        }
        Judged::Unusable(_) => give_up(walk, (place, stale), Habit::Whole),
        Judged::Range { total, .. } if total.div_ceil(slicing.size.max(1)) > SLICES_MAX => {
            give_up(walk, (place, stale), Habit::Pass)
        }
        Judged::Range { start, end, total } => {
            let got = Got { start, end, total };
            take_range(x, walk, (place, stale), (fetched, got))
        }
    };
    Taken::Step(step)
}

/// The bytes of an answer.
#[derive(Clone, Copy)]
struct Got {
    start: u64,
    end: u64,
    total: u64,
}

fn take_range<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    (place, stale): (Place, Option<Stale>),
    (fetched, got): (X::Fetched, Got),
) -> Step<X> {
    let stale = match stale {
        Some(stale) if is_same(walk, &stale, &fetched, got) => {
            return keep(x, walk, (place, stale), (fetched, got));
        }
        stale => stale,
    };
    let Some(slicing) = walk.slicing else {
        return pass(place);
    };
    let is_whole = got.start == 0 && got.end == got.total;
    let is_known = Validator::of(&fetched, slicing.trust).is_some();
    if !is_whole && !is_known {
        x.note(Note::Because(Reason::Unversioned));
        return give_up(walk, (place, stale), Habit::Pass);
    }
    let head = match whole_head(x, walk, &fetched) {
        Ok(head) => head,
        Err(why) => return not_stored(x, walk, place, why),
    };
    if is_whole && (got.total <= slicing.size || !is_known) {
        return store_whole(x, walk, place, head, (fetched, got));
    }
    begin(x, walk, place, head, (fetched, got))
}

/// A range that is all there is.
fn store_whole<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    place: Place,
    mut head: StoredHead,
    (fetched, got): (X::Fetched, Got),
) -> Step<X> {
    if !may_write(x, walk, &place) {
        return pass(place);
    }
    match place_writer(walk, &place, &mut head, Some(got.total)) {
        Ok(writer) => Step::Done(fill(x, walk, place, head, (fetched, writer))),
        Err(why) => {
            x.note(Note::Because(why));
            pass(place)
        }
    }
}

/// True if nobody else writes the entry at the moment.
fn may_write<X: Exchange>(x: &mut X, walk: &Walk, place: &Place) -> bool {
    let key = place.lead.key();
    walk.zone.forget_error(key);
    // INVARIANT 2 of `fetch.rs`.
    if !place.lead.claim(walk.policies.lock.age) {
        x.note(Note::Because(Reason::BeingStored));
        return false;
    }
    walk.zone.unstorable.forget(&walk.mark(key));
    true
}

/// The answer must not be stored: the client asks for itself what it wants of it.
fn not_stored<X: Exchange>(x: &mut X, walk: &Walk, place: Place, why: KeptOut) -> Step<X> {
    let (KeptOut::Answer(reason) | KeptOut::Request(reason)) = why;
    x.note(Note::Because(reason));
    walk.zone
        .slices
        .remember_unsliced(walk.mark(place.lead.key()), Habit::Pass);
    let end = unstored(walk, &place, (why, 206));
    place.lead.end(end);
    Step::Pass(place.status)
}

/// True if a partial answer is of the version that is stored in slices.
fn is_same<F: Fetched>(walk: &Walk, stale: &Stale, fetched: &F, got: Got) -> bool {
    let generation = walk.zone.slices.open(&walk.zone.store, &stale.found);
    generation.is_some_and(|generation| {
        let asked = Asked::From {
            start: got.start,
            end: got.end,
        };
        let is_ours = matches!(
            pump::verdict(&generation, fetched, &asked),
            Answer::Ours { .. }
        );
        is_ours && !generation.is_retired()
    })
}

/// The stored version is the current one: its head is freshened, and what came is kept.
fn keep<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    (place, stale): (Place, Stale),
    (fetched, got): (X::Fetched, Got),
) -> Step<X> {
    // The invariant.
    let generation = walk.zone.slices.open(&walk.zone.store, &stale.found);
    let run = generation.and_then(|generation| claim(&generation, got));
    let seen = Whole::of(&fetched, 200);
    let step = renew(x, walk, place.lead, stale.found, (&seen, place.status));
    if let Step::Done(Served::Entry(..)) = &step {
        x.note(Note::Brought(Brought::Range(got.start, got.end)));
        bring(x, run, fetched);
    }
    step
}

/// Claims the slices of bytes that arrive.
fn claim(generation: &Arc<Generation>, got: Got) -> Option<Driven> {
    let purpose = if got.end - got.start > RUN_BYTES {
        Purpose::Readers
    } else {
        Purpose::Cache
    };
    Driven::adopt(generation, got.start..got.end, purpose)
}

/// Keeps bytes that arrive as the slices that were claimed for them, if they were.
fn bring<X: Exchange>(x: &X, run: Option<Driven>, fetched: X::Fetched) {
    if let Some(run) = run {
        x.spawn(adopt(x.background(), run, fetched));
    }
}

/// Makes an entry in slices, of which these bytes arrive.
fn begin<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    place: Place,
    mut head: StoredHead,
    (fetched, got): (X::Fetched, Got),
) -> Step<X> {
    let Some(slicing) = walk.slicing.filter(|_| may_write(x, walk, &place)) else {
        return pass(place);
    };
    head.sliced = Some(SliceSet {
        generation: walk.zone.new_generation(),
        total: got.total,
        size: slicing.size,
    });
    match publish(walk, &place, &mut head, got) {
        Ok((entry, run)) => {
            x.note(Note::Stored);
            x.note(Note::Brought(Brought::All));
            walk.zone.backoffs.forget(&walk.mark(place.lead.key()));
            bring(x, run, fetched);
            place.lead.end(FillEnd::Complete);
            Step::Done(Served::Entry(found(entry, head), place.status))
        }
        Err(why) => {
            x.note(Note::Because(why));
            pass(place)
        }
    }
}

/// Puts an entry in slices into the zone, of which the bytes that have been claimed arrive.
fn publish(
    walk: &Walk,
    place: &Place,
    head: &mut StoredHead,
    got: Got,
) -> Result<(Entry, Option<Driven>), Reason> {
    let writer = place_writer(walk, place, head, Some(0))?;
    if !place.lead.may_store() {
        return Err(Reason::Superseded);
    }
    // The invariant.
    let (slices, store) = (&walk.zone.slices, &walk.zone.store);
    let generation = slices.begin(store, *writer.key(), head);
    let run = generation.and_then(|generation| claim(&generation, got));
    let entry = writer.finish()?;
    walk.zone.watch.tell_stored(*entry.key(), head, 0);
    Ok((entry, run))
}

/// A writer for the place of an answer, with this head.
fn place_writer(
    walk: &Walk,
    place: &Place,
    head: &mut StoredHead,
    length: Option<u64>,
) -> Result<millpond_store::Writer, Reason> {
    head.serial = place.lead.serial();
    place.lead.know(head);
    let looked_up = VariantKey {
        key: *place.lead.key(),
        seed: place.seed,
    };
    writer_for(walk, looked_up, head, length)
}

/// A whole answer that is long enough to be kept in slices, where that is left to its length.
pub(super) fn split<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    place: Place,
    fetched: X::Fetched,
) -> Taken<X> {
    let total = fetched.length().unwrap_or(0);
    let is_long = walk
        .slicing
        .is_some_and(|slicing| slicing.first == First::Whole && total > slicing.size);
    if !is_long {
        return Taken::Ordinary(place, fetched);
    }
    let ranges = crate::exchange::field(&fetched, b"accept-ranges");
    let has_ranges = ranges.is_some_and(|value| value.eq_ignore_ascii_case(b"bytes"));
    let trust = walk.slicing.map(|slicing| slicing.trust);
    let is_known = trust.is_some_and(|trust| Validator::of(&fetched, trust).is_some());
    if fetched.status() != 200 || !has_ranges || !is_known {
        return Taken::Ordinary(place, fetched);
    }
    let Ok(head) = whole_head(x, walk, &fetched) else {
        return Taken::Ordinary(place, fetched);
    };
    let got = Got {
        start: 0,
        end: total,
        total,
    };
    Taken::Step(begin(x, walk, place, head, (fetched, got)))
}

/// Goes on with an answer that cannot be kept in slices: a client that wants a range asks for
/// itself, unless ranges of the origin are not to be believed; any other gets the whole.
fn give_up<X: Exchange>(
    walk: &Walk,
    (place, stale): (Place, Option<Stale>),
    habit: Habit,
) -> Step<X> {
    let mark = walk.mark(place.lead.key());
    walk.zone.slices.remember_unsliced(mark, habit);
    let wants_range = walk
        .slicing
        .is_some_and(|slicing| slicing.client.is_range());
    if wants_range && habit == Habit::Pass {
        pass(place)
    } else {
        Step::Fetch(Fetch::whole(place, stale))
    }
}

fn pass<X: Exchange>(place: Place) -> Step<X> {
    place.lead.end(FillEnd::Withheld);
    Step::Pass(place.status)
}

/// The head that the whole answer would have.
fn whole_head<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    fetched: &X::Fetched,
) -> Result<StoredHead, KeptOut> {
    // A time for 200 is the usual one; configurations for nginx may have one for 206 alone.
    storable(x, walk, &Whole::of(fetched, 200)).or_else(|why| {
        let mut head = storable(x, walk, &Whole::of(fetched, 206)).map_err(|_| why)?;
        head.status = 200;
        Ok(head)
    })
}

/// Fields that describe the bytes of a part. RFC 9530 §2: Content-Digest is of the content, as
/// Content-MD5 was; Repr-Digest and Digest are of the whole.
const OF_PART: [&[u8]; 4] = [
    b"content-range",
    b"content-length",
    b"content-digest",
    b"content-md5",
];

/// Field of an origin that serves ranges.
const SERVES_RANGES: (Bytes, Bytes) = (
    Bytes::from_static(b"Accept-Ranges"),
    Bytes::from_static(b"bytes"),
);

/// A partial answer as if it were the whole one, but for the body.
struct Whole {
    came_at: Option<i64>,
    delay: u64,
    fresh_left: Option<i64>,
    status: u16,
    is_unbuffered: bool,
    fields: Vec<(Bytes, Bytes)>,
}

impl Whole {
    fn of<F: Fetched>(fetched: &F, status: u16) -> Self {
        let mut fields = Vec::new();
        fetched.each_field(&mut |name, value| {
            if !OF_PART.iter().any(|other| name.eq_ignore_ascii_case(other)) {
                fields.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
            }
        });
        let names_ranges = |it: &(Bytes, Bytes)| it.0.eq_ignore_ascii_case(b"accept-ranges");
        if fetched.status() == 206 && !fields.iter().any(names_ranges) {
            // Who has sent a range serves ranges.
            fields.push(SERVES_RANGES);
        }
        Whole {
            came_at: fetched.came_at(),
            delay: fetched.delay(),
            fresh_left: fetched.fresh_left(),
            status,
            is_unbuffered: fetched.is_unbuffered(),
            fields,
        }
    }
}

impl Fetched for Whole {
    fn came_at(&self) -> Option<i64> {
        self.came_at
    }

    fn delay(&self) -> u64 {
        self.delay
    }

    fn fresh_left(&self) -> Option<i64> {
        self.fresh_left
    }

    fn status(&self) -> u16 {
        self.status
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn is_unbuffered(&self) -> bool {
        self.is_unbuffered
    }

    fn each_field(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in &self.fields {
            each(name, value);
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, FetchEnd>> {
        None
    }

    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>> {
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::freshen::{Audience, freshened};
    use super::super::tests::policies;
    use super::*;
    use crate::conformance::Rules;
    use crate::head::FieldsWriter;
    use crate::slice::Trust;
    use crate::step::Given;
    use millpond_semantics::reuse::RequestRules;

    #[test]
    fn a_304_does_not_name_another_version_of_a_body_in_slices() {
        let mut fields = FieldsWriter::default();
        fields.push(b"ETag", b"\"1\"");
        fields.push(b"X-Age", b"old");
        let mut head = StoredHead::new(200, fields);
        let field = |name: &'static str, value: &'static str| {
            (
                Bytes::from_static(name.as_bytes()),
                Bytes::from_static(value.as_bytes()),
            )
        };
        let answer = Whole {
            came_at: None,
            delay: 0,
            fresh_left: None,
            status: 304,
            is_unbuffered: false,
            fields: vec![field("ETag", "\"2\""), field("X-Age", "new")],
        };
        let (policies, rules) = (policies(), Rules::Rfc9111(RequestRules::default()));
        let given = Given {
            policies: &policies,
            rules: &rules,
            valid: std::borrow::Cow::Borrowed(&policies.valid),
            is_authorized: false,
        };
        for (sliced, tag) in [(false, "\"2\""), (true, "\"1\"")] {
            head.sliced = sliced.then_some(SliceSet {
                generation: [1; 16],
                total: 100,
                size: 10,
            });
            let fresh = freshened(&given, &head, (&answer, Audience::All, 0));
            assert_eq!(fresh.field(b"etag").unwrap(), tag);
            assert_eq!(fresh.field(b"x-age").unwrap(), "new");
        }
    }

    #[test]
    fn what_is_asked_for_first_is_what_the_range_touches() {
        const MIB: u64 = 1 << 20;
        let cases = [
            (MIB, ClientWish::Head, "bytes=0-1048575"),
            (MIB, ClientWish::Whole, "bytes=0-16777215"),
            (2, ClientWish::Whole, "bytes=0-127"),
            (
                MIB,
                ClientWish::Range(RangeSpec::FromTo {
                    start: 10,
                    end_exclusive: 20,
                }),
                "bytes=0-1048575",
            ),
            (
                MIB,
                ClientWish::Range(RangeSpec::FromTo {
                    start: 5_000_000,
                    end_exclusive: 5_000_010,
                }),
                "bytes=5000000-5242879",
            ),
            (
                MIB,
                ClientWish::Range(RangeSpec::From { start: MIB }),
                "bytes=1048576-17825791",
            ),
            (
                MIB,
                ClientWish::Range(RangeSpec::Suffix { len: 1024 }),
                "bytes=-1024",
            ),
            (
                MIB,
                ClientWish::Range(RangeSpec::Suffix { len: 0 }),
                "bytes=0-1048575",
            ),
        ];
        for (size, client, expected) in cases {
            assert_eq!(asked_first(size, client, None), expected, "{client:?}");
        }
    }

    fn asked_first(size: u64, client: ClientWish, extents: Option<Extents>) -> Bytes {
        let slicing = Slicing {
            size,
            first: First::Range,
            client,
            is_conditional: false,
            confirms: false,
            trust: Trust::Validated,
        };
        first(&slicing, extents).field()
    }

    #[test]
    fn what_is_asked_for_first_lies_in_the_first_extent() {
        const MIB: u64 = 1 << 20;
        let from = |start, end_exclusive| {
            ClientWish::Range(RangeSpec::FromTo {
                start,
                end_exclusive,
            })
        };
        for (client, expected) in [
            (ClientWish::Whole, "bytes=0-4194303"),
            (from(3 * MIB, 9 * MIB), "bytes=3145728-4194303"),
            (from(4 * MIB, 9 * MIB), "bytes=0-1048575"),
            (
                ClientWish::Range(RangeSpec::From { start: 5 * MIB }),
                "bytes=0-1048575",
            ),
            (
                ClientWish::Range(RangeSpec::Suffix { len: 10 }),
                "bytes=0-1048575",
            ),
        ] {
            let asked = asked_first(MIB, client, Some(Extents::of(4 * MIB)));
            assert_eq!(asked, expected, "{client:?}");
        }
    }
}
