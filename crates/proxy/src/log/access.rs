//! `access_log`: one line per request, written when the request has been answered.
//!
//! A location without any log writes to the default one. What a log is and how it is written is in
//! `line`.

use std::path::Path;
use std::sync::Arc;

use millpond_conf::{ArgError, Args, Family, FromArgs, OffOr};
use millpond_system::log::buffer;
use millpond_system::log::named::{self, NamedFiles};
use millpond_system::log::turn;

use super::format::COMBINED;
use super::line::{self, RequestLog};
use crate::log::format::Logs;
use crate::log::settings::LogSettings;
use crate::request::Request;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::level::Closing;

/// The log of requests whose blocks name none.
pub const DEFAULT_PATH: &str = "/var/log/millpond/access.log";

const DIRECTIVE: &str = "access_log";

/// Settings of the logs of requests.
#[derive(Clone, Debug, Family)]
#[family(
    http,
    server,
    location,
    if_location,
    limit_except,
    stream,
    stream_server
)]
pub struct AccessLogPolicy {
    /// A file or syslog server that each request adds a line to: its path (variables allowed) or
    /// address, format and buffering, and the condition under which a request is logged. Several
    /// may stand in a block; they replace those of the blocks around it. `off` switches all of
    /// them off.
    ///
    /// # Differs from nginx
    ///
    /// Where no log is named, the default one need not exist. A log that does not take lines costs
    /// lines: they are counted and told in the error log, once a second at most.
    #[directive(name = "access_log", repeat)]
    pub logs: Vec<OffOr<AccessLog>>,
    /// Number of files of logs whose path has variables that are kept open, and the time for which
    /// they are kept.
    #[directive(
        name = "open_log_file_cache",
        default = "off",
        contexts(http, server, location, stream, stream_server)
    )]
    pub files: OffOr<NamedFiles>,
}

/// One log.
#[derive(Clone, Debug)]
pub struct AccessLog(RequestLog);

impl FromArgs for AccessLog {
    const SYNTAX: &'static str = line::SYNTAX;

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        RequestLog::parse(args, DIRECTIVE, COMBINED).map(AccessLog)
    }
}

/// Finds the formats of a block's logs and gives it the default log if it has none.
pub fn close(level: &mut Closing<'_>) {
    let policy = &mut level.settings.of_mut::<LogSettings>().access_log;
    if policy.logs.is_empty() {
        let log = RequestLog::optional(Path::new(DEFAULT_PATH), DIRECTIVE, COMBINED);
        policy.logs.push(OffOr::On(AccessLog(log)));
    }
    complete(level);
}

/// Finds the formats of a block's logs.
pub fn complete(level: &mut Closing<'_>) {
    let policy = &level.settings.of::<LogSettings>().access_log;
    let found = policy.logs.iter().filter_map(OffOr::on);
    let (logs, cx) = level.builder.with_cx::<Logs>();
    line::complete(found.map(|AccessLog(log)| log), logs, cx);
}

/// The logs of a block itself: a configuration keeps them, so that their files are opened although
/// each server has others.
pub struct BlockLogs(pub AccessLogPolicy);

impl Part for BlockLogs {
    const PLACE: Place = Place::BlockLogs;
}

/// Writes the request's lines.
pub fn write(req: &mut Request) {
    let logs = &req.location.settings.of::<LogSettings>().access_log.logs;
    if logs.iter().any(|log| matches!(log, OffOr::Off)) {
        return;
    }
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<LogSettings>().access_log;
    for AccessLog(log) in policy.logs.iter().filter_map(OffOr::on) {
        log.write(req, policy.files.on());
    }
}

/// Writes out the thread's buffered lines and closes the files that may have been renamed.
pub fn flush_all() {
    turn::write_out();
    buffer::flush_all();
    named::close_all();
}
