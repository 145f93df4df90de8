//! Certificates from authorities that speak ACME (RFC 8555): ordered, kept, renewed.
//!
//! ```text
//! configuration ─► Issuer, Ordered ─► Tender: a thread that orders and renews
//!                              │
//!                   handshakes take what is there
//! ```
//!
//! It knows no configuration's language and no server: whoever has those gives it [`Work`], answers
//! authorities with what [`challenge`] shows, and takes certificates from [`Ordered`].
//!
//! 1. No handshake and no request waits for an authority or a disk.
//! 2. Nothing that an authority sends, and nothing that stands in a file, makes it panic.

pub mod base64url;
pub mod challenge;
mod client;
pub mod csr;
mod error;
pub mod http;
pub mod identifier;
pub mod issued;
pub mod issuer;
mod jws;
pub mod key;
pub mod ordered;
mod resource;
mod round;
mod schedule;
pub mod state;
pub mod tend;
pub mod url;
mod work;

pub use identifier::Identifier;
pub use issuer::Issuer;
pub use key::KeyKind;
pub use ordered::Ordered;
pub use tend::Tender;
pub use work::Work;

/// Looks for the certificates of a plan in the folders, before anybody asks for them.
pub fn load(plan: &[Work]) {
    for work in plan {
        for ordered in &work.orders {
            round::load(&work.issuer, ordered);
        }
    }
}
