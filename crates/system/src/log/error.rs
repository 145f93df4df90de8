//! `error_log`: what went wrong, for operators.
//!
//! A line is nginx's: time, level, process and thread, connection, message, and who asked for what:
//!
//! ```text
//! 2026/11/21 03:17:22 [error] 4711#4712: *8 MESSAGE, client: 127.0.0.1, server: a, request: "GET / HTTP/1.1", host: "a"
//! ```
//!
//! A request writes to the logs of its location, a location without logs to those of the main
//! level, and a configuration without any to the log the process was started with (`-e`). This file
//! has the logs, the process's lines and the writing; lines about requests are made in
//! `request_error.rs`.
//!
//! Invariants:
//! 1. A level that no log wants costs one comparison, and no formatting.
//! 2. A line is at most [`MAX_LINE`] bytes, has no control characters, and is written at once.
//! 3. Logging never fails and never waits: what cannot be written is lost, counted and told.
//!
//! What it does not do: what goes to `memory:` goes nowhere.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use millpond_conf::tree::Word;
use millpond_conf::value::Words as _;
use millpond_conf::{ArgError, Args, FromArgs};

use super::file::{LogFile, OpenError};
use super::journal::{self, Facts, Journal};
use super::syslog::Syslog;
use super::{listener, stamp};
use crate::clock;

/// The longest line (nginx: NGX_MAX_ERROR_STR).
pub const MAX_LINE: usize = 2048;

/// Parts of nginx's debug log.
const DEBUG_PARTS: [&str; 7] = [
    "debug_core",
    "debug_alloc",
    "debug_mutex",
    "debug_event",
    "debug_http",
    "debug_mail",
    "debug_stream",
];

/// Severity, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, millpond_conf::Words)]
pub enum Level {
    /// The system is unusable.
    #[word("emerg")]
    Emerg,
    /// Something must be done now.
    #[word("alert")]
    Alert,
    /// A file or a system call failed that should not.
    #[word("crit")]
    Crit,
    /// A request failed.
    #[word("error")]
    Error,
    /// Something to know of.
    #[word("warn")]
    Warn,
    /// A normal event of note.
    #[word("notice")]
    Notice,
    /// A client's fault.
    #[word("info")]
    Info,
    /// Details.
    #[word("debug")]
    Debug,
}

/// One `error_log`.
#[derive(Clone, Debug)]
pub struct ErrorLog {
    /// Target to which lines go.
    pub target: Target,
    /// Lines of this level and more severe ones.
    pub level: Level,
}

/// Target to which lines go.
#[derive(Clone, Debug)]
pub enum Target {
    /// A file, or the standard error stream.
    File(Arc<LogFile>),
    /// A syslog server.
    Syslog(Syslog),
    /// The journal of systemd.
    Journal(Journal),
    /// None: `memory:` is for debuggers of nginx.
    Nowhere,
}

impl ErrorLog {
    /// A log to a file.
    pub fn to(file: Arc<LogFile>, level: Level) -> ErrorLog {
        let target = Target::File(file);
        ErrorLog { target, level }
    }

    /// The file; none for a syslog server or the journal.
    pub fn file(&self) -> Option<&LogFile> {
        match &self.target {
            Target::File(file) => Some(file),
            Target::Syslog(_) | Target::Journal(_) | Target::Nowhere => None,
        }
    }

    /// The journal that takes its events: the one that it names, or the one behind the standard
    /// error stream.
    fn journal(&self) -> Option<&Journal> {
        match &self.target {
            Target::Journal(journal) => Some(journal),
            Target::File(file) if file.is_stderr() => journal::behind_stderr(),
            Target::File(_) | Target::Syslog(_) | Target::Nowhere => None,
        }
    }

    /// Opens its file, if it has one that is not open.
    pub fn open(&self) -> Result<(), OpenError> {
        self.file().map_or(Ok(()), LogFile::open)
    }

    /// True if its lines are seen by whoever reads the standard error stream.
    fn is_stderr(&self) -> bool {
        match &self.target {
            Target::File(file) => file.is_stderr(),
            Target::Journal(_) => journal::behind_stderr().is_some(),
            Target::Syslog(_) | Target::Nowhere => false,
        }
    }

