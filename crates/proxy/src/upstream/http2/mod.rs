//! HTTP/2 to peers: `proxy_http_version 2` and `grpc_pass`.
//!
//! ```text
//! Prepared (head, body) ─► request::open ─► Session ─► talk: up to the answer's head
//!                                             ▲                  │
//! idle (keepalive.rs) ◄── the stream's end ◄──┴── StreamBody ◄───┘
//! ```
//!
//! The engine is `wire::http2`, in the role of a client; a [`Session`](session::Session) is one
//! with the times and the account of its connection. A connection carries one stream after the
//! other, as nginx does it; all that belongs to one stream is in [`StreamBody`](body::StreamBody).
//! With `keepalive_streams` several share a [`Line`](line::Line); a stream asks its
//! [`Carrier`](carrier::Carrier), which is one or the other.
//! `docs/decisions/0013-streams-to-origins-share-connections.md` has the reasons.
//!
//! Invariants:
//! 1. What a peer sends is read only as fast as somebody takes it: a connection holds one read.
//! 2. A request's body goes on while its answer is sent, until the answer has ended.
//! 3. A connection is used again only when both ends have ended the stream, the peer has not said
//!    that it goes away, and no part of a frame is left.

pub mod body;
pub mod carrier;
mod lanes;
pub mod line;
pub mod lines;
mod request;
pub mod session;
mod share;
mod talk;
pub mod upload;
mod words;
