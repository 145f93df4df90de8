//! `slice`, `slice_prefetch`: large bodies that are fetched and kept in slices.
//!
//! ```text
//!               entry: head, generation, total length, size of a slice
//!   body   ├────0────┼────1────┼────2────┼────3────┼────4────┼──5──┤
//!               held      missing   └ being filled: a run ┘  missing
//! ```
//!
//! An entry in slices is one entry of the zone, whose head names its *generation*: one version of
//! the resource, by its strong validator and total length. Each slice is a record of its own in
//! the store, under a key made of generation and index, so which slices are held is what the store
//! knows, and a head that is removed or replaced takes all of them with it at once.
//!
//! - `head::set`: which slice holds a byte, and under which key.
//! - `version`: what names a version of a resource, and whether an answer is of it.
//! - `answer`: what an answer to a request for a range is worth.
//! - [`gone`]: versions that were found to be gone.
//! - [`generation`]: what is being filled of one generation; who may ask for what.
//! - `filling`: one slice while it arrives. `run`: neighbouring ones, and who reads along.
//!   `pump`: brings them.
//! - [`held`]: what is held, for who copies it.
//! - [`reader`]: the body for one client, out of what is held and what arrives.
//! - `table`: the generations in use, in a zone.
//!
//! Invariants:
//! 1. Bytes of two generations never stand in one body: each slice is read by its generation.
//! 2. No byte of a generation is asked for by two runs at one time, unless a reader is so far
//!    behind a run that others would wait for it.
//! 3. A run asks for no byte outside the slices that are wanted.
//! 4. A reader waits for no bytes but those of its slice, and what comes at once: a run that is
//!    further away than a slice and slow is cut, and the rest of it asked for anew.
//! 5. Where bodies are in extents, a run asks for bytes of one of them.
//! 6. A generation whose version is gone at the origin is retired: nothing more is asked for it,
//!    and its head leaves the zone.
//!
//! Sources: RFC 9110 §14 and §13.1.5, RFC 9111 §3.3 and §3.4.

pub(crate) mod answer;
pub(crate) mod filling;
pub mod generation;
pub mod gone;
pub mod held;
pub(crate) mod pump;
pub mod reader;
pub(crate) mod run;
pub(crate) mod table;
pub mod version;

use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ByteSize, OffOr, ParseContext, Word};
use millpond_semantics::range::RangeSpec;

/// The longest slice: a slice that is asked for from its middle on waits in memory for its
/// beginning. `slice` with a larger size cuts into slices of this one.
pub const SIZE_MAX: u64 = 4 << 20;
/// The slices of `slice auto`.
pub const SIZE_AUTO: u64 = 1 << 20;
/// The most memory, in a zone, of slices that wait for their beginning; ranges that begin deep in a
/// slice beyond that are asked for from the start of the slice (arbitrary: sixty-four megabytes are
/// as many slices of the usual size).
pub const TAILS_BYTES: u64 = 64 << 20;
/// The slices of ranges that lie ahead of a fill, which brings them, too: what is asked for twice.
pub const SIZE_AHEAD: u64 = 256 << 10;
/// The most that one request to an origin asks for, but for one slice (arbitrary: large enough
/// that a request more does not matter, small enough to be fetched for a client that has left).
pub const RUN_BYTES: u64 = 16 << 20;
/// The most slices that one request to an origin asks for (arbitrary: small slices are looked up
/// one by one).
pub const RUN_SLICES: u64 = 64;
/// The most slices of a body (arbitrary: four terabytes of the usual size). Who lists an entry
/// looks for each of them, so what an origin says of a length must not decide how many there are.
/// Ranges of longer bodies pass.
pub const SLICES_MAX: u64 = 1 << 22;
/// A range that begins this deep in a slice is asked for before the rest of the slice: less is
/// sooner read than asked for twice.
pub const DEEP: u64 = 64 << 10;

/// Manner in which bodies are sliced.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SlicePolicy {
    /// Keeps answers of the upstream in slices of this size, and asks the upstream only for those
    /// that requests touch; neighbouring ones together. `auto` takes small bodies whole, and large
    /// ones, or those that are first asked for by range, in slices of one megabyte. 0 switches it
    /// off.
    ///
    /// # Differs from nginx
    ///
    /// The size alone is enough: `$slice_range` in the cache key is empty, and the Range field of
    /// requests is made without it; the three lines that nginx needs mean the same. All slices
    /// are one entry. When the upstream's file changes, the entry is fetched anew. Answers
    /// without a strong validator are not kept in slices, as their versions cannot be told apart,
    /// unless they come from another protocol than HTTP. Slices are at most 4 megabytes long.
    /// Without a cache it is as in nginx.
    #[directive(name = "slice", default = "0")]
    pub size: SliceSize,
    /// Sets how many slices beyond the end of a range are fetched in advance for a client, or
    /// several, that ask for one range after the other. It begins with one, at the third request in
    /// order.
    #[directive(name = "slice_prefetch", default = "2")]
    pub prefetch: OffOr<PrefetchCount>,
}

/// Length of slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SliceSize {
    /// Bodies are not sliced.
    #[default]
    Off,
    /// The length is chosen by the body's.
    Auto,
    /// Length as configured, in bytes.
    Bytes(u64),
}

impl FromWord for SliceSize {
    const SYNTAX: &'static str = "auto | size";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        if word.text == "auto" {
            return Ok(SliceSize::Auto);
        }
        match ByteSize::from_word(word, cx)? {
            ByteSize(0) => Ok(SliceSize::Off),
            ByteSize(bytes) => Ok(SliceSize::Bytes(bytes)),
        }
    }
}

/// Number of slices that are fetched in advance, 1 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchCount(pub u64);

impl FromWord for PrefetchCount {
    const SYNTAX: &'static str = "number";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<Self, WordError> {
        match word.text.parse() {
            Ok(count @ 1..=16) => Ok(PrefetchCount(count)),
            _ => Err(WordError::Message(format!(
                "\"slice_prefetch\" must be \"off\" or a number from 1 to 16, not \"{}\"",
                word.text
            ))),
        }
    }
}

impl SlicePolicy {
    /// Slices to fetch in advance.
    pub fn prefetch(&self) -> u64 {
        match self.prefetch {
            OffOr::On(PrefetchCount(count)) => count,
            OffOr::Off => 0,
        }
    }
}

/// Wishes and limits of a request about slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slicing {
    /// Bytes of a slice of a new entry.
    pub size: u64,
    /// Part of a missing body that is asked for.
    pub first: First,
    /// Part of the body that the client asks for.
    pub client: ClientWish,
    /// True if the client's range counts for a version of its own alone (If-Range, RFC 9110
    /// §13.1.5).
    pub is_conditional: bool,
    /// True if what is stored is validated before it is used, however fresh it is.
    pub confirms: bool,
    /// Trust in answers without any validator: are they kept in slices?
    pub trust: Trust,
}

/// Part of a missing body that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The range that is wanted of the body is asked for.
    Range,
    /// The whole; a long one is kept in slices.
    Whole,
}

/// Part of a body that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientWish {
    /// The head alone.
    Head,
    /// The whole body.
    Whole,
    /// The client asks for this range, or for several of which this is the first.
    Range(RangeSpec),
}

/// Trust in answers without any validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Answers without any validator are not kept in slices.
    Validated,
    /// Answers without any validator are kept in slices: the total length names the version.
    Unvalidated,
}

impl ClientWish {
    /// True for a range.
    pub fn is_range(&self) -> bool {
        matches!(self, ClientWish::Range(_))
    }
}