    fn write(&self, level: Level, line: &[u8]) {
        match &self.target {
            Target::File(file) => file.write(line, 1),
            Target::Syslog(syslog) => syslog.send_as(level, line),
            Target::Journal(_) | Target::Nowhere => {}
        }
    }
}

impl FromArgs for ErrorLog {
    const SYNTAX: &'static str = "file | stderr | syslog:server=address[,parameter=value] | \
                                  journald:[parameter=value,...] [level …]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (target, level) = match args.words {
            [target, levels @ ..] => (target, level_of(levels)?),
            [] => return Err(ArgError::Count),
        };
        if target.text.starts_with("memory:") {
            let target = Target::Nowhere;
            return Ok(ErrorLog { target, level });
        }
        if let Some(parameters) = target.text.strip_prefix("syslog:") {
            let target = Target::Syslog(Syslog::parse(parameters)?);
            return Ok(ErrorLog { target, level });
        }
        if let Some(parameters) = target.text.strip_prefix("journald:") {
            let target = Target::Journal(Journal::parse(parameters)?);
            return Ok(ErrorLog { target, level });
        }
        let file = match target.text.as_str() {
            "stderr" => LogFile::stderr(),
            _ => LogFile::at(&args.word::<PathBuf>(0)?),
        };
        Ok(ErrorLog::to(file, level))
    }
}

/// The level that words name: one, or several parts of nginx's debug log, which is not told apart.
fn level_of(words: &[Word]) -> Result<Level, ArgError> {
    let mut found = None;
    for (index, word) in words.iter().enumerate() {
        let is_part = DEBUG_PARTS.contains(&word.text.as_str());
        let level = if is_part {
            Some(Level::Debug)
        } else {
            Level::parse(&word.text)
        };
        let message = || format!("invalid log level \"{}\"", word.text);
        let level = level.ok_or_else(|| ArgError::value(index + 1, message()))?;
        if found.is_some() && !is_part {
            let message = format!("duplicate log level \"{}\"", word.text);
            return Err(ArgError::value(index + 1, message));
        }
        found = Some(level);
    }
    Ok(found.unwrap_or(Level::Error))
}

/// Settings of the logs of a request's errors.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, stream, stream_server)]
pub struct ErrorLogPolicy {
    /// A file or syslog server for errors, and the least severe level that it gets (`error` unless
    /// it is named). Several may stand in a block; they replace those of the blocks around it.
    ///
    /// `journald:` is the journal of systemd, which gets events with their facts as fields:
    /// PRIORITY, SYSLOG_IDENTIFIER (`tag=`, `millpond` without it), and of requests
    /// MILLPOND_CONNECTION, MILLPOND_CLIENT, MILLPOND_SERVER, MILLPOND_REQUEST, MILLPOND_REQUEST_ID
    /// (`$request_id`), MILLPOND_SITE (`$cache_site`, where that is known without computing),
    /// MILLPOND_SUBREQUEST, MILLPOND_UPSTREAM, MILLPOND_HOST and MILLPOND_REFERRER. So does
    /// `stderr` of a process whose error stream systemd has connected with the journal. `socket=`
    /// names another socket than the journal's own.
    ///
    /// # Differs from nginx
    ///
    /// nginx knows no journal: a file of the name `journald:` is `./journald:` here.
    ///
    /// What goes to `memory:` goes nowhere. There is no log of single steps: one of the level
    /// `debug`, or of its parts (`debug_http` and others), has what one of the level `info` has,
    /// with or without `debug_connection`. A file that does not take lines costs lines: they are
    /// counted and told in the error log of the process, once a second at most.
    #[directive(name = "error_log", repeat)]
    pub logs: Vec<ErrorLog>,
}

/// Settings of the log of the process, and of requests whose blocks have no log.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(main)]
pub struct ProcessLogPolicy {
    /// A file for errors of the process and of all requests that have no log of their own; without
    /// any it is the file of the `-e` option. What `http` says of syslog servers and of the journal
    /// holds here, too.
    ///
    /// # Differs from nginx
    ///
    /// A log of the level `debug` has what one of the level `info` has.
    #[directive(name = "error_log", repeat)]
    pub logs: Vec<ErrorLog>,
}

