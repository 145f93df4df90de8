//! Servers that a server's name stands for: its addresses, or those of the targets of its service.
//!
//! RFC 2782: a service `http` of `example.com` is asked for as `_http._tcp.example.com`; one that
//! has a dot is taken as it is written. Its targets have a priority, a weight and a port each, and
//! are names again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::message::Target;
use super::{Addresses, ResolveError, Resolver};
use crate::clock::Instant;
use crate::log::error::{self, Level};

/// Targets of one service that are resolved (arbitrary: far more than anybody has).
const MOST_TARGETS: usize = 256;

/// An address that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The address.
    pub ip: IpAddr,
    /// The port, when a service tells it.
    pub port: Option<u16>,
    /// The target that has the address.
    pub name: String,
    /// Share of the server; 0 as 1.
    pub weight: u16,
    /// The lowest is asked first.
    pub priority: u16,
}

impl Found {
    /// An address of a plain name.
    pub fn at(ip: IpAddr) -> Self {
        Found {
            ip,
            port: None,
            name: String::new(),
            weight: 1,
            priority: 0,
        }
    }
}

/// The name of a service's records.
pub fn service_name(host: &str, service: &str) -> String {
    if service.contains('.') {
        format!("{service}.{host}")
    } else {
        format!("_{service}._tcp.{host}")
    }
}

/// The addresses of a plain name, and until when they are good.
pub async fn of_host(
    resolver: &Arc<Resolver>,
    host: &str,
    timeout: Duration,
) -> Result<(Vec<Found>, Instant), ResolveError> {
    let addresses = resolver.addresses(host, timeout).await?;
    let found = addresses.ips.into_iter().map(Found::at).collect();
    Ok((found, addresses.valid_until))
}

/// The addresses of a service's targets, and until when all of them are good.
///
/// A target that has none is logged and left out, unless no target has any.
pub async fn of_service(
    resolver: &Arc<Resolver>,
    (host, service): (&str, &str),
    timeout: Duration,
) -> Result<(Vec<Found>, Instant), ResolveError> {
    let name = service_name(host, service);
    let known = resolver.targets(&name, timeout).await?;
    let mut valid_until = known.valid_until;
    let targets = known.targets.into_iter().take(MOST_TARGETS);
    // All are asked for at once.
    let asking: Vec<_> = targets
        .map(|target| tokio::task::spawn_local(ask(Arc::clone(resolver), target, timeout)))
        .collect();
    let mut found = Vec::new();
    let mut failure = None;
    for task in asking {
        let Ok((target, outcome)) = task.await else {
            continue;
        };
        match outcome {
            Ok(addresses) => {
                valid_until = valid_until.min(addresses.valid_until);
                found.extend(of_target(&target, addresses));
            }
            Err(why) => {
                let target = &target.host;
                let message = format_args!(
                    "{target} could not be resolved ({why}) while resolving service {service} of {host}"
                );
                error::process(Level::Error, message);
                if failure != Some(ResolveError::NOT_FOUND) {
                    failure = Some(why);
                }
            }
        }
    }
    match (found.is_empty(), failure) {
        (true, failure) => Err(failure.unwrap_or(ResolveError::NOT_FOUND)),
        (false, _) => Ok((found, valid_until)),
    }
}

async fn ask(
    resolver: Arc<Resolver>,
    target: Target,
    timeout: Duration,
) -> (Target, Result<Addresses, ResolveError>) {
    let outcome = resolver.addresses(&target.host, timeout).await;
    (target, outcome)
}

fn of_target(target: &Target, addresses: Addresses) -> impl Iterator<Item = Found> {
    let found = |ip| Found {
        ip,
        port: Some(target.port),
        name: target.host.clone(),
        weight: target.weight.max(1),
        priority: target.priority,
    };
    addresses.ips.into_iter().map(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_with_a_dot_is_a_name_already() {
        assert_eq!(service_name("a.b", "http"), "_http._tcp.a.b");
        assert_eq!(service_name("a.b", "_x._udp"), "_x._udp.a.b");
    }
}
