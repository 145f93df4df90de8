//! A log that lines about requests are added to: its path or server, format, buffering and
//! condition, whatever the directive that names it (`access_log`, `upstream_log`).
//!
//! ```text
//! request ─► if= ─► format.rs ─► buffer | turn | named | syslog
//! ```
//!
//! Formats are looked up when a block's settings are merged ([`complete`]).
//!
//! Invariants:
//! 1. A log that cannot be written costs lines, never requests; they are counted, and the operator
//!    is told once a second at most.
//! 2. A worker writes at most once for each log and request. Unless a buffer is configured, it has
//!    written the line of a request when the connection ends, and when it waits for another one.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use millpond_conf::value::parse_duration;
use millpond_conf::{ArgError, Args, ParseContext, Span, Template, Word};
use millpond_system::log::buffer::{self, Buffering};
use millpond_system::log::error::{self, Level};
use millpond_system::log::file::LogFile;
use millpond_system::log::loss::{Loss, Why};
use millpond_system::log::named::{self, NamedFiles};
use millpond_system::log::syslog::Syslog;
use millpond_system::log::turn;

use super::format::{self, LogFormat, Logs};
use crate::request::Request;

/// Buffer of a compressed log that names no size (nginx: 64k).
const GZIP_BUFFER: usize = 64 * 1024;

/// The arguments of a directive that names a log.
pub(crate) const SYNTAX: &str =
    "path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]]";

/// One log; the blocks that inherit it share it.
#[derive(Clone, Debug)]
pub(crate) struct RequestLog(Arc<AsWritten>);

/// A log's arguments, and what is learnt while it is used.
#[derive(Debug)]
struct AsWritten {
    /// The directive that names it.
    directive: &'static str,
    target: Target,
    format_name: String,
    format: OnceLock<Arc<LogFormat>>,
    condition: Option<Template>,
    buffering: Option<Buffering>,
    /// Loss of a log whose path has variables; files and servers count for themselves.
    loss: Loss,
    span: Span,
}

#[derive(Debug)]
enum Target {
    File(Arc<LogFile>),
    /// The path has variables.
    Named(Template),
    Syslog(Syslog),
}

impl RequestLog {
    /// Reads the arguments of `directive`; a log that names no format has `default_format`.
    pub(crate) fn parse(
        args: &mut Args<'_>,
        directive: &'static str,
        default_format: &str,
    ) -> Result<Self, ArgError> {
        let (path, rest) = args.words.split_first().ok_or(ArgError::Count)?;
        if path.text == "off" {
            let extra = args.words.get(1).map_or("", |word| &word.text);
            return Err(ArgError::value(1, format!("invalid parameter \"{extra}\"")));
        }
        let full = args.cx.prefix.join(&path.text);
        let target = match path.text.strip_prefix("syslog:") {
            Some(parameters) => Target::Syslog(Syslog::parse(parameters)?),
            None if path.text.contains('$') => {
                Target::Named(template(&full.to_string_lossy(), path, args.cx, 0)?)
            }
            None => Target::File(LogFile::at(&full)),
        };
        let mut log = AsWritten {
            directive,
            target,
            format_name: rest
                .first()
                .map_or(default_format, |word| word.text.as_str())
                .to_owned(),
            format: OnceLock::new(),
            condition: None,
            buffering: None,
            loss: Loss::default(),
            span: rest.first().map_or(path.span, |word| word.span),
        };
        let mut flush = None;
        for (index, word) in args.words.iter().enumerate().skip(2) {
            log.apply_parameter(word, args.cx, index, &mut flush)?;
        }
        match (&mut log.buffering, flush) {
            (Some(buffering), flush) => buffering.flush = flush,
            (None, Some(_)) => {
                let message = format!("no buffer is defined for {directive} \"{}\"", path.text);
                return Err(ArgError::value(0, message));
            }
            (None, None) => {}
        }
        if let (Some(_), Some(message)) = (log.buffering, log.target.refuses_buffer()) {
            return Err(ArgError::value(0, message));
        }
        Ok(RequestLog(Arc::new(log)))
    }

