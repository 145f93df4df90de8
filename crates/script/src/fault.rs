//! Failures of scripts, as the error log tells of them.
//!
//! Each is one line behind the word "js", with the places on the script's stack where they are known: `at name
//! (file:line:column)`.

/// The reason why a script came to no end of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An exception; the text has the places on the stack.
    #[error("exception: {0}")]
    Thrown(String),
    /// A promise was rejected, and nobody has handled that.
    #[error("unhandled rejection: {0}")]
    Rejected(String),
    /// A run that was longer than allowed.
    #[error("script was stopped after {limit_ms} ms (\"js_time_limit\"){stack}")]
    Time {
        /// The limit.
        limit_ms: u128,
        /// The places on its stack; empty where they are not known.
        stack: String,
    },
    /// Memory beyond what is allowed.
    #[error("script needs more than the {limit} bytes of \"js_memory_limit\"")]
    Memory {
        /// The limit.
        limit: usize,
    },
    /// A wait where nothing can be waited for.
    #[error("async operation inside \"{0}\", its pending events are dropped")]
    Waits(String),
    /// A function without the value that it must have.
    #[error("function \"{0}\" returned nothing")]
    NoValue(String),
    /// The engine was given up for another script's sake while this one waited.
    #[error("engine was given up while the script waited")]
    GivenUp,
    /// The engine itself failed.
    #[error("engine: {0}")]
    Engine(String),
}

impl Fault {
    /// The words for an error of the engine.
    pub(crate) fn engine(error: &dyn std::fmt::Display) -> Fault {
        Fault::Engine(error.to_string())
    }
}

/// A stack as one line of a log has it.
pub(crate) fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(" ")
}
