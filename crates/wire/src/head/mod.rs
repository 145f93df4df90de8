//! Heads of requests, the same type whatever protocol they came in.
//!
//! ```text
//! HTTP/1 text ────► http1::request ─┐
//!                                   ├─► builder ──► RequestHead
//! HTTP/2 fields ──► http2::request ─┘
//! ```
//!
//! A head owns its bytes, and knows the places of its parts in them. Those who use one need not
//! know where it came from, except by its [`Version`].
//!
//! Sources: RFC 9110 §6, §7, §9; nginx where configurations rely on it.

pub(crate) mod builder;
pub mod host;
mod length;
mod limits;
pub mod method;
pub(crate) mod place;
mod refusal;
pub(crate) mod request;
mod safe;
mod upgrade;
mod version;

pub use builder::give_back;
pub use host::Host;
pub use length::content_length;
pub use limits::{Connect, InvalidNames, Limits, Reading, Underscores};
pub use method::Method;
pub use refusal::{Refusal, Refused};
pub use request::{FieldRef, Framing, RequestHead};
pub use upgrade::to_upgrade;
pub use version::Version;
