//! The columns of `millpond cache ls`.
//!
//! A record for each: its name, its heading, how wide it is and what it says of an entry. Where
//! lines have a width ([`Fit::Within`]), as on a terminal, texts are cut to their columns, so that
//! all stay in place; elsewhere what is longer than its column pushes the rest to the right, and
//! nothing is cut ([`Fit::Whole`]). Numbers are never cut.

use millpond_server::control::report::EntryReport;

use super::figures::{plain, size, time};

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Name of the column on the command line.
    pub(super) name: &'static str,
    heading: &'static str,
    /// Letters; to the left with a minus.
    width: isize,
    say: fn(&EntryReport, i64) -> String,
}

/// Length that lines may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Lines are as long as what they say.
    Whole,
    /// Lines have at most so many letters.
    Within(usize),
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
        if entry.held == entry.length {
            "=".to_string()
        } else {
            size(entry.length)
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
    column("hits", "HITS", 6, |entry, _| entry.hits.to_string()),
    column("status", "ST.", 3, |entry, _| entry.status.to_string()),
    column("type", "TYPE", -24, |entry, _| {
        let kind = entry.content_type.split(';').next().unwrap_or_default();
        or_dash(kind.trim())
    }),
    column("site", "SITE", -12, |entry, _| plain(&entry.site)),
    column("host", "HOST", -20, |entry, _| plain(&entry.host)),
    column("tags", "TAGS", -20, |entry, _| {
        or_dash(&entry.tags.join(","))
    }),
    column("id", "ID", 32, |entry, _| entry.id.clone()),
    column("url", "URL", -40, |entry, _| {
        or_dash(entry.url.as_deref().unwrap_or_default())
    }),
    column("key", "KEY", -20, |entry, _| plain(&entry.key)),
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
    if text.is_empty() {
        "-".to_string()
    } else {
        plain(text)
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
pub(super) fn heading(columns: &[Column], fit: Fit) -> String {
    join(columns, fit, |column| column.heading.to_string())
}

/// An entry in columns.
pub(super) fn row(columns: &[Column], fit: Fit, entry: &EntryReport, now: i64) -> String {
    join(columns, fit, |column| (column.say)(entry, now))
}

fn join(columns: &[Column], fit: Fit, say: impl Fn(&Column) -> String) -> String {
    let mut line = String::new();
    // Letters of the line.
    let mut len = 0;
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            line.push(' ');
            len += 1;
        }
        let is_last = index + 1 == columns.len();
        let text = match (fit, column.width < 0) {
            // The last one has what is left.
            (Fit::Within(most), true) if is_last => cut(say(column), most.saturating_sub(len)),
            (Fit::Within(_), true) => cut(say(column), column.width.unsigned_abs()),
            _ => say(column),
        };
        let text = column.align(text, is_last);
        len += text.chars().count();
        line.push_str(&text);
    }
    match fit {
        Fit::Whole => line,
        // Columns may have been asked for that do not fit.
        Fit::Within(most) => cut(line, most),
    }
}

impl Column {
    fn align(&self, text: String, is_last: bool) -> String {
        let width = self.width.unsigned_abs();
        if self.width >= 0 {
            format!("{text:>width$}")
        } else if is_last {
            // No blanks at the end of a line.
            text
        } else {
            format!("{text:<width$}")
        }
    }
}

/// A text with its middle left out, so that it has at most so many letters: keys begin alike, and
/// their ends tell them apart.
fn cut(text: String, most: usize) -> String {
    let len = text.chars().count();
    if len <= most {
        return text;
    }
    let kept = most.saturating_sub(1);
    let begin = kept / 3;
    let end = len - (kept - begin);
    let dots = (most > 0).then_some('…');
    let letters = text.chars().take(begin).chain(dots);
    letters.chain(text.chars().skip(end)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use millpond_server::control::report::SlicesReport;

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
        let shown = entry("/a\n\u{1b}[2J", 1000, 1_000);
        let text = row(&usual(1), Fit::Whole, &shown, 1_100);
        let expected = "  1000   4.0K    1m   -40s   95s      6 200 shop         /a\\n\\u{1b}[2J";
        assert_eq!(text, expected);
        let whole = row(&usual(2), Fit::Whole, &entry("/b", 4096, 1_000), 1_010);
        assert!(
            whole.starts_with("z           4.0K      =   10s    50s    5s"),
            "{whole}"
        );
    }

    #[test]
    fn a_line_fits_a_terminal_and_its_columns_stay_in_place() {
        let long = format!("shop.example/{}/end.mp4", "x".repeat(200));
        let mut wide = entry(&long, 1000, 0);
        wide.hits = 123_456;
        wide.site = "a-site-with-a-long-name.example".to_string();
        wide.fresh_until = 1_000_000_000;
        let fit = Fit::Within(80);
        for zones in [1, 2] {
            let columns = usual(zones);
            let at = heading(&columns, fit).find("KEY").unwrap();
            let short = entry("/b", 4096, 0);
            let rows = [&wide, &short].map(|entry| row(&columns, fit, entry, 90));
            for row in &rows {
                let letters: Vec<char> = row.chars().collect();
                assert!(letters.len() <= 80, "{row}");
                assert!(letters[at - 1] == ' ' && letters[at] != ' ', "{row}");
            }
            assert!(rows[0].ends_with("/end.mp4"), "{}", rows[0]);
            assert_eq!(rows[0].matches('…').count(), 2, "{}", rows[0]);
            assert!(row(&columns, Fit::Whole, &wide, 90).contains(&long));
        }
        let columns = parse("url,tags,type,site,host,id,key").unwrap();
        assert_eq!(row(&columns, fit, &wide, 90).chars().count(), 80);
        assert_eq!(cut("abcdef".to_string(), 4), "a…ef");
        assert_eq!(cut("abcdef".to_string(), 0), "");
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let columns = parse("slices, type,tags,url").unwrap();
        assert_eq!(
            heading(&columns, Fit::Whole),
            " SLICES TYPE                     TAGS                 URL"
        );
        assert_eq!(
            row(&columns, Fit::Whole, &entry("/c", 1000, 0), 0),
            "    1/5 video/mp4                a,b                  //shop/c"
        );
        assert!(parse("held,colour").is_none() && parse("").is_none());
        let names: std::collections::BTreeSet<_> = COLUMNS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), COLUMNS.len());
        assert_eq!(usual(1).len(), USUAL.len() + 1);
    }
}
