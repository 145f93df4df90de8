//! `proxy_timeout`, `proxy_buffer_size`, `proxy_half_close`, `proxy_next_upstream`,
//! `proxy_upload_rate`, `proxy_download_rate`, `proxy_protocol`, `proxy_ssl`, `proxy_ssl_alpn`,
//! `preread_buffer_size`, `preread_timeout`, `ssl_preread`, `ssl_handshake_timeout`,
//! `proxy_protocol_timeout`, `tcp_nodelay`, `proxy_requests`, `proxy_responses`: settings of
//! sessions.
//!
//! A server of `stream` keeps them merged in [`SessionSettings`], beside what its block declares;
//! families that `http` has, too, stand in the settings of its location.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use millpond_conf::value::SizeTemplate;
use millpond_conf::{ByteSize, Family, Template};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::level::{Closing, OwnFamily};
#[cfg(feature = "script")]
use millpond_exchange::settings::listen::Binding;
use millpond_exchange::settings::{Server, Uses};
use millpond_proxy::tls::origins::{self, Origin};

use crate::content::{Assignment, Content};
use crate::header::HeaderVersion;
use millpond_proxy::upstream::pass_settings::SettingsByProtocol as _;

/// The most that is read at once (arbitrary: more is only slower).
pub(crate) const MOST_BUFFER: u64 = 16 * 1024 * 1024;

/// The families of this crate.
pub const FAMILIES: &[OwnFamily] = &[
    OwnFamily::of::<ProxyPolicy>(),
    OwnFamily::of::<SessionPolicy>(),
    #[cfg(feature = "script")]
    OwnFamily::of::<crate::functions::ScriptPolicy>(),
];

/// Settings of sessions with peers.
#[derive(Clone, Debug, Family)]
#[family(stream, stream_server)]
pub struct ProxyPolicy {
    /// The longest time between two successful reads or writes of a session; then it ends.
    #[directive(name = "proxy_timeout", default = "10m")]
    pub timeout: Duration,
    /// Bytes that are read at once of either side, and so the most of it that waits for the other.
    ///
    /// # Differs from nginx
    ///
    /// nginx has 16k, for each session and direction. Here the memory is shared by the sessions of
    /// a worker; only what a side has not taken is kept by its session.
    #[directive(name = "proxy_buffer_size", default = "64k")]
    pub buffer_size: ByteSize,
    /// The number of packets of a client that make a session of UDP: the next one begins another;
    /// 0: all packets of an address and port are one session while it lasts. A session does not end
    /// before so many have come, or nothing has come for `proxy_timeout`.
    #[directive(name = "proxy_requests", default = "0")]
    pub requests: u32,
    /// The number of packets that a peer answers each packet of a client with: a session of UDP
    /// ends behind them, and a peer that owes some after `proxy_timeout` has failed. Without the
    /// line nothing is expected, and a session ends when nothing has come for `proxy_timeout`.
    #[directive(name = "proxy_responses")]
    pub responses: Option<u32>,
    /// Keeps the session while one side has closed its own direction: the other side is told of the
    /// end, and may go on sending.
    #[directive(name = "proxy_half_close", default = "off")]
    pub half_close: bool,
    /// Tries another peer where the connection to one cannot be made.
    #[directive(name = "proxy_next_upstream", default = "on")]
    pub next: bool,
    /// The rate at which bytes are read of the client, in bytes a second; 0: no limit.
    #[directive(name = "proxy_upload_rate")]
    pub upload_rate: Option<SizeTemplate>,
    /// The rate at which bytes are read of the peer, in bytes a second; 0: no limit.
    #[directive(name = "proxy_download_rate")]
    pub download_rate: Option<SizeTemplate>,
    /// Encrypts the connections to peers (TLS).
    #[directive(name = "proxy_ssl", default = "off")]
    pub encrypts: bool,
    /// The protocols inside that peers are offered (ALPN), most preferred first; an empty value is
    /// none.
    #[directive(name = "proxy_ssl_alpn")]
    pub protocols: Option<Vec<Template>>,
    /// The header that tells the peer who the client is: one of the PROXY protocol, version 1 or
    /// (`v2`) 2.
    #[directive(name = "proxy_protocol", default = "off")]
    pub header: HeaderVersion,
}

