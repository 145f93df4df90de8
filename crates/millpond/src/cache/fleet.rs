//! `millpond fleet status`: how far behind the logs of its fleets a process is, and the nodes that
//! it has heard of.
//!
//! The exit status is 1 while it is behind one of them, or part of none.
//!
//! `millpond fleet sites`: the counters of sites of all nodes, summed, and how old the part of each
//! node is. The exit status is 1 if a node that lives has told none.
//!
//! `millpond fleet leave NODE`: a node that is silent has left for good, in all fleets of the
//! process that have heard of it. The exit status is 1 if none has.

use anyhow::Result;
use millpond_fleet::entry::DEFAULT_POOL;
use millpond_server::control::api::Verb;
use millpond_server::control::fleet::{
    FleetConfigReport, FleetCountersReport, FleetLeftReport, FleetNodeReport, FleetReport,
    FleetSiteReport, FleetSitesReport, FleetsReport,
};
use millpond_server::control::query::Parameters;

use super::Outcome;
use super::access::{Refusal, Site};
use super::figures::{count, plain, size};
use super::options::{About, Format, Options};
use super::output::Output;

/// Prints the fleets of a process, or the counters of their nodes.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    match options.about {
        About::Zones => status(options, site),
        About::Sites => sites(options, site),
    }
}

/// Has a node leave.
pub(super) fn leave(options: &Options, site: &Site) -> Result<Outcome> {
    let subject = options.subject.as_deref().unwrap_or_default();
    let name = String::from_utf8_lossy(subject);
    let fleets: FleetsReport = site
        .whole(Verb::Get, &["fleets"], Parameters::new())
        .map_err(Refusal::into_error)?;
    let mut output = Output::stdout();
    let mut has_left = false;
    for fleet in &fleets.fleets {
        let what = ["fleets", &fleet.name, "nodes", &name];
        let left: FleetLeftReport = match site.whole(Verb::Delete, &what, Parameters::new()) {
            Ok(left) => left,
            Err(Refusal::NotFound(why)) => {
                eprintln!("millpond: fleet \"{}\": {why}", plain(&fleet.name));
                continue;
            }
            Err(refusal) => return Err(refusal.into_error()),
        };
        has_left = true;
        match options.format {
            Format::Json => output.line(&serde_json::to_string(&left)?)?,
            Format::Text | Format::Csv => {
                let (fleet, node) = (plain(&left.fleet), plain(&left.node));
                output.line(&format!("fleet {fleet}: node {node} has left"))?;
            }
        }
    }
    output.end()?;
    Ok(if has_left {
        Outcome::Done
    } else {
        Outcome::Nothing
    })
}

fn sites(options: &Options, site: &Site) -> Result<Outcome> {
    let fleets: FleetsReport = site
        .whole(Verb::Get, &["fleets"], Parameters::new())
        .map_err(Refusal::into_error)?;
    let mut output = Output::stdout();
    let mut is_whole = !fleets.fleets.is_empty();
    for fleet in &fleets.fleets {
        let report: FleetSitesReport = site
            .whole(
                Verb::Get,
                &["fleets", &fleet.name, "sites"],
                Parameters::new(),
            )
            .map_err(Refusal::into_error)?;
        is_whole &= report
            .nodes
            .iter()
            .all(|it| it.age_ms.is_some() || !it.is_live);
        match options.format {
            Format::Json => output.line(&serde_json::to_string(&report)?)?,
            Format::Text | Format::Csv => {
                output.line(&format!("fleet {}", plain(&report.fleet)))?;
                for part in &report.nodes {
                    output.line(&part_line(part))?;
                }
                output.line("   requests    bytes  from cache  asked of origin  site")?;
                for site in &report.sites {
                    output.line(&site_line(site))?;
                }
            }
        }
    }
    output.end()?;
    Ok(if is_whole {
        Outcome::Done
    } else {
        Outcome::Nothing
    })
}

fn part_line(part: &FleetCountersReport) -> String {
    let silent = if part.is_live { "" } else { ", silent" };
    let age = match part.age_ms {
        Some(age_ms) => format!("counted {} ago", seconds(age_ms)),
        None => "has told no counters".to_owned(),
    };
    format!("  {:<24} {age}{silent}", plain(&part.name))
}

fn site_line(site: &FleetSiteReport) -> String {
    let (bytes, cached) = (size(site.bytes), size(site.cache_bytes));
    let (requests, asked) = (site.requests, site.origin.requests);
    let name = plain(&site.site);
    format!("{requests:>11} {bytes:>8} {cached:>11} {asked:>16}  {name}")
}

