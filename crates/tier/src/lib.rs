//! The second tier of a fleet's cache: copies of entries as objects in a store that all nodes share
//! (S3, Google Cloud Storage, Azure Blob Storage, a folder).
//!
//! ```text
//!   hit, the n-th ──► offer ──► queue ──► "tier ZONE": slices, then the head ──► objects
//!                                                                                  │
//!   miss ──► question ──► head ──► judged by the ledger of the log ──► slices ◄────┘
//!                          └─ anything else: a miss, and the origin is asked
//! ```
//!
//! What the tier says is used as an answer of the origin that came at the time at which the entry
//! was stored: it is filled into the zone, shared by all who wait, and judged by the location.
//!
//! 1. A copy is used only if no purge that is about it stands in the log behind the position that
//!    its head names, as far as the log was read to an end that is no earlier than what the zone
//!    knew when its fill began (`millpond_fleet::ledger`), and while it is fresh. So what was
//!    purged never comes back, whoever wrote it when, and whatever was lost here.
//! 2. The position in a head is one up to which no purge was about the entry that is copied
//!    (`PurgeBook::position_untouched`), asked before the entry was found in the zone once more.
//! 3. No byte is handed out that is not of a slice whose checksum the head names.
//! 4. No request waits for a write, and one bounded time for a read. What fails is a miss; a tier
//!    that fails again and again is left alone for a while.
//! 5. A body that was begun ends: it is small enough to be read whole before it is used, or the
//!    origin can be asked for the rest.
//! 6. Everything is bounded: what waits to be written, what is read at once, what an object may
//!    have.
//!
//! - `place`: names of objects
//! - `head`: the object that says what a copy is
//! - `counts`: what happened
//! - `circuit`: whether a tier that failed is asked
//! - `objects`: the store, with limits of time and size
//! - `shared`: what the parts of a tier share
//! - `judge`: which copies may be used, or stay
//! - `read`: from a question to a copy
//! - `write`: from an offer to a copy
//! - `tier`: the thread of one tier
//! - `tiers`: all tiers of a process, over reloads

pub mod circuit;
pub mod counts;
pub mod head;
pub mod judge;
pub mod objects;
pub mod place;
pub mod read;
mod shared;
pub mod tier;
pub mod tiers;
mod write;

pub use tier::Tier;
pub use tiers::Tiers;
