//! Every directive of nginx, in every block that nginx lets it stand in and with every count of
//! arguments: none is refused for its place or its count.
//!
//! The facts are those of nginx's own tables of commands (`tests/foreign/nginx-commands.txt`). Each
//! line has a configuration of its own only as far as it must: many stand in one, since all their
//! mistakes are told at once, each with its line.
//!
//! 1. Values are made up, so that mistakes in them are told, too, and count for nothing.
//! 2. A directive that is refused by name is refused everywhere, and is passed over.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Kind, binary};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const TABLE: &str = include_str!("../foreign/nginx-commands.txt");

/// Lines in one configuration: fewer than there are mistakes in one report.
const LINES: usize = 40;
/// Most arguments that are tried.
const ARGUMENTS: usize = 6;

/// A context, and what opens and closes it: three lines, and the rest.
const BLOCKS: [(&str, &str, &str); 12] = [
    ("main", "", "events {} http {}"),
    ("events", "events {", "} http {}"),
    ("http", "events {} http {", "}"),
    ("server", "events {} http { server {", "}}"),
    ("location", "events {} http { server { location / {", "}}}"),
    (
        "upstream",
        "events {} http { upstream u { server 127.0.0.1;",
        "}}",
    ),
    (
        "if-in-server",
        "events {} http { server { if ($uri) {",
        "}}}",
    ),
    (
        "if-in-location",
        "events {} http { server { location / { if ($uri) {",
        "}}}}",
    ),
    (
        "limit_except",
        "events {} http { server { location / { limit_except GET {",
        "}}}}",
    ),
    ("stream", "events {} stream {", "}"),
    ("server-in-stream", "events {} stream { server {", "}}"),
    (
        "upstream-in-stream",
        "events {} stream { upstream u { server 127.0.0.1:1;",
        "}}",
    ),
];

/// Counts that are refused though nginx takes them, and why.
const DEPARTURES: [(&str, usize, &str); 1] = [(
    "keepalive",
    2,
    "the second word is `local` only, and the message is that of a count",
)];

/// A directive in one place of nginx's tables.
struct Fact {
    name: &'static str,
    contexts: Vec<&'static str>,
    counts: Vec<&'static str>,
    is_block: bool,
}

impl Fact {
    fn takes(&self, count: usize) -> bool {
        self.counts.iter().any(|it| match it.strip_suffix('+') {
            Some(least) => least.parse().is_ok_and(|least: usize| count >= least),
            None if *it == "flag" => count == 1,
            None => it.parse() == Ok(count),
        })
    }

    fn line(&self, count: usize) -> String {
        let words: String = (0..count).map(|number| format!(" a{number}")).collect();
        let end = if self.is_block { " {}" } else { ";" };
        format!("{}{words}{end}", self.name)
    }
}

fn facts() -> Vec<Fact> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let facts = lines.filter_map(|line| {
        let [name, contexts, counts, block, ..] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Fact {
            name,
            contexts: contexts.split(',').collect(),
            counts: counts.split(',').collect(),
            is_block: block == "block",
        })
    });
    // The reader of the language itself has this one.
    facts.filter(|fact| fact.name != "include").collect()
}

/// Messages about each line, by its index: severity and message.
fn said(context: &str, lines: &[String]) -> Result<BTreeMap<usize, Vec<String>>> {
    let blocks = BLOCKS.iter().find(|(name, ..)| *name == context);
    let (_, before, after) = blocks.context("a context")?;
    let program = binary(Kind::Millpond).context("the program")?;
    let dir = tempfile::tempdir()?;
    let mut said: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (part, some) in lines.chunks(LINES).enumerate() {
        let text = format!("{before}\n{}\n{after}\n", some.join("\n"));
        std::fs::write(dir.path().join("x.conf"), text)?;
        let mut command = Command::new(&program);
        command.args(["-t", "-c", "x.conf", "-e", "stderr", "-p"]);
        let output = command.arg(dir.path()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(errors.contains("x.conf"), "{context}: {errors}");
        for message in errors
            .lines()
            .filter(|line| line.starts_with("millpond: ["))
        {
            let Some((message, line)) = message.rsplit_once("x.conf:") else {
                continue;
            };
            let line: usize = line.trim().parse()?;
            // The first line is that of the block.
            if let Some(index) = line.checked_sub(2).filter(|index| *index < some.len()) {
                let of_line = said.entry(part * LINES + index).or_default();
                of_line.push(message.to_owned());
            }
        }
    }
    Ok(said)
}

fn has(said: &BTreeMap<usize, Vec<String>>, index: usize, words: &str) -> bool {
    let messages = said.get(&index).map_or(&[][..], Vec::as_slice);
    messages.iter().any(|message| message.contains(words))
}

#[test]
fn no_directive_is_refused_where_nginx_has_it() -> Result<()> {
    let facts = facts();
    ensure!(facts.len() > 600, "{} directives", facts.len());
    let mut faults = Vec::new();
    for (context, ..) in BLOCKS {
        let stands = |fact: &&Fact| fact.contexts.contains(&context);
        let here: Vec<&Fact> = facts.iter().filter(stands).collect();
        let lines: Vec<String> = here.iter().map(|fact| fact.line(1)).collect();
        let said = said(context, &lines)?;
        for (index, fact) in here.iter().enumerate() {
            for words in ["not allowed here", "unknown directive"] {
                if has(&said, index, words) {
                    faults.push(format!("{} in {context}: {words}", fact.name));
                }
            }
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// Lines without effect are not looked at.
#[test]
fn counts_of_arguments_are_those_of_nginx() -> Result<()> {
    let facts = facts();
    let mut faults = Vec::new();
    let mut departures = BTreeSet::new();
    for (context, ..) in BLOCKS {
        let stands = |fact: &&Fact| fact.contexts.contains(&context);
        let tries: Vec<(&Fact, usize)> = facts
            .iter()
            .filter(stands)
            .flat_map(|fact| (0..=ARGUMENTS).map(move |count| (fact, count)))
            .collect();
        let lines: Vec<String> = tries
            .iter()
            .map(|(fact, count)| fact.line(*count))
            .collect();
        let said = said(context, &lines)?;
        for (index, (fact, count)) in tries.iter().enumerate() {
            let is_passed_over = ["is not supported", "has no effect"]
                .iter()
                .any(|words| has(&said, index, words));
            if is_passed_over {
                continue;
            }
            let is_refused = has(&said, index, "number of arguments");
            let departure = DEPARTURES
                .iter()
                .find(|it| (it.0, it.1) == (fact.name, *count));
            match (fact.takes(*count), is_refused, departure) {
                (true, true, Some(_)) => {
                    departures.insert((fact.name, *count));
                }
                (true, true, None) => faults.push(format!("{} in {context}: {count}", fact.name)),
                (false, false, _) if !said.contains_key(&index) => {
                    faults.push(format!("{} in {context} takes {count}", fact.name));
                }
                _ => {}
            }
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    let listed: BTreeSet<_> = DEPARTURES.iter().map(|it| (it.0, it.1)).collect();
    ensure!(
        listed == departures,
        "departures that are none: {departures:?}"
    );
    Ok(())
}
