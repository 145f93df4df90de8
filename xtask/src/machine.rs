//! The machine that figures were measured on, as a document describes it.

use std::process::Command;

use anyhow::{Context, Result};
use millpond_testkit::{Kind, binary};

/// The load of the machine when a measurement began.
pub(crate) struct Begun {
    /// All of them: a benchmark may pin its process to one later.
    cores: usize,
    load: String,
}

impl Begun {
    /// Looks at it now.
    pub(crate) fn now() -> Result<Self> {
        Ok(Begun {
            cores: std::thread::available_parallelism()?.get(),
            load: load()?,
        })
    }

    /// A sentence, at the end.
    pub(crate) fn told(&self) -> Result<String> {
        Ok(format!(
            "{} cores; nginx: {}; load when it began {}, when it ended {}",
            self.cores,
            nginx()?,
            self.load,
            load()?
        ))
    }
}

/// Processes that ran or wanted to, in the last minute.
fn load() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    Ok(load.split(' ').next().unwrap_or_default().to_owned())
}

/// The nginx that is installed.
fn nginx() -> Result<String> {
    let Some(path) = binary(Kind::Nginx) else {
        return Ok("none was installed".to_owned());
    };
    let output = Command::new(path).arg("-v").output();
    let stderr = output.context("nginx does not run")?.stderr;
    let said = String::from_utf8_lossy(&stderr);
    Ok(said.trim().trim_start_matches("nginx version: ").to_owned())
}
