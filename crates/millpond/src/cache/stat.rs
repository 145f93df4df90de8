//! `millpond cache stat`: figures about zones.
//!
//! What only a running process counts is left out for a zone at rest. Counters begin at zero when
//! the process opens the zone.

use anyhow::Result;
use millpond_server::control::api::Verb;
use millpond_server::control::query::Parameters;
use millpond_server::control::report::{DiskReport, ServerReport, ZoneReport};
use millpond_server::control::rest::Purpose;

use super::Outcome;
use super::access::{Refusal, Site};
use super::figures::{self, count, exact_size, percent, plain, size};
use super::options::{About, Format, Options};
use super::output::Output;
use super::sites;
use crate::terminal::{self, Paint, Role};

/// Prints the figures.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    if options.about == About::Sites {
        return sites::run(options, site);
    }
    let mut zones = Vec::new();
    for zone in site.zones(options.zone.as_deref())? {
        let access = site.access(&zone, Purpose::Look)?;
        let ask = access.request(Verb::Get, &[], Parameters::new());
        let report: Result<ZoneReport, Refusal> = access.whole(&ask);
        zones.push(report.map_err(anyhow::Error::from)?);
    }
    let mut output = Output::stdout();
    if options.format == Format::Json {
        let server = site.server.clone();
        let report = ServerReport {
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: server.as_ref().and_then(|it| it.pid),
            zones,
            answers: server.as_ref().and_then(|it| it.answers.clone()),
            hit_ratio: server.as_ref().and_then(|it| it.hit_ratio),
            classes: server.as_ref().and_then(|it| it.classes),
            exchanges: server.as_ref().and_then(|it| it.exchanges),
        };
        output.line(&serde_json::to_string(&report)?)?;
        output.end()?;
        return Ok(Outcome::Done);
    }
    let page = Page {
        paint: terminal::stdout_paint(),
        output,
    };
    page.write(&zones, site.server.as_ref())
}

struct Page {
    paint: Paint,
    output: Output,
}

impl Page {
    fn write(mut self, zones: &[ZoneReport], server: Option<&ServerReport>) -> Result<Outcome> {
        for zone in zones {
            self.zone(zone)?;
        }
        if let Some(server) = server {
            self.server(server)?;
        }
        self.output.end()?;
        Ok(Outcome::Done)
    }

    fn line(&mut self, label: &str, text: &str) -> Result<()> {
        let label = self.paint.paint(Role::Faint, &format!("{label:<9}"));
        self.output.line(&format!("  {label} {text}"))
    }

    fn zone(&mut self, zone: &ZoneReport) -> Result<()> {
        let title = format!("zone {}", plain(&zone.name));
        self.output.line(&self.paint.paint(Role::Title, &title))?;
        let state = if zone.is_running {
            "running"
        } else {
            "at rest"
        };
        self.line("path", &format!("{} ({state})", plain(&zone.path)))?;
        self.line("records", &format!("{}, entries and slices", zone.records))?;
        self.space(zone)?;
        for disk in &zone.disks {
            if zone.disks.len() > 1 {
                self.disk(disk)?;
            }
            self.reading(disk)?;
        }
        self.line("index", &size(zone.index_bytes))?;
        let inactive = i64::try_from(zone.inactive).unwrap_or(i64::MAX);
        self.line("inactive", &figures::time(inactive))?;
        if zone.purges > 0 {
            let purges = count(zone.purges, "purge", "purges");
            self.line("purges", &format!("{purges} to be swept"))?;
        }
        let Some(live) = &zone.live else {
            return Ok(());
        };
        self.line(
            "memory",
            &format!("{} of {}", size(live.memory_bytes), size(live.memory_limit)),
        )?;
        let rewritten = match live.rewritten_bytes {
            0 => String::new(),
            bytes => format!(", {} of it again", size(bytes)),
        };
        let queued = match live.queued_bytes {
            0 => String::new(),
            bytes => format!(", {} waiting", size(bytes)),
        };
        let written = size(live.written_bytes);
        self.line("written", &format!("{written}{rewritten}{queued}"))?;
        self.line(
            "removed",
            &format!(
                "{} for space, {} unused, {} corrupt",
                live.evicted, live.inactive_removed, live.corrupt
            ),
        )?;
        let trouble = live.write_errors + live.lost + live.not_stored;
        if trouble > 0 {
            let text = format!(
                "{}, {}, {} lost, {} not stored",
                count(live.write_errors, "write error", "write errors"),
                count(live.lost_segments, "lost segment", "lost segments"),
                live.lost,
                live.not_stored
            );
            let text = self.paint.paint(Role::Doubtful, &text);
            self.line("trouble", &text)?;
        }
        Ok(())
    }

