//! Entries of the manual that a name stands for: a directive, a variable, a code, a status.
//!
//! A name may stand for several: `server` is a block of `http` and a line of `upstream`. All are
//! shown. Nothing is described here; the texts come from the manual and from the tables of codes.

use std::fmt::Write as _;

use millpond_conf::code::{Code, PREFIX};
use millpond_conf::suggest;
use millpond_server::directives::codes as code;
use millpond_server::directives::manual::{self, Entry, OWN_MODULE, Standing};

use super::status::{self, Status};
use crate::terminal::{Paint, Role, wrapped};

/// Something that is explained.
#[derive(Debug)]
pub(super) enum Topic {
    /// A directive or a variable.
    Entry(Box<Entry>),
    /// A kind of warnings or mistakes.
    Code(&'static Code),
    /// A status.
    Status(&'static Status),
}

/// All that a name stands for.
pub(super) fn find(name: &str) -> Vec<Topic> {
    if let Some(status) = name.parse().ok().and_then(status::find) {
        return vec![Topic::Status(status)];
    }
    let mut topics = match name.strip_prefix('$') {
        Some(plain) => variables(plain.trim_matches(['{', '}'])),
        None => directives(name),
    };
    topics.extend(code::find(name).map(Topic::Code));
    if topics.is_empty() && !name.starts_with('$') {
        topics = variables(name);
    }
    topics
}

fn directives(name: &str) -> Vec<Topic> {
    let entries = manual::directives().into_iter();
    let entries = entries.filter(|entry| entry.name == name);
    entries.map(|entry| Topic::Entry(Box::new(entry))).collect()
}

/// The variable itself, or the family that it belongs to.
fn variables(name: &str) -> Vec<Topic> {
    let name = format!("${}", name.to_ascii_lowercase());
    let entries = manual::variables();
    let exact = entries.iter().find(|entry| entry.name == name);
    let family = || {
        entries.iter().find(|entry| {
            let prefix = entry.name.strip_suffix('*');
            prefix.is_some_and(|prefix| name.starts_with(prefix))
        })
    };
    let found = exact.or_else(family).cloned();
    found
        .into_iter()
        .map(|entry| Topic::Entry(Box::new(entry)))
        .collect()
}

/// The name that was probably meant.
pub(super) fn nearest(name: &str) -> Option<String> {
    let entries = if name.starts_with('$') {
        manual::variables()
    } else {
        manual::directives()
    };
    let names = entries.iter().map(|entry| &*entry.name);
    let codes = code::all().map(|code| code.name);
    suggest(name, names.chain(codes)).map(str::to_string)
}

impl Topic {
    /// The text for a terminal.
    pub(super) fn text(&self, paint: Paint) -> String {
        match self {
            Topic::Entry(entry) => entry_text(entry, paint),
            Topic::Code(code) => {
                let title = paint.paint(Role::Title, code.name);
                let full = paint.paint(Role::Faint, &format!("{PREFIX}{}", code.name));
                format!("{title}  {full}\n\n{}", wrapped(code.doc, 4))
            }
            Topic::Status(status) => {
                let title = format!("{} {}", status.code, status.name);
                let title = paint.paint(Role::Title, &title);
                format!("{title}\n\n{}", wrapped(status.doc, 4))
            }
        }
    }
}

fn entry_text(entry: &Entry, paint: Paint) -> String {
    let module = match entry.module {
        OWN_MODULE => "not in nginx",
        module => module,
    };
    let mut out = paint.paint(Role::Title, &entry.name);
    // Writing into a String never fails.
    let _ = writeln!(out, "  {}\n", paint.paint(Role::Faint, module));
    let contexts = entry.contexts.names().join(", ");
    let lines = [
        ("syntax", Some(&entry.syntax)),
        ("default", entry.default.as_ref()),
        ("context", Some(&contexts)),
    ];
    let mut has_lines = false;
    for (label, value) in lines {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            has_lines = true;
            let label = paint.paint(Role::Faint, &format!("{label:<8}"));
            let value = wrapped(value, 13);
            let _ = write!(out, "    {label} {}", value.trim_start());
        }
    }
    if entry.standing == Standing::Works {
        let label = paint.paint(Role::Faint, "since   ");
        let _ = writeln!(out, "    {label} {}", entry.since);
        has_lines = true;
    }
    if has_lines {
        out.push('\n');
    }
    out.push_str(&match entry.standing {
        Standing::Works => wrapped(&entry.text, 4),
        Standing::NoEffect(reason) => wrapped(&format!("Accepted without effect: {reason}."), 4),
        Standing::Refused(reason) => wrapped(&format!("Not supported: {reason}."), 4),
    });
    if let Some(differences) = &entry.differences {
        let _ = writeln!(
            out,
            "\n    {}",
            paint.paint(Role::Title, "Differs from nginx")
        );
        out.push_str(&wrapped(differences, 4));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(name: &str) -> String {
        let topics = find(name);
        let texts = topics.iter().map(|topic| topic.text(Paint::Plain));
        texts.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn names_are_found_in_every_form() {
        for (name, part) in [
            ("proxy_cache_lock", "syntax   proxy_cache_lock on | off;"),
            ("tcp_nopush", "Accepted without effect: "),
            ("geoip_city", "Not supported: "),
            ("$upstream_addr", "ngx_http_upstream_module"),
            ("upstream_addr", "$upstream_addr"),
            ("${host}", "$host"),
            ("$HTTP_X_YZ", "$http_*"),
            ("inactive_short", "millpond::conf::inactive_short"),
            (
                "millpond::conf::unknown_directive",
                "No directive has this name",
            ),
            ("499", "499 "),
        ] {
            let text = texts(name);
            assert!(text.contains(part), "{name}: {text}");
            assert!(!text.contains('\u{1b}'), "{name}");
        }
        assert!(find("no_such_name").is_empty() && find("$").is_empty());
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        for (name, near) in [
            ("proxy_cach", Some("proxy_cache")),
            ("$upstream_adr", Some("$upstream_addr")),
            ("inactive_shrt", Some("inactive_short")),
            ("xyzzy", None),
        ] {
            assert_eq!(nearest(name).as_deref(), near, "{name}");
        }
    }

    #[test]
    fn no_entry_is_wider_than_a_terminal() {
        let entries = manual::directives().into_iter().chain(manual::variables());
        for entry in entries {
            let text = Topic::Entry(Box::new(entry)).text(Paint::Plain);
            for line in text.lines() {
                let words = line.split_whitespace().count();
                assert!(line.chars().count() < 80 || words < 2, "{line}");
            }
        }
    }
}
