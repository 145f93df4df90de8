//! `millpond cache show`: all that is known of one key.
//!
//! The word is taken for a cache key first, as the zones have it, then for the id of an entry, and
//! last for a URL, whose key the configuration tells. Every variant is shown.

use anyhow::Result;
use bytes::Bytes;
use millpond_server::control::api::Verb;
use millpond_server::control::report::{DetailReport, EntriesReport, EntryReport};
use millpond_server::control::rest::{Purpose, ZonePath};
use millpond_system::clock;

use super::Outcome;
use super::access::{Access, Refusal, Site};
use super::figures::{count, plain, size, time};
use super::options::{Format, Options};
use super::output::Output;
use super::subject;
use crate::terminal::{self, Paint, Role};

/// Ranges on a line.
const RANGES_SHOWN: usize = 8;

/// Shows what is stored under a key.
pub(super) fn run(options: &Options, site: &Site) -> Result<Outcome> {
    let subject = options.subject.clone().unwrap_or_default();
    let mut found = Vec::new();
    for zone in site.zones(options.zone.as_deref())? {
        let access = site.access(&zone, Purpose::Look)?;
        found.extend(look(&access, "key", subject.clone())?);
        if found.is_empty() && is_id(&subject) {
            found.extend(look(&access, "id", subject.clone())?);
        }
    }
    if found.is_empty()
        && let Some(meant) = subject::of_url(site, &subject)?
    {
        let zones = site.zones(Some(&meant.zone))?;
        for zone in zones.iter().filter(|zone| is_meant(options, zone)) {
            let access = site.access(zone, Purpose::Look)?;
            found.extend(look(&access, "key", meant.key.clone())?);
        }
    }
    if found.is_empty() {
        eprintln!(
            "millpond: nothing is stored for \"{}\"",
            plain(&text(&subject))
        );
        return Ok(Outcome::Nothing);
    }
    let mut output = Output::stdout();
    match options.format {
        Format::Json => {
            let report = EntriesReport { entries: found };
            output.line(&serde_json::to_string(&report)?)?;
        }
        Format::Text | Format::Csv => {
            let mut page = Page {
                paint: terminal::stdout_paint(),
                now: clock::now_ms().div_euclid(1000),
                output: &mut output,
            };
            for entry in &found {
                page.entry(entry)?;
            }
        }
    }
    output.end()?;
    Ok(Outcome::Done)
}

