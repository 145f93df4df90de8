//! `error_log`: what went wrong, for operators.

use crate::downstream::writer::SendError;
use crate::failure::Failure;
use crate::request::Request;
use crate::scope::Conf;

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

/// Logs a failure of a request at its level.
pub fn failure(_req: &Request, _failure: &Failure) {}

/// Logs a refused head.
pub fn refused(_req: &Request, _why: &str) {}

/// Logs an answer that was not sent whole.
pub fn send_failed(_req: &Request, _error: &SendError) {}

/// Logs a failing accept.
pub fn accept_failed(_conf: &Conf, _error: &std::io::Error) {}
