//! `http2`, `http2_max_concurrent_streams`, `http2_max_frame_size`, `http2_body_preread_size`,
//! `http2_chunk_size`: HTTP/2 for clients.
//!
//! Bounds of heads, times and numbers of requests are those of HTTP/1's directives.

use millpond_conf::ByteSize;
use millpond_wire::head::{Connect, Reading};
use millpond_wire::http2::{Config, ExtendedConnect, Rules};

use super::head::HeadPolicy;

/// Settings of HTTP/2 connections; obeyed before a request is there, so the values of the server
/// that the connection began with count.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server)]
pub struct Http2Policy {
    /// Lets connections speak HTTP/2: encrypted ones by agreement (ALPN), others by prior
    /// knowledge, that is, if they begin with the preface of HTTP/2.
    #[directive(name = "http2", default = "off")]
    pub is_on: bool,
    /// The streams that a connection may have at once; more are refused, and may be asked for
    /// again.
    #[directive(name = "http2_max_concurrent_streams", default = "128")]
    pub max_streams: u32,
    /// The longest frame that clients may send, from 16k to 16m; a value outside of that counts as
    /// the nearest. nginx lets frames have 16m.
    #[directive(name = "http2_max_frame_size", default = "1m")]
    pub max_frame: ByteSize,
    /// Bytes of a request's body that may come before somebody reads it.
    #[directive(name = "http2_body_preread_size", default = "64k")]
    pub preread: ByteSize,
}

/// Settings of answers over HTTP/2.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct FramePolicy {
    /// The longest payload of a frame of a body. Long frames hold other streams up, short ones
    /// cost more.
    #[directive(name = "http2_chunk_size", default = "8k")]
    pub chunk: ByteSize,
}

/// The longest window that there is (RFC 9113 §6.9.1).
const WINDOW_MAX: u64 = (1 << 31) - 1;

/// Bytes that the longest frame may have, at least and at most (RFC 9113 §6.5.2).
const FRAME_LENS: [u64; 2] = [1 << 14, (1 << 24) - 1];

impl Http2Policy {
    /// The settings of a connection's machine.
    pub fn config(&self, head: &HeadPolicy, reading: Reading) -> Config {
        Config {
            max_concurrent_streams: self.max_streams,
            // It is bounded just before.
            stream_window: self.preread.0.min(WINDOW_MAX) as u32,
            max_frame_len: self.max_frame.0.clamp(FRAME_LENS[0], FRAME_LENS[1]) as u32,
            rules: Rules {
                limits: head.limits(reading),
                connect: Connect::Refuse,
                extended_connect: ExtendedConnect::Allow,
            },
            ..Config::default()
        }
    }
}
