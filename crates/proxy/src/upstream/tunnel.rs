//! `tunnel_pass`, `tunnel_next_upstream`, `tunnel_buffer_size` and their like: CONNECT, by which a
//! client asks for a connection to a host (RFC 9110 §9.3.6).
//!
//! ```text
//! CONNECT host:port ─► phases (rules, passwords) ─► connect to a peer ─► 200 ─► bytes both ways
//!                          └─ 403, 407                 └─ 502, 504
//! ```
//!
//! What connects is the same as for other upstreams, with nothing sent and nothing read; what
//! follows the 200 is that of WebSockets over HTTP/1 (`downstream/http1/tunnel.rs`).
//!
//! Invariants:
//! 1. A server without the directive refuses CONNECT with 405, in all its locations.
//! 2. No name that a client can write is taken for the path of a socket.

use bytes::Bytes;
use millpond_conf::{ByteSize, Contexts, Flags, Statement, Word, Words};
use millpond_system::clock;
use millpond_wire::header::Fields;
use millpond_wire::http1::Version;
use millpond_wire::http1::response::ResponseHead;

use super::broken::Broken;
use super::connect::Source;
use super::exchange::{Fetched, Sent, Try};
use super::head::Coding;
use super::http2::carrier::Carrier;
use super::next::NextCause;
use super::pass;
use super::pass_settings::PassSettings;
use super::request::{OutBody, OutFraming, Prepared};
use crate::request::Request;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::failure::UpstreamFailure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::level::Closing;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "tunnel_pass",
    contexts: Contexts::SERVER
        .union(Contexts::LOCATION)
        .union(Contexts::IF_LOCATION),
    syntax: "[address]",
    is_block: false,
    pass: Pass::First,
    doc: "The host to which a CONNECT opens a tunnel: host:port, unix:socket, a group's name, or \
          variables; without an address it is the host that the client asks for \
          (`$host:$request_port`). A server that has the directive nowhere refuses CONNECT with \
          405, and so does a location that has it every other method. Whom a proxy is open to, \
          and to where, is for `allow`, `auth_basic` (which asks for Proxy-Authorization then), \
          `if` and `map` to say.\n\n\
          # Differs from nginx\n\nA CONNECT that comes to a location with `proxy_pass` or its \
          like is refused with 405. The path of a Unix socket must be absolute.",
    apply: tunnel_pass,
}];

/// The host that a client asks for.
const ASKED_FOR: &str = "$host:$request_port";

/// Cause that lets a tunnel lead to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum TunnelCause {
    /// Connecting failed.
    #[word("error")]
    Error,
    /// The server took too long to connect to.
    #[word("timeout")]
    Timeout,
    /// Nothing.
    #[word("off")]
    Off,
}

/// Settings that only tunnels have.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct TunnelPolicy {
    /// After what a tunnel leads to the next address of the host, or the next server of the group.
    #[directive(name = "tunnel_next_upstream", default = "error timeout", union)]
    pub causes: Flags<TunnelCause>,
    /// The least that the kernel sends at once.
    ///
    /// # Differs from nginx
    ///
    /// Linux does not have it, and nginx ignores it there too; the value is only checked.
    #[directive(name = "tunnel_send_lowat", default = "0")]
    pub send_lowat: ByteSize,
    /// The receive buffer of connections to the ends of tunnels.
    ///
    /// # Differs from nginx
    ///
    /// The kernel's own sizing is left alone; the value is only checked.
    #[directive(name = "tunnel_socket_rcvbuf", default = "0")]
    pub socket_rcvbuf: ByteSize,
    /// The send buffer of connections to the ends of tunnels.
    ///
    /// # Differs from nginx
    ///
    /// The kernel's own sizing is left alone; the value is only checked.
    #[directive(name = "tunnel_socket_sndbuf", default = "0")]
    pub socket_sndbuf: ByteSize,
}

impl From<TunnelCause> for NextCause {
    fn from(cause: TunnelCause) -> Self {
        match cause {
            TunnelCause::Error => NextCause::Error,
            TunnelCause::Timeout => NextCause::Timeout,
            TunnelCause::Off => NextCause::Off,
        }
    }
}

impl TunnelPolicy {
    /// Sets what is the same for all tunnels, as nginx has it.
    fn settle(&self, settings: &mut PassSettings) {
        settings.next.causes = self.causes.iter().map(NextCause::from).collect();
        settings.buffer.buffering = false;
        settings.request.pass_body = false;
    }
}

/// Settles what the settings of tunnels say of their upstreams' own.
pub fn close(level: &mut Closing<'_>) {
    let all = level.settings.of_mut::<UpstreamSettings>();
    all.tunnel_end.settle(&mut all.tunnel);
}

/// The mark of a server that has tunnels, in whichever of its blocks (nginx: `allow_connect`).
#[derive(Clone, Copy, Debug)]
pub struct Tunnels;

impl Part for Tunnels {
    const PLACE: Place = Place::Tunnels;
}

/// True if a directive was read since the last server was read to its end.
#[derive(Default)]
struct Noted(bool);

/// The mark of the server that was just read, if it has one.
pub fn take_noted(builder: &mut Builder) -> Option<Tunnels> {
    let Noted(has_tunnels) = builder.take();
    has_tunnels.then_some(Tunnels)
}

fn tunnel_pass(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 0..=1) {
        return;
    }
    builder.of::<Noted>().0 = true;
    let asked_for = Word {
        text: ASKED_FOR.to_string(),
        span: statement.span,
        quoted: false,
    };
    let to = statement.args.first().unwrap_or(&asked_for);
    pass::pass_to(builder, (statement, Protocol::Tunnel), to, draft);
}

/// True for a name that reads like a socket and is none: `CONNECT unix:80` (INVARIANT 2).
pub(super) fn is_socket_by_chance(authority: &str) -> bool {
    let path = authority.strip_prefix("unix:");
    path.is_some_and(|path| !path.starts_with('/'))
}

/// The request that the end of a tunnel is sent: none.
pub(super) fn nothing(req: &Request) -> Prepared {
    Prepared {
        head: Bytes::new(),
        body: OutBody::None,
        framing: OutFraming::Plain,
        method: req.method,
        encryption: None,
    }
}

impl Try<'_> {
    /// Connects to the end of a tunnel; the answer is that this was done.
    pub(super) async fn open_tunnel(
        &mut self,
        source: Option<Source>,
    ) -> Result<Box<Fetched>, UpstreamFailure> {
        let connection = self.maker(source).make().await?;
        let now = clock::instant();
        self.note_connected(now);
        let head = ResponseHead {
            version: Version::Http11,
            status: 200,
            status_line: Bytes::new(),
            fields: Fields::new(),
            head_len: 0,
        };
        let carrier = Carrier::Own(connection);
        let fetched = self.fetched((head, Coding::Tunnel), carrier, (Sent::Whole, now));
        fetched.map_err(|broken: Broken| broken.failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_are_sockets() {
        for (authority, expected) in [
            ("unix:80", true),
            ("unix:", true),
            ("unix:/run/s", false),
            ("unixhost:80", false),
            ("example.org:80", false),
        ] {
            assert_eq!(is_socket_by_chance(authority), expected, "{authority}");
        }
    }
}
