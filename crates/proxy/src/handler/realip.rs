//! `set_real_ip_from`, `real_ip_header`, `real_ip_recursive`: the client's address behind trusted
//! proxies.
//!
//! When the connection's peer is trusted, the address that it names in a field takes the place of
//! the client's, for the rest of the request: for rules, limits, variables and logs.
//! `$realip_remote_addr` keeps the peer's.
//!
//! Invariants:
//! 1. Each request starts with the peer's own address.
//! 2. An address is replaced once for a request: before the server's rewrites, else in the
//!    location.

use std::collections::HashSet;

use millpond_conf::value::{ArgError, Args, FromArgs, FromWord, WordError};
use millpond_conf::{ParseContext, Word};
use millpond_system::address::Address;
use millpond_system::network::{LowBits, Network, Recursive, forwarded, look_up};

use crate::handler::settings::HandlerSettings;
use crate::request::Request;
use millpond_exchange::settings::{Uses, level::Closing};
use millpond_wire::header::Known;

/// The proxies whose word is taken for the client's address.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct RealIpPolicy {
    /// A proxy whose word is taken: an address, a network, a name, or `unix:`.
    #[directive(
        name = "set_real_ip_from",
        repeat,
        contexts(http, server, location, stream, stream_server)
    )]
    pub from: Vec<Trusted>,
    /// The field with the client's address; or `proxy_protocol`: the header before the first
    /// request of the connection has it (`listen … proxy_protocol`).
    #[directive(name = "real_ip_header", default = "X-Real-IP")]
    pub field: AddressField,
    /// Passes over the addresses of trusted proxies in the field.
    #[directive(name = "real_ip_recursive", default = "off")]
    pub recursive: bool,
}

/// Notes that clients' addresses may be replaced.
pub fn close(level: &mut Closing<'_>) {
    level.builder.of::<Uses>().real_ip |= !level
        .settings
        .of::<HandlerSettings>()
        .real_ip
        .from
        .is_empty();
}

/// Trusted addresses that one argument stands for.
#[derive(Clone, Debug)]
pub struct Trusted(Vec<Network>);

/// The field that names the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressField {
    /// X-Forwarded-For: a list over all fields of the name.
    XForwardedFor,
    /// The header of the PROXY protocol.
    ProxyProtocol,
    /// The first field of this name.
    Named(String),
}

impl FromArgs for Trusted {
    const SYNTAX: &'static str = "address | CIDR | name | unix:";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let word = args.one()?;
        if let Some((network, low)) = Network::parse(&word.text) {
            if low == LowBits::Set {
                let message = format!("low address bits of {} are meaningless", word.text);
                args.cx.diagnostics.push_warning(word.span, message);
            }
            return Ok(Trusted(vec![network]));
        }
        let message = || format!("host not found in set_real_ip_from \"{}\"", word.text);
        // nginx resolves the names when it reads them, too.
        let found = look_up(&word.text, 0).map_err(|_| ArgError::value(0, message()))?;
        let networks: HashSet<Network> = found.map(|address| Network::of(address.ip())).collect();
        Ok(Trusted(networks.into_iter().collect()))
    }
}

impl FromWord for AddressField {
    const SYNTAX: &'static str = "field | X-Real-IP | X-Forwarded-For | proxy_protocol";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<Self, WordError> {
        match word.text.as_str() {
            "proxy_protocol" => Ok(AddressField::ProxyProtocol),
            name if name.eq_ignore_ascii_case("x-forwarded-for") => Ok(AddressField::XForwardedFor),
            name => Ok(AddressField::Named(name.to_string())),
        }
    }
}

/// Gives the request the address of the connection's peer, and then the one that a trusted peer
/// names.
pub fn start(req: &Request) {
    // Nobody has replaced it, and nobody will.
    if !req.conf.uses_real_ip {
        return;
    }
    replace(req);
}

/// Replaces the client's address if it still is the peer's and the peer is trusted here.
pub fn replace(req: &Request) {
    let policy = &req.location.settings.of::<HandlerSettings>().real_ip;
    if policy.from.is_empty() || *req.client.remote.borrow() != req.client.connection.peer {
        return;
    }
    let lists: Vec<&[u8]> = match &policy.field {
        AddressField::ProxyProtocol => return replace_by_balancer(req, policy),
        AddressField::XForwardedFor => req.head.get_all(Known::XForwardedFor).collect(),
        AddressField::Named(name) => req.head.find(name.as_bytes()).into_iter().collect(),
    };
    let trusted: Vec<Network> = policy
        .from
        .iter()
        .flat_map(|it| it.0.iter().copied())
        .collect();
    let recursive = if policy.recursive {
        Recursive::Yes
    } else {
        Recursive::No
    };
    if let Some(address) = forwarded(
        &req.client.connection.peer,
        lists.into_iter(),
        &trusted,
        recursive,
    ) {
        req.client.remote.replace(address);
    }
}

/// Gives a session the address of its connection's own header, if a trusted balancer wrote it.
pub fn start_session(req: &Request) {
    replace_by_balancer(req, &req.location.settings.of::<HandlerSettings>().real_ip);
}

/// Takes the address of the connection's own header, if a trusted balancer wrote it.
fn replace_by_balancer(req: &Request, policy: &RealIpPolicy) {
    let mut trusted = policy.from.iter().flat_map(|it| &it.0);
    if let Some(told) = req.client.connection.told.get()
        && trusted.any(|network| network.contains(&req.client.connection.peer))
    {
        req.client.remote.replace(Address::Inet(told.source));
    }
}
