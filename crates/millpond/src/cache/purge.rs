//! `millpond cache purge`: as `proxy_cache_purge` does, in force and durable when it returns.
//!
//! A key is purged in every zone, unless one is named. Of several zones one must be named to purge
//! everything. `millpond fleet purge` means the zones of fleets, and returns when all nodes obey.

use anyhow::{Result, bail};
use bytes::Bytes;
use millpond_server::control::api::Verb;
use millpond_server::control::query::Parameters;
use millpond_server::control::report::PurgeReport;
use millpond_server::control::rest::{Purpose, ZonePath};

use super::Outcome;
use super::access::{Refusal, Site};
use super::figures::{count, plain};
use super::options::{Among, Format, Options};
use super::output::Output;
use super::{show, subject};

/// Purges.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    let mut zones = site.zones(options.zone.as_deref())?;
    if options.among == Among::OfFleets {
        zones.retain(|zone| zone.fleet.is_some());
        if zones.is_empty() {
            bail!("no zone that is meant is part of a fleet: proxy_cache_path … fleet=NAME");
        }
    }
    let is_all = |(name, value): &(String, Bytes)| name == "type" && value.as_ref() == b"all";
    if zones.len() > 1 && options.parameters.iter().any(is_all) {
        bail!("there are several zones; name the one to purge with --zone, or use --prefix \"\"");
    }
    let (zones, key) = match &options.subject {
        Some(text) => meant(options, site, zones, text)?,
        None => (zones, None),
    };
    let reports = purge_zones(options, site, &zones, key)?;
    let mut output = Output::stdout();
    for report in &reports {
        match options.format {
            Format::Json => output.line(&serde_json::to_string(report)?)?,
            Format::Text | Format::Csv => output.line(&said(report))?,
        }
    }
    output.end()?;
    let is_something = reports.iter().any(|it| it.entries != Some(0));
    Ok(if is_something {
        Outcome::Done
    } else {
        Outcome::Nothing
    })
}

/// The zones and the key that a word means: a key as it is, if there is something under it or it is
/// no URL, else that of the URL.
fn meant(
    options: &Options,
    site: &Site,
    zones: Vec<ZonePath>,
    text: &Bytes,
) -> Result<(Vec<ZonePath>, Option<Bytes>)> {
    if !subject::is_url(text) {
        return Ok((zones, Some(text.clone())));
    }
    // Before: nothing need listen where a key that reads like a URL leads.
    for zone in &zones {
        let access = site.access(zone, Purpose::Look)?;
        if !show::look(&access, "key", text.clone())?.is_empty() {
            return Ok((zones, Some(text.clone())));
        }
    }
    let Some(meant) = subject::of_url(site, text)? else {
        return Ok((zones, Some(text.clone())));
    };
    let is_meant = |zone: &ZonePath| {
        options.zone.as_ref().is_none_or(|it| *it == zone.name)
            && (options.among == Among::All || zone.fleet.is_some())
    };
    let zones = site.zones(Some(&meant.zone))?;
    let zones = zones.into_iter().filter(is_meant).collect();
    Ok((zones, Some(meant.key)))
}

fn purge_zones(
    options: &Options,
    site: &Site,
    zones: &[ZonePath],
    key: Option<Bytes>,
) -> Result<Vec<PurgeReport>> {
    let mut parameters: Parameters = options.parameters.clone();
    if let Some(key) = key {
        let exact = Bytes::from_static(b"exact");
        parameters.push(("type".to_string(), exact));
        parameters.push(("what".to_string(), key));
    }
    let mut reports = Vec::new();
    for zone in zones {
        let purpose = if options.has("dry_run") {
            Purpose::Look
        } else {
            Purpose::Purge
        };
        let access = site.access(zone, purpose)?;
        let ask = access.request(Verb::Post, &["purge"], parameters.clone());
        let report: Result<PurgeReport, Refusal> = access.whole(&ask);
        reports.push(report.map_err(anyhow::Error::from)?);
    }
    Ok(reports)
}

fn said(report: &PurgeReport) -> String {
    let zone = plain(&report.zone);
    let what = if report.what.is_empty() {
        report.kind.clone()
    } else {
        format!("{} \"{}\"", report.kind, plain(&report.what))
    };
    let soft = if report.mode == "soft" { ", soft" } else { "" };
    let entries = report.entries.map(|it| count(it, "entry", "entries"));
    let reach = report.fleet.iter().map(|it| format!(", {it}"));
    let fleet: String = reach.collect();
    match (report.number, entries) {
        (None, entries) => {
            let entries = entries.unwrap_or_default();
            format!("{zone}: {what}{soft}: {entries} would be purged")
        }
        (Some(number), Some(entries)) => {
            format!("{zone}: {what}{soft}: {entries} purged, number {number}{fleet}")
        }
        (Some(number), None) => {
            format!("{zone}: {what}{soft}: purged, number {number}{fleet}")
        }
    }
}
