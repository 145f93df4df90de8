//! `access_log`: one line per request, written when the request has been answered.
//!
//! ```text
//! request ─► each log of its location: if= ─► format.rs ─► buffer.rs | named.rs | file.rs
//! ```
//!
//! Formats are declared by name in the http block and are looked up when a block's settings are
//! merged ([`complete`]); a location without any log writes to the default one.
//!
//! Invariants:
//! 1. A log that cannot be written costs lines, never requests; the operator is told once a minute.
//! 2. A worker that writes does so at most once for each log and request.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use millpond_conf::value::parse_duration;
use millpond_conf::{ArgError, Args, Family, FromArgs, OffOr, ParseContext, Span, Template, Word};

use super::buffer::{self, Buffering};
use super::error::{self, Level};
use super::file::LogFile;
use super::format::{COMBINED, LogFormat, Logs};
use super::named::{self, NamedFiles};
use crate::clock;
use crate::request::Request;

/// The log of requests whose blocks name none.
pub const DEFAULT_PATH: &str = "/var/log/millpond/access.log";

/// Buffer of a compressed log that names no size (nginx: 64k).
const GZIP_BUFFER: usize = 64 * 1024;

/// Seconds between two reports that one log cannot be written (nginx: 60).
const REPORT_PAUSE_S: i64 = 60;

/// Where requests are logged.
#[derive(Clone, Debug, Family)]
#[family(http, server, location, if_location, limit_except)]
pub struct AccessLogPolicy {
    /// A file that each request adds a line to: its path (variables allowed), format and buffering,
    /// and the condition under which a request is logged. Several may stand in a block; they
    /// replace those of the blocks around it. `off` switches all of them off.
    ///
    /// # Differs from nginx
    ///
    /// Logs to `syslog:` are refused. Where no log is named, the default one need not exist.
    #[directive(name = "access_log", repeat)]
    pub logs: Vec<OffOr<AccessLog>>,
    /// How many files of logs whose path has variables are kept open, and for how long.
    #[directive(
        name = "open_log_file_cache",
        default = "off",
        contexts(http, server, location)
    )]
    pub files: OffOr<NamedFiles>,
}

/// One log; the blocks that inherit it share it.
#[derive(Clone, Debug)]
pub struct AccessLog(Arc<AsWritten>);

/// A log's arguments, and what is learnt while it is used.
#[derive(Debug)]
struct AsWritten {
    target: Target,
    format_name: String,
    format: OnceLock<Arc<LogFormat>>,
    condition: Option<Template>,
    buffering: Option<Buffering>,
    /// The second of the last report that it cannot be written.
    reported_s: AtomicI64,
    span: Span,
}

#[derive(Debug)]
enum Target {
    File(Arc<LogFile>),
    /// The path has variables.
    Named(Template),
}

impl FromArgs for AccessLog {
    const SYNTAX: &'static str =
        "path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (path, rest) = args.words.split_first().ok_or(ArgError::Count)?;
        if path.text.starts_with("syslog:") {
            let message = "access logs to \"syslog:\" are not supported";
            return Err(ArgError::value(0, message));
        }
        if path.text == "off" {
            let extra = args.words.get(1).map_or("", |word| &word.text);
            return Err(ArgError::value(1, format!("invalid parameter \"{extra}\"")));
        }
        let full = args.cx.prefix.join(&path.text);
        let target = match path.text.contains('$') {
            true => Target::Named(template(&full.to_string_lossy(), path, args.cx, 0)?),
            false => Target::File(LogFile::at(&full)),
        };
        let mut log = AsWritten {
            target,
            format_name: rest.first().map_or(COMBINED, |word| &word.text).to_owned(),
            format: OnceLock::new(),
            condition: None,
            buffering: None,
            reported_s: AtomicI64::new(0),
            span: rest.first().map_or(path.span, |word| word.span),
        };
        let mut flush = None;
        for (index, word) in args.words.iter().enumerate().skip(2) {
            log.apply_parameter(word, args.cx, index, &mut flush)?;
        }
        match (&mut log.buffering, flush) {
            (Some(buffering), flush) => buffering.flush = flush,
            (None, Some(_)) => {
                let message = format!("no buffer is defined for access_log \"{}\"", path.text);
                return Err(ArgError::value(0, message));
            }
            (None, None) => {}
        }
        if log.buffering.is_some() && matches!(log.target, Target::Named(_)) {
            let message = "buffered logs cannot have variables in name";
            return Err(ArgError::value(0, message));
        }
        Ok(AccessLog(Arc::new(log)))
    }
}

