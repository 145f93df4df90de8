//! SCGI: a request is a netstring of parameters, then the body; an answer is that of CGI, until the
//! connection closes.
//!
//! ```text
//! "70:" "CONTENT_LENGTH" 0 "27" 0 name 0 value 0 … "," body
//! ```
//!
//! The length of the body comes first. `SCGI 1` is a parameter of the configuration, as in nginx.

use bytes::{BufMut, BytesMut};

use super::ask::Ask;
use super::params;
use super::request::{OutBody, OutFraming, Prepared};
use crate::request::Request;
use millpond_exchange::protocol::Protocol;

/// Encodes the request.
pub(crate) fn encode(req: &mut Request, ask: &Ask, body: OutBody) -> Prepared {
    let mut pairs = format!("CONTENT_LENGTH\0{}\0", body.len().unwrap_or(0)).into_bytes();
    params::for_each(req, Protocol::Scgi, ask, &mut |name, value| {
        for text in [name, value] {
            pairs.extend_from_slice(text);
            pairs.push(0);
        }
    });
    let mut head = BytesMut::with_capacity(pairs.len() + 16);
    head.put_slice(format!("{}:", pairs.len()).as_bytes());
    head.put_slice(&pairs);
    head.put_slice(b",");
    Prepared {
        encryption: None,
        head: head.freeze(),
        body,
        framing: OutFraming::Plain,
        method: req.method,
    }
}
