//! `uwsgi_modifier1`, `uwsgi_modifier2`: what a uwsgi application is asked.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | modifier 1 | 0 for a request to a Python application |
//! | 1 | 2 | length | of the parameters, little endian |
//! | 3 | 1 | modifier 2 | |
//! | 4 | | parameters | each: length of the name, name, length of the value, value |
//!
//! Lengths are two bytes, little endian. The body follows; an answer is that of CGI, or begins with
//! a status line, and ends with the connection.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::ask::Ask;
use super::params;
use super::request::{OutBody, OutFraming, Prepared};
use crate::request::Request;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;

/// Settings that only uwsgi applications have.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct UwsgiPolicy {
    /// The first modifier of requests: which kind of application answers.
    #[directive(name = "uwsgi_modifier1", default = "0")]
    pub modifier1: u32,
    /// The second modifier of requests.
    #[directive(name = "uwsgi_modifier2", default = "0")]
    pub modifier2: u32,
}

/// Encodes the request.
pub(crate) fn encode(req: &mut Request, ask: &Ask, body: OutBody) -> Result<Prepared, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<UpstreamSettings>().uwsgi_app;
    let mut pairs = Vec::with_capacity(1024);
    let mut fits = true;
    params::for_each(req, Protocol::Uwsgi, ask, &mut |name, value| {
        for text in [name, value] {
            let len = u16::try_from(text.len());
            fits &= len.is_ok();
            pairs.extend_from_slice(&len.unwrap_or(u16::MAX).to_le_bytes());
            pairs.extend_from_slice(text);
        }
    });
    let len = match u16::try_from(pairs.len()) {
        Ok(len) if fits => len,
        _ => {
            let message = format!("uwsgi request is too big: {}", pairs.len());
            return Err(Failure::Internal(message));
        }
    };
    let mut head = BytesMut::with_capacity(pairs.len() + 4);
    // nginx: of a larger number the lowest byte counts.
    head.put_u8(policy.modifier1 as u8);
    head.put_u16_le(len);
    head.put_u8(policy.modifier2 as u8);
    head.put_slice(&pairs);
    Ok(Prepared {
        encryption: None,
        head: head.freeze(),
        body,
        framing: OutFraming::Plain,
        method: req.method,
    })
}
