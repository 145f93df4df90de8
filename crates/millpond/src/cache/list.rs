//! `millpond cache ls` and `export`: what there is.
//!
//! A list goes out as it comes, so it takes no memory however long it is; only one that is to be in
//! an order is collected first, and with `--limit` no more than twice that is kept.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use bytes::Bytes;
use millpond_server::control::api::Verb;
use millpond_server::control::query::Parameters;
use millpond_server::control::report::{EntryReport, Line};
use millpond_server::control::rest::{Purpose, ZonePath};
use millpond_system::clock;

use super::Outcome;
use super::access::{Access, Site};
use super::columns::{self, Column, Fit};
use super::figures;
use super::options::{Command, Direction, Format, Length, Options, Sort};
use super::output::{Bar, Output};
use crate::terminal::{self, Paint, Role};

/// Lists entries.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    let zones = site.zones(options.zone.as_deref())?;
    let output = match &options.output {
        Some(path) => Output::file(path)?,
        None => Output::stdout(),
    };
    let mut list = List {
        options,
        style: Style::of(options, zones.len()),
        now: clock::now_ms().div_euclid(1000),
        kept: Vec::new(),
        written: 0,
        output,
    };
    list.begin()?;
    let depth = match options.command {
        Command::Export => Depth::All,
        _ => Depth::Row,
    };
    for zone in &zones {
        let parameters = options.parameters.clone();
        let bar = list.bar(&zone.name);
        let flow = walk(site, zone, (parameters, depth), bar, &mut |entry| {
            list.take(entry)
        })?;
        if flow.is_break() {
            break;
        }
    }
    list.finish()?;
    Ok(Outcome::Done)
}

/// Extent of what is told of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The columns of a line of a list.
    Row,
    /// All that is known.
    All,
}

/// Hands on the entries of a zone until `take` has enough; an error if some are missing.
pub(super) fn walk(
    site: &Site,
    zone: &ZonePath,
    asked: (Parameters, Depth),
    bar: Option<Bar>,
    take: &mut dyn FnMut(EntryReport) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    let access = site.access(zone, Purpose::Look)?;
    walk_by(&access, asked, bar, take)
}

/// Hands on the entries of a zone as [`walk`] does, as another node has it perhaps.
pub(super) fn walk_by(
    access: &Access,
    (mut parameters, depth): (Parameters, Depth),
    mut bar: Option<Bar>,
    take: &mut dyn FnMut(EntryReport) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    let mut add = |name: &str| parameters.push((name.to_string(), Bytes::from_static(b"1")));
    add("progress");
    if depth == Depth::All {
        add("detail");
    }
    let ask = access.request(Verb::Get, &["entries"], parameters);
    let mut flow = ControlFlow::Continue(());
    let mut end = None;
    access.lines(&ask, &mut |line| {
        match line {
            Line::Entry(entry) => flow = take(*entry)?,
            Line::Progress(progress) => {
                if let Some(bar) = &mut bar {
                    bar.draw(&progress);
                }
            }
            Line::End(report) => end = Some(report),
            Line::Corrupt(_) | Line::Unread(_) => {}
        }
        Ok(flow)
    })?;
    drop(bar);
    match end {
        _ if flow.is_break() => {}
        Some(end) if end.is_complete => warn(access.name(), end.corrupt + end.unread),
        _ => bail!("the list of zone \"{}\" is not whole", access.name()),
    }
    Ok(flow)
}

fn warn(zone: &str, unreadable: u64) {
    if unreadable > 0 {
        let records = figures::count(unreadable, "record", "records");
        eprintln!(
            "millpond: zone \"{zone}\": {records} could not be read; see: millpond cache verify"
        );
    }
}

/// Style of a line.
struct Style {
    format: Format,
    columns: Vec<Column>,
    fit: Fit,
    paint: Paint,
}

impl Style {
    fn of(options: &Options, zones: usize) -> Style {
        Style {
            format: match options.command {
                Command::Export => Format::Json,
                _ => options.format,
            },
            columns: match &options.columns {
                Some(columns) => columns.clone(),
                None => columns::usual(zones),
            },
            fit: match terminal::stdout_width() {
                Some(width) if options.length == Length::Fitting => Fit::Within(width),
                _ => Fit::Whole,
            },
            paint: terminal::stdout_paint(),
        }
    }
}

