//! `mirror`, `mirror_request_body`: copies of requests for somebody who is not waited for.
//!
//! Each copy is a subrequest with the method, the query and the body of the client's. It runs in a
//! task of its own, and its answer is dropped.
//!
//! Invariants:
//! 1. The client's request waits for nothing but its own body, which is read first to be copied.
//! 2. A worker runs at most `MOST_MIRRORED` copies; those beyond are dropped and logged.
//!
//! # Differs from nginx
//!
//! A connection does not wait for the copies of one request before it serves the next one.
//!
//! Sources: nginx ngx_http_mirror_module.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::OffOr;
use millpond_system::log::error::Level;
use millpond_system::side_task::{Count, Running};

use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::phase::Flow;
use crate::request::Request;
use crate::request::page::Kind;
use crate::request_body;
use crate::subrequest::{self, Target};
use millpond_exchange::failure::Failure;
use millpond_exchange::settings::location::LocationSettings;

/// Copies that one worker runs at a time (arbitrary: what a mirror that answers at all keeps up
/// with).
const MOST_MIRRORED: u32 = 1024;

thread_local! {
    static RUNNING: Count = const { Count::new(0) };
}

/// The locations that get copies of requests.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct MirrorPolicy {
    /// A path that gets a copy of each request; its answers are ignored. Several may stand in a
    /// block; `off` ends what is inherited.
    #[directive(name = "mirror", repeat)]
    pub paths: Vec<OffOr<String>>,
    /// Gives copies the client's body, which is read before the request goes on.
    #[directive(name = "mirror_request_body", default = "on")]
    pub has_body: bool,
}

/// True when the location has mirrors.
pub(crate) fn is_due(req: &Request) -> bool {
    has_mirrors(&req.location.settings) && !req.is_subrequest()
}

/// True for the settings of a location with mirrors.
pub(crate) fn has_mirrors(settings: &LocationSettings) -> bool {
    settings
        .of::<HandlerSettings>()
        .mirror
        .paths
        .iter()
        .any(|path| path.on().is_some())
}

/// Sends the copies on their way.
pub(crate) async fn run(req: &mut Request) -> Result<Flow, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().mirror;
    if policy.has_body {
        request_body::read_all(req).await?;
    }
    for path in policy.paths.iter().filter_map(OffOr::on) {
        copy(req, path);
    }
    Ok(Flow::Next)
}

fn copy(req: &mut Request, path: &str) {
    let Some(running) = Running::enter(&RUNNING, MOST_MIRRORED) else {
        let message = format_args!("{MOST_MIRRORED} mirrored requests are running");
        return request_error::write(req, Level::Warn, message);
    };
    let target = Target {
        uri: Bytes::copy_from_slice(path.as_bytes()),
        args: req.args.clone(),
    };
    let method = req.method;
    let Some(mut sub) = req.subrequest(target, Kind::Mirrored) else {
        return;
    };
    sub.method = method;
    sub.is_background = true;
    sub.client = sub.client.detached();
    let generation = Rc::clone(sub.generation());
    running.spawn(generation.enter(), async move {
        let (mut sub, response) = subrequest::answer(sub).await;
        sub.sent.status = response.status;
        drop(response);
        subrequest::finish(&mut sub);
    });
}
