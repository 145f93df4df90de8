//! Upstreams: groups of peers, connections to them, exchanges with them.
//!
//! ```text
//! pass ─► exchange ─► balance (which peer) ─► connect or keepalive ─► send, read the head
//!   │                                                                        │
//!   └◄─ answer (what the client gets of it) ◄── Fetched { head, body } ◄─────┘
//! ```

pub mod answer;
pub mod ask;
pub mod balance;
mod broken;
pub mod buffer;
pub mod by_rfc;
pub mod cdn_loop;
pub mod connect;
pub mod cookie;
pub mod declare;
pub mod encryption;
pub mod ended;
pub mod exchange;
pub mod fastcgi;
pub mod group;
pub mod grpc;
pub mod head;
pub mod hints;
pub mod http;
pub mod http2;
pub mod keepalive;
pub mod max_forwards;
pub mod memcached;
pub mod next;
pub mod params;
pub mod pass;
pub mod pass_settings;
pub mod peer;
pub mod receive;
pub mod receive_buffer;
pub mod redirect;
pub mod refresh;
pub mod request;
pub mod scgi;
pub mod send;
pub mod slice;
pub mod sticky;
pub mod store;
pub mod uwsgi;
