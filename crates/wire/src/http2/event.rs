//! Events of a connection: what its owner is told, in the order in which it happened.
//!
//! 1. Of a stream the head comes first, then bytes, then its end; behind [`Event::Gone`] comes
//!    nothing.
//! 2. Every stream that was told of is [released](super::Connection::release) by its owner, once.

use std::rc::Rc;

use bytes::Bytes;

use super::code::{Code, Fault};
use super::message::BodyLength;
use crate::head::{Refused, RequestHead};
use crate::header::Fields;

/// The reason why a stream ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The peer has reset it.
    ByPeer(Code),
    /// We have reset it for a fault of the peer.
    ByFault(Fault),
    /// The peer goes away, and has not looked at it.
    Unprocessed,
}

impl Gone {
    /// True if the peer has done nothing with the request (RFC 9113 §8.7).
    #[must_use]
    pub fn is_safe_to_retry(self) -> bool {
        matches!(self, Gone::Unprocessed | Gone::ByPeer(Code::REFUSED_STREAM))
    }
}

/// An event. All numbers are those of streams.
#[derive(Debug)]
pub enum Event {
    /// A request has come, to a server.
    Request {
        /// The stream.
        stream: u32,
        /// The head.
        head: Rc<RequestHead>,
        /// The length of the body.
        body: BodyLength,
    },
    /// A request has come that HTTP does not allow: it is to be answered by an error.
    Refused {
        /// The stream.
        stream: u32,
        /// The reason, and what was read.
        refused: Refused,
    },
    /// An interim answer has come, to a client.
    Interim {
        /// The stream.
        stream: u32,
        /// The status.
        status: u16,
        /// The fields.
        fields: Fields,
    },
    /// The head of an answer has come, to a client.
    Answer {
        /// The stream.
        stream: u32,
        /// The status.
        status: u16,
        /// The fields.
        fields: Fields,
        /// The length of the body.
        body: BodyLength,
        /// Bytes that the head took.
        head_len: usize,
    },
    /// Bytes of a body, which are to be [consumed](super::Connection::consume).
    Data {
        /// The stream.
        stream: u32,
        /// The bytes, one at least.
        bytes: Bytes,
    },
    /// The end of a body, or of a message without one.
    End {
        /// The stream.
        stream: u32,
        /// Trailers, if any came.
        trailers: Option<Fields>,
    },
    /// A body, or its trailers, that HTTP does not allow; nothing more is told of it. A server may
    /// answer by 400 if it has not answered; else the stream is to be reset.
    Malformed {
        /// The stream.
        stream: u32,
        /// The reason.
        fault: Fault,
    },
    /// The stream has ended before its time.
    Gone {
        /// The stream.
        stream: u32,
        /// The reason.
        why: Gone,
    },
    /// A stream that had no room for a body has some.
    Room {
        /// The stream.
        stream: u32,
    },
    /// All of an answer or a request that was ended was written out.
    Sent {
        /// The stream.
        stream: u32,
    },
    /// The peer opens no more streams, and lets none be opened.
    GoneAway {
        /// The last stream that it looks at.
        last: u32,
        /// The reason.
        code: Code,
    },
    /// The peer has obeyed our settings.
    SettingsAcknowledged,
    /// The peer has told its settings, or changed them.
    SettingsChanged,
    /// The peer has answered a PING.
    Pong([u8; 8]),
    /// The connection is over for a fault of the peer: what is to be written says so.
    Failed(Fault),
}

impl Event {
    /// The stream that it is about; none if it is about the connection.
    #[must_use]
    pub fn stream(&self) -> Option<u32> {
        match self {
            Event::Request { stream, .. }
            | Event::Refused { stream, .. }
            | Event::Interim { stream, .. }
            | Event::Answer { stream, .. }
            | Event::Data { stream, .. }
            | Event::End { stream, .. }
            | Event::Malformed { stream, .. }
            | Event::Gone { stream, .. }
            | Event::Room { stream }
            | Event::Sent { stream } => Some(*stream),
            Event::GoneAway { .. }
            | Event::SettingsAcknowledged
            | Event::SettingsChanged
            | Event::Pong(_)
            | Event::Failed(_) => None,
        }
    }
}
