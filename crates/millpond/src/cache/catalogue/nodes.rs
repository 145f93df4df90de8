//! `millpond cache sql --fleet`: entries of all nodes of a fleet, in one database.
//!
//! The process asks the other nodes, one after the other; what it has itself is asked of it alone.
//!
//! 1. A node that is away, or whose list is not whole, is named, and the others are asked all the
//!    same.

use std::ops::ControlFlow;

use anyhow::{Result, bail};
use millpond_server::control::api::Verb;
use millpond_server::control::fleet::{FleetNodeReport, FleetReport, FleetsReport};
use millpond_server::control::query::Parameters;
use millpond_server::control::rest::{Purpose, ZonePath};
use millpond_system::clock;
use rusqlite::Connection;

use super::super::access::{Refusal, Site};
use super::super::figures::plain;
use super::super::list;
use super::super::options::Options;
use super::super::output::Bar;
use super::database;

/// Nodes whose entries are in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    /// All.
    All,
    /// Not all; which were missed was told.
    Some,
}

/// Fills an empty database with the entries of all nodes.
pub(super) fn fill(options: &Options, site: &Site, database: &Connection) -> Result<Nodes> {
    let mut zones = site.zones(options.zone.as_deref())?;
    zones.retain(|zone| zone.fleet.is_some());
    if zones.is_empty() {
        bail!("no zone that is meant is part of a fleet: proxy_cache_path … fleet=NAME");
    }
    let report: FleetsReport = site
        .whole(Verb::Get, &["fleets"], Parameters::new())
        .map_err(Refusal::into_error)?;
    database::begin(database, clock::now_ms().div_euclid(1000))?;
    let mut filling = Filling {
        options,
        site,
        writer: database::Writer::new(database)?,
    };
    let mut nodes = Nodes::All;
    for zone in &zones {
        let mut fleets = report.fleets.iter();
        let fleet = fleets.find(|fleet| Some(&fleet.name) == zone.fleet.as_ref());
        let Some(fleet) = fleet else {
            bail!("the process follows no fleet for zone \"{}\"", zone.name);
        };
        for node in &fleet.nodes {
            if let Err(why) = filling.add(zone, fleet, node) {
                // INVARIANT 1.
                let (name, fleet) = (plain(&node.name), plain(&fleet.name));
                eprintln!("millpond: node \"{name}\" of fleet \"{fleet}\": {why:#}");
                nodes = Nodes::Some;
            }
        }
    }
    filling.writer.end()?;
    database::finish(database)?;
    Ok(nodes)
}

/// A database that is being filled.
struct Filling<'a> {
    options: &'a Options,
    site: &'a Site,
    writer: database::Writer<'a>,
}

impl Filling<'_> {
    /// Adds the entries of a zone that a node has.
    fn add(&mut self, zone: &ZonePath, fleet: &FleetReport, node: &FleetNodeReport) -> Result<()> {
        let is_own = node.name == fleet.node;
        if !node.is_live && !is_own {
            let silent_s = node.heard_ms_ago as f64 / 1000.0;
            bail!("it is away, and was not heard of for {silent_s:.1} s");
        }
        let access = if is_own {
            self.site.access(zone, Purpose::Look)?
        } else {
            self.site.access_through(&fleet.name, &node.name, zone)
        };
        self.writer.begin_node(&node.name);
        let asked = (self.options.parameters.clone(), list::Depth::All);
        let bar = Some(Bar::new(&node.name));
        list::walk_by(&access, asked, bar, &mut |entry| {
            self.writer.push(&entry)?;
            Ok(ControlFlow::Continue(()))
        })
        .map(|_| ())
    }
}
