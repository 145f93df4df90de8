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
mod folders;
mod identity;
mod options;
mod pid;
mod reload;
mod sensor;
mod start;
mod terminal;
mod test;
mod top;
mod url;
mod version;

use std::process::ExitCode;

use arguments::{Action, Arguments, SignalName};
use millpond_system::root_helper;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("gauge") => return millpond_gauge::run(std::env::args_os().skip(1)),
        Some("demo") => return exit(demo::run(std::env::args().skip(2))),
        Some("check") => return exit(check::run(std::env::args().skip(2))),
        Some("cache") => return exit(cache::run(std::env::args_os().skip(2))),
        Some("fleet") => return exit(cache::run(std::env::args_os().skip(1))),
        Some("why") => return exit(cache::run(std::env::args_os().skip(1))),
        Some("top") => return exit(top::run(std::env::args().skip(2))),
        Some("sensor") => return exit(sensor::run(std::env::args().skip(2))),
        Some("explain") => return exit(explain::run(std::env::args().skip(2))),
        Some(root_helper::ARGUMENT) => return exit(as_root::run(std::env::args().skip(2))),
        Some("--help") => return print(&(version::line() + &version::help())),
        Some("--version") => return print(&version::line()),
        _ => {}
    }
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
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
    print!("{text}");
    ExitCode::SUCCESS
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
