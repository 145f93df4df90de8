//! `client_max_body_size`, `client_body_timeout`, `client_body_buffer_size`,
//! `client_body_in_file_only`, `client_body_in_single_buffer`, `client_body_temp_path`: request
//! bodies.

use std::time::Duration;

use millpond_conf::{ByteSize, Offset};
use millpond_system::temp_file::TempFolder;

/// Condition for keeping a request body in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum InFileOnly {
    /// Only what does not fit into memory; removed after the request.
    #[word("off")]
    Off,
    /// Always, and the file stays.
    #[word("on")]
    On,
    /// Always; removed after the request.
    #[word("clean")]
    Clean,
}

/// Settings of the reading of request bodies.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct BodyPolicy {
    /// The largest request body; a larger one is answered with 413. 0 switches the check off.
    #[directive(name = "client_max_body_size", default = "1m")]
    pub max_size: Offset,
    /// The time between two reads of a request body, after which the request is answered with 408.
    #[directive(name = "client_body_timeout", default = "60s")]
    pub timeout: Duration,
    /// Memory for a request body; a larger one goes to a temporary file.
    #[directive(name = "client_body_buffer_size", default = "16k")]
    pub buffer_size: ByteSize,
    /// Keeps the whole body in a file, for debugging or for `$request_body_file`.
    #[directive(name = "client_body_in_file_only", default = "off")]
    pub in_file_only: InFileOnly,
    /// Keeps the body in one buffer, so that `$request_body` needs no copy.
    ///
    /// # Differs from nginx
    ///
    /// A body in memory is always in one buffer.
    #[directive(name = "client_body_in_single_buffer", default = "off")]
    pub in_single_buffer: bool,
    /// Folder of temporary files of request bodies, with up to three levels of subfolders, which
    /// are named after that many of the last digits of a file's number.
    #[directive(name = "client_body_temp_path", default = "client_body_temp")]
    pub temp_path: TempFolder,
}
