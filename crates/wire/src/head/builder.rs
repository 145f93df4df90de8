//! Heads of requests in the making, whatever the protocol.
//!
//! A protocol notes the parts of a head in [`Parts`], each by its place, and gives the bytes at the
//! end. The checks of fields that are the same in all protocols are here.
//!
//! 1. No two fields of a name that must be unique pass.
//! 2. A Host field that passes is well-formed, and its parts are known.
//!
//! Names and values were judged before: which bytes may stand in them depends on the protocol.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;

use super::limits::{InvalidNames, Limits, Reading, Underscores};
use super::place::{Extent, FieldLine, NameKind, Span};
use super::request::{HostPlace, Parts, RequestHead};
use super::{Host, Refusal};
use crate::block::Block;
use crate::header::{Known, KnownSet};
use crate::spare::Spares;

/// Fields that a request may have once only. Two of them would leave it to each reader which one
/// counts. (nginx refuses the same.)
const UNIQUE: KnownSet = KnownSet::of(&[
    Known::Host,
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfMatch,
    Known::IfNoneMatch,
    Known::IfRange,
    Known::ContentLength,
    Known::ContentRange,
    Known::TransferEncoding,
    Known::Expect,
    Known::Authorization,
    Known::ProxyAuthorization,
]);

/// The fields of [`UNIQUE`] that are lists.
const LISTS: KnownSet = KnownSet::of(&[Known::IfMatch, Known::IfNoneMatch]);

thread_local! {
    /// Empty heads, whose memory is that of requests that have ended.
    static SPARES: Spares<Rc<RequestHead>> = const { Spares::new() };
}

/// An empty head.
pub(crate) fn new_draft() -> Rc<RequestHead> {
    SPARES.with(Spares::take).unwrap_or_default()
}

/// Keeps the memory of the head of a request that has ended, unless others hold it.
pub fn give_back(mut head: Rc<RequestHead>) {
    if let Some(ended) = Rc::get_mut(&mut head) {
        ended.parts.clear();
        // It may be long until a draft has bytes of its own.
        ended.buf = Bytes::new();
        SPARES.with(|it| it.keep(head));
    }
}

impl Parts {
    /// Keeps a field, unless its name is to be ignored.
    ///
    /// # Errors
    /// A field too many, one that must be unique, or a Host that is none.
    #[inline]
    pub(crate) fn add_field(
        &mut self,
        line: &[u8],
        (start, parsed, known): (usize, &FieldLine, Known),
        limits: &Limits,
    ) -> Result<(), Refusal> {
        if !is_kept(parsed.kind, limits) {
            return Ok(());
        }
        let trimmed;
        let parsed = match limits.reading {
            Reading::AsNginx => parsed,
            Reading::ByRfc => {
                trimmed = parsed.trimmed(line);
                &trimmed
            }
        };
        let span = Span::new(start, parsed, known).ok_or(Refusal::HeaderTooLarge)?;
        let value = line.get(parsed.value.clone()).unwrap_or_default();
        self.add_span(span, value, limits)
    }

    /// Keeps a field by its place.
    #[inline]
    fn add_span(&mut self, span: Span, value: &[u8], limits: &Limits) -> Result<(), Refusal> {
        let known = span.known;
        if self.spans.len() >= limits.fields {
            return Err(Refusal::TooManyFields);
        }
        if UNIQUE.contains(known) && self.present.contains(known) {
            if limits.reading == Reading::AsNginx || !LISTS.contains(known) {
                return Err(Refusal::DuplicateField(known));
            }
            self.repeated = Some(known);
        }
        if known == Known::Host {
            let host = Host::parse(value).ok_or(Refusal::InvalidHost)?;
            self.host = HostPlace {
                name_len: u32::try_from(host.name.len()).map_err(|_| Refusal::HeaderTooLarge)?,
                port: host.port,
                has_capitals: host.has_capitals,
            };
        }
        self.present.insert(known);
        self.spans.push(span);
        Ok(())
    }
}

/// True if a field with such a name is not to be ignored.
#[inline]
fn is_kept(kind: NameKind, limits: &Limits) -> bool {
    let is_valid = match kind {
        NameKind::Plain => true,
        NameKind::Underscored => limits.underscores == Underscores::Allow,
        NameKind::Odd => false,
    };
    is_valid || limits.invalid != InvalidNames::Ignore
}

