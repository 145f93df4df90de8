//! HTTP/1 without I/O: bytes go in, heads and body pieces come out, and the other way round.
//!
//! ```text
//! client  ── BytesMut ──► request::RequestParser ──► RequestHead ──► framing ──┐
//!                         chunked::ChunkedDecoder ◄── body bytes ◄─────────────┘
//! upstream ─ BytesMut ──► response::ResponseParser ─► ResponseHead ─► framing ─► …
//! encode::{response head, request head}, chunked::{chunk head, last chunk} ──► BytesMut
//! ```
//!
//! Every parser is called with all bytes that have come and not been consumed, says whether it
//! needs more, and remembers how far it has looked.
//!
//! 1. A parser never looks at the same byte of an unfinished line twice when it searches the end
//!    of a line, so a peer that sends byte by byte costs no more than one that does not.
//! 2. The result does not depend on how the input was cut into pieces.
//! 3. Nothing is consumed from the buffer before a head or a piece of a body is complete, except
//!    empty lines before a request; then exactly its bytes are.
//! 4. No input makes a parser panic, loop, or keep more than its limits allow.
//! 5. A message whose length two parties could read differently is refused, never repaired.
//!
//! What it does not do: sockets, clocks, decoding of URIs, choosing servers, deciding what to
//! answer. HTTP/2 is elsewhere.
//!
//! Sources: RFC 9112; RFC 9110 §5, §7.6, §8.6; the behaviour of nginx 1.31 where the RFCs leave
//! room or where configurations rely on it. Each departure from nginx is named where it is made.

pub mod chunked;
pub mod encode;
mod line;
pub mod request;
pub mod response;

pub use crate::head::{Method, Version, content_length, host, method};