/// Settings of sessions before they are passed on.
#[derive(Clone, Debug, Family)]
#[family(stream, stream_server)]
pub struct SessionPolicy {
    /// The most that is read of a client's first bytes to decide by them.
    #[directive(name = "preread_buffer_size", default = "16k")]
    pub preread_size: ByteSize,
    /// The time that those bytes have.
    #[directive(name = "preread_timeout", default = "30s")]
    pub preread_timeout: Duration,
    /// The time that the header of the PROXY protocol has (`listen … proxy_protocol`).
    #[directive(name = "proxy_protocol_timeout", default = "30s")]
    pub header_timeout: Duration,
    /// The time that a handshake with a client has (`listen … ssl`).
    #[directive(name = "ssl_handshake_timeout", default = "60s")]
    pub handshake_timeout: Duration,
    /// Looks at the first bytes of clients that begin with a handshake of TLS, which stay as they
    /// are: the name, the protocols and the version that the client asks for become variables
    /// (`$ssl_preread_server_name`), and the name chooses among the servers of the address.
    #[directive(name = "ssl_preread", default = "off")]
    pub preread: bool,
    /// Sends what there is at once, without waiting for a packet to be full.
    #[directive(name = "tcp_nodelay", default = "on")]
    pub nodelay: bool,
}

/// All that a server says of its sessions beside the settings of its location.
#[derive(Debug)]
pub struct SessionSettings {
    /// Sessions with peers.
    pub proxy: ProxyPolicy,
    /// Sessions before that.
    pub session: SessionPolicy,
    /// The context of encrypted connections to peers; none where they are not encrypted.
    pub origin: Option<Arc<Origin>>,
    /// The scripts that sessions pass.
    #[cfg(feature = "script")]
    pub functions: crate::functions::Functions,
    /// The values that variables are given.
    pub assignments: Vec<Assignment>,
    /// The fate of sessions; none where a server has no line that says it.
    pub content: Option<Content>,
}

impl SessionSettings {
    /// True if sessions go through `js_filter`.
    pub(crate) fn is_filtered(&self) -> bool {
        #[cfg(feature = "script")]
        let is_filtered = self.functions.filter.is_some();
        #[cfg(not(feature = "script"))]
        let is_filtered = false;
        is_filtered
    }

    /// The function of `js_filter`.
    #[cfg(feature = "script")]
    pub(crate) fn filter(&self) -> Option<&str> {
        let (function, _) = self.functions.filter.as_ref()?;
        Some(&function.0)
    }

    /// The settings of the server of a session.
    pub(crate) fn of(server: &Server) -> Option<Arc<SessionSettings>> {
        let session = Arc::clone(server.session.as_ref()?);
        Arc::downcast(session).ok()
    }
}

/// The settings of the server that was read last, until its block is made.
type Closed = Option<Arc<dyn Any + Send + Sync>>;

/// Merges the settings of a server at the end of its block.
pub fn close(level: &mut Closing<'_>) {
    let proxy: ProxyPolicy = level.own();
    let origin = proxy.encrypts.then(|| {
        let policy = &level.settings.pass(Protocol::Http).ssl;
        origins::made(policy, Protocol::Http, level.builder)
    });
    let settings = SessionSettings {
        proxy,
        origin: origin.flatten(),
        session: level.own(),
        #[cfg(feature = "script")]
        functions: crate::functions::Functions::of(level),
        assignments: level.draft.take().unwrap_or_default(),
        content: level.draft.take(),
    };
    if settings.content.is_none() {
        let span = level.span();
        let message = "no \"proxy_pass\", \"pass\" or \"return\" for sessions of this server";
        level.builder.cx.diagnostics.push_warning(span, message);
    }
    level.builder.of::<Uses>().foreign_sources |= level.settings.has_foreign_source();
    let closed: Closed = Some(Arc::new(settings));
    level.builder.put(closed);
}

/// Refuses functions for the bytes of sessions that are packets.
#[cfg(feature = "script")]
pub fn check_packets(builder: &mut Builder, binding: &Binding) {
    let servers = binding.listens.iter().flat_map(|it| it.names.servers());
    for settings in servers.filter_map(|server| SessionSettings::of(server)) {
        let functions = &settings.functions;
        for (name, line) in [
            ("js_preread", &functions.preread),
            ("js_filter", &functions.filter),
        ] {
            let Some((_, span)) = line else { continue };
            let known = &builder.cx.diagnostics;
            if known.iter().any(|it| it.span == Some(*span)) {
                continue;
            }
            let message = format!("\"{name}\" is not supported for sessions of UDP");
            let help = "\"js_access\" and \"js_set\" have no part in packets, and are";
            let error = builder.cx.diagnostics.push_error(*span, message);
            error.help(help);
        }
    }
}

/// Takes the settings of the server that was read last.
pub fn take_closed(builder: &mut Builder) -> Closed {
    builder.take()
}