fn is_meant(options: &Options, zone: &ZonePath) -> bool {
    let named = options.zone.as_ref();
    named.is_none_or(|name| *name == zone.name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_id(subject: &[u8]) -> bool {
    subject.len() == 32 && subject.iter().all(u8::is_ascii_hexdigit)
}

/// The entries of a key or an id; none if there are none.
pub(super) fn look(access: &Access, name: &str, value: Bytes) -> Result<Vec<EntryReport>> {
    let ask = access.request(Verb::Get, &["entry"], vec![(name.to_string(), value)]);
    match access.whole::<EntriesReport>(&ask) {
        Ok(report) => Ok(report.entries),
        Err(Refusal::NotFound(_)) => Ok(Vec::new()),
        Err(Refusal::Other(error)) => Err(error),
    }
}

/// Page on which entries are told of.
pub(super) struct Page<'a> {
    pub(super) paint: Paint,
    pub(super) now: i64,
    pub(super) output: &'a mut Output,
}

impl Page<'_> {
    /// A line with a name.
    pub(super) fn line(&mut self, label: &str, text: &str) -> Result<()> {
        let label = self.paint.paint(Role::Faint, &format!("{label:<9}"));
        self.output.line(&format!("  {label} {text}"))
    }

    /// The site; some entries have none.
    pub(super) fn site(&mut self, name: &str) -> Result<()> {
        self.line("site", &plain(if name.is_empty() { "-" } else { name }))
    }

    fn entry(&mut self, entry: &EntryReport) -> Result<()> {
        let title = self.paint.paint(Role::Title, &plain(&entry.key));
        self.output.line(&title)?;
        self.line("zone", &plain(&entry.zone))?;
        self.line("id", &entry.id)?;
        self.site(&entry.site)?;
        self.line("host", &plain(&entry.host))?;
        if !entry.tags.is_empty() {
            self.line("tags", &plain(&entry.tags.join(" ")))?;
        }
        self.state(entry)?;
        let fields = entry.detail.as_deref().map(|detail| &detail.fields);
        for (index, (name, value)) in fields.into_iter().flatten().enumerate() {
            let label = if index == 0 { "fields" } else { "" };
            self.line(label, &plain(&format!("{name}: {value}")))?;
        }
        Ok(())
    }

    /// Writes the state of an entry.
    pub(super) fn state(&mut self, entry: &EntryReport) -> Result<()> {
        if let Some(variant) = &entry.variant {
            self.line("variant", &plain(&variant.values))?;
        }
        self.line("status", &entry.status.to_string())?;
        self.times(entry)?;
        let hits = if entry.hits == 1 { "hit" } else { "hits" };
        let used = time(self.now.saturating_sub(entry.used));
        self.line("used", &format!("{used} ago, {} {hits}", entry.hits))?;
        match &entry.detail {
            Some(detail) => self.detail(entry, detail),
            None => Ok(()),
        }
    }

    fn times(&mut self, entry: &EntryReport) -> Result<()> {
        let stored = time(self.now.saturating_sub(entry.stored));
        self.line("stored", &format!("{stored} ago"))?;
        let left = entry.fresh_until.saturating_sub(self.now);
        let text = match (entry.is_fresh, left < 0) {
            (true, _) => self.paint.paint(Role::Good, &format!("for {}", time(left))),
            (false, true) => {
                let since = format!("no, stale for {}", time(left.saturating_neg()));
                self.paint.paint(Role::Doubtful, &since)
            }
            (false, false) => {
                let text = "no, it must be validated each time";
                self.paint.paint(Role::Doubtful, text)
            }
        };
        self.line("fresh", &text)
    }

    fn detail(&mut self, entry: &EntryReport, detail: &DetailReport) -> Result<()> {
        let stale = stale(detail);
        if !stale.is_empty() {
            self.line("stale", &stale)?;
        }
        let age = i64::try_from(detail.age).unwrap_or(i64::MAX);
        self.line("age", &time(age))?;
        self.body(entry, detail)?;
        let record = size(detail.record_bytes);
        let (dir, segment) = (plain(&detail.dir), detail.segment);
        self.line(
            "place",
            &format!("{dir}, segment {segment}, record of {record}"),
        )
    }

    fn body(&mut self, entry: &EntryReport, detail: &DetailReport) -> Result<()> {
        let length = match entry.length {
            0..1024 => count(entry.length, "byte", "bytes"),
            length => format!("{} ({length} bytes)", size(length)),
        };
        let Some(slice_size) = detail.slice_size else {
            return self.line("body", &length);
        };
        let text = format!(
            "{length} in slices of {}, {} held",
            size(slice_size),
            size(entry.held)
        );
        self.line("body", &text)?;
        let shown = detail.ranges.iter().take(RANGES_SHOWN);
        let ranges: Vec<String> = shown
            .map(|(start, end)| format!("{start}-{}", end.saturating_sub(1)))
            .collect();
        let more = detail.ranges.len().saturating_sub(RANGES_SHOWN);
        let more = match (detail.has_more_ranges, more) {
            (_, 0) => String::new(),
            (false, more) => format!(" and {more} more"),
            (true, _) => " and many more".to_string(),
        };
        self.line("held", &format!("{}{more}", ranges.join(" ")))
    }
}

/// Uses that may be made of the entry when it is stale.
fn stale(detail: &DetailReport) -> String {
    let mut words = Vec::new();
    if detail.never_stale {
        words.push("never served".to_string());
    }
    let mut window = |seconds: u32, when: &str| {
        if seconds > 0 {
            words.push(format!("served {when} for {}", time(i64::from(seconds))));
        }
    };
    window(detail.stale_while_revalidate, "while it is updated");
    window(detail.stale_if_error, "when the origin fails");
    words.join(", ")
}
