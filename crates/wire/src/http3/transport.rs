//! The streams of QUIC, as the machine writes to them.
//!
//! 1. A stream that was finished or reset is not written to any more.
//!
//! The way of bytes into packets, and their sending again, is the transport's business.

use bytes::Bytes;

use super::code::Code;

/// The reason why a stream takes no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// A stream without room now; [`Connection::writable`](super::Connection::writable) is called
    /// when it has some.
    Blocked,
    /// A stream that takes none any more: the peer has stopped it, or it is gone, of which the
    /// machine hears by another way.
    Gone,
}

/// Streams that can be written to.
pub trait Transport {
    /// Takes bytes that a stream sends next: those at the begin of `pieces`, as many as there is
    /// room for. They are taken off: a piece that was taken as a whole is empty, of one that was
    /// taken in part the rest is left. Returns how many bytes were taken.
    ///
    /// # Errors
    /// Nothing was taken.
    fn send(&mut self, stream: u64, pieces: &mut [Bytes]) -> Result<usize, Unsent>;

    /// Ends what is sent on a stream.
    fn finish(&mut self, stream: u64);

    /// Breaks off what is sent on a stream (RESET_STREAM).
    fn reset(&mut self, stream: u64, code: Code);

    /// Refuses what comes on a stream (STOP_SENDING); it is not read any more.
    fn stop(&mut self, stream: u64, code: Code);
}

/// Frames of QUIC that have come of a connection and that each make us send one (RFC 9000 §19.2,
/// §19.15 to §19.17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chatter {
    /// PING and PATH_CHALLENGE.
    pub pings: u64,
    /// NEW_CONNECTION_ID and RETIRE_CONNECTION_ID.
    pub identifiers: u64,
}
