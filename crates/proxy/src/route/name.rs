//! The virtual server of a request, by its host.
//!
//! The tables of names are those of the configuration (`settings/names.rs`).

use std::sync::Arc;

use crate::request::Request;
use crate::route::captures::RequestRegex as _;
use millpond_exchange::settings::Server;
use millpond_exchange::settings::names::{Search, ServerNames};

/// The server for the request's host; a regular expression sets its captures.
pub fn find<'t>(names: &'t ServerNames, req: &mut Request) -> &'t Arc<Server> {
    let expressions = match names.search(&req.host) {
        Search::Found(server) => return server,
        Search::Expressions(expressions) => expressions,
    };
    let host = req.host.clone();
    let mut matching = expressions.iter();
    let found = matching.find(|(regex, _)| regex.capture_from(req, host.clone()));
    found.map_or(names.default_server(), |(_, server)| server)
}
