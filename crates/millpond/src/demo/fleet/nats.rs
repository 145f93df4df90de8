//! The server of NATS that has the log of the demo's fleet: where it is found, and how it is run.
//!
//! It is a program that somebody else has installed; the demo brings and downloads nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::http::Stop;
use super::part::{Part, Program};

/// Name of the program.
const PROGRAM: &str = "nats-server";
/// Variable of the environment that names another.
const VARIABLE: &str = "NATS_SERVER";

/// The text for who has none.
pub(super) const MISSING: &str = "the fleet's log is kept by NATS, and there is no nats-server here

Get it by one of
  apt-get install nats-server          Debian, Ubuntu
  brew install nats-server             macOS
  go install github.com/nats-io/nats-server/v2@latest
  https://github.com/nats-io/nats-server/releases
and put it into PATH, or name it: --nats PROGRAM, or NATS_SERVER=PROGRAM in the environment.";

/// The program: that of the option, of the environment, or in PATH.
pub(super) fn find(named: Option<PathBuf>) -> Option<PathBuf> {
    let variable = || std::env::var_os(VARIABLE).filter(|it| !it.is_empty());
    if let Some(program) = named.or_else(|| variable().map(PathBuf::from)) {
        return program.is_file().then_some(program);
    }
    let folders = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM));
    programs.find(|program| program.is_file())
}

/// The server, with its files in a folder.
pub(super) fn server(program: &Path, port: u16, dir: &Path, stop: &Arc<Stop>) -> Part {
    let store = dir.join("nats").display().to_string();
    let port_text = port.to_string();
    let words = ["-a", "127.0.0.1", "-p", &port_text, "-js", "-sd", &store];
    Part::new(
        "NATS",
        port,
        Program::new(program, &words, dir.join("nats.log")),
        stop,
    )
}
