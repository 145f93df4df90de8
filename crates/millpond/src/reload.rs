//! `-s reload --wait`: a reload whose outcome is the exit status.
//!
//! The configuration is read here first, which finds most mistakes and the control socket. The
//! process then reads it once more: only the process knows whether addresses and caches can be had.
//!
//! | status | outcome |
//! |---|---|
//! | 0 | the configuration is in force |
//! | 1 | it was refused, with the reasons on the standard error stream, or nobody could be asked |

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millpond_server::control::Wanted;
use millpond_server::control::api::{Ask, Verb};
use millpond_server::control::query::Parameters;
use millpond_server::control::reload::{ReloadReport, SEGMENT};

use crate::arguments::Arguments;
use crate::cache::client;
use crate::{start, test};

/// Time that the process may take; it gives up itself before that.
const PATIENCE: Duration = Duration::from_secs(310);

/// Asks the process for a reload and waits for the outcome.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let source = arguments.conf_source(start::open_error_log(arguments));
    let reading = source.read();
    test::report(&reading.diagnostics, &reading.sources, arguments);
    let Some(conf) = reading.conf else {
        return Ok(ExitCode::FAILURE);
    };
    let wanted = Wanted::of(&conf, &source.prefix);
    let path = wanted
        .path()
        .context("\"control\" is off, so that nobody can be waited for")?;
    let stream = client::connect(path)?
        .with_context(|| format!("no process answers on {}", path.display()))?;
    let ask = Ask::new(Verb::Post, &[SEGMENT], Parameters::new());
    let mut body = Vec::new();
    let status = client::exchange_within(PATIENCE, &stream, &ask, &mut |piece| {
        body.extend_from_slice(&piece);
        Ok(())
    })?;
    if status != 200 && status != 422 {
        bail!(
            "the process does not say what came of it: status {status}, {}",
            String::from_utf8_lossy(&body).trim_end()
        );
    }
    let report: ReloadReport = serde_json::from_slice(&body)?;
    if report.is_taken {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("millpond: the reload was refused, the configuration before it is in force");
    for reason in &report.reasons {
        eprintln!("millpond: [emerg] {reason}");
    }
    Ok(ExitCode::FAILURE)
}
