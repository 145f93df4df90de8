//! `upstream_log`: one line per exchange with a peer of an upstream, written when it is over.
//!
//! nginx logs what was asked of an origin only as part of the request that caused it. Here each
//! exchange has a line of its own: each try, each slice, each update in the background, and whoever
//! else makes one.
//!
//! ```text
//! begin: a copy of the request ─► head: its fields ─► over: what the trace says of it ─► line.rs
//! ```
//!
//! A line is written from a copy of the request as it was when the exchange began, whose trace has
//! this one exchange. So each variable can be used; those of upstreams have one value, and those of
//! the answer that the client gets have none yet.
//!
//! Invariants:
//! 1. An exchange that began has a line, however it ends.
//! 2. Where no log is configured, an exchange costs nothing more.
//!
//! Choosing a peer where none is live is no exchange: the error log tells of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use millpond_conf::{ArgError, Args, Family, FromArgs, OffOr};
use millpond_wire::header::Fields;

use super::format::UPSTREAM;
use super::line::{self, RequestLog};
use crate::log::format::Logs;
use crate::log::settings::LogSettings;
use crate::request::Request;
use millpond_exchange::settings::level::Closing;
use millpond_exchange::trace::UpstreamTrace;

/// Settings of the logs of exchanges with upstreams.
#[derive(Clone, Debug, Family)]
#[family(http, server, location, if_location)]
pub struct UpstreamLogPolicy {
    /// A file or syslog server that each exchange with an upstream adds a line to, whoever caused
    /// it: a request, a slice, an update in the background. Arguments are those of `access_log`;
    /// the format is `upstream` unless one is named. `off` switches all of them off.
    ///
    /// In a format and a condition, variables of the upstream (`$upstream_status`, …) have the
    /// value of this exchange alone. The format `upstream` has the peer's address, start and end,
    /// request line, status, bytes sent and received, the client's Host and the one that was sent,
    /// the type of the answer, the reason, the number of clients that got it and its entry.
    #[directive(name = "upstream_log", repeat)]
    pub logs: Vec<OffOr<UpstreamLog>>,
}

/// One log.
#[derive(Clone, Debug)]
pub struct UpstreamLog(RequestLog);

impl FromArgs for UpstreamLog {
    const SYNTAX: &'static str = line::SYNTAX;

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        RequestLog::parse(args, "upstream_log", UPSTREAM).map(UpstreamLog)
    }
}

/// Finds the formats of a block's logs.
pub fn close(level: &mut Closing<'_>) {
    let found = level
        .settings
        .of::<LogSettings>()
        .upstream_log
        .logs
        .iter()
        .filter_map(OffOr::on);
    let (logs, cx) = level.builder.with_cx::<Logs>();
    line::complete(found.map(|UpstreamLog(log)| log), logs, cx);
}

/// An exchange that is logged when this is dropped.
pub struct LoggedExchange {
    req: Box<Request>,
    trace: Rc<RefCell<UpstreamTrace>>,
    /// Index of this exchange among the trace's attempts.
    attempt: usize,
}

impl LoggedExchange {
    /// The last attempt of the request's trace begins; nothing where it is not logged.
    pub fn begin(req: &Request) -> Option<Self> {
        let logs = &req.location.settings.of::<LogSettings>().upstream_log.logs;
        if logs.is_empty() || logs.iter().any(|log| matches!(log, OffOr::Off)) {
            return None;
        }
        let attempt = req.upstream.borrow().attempts.len().checked_sub(1)?;
        let own = Request {
            upstream: Rc::default(),
            values: req.values.detach(),
            is_background: req.is_background,
            ..req.fork()
        };
        Some(LoggedExchange {
            req: Box::new(own),
            trace: Rc::clone(&req.upstream),
            attempt,
        })
    }

    /// The head of the answer is there.
    pub fn head_came(&mut self, fields: &Rc<Fields>) {
        self.req.upstream.borrow_mut().fields = Some(Rc::clone(fields));
    }

    /// Takes what the trace says of this exchange.
    fn settle(&self) {
        // A trace that is being changed right now would be a fault of ours: the line is poorer.
        let Ok(trace) = self.trace.try_borrow() else {
            return;
        };
        let mut own = self.req.upstream.borrow_mut();
        let is_last = self.attempt + 1 == trace.attempts.len();
        own.attempts = trace
            .attempts
            .get(self.attempt)
            .cloned()
            .into_iter()
            .collect();
        if let Some(attempt) = own.attempts.first_mut() {
            attempt.ends_group = false;
        }
        own.host.clone_from(&trace.host);
        own.port = trace.port;
        own.validators = trace.validators.clone();
        own.cache_status = trace.cache_status;
        own.account = trace.account;
        if is_last {
            own.trailers.clone_from(&trace.trailers);
        }
    }
}

impl Drop for LoggedExchange {
    fn drop(&mut self) {
        self.settle();
        let location = Arc::clone(&self.req.location);
        let files = location.settings.of::<LogSettings>().access_log.files.on();
        let logs = location
            .settings
            .of::<LogSettings>()
            .upstream_log
            .logs
            .iter();
        for UpstreamLog(log) in logs.filter_map(OffOr::on) {
            log.write(&mut self.req, files);
        }
    }
}
