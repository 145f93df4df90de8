//! `post_action`: a request that this server makes to itself when an answer was sent.
//!
//! It is a copy of the client's request with another path or location, for counting what was sent:
//! `$status`, `$body_bytes_sent`, `$request_time` and their like are those of the answer. It runs
//! in a task of its own, whether or not the client is still there, and nobody reads what comes of
//! it.
//!
//! Invariant: a worker runs at most `MOST_RUNNING` such requests; those beyond are dropped and
//! logged.
//!
//! Sources: nginx ngx_http_post_action.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_system::log::error::Level;
use millpond_system::side_task::{Count, Running};

use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::phase;
use crate::request::Request;

/// Requests that one worker runs at a time (arbitrary: what a server that answers at all keeps up
/// with).
const MOST_RUNNING: u32 = 1024;

thread_local! {
    static RUNNING: Count = const { Count::new(0) };
}

/// The request that is made after an answer.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location)]
pub struct PostActionPolicy {
    /// A path, or a named location, that is requested inside the server when an answer was sent;
    /// what it answers is dropped.
    ///
    /// # Differs from nginx
    ///
    /// The connection does not wait for it before it serves the next request, the access log is
    /// written before it begins, by the location that made the answer, and no second one follows
    /// the first. A body of the client's that was not read is not there any more.
    #[directive(name = "post_action", syntax = "uri")]
    pub target: Option<String>,
}

/// Sends the location's request on its way, if it has one.
pub(crate) fn run(req: &Request) {
    let location = Arc::clone(&req.location);
    let Some(target) = &location.settings.of::<HandlerSettings>().post_action.target else {
        return;
    };
    let Some(running) = Running::enter(&RUNNING, MOST_RUNNING) else {
        let message = format_args!("{MOST_RUNNING} requests of \"post_action\" are running");
        return request_error::write(req, Level::Warn, message);
    };
    let mut action = Box::new(req.background());
    // The variables of the action are about the answer.
    action.started = req.started;
    action.started_us = req.started_us;
    action.sent = req.sent.clone();
    let target = Bytes::copy_from_slice(target.as_bytes());
    let generation = Rc::clone(action.generation());
    running.spawn(generation.enter(), async move {
        drop(phase::answer_at(&mut action, target).await);
    });
}
