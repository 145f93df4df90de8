//! `js_fetch_*`: requests of scripts to other servers.
//!
//! ```text
//! ngx.fetch ─► client.rs: an idle connection (idle.rs), or a new one by the resolver, the sockets
//!              and the encryption of upstreams ─► request ─► answer, within the limits
//! ```
//!
//! 1. An answer is held in memory, and is no longer than `js_fetch_max_response_buffer_size` or
//!    what the script says.
//! 2. Each step has `js_fetch_timeout`, and all of them together `MOST_TIMES` of it.
//! 3. A connection whose server was not verified is not kept.

mod client;
pub mod idle;

use std::sync::Arc;
use std::time::Duration;

use millpond_conf::{ByteSize, Family, Flags, Spanned, Template};
use millpond_exchange::settings::level::{Closing, OwnFamily};
use millpond_script::{Fetch, Forward, Reply};
use millpond_system::clock;

use self::client::Asking;
use crate::request::Request;
use crate::tls::origins::{self, Origin};
use crate::tls::settings::{FileName, OriginSslPolicy, ProtocolVersion};

/// The most times that `js_fetch_timeout` may pass in one request (arbitrary: who sends an answer
/// byte by byte has some time, and not all).
const MOST_TIMES: u32 = 10;

/// The settings of this module.
pub const FAMILY: OwnFamily = OwnFamily::of::<FetchPolicy>();

/// Settings of requests that scripts make.
#[derive(Clone, Debug, Family)]
#[family(http, server, location, stream, stream_server)]
pub struct FetchPolicy {
    /// The time between two steps of a request of `ngx.fetch()`: its connection, its sending, and
    /// each part of its answer. A whole request takes at most ten times as long.
    #[directive(name = "js_fetch_timeout", default = "60s")]
    pub timeout: Duration,
    /// The longest head of an answer.
    #[directive(name = "js_fetch_buffer_size", default = "16k")]
    pub head: ByteSize,
    /// The longest body of an answer; a script may say another.
    #[directive(name = "js_fetch_max_response_buffer_size", default = "1m")]
    pub body: ByteSize,
    /// The suites of TLSv1.2 in the language of OpenSSL; see `ssl_ciphers`.
    #[directive(name = "js_fetch_ciphers", default = "HIGH:!aNULL:!MD5")]
    pub ciphers: Spanned<String>,
    /// The versions that are spoken; those below TLSv1.2 are words only.
    #[directive(name = "js_fetch_protocols", default = "TLSv1.2 TLSv1.3", union)]
    pub protocols: Flags<ProtocolVersion>,
    /// Verification of the certificates of servers that are asked by `https`; a script may say
    /// otherwise for a request.
    #[directive(name = "js_fetch_verify", default = "on")]
    pub verify: bool,
    /// The number of authorities that may stand between a certificate and a known one.
    #[directive(name = "js_fetch_verify_depth", default = "100")]
    pub verify_depth: u32,
    /// The file with the certificates of known authorities. Without it none is known: a server
    /// that is to be verified is not asked.
    #[directive(name = "js_fetch_trusted_certificate")]
    pub trusted: Option<FileName>,
    /// A proxy that requests go through: `http://[user:password@]host[:port]`, port 3128 without
    /// one. The value may have variables; where it is empty no proxy is asked. Requests of `https`
    /// go through a tunnel. Connections through a proxy whose URL has variables are not kept.
    #[directive(name = "js_fetch_proxy")]
    pub proxy: Option<Template>,
    /// The connections that each worker keeps for the next requests of a location; 0: none.
    #[directive(name = "js_fetch_keepalive", default = "0")]
    pub idle: u32,
    /// The requests that one connection carries.
    #[directive(name = "js_fetch_keepalive_requests", default = "1000")]
    pub requests: u32,
    /// The age beyond which a connection is not kept.
    #[directive(name = "js_fetch_keepalive_time", default = "1h")]
    pub age: Duration,
    /// The time for which a connection is kept.
    #[directive(name = "js_fetch_keepalive_timeout", default = "60s")]
    pub idle_time: Duration,
}

/// The way of a location's scripts to other servers.
#[derive(Clone, Debug)]
pub(super) struct Fetching {
    policy: FetchPolicy,
    /// Encryption with servers that are verified; none where no authority is known.
    verified: Option<Arc<Origin>>,
    /// Encryption with any server.
    unverified: Arc<Origin>,
    /// The proxy, where its URL is the same for all requests.
    forward: Option<Arc<Forward>>,
}

impl Fetching {
    /// The way by the lines of a block; none if something is wrong with them, which is reported.
    pub(super) fn of(level: &mut Closing<'_>) -> Option<Fetching> {
        let policy: FetchPolicy = level.own();
        let unchecked = OriginSslPolicy {
            reuses_sessions: true,
            protocols: policy.protocols,
            ciphers: policy.ciphers.clone(),
            name: None,
            tells_name: true,
            verify: false,
            verify_depth: policy.verify_depth,
            trusted: policy.trusted.clone(),
            revoked: None,
            certificate: None,
            key: None,
            password_file: None,
            certificate_cache: Default::default(),
            commands: Vec::new(),
            key_log: None,
        };
        let checked = OriginSslPolicy {
            verify: true,
            ..unchecked.clone()
        };
        let unverified = origins::of_lines(&unchecked, "js_fetch", level.builder)?;
        let verified = match &checked.trusted {
            Some(_) => Some(origins::of_lines(&checked, "js_fetch", level.builder)?),
            None => None,
        };
        let forward = forward_of(level, &policy)?;
        Some(Fetching {
            policy,
            forward,
            verified,
            unverified,
        })
    }
}

/// The proxy of a block, where its URL has no variables; nothing if it is wrong, which is reported.
fn forward_of(level: &mut Closing<'_>, policy: &FetchPolicy) -> Option<Option<Arc<Forward>>> {
    let literal = policy.proxy.as_ref().and_then(Template::as_literal);
    let Some(text) = literal.map(String::from_utf8_lossy) else {
        return Some(None);
    };
    match Forward::read(&text) {
        Ok(Some(forward)) => Some(Some(Arc::new(forward))),
        Ok(None) => {
            wrong_proxy(level, format!("proxy host is empty in URL: {text}"));
            None
        }
        Err(why) => {
            wrong_proxy(level, format!("invalid proxy URL: {text}: {why}"));
            None
        }
    }
}

fn wrong_proxy(level: &mut Closing<'_>, message: String) {
    let line = level.span_of_own::<FetchPolicy>("js_fetch_proxy");
    let span = line.unwrap_or_else(|| level.span());
    level.error_once(span, message);
}

/// Asks another server, and waits for its answer.
pub(super) async fn ask(asking: Asking, fetch: Box<Fetch>) -> Reply {
    let most = asking.most_time();
    let asked = clock::within(most, asking.exchange(&fetch)).await;
    match asked.unwrap_or_else(|| Err("read timed out".to_string())) {
        Ok(fetched) => Reply::Fetched(Box::new(fetched)),
        Err(why) => Reply::Failed(why),
    }
}

/// All that a request to another server needs of the one that it is made for.
pub(super) fn asking(req: &mut Request) -> Result<Asking, String> {
    Asking::of(req)
}
