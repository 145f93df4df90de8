//! `millpond fleet config …`: keys, and configuration that is given to a fleet in steps.
//!
//! It asks the servers of NATS itself, which the `fleet` block of a configuration names; no process
//! has to run beside it. The secret key is read here and goes nowhere.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line |
//! | `pack.rs` | files as a bundle |
//! | `give.rs` | `push`, `promote`, `rollback` |
//! | `status.rs` | `status` |
//! | `site.rs` | the fleet of a configuration, and the connection to it |
//!
//! The exit status is 0 when it is done; 1 when nodes do not have what they should; 2 when it
//! cannot be done.

mod give;
mod options;
mod pack;
mod site;
mod status;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use millpond_fleet::config::order::SecretKey;

use crate::printed;
use options::{Command, Options};

const USAGE: &str = "usage: millpond fleet config key      FILE
       millpond fleet config push     FOLDER|FILE --key FILE [--with PATH]... [--all]
                                      [--canary PERCENT] [--watch TIME] [--no-test] [--dry-run]
       millpond fleet config status   [--json]
       millpond fleet config promote  --key FILE
       millpond fleet config rollback [REVISION] --key FILE
options: -c FILE, -p PREFIX, -g DIRECTIVES
";

/// Runs the command that the words behind `fleet` say.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let words: Vec<String> = words.skip(1).collect();
    let options = match crate::options::read(words, USAGE, options::parse) {
        Ok(options) => options,
        Err(code) => return Ok(code),
    };
    match obey(&options) {
        Ok(code) => Ok(code),
        Err(error) => {
            eprintln!("millpond: {error:#}");
            Ok(ExitCode::from(2))
        }
    }
}

fn obey(options: &Options) -> Result<ExitCode> {
    match &options.command {
        Command::Key(path) => key(path),
        Command::Push(path) => give::push(options, path),
        Command::Status => status::run(options),
        Command::Promote => give::promote(options),
        Command::Rollback(to) => give::rollback(options, *to),
    }
}

/// Makes a key: the secret half in a file that only its owner reads, the public one beside it.
fn key(path: &Path) -> Result<ExitCode> {
    let key = SecretKey::generate().context("the system has no randomness")?;
    let mut public = path.as_os_str().to_owned();
    public.push(".pub");
    let halves = [
        (path, 0o600, key.line()),
        (Path::new(&public), 0o644, key.public().line()),
    ];
    for (path, mode, line) in halves {
        // A key that is there is not written over: nodes may trust it.
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(mode).open(path);
        let written = opened.and_then(|mut file| {
            file.write_all(line.as_bytes())?;
            file.sync_all()
        });
        written.with_context(|| format!("\"{}\"", path.display()))?;
    }
    let public = Path::new(&public).display();
    printed::line(format_args!(
        "{}: keep it where configuration is made\n{public}: for \"trusted_key=\" of all nodes",
        path.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}
