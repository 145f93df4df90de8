//! `status`: the orders of a fleet, and what each node has made of them.
//!
//! Names and reasons are words of nodes, and reach no terminal as they are.

use std::process::ExitCode;

use anyhow::Result;
use millpond_fleet::config::bundle::hex;
use millpond_fleet::config::known::{Known, SILENT_MS};
use millpond_fleet::config::order::Order;
use millpond_fleet::config::report::{Report, Verdict};
use serde::Serialize;

use super::give::describe;
use super::options::Options;
use super::site::Site;
use crate::cache::figures::{plain, time};
use crate::printed;

/// Orders that are shown (arbitrary; as many as fit on a screen beside nodes).
const SHOWN: usize = 5;

#[derive(Serialize)]
struct Document<'a> {
    fleet: &'a str,
    orders: Vec<OrderDocument>,
    nodes: Vec<NodeDocument>,
}

#[derive(Serialize)]
struct OrderDocument {
    revision: u64,
    kind: &'static str,
    of: u64,
    bundle: String,
    made_ms: u64,
    canaries: Vec<String>,
    /// `promoted`, `back`; null while it is tried, and where nobody tries it first.
    verdict: Option<&'static str>,
    /// The reason for which it was taken back, and by which node.
    reason: Option<String>,
}

#[derive(Serialize)]
struct NodeDocument {
    name: String,
    revision: u64,
    about: u64,
    state: &'static str,
    reason: String,
    heard_ms_ago: u64,
    is_live: bool,
}

/// Prints what is known.
pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let site = Site::open(options)?;
    let known = site.known()?;
    let fleet = site.fleet.name();
    if options.is_json {
        let document = Document {
            fleet,
            orders: known
                .orders
                .values()
                .map(|it| order_document(&known, &it.order))
                .collect(),
            nodes: known
                .reports
                .values()
                .map(|it| node_document(&known, &it.0))
                .collect(),
        };
        printed::line(serde_json::to_string(&document)?)?;
    } else {
        let all = lines(&known).join("\n");
        printed::line(format_args!("fleet {}\n{all}", plain(fleet)))?;
    }
    let is_well = known.trial().is_none() && known.behind().is_empty();
    Ok(ExitCode::from(u8::from(!is_well)))
}

fn order_document(known: &Known, order: &Order) -> OrderDocument {
    let (verdict, reason) = match known.verdicts.get(&order.revision) {
        Some(Verdict::Promoted { .. }) => (Some("promoted"), None),
        Some(Verdict::Back { node, reason }) => (Some("back"), Some(format!("{node}: {reason}"))),
        None => (None, None),
    };
    OrderDocument {
        revision: order.revision,
        kind: order.kind.word(),
        of: order.of,
        bundle: hex(&order.digest),
        made_ms: order.at_ms,
        canaries: order.canaries.clone(),
        verdict,
        reason,
    }
}

fn node_document(known: &Known, report: &Report) -> NodeDocument {
    let heard_ms_ago = known.age_ms(&report.node).unwrap_or(0);
    NodeDocument {
        name: report.node.clone(),
        revision: report.in_force,
        about: report.about,
        state: report.state.word(),
        reason: report.reason.clone(),
        heard_ms_ago,
        is_live: heard_ms_ago <= SILENT_MS,
    }
}

fn lines(known: &Known) -> Vec<String> {
    let mut lines = Vec::new();
    for number in known.numbers().into_iter().rev().take(SHOWN) {
        let Some(signed) = known.orders.get(&number) else {
            let why = known.wrong.get(&number).copied().unwrap_or_default();
            lines.push(format!("  revision {number} is not taken: {why}"));
            continue;
        };
        let verdict = match known.verdicts.get(&number) {
            Some(Verdict::Promoted { .. }) => ", promoted to all".to_owned(),
            Some(Verdict::Back { node, reason }) => {
                format!(", taken back by {}: {}", plain(node), plain(reason))
            }
            None => String::new(),
        };
        lines.push(format!("  {}{verdict}", describe(&signed.order)));
    }
    for (report, _) in known.reports.values() {
        let age_ms = known.age_ms(&report.node).unwrap_or(0);
        let silent = if age_ms > SILENT_MS {
            let age = time(i64::try_from(age_ms / 1000).unwrap_or(i64::MAX));
            format!(", silent for {age}")
        } else {
            String::new()
        };
        let reason = match (report.reason.as_str(), report.about) {
            ("", about) if about == report.in_force => String::new(),
            ("", about) => format!(" revision {about}"),
            (reason, about) => format!(" revision {about}: {}", plain(reason)),
        };
        let in_force = match report.in_force {
            0 => "its own file".to_owned(),
            number => format!("revision {number}"),
        };
        let (name, state) = (plain(&report.node), report.state.word());
        lines.push(format!(
            "  {name:<24} has {in_force:<14} {state}{reason}{silent}"
        ));
    }
    lines
}
