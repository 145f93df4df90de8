//! `send_timeout`, `limit_rate`, `limit_rate_after`, `sendfile`, `sendfile_max_chunk`,
//! `chunked_transfer_encoding`: answers as every wire sends them.
//!
//! They are obeyed in `client/send.rs` and by the wires.

use std::time::Duration;

use millpond_conf::ByteSize;
use millpond_conf::value::SizeTemplate;

/// Settings of the sending of answers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location)]
pub struct SendPolicy {
    /// The time between two successful writes to a client, after which the connection is closed.
    #[directive(
        name = "send_timeout",
        default = "60s",
        contexts(http, server, location)
    )]
    pub timeout: Duration,
    /// Limits the rate of an answer, in bytes a second; 0 means no limit. The limit is for one
    /// request.
    #[directive(name = "limit_rate")]
    pub rate: Option<SizeTemplate>,
    /// Bytes of an answer that are sent before `limit_rate` begins to act.
    #[directive(name = "limit_rate_after")]
    pub rate_after: Option<SizeTemplate>,
    /// Lets the kernel send files from the page cache without a copy in this process.
    #[directive(name = "sendfile", default = "off")]
    pub sendfile: bool,
    /// The most that one `sendfile` call sends, so that one fast client does not hold a worker; 0:
    /// no limit.
    #[directive(
        name = "sendfile_max_chunk",
        default = "2m",
        contexts(http, server, location)
    )]
    pub sendfile_max_chunk: ByteSize,
    /// Data of less than this many bytes may be held back until more comes.
    ///
    /// # Differs from nginx
    ///
    /// What is ready is sent at once and nothing is held back; the value is only checked.
    #[directive(
        name = "postpone_output",
        default = "1460",
        contexts(http, server, location)
    )]
    pub postpone_output: ByteSize,
}

/// True if answers of unknown length are chunked.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct ChunkedPolicy {
    /// Chunks for answers of unknown length. When off, such an answer ends with its connection, for
    /// clients that cannot read chunks.
    #[directive(name = "chunked_transfer_encoding", default = "on")]
    pub enabled: bool,
}
