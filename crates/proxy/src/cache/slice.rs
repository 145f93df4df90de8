//! Answers from entries in slices: the head at once, the body out of what is held and what arrives.
//!
//! ```text
//! entry found ─► first wanted bytes held, or there ─► 200 or 206, the rest read as it is sent
//!                     │ another version at the origin ─► walk again, on the new one (bounded)
//!                     │ the origin answers otherwise ──► the client's request as it is, unstored
//!                     └ no answer ─────────────────────► error
//! ```
//!
//! Invariants:
//! 1. The head is not sent before the first wanted byte is there, so that what is wrong with it can
//!    still be answered.
//! 2. A body whose version is gone at the origin ends early, and its connection with it.

use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use millpond_cache::fill::Streaming;
use millpond_cache::head::SliceSet;
use millpond_cache::range::RangeFill;
use millpond_cache::reason::{FillRole, Note, Reason};
use millpond_cache::slice::generation::Generation;
use millpond_cache::slice::reader::{SliceFailure, SliceReader};
use millpond_cache::slice::{ClientWish, First, SIZE_AUTO, SIZE_MAX, SliceSize, Slicing, Trust};
use millpond_cache::status::CacheStatus;
use millpond_cache::step::Walk;
use millpond_cache::window::NARROW_BYTES;
use millpond_cache::zone::{CacheZone, FoundEntry};
use millpond_semantics::cache_status::Forward;
use millpond_semantics::range::first_range;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use super::body::{Resume, piece};
use super::exchange::PassExchange;
use super::peers::part;
use crate::conditional::range::first_wanted;
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::provenance::{Provenance, Tally, Whence};
use millpond_exchange::response::{RangeRule, Response};

/// Reads a body in slices.
pub(super) type Reader = SliceReader<PassExchange<Box<Request>>>;

/// Way in which a request goes about slices; `None` where bodies are not kept in them.
pub(crate) fn slicing(req: &Request, target: &PassTarget) -> Option<Slicing> {
    let settings = req.location.settings.pass(target.protocol);
    let (size, is_auto) = match req.location.settings.slice.size {
        SliceSize::Off if settings.range.fill == RangeFill::Slice => (SIZE_AUTO, true),
        SliceSize::Off => return None,
        SliceSize::Auto => (SIZE_AUTO, true),
        SliceSize::Bytes(size) => (size.min(SIZE_MAX), false),
    };
    let client = match req.method {
        Method::Head if !settings.method.convert_head => return None,
        Method::Head => ClientWish::Head,
        Method::Get => match req.field(Known::Range).and_then(first_range) {
            Some(spec) => ClientWish::Range(spec),
            None => ClientWish::Whole,
        },
        _ => return None,
    };
    let first = if is_auto && !client.is_range() {
        First::Whole
    } else {
        First::Range
    };
    // nginx: applications need say nothing of versions to be sliced.
    let trust = match target.protocol {
        Protocol::Http => Trust::Validated,
        _ => Trust::Unvalidated,
    };
    Some(Slicing {
        size,
        first,
        client,
        is_conditional: client.is_range() && req.head.has(Known::IfRange),
        confirms: false,
        trust,
    })
}

/// Puts the body of an entry in slices to its answer, once its first bytes are there; the status
/// says whether they were.
pub(crate) async fn open(
    req: &mut Request,
    target: &Arc<PassTarget>,
    (zone, found): (&CacheZone, &FoundEntry),
    (response, status): (&mut Response, &mut CacheStatus),
) -> Result<(), SliceFailure> {
    let Some(generation) = zone.slices.open(&zone.store, found) else {
        return Ok(());
    };
    response.length = Some(generation.set.total);
    // The origin has served a range, whether or not it says that it serves ranges.
    response.parts.rule = RangeRule::Allowed;
    response.parts.are_assembled = true;
    let wanted = first_wanted(req, response);
    if let Some(first) = &wanted
        && !part::may_read(req, generation.set.size, first)
    {
        return Err(SliceFailure::Failed {
            status: part::NO_PART,
            cause: None,
        });
    }
    if let Some(first) = &wanted
        && is_limited(req, target)
    {
        let is_one = response.parts.first_look.range.is_some();
        refuse_gaps(req, zone, (&generation.set, is_one.then_some(first)))?;
    }
    let brought = req.upstream.borrow().account.brought;
    let reader = reader(req, target, &generation, wanted.clone().unwrap_or(0..0));
    let mut reader = reader.with_brought(brought);
    if *status == CacheStatus::Hit && !reader.is_at_hand() {
        *status = CacheStatus::Miss;
        let mut trace = req.upstream.borrow_mut();
        trace.account.note(Note::Forwarded(Forward::Partial));
    }
    if wanted.is_some() {
        let prefetch = req.location.settings.slice.prefetch();
        if req.field(Known::Range).is_some() {
            reader.fetch_ahead(prefetch, &zone.slices);
        }
        reader.first_bytes().await?;
        note_role(req, reader.role());
        let tally = Rc::<Tally>::default();
        response.provenance = Provenance::Several(Rc::clone(&tally));
        let total = generation.set.total;
        response.body = Body::stream(SliceBody {
            reader,
            wanted: 0..total,
            is_begun: false,
            tally,
        });
    }
    Ok(())
}

