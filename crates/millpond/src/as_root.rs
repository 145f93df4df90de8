//! `--root-helper`: the process that stays root when the server becomes its `user`.
//!
//! The server starts it with the same arguments; what it does stands in
//! `millpond_server::root_process`. Signals are for the server: those that reach a whole group of
//! processes, from a terminal or a service manager, are caught here and mean nothing.

use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Context, Result};
use millpond_server::root_process::{self, Duty};
use millpond_system::heritage::Program;
use millpond_system::root_helper::Owner;
use millpond_system::shutdown::Signals;

use crate::arguments::Arguments;

/// Answers the server on the standard input, until that ends.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let owner = words.next().and_then(|word| Owner::parse(&word));
    let owner = owner.context("the root helper is started by the server only")?;
    let path = words.next().context("no program")?.into();
    let words: Vec<String> = words.collect();
    let arguments = Arguments::parse(words.iter().cloned())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let _caught = Signals::new()?;
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    let duty = Duty {
        source: arguments.conf_source(arguments.error_log()),
        program: Program {
            path,
            arguments: words.into_iter().map(Into::into).collect(),
            folder: None,
            is_confined: false,
        },
        owner,
    };
    root_process::serve(&channel, duty)?;
    Ok(ExitCode::SUCCESS)
}