    /// Writes the space that the files take, and what lives in them.
    fn space(&mut self, zone: &ZoneReport) -> Result<()> {
        let limit = match zone.max_size {
            Some(max) => format!("of {} ({})", exact_size(max), percent(zone.bytes, max)),
            None => "without a limit".to_string(),
        };
        self.line("on disk", &format!("{} {limit}", exact_size(zone.bytes)))?;
        let (live, part) = (
            exact_size(zone.live_bytes),
            percent(zone.live_bytes, zone.bytes),
        );
        self.line("live", &format!("{live} in entries ({part} of that)"))
    }

    fn disk(&mut self, disk: &DiskReport) -> Result<()> {
        let state = match disk.state.as_str() {
            "live" => self.paint.paint(Role::Good, "live"),
            "full" => self.paint.paint(Role::Doubtful, "full"),
            _ => {
                let text = format!("{}: {}", disk.state, plain(&disk.why));
                self.paint.paint(Role::Bad, &text)
            }
        };
        let (path, bytes) = (plain(&disk.path), size(disk.bytes));
        let text = format!(
            "{path} {state}, weight {}, {} records, {bytes}, {} live",
            disk.weight,
            disk.records,
            size(disk.live_bytes)
        );
        self.line("disk", &text)
    }

    /// Writes what a disk did not give, and what is done to find that out in time.
    fn reading(&mut self, disk: &DiskReport) -> Result<()> {
        if disk.read_errors + disk.unread_segments > 0 {
            let errors = count(disk.read_errors, "read error", "read errors");
            let segments = count(disk.unread_segments, "segment", "segments");
            let text = format!("{errors}, {segments} not read");
            let text = self.paint.paint(Role::Doubtful, &text);
            self.line("reading", &text)?;
        }
        let Some(scrub) = &disk.scrub else {
            return Ok(());
        };
        let state = match (scrub.is_running, scrub.began) {
            (true, _) => format!(
                "{} compared",
                percent(scrub.entries, scrub.all_entries.max(1))
            ),
            (false, 0) => "not begun".to_string(),
            (false, _) => count(scrub.passes, "pass", "passes"),
        };
        let found = match scrub.corrupt + scrub.unread {
            0 => String::new(),
            _ => format!(", {} corrupt, {} not given", scrub.corrupt, scrub.unread),
        };
        let every = figures::time(i64::try_from(scrub.every).unwrap_or(i64::MAX));
        self.line("scrub", &format!("every {every}: {state}{found}"))
    }

    fn server(&mut self, server: &ServerReport) -> Result<()> {
        let pid = server.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let title = format!("process {pid}");
        self.output.line(&self.paint.paint(Role::Title, &title))?;
        self.line("version", &server.version)?;
        let Some(answers) = &server.answers else {
            return Ok(());
        };
        let some = answers.iter().filter(|(_, count)| count.requests > 0);
        let said: Vec<String> = some
            .map(|(status, count)| format!("{} {status}", count.requests))
            .collect();
        let said = if said.is_empty() {
            "none yet".to_string()
        } else {
            said.join(", ")
        };
        self.line("answers", &said)?;
        match server.hit_ratio {
            Some(ratio) => self.line("cached", &format!("{:.1}%", ratio * 100.0)),
            None => Ok(()),
        }
    }
}