/// RFC 9111 §5.2.1.7: `only-if-cached`.
fn is_limited(req: &Request, target: &PassTarget) -> bool {
    let rules = by_rfc::rules(req, target);
    rules.asked().is_some_and(|asked| asked.only_if_cached)
}

/// Refuses with 504 what is not all stored: one range, or the whole.
fn refuse_gaps(
    req: &Request,
    zone: &CacheZone,
    (set, range): (&SliceSet, Option<&Range<u64>>),
) -> Result<(), SliceFailure> {
    let whole = 0..set.total;
    if zone.holds(*set, range.unwrap_or(&whole)) {
        return Ok(());
    }
    let mut trace = req.upstream.borrow_mut();
    trace.account.note(Note::Because(Reason::OnlyIfCached));
    Err(SliceFailure::Failed {
        status: 504,
        cause: None,
    })
}

/// Notes a request's part in bringing its first bytes, unless it has one already.
fn note_role(req: &Request, role: FillRole) {
    let note = match role {
        FillRole::None => return,
        FillRole::Leader => Note::Led,
        FillRole::Waiter => Note::Waited,
    };
    let mut trace = req.upstream.borrow_mut();
    if trace.account.role == FillRole::None {
        trace.account.note(note);
    }
}

/// Maker of the rest of a body of which a fill has brought the first part, in slices of the same
/// version; `None` where nobody can.
pub(super) fn resume(
    req: &Request,
    target: &Arc<PassTarget>,
    (walk, streaming): (&Walk, &Arc<Streaming>),
) -> Option<Resume> {
    let total = streaming.length.filter(|total| *total > NARROW_BYTES)?;
    // Nothing but GET is asked for a second time.
    if req.method != Method::Get || !streaming.can_resume() {
        return None;
    }
    let disk = req.location.settings.pass(target.protocol).disk.clone();
    let exchange = PassExchange::new(Box::new(req.background()), Arc::clone(target));
    let (zone, streaming) = (Arc::clone(&walk.zone), Arc::clone(streaming));
    Some(Box::new(move |wanted| {
        let generation = zone.slices.ahead_of(&zone, &streaming, total);
        let wanted = wanted.start..wanted.end.min(total);
        let reader = SliceReader::new(exchange, &generation, wanted.clone());
        Box::pin(SliceBody {
            reader: reader.with_disk_timeout(&disk),
            wanted,
            is_begun: true,
            tally: Rc::default(),
        })
    }))
}

/// The body of an answer that is just what a reader was made for, and where its bytes come from.
pub(super) fn body_of(reader: Reader, wanted: Range<u64>) -> (Body, Provenance) {
    let tally = Rc::<Tally>::default();
    let body = Body::stream(SliceBody {
        reader,
        wanted,
        is_begun: true,
        tally: Rc::clone(&tally),
    });
    (body, Provenance::Several(tally))
}

/// A reader of a generation, for a request.
pub(super) fn reader(
    req: &Request,
    target: &Arc<PassTarget>,
    generation: &Arc<Generation>,
    wanted: Range<u64>,
) -> Reader {
    let exchange = PassExchange::new(Box::new(req.background()), Arc::clone(target));
    let disk = &req.location.settings.pass(target.protocol).disk;
    SliceReader::new(exchange, generation, wanted).with_disk_timeout(disk)
}

/// The body of an entry in slices.
struct SliceBody {
    reader: Reader,
    /// Range that is wanted of the entry; the reader has begun with what is likely.
    wanted: Range<u64>,
    is_begun: bool,
    tally: Rc<Tally>,
}

impl BodyStream for SliceBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        if !this.is_begun {
            this.is_begun = true;
            this.reader.narrow(this.wanted.clone());
        }
        let next = this.reader.poll_next(cx);
        next.map(|next| {
            next.map(|region| match region {
                Ok(region) => {
                    let brought = this.reader.brought_of_last(region.len());
                    this.tally.add(Whence::Cache, region.len() - brought);
                    this.tally.add(Whence::Origin, brought);
                    Ok(piece(region))
                }
                Err(failure) => Err(BodyError::Slice(failure.to_string())),
            })
        })
    }

    fn narrow(mut self: Pin<&mut Self>, wanted: Range<u64>) -> bool {
        self.wanted = wanted;
        true
    }

    fn can_fork(&self) -> bool {
        true
    }

    fn fork(&self, wanted: Range<u64>) -> Option<Pin<Box<dyn BodyStream>>> {
        Some(Box::pin(SliceBody {
            reader: self.reader.fork(wanted.clone()),
            wanted,
            is_begun: false,
            tally: Rc::clone(&self.tally),
        }))
    }
}