    /// The log of blocks that name none: a file that need not exist.
    pub(crate) fn optional(path: &Path, directive: &'static str, format: &str) -> Self {
        RequestLog(Arc::new(AsWritten {
            directive,
            target: Target::File(LogFile::optional(path)),
            format_name: format.to_owned(),
            format: OnceLock::new(),
            condition: None,
            buffering: None,
            loss: Loss::default(),
            span: Span::NONE,
        }))
    }

    /// Writes the line of a request; `files` are those of paths with variables that stay open.
    pub(crate) fn write(&self, req: &mut Request, files: Option<&NamedFiles>) {
        let mut line = LINE.take();
        self.0.write(req, files, &mut line);
        LINE.set(line);
    }
}

thread_local! {
    /// Room for a line; kept, so that a request needs none of its own.
    static LINE: std::cell::Cell<Vec<u8>> = const { std::cell::Cell::new(Vec::new()) };
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

    fn write(&self, req: &mut Request, files: Option<&NamedFiles>, line: &mut Vec<u8>) {
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
        match (&self.target, self.buffering) {
            (Target::File(file), Some(how)) => buffer::append(file, how, line),
            (Target::File(file), None) => {
                turn::append(file, line);
                // A reader who sees a connection end finds the line of its last request.
                if !req.client.keeps_connection() {
                    turn::write_out();
                }
            }
            (Target::Syslog(syslog), _) => syslog.send(line),
            (Target::Named(path), _) => self.write_named(req, (path, files), line),
        }
    }

    fn write_named(
        &self,
        req: &mut Request,
        (path, files): (&Template, Option<&NamedFiles>),
        line: &[u8],
    ) {
        let path = req.eval(path);
        if let Err(failure) = named::append(&path, files, line) {
            // INVARIANT 1.
            let (path, reason) = (String::from_utf8_lossy(&path), error::os_error(&failure));
            let what = format_args!("open() \"{path}\" failed ({reason})");
            self.loss.note(Why::File, Level::Crit, 1, what);
        }
    }
}

impl Target {
    /// The reason why lines to it cannot be gathered; in nginx's words.
    fn refuses_buffer(&self) -> Option<&'static str> {
        match self {
            Target::File(_) => None,
            Target::Named(_) => Some("buffered logs cannot have variables in name"),
            Target::Syslog(_) => Some("logs to syslog cannot be buffered"),
        }
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

/// Finds the formats of a block's logs.
pub(crate) fn complete<'a>(
    found: impl Iterator<Item = &'a RequestLog>,
    logs: &mut Logs,
    cx: &mut ParseContext,
) {
    for RequestLog(log) in found {
        if log.format.get().is_some() {
            continue;
        }
        match format::find(&log.format_name, logs, cx) {
            Some(format) => {
                // The cell was empty just now, and nobody else has it yet.
                let _ = log.format.set(format);
                check_buffering(log, logs, cx);
            }
            // Every block that inherits the log comes by.
            None if !logs.unknown.insert(log.span) => {}
            None => {
                let message = format!("unknown log format \"{}\"", log.format_name);
                cx.diagnostics.push_error(log.span, message);
            }
        }
    }
}

/// One file is buffered in one way.
fn check_buffering(log: &AsWritten, logs: &mut Logs, cx: &mut ParseContext) {
    let (Target::File(file), Some(buffering)) = (&log.target, log.buffering) else {
        return;
    };
    let Some(path) = file.path() else { return };
    let first = logs.buffered.entry(path.to_owned()).or_insert(buffering);
    if *first != buffering {
        let (path, directive) = (path.display(), log.directive);
        let message = format!("{directive} \"{path}\" already defined with conflicting parameters");
        cx.diagnostics.push_error(log.span, message);
    }
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
        RequestLog::parse(
            &mut Args {
                name: &statement.name,
                words: &statement.args,
                body: None,
                cx: &mut cx,
            },
            "access_log",
            "combined",
        )
        .map(|RequestLog(log)| log)
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
        assert_eq!(read("a.log").unwrap().format_name, "combined");
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
            (
                "syslog:server=127.0.0.1 main buffer=1k",
                "logs to syslog cannot be buffered",
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
