//! FastCGI without I/O: requests go out as records, answers come in as records.
//!
//! ```text
//! parameters ─► params ─► record::write_stream ─► BytesMut           (to the application)
//! BytesMut ─► record::RecordDecoder ─► Event ─► answer::StdoutBody   (from the application)
//!                                        └────► http1::response::cgi::CgiParser, for the head
//! ```
//!
//! One request is on a connection at a time, and its id is always 1. Records of another version,
//! of another id, or of a kind that only this side sends, end the exchange.
//!
//! 1. What comes out does not depend on how the input was cut into pieces.
//! 2. No input makes a decoder panic or loop; it keeps at most one record of 64 KiB.
//! 3. Nothing is handed out as part of an answer but the content of STDOUT records.
//!
//! What it does not do: sockets, multiplexing of requests, the roles of authorizer and filter,
//! management records.
//!
//! Source: the FastCGI specification 1.0; the behaviour of nginx 1.31.

pub mod answer;
pub mod params;
pub mod record;
