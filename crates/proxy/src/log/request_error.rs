//! Lines of the error logs about requests and connections: what failed, and who asked for what.
//!
//! The logs of a request are those of its location, then those of the main level, then those of
//! the process. The end of its lines names the client, the server, the request line, the peer that
//! was asked last, and the fields Host and Referer, in nginx's order and words. The journal gets
//! each of them as a field of its own, with the request's id and site.
//!
//! The logs themselves, their levels and how a line is written are in `error.rs`.

use std::fmt;
use std::sync::Arc;

use millpond_system::log::error::{self, ErrorLog, Event, Level, write_event};
use millpond_system::log::journal::{Facts, Fields, Kept};
use millpond_wire::header::Known;

use crate::request::Request;
use crate::request::state::Listener;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::client::send::SendError;
use millpond_exchange::failure::Failure;
use millpond_exchange::settings::{Conf, Location};

/// Logs an event of a request at a level.
pub fn write(req: &Request, level: Level, message: fmt::Arguments<'_>) {
    let number = Some(req.client.connection.number);
    with_logs(&req.location, &req.conf, level, |logs| {
        let event = Event {
            level,
            connection: number,
            message: format_args!("{message}{}", Asker(req)),
            facts: &Asker(req),
        };
        write_event(logs, &event);
    });
}

/// Logs an event of a session whose message has all that there is to say.
pub fn write_bare(req: &Request, level: Level, message: fmt::Arguments<'_>) {
    let number = Some(req.client.connection.number);
    with_logs(&req.location, &req.conf, level, |logs| {
        let event = Event {
            level,
            connection: number,
            message,
            facts: &Asker(req),
        };
        write_event(logs, &event);
    });
}

/// Facts for lines about a request when the request itself is out of reach.
pub struct RememberedRequest {
    location: Arc<Location>,
    conf: Arc<Conf>,
    number: u64,
    asker: String,
    facts: Kept,
}

/// Remembers a request as it is now.
pub(crate) fn remember(req: &Request) -> RememberedRequest {
    RememberedRequest {
        location: Arc::clone(&req.location),
        conf: Arc::clone(&req.conf),
        number: req.client.connection.number,
        asker: Asker(req).to_string(),
        facts: if error::keep_facts(by_conf(&req.location, &req.conf)) {
            Kept::of(&Asker(req))
        } else {
            Kept::default()
        },
    }
}

impl RememberedRequest {
    /// Logs an event of the request.
    pub fn write(&self, level: Level, message: fmt::Arguments<'_>) {
        with_logs(&self.location, &self.conf, level, |logs| {
            let event = Event {
                level,
                connection: Some(self.number),
                message: format_args!("{message}{}", self.asker),
                facts: &self.facts,
            };
            write_event(logs, &event);
        });
    }
}

/// The logs of a location, unless none of them wants the level.
fn with_logs(location: &Location, conf: &Conf, level: Level, write: impl FnOnce(&[ErrorLog])) {
    error::with_logs(by_conf(location, conf), level, write);
}

/// The logs that the configuration names for a location.
fn by_conf<'a>(location: &'a Location, conf: &'a Conf) -> &'a [ErrorLog] {
    let own = &location.settings.error_log.logs;
    if own.is_empty() {
        &conf.main.log.logs
    } else {
        own
    }
}

/// Logs an event of a connection between two requests.
pub(crate) fn connection(of: &Connection, level: Level, message: fmt::Arguments<'_>) {
    let main = &of.generation.conf.main.log.logs;
    let asker = format_args!(
        "{message}, client: {}, server: {}",
        of.peer.host_text(),
        of.local
    );
    error::with_logs(main, level, |logs| {
        let event = Event {
            level,
            connection: Some(of.number),
            message: asker,
            facts: &Between(of),
        };
        write_event(logs, &event);
    });
}

/// Facts of a connection between two requests.
struct Between<'a>(&'a Connection);

impl Facts for Between<'_> {
    fn put(&self, event: &mut Fields<'_>) {
        event.show("MILLPOND_CONNECTION", self.0.number);
        event.put("MILLPOND_CLIENT", self.0.peer.host_text().as_bytes());
    }
}

