//! Names of peers are resolved again while the program runs: `server … resolve`.
//!
//! One worker has a task for each name. It asks at once, and again when the answer is no longer
//! good, once a second at most. A name that does not exist has no peers; after any other failure
//! the peers stay as they are, and the name is asked for again after `resolver_timeout`.

use std::sync::Arc;
use std::time::Duration;

use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use millpond_system::resolve::{ResolveError, Resolver, service};
use tokio::task::{AbortHandle, spawn_local};

use super::group::{Group, NamedServer};
use crate::upstream::groups::Groups;
use millpond_exchange::settings::Conf;

/// The least time between two questions for one name (nginx's number).
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// Starts the tasks of a configuration.
pub fn start(conf: &Conf) -> Vec<AbortHandle> {
    let mut tasks = Vec::new();
    for group in &conf.parts.of::<Groups>().upstreams {
        for index in 0..group.named.len() {
            tasks.push(spawn_local(keep(Arc::clone(group), index)).abort_handle());
        }
    }
    tasks
}

/// Keeps the peers of one name up to date, for as long as the task is let live.
async fn keep(group: Arc<Group>, index: usize) {
    let (Some(server), Some((resolver, timeout))) = (group.named.get(index), group.resolver.get())
    else {
        return;
    };
    if let Some(until) = server.valid_until() {
        clock::sleep_until(until).await;
    }
    loop {
        let now = clock::instant();
        let pause = match resolve(server, resolver, *timeout).await {
            Ok((found, valid_until)) => {
                group.update(index, &found);
                server.set_valid_until(Some(valid_until));
                valid_until.saturating_duration_since(now)
            }
            Err(why) => {
                log(server, why);
                if why == ResolveError::NOT_FOUND {
                    group.update(index, &[]);
                    resolver.absent_time()
                } else {
                    *timeout
                }
            }
        };
        clock::pause(pause.max(LEAST_PAUSE)).await;
    }
}

async fn resolve(
    server: &NamedServer,
    resolver: &Arc<Resolver>,
    timeout: Duration,
) -> Result<(Vec<service::Found>, clock::Instant), ResolveError> {
    let host = server.host.as_str();
    match &server.service {
        None => service::of_host(resolver, host, timeout).await,
        Some(service) => service::of_service(resolver, (host, service), timeout).await,
    }
}

fn log(server: &NamedServer, why: ResolveError) {
    let host = &server.host;
    match &server.service {
        None => error::process(
            Level::Error,
            format_args!("{host} could not be resolved ({why})"),
        ),
        Some(service) => error::process(
            Level::Error,
            format_args!("service {service} of {host} could not be resolved ({why})"),
        ),
    }
}
