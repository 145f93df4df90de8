//! `http3`, `http3_hq`, `http3_max_concurrent_streams`, `http3_stream_buffer_size`,
//! `http3_advertise`, `quic_gso`, `quic_retry`, `quic_host_key`, `quic_active_connection_id_limit`,
//! `quic_qlog`, `quic_bpf`: QUIC and HTTP/3 for clients.
//!
//! Bounds of heads, times and numbers of requests are those of HTTP/1's directives.

use std::path::PathBuf;

use millpond_conf::ByteSize;
use millpond_conf::Spanned;
use millpond_conf::value::ConfPath;
use millpond_wire::head::{Connect, Reading};
use millpond_wire::http2::{ExtendedConnect, Rules};
use millpond_wire::http3::{self, Config, Dialect};

use super::head::HeadPolicy;

/// Settings of QUIC and HTTP/3; obeyed before a request is there, so the values of the server that
/// the connection began with count, and those of QUIC of the default server of its address.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server)]
pub struct QuicPolicy {
    /// Lets connections to addresses with `listen … quic` speak HTTP/3 with this server.
    #[directive(name = "http3", default = "on")]
    pub is_on: bool,
    /// Lets connections to addresses with `listen … quic` speak HTTP/0.9 with this server where the
    /// client asks for `hq-interop` by ALPN: each stream brings a line with `GET` and a path, and
    /// gets the bytes of the answer without a head. Tests of interoperability of QUIC use it.
    #[directive(name = "http3_hq", default = "off")]
    pub is_plain_on: bool,
    /// The requests that a connection may have at once.
    #[directive(name = "http3_max_concurrent_streams", default = "128")]
    pub max_streams: u32,
    /// Bytes of a stream that a client may send before they are read, and bytes of an answer that
    /// wait to be sent.
    #[directive(name = "http3_stream_buffer_size", default = "64k")]
    pub stream_buffer: ByteSize,
    /// Names the address of HTTP/3 in answers of HTTP/1 and HTTP/2 over TLS, in a field `Alt-Svc`
    /// (RFC 7838): the port of the server's first `listen … quic`, good for a day. Answers that
    /// have such a field already are left alone.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such directive; there it is `add_header`.
    #[directive(name = "http3_advertise", default = "off")]
    pub is_advertised: bool,
    /// Sends several packets of equal length by one call (generic segmentation offload).
    ///
    /// # Differs from nginx
    ///
    /// It is on by default, where the kernel has it.
    #[directive(name = "quic_gso", default = "on")]
    pub uses_segments: bool,
    /// Has each client show its address before anything is kept of its connection (Retry, RFC 9000
    /// §8.1.2), at the price of a round trip.
    ///
    /// # Differs from nginx
    ///
    /// Without it, clients still have to do so while 64 handshakes of a worker are under way.
    #[directive(name = "quic_retry", default = "off")]
    pub retries: bool,
    /// A file with a secret, of which the keys of tokens and of stateless resets are made, so that
    /// clients see at once that a process which was started anew does not know their connections.
    /// Without one the secret is made when the process starts. The key of resets is the one that an
    /// address was first served with.
    #[directive(name = "quic_host_key")]
    pub host_key: Option<Spanned<ConfPath>>,
    /// A folder in which each connection of QUIC is written down, in a file of its own: the
    /// packets that it sent and got, with their frames but without their data, and what it has
    /// learnt of its path. The files are `ID_server.sqlog`, after the first connection id of the
    /// client, in the form of qlog 0.3, which tools such as qvis show. The folder has to be there,
    /// and to be writable for workers.
    ///
    /// It is meant for looking into something, not for service: each packet costs some work, and
    /// files are removed by nobody. A process writes 1000 of them, each of 16 MiB at most.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such directive.
    #[directive(name = "quic_qlog")]
    pub records: Option<PathBuf>,
    /// Connection ids of the client that are kept.
    ///
    /// # Differs from nginx
    ///
    /// There are always 5; the value is only checked.
    #[directive(name = "quic_active_connection_id_limit", default = "2")]
    pub active_ids: u32,
}

impl QuicPolicy {
    /// The numbers that early data of a session may rely on: none may be less when it is resumed
    /// (RFC 9000 §7.4.1, RFC 9114 §7.2.4.2).
    pub fn promises(&self) -> [u8; 12] {
        let mut promises = [0; 12];
        let (streams, window) = promises.split_at_mut(4);
        streams.copy_from_slice(&self.max_streams.to_be_bytes());
        window.copy_from_slice(&self.stream_buffer.0.to_be_bytes());
        promises
    }

    /// The protocols that clients may choose from (ALPN), most preferred first.
    pub fn protocols(&self) -> Vec<Vec<u8>> {
        let protocols = [
            (http3::ALPN, self.is_on),
            (http3::PLAIN_ALPN, self.is_plain_on),
        ];
        let spoken = protocols.iter().filter(|(_, is_on)| *is_on);
        spoken.map(|(name, _)| name.to_vec()).collect()
    }

    /// The settings of a connection's machine, which speaks a protocol.
    pub fn config(&self, alpn: &[u8], (head, reading): (&HeadPolicy, Reading)) -> Config {
        let dialect = if alpn == http3::PLAIN_ALPN {
            Dialect::Plain
        } else {
            Dialect::Frames
        };
        Config {
            dialect,
            max_concurrent_streams: self.max_streams,
            stream_window: self.stream_buffer.0,
            blocked_streams: self.max_streams,
            send_buffer: self.stream_buffer.as_usize(),
            rules: Rules {
                limits: head.limits(reading),
                connect: Connect::Refuse,
                extended_connect: ExtendedConnect::Allow,
            },
            ..Config::default()
        }
    }
}
