//! Man pages: `millpond.8`, one for each command, and `millpond.conf.5`, which is the manual of
//! directives.
//!
//! Pages of commands are their help, whole; the page of the program has its signals and files, too.
//! They are written from what is checked in and from what the binary prints, so nothing is told
//! twice.

use super::commands::Command;
use super::roff::{Page, from_markdown};
use crate::workspace;
use anyhow::{Context, Result};
use std::fs;

/// Names and texts of the pages.
pub(super) fn pages(commands: &[Command], date: &str) -> Result<Vec<(String, String)>> {
    let mut pages = vec![("millpond.conf.5".to_string(), directives(date)?)];
    for command in commands {
        let name = page_name(command);
        let text = page(command, commands, date)?;
        pages.push((format!("{name}.8"), text));
    }
    Ok(pages)
}

fn page_name(command: &Command) -> String {
    let words = std::iter::once("millpond").chain(command.words.iter().map(String::as_str));
    words.collect::<Vec<_>>().join("-")
}

fn page(command: &Command, all: &[Command], date: &str) -> Result<String> {
    let name = page_name(command);
    let mut page = Page::new(&name, 8, date);
    page.section("NAME");
    page.text(&format!("{name} - {}", command.about));
    page.section("SYNOPSIS");
    page.verbatim(command.help.trim_end());
    if command.words.is_empty() {
        page.section("SIGNALS AND WHAT HOLDS WHATEVER THE DIRECTIVE");
        page.raw(&from_markdown(&document("behaviour")?));
        page.section("FILES");
        for (path, about) in FILES {
            page.item(path, about);
        }
    }
    page.section("SEE ALSO");
    let others = all.iter().filter(|other| other.words != command.words);
    let pages = others.map(|other| format!("{}(8)", page_name(other)));
    let names: Vec<String> = std::iter::once("millpond.conf(5)".to_string())
        .chain(pages)
        .collect();
    page.text(&names.join(", "));
    Ok(page.finish())
}

const FILES: [(&str, &str); 7] = [
    ("/etc/millpond/millpond.conf", "the configuration"),
    ("/var/cache/millpond", "the caches"),
    ("/var/lib/millpond", "certificates that are ordered"),
    ("/var/log/millpond", "logs"),
    (
        "/run/millpond/millpond.pid",
        "the process id, under systemd",
    ),
    (
        "/run/millpond/millpond.control",
        "the control socket, under systemd",
    ),
    (
        "/usr/lib/millpond/change-binary",
        "puts a new binary into force without losing a connection",
    ),
];

fn directives(date: &str) -> Result<String> {
    let mut page = Page::new("millpond.conf", 5, date);
    page.section("NAME");
    page.text("millpond.conf - configuration of millpond, in nginx's language");
    page.section("DESCRIPTION");
    let text = document("directives")?;
    // The list of chapters has links, which a page has not.
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("- ["))
        .collect();
    page.raw(&from_markdown(&lines.join("\n")));
    page.section("SEE ALSO");
    page.text("millpond(8), millpond-check(8), millpond-explain(8)");
    Ok(page.finish())
}

fn document(name: &str) -> Result<String> {
    let path = workspace::root()
        .join("docs")
        .join(name)
        .with_extension("md");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}
