//! `millpond cache verify`: everything is compared with its checksums.
//!
//! What is damaged is listed, a line each, by id and cache key; a slice has the key of its entry.
//! It stays unless `--remove` is said: somebody may want to look at it.

use std::ops::ControlFlow;

use anyhow::{Result, bail};
use bytes::Bytes;
use millpond_server::control::api::Verb;
use millpond_server::control::report::{DamageReport, EndReport, Line};
use millpond_server::control::rest::{Purpose, ZonePath};

use super::Outcome;
use super::access::Site;
use super::figures::{count, plain, size};
use super::options::{Corrupt, Format, Options};
use super::output::{Bar, Output};
use crate::terminal::{self, Role};

/// Verifies zones, one after the other.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    let mut output = Output::stdout();
    let mut outcome = Outcome::Done;
    for zone in site.zones(options.zone.as_deref())? {
        let end = verify(options, site, &zone, &mut output)?;
        if end.corrupt + end.unread > 0 {
            outcome = Outcome::Nothing;
        }
        if options.format == Format::Text {
            output.line(&summary(options, &zone.name, &end))?;
            output.flush()?;
        }
    }
    output.end()?;
    Ok(outcome)
}

fn verify(
    options: &Options,
    site: &Site,
    zone: &ZonePath,
    output: &mut Output,
) -> Result<EndReport> {
    let on = || Bytes::from_static(b"1");
    let mut parameters = vec![("progress".to_string(), on())];
    let purpose = match options.corrupt {
        Corrupt::Stay => Purpose::Look,
        Corrupt::Go => {
            parameters.push(("remove".to_string(), on()));
            Purpose::Repair
        }
    };
    let access = site.access(zone, purpose)?;
    let ask = access.request(Verb::Post, &["verify"], parameters);
    let mut bar = Bar::new(&zone.name);
    let mut end = None;
    access.lines(&ask, &mut |line| {
        let text = match (&line, options.format) {
            (Line::Progress(progress), _) => {
                bar.draw(progress);
                return Ok(ControlFlow::Continue(()));
            }
            (Line::End(report), _) => {
                end = Some(*report);
                match options.format {
                    Format::Json => serde_json::to_string(&line)?,
                    Format::Text | Format::Csv => return Ok(ControlFlow::Continue(())),
                }
            }
            (_, Format::Json) => serde_json::to_string(&line)?,
            (Line::Corrupt(damage), _) => damaged("corrupt", damage),
            (Line::Unread(damage), _) => damaged("unread", damage),
            (Line::Entry(_), _) => return Ok(ControlFlow::Continue(())),
        };
        bar.clear();
        output.line(&text)?;
        Ok(ControlFlow::Continue(()))
    })?;
    match end {
        Some(end) if end.is_complete => Ok(end),
        _ => bail!("zone \"{}\" was not verified to its end", zone.name),
    }
}

fn damaged(what: &str, damage: &DamageReport) -> String {
    let key = damage.key.as_deref().unwrap_or("(its key cannot be read)");
    let removed = if damage.is_removed { " (removed)" } else { "" };
    format!("{what:<7} {} {}{removed}", damage.id, plain(key))
}

fn summary(options: &Options, zone: &str, end: &EndReport) -> String {
    let records = count(end.records, "record", "records");
    let verified = format!("{records}, {} of bodies", size(end.bytes));
    let paint = terminal::stdout_paint();
    let found = match (end.corrupt, end.unread) {
        (0, 0) => paint.paint(Role::Good, "all sound"),
        (corrupt, unread) => {
            let removed = match options.corrupt {
                Corrupt::Go => " and removed",
                Corrupt::Stay => "",
            };
            let text = format!("{corrupt} corrupt{removed}, {unread} that the disk does not give");
            paint.paint(Role::Bad, &text)
        }
    };
    format!("{}: {verified}: {found}", plain(zone))
}
