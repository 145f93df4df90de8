//! Error codes (RFC 9113 §7), and the faults of a peer that each is told for.
//!
//! 1. Every fault has one code, and one text for the log; nginx's where it has one.
//!
//! Whether a fault ends a stream or the connection is said by who finds it.

use super::flood::Flood;
use super::hpack::decode::BadBlock;

/// The reason that a stream or a connection ends for, as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// No error: the end as it should be.
    pub const NO_ERROR: Code = Code(0);
    /// A fault that has no code of its own.
    pub const PROTOCOL_ERROR: Code = Code(1);
    /// Our own fault.
    pub const INTERNAL_ERROR: Code = Code(2);
    /// More bytes than a window had, or a window that is too large.
    pub const FLOW_CONTROL_ERROR: Code = Code(3);
    /// Settings were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Code = Code(4);
    /// A frame on a stream that has ended.
    pub const STREAM_CLOSED: Code = Code(5);
    /// A frame of a wrong size.
    pub const FRAME_SIZE_ERROR: Code = Code(6);
    /// A stream that was not looked at: it is safe to ask again.
    pub const REFUSED_STREAM: Code = Code(7);
    /// A stream that is wanted no longer.
    pub const CANCEL: Code = Code(8);
    /// A block of fields that cannot be read.
    pub const COMPRESSION_ERROR: Code = Code(9);
    /// The other end of a CONNECT broke off.
    pub const CONNECT_ERROR: Code = Code(10);
    /// The peer makes too much work.
    pub const ENHANCE_YOUR_CALM: Code = Code(11);
    /// The transport is not safe enough.
    pub const INADEQUATE_SECURITY: Code = Code(12);
    /// The request is to come by HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Code = Code(13);
}

/// A fault of the peer. The text is for the log, behind "client sent" or "upstream sent".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The connection does not begin as one of HTTP/2.
    #[error("invalid connection preface")]
    Preface,
    /// A frame of a wrong length.
    #[error("frame with incorrect length")]
    FrameLength,
    /// A frame longer than what was agreed on.
    #[error("frame longer than its maximum")]
    FrameTooLong,
    /// More padding than there are bytes.
    #[error("padded frame with incorrect length")]
    Padding,
    /// A frame with a stream where there is none, or without one.
    #[error("frame with incorrect identifier")]
    StreamId,
    /// A stream that may not begin with this number.
    #[error("HEADERS frame with incorrect identifier")]
    BackwardStream,
    /// A frame for a stream that has not begun.
    #[error("frame for an idle stream")]
    IdleStream,
    /// A frame for a stream that the peer has ended.
    #[error("frame for a closed stream")]
    ClosedStream,
    /// A stream that depends on itself.
    #[error("frame with incorrect dependency")]
    SelfDependency,
    /// PUSH_PROMISE, which nobody may send here.
    #[error("PUSH_PROMISE frame")]
    Push,
    /// Another frame in the middle of a block.
    #[error("inappropriate frame while CONTINUATION was expected")]
    ContinuationExpected,
    /// CONTINUATION of nothing.
    #[error("unexpected CONTINUATION frame")]
    UnexpectedContinuation,
    /// A value that a setting cannot have.
    #[error("SETTINGS frame with incorrect value")]
    SettingValue,
    /// An initial window that is too large.
    #[error("SETTINGS frame with incorrect INITIAL_WINDOW_SIZE value")]
    SettingWindow,
    /// An update by nothing.
    #[error("WINDOW_UPDATE frame with incorrect window increment 0")]
    ZeroUpdate,
    /// A window that would be too large.
    #[error("WINDOW_UPDATE frame that violates flow control")]
    WindowOverflow,
    /// More bytes than a window had.
    #[error("DATA frame that violates flow control")]
    WindowExceeded,
    /// A block of fields that cannot be read.
    #[error("{0}")]
    Block(BadBlock),
    /// A block of more bytes or frames than are read.
    #[error("too large header block")]
    LongBlock,
    /// More trailers than one, or trailers that do not end the stream.
    #[error("HEADERS frame in the middle of a body")]
    SecondHead,
    /// Trailers, or an answer, that HTTP does not allow.
    #[error("malformed message")]
    Malformed,
    /// More bytes of a body than its length says.
    #[error("body data larger than declared")]
    BodyTooLong,
    /// Fewer bytes of a body than its length says.
    #[error("prematurely ended stream")]
    BodyTooShort,
    /// A new stream too many.
    #[error("too many concurrent streams")]
    TooManyStreams,
    /// A new stream with a body before the window of streams was acknowledged.
    #[error("stream with data before settings were acknowledged")]
    EarlyData,
    /// More streams that were refused than are borne.
    #[error("too many refused streams")]
    TooManyRefused,
    /// Something that costs the peer little, more often than is borne.
    #[error("http2 flood: {0}")]
    Flood(Flood),
    /// A PRIORITY_UPDATE that cannot be read.
    #[error("invalid PRIORITY_UPDATE frame")]
    PriorityUpdate,
}

impl Fault {
    /// The flood that a fault is, if it is one: what makes more work than is borne, whatever else
    /// is wrong with it.
    #[must_use]
    pub fn flood(self) -> Option<Flood> {
        match self {
            Fault::Flood(flood) => Some(flood),
            Fault::LongBlock | Fault::Block(BadBlock::LongText | BadBlock::LongList) => {
                Some(Flood::LongHeads)
            }
            Fault::TooManyRefused => Some(Flood::RefusedStreams),
            _ => None,
        }
    }

    /// The code that the peer is told.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Fault::FrameLength | Fault::FrameTooLong => Code::FRAME_SIZE_ERROR,
            // RFC 9113 §4.2: too small to hold what it must; and nginx.
            Fault::Block(BadBlock::Truncated) => Code::FRAME_SIZE_ERROR,
            Fault::Block(BadBlock::NoName) => Code::PROTOCOL_ERROR,
            Fault::Block(BadBlock::LongText | BadBlock::LongList) | Fault::LongBlock => {
                Code::ENHANCE_YOUR_CALM
            }
            Fault::Block(_) => Code::COMPRESSION_ERROR,
            Fault::SettingWindow | Fault::WindowOverflow | Fault::WindowExceeded => {
                Code::FLOW_CONTROL_ERROR
            }
            Fault::ClosedStream => Code::STREAM_CLOSED,
            Fault::TooManyStreams | Fault::EarlyData => Code::REFUSED_STREAM,
            // nginx.
            Fault::TooManyRefused => Code::NO_ERROR,
            Fault::Flood(_) => Code::ENHANCE_YOUR_CALM,
            _ => Code::PROTOCOL_ERROR,
        }
    }
}
