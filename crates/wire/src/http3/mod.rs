//! HTTP/3 without I/O: bytes of QUIC streams go in, events come out; calls go in, bytes of streams
//! come out. The machine of a server's connection.
//!
//! ```text
//! receive, receive_end … ─► Connection ─► next_event ─► Event     frame, qpack, block
//! send_answer, push, finish … ─► scheduler ─► flush ─► Transport ─► QUIC
//! ```
//!
//! 1. No input panics, loops, or is held beyond the bounds of `limits` and [`Config`], as long as
//!    its giver obeys [`Connection::wants_input`].
//! 2. What comes out does not depend on how the input was cut into pieces, nor on the order in
//!    which the pieces of different streams came, but for what says so.
//! 3. No block of fields that goes out can block its reader: it refers to what was acknowledged.
//! 4. After a fault of the connection nothing more is read or written: the transport tells the peer
//!    why.
//!
//! Parts that are the same in HTTP/2 are used from there: names, values, requests, messages,
//! priorities and their scheduler, Huffman's code, dynamic tables.
//!
//! Not here: QUIC, TLS, clocks (a time is given), pushes, datagrams.
//!
//! Sources: RFC 9114, RFC 9204, RFC 9218, RFC 9220; nginx 1.31 (`src/http/v3`).

pub mod code;
pub mod connection;
pub mod event;
pub mod flood;
pub(crate) mod frame;
pub(crate) mod limits;
pub mod qpack;
pub(crate) mod settings;
pub(crate) mod stream;
pub mod transport;

/// The name of the protocol in handshakes of TLS (RFC 9114 §3.1).
pub const ALPN: &[u8] = b"h3";
/// The name of HTTP/0.9 on streams of QUIC, which tests of interoperability ask for.
pub const PLAIN_ALPN: &[u8] = b"hq-interop";

pub use code::{Code, Fault};
pub use connection::{Config, Connection, Dialect, End, Farewell, HeadWriter};
pub use event::{Event, Gone};
pub use flood::{FLOODS, Flood};
pub use transport::{Chatter, Transport, Unsent};