struct List<'a> {
    options: &'a Options,
    style: Style,
    now: i64,
    /// Entries that wait to be put in order.
    kept: Vec<EntryReport>,
    written: usize,
    output: Output,
}

impl List<'_> {
    /// Names of the columns, for people.
    fn begin(&mut self) -> Result<()> {
        if self.style.format == Format::Json || !terminal::is_stdout_terminal() {
            return Ok(());
        }
        let line = columns::heading(&self.style.columns, self.style.fit);
        self.output
            .line(&self.style.paint.paint(Role::Title, &line))
    }

    fn limit(&self) -> usize {
        self.options.limit.unwrap_or(usize::MAX)
    }

    fn is_full(&self) -> bool {
        self.options.sort == Sort::None && self.written >= self.limit()
    }

    /// A bar, where no lines are written meanwhile.
    fn bar(&self, zone: &str) -> Option<Bar> {
        let is_silent = self.options.sort != Sort::None
            || self.options.output.is_some()
            || !terminal::is_stdout_terminal();
        is_silent.then(|| Bar::new(zone))
    }

    fn take(&mut self, entry: EntryReport) -> Result<ControlFlow<()>> {
        if self.options.sort == Sort::None {
            if self.is_full() {
                return Ok(ControlFlow::Break(()));
            }
            self.write(&entry)?;
            return Ok(if self.is_full() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            });
        }
        self.kept.push(entry);
        if self.kept.len() >= self.limit().max(1).saturating_mul(2) {
            self.put_in_order();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn put_in_order(&mut self) {
        let (sort, direction) = (self.options.sort, self.options.direction);
        self.kept.sort_by(|one, other| match direction {
            Direction::Usual => compare(sort, one, other),
            Direction::Reverse => compare(sort, other, one),
        });
        self.kept.truncate(self.limit());
    }

    fn finish(mut self) -> Result<()> {
        self.put_in_order();
        for entry in std::mem::take(&mut self.kept) {
            self.write(&entry)?;
        }
        self.output.end()
    }

    fn write(&mut self, entry: &EntryReport) -> Result<()> {
        self.written += 1;
        match self.style.format {
            Format::Json => self.output.line(&serde_json::to_string(entry)?),
            Format::Text | Format::Csv => {
                let line = columns::row(&self.style.columns, self.style.fit, entry, self.now);
                self.output.line(&line)
            }
        }
    }
}

fn compare(sort: Sort, one: &EntryReport, other: &EntryReport) -> Ordering {
    let by_key = || (&one.key, &one.id).cmp(&(&other.key, &other.id));
    let ordering = match sort {
        Sort::None => Ordering::Equal,
        Sort::Size => other.held.cmp(&one.held),
        Sort::Age => one.stored.cmp(&other.stored),
        Sort::Used => other.used.cmp(&one.used),
        Sort::Hits => other.hits.cmp(&one.hits),
        Sort::Key => by_key(),
        Sort::Expires => one.fresh_until.cmp(&other.fresh_until),
        Sort::Status => one.status.cmp(&other.status),
        Sort::Type => one.content_type.cmp(&other.content_type),
        Sort::Site => one.site.cmp(&other.site),
    };
    ordering.then_with(by_key)
}

#[cfg(test)]
mod tests {
    use super::super::columns::tests::entry;
    use super::*;

    #[test]
    fn each_order_puts_first_what_its_name_says() {
        let (old, new) = (entry("/b", 10, 100), entry("/a", 20, 200));
        for (sort, first) in [
            (Sort::Size, &new),
            (Sort::Age, &old),
            (Sort::Used, &new),
            (Sort::Hits, &new),
            (Sort::Key, &new),
            (Sort::Expires, &old),
            (Sort::Site, &new),
        ] {
            let second = if first == &new { &old } else { &new };
            assert_eq!(compare(sort, first, second), Ordering::Less, "{sort:?}");
        }
    }
}
