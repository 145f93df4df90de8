//! Heads of requests in the making, whatever the protocol.
//!
//! A protocol notes the parts of a head in [`Parts`], each by its place, and gives the bytes at the
//! end. The checks of fields that are the same in all protocols are here.
//!
//! 1. No two fields of a name that must be unique pass.
//! 2. A Host field that passes is well-formed, and its parts are known.
//!
//! Names and values were judged before: which bytes may stand in them depends on the protocol.

use std::rc::Rc;

use bytes::Bytes;

use super::limits::{InvalidNames, Limits, Reading, Underscores};
use super::place::{FieldLine, NameKind, Span};
use super::request::{HostPlace, Parts, RequestHead};
use super::{Host, Refusal};
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
    pub(crate) fn add_field(
        &mut self,
        line: &[u8],
        (start, parsed, known): (usize, &FieldLine, Known),
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let is_valid = match parsed.kind {
            NameKind::Plain => true,
            NameKind::Underscored => limits.underscores == Underscores::Allow,
            NameKind::Odd => false,
        };
        if !is_valid && limits.invalid == InvalidNames::Ignore {
            return Ok(());
        }
        if self.spans.len() >= limits.fields {
            return Err(Refusal::TooManyFields);
        }
        if UNIQUE.contains(known) && self.present.contains(known) {
            if limits.reading == Reading::AsNginx || !LISTS.contains(known) {
                return Err(Refusal::DuplicateField(known));
            }
            self.repeated = Some(known);
        }
        let trimmed;
        let parsed = match limits.reading {
            Reading::AsNginx => parsed,
            Reading::ByRfc => {
                trimmed = parsed.trimmed(line);
                &trimmed
            }
        };
        if known == Known::Host {
            let host = Host::parse(line.get(parsed.value.clone()).unwrap_or_default());
            let host = host.ok_or(Refusal::InvalidHost)?;
            self.host = HostPlace {
                name_len: u32::try_from(host.name.len()).map_err(|_| Refusal::HeaderTooLarge)?,
                port: host.port,
                has_capitals: host.has_capitals,
            };
        }
        let span = Span::new(start, parsed, known).ok_or(Refusal::HeaderTooLarge)?;
        self.present.insert(known);
        self.spans.push(span);
        Ok(())
    }
}