/// Logs a failure of a request at its level.
pub fn failure(req: &Request, failure: &Failure) {
    if let Some(level) = failure.level() {
        write(req, level, format_args!("{failure}"));
    }
}

/// Logs a refused head.
pub(crate) fn refused(req: &Request, why: &str) {
    let what = "while reading client request headers";
    write(req, Level::Info, format_args!("{why} {what}"));
}

/// Logs an answer that was not sent whole.
pub(crate) fn send_failed(req: &Request, error: &SendError) {
    let level = match error {
        SendError::Client(_) => Level::Info,
        _ => Level::Error,
    };
    write(req, level, format_args!("{error} while sending to client"));
}

/// The client and what it asked for: the end of a request's line.
struct Asker<'a>(&'a Request);

impl fmt::Display for Asker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let req = self.0;
        let text = |bytes| String::from_utf8_lossy(bytes);
        if let Some(listener) = req.notes.get::<Listener>() {
            return write_session(f, req, listener);
        }
        write!(f, ", client: {}", req.client.remote.borrow().host_text())?;
        write!(f, ", server: {}", text(&req.server.name))?;
        let line = req.head.line();
        if !line.is_empty() {
            write!(f, ", request: \"{}\"", text(line))?;
        }
        if req.is_subrequest() {
            write!(f, ", subrequest: \"{}\"", text(&req.uri))?;
        }
        // A line that is written while the trace is changed goes without it.
        if let Ok(trace) = req.upstream.try_borrow()
            && let Some(attempt) = trace.attempts.last()
        {
            write!(f, ", upstream: \"{attempt}\"")?;
        }
        if let Some(host) = req.field(Known::Host) {
            write!(f, ", host: \"{}\"", text(host))?;
        }
        if let Some(referrer) = req.field(Known::Referer) {
            write!(f, ", referrer: \"{}\"", text(referrer))?;
        }
        Ok(())
    }
}

/// Ends a line about a session: its client and its listener, the peer, and what went through.
fn write_session(f: &mut fmt::Formatter<'_>, req: &Request, listener: &Listener) -> fmt::Result {
    let kind = if listener.is_datagrams { "udp " } else { "" };
    let client = req.client.remote.borrow();
    write!(f, ", {kind}client: {}", client.host_text())?;
    write!(f, ", server: {}", listener.address)?;
    let Ok(trace) = req.upstream.try_borrow() else {
        return Ok(());
    };
    let Some(attempt) = trace.attempts.last() else {
        return Ok(());
    };
    write!(f, ", upstream: \"{}\"", attempt.peer)?;
    let (received, sent) = (req.client.request_bytes.get(), req.sent.body_bytes);
    write!(f, ", bytes from/to client:{received}/{sent}")?;
    let (received, sent) = (attempt.bytes_received, attempt.bytes_sent);
    write!(f, ", bytes from/to upstream:{received}/{sent}")
}

impl Facts for Asker<'_> {
    fn put(&self, event: &mut Fields<'_>) {
        let req = self.0;
        event.show("MILLPOND_CONNECTION", req.client.connection.number);
        let client = req.client.remote.borrow();
        event.put("MILLPOND_CLIENT", client.host_text().as_bytes());
        event.put("MILLPOND_SERVER", &req.server.name);
        event.put("MILLPOND_REQUEST", req.head.line());
        event.put("MILLPOND_REQUEST_ID", req.id());
        if let Some(site) = req.site_as_it_is() {
            event.put("MILLPOND_SITE", &site);
        }
        if req.is_subrequest() {
            event.put("MILLPOND_SUBREQUEST", &req.uri);
        }
        if let Ok(trace) = req.upstream.try_borrow()
            && let Some(attempt) = trace.attempts.last()
        {
            event.show("MILLPOND_UPSTREAM", attempt);
        }
        for (name, field) in [
            ("MILLPOND_HOST", Known::Host),
            ("MILLPOND_REFERRER", Known::Referer),
        ] {
            event.put(name, req.field(field).unwrap_or_default());
        }
    }
}
