//! The test language: a few nouns, and what they exchange.
//!
//! - [`Origin`] is an HTTP/1.1 server in this process. A test scripts its [`Answer`]s by route and
//!   reads back every request it saw.
//! - [`Proxy`] is the server under test, Millpond or nginx, started on a configuration text in a
//!   directory of its own.
//!   [`Resource`] is a large body with versions, and the manners in which its ranges are served.
//! - [`Application`] is an origin that speaks FastCGI, [`WebSocketOrigin`] one of WebSockets.
//! - [`Tunnel`] is a client's WebSocket over HTTP/2.
//! - [`Collector`] takes the spans of OpenTelemetry.
//! - [`NameServer`] answers for names, where a proxy resolves them itself.
//! - [`Datagrams`] is a network between clients of UDP and a server, with delays and losses.
//! - [`Browser`] is a Chromium without a window.
//! - [`skip`] says that a test cannot run here.
//! - [`Client`] speaks HTTP/1.1 with exact control over the bytes it sends and reads, or the
//!   [`Protocol`] that it is made for; [`each_protocol`] runs a test with each.
//!
//! ```no_run
//! use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};
//!
//! fn example() -> anyhow::Result<()> {
//!     let origin = Origin::start()?;
//!     origin.route("/a", Answer::new(200).body("hello"));
//!     let conf = "server { listen 127.0.0.1:%%PORT%%; location / { proxy_pass http://%%ORIGIN%%; } }";
//!     let proxy = Proxy::new(Kind::Millpond, conf).origin(&origin).start()?;
//!     let response = Client::new(proxy.port()).get("/a")?;
//!     assert_eq!(response.status, 200);
//!     assert_eq!(origin.requests().len(), 1);
//!     Ok(())
//! }
//! ```
//!
//! 1. Everything runs on plain threads and blocking sockets, and HTTP/2 and HTTP/3 by crates that
//!    are none of ours, so that the kit shares no code with what it judges.
//! 2. Every wait has a deadline, and waiting for a state is polling for it; tests themselves never
//!    sleep.
//! 3. Ports come from the operating system, and each proxy has a directory that is removed at the
//!    end.
//!
//! Does not speak TLS, but within QUIC.

mod application;
mod browser;
mod client;
mod collector;
mod datagrams;
mod deadline;
mod dns;
mod http2;
mod http3;
mod message;
mod origin;
mod ports;
mod proxy;
mod random;
mod request;
mod site_counters;
mod skip;
mod websocket;
mod wire;

pub use application::{Application, Asked, Reply, record};
pub use browser::Browser;
pub use client::{Client, Connection, End, Protocol, Response, read_until};
pub use collector::{
    Attribute, Batch, CollectedLine, CollectedPoint, CollectedSpan, Collector, Mood,
};
pub use datagrams::{Datagrams, Hold, Network};
pub use deadline::Deadline;
pub use dns::{NameServer, Question, Record};
pub use http2::Tunnel;
pub use message::{Fields, RequestHead, ResponseHead};
pub use origin::{
    Answer, Exchange, Framing, Gate, Lie, Manners, Origin, Outage, Ranges, Recorded, Resource,
    Turn, Validator, offset_bytes,
};
pub use ports::free_port;
pub use proxy::{
    Kind, LogCheck, Proxy, ProxyBuilder, ProxyError, binary, copy_binary, stop_process,
};
pub use random::{Random, number_from_env};
pub use request::Request;
pub use site_counters::{sites_in_answer, sites_in_file};
pub use skip::skip;
pub use websocket::{WebSocketOrigin, masked_message, plain_message};
