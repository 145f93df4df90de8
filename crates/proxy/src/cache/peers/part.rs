//! Questions of peers for a body in slices: bytes of one extent, and of one version.
//!
//! ```text
//!  entry of the version that is asked for ─────────────► the bytes
//!  entry of another one ─► validated at the origin ──┬─► that version after all: the bytes
//!                                                    └─► 412: who asks has one that is gone
//!  entry of a version that who asks found to be gone ──► validated before it is used
//! ```
//!
//! 1. A peer is given bytes of no other version than it asks for, and none for a version that this
//!    node has not just found to be another one at the origin.
//! 2. No run of this node is read for a peer that may itself wait for a peer: what is read lies in
//!    an extent that is owned here.

use std::ops::Range;

use millpond_cache::extent::Extents;
use millpond_cache::head::StoredHead;
use millpond_cache::slice::version::Validator;
use millpond_wire::header::Known;

use super::field::{DIGEST_LEN, digest};
use crate::request::Request;

/// The status for who asks for a version that is gone (RFC 9110 §15.5.13).
pub(in crate::cache) const OTHER_VERSION: u16 = 412;

/// The status for who asks for what another node owns (RFC 9110 §15.5.20).
pub(in crate::cache) const NO_PART: u16 = 421;

/// A note of a request: a peer's question.
pub(super) struct OfPeer {
    /// The extents of bodies, where they have several.
    pub(super) extents: Option<Extents>,
    /// Number of the extent that is asked for.
    pub(super) number: Option<u32>,
    /// Digest of a validator whose version is gone.
    pub(super) gone: Option<[u8; DIGEST_LEN]>,
}

/// Worth of an entry for what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum Fit {
    /// The version that is asked for, or any will do.
    Asked,
    /// Version that who asks found to be gone.
    Doubted,
    /// Another version than is asked for.
    Other,
}

/// True for a peer's question for a part of a body.
pub(in crate::cache) fn is_of_body(req: &Request) -> bool {
    let asked: Option<&OfPeer> = req.notes.get();
    asked.is_some_and(|asked| asked.number.is_some())
}

/// Judges an entry that was found.
pub(in crate::cache) fn judge(req: &Request, head: &StoredHead) -> Fit {
    let Some(asked) = req.notes.get::<OfPeer>() else {
        return Fit::Asked;
    };
    let version = Validator::stored(head).if_range();
    let wanted = req.field(Known::IfRange);
    if wanted.is_some() && wanted != version.as_deref() {
        return Fit::Other;
    }
    let is_doubted = asked.gone.is_some() && version.map(|it| digest(&it)) == asked.gone;
    if is_doubted { Fit::Doubted } else { Fit::Asked }
}

/// True if a range may be read for who asks, of a body with slices of `size`. INVARIANT 2.
pub(in crate::cache) fn may_read(req: &Request, size: u64, wanted: &Range<u64>) -> bool {
    let Some(asked) = req.notes.get::<OfPeer>() else {
        return true;
    };
    let number = asked.number.unwrap_or(0);
    asked
        .extents
        .is_none_or(|extents| extents.has(size, number, wanted))
}
