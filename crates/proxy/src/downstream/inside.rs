//! Requests that this server asks itself, as a client would: to have an answer in the cache before
//! users want it.
//!
//! A head is taken to a listener, and finds its server and location there; it runs through all
//! phases, gates and limits too, as a request of the loopback address. Nobody gets its answer,
//! which is read to its end.
//!
//! 1. It has no wire, and so no share in a socket.
//! 2. It is in the background: no client's counters count it, and no access log has it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::client::wire::Wire;
use millpond_exchange::client::{Came, Client};
use millpond_exchange::counters::Number;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::worker::Generation;
use millpond_system::address::Address;
use millpond_system::clock;
use millpond_tls::Facts;
use millpond_wire::http1::request::RequestHead;

use super::serve::find_server;
use crate::phase;
use crate::request::Request;
use crate::tls::agreed;

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Status of the answer.
    pub status: u16,
    /// `$upstream_cache_status`.
    pub cache_status: Option<&'static str>,
    /// First name of the server.
    pub server: Bytes,
    /// The cache zone that was looked at.
    pub zone: Option<Number>,
    /// The reason why it has no end, if it has none.
    pub broken: Option<String>,
}

/// Scheme of a URL that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

/// Asks for a head at a listener. The error is for people: no server would take it.
pub async fn ask(
    generation: &Rc<Generation>,
    (listen, scheme): (&Listen, Scheme),
    head: Rc<RequestHead>,
) -> Result<Asked, String> {
    let mut req = request(generation, (listen, scheme), head);
    find_server(&mut req, listen).map_err(|(status, why)| format!("{why} ({status})"))?;
    let mut response = phase::answer(&mut req).await;
    let mut broken = None;
    // Each piece is taken once, so this ends with the body.
    while let Some(piece) = std::future::poll_fn(|cx| response.body.poll_next(cx)).await {
        if let Err(error) = piece {
            broken = Some(error.to_string());
            break;
        }
    }
    let trace = req.upstream.borrow();
    Ok(Asked {
        status: response.status,
        cache_status: trace.cache_status,
        server: req.server.name.clone(),
        zone: trace.zone,
        broken,
    })
}

fn request(
    generation: &Rc<Generation>,
    (listen, scheme): (&Listen, Scheme),
    head: Rc<RequestHead>,
) -> Box<Request> {
    let server = Arc::clone(listen.names.default_server());
    let at = |port| Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let addresses = [at(0), at(listen.address.port())];
    let now = clock::instant();
    let connection = Connection::new(Rc::clone(generation), 0, addresses, now);
    if scheme == Scheme::Https {
        let agreed = agreed::of(&Facts::default(), Arc::clone(&server));
        let _ = connection.tls.set(Box::new(agreed));
    }
    let came = Came {
        head,
        started: now,
        at: now,
        is_pipelined: false,
    };
    let client = Client::next(Rc::new(connection), Wire::None, &came);
    let conf = Rc::clone(&generation.conf);
    let mut req = Request::new(conf, Rc::new(client), came, server);
    req.is_background = true;
    Box::new(req)
}
