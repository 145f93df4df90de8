//! A part of the demo's fleet that is a process: a node, or the server of NATS. It can be killed
//! and started again while the demo runs.
//!
//! 1. Nothing is started once the demo ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::{Result, bail};

use super::super::http::{Stop, lock};
use super::child::Running;

/// A program, its words, and the file that its output goes to.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    words: Vec<String>,
    output: PathBuf,
}

impl Program {
    /// A program that is not run yet.
    pub(super) fn new(path: &Path, words: &[&str], output: PathBuf) -> Program {
        Program {
            path: path.to_path_buf(),
            words: words.iter().map(|word| (*word).to_string()).collect(),
            output,
        }
    }
}

/// A part that may run.
#[derive(Debug)]
pub(super) struct Part {
    /// Name of the part.
    pub(super) name: String,
    /// Port that it listens on.
    pub(super) port: u16,
    program: Program,
    stop: Arc<Stop>,
    running: Mutex<Option<Running>>,
}

impl Part {
    /// A part that does not run yet.
    pub(super) fn new(name: &str, port: u16, program: Program, stop: &Arc<Stop>) -> Part {
        Part {
            name: name.to_string(),
            port,
            program,
            stop: Arc::clone(stop),
            running: Mutex::default(),
        }
    }

    /// Starts the process, unless it runs.
    pub(super) fn start(&self) -> Result<()> {
        let mut running = lock(&self.running);
        let runs = running.as_mut().is_some_and(|it| !it.has_ended());
        if !runs && !self.stop.is_set() {
            let mut command = Command::new(&self.program.path);
            command.args(&self.program.words);
            let output = self.program.output.clone();
            *running = Some(Running::start(&mut command, output)?);
        }
        Ok(())
    }

    /// Ends the process at once, as a crash does.
    pub(super) fn kill(&self) {
        if let Some(running) = lock(&self.running).take() {
            running.kill();
        }
    }

    /// Ends the process, and waits for it.
    pub(super) fn end(&self) {
        drop(lock(&self.running).take());
    }

    /// Number of the process, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        let mut held = lock(&self.running);
        let running = held.as_mut()?;
        (!running.has_ended()).then(|| running.pid())
    }

    /// An error with what the process has said, if it has ended.
    pub(super) fn check(&self) -> Result<()> {
        let mut held = lock(&self.running);
        let Some(running) = held.as_mut() else {
            return Ok(());
        };
        if running.has_ended() {
            bail!("{} has ended: {}", self.name, running.said());
        }
        Ok(())
    }
}