/// Bytes of the block that heads are cut from (arbitrary: some dozen of them). A request that takes
/// long keeps the block of its head.
const HEADS_BLOCK: usize = 8 * 1024;
/// Bytes of memory that are kept for the next head (arbitrary: nearly all fit).
const TEXT_KEPT: usize = 16 * 1024;

thread_local! {
    static HEADS: Block = Block::new(HEADS_BLOCK);
    /// Memory for the text of the head that is made next.
    static TEXT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A head that is put together of parts, for protocols that do not have it as one text.
#[derive(Debug)]
pub(crate) struct HeadBuilder {
    draft: Rc<RequestHead>,
    text: Vec<u8>,
}

impl HeadBuilder {
    /// A head without parts.
    pub(crate) fn new() -> Self {
        HeadBuilder {
            draft: new_draft(),
            text: TEXT.take(),
        }
    }

    /// The head, to be added to.
    pub(crate) fn open(&mut self) -> OpenHead<'_> {
        OpenHead {
            // Nobody else has it, so nothing is copied.
            parts: &mut Rc::make_mut(&mut self.draft).parts,
            text: &mut self.text,
        }
    }

    /// The head, which took so many bytes on the wire.
    pub(crate) fn finish(mut self, wire_len: usize) -> Rc<RequestHead> {
        let draft = Rc::make_mut(&mut self.draft);
        draft.buf = HEADS.with(|block| block.cut(&self.text));
        draft.parts.wire_len = u32::try_from(wire_len).ok().and_then(NonZeroU32::new);
        self.text.clear();
        self.text.shrink_to(TEXT_KEPT);
        TEXT.set(self.text);
        self.draft
    }
}

/// A head that is added to.
#[derive(Debug)]
pub(crate) struct OpenHead<'a> {
    /// The places of the parts.
    pub(crate) parts: &'a mut Parts,
    text: &'a mut Vec<u8>,
}

impl OpenHead<'_> {
    /// Adds bytes.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Extent {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        self.extent(start)
    }

    /// Adds bytes again that are there already.
    pub(crate) fn push_again(&mut self, part: Extent) -> Extent {
        let start = self.text.len();
        let range = part.start as usize..part.end as usize;
        if range.end <= start {
            self.text.extend_from_within(range);
        }
        self.extent(start)
    }

    /// The part that begins at an offset and ends where the bytes end.
    #[inline]
    pub(crate) fn extent(&self, start: usize) -> Extent {
        // The bounds of heads are far below 4 GiB.
        Extent {
            start: start as u32,
            end: self.text.len() as u32,
        }
    }

    /// Bytes that were added.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// The bytes of a part.
    pub(crate) fn text(&self, part: Extent) -> &[u8] {
        part.of(self.text)
    }

    /// The value of a field.
    pub(crate) fn value(&self, span: &Span) -> &[u8] {
        span.value(self.text)
    }

    /// Adds a field, unless its name is to be ignored.
    ///
    /// # Errors
    /// See [`Parts::add_field`].
    #[inline]
    pub(crate) fn add_field(
        &mut self,
        (known, kind): (Known, NameKind),
        (name, value): (&[u8], &[u8]),
        limits: &Limits,
    ) -> Result<(), Refusal> {
        if !is_kept(kind, limits) {
            return Ok(());
        }
        let start = self.text.len();
        self.text.reserve(name.len() + value.len());
        self.text.extend_from_slice(name);
        let value_start = self.text.len();
        self.text.extend_from_slice(value);
        let places = (start, value_start, self.text.len());
        let span = Span::between(places, known).ok_or(Refusal::HeaderTooLarge)?;
        self.parts.add_span(span, value, limits)
    }

    /// Adds a field whose name and value are there already, the value behind the name.
    ///
    /// # Errors
    /// See [`Parts::add_field`].
    pub(crate) fn add_placed(
        &mut self,
        known: Known,
        (name, value): (Extent, Extent),
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let span = Span::of(name, value, known).ok_or(Refusal::HeaderTooLarge)?;
        let value = value.of(self.text);
        self.parts.add_span(span, value, limits)
    }
}