/// The logs of the process now.
static PROCESS: LazyLock<ArcSwap<Vec<ErrorLog>>> =
    LazyLock::new(|| ArcSwap::from_pointee(vec![ErrorLog::to(LogFile::stderr(), Level::Error)]));

/// True while the operator watches: what matters is written to the standard error stream, too.
static TELLS_STDERR: AtomicBool = AtomicBool::new(true);

/// Puts the logs of the process into force: those of a configuration, or the one of `-e`.
pub fn set_process_logs(logs: Vec<ErrorLog>) {
    PROCESS.store(Arc::new(logs));
}

/// From now on lines go to the logs only, because the start is over.
pub fn leave_stderr() {
    TELLS_STDERR.store(false, Ordering::Relaxed);
}

/// Runs something whose lines the standard error stream has in another form already.
pub fn to_logs_only(run: impl FnOnce()) {
    let before = TELLS_STDERR.swap(false, Ordering::Relaxed);
    run();
    TELLS_STDERR.store(before, Ordering::Relaxed);
}

/// Panics of this process that were caught: each ended one task.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts and logs a panic; called by the process's panic hook.
pub fn panicked(message: fmt::Arguments<'_>) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    process(Level::Alert, message);
}

/// Number of panics that were caught since the start.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Logs an event of the process.
pub fn process(level: Level, message: fmt::Arguments<'_>) {
    let logs = PROCESS.load();
    write_line(&logs, level, None, message);
    let has_stderr = logs.iter().any(|log| log.is_stderr() && log.level >= level);
    if level <= Level::Warn && TELLS_STDERR.load(Ordering::Relaxed) && !has_stderr {
        let line = format!("millpond: [{}] {message}\n", level.word());
        LogFile::stderr().write(line.as_bytes(), 1);
    }
}

/// Logs a failing accept.
pub fn accept_failed(error: &io::Error) {
    process(
        Level::Crit,
        format_args!("accept4() failed ({})", os_error(error)),
    );
}

/// An error of the system as nginx writes it: `2: No such file or directory`.
pub fn os_error(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            let text = text.split(" (os error").next().unwrap_or(&text);
            format!("{code}: {text}")
        }
        None => text,
    }
}

thread_local! {
    /// Room for a line; kept, so that a line needs none of its own.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// `PID#TID: `, the same for all lines of a thread.
    static PROCESS_AND_THREAD: String = format!(
        "{}#{}: ",
        std::process::id(),
        rustix::thread::gettid().as_raw_nonzero()
    );
}

/// The logs of a configuration, or those of the process if it has none; unless none of them, nor
/// the listener, wants the level.
pub fn with_logs(by_conf: &[ErrorLog], level: Level, write: impl FnOnce(&[ErrorLog])) {
    let process;
    let logs = if by_conf.is_empty() {
        process = PROCESS.load();
        &process
    } else {
        by_conf
    };
    if logs.iter().any(|log| log.level >= level) || listener::hears(level) {
        write(logs);
    }
}

/// Something that happened, as logs tell of it.
pub struct Event<'a> {
    /// Severity.
    pub level: Level,
    /// Number of the connection that it is about.
    pub connection: Option<u64>,
    /// The message, with all facts.
    pub message: fmt::Arguments<'a>,
    /// The facts once more, one by one, for logs that keep them so.
    pub facts: &'a dyn Facts,
}

/// True if one of some logs, or the process's without any, or the listener keeps facts one by one.
pub fn keep_facts(by_conf: &[ErrorLog]) -> bool {
    let keeps = |logs: &[ErrorLog]| logs.iter().any(|log| log.journal().is_some());
    let by_logs = match by_conf {
        [] => keeps(&PROCESS.load()),
        _ => keeps(by_conf),
    };
    by_logs || listener::hears_any()
}