impl AsWritten {
    fn apply_parameter(
        &mut self,
        word: &Word,
        cx: &mut ParseContext,
        index: usize,
        flush: &mut Option<std::time::Duration>,
    ) -> Result<(), ArgError> {
        let invalid = |what: &str, value: &str| {
            Err(ArgError::value(
                index,
                format!("invalid {what} \"{value}\""),
            ))
        };
        let buffering = self.buffering.unwrap_or(Buffering {
            size: GZIP_BUFFER,
            flush: None,
            gzip: None,
        });
        match word.text.split_once('=') {
            Some(("buffer", value)) => match parse_size(value) {
                Some(size) if size > 0 => {
                    self.buffering = Some(Buffering { size, ..buffering });
                }
                _ => return invalid("buffer size", value),
            },
            Some(("flush", value)) => match parse_duration(value) {
                Some(time) if !time.is_zero() => *flush = Some(time),
                _ => return invalid("flush time", value),
            },
            Some(("gzip", value)) => match value.parse() {
                Ok(level @ 1..=9) => {
                    let gzip = Some(level);
                    self.buffering = Some(Buffering { gzip, ..buffering });
                }
                _ => return invalid("compression level", value),
            },
            None if word.text == "gzip" => {
                let gzip = Some(1);
                self.buffering = Some(Buffering { gzip, ..buffering });
            }
            Some(("if", value)) => self.condition = Some(template(value, word, cx, index)?),
            _ => return invalid("parameter", &word.text),
        }
        Ok(())
    }

    fn write(&self, req: &mut Request, line: &mut Vec<u8>) {
        let Some(format) = self.format.get() else {
            return;
        };
        if let Some(condition) = &self.condition
            && !req.is_true(condition)
        {
            return;
        }
        line.clear();
        format.write(req, line);
        line.push(b'\n');
        let outcome = match (&self.target, self.buffering) {
            (Target::File(file), Some(how)) => buffer::append(file, how, line),
            (Target::File(file), None) => file.write(line),
            (Target::Named(path), _) => {
                let path = req.eval(path);
                let location = Arc::clone(&req.location);
                let outcome = named::append(&path, location.settings.access_log.files.on(), line);
                if let Err(error) = outcome {
                    let path = String::from_utf8_lossy(&path);
                    let reason = error::os_error(&error);
                    let message = format_args!("open() \"{path}\" failed ({reason})");
                    error::write(req, Level::Crit, message);
                }
                return;
            }
        };
        if let Err(error) = outcome {
            self.report(req, &error);
        }
    }

    /// INVARIANT 1.
    fn report(&self, req: &Request, failure: &std::io::Error) {
        let now = clock::now_ms() / 1000;
        let last = self.reported_s.load(Ordering::Relaxed);
        let path = match &self.target {
            Target::File(file) => file.path().unwrap_or(Path::new("stderr")),
            Target::Named(_) => return,
        };
        if self.is_default() || now - last < REPORT_PAUSE_S {
            return;
        }
        self.reported_s.store(now, Ordering::Relaxed);
        let reason = error::os_error(failure);
        let path = path.display();
        error::write(
            req,
            Level::Alert,
            format_args!("write() to \"{path}\" failed ({reason})"),
        );
    }

    /// True for the log that nobody named.
    fn is_default(&self) -> bool {
        self.span == Span::NONE
    }
}

fn template(
    text: &str,
    word: &Word,
    cx: &mut ParseContext,
    index: usize,
) -> Result<Template, ArgError> {
    Template::parse(text, word.span, &mut cx.variables)
        .map_err(|error| ArgError::value(index, error.to_string()))
}

fn parse_size(value: &str) -> Option<usize> {
    millpond_conf::value::parse_offset(value).and_then(|size| usize::try_from(size).ok())
}

