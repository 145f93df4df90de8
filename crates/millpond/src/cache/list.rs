//! `millpond cache ls` and `export`: what there is.
//!
//! A list goes out as it comes, so it takes no memory however long it is; only one that is to be in
//! an order is collected first, and with `--limit` no more than twice that is kept.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use bytes::Bytes;
use millpond_proxy::clock;
use millpond_proxy::control::api::Verb;
use millpond_proxy::control::report::{EntryReport, Line};
use millpond_proxy::control::rest::Purpose;

use super::Outcome;
use super::access::Site;
use super::figures;
use super::options::{Command, Direction, Format, Options, Sort};
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
    for zone in &zones {
        let access = site.access(zone, Purpose::Look)?;
        let mut parameters = options.parameters.clone();
        let mut add = |name: &str| parameters.push((name.to_string(), Bytes::from_static(b"1")));
        add("progress");
        if options.command == Command::Export {
            add("detail");
        }
        let ask = access.request(Verb::Get, &["entries"], parameters);
        let mut bar = list.bar(&zone.name);
        let mut end = None;
        access.lines(&ask, &mut |line| {
            match line {
                Line::Entry(entry) => return list.take(*entry),
                Line::Progress(progress) => {
                    if let Some(bar) = &mut bar {
                        bar.draw(&progress);
                    }
                }
                Line::End(report) => end = Some(report),
                Line::Corrupt(_) | Line::Unread(_) => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        drop(bar);
        if list.is_full() {
            break;
        }
        match end {
            Some(end) if end.is_complete => warn(&zone.name, end.corrupt + end.unread),
            _ => bail!("the list of zone \"{}\" is not whole", zone.name),
        }
    }
    list.finish()?;
    Ok(Outcome::Done)
}

fn warn(zone: &str, unreadable: u64) {
    if unreadable > 0 {
        let records = figures::count(unreadable, "record", "records");
        eprintln!(
            "millpond: zone \"{zone}\": {records} could not be read; see: millpond cache verify"
        );
    }
}

/// How a line looks.
#[derive(Clone, Copy)]
struct Style {
    format: Format,
    /// Whether each line names its zone.
    has_zone: bool,
    paint: Paint,
}

impl Style {
    fn of(options: &Options, zones: usize) -> Style {
        Style {
            format: match options.command {
                Command::Export => Format::Json,
                _ => options.format,
            },
            has_zone: zones > 1,
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
        let zone = if self.style.has_zone {
            "ZONE      "
        } else {
            ""
        };
        let line = format!(
            "{zone}  HELD LENGTH   AGE  FRESH  USED HITS ST. {:<20} KEY",
            "SITE"
        );
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
            return Ok(match self.is_full() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
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
            Format::Text => {
                let line = row(entry, self.now, self.style.has_zone);
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
    };
    ordering.then_with(by_key)
}

fn row(entry: &EntryReport, now: i64, has_zone: bool) -> String {
    let zone = match has_zone {
        true => format!("{:<9} ", figures::plain(&entry.zone)),
        false => String::new(),
    };
    let length = match entry.held == entry.length {
        true => "=".to_string(),
        false => figures::size(entry.length),
    };
    format!(
        "{zone}{:>6} {length:>6} {:>5} {:>6} {:>5} {:>4} {:>3} {:<20} {}",
        figures::size(entry.held),
        figures::time(now.saturating_sub(entry.stored)),
        figures::time(entry.fresh_until.saturating_sub(now)),
        figures::time(now.saturating_sub(entry.used)),
        entry.hits,
        entry.status,
        figures::plain(&entry.site),
        figures::plain(&entry.key),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, held: u64, stored: i64) -> EntryReport {
        EntryReport {
            zone: "z".to_string(),
            id: "0".repeat(32),
            key: key.to_string(),
            site: "shop".to_string(),
            host: "shop".to_string(),
            tags: Vec::new(),
            status: 200,
            length: 4096,
            held,
            stored,
            fresh_until: stored + 60,
            is_fresh: true,
            used: stored + 5,
            hits: held % 7,
            variant: None,
            detail: None,
        }
    }

    #[test]
    fn a_row_is_for_people_and_for_grep() {
        let text = row(&entry("/a\n\u{1b}[2J", 1000, 1_000), 1_100, false);
        let expected =
            "  1000   4.0K    1m   -40s   95s    6 200 shop                 /a\\n\\u{1b}[2J";
        assert_eq!(text, expected);
        let whole = row(&entry("/b", 4096, 1_000), 1_010, true);
        assert!(
            whole.starts_with("z           4.0K      =   10s    50s    5s"),
            "{whole}"
        );
    }

    #[test]
    fn each_order_puts_first_what_its_name_says() {
        let (old, new) = (entry("/b", 10, 100), entry("/a", 20, 200));
        for (sort, first) in [
            (Sort::Size, &new),
            (Sort::Age, &old),
            (Sort::Used, &new),
            (Sort::Hits, &new),
            (Sort::Key, &new),
        ] {
            let second = if first == &new { &old } else { &new };
            assert_eq!(compare(sort, first, second), Ordering::Less, "{sort:?}");
        }
    }
}
