//! The columns of `millpond cache ls`.
//!
//! A record for each: its name, its heading, how wide it is and what it says of an entry. What is
//! longer than its column pushes the rest to the right, so nothing is cut.

use millpond_proxy::control::report::EntryReport;

use super::figures::{plain, size, time};

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its name on the command line.
    pub(super) name: &'static str,
    heading: &'static str,
    /// Letters; to the left with a minus.
    width: isize,
    say: fn(&EntryReport, i64) -> String,
}

/// Columns without `--columns`; `zone` stands before them if there is more than one.
const USUAL: [&str; 8] = [
    "held", "length", "age", "fresh", "used", "hits", "status", "site",
];

/// All columns.
pub(super) const COLUMNS: &[Column] = &[
    column("zone", "ZONE", -9, |entry, _| plain(&entry.zone)),
    column("held", "HELD", 6, |entry, _| size(entry.held)),
    column("length", "LENGTH", 6, |entry, _| {
        match entry.held == entry.length {
            true => "=".to_string(),
            false => size(entry.length),
        }
    }),
    column("slices", "SLICES", 7, |entry, _| match entry.slices {
        Some(slices) => format!("{}/{}", slices.held, slices.all),
        None => "-".to_string(),
    }),
    column("age", "AGE", 5, |entry, now| {
        time(now.saturating_sub(entry.stored))
    }),
    column("fresh", "FRESH", 6, |entry, now| {
        time(entry.fresh_until.saturating_sub(now))
    }),
    column("used", "USED", 5, |entry, now| {
        time(now.saturating_sub(entry.used))
    }),
    column("hits", "HITS", 4, |entry, _| entry.hits.to_string()),
    column("status", "ST.", 3, |entry, _| entry.status.to_string()),
    column("type", "TYPE", -24, |entry, _| {
        let kind = entry.content_type.split(';').next().unwrap_or_default();
        or_dash(kind.trim())
    }),
    column("site", "SITE", -20, |entry, _| plain(&entry.site)),
    column("host", "HOST", -20, |entry, _| plain(&entry.host)),
    column("tags", "TAGS", -20, |entry, _| {
        or_dash(&entry.tags.join(","))
    }),
    column("id", "ID", 32, |entry, _| entry.id.clone()),
    column("url", "URL", -40, |entry, _| {
        or_dash(entry.url.as_deref().unwrap_or_default())
    }),
    column("key", "KEY", 0, |entry, _| plain(&entry.key)),
];

const fn column(
    name: &'static str,
    heading: &'static str,
    width: isize,
    say: fn(&EntryReport, i64) -> String,
) -> Column {
    Column {
        name,
        heading,
        width,
        say,
    }
}

fn or_dash(text: &str) -> String {
    match text.is_empty() {
        true => "-".to_string(),
        false => plain(text),
    }
}

fn named(name: &str) -> Option<Column> {
    COLUMNS.iter().find(|column| column.name == name).copied()
}

/// The columns of a list with commas between them; none if one is not known.
pub(super) fn parse(text: &str) -> Option<Vec<Column>> {
    text.split(',').map(|name| named(name.trim())).collect()
}

/// The columns of a list for which none are named.
pub(super) fn usual(zones: usize) -> Vec<Column> {
    let zone = ["zone"].into_iter().filter(|_| zones > 1);
    let names = zone.chain(USUAL).chain(["key"]);
    names.filter_map(named).collect()
}

/// The headings of columns.
pub(super) fn heading(columns: &[Column]) -> String {
    join(columns, |column| column.heading.to_string())
}

/// An entry in columns.
pub(super) fn row(columns: &[Column], entry: &EntryReport, now: i64) -> String {
    join(columns, |column| (column.say)(entry, now))
}

fn join(columns: &[Column], say: impl Fn(&Column) -> String) -> String {
    let mut line = String::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        let (text, width) = (say(column), column.width.unsigned_abs());
        match column.width < 0 {
            // No blanks at the end of a line.
            true if index + 1 == columns.len() => line.push_str(&text),
            true => line.push_str(&format!("{text:<width$}")),
            false => line.push_str(&format!("{text:>width$}")),
        }
    }
    line
}

#[cfg(test)]
pub(super) mod tests {
    use millpond_proxy::control::report::SlicesReport;

    use super::*;

    /// An entry of which half is held.
    pub(in super::super) fn entry(key: &str, held: u64, stored: i64) -> EntryReport {
        EntryReport {
            zone: "z".to_string(),
            id: "0".repeat(32),
            key: key.to_string(),
            site: "shop".to_string(),
            host: "shop".to_string(),
            tags: vec!["a".to_string(), "b".to_string()],
            status: 200,
            length: 4096,
            held,
            stored,
            fresh_until: stored + 60,
            is_fresh: true,
            used: stored + 5,
            hits: held % 7,
            content_type: "video/mp4; codecs=x".to_string(),
            url: Some(format!("//shop{key}")),
            slices: Some(SlicesReport {
                size: 1000,
                all: 5,
                held: 1,
            }),
            variant: None,
            detail: None,
        }
    }

    #[test]
    fn a_row_is_for_people_and_for_grep() {
        let text = row(&usual(1), &entry("/a\n\u{1b}[2J", 1000, 1_000), 1_100);
        let expected =
            "  1000   4.0K    1m   -40s   95s    6 200 shop                 /a\\n\\u{1b}[2J";
        assert_eq!(text, expected);
        let whole = row(&usual(2), &entry("/b", 4096, 1_000), 1_010);
        assert!(
            whole.starts_with("z           4.0K      =   10s    50s    5s"),
            "{whole}"
        );
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let columns = parse("slices, type,tags,url").unwrap();
        assert_eq!(
            heading(&columns),
            " SLICES TYPE                     TAGS                 URL"
        );
        assert_eq!(
            row(&columns, &entry("/c", 1000, 0), 0),
            "    1/5 video/mp4                a,b                  //shop/c"
        );
        assert!(parse("held,colour").is_none() && parse("").is_none());
        let names: std::collections::BTreeSet<_> = COLUMNS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), COLUMNS.len());
        assert_eq!(usual(1).len(), USUAL.len() + 1);
    }
}
