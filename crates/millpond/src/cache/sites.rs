//! `millpond cache stat --sites`: what each site holds in each zone, the largest first.
//!
//! The numbers are those of the index, so it takes the same time for ten entries and for ten
//! million. What a purge is about counts until it is swept.

use anyhow::Result;
use millpond_server::control::api::Verb;
use millpond_server::control::holdings::{HeldReport, HoldingsReport, QuotaReport};
use millpond_server::control::query::Parameters;
use millpond_server::control::rest::Purpose;
use serde::Serialize;

use super::Outcome;
use super::access::{Refusal, Site};
use super::figures::{plain, size};
use super::options::{Format, Options};
use super::output::Output;
use crate::terminal::{self, Paint, Role};

/// A zone, for whoever asks for JSON.
#[derive(Serialize)]
struct ZoneSites {
    zone: String,
    #[serde(flatten)]
    holdings: HoldingsReport,
}

#[derive(Serialize)]
struct AllSites {
    zones: Vec<ZoneSites>,
}

/// Prints who holds what.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    let mut zones = Vec::new();
    for zone in site.zones(options.zone.as_deref())? {
        let access = site.access(&zone, Purpose::Look)?;
        let ask = access.request(Verb::Get, &["sites"], Parameters::new());
        let holdings: Result<HoldingsReport, Refusal> = access.whole(&ask);
        let mut holdings = holdings.map_err(anyhow::Error::from)?;
        // What is equal stays in the order of names.
        holdings
            .sites
            .sort_by_key(|it| std::cmp::Reverse(it.held.bytes));
        zones.push(ZoneSites {
            zone: zone.name.clone(),
            holdings,
        });
    }
    let mut output = Output::stdout();
    match options.format {
        Format::Json => output.line(&serde_json::to_string(&AllSites { zones })?)?,
        Format::Text | Format::Csv => {
            let paint = terminal::stdout_paint();
            for zone in &zones {
                write(&mut output, &paint, zone)?;
            }
        }
    }
    output.end()?;
    Ok(Outcome::Done)
}

fn write(output: &mut Output, paint: &Paint, zone: &ZoneSites) -> Result<()> {
    let title = format!("zone {}", plain(&zone.zone));
    output.line(&paint.paint(Role::Title, &title))?;
    let heads = "  entries   slices  on disk   bodies  site";
    output.line(&paint.paint(Role::Faint, heads))?;
    let mut all = HeldReport::default();
    for site in &zone.holdings.sites {
        let name = format!("{}{}", plain(&site.site), quota(&site.quotas));
        output.line(&row(&site.held, &name))?;
        all.add(&site.held);
    }
    let count = zone.holdings.sites.len();
    let last = row(&all, &super::figures::count(count as u64, "site", "sites"));
    output.line(&paint.paint(Role::Faint, &last))
}

/// The quota of a site in the zone, behind its name.
fn quota(quotas: &[QuotaReport]) -> String {
    let words = quotas.iter().map(|quota| {
        let (most, evicted, refused) = (size(quota.bytes), quota.evicted, quota.refused);
        format!(" (of {most} at most; {evicted} evicted for it, {refused} not stored)")
    });
    words.collect()
}

fn row(held: &HeldReport, name: &str) -> String {
    let (bytes, bodies) = (size(held.bytes), size(held.body_bytes));
    let (entries, slices) = (held.entries, held.slices);
    format!("{entries:>9} {slices:>8} {bytes:>8} {bodies:>8}  {name}")
}
