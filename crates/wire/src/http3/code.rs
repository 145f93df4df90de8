//! Error codes (RFC 9114 §8.1, RFC 9204 §6), and the faults of a peer that each is told for.
//!
//! 1. Every fault has one code, and one text for the log.
//!
//! The end of a stream or of the connection by a fault is decided by whoever finds it.

use super::flood::Flood;
use super::qpack::BadBlock;

/// The reason that a stream or a connection ends for, as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

impl Code {
    /// No error: the end as it should be.
    pub const NO_ERROR: Code = Code(0x100);
    /// A fault that has no code of its own.
    pub const GENERAL_PROTOCOL_ERROR: Code = Code(0x101);
    /// Our own fault.
    pub const INTERNAL_ERROR: Code = Code(0x102);
    /// A stream that may not be opened.
    pub const STREAM_CREATION_ERROR: Code = Code(0x103);
    /// The end of a stream that must last as long as the connection.
    pub const CLOSED_CRITICAL_STREAM: Code = Code(0x104);
    /// A frame where it may not stand.
    pub const FRAME_UNEXPECTED: Code = Code(0x105);
    /// A frame of a wrong shape or size.
    pub const FRAME_ERROR: Code = Code(0x106);
    /// The peer makes too much work.
    pub const EXCESSIVE_LOAD: Code = Code(0x107);
    /// A number that may not be used.
    pub const ID_ERROR: Code = Code(0x108);
    /// A setting that may not be.
    pub const SETTINGS_ERROR: Code = Code(0x109);
    /// Another frame before the settings.
    pub const MISSING_SETTINGS: Code = Code(0x10a);
    /// A request that was not looked at: it is safe to ask again.
    pub const REQUEST_REJECTED: Code = Code(0x10b);
    /// A request, or its answer, that is wanted no longer.
    pub const REQUEST_CANCELLED: Code = Code(0x10c);
    /// A request that ended before it was whole.
    pub const REQUEST_INCOMPLETE: Code = Code(0x10d);
    /// A message that is none.
    pub const MESSAGE_ERROR: Code = Code(0x10e);
    /// The other end of a CONNECT broke off.
    pub const CONNECT_ERROR: Code = Code(0x10f);
    /// The request is to come by HTTP/1.1.
    pub const VERSION_FALLBACK: Code = Code(0x110);
    /// A block of fields that cannot be read.
    pub const DECOMPRESSION_FAILED: Code = Code(0x200);
    /// Instructions for our table that cannot be obeyed.
    pub const ENCODER_STREAM_ERROR: Code = Code(0x201);
    /// Acknowledgements of what was not sent.
    pub const DECODER_STREAM_ERROR: Code = Code(0x202);
}

/// A fault of the peer. The text is for the log, behind "client sent".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A stream of a kind that the peer may not open, or has opened before.
    #[error("stream of an inappropriate kind")]
    StreamKind,
    /// The end of a stream that must last.
    #[error("end of a critical stream")]
    CriticalStream,
    /// A frame where it may not stand.
    #[error("unexpected frame")]
    UnexpectedFrame,
    /// A frame whose payload has another length than what it must hold.
    #[error("frame with incorrect length")]
    FrameLength,
    /// A stream that ends within a frame.
    #[error("truncated frame")]
    TruncatedFrame,
    /// Another frame before the settings.
    #[error("no SETTINGS frame")]
    NoSettings,
    /// A setting that may not be, or comes twice.
    #[error("invalid SETTINGS frame")]
    Settings,
    /// A number of a stream or a push that may not be.
    #[error("frame with incorrect identifier")]
    Id,
    /// A block of fields that cannot be read.
    #[error("{0}")]
    Block(BadBlock),
    /// More blocked streams than we allow.
    #[error("too many blocked streams")]
    TooManyBlocked,
    /// Instructions for our table that cannot be obeyed.
    #[error("invalid instruction for the dynamic table")]
    EncoderInstruction,
    /// Acknowledgements of what was not sent.
    #[error("invalid acknowledgement of the dynamic table")]
    DecoderInstruction,
    /// A request whose stream ended before its head.
    #[error("request without a head")]
    NoHead,
    /// Trailers that HTTP does not allow.
    #[error("malformed message")]
    Malformed,
    /// Trailers that are longer than what is read.
    #[error("too large trailers")]
    LongTrailers,
    /// More bytes of a body than its length says.
    #[error("body data larger than declared")]
    BodyTooLong,
    /// Fewer bytes of a body than its length says.
    #[error("prematurely ended stream")]
    BodyTooShort,
    /// More requests that were rejected than are borne.
    #[error("too many rejected requests")]
    TooManyRejected,
    /// Something that costs the peer little, more often than is borne.
    #[error("http3 flood: {0}")]
    Flood(Flood),
}

impl Fault {
    /// The flood that a fault is, if it is one: what makes more work than is borne, whatever else
    /// is wrong with it.
    #[must_use]
    pub fn flood(self) -> Option<Flood> {
        match self {
            Fault::Flood(flood) => Some(flood),
            Fault::TooManyBlocked => Some(Flood::BlockedStreams),
            Fault::TooManyRejected => Some(Flood::RejectedRequests),
            _ => None,
        }
    }

    /// The code that the peer is told.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Fault::StreamKind => Code::STREAM_CREATION_ERROR,
            Fault::CriticalStream => Code::CLOSED_CRITICAL_STREAM,
            Fault::UnexpectedFrame => Code::FRAME_UNEXPECTED,
            Fault::FrameLength | Fault::TruncatedFrame => Code::FRAME_ERROR,
            Fault::NoSettings => Code::MISSING_SETTINGS,
            Fault::Settings => Code::SETTINGS_ERROR,
            Fault::Id => Code::ID_ERROR,
            Fault::Block(_) | Fault::TooManyBlocked => Code::DECOMPRESSION_FAILED,
            Fault::EncoderInstruction => Code::ENCODER_STREAM_ERROR,
            Fault::DecoderInstruction => Code::DECODER_STREAM_ERROR,
            Fault::NoHead => Code::REQUEST_INCOMPLETE,
            Fault::Malformed | Fault::LongTrailers => Code::MESSAGE_ERROR,
            Fault::BodyTooLong | Fault::BodyTooShort => Code::MESSAGE_ERROR,
            Fault::TooManyRejected | Fault::Flood(_) => Code::EXCESSIVE_LOAD,
        }
    }
}
