//! Fuzz targets: one function for each, `fn run(data: &[u8])`, which panics when a promise is
//! broken.
//!
//! ```text
//! fuzz_targets/NAME.rs ─► libFuzzer ─► NAME::run
//! ```
//!
//! The binaries build with a stable compiler: `cargo xtask fuzz` passes the flags that count what
//! is covered. With a nightly one, `cargo fuzz run NAME` works, too.
//!
//! Invariants:
//! 1. A target touches no network, and no file but those of its own temporary directory.
//! 2. A target is deterministic: the same bytes lead to the same steps.
//! 3. Time is asserted by libFuzzer's own limit (`-timeout`), memory by its `-rss_limit_mb`; no
//!    input is longer than a few kilobytes, so that anything worse than linear shows.

pub mod cache_control;
pub mod certificate;
pub mod chunked;
pub mod conf;
pub mod dictionary;
pub mod fastcgi;
pub mod graphql;
pub mod hpack;
pub mod http2_client;
pub mod http2_server;
pub mod http3_server;
pub mod json;
pub mod jwt;
pub mod memcached;
pub mod mp4;
pub mod no_vary_search;
pub mod pieces;
pub mod qpack;
pub mod range;
pub mod request_head;
pub mod response_head;
pub mod script;
pub mod store_blocks;
pub mod store_zone;
pub mod stored_head;
pub mod template;
pub mod tls_server;
pub mod uri;
