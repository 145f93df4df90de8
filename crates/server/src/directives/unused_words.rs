//! Words of directives without effect: they are read, and then forgotten.
//!
//! A line that nobody obeys is still one that its author may have got wrong: nginx, where the same
//! file runs, would not start with it. So each such directive has the grammar that nginx gives it.
//!
//! What it leaves out are bounds that come from nginx's memory and its tables, such as sizes that
//! must be a multiple of something, and that such a line stands once: nobody has to choose between
//! two.

use millpond_conf::value::{ArgError, Args, FromArgs, FromWord, WordError};
use millpond_conf::{ParseContext, Statement, Word, Words};

/// The grammar of a line.
#[derive(Debug)]
pub(crate) struct Grammar {
    read: fn(&mut Args<'_>) -> Result<(), ArgError>,
    syntax: &'static str,
}

impl Grammar {
    /// The words that make a value of this type.
    pub(super) const fn of<T: FromArgs>() -> Grammar {
        Grammar {
            read: |args| T::from_args(args).map(drop),
            syntax: T::SYNTAX,
        }
    }

    /// Reads the words of a line, reports a mistake, and keeps nothing.
    pub(super) fn check(&self, line: &Statement, cx: &mut ParseContext) {
        let mut args = Args {
            name: &line.name,
            words: &line.args,
            body: None,
            cx,
        };
        if let Err(error) = (self.read)(&mut args) {
            error.report(line, self.syntax, cx);
        }
    }
}

/// Words of `debug_points`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub(super) enum DebugPoint {
    #[word("stop")]
    Stop,
    #[word("abort")]
    Abort,
}

/// Words of `use`: methods of all systems, since a file may come from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub(super) enum EventMethod {
    #[word("epoll")]
    Epoll,
    #[word("poll")]
    Poll,
    #[word("select")]
    Select,
    #[word("kqueue")]
    Kqueue,
    #[word("eventport")]
    Eventport,
    #[word("/dev/poll")]
    DevPoll,
}

/// Words of `worker_cpu_affinity`.
pub(super) struct CpuMasks;

impl FromArgs for CpuMasks {
    const SYNTAX: &'static str = "auto [cpumask] | cpumask ...";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let is_auto = words.first().is_some_and(|word| word.text == "auto");
        if is_auto && words.len() > 2 {
            return Err(ArgError::Count);
        }
        for (index, word) in words.iter().enumerate().skip(usize::from(is_auto)) {
            let mut digits = word.text.chars();
            if let Some(other) = digits.find(|char| !matches!(char, '0' | '1' | ' ')) {
                let message = format!("invalid character \"{other}\" in \"{}\"", args.name.text);
                return Err(ArgError::value(index, message));
            }
        }
        Ok(CpuMasks)
    }
}

/// Words of `thread_pool`.
pub(super) struct ThreadPool;

impl FromArgs for ThreadPool {
    const SYNTAX: &'static str = "name threads=number [max_queue=number]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        if !(2..=3).contains(&args.words.len()) {
            return Err(ArgError::Count);
        }
        let mut threads = 0;
        for (index, word) in args.words.iter().enumerate().skip(1) {
            // nginx: other words mean nothing.
            for (prefix, least) in [("threads=", 1), ("max_queue=", 0)] {
                let Some(number) = args.after::<u64>(index, prefix) else {
                    continue;
                };
                let invalid = || {
                    let name = prefix.trim_end_matches('=');
                    ArgError::value(index, format!("invalid {name} value \"{}\"", word.text))
                };
                let in_range = number.ok().filter(|number| *number >= least);
                let value = in_range.ok_or_else(invalid)?;
                threads = if least == 1 { value } else { threads };
            }
        }
        if threads == 0 {
            let message = format!("\"{}\" must have \"threads\" parameter", args.name.text);
            return Err(ArgError::other(message));
        }
        Ok(ThreadPool)
    }
}

/// The word of `aio`.
pub(super) struct Aio;

impl FromWord for Aio {
    const SYNTAX: &'static str = "on | off | threads[=pool]";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<Self, WordError> {
        let text = word.text.as_str();
        let is_known = matches!(text, "on" | "off" | "threads") || text.starts_with("threads=");
        is_known.then_some(Aio).ok_or(WordError::Invalid)
    }
}
