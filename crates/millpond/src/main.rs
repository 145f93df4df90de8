//! The `millpond` program: arguments, configuration test, start, signals to a running process.
//!
//! | file | what |
//! |---|---|
//! | `arguments.rs` | nginx's command line |
//! | `version.rs` | `-v`, `-V`, `-h`, and the table of what works |
//! | `start.rs` | the way from a configuration to a serving process |
//! | `test.rs` | `-t`, `-T` |
//! | `folders.rs` | what `-t` sees of folders that a start would make |
//! | `daemon.rs` | going to the background |
//! | `identity.rs` | `user`: changing user and group |
//! | `as_root.rs` | the process that stays root when the server changes its user |
//! | `pid.rs` | the pid file, and `-s` |
//! | `reload.rs` | `-s reload --wait` |
//! | `cache/` | `millpond cache`: what is in the caches, and purging; `millpond fleet`: the same on all nodes |
//! | `fleet_config/` | `millpond fleet config`: configuration that is given to a fleet in steps |
//! | `top/` | `millpond top`: what a process does, live |
//! | `sensor/` | `millpond sensor`: one question, answered for a monitor |
//! | `check/` | `millpond check`: how a configuration fares |
//! | `explain/` | `millpond explain`: what a name means |
//! | `terminal.rs` | colours and lines of what is printed |
//! | crate `gauge` | `millpond gauge`: loads, verifies and compares servers |
//! | `demo/` | `millpond demo`: an origin, a page, and Millpond between them |

mod arguments;
mod as_root;
mod cache;
mod check;
mod daemon;
mod demo;
mod descriptors;
mod explain;
mod fleet_config;
mod folders;
mod identity;
mod options;
mod pid;
mod printed;
mod reload;
mod sensor;
mod start;
mod terminal;
mod test;
mod top;
mod url;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use arguments::{Action, Arguments, SignalName};
use millpond_system::root_helper;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let own = |skipped: usize| words.iter().skip(skipped).cloned();
    let tool: fn(std::vec::IntoIter<String>) -> anyhow::Result<ExitCode> =
        match words.get(1).and_then(|word| word.to_str()) {
            Some("gauge") => return millpond_gauge::run(own(1)),
            Some("cache") => return exit(cache::run(own(2))),
            Some("fleet") if words.get(2).is_some_and(|it| it == "config") => fleet_config::run,
            Some("fleet" | "why") => return exit(cache::run(own(1))),
            Some("demo") => demo::run,
            Some("check") => check::run,
            Some("top") => top::run,
            Some("sensor") => sensor::run,
            Some("explain") => explain::run,
            Some(root_helper::ARGUMENT) => as_root::run,
            Some("--help") => return print(&(version::line() + &version::help())),
            Some("--version") => return print(&version::line()),
            _ => return texts(own(1)).map_or_else(|code| code, serve),
        };
    texts(own(2)).map_or_else(|code| code, |words| exit(tool(words.into_iter())))
}

/// Arguments as text; one that is none is named, and costs status 2.
fn texts(words: impl Iterator<Item = OsString>) -> Result<Vec<String>, ExitCode> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| {
            eprintln!("millpond: {word:?} is not UTF-8");
            ExitCode::from(2)
        })
    };
    words.map(text).collect()
}

/// Does what nginx's letters say.
fn serve(words: Vec<String>) -> ExitCode {
    let arguments = match Arguments::parse(words.into_iter()) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("millpond: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(text) = version::text(&arguments) {
        eprint!("{text}");
        if arguments.action != Action::Test {
            return ExitCode::SUCCESS;
        }
    }
    if arguments.is_daemon_child {
        daemon::detach();
    }
    let outcome = match &arguments.action {
        Action::Run => start::run(&arguments),
        Action::Test => test::run(&arguments),
        Action::Signal(SignalName::Reload) if arguments.wait => reload::run(&arguments),
        Action::Signal(signal) => pid::send(&arguments, *signal),
    };
    exit(outcome)
}

/// Prints what was asked for with two dashes; nginx's own letters write to the error stream.
fn print(text: &str) -> ExitCode {
    printed::answer(text)
}

/// Logs why the program could not do what it was asked to.
fn exit(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(error) => {
            millpond_system::log::error::process(
                millpond_system::log::error::Level::Emerg,
                format_args!("{error:#}"),
            );
            ExitCode::FAILURE
        }
    }
}
