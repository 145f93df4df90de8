//! Events of a connection: what its owner is told, in the order in which it happened.
//!
//! 1. Of a stream the head comes first, then bytes, then its end; behind [`Event::Gone`] comes
//!    nothing.
//! 2. Every stream that was told of is [released](super::Connection::release) by its owner, once.

use std::rc::Rc;

use bytes::Bytes;

use super::code::{Code, Fault};
use crate::head::{Refused, RequestHead};
use crate::header::Fields;
use crate::http2::BodyLength;

/// The reason why a stream ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The peer has reset its side, or wants no answer.
    ByPeer(Code),
    /// We have reset it for a fault of the peer.
    ByFault(Fault),
}

/// An event. All numbers are those of QUIC's streams.
#[derive(Debug)]
pub enum Event {
    /// A request has come.
    Request {
        /// The stream.
        stream: u64,
        /// The head.
        head: Rc<RequestHead>,
        /// The length of the body.
        body: BodyLength,
    },
    /// A request has come that HTTP does not allow: it is to be answered by an error.
    Refused {
        /// The stream.
        stream: u64,
        /// The reason, and what was read.
        refused: Refused,
    },
    /// Bytes of a body, which are to be [consumed](super::Connection::consume).
    Data {
        /// The stream.
        stream: u64,
        /// The bytes, one at least.
        bytes: Bytes,
    },
    /// The end of a body, or of a message without one.
    End {
        /// The stream.
        stream: u64,
        /// Trailers, if any came.
        trailers: Option<Fields>,
    },
    /// A body, or its trailers, that HTTP does not allow; nothing more is told of it. It may be
    /// answered by 400 if it has not been answered; else the stream is to be reset.
    Malformed {
        /// The stream.
        stream: u64,
        /// The reason.
        fault: Fault,
    },
    /// The stream has ended before its time. Of one whose head had not come nothing is told.
    Gone {
        /// The stream.
        stream: u64,
        /// The reason.
        why: Gone,
    },
    /// A stream that had no room for a body has some.
    Room {
        /// The stream.
        stream: u64,
    },
    /// A stream that was not to be read may be read again.
    Wanted {
        /// The stream.
        stream: u64,
    },
    /// All of an answer that was ended was taken by the transport.
    Sent {
        /// The stream.
        stream: u64,
    },
    /// The peer lets no more pushes come, of which there are none: it will leave.
    GoneAway,
    /// The peer has told its settings.
    Settings,
    /// The connection is over for a fault of the peer: the transport is to be closed with
    /// [`Fault::code`].
    Failed(Fault),
}
