//! Upstreams: groups of peers, connections to them, exchanges with them.
//!
//! ```text
//! pass ─► exchange ─► balance (which peer) ─► connect or keepalive ─► send, read the head
//!   │                                                                        │
//!   └◄─ answer (what the client gets of it) ◄── Fetched { head, body } ◄─────┘
//! ```

pub(crate) mod answer;
pub(crate) mod ask;
pub mod aws_sign;
pub mod balance;
mod broken;
pub(crate) mod buffer;
pub mod by_rfc;
pub(crate) mod cdn_loop;
pub mod connect;
pub mod cookie;
pub mod declare;
mod early_data;
pub mod encryption;
pub(crate) mod ended;
pub(crate) mod exchange;
pub mod fastcgi;
pub mod group;
pub mod groups;
pub(crate) mod grpc;
pub(crate) mod head;
pub(crate) mod hints;
pub mod http;
pub mod http2;
pub mod keepalive;
pub(crate) mod max_forwards;
pub mod memcached;
pub mod next;
mod own_head;
pub(crate) mod params;
pub mod pass;
pub mod pass_settings;
pub mod peer;
pub mod queue;
pub(crate) mod receive;
pub(crate) mod record;
pub mod redirect;
pub mod redirect_follow;
pub mod refresh;
pub(crate) mod request;
pub(crate) mod scgi;
pub(crate) mod send;
pub mod settings;
pub(crate) mod sticky;
pub(crate) mod store;
pub mod tunnel;
pub(crate) mod uwsgi;