/// A line in those of some logs that want its level; `number`: that of the connection it is about.
pub fn write_line(
    logs: &[ErrorLog],
    level: Level,
    number: Option<u64>,
    message: fmt::Arguments<'_>,
) {
    let event = Event {
        level,
        connection: number,
        message,
        facts: &(),
    };
    write_event(logs, &event);
}

/// An event in those of some logs that want its level, and for the listener.
pub fn write_event(logs: &[ErrorLog], event: &Event<'_>) {
    let wanted = || logs.iter().filter(|log| log.level >= event.level);
    let is_heard = listener::hears(event.level);
    if wanted().next().is_none() && !is_heard {
        return;
    }
    // Taken, not borrowed: what is lost here is told by a line of its own.
    let mut line = LINE.take();
    line.clear();
    stamp::append(&mut line, stamp::Form::ErrorLog, clock::now_ms());
    let mut text = Bounded(&mut line);
    // A line that is full is cut, which is no failure.
    let _ = write!(text, " [{}] ", event.level.word());
    PROCESS_AND_THREAD.with(|ids| text.write_str(ids)).ok();
    // The journal keeps time, level and process by itself.
    let own = text.0.len();
    if let Some(number) = event.connection {
        let _ = write!(text, "*{number} ");
    }
    let _ = text.write_fmt(event.message);
    line.push(b'\n');
    let message = line.get(own..).unwrap_or_default().trim_ascii_end();
    for log in wanted() {
        // INVARIANT 3.
        match log.journal() {
            None => log.write(event.level, &line),
            Some(journal) => journal.send(event.level, message, event.facts),
        }
    }
    if is_heard {
        listener::tell(event.level, message, event.facts);
    }
    LINE.set(line);
}

/// Takes text up to [`MAX_LINE`] and shows control characters as `\x0A`.
struct Bounded<'a>(&'a mut Vec<u8>);

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.0.len() + 5 > MAX_LINE {
                return Err(fmt::Error);
            }
            match byte {
                0..=0x1f | 0x7f => {
                    let digit = |nibble: u8| b"0123456789ABCDEF".get(nibble as usize).copied();
                    let digits = [digit(byte >> 4), digit(byte & 15)];
                    self.0.extend_from_slice(b"\\x");
                    self.0.extend(digits.into_iter().flatten());
                }
                _ => self.0.push(byte),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_bounded_and_has_no_control_characters() {
        let mut line = Vec::new();
        Bounded(&mut line).write_str("a\nb\x7f").unwrap();
        assert_eq!(line, b"a\\x0Ab\\x7F");
        let long = "x".repeat(MAX_LINE * 2);
        assert!(Bounded(&mut line).write_str(&long).is_err());
        assert!(line.len() < MAX_LINE);
    }

    #[test]
    fn error_log_takes_a_file_and_a_level() {
        let mut cx = millpond_conf::ParseContext::new("/prefix", "/conf");
        let mut read = |text: &str| {
            let tree = millpond_conf::load_text(
                "x",
                format!("error_log {text};"),
                &Default::default(),
                &mut Default::default(),
            );
            let statement = &tree.statements[0];
            ErrorLog::from_args(&mut Args {
                name: &statement.name,
                words: &statement.args,
                body: None,
                cx: &mut cx,
            })
        };
        let log = read("e.log").unwrap();
        assert_eq!(log.file().unwrap().path(), Some("/prefix/e.log".as_ref()));
        assert_eq!(log.level, Level::Error);
        assert_eq!(read("/e.log debug").unwrap().level, Level::Debug);
        assert!(read("stderr").unwrap().file().unwrap().is_stderr());
        let syslog = read("syslog:server=127.0.0.1:514,tag=a info").unwrap();
        assert!(syslog.file().is_none() && syslog.level == Level::Info);
        let journal = read("journald: warn").unwrap();
        assert!(journal.journal().is_some() && journal.level == Level::Warn);
        let memory = read("memory:1m info").unwrap();
        assert!(memory.file().is_none() && memory.journal().is_none());
        assert_eq!(memory.level, Level::Info);
        for text in ["", "a b", "a error x", "syslog:tag=a", "journald:x"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
