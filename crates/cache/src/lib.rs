//! The cache: policies and machines.
//!
//! ```text
//! request ──► step (one per request) ──► verdict (pure) ──► serve | wait | fetch | pass
//!                                │                                    │
//!                                └──────── fill (one per entry) ◄─────┘ ──► store
//! ```
//!
//! - `verdict`: what a stored head is worth now; no I/O, no clock.
//! - [`fill`]: at most one origin request per missing entry, shared by all who want it.
//! - [`step`]: one request's walk from its key to an answer.
//!
//! The origin is a trait ([`exchange::Exchange`]); this crate never names a socket. Each policy is
//! a family of directives in the file that obeys it; all are named for `proxy` and mean the same
//! for the other protocols.

pub mod admit;
pub mod args;
pub mod bypass;
pub mod cached_only;
pub mod catalogue;
mod clock;
pub mod conformance;
pub mod copies;
pub mod dictionaries;
pub mod disk_timeout;
pub mod encoded;
pub mod encoding;
pub mod exchange;
pub mod extent;
pub mod fill;
pub mod head;
pub mod heir;
pub mod hit_for_pass;
pub mod ignore;
pub(crate) mod invalidate;
pub mod key;
pub mod key_mark;
pub mod lag;
pub mod max_variants;
pub mod method;
pub mod no_vary_search;
pub mod purge;
pub mod range;
pub mod reason;
mod recent;
pub mod refresh_backoff;
pub mod revalidate;
pub mod rule_counts;
pub mod ruling;
pub mod shared_head;
pub mod site;
pub mod slice;
pub mod status;
pub mod step;
pub mod tag;
pub mod targeted;
pub mod tier_path;
pub mod unstored;
pub mod upkeep;
pub mod use_stale;
pub mod valid;
pub mod variant;
pub mod vary_as;
pub mod verdict;
pub mod watch;
pub mod why;
pub mod window;
pub mod zone;