/// Finds the formats of a block's logs and gives it the default log if it has none.
pub fn complete(policy: &mut AccessLogPolicy, logs: &mut Logs, cx: &mut ParseContext) {
    if policy.logs.is_empty() {
        policy.logs.push(OffOr::On(AccessLog(Arc::new(AsWritten {
            target: Target::File(LogFile::optional(Path::new(DEFAULT_PATH))),
            format_name: COMBINED.to_owned(),
            format: OnceLock::new(),
            condition: None,
            buffering: None,
            reported_s: AtomicI64::new(0),
            span: Span::NONE,
        }))));
    }
    for AccessLog(log) in policy.logs.iter().filter_map(OffOr::on) {
        if log.format.get().is_some() {
            continue;
        }
        match find_format(&log.format_name, logs, cx) {
            Some(format) => {
                // It was empty just now, and nobody else has it yet.
                let _ = log.format.set(format);
                check_buffering(log, logs, cx);
            }
            None => {
                let message = format!("unknown log format \"{}\"", log.format_name);
                cx.diagnostics.push_error(log.span, message);
            }
        }
    }
}

fn find_format(name: &str, logs: &mut Logs, cx: &mut ParseContext) -> Option<Arc<LogFormat>> {
    if name == COMBINED && !logs.formats.contains_key(COMBINED) {
        let format = Arc::new(LogFormat::combined(cx));
        logs.formats.insert(COMBINED.to_owned(), format);
    }
    logs.formats.get(name).cloned()
}

/// One file is buffered in one way.
fn check_buffering(log: &AsWritten, logs: &mut Logs, cx: &mut ParseContext) {
    let (Target::File(file), Some(buffering)) = (&log.target, log.buffering) else {
        return;
    };
    let Some(path) = file.path() else { return };
    let first = logs.buffered.entry(path.to_owned()).or_insert(buffering);
    if *first != buffering {
        let path = path.display();
        let message = format!("access_log \"{path}\" already defined with conflicting parameters");
        cx.diagnostics.push_error(log.span, message);
    }
}

/// Writes the request's lines.
pub fn write(req: &mut Request) {
    let location = Arc::clone(&req.location);
    let logs = &location.settings.access_log.logs;
    if logs.iter().any(|log| matches!(log, OffOr::Off)) {
        return;
    }
    let mut line = LINE.take();
    for AccessLog(log) in logs.iter().filter_map(OffOr::on) {
        log.write(req, &mut line);
    }
    LINE.set(line);
}

thread_local! {
    /// Room for a line; kept, so that a request needs none of its own.
    static LINE: std::cell::Cell<Vec<u8>> = const { std::cell::Cell::new(Vec::new()) };
}

/// Writes out the thread's buffered lines and closes the files that may have been renamed.
pub fn flush_all() {
    buffer::flush_all();
    named::close_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Arc<AsWritten>, String> {
        let tree = millpond_conf::load_text(
            "x",
            format!("access_log {text};"),
            &Default::default(),
            &mut Default::default(),
        );
        let statement = &tree.statements[0];
        let mut cx = ParseContext::new("/prefix", "/conf");
        AccessLog::from_args(&mut Args {
            name: &statement.name,
            words: &statement.args,
            body: None,
            cx: &mut cx,
        })
        .map(|AccessLog(log)| log)
        .map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_are_nginxs() {
        let log = read("a.log main buffer=32k flush=5s gzip=3 if=$x").unwrap();
        let expected = Buffering {
            size: 32 * 1024,
            flush: Some(std::time::Duration::from_secs(5)),
            gzip: Some(3),
        };
        assert_eq!(log.buffering, Some(expected));
        assert_eq!(log.format_name, "main");
        assert!(log.condition.is_some());
        assert_eq!(
            read("a.log main gzip").unwrap().buffering.unwrap().size,
            GZIP_BUFFER
        );
        assert_eq!(
            read("a.log main gzip buffer=1k")
                .unwrap()
                .buffering
                .unwrap()
                .gzip,
            Some(1)
        );
        assert_eq!(read("a.log").unwrap().format_name, COMBINED);
    }

    #[test]
    fn mistakes_are_worded_as_nginx_words_them() {
        let cases = [
            (
                "a main flush=1s",
                "no buffer is defined for access_log \"a\"",
            ),
            (
                "$host main buffer=1k",
                "buffered logs cannot have variables in name",
            ),
            ("a main buffer=0", "invalid buffer size \"0\""),
            ("a main buffer=1k flush=0", "invalid flush time \"0\""),
            ("a main gzip=10", "invalid compression level \"10\""),
            ("a main x", "invalid parameter \"x\""),
            ("off main", "invalid parameter \"main\""),
        ];
        for (text, message) in cases {
            assert_eq!(read(text).unwrap_err(), message, "{text}");
        }
    }
}
