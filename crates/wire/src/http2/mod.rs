//! HTTP/2 without I/O: bytes go in, events come out; calls go in, bytes come out. One machine for
//! both ends of a connection.
//!
//! ```text
//! bytes ─► Connection::next_event ─► Event            frame, hpack, request, message
//! calls ─► send_answer, push, finish … ─► scheduler ─► produce ─► Output ─► bytes
//! ```
//!
//! 1. No input panics, loops, or is held beyond the bounds of [`limits`] and [`Config`].
//! 2. What comes out does not depend on how the input was cut into pieces.
//! 3. Neither window is exceeded, at either level; nothing is sent that RFC 9113 lets nobody send.
//! 4. After a fault of the connection nothing more is read; what is to be written tells the peer
//!    why.
//!
//! Where the RFC leaves a choice, the answer is nginx's (its `src/http/v2`): malformed requests are
//! answered by 400, a stream that goes back in number ends the connection. Priorities are those of
//! RFC 9218, and for clients that say nothing by them those of RFC 7540.
//!
//! What it does not do: sockets, TLS, clocks (a time is given), HTTP/1's upgrade to `h2c`, pushes.
//!
//! Sources: RFC 9113, RFC 7541, RFC 9218, RFC 8441; nginx 1.31.

pub mod code;
pub mod connection;
pub mod event;
pub mod flood;
pub(crate) mod flow;
pub mod frame;
pub mod hpack;
pub mod limits;
pub mod message;
pub mod output;
pub mod priority;
pub mod request;
pub mod scheduler;
pub mod settings;
pub(crate) mod stream;
pub mod tree;

/// The name of the protocol in handshakes of TLS (RFC 9113 §3.2).
pub const ALPN: &[u8] = b"h2";

pub use code::{Code, Fault};
pub use connection::{Config, Connection, End, Farewell, GivenUp, HeadWriter, RequestLine, Role};
pub use event::{Event, Gone};
pub use flood::{FLOODS, Flood};
pub use message::BodyLength;
pub use output::Output;
pub use priority::{Manner, Priority};
pub use request::{ExtendedConnect, Rules};
pub use settings::PeerSettings;
