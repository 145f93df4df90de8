//! `millpond cache reset`: counters of sites begin anew.
//!
//! The process that serves is asked: it counts. With `--sites` all sites are meant that neither a
//! server's name nor `cache_site_info` names, so that names that clients made up are gone at once;
//! with `--site` one. What they counted is counted under `*` from then on.

use anyhow::Result;
use millpond_server::control::api::Verb;
use millpond_server::control::report::ResetReport;

use super::Outcome;
use super::access::{Refusal, Site};
use super::figures::count;
use super::options::{Format, Options};
use super::output::Output;

/// Resets, and tells how many there were.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    let report = site.whole(Verb::Delete, &["sites"], options.parameters.clone());
    let report: ResetReport = report.map_err(Refusal::into_error)?;
    let mut output = Output::stdout();
    match options.format {
        Format::Json => output.line(&serde_json::to_string(&report)?)?,
        Format::Text | Format::Csv => {
            let sites = count(report.sites, "site", "sites");
            output.line(&format!("{sites} reset; what was counted is under \"*\""))?;
        }
    }
    output.end()?;
    Ok(match report.sites {
        0 => Outcome::Nothing,
        _ => Outcome::Done,
    })
}
