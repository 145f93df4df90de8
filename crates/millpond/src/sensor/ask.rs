//! Questions of sensors to a process, on its control socket.
//!
//! An answer is wanted within the time of `-t`: monitors give a plugin some seconds. The JSON of
//! the API is read, also of an answer that says that something is wrong.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use millpond_server::control::api::{Ask, Verb};
use millpond_server::control::query::Parameters;
use serde::de::DeserializeOwned;

use super::options::Options;
use crate::cache::{client, socket_for};

/// The control socket of the process that is meant.
pub(super) fn socket(options: &Options) -> Result<PathBuf> {
    match &options.socket {
        Some(path) => Ok(path.clone()),
        None => socket_for(&options.process.source()),
    }
}

/// Asks; an answer with one of these statuses is read.
pub(super) fn ask<T: DeserializeOwned>(
    options: &Options,
    what: &[&str],
    statuses: &[u16],
) -> Result<T> {
    let path = socket(options)?;
    let stream = client::connect(&path)?
        .with_context(|| format!("no process answers on {}", path.display()))?;
    let mut body = Vec::new();
    let ask = Ask::new(Verb::Get, what, Parameters::new());
    let status = client::exchange_within(options.late, &stream, &ask, &mut |piece| {
        body.extend_from_slice(&piece);
        Ok(())
    })?;
    ensure!(
        statuses.contains(&status),
        "the process answers with {status}: {}",
        String::from_utf8_lossy(&body).trim_end()
    );
    serde_json::from_slice(&body).context("an answer that is not understood")
}
