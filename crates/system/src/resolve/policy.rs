//! `resolver`, `resolver_timeout`: the name servers that are asked while the program runs.
//!
//! Each `resolver` line has a memory of its own, which a reload begins anew. The names of the
//! servers themselves are resolved when the line is read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millpond_conf::value::{ArgError, Args, FromArgs, parse_duration};

use super::Resolver;
use crate::address::Address;
use crate::network;

/// Settings of the name servers that are asked for the addresses of names.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, stream, stream_server)]
pub struct ResolverPolicy {
    /// Name servers, asked in turn. Answers are kept as long as they say, or for `valid`; with
    /// `ipv4=off` or `ipv6=off` no addresses of that kind are asked for.
    ///
    /// # Differs from nginx
    ///
    /// `status_zone` is accepted and has no effect.
    #[directive(name = "resolver")]
    pub servers: Option<NameServers>,
    /// The time after which a name that was not resolved is given up.
    #[directive(name = "resolver_timeout", default = "30s")]
    pub timeout: Duration,
}

/// The reason why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The word of the name servers.
    #[error("could not be resolved ({0})")]
    Servers(String),
    /// The word of the system.
    #[error("{0}")]
    System(String),
}

impl Unresolved {
    /// The word alone.
    pub fn why(&self) -> &str {
        match self {
            Unresolved::Servers(why) | Unresolved::System(why) => why,
        }
    }
}

impl ResolverPolicy {
    /// The addresses of a host, which may be one itself, with a port: as the name servers tell
    /// them, or the system, which may take its time and is asked on another thread.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Unresolved> {
        if let Some(ip) = network::ip_of(host) {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        if let Some(servers) = &self.servers {
            let asked = servers.0.addresses(host, self.timeout).await;
            let found = asked.map_err(|why| Unresolved::Servers(why.to_string()))?;
            let ips = found.ips.iter();
            return Ok(ips.map(|ip| SocketAddr::new(*ip, port)).collect());
        }
        let host = host.to_owned();
        let job = tokio::task::spawn_blocking(move || network::resolve(&host, port));
        let found = match job.await {
            Ok(found) => found.map_err(Unresolved::System)?,
            Err(_) => return Err(Unresolved::System("the look-up was given up".to_owned())),
        };
        let inet = found.into_iter().filter_map(|address| match address {
            Address::Inet(address) => Some(address),
            Address::Unix(_) => None,
        });
        Ok(inet.collect())
    }
}

/// One `resolver` line, with all that was learnt by it.
#[derive(Clone, Debug)]
pub struct NameServers(pub Arc<Resolver>);

/// The port of name servers.
const PORT: u16 = 53;

impl FromArgs for NameServers {
    const SYNTAX: &'static str =
        "address … [valid=time] [ipv4=on | off] [ipv6=on | off] [status_zone=zone]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let mut servers: Vec<SocketAddr> = Vec::new();
        let mut valid = None;
        let (mut ipv4, mut ipv6) = (true, true);
        for (index, word) in words.iter().enumerate() {
            let text = word.text.as_str();
            let invalid = || ArgError::value(index, format!("invalid parameter: {text}"));
            match text.split_once('=') {
                Some(("valid", time)) => {
                    let time = parse_duration(time).ok_or_else(invalid)?;
                    valid = Some(time).filter(|time| !time.is_zero());
                }
                Some(("ipv4", word)) => ipv4 = on_or_off(word).ok_or_else(invalid)?,
                Some(("ipv6", word)) => ipv6 = on_or_off(word).ok_or_else(invalid)?,
                Some(("status_zone", zone)) if !zone.is_empty() => {}
                _ => {
                    let found = network::resolve(text, PORT).map_err(|why| {
                        ArgError::value(index, format!("{why} in resolver \"{text}\""))
                    })?;
                    let inet = found.into_iter().filter_map(|address| match address {
                        Address::Inet(inet) => Some(inet),
                        Address::Unix(_) => None,
                    });
                    servers.extend(inet);
                }
            }
        }
        if !ipv4 && !ipv6 {
            return Err(ArgError::other(
                "\"ipv4\" and \"ipv6\" cannot both be \"off\"",
            ));
        }
        if servers.is_empty() {
            return Err(ArgError::other("no name servers defined"));
        }
        Ok(NameServers(Arc::new(Resolver::new(
            servers,
            valid,
            (ipv4, ipv6),
        ))))
    }
}

fn on_or_off(word: &str) -> Option<bool> {
    match word {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}