fn status(options: &Options, site: &Site) -> Result<Outcome> {
    let report: FleetsReport = site
        .whole(Verb::Get, &["fleets"], options.parameters.clone())
        .map_err(Refusal::into_error)?;
    let mut output = Output::stdout();
    match options.format {
        Format::Json => output.line(&serde_json::to_string(&report)?)?,
        Format::Text | Format::Csv => {
            for line in report.fleets.iter().flat_map(lines) {
                output.line(&line)?;
            }
        }
    }
    output.end()?;
    let is_well = !report.fleets.is_empty() && report.fleets.iter().all(|it| !it.is_behind);
    Ok(if is_well {
        Outcome::Done
    } else {
        Outcome::Nothing
    })
}

fn lines(fleet: &FleetReport) -> Vec<String> {
    let zones: Vec<String> = fleet.zones.iter().map(|zone| plain(zone)).collect();
    let lag = match fleet.lag_ms {
        None => "has not caught up yet".to_owned(),
        Some(lag_ms) => format!("{} ago", seconds(lag_ms)),
    };
    let state = match (fleet.is_behind, fleet.on_lag.as_str()) {
        (false, _) => "",
        (true, "serve") => ", behind: fresh answers are served all the same",
        (true, "miss") => ", behind: every answer is fetched anew",
        (true, _) => ", behind: every answer is revalidated",
    };
    let mut lines = vec![
        format!(
            "fleet {}, node {}, zones {}",
            plain(&fleet.name),
            plain(&fleet.node),
            zones.join(", ")
        ),
        format!(
            "  up to date {lag} (at most {}){state}",
            seconds(fleet.max_lag_ms)
        ),
        format!(
            "  taken: {}, up to number {}; {}",
            count(fleet.purges, "purge", "purges"),
            fleet.taken,
            count(fleet.gaps, "gap", "gaps"),
        ),
        format!(
            "  asked here: {} acknowledged, {} in force here only",
            fleet.acknowledged, fleet.local
        ),
    ];
    let nodes = count(fleet.split_nodes, "node", "nodes");
    lines.push(format!("  limits of the fleet are split among {nodes}"));
    lines.extend(
        fleet
            .trouble
            .iter()
            .map(|it| format!("  the log is not followed: {it}")),
    );
    if fleet.peer_requests.values().any(|count| *count > 0) {
        let outcomes = fleet.peer_requests.iter();
        let words: Vec<String> = outcomes
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        lines.push(format!("  requests between nodes: {}", words.join(", ")));
    }
    lines.extend(fleet.config.iter().flat_map(config));
    lines.extend(fleet.nodes.iter().map(node));
    lines
}

fn config(config: &FleetConfigReport) -> Vec<String> {
    let in_force = match config.revision {
        0 => "its own file alone".to_owned(),
        number => format!("revision {number}"),
    };
    let about = if config.about == config.revision {
        String::new()
    } else {
        format!(" (revision {})", config.about)
    };
    let reason = match config.reason.as_str() {
        "" => String::new(),
        reason => format!(": {}", plain(reason)),
    };
    let state = plain(&config.state);
    let mut lines = vec![format!(
        "  configuration: {in_force}, {state}{about}{reason}"
    )];
    let trouble = config.trouble.iter();
    lines.extend(trouble.map(|it| format!("  orders are not followed: {}", plain(it))));
    lines
}

fn node(node: &FleetNodeReport) -> String {
    let silent = if node.is_live { "" } else { ", silent" };
    let owner = match (&node.address, node.weight) {
        (Some(address), Some(weight)) => format!(", owner at {} (weight {weight})", plain(address)),
        _ => String::new(),
    };
    let pool = match &node.pool {
        Some(pool) if pool != DEFAULT_POOL => format!(", pool {}", plain(pool)),
        _ => String::new(),
    };
    let version = match &node.version {
        Some(version) => format!(", version {}", plain(version)),
        None => String::new(),
    };
    let lag = match node.lag_ms {
        Some(lag_ms) => format!(", {} behind", seconds(u64::from(lag_ms))),
        None => String::new(),
    };
    format!(
        "  {:<24} up to number {}{lag}, heard of {} ago{silent}{owner}{pool}{version}",
        plain(&node.name),
        node.taken,
        seconds(node.heard_ms_ago)
    )
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}
