//! The commands of the program, with their options, as their help tells them.
//!
//! The help is the one record: man pages and completions are made from it. An option is a word
//! that begins with a dash where one may stand; it has a value if a word in capitals, or one in
//! angle brackets, follows.

use super::build::Machine;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// A command, or the program itself.
#[derive(Clone, Debug)]
pub(super) struct Command {
    /// The words behind the program's name; none for the program.
    pub(super) words: Vec<String>,
    /// One line.
    pub(super) about: String,
    /// The help as it is printed.
    pub(super) help: String,
    pub(super) options: Vec<Opt>,
}

/// An option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Opt {
    /// With its dashes.
    pub(super) name: String,
    pub(super) has_value: bool,
}

/// The program that is asked, and the machines that it is for.
type Program<'a> = (&'a Path, Machine);

/// The program, its commands, and the commands of these.
pub(super) fn all(binary: Program<'_>) -> Result<Vec<Command>> {
    let help = help(binary, &[])?;
    let mut found = vec![Command {
        words: Vec::new(),
        about: "caching HTTP reverse proxy that runs nginx configurations".to_string(),
        options: options(&help),
        help: help.clone(),
    }];
    for line in help.lines() {
        let Some((words, about)) = line
            .strip_prefix("  millpond ")
            .and_then(|line| line.split_once(" : "))
        else {
            continue;
        };
        add(binary, (&[words.trim()], about), &mut found)?;
    }
    ensure!(found.len() > 1, "the help names no command");
    Ok(found)
}

/// Adds a command, and those that its help names below `Commands:`.
fn add(
    binary: Program<'_>,
    (words, about): (&[&str], &str),
    found: &mut Vec<Command>,
) -> Result<()> {
    let help = help(binary, words)?;
    let of_own = |line: &&str| !is_of_another(line, words);
    let own: Vec<&str> = help.lines().filter(of_own).collect();
    found.push(Command {
        words: words.iter().map(ToString::to_string).collect(),
        about: about.trim().to_string(),
        options: options(&own.join("\n")),
        help: help.clone(),
    });
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in below.take_while(|line| !line.is_empty()) {
        let mut parts = line.trim().splitn(2, "  ");
        let (name, about) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        if name != "help" {
            add(binary, (&[words, &[name]].concat(), about), found)?;
        }
    }
    Ok(())
}

/// True if a line of usage is that of another command, whose help is the same text.
fn is_of_another(line: &str, words: &[&str]) -> bool {
    let mut rest = line.trim_start_matches("usage:").split_whitespace();
    let names_program = line.contains("millpond ") && rest.next() == Some("millpond");
    names_program && rest.next() != words.first().copied()
}

fn help((path, machine): Program<'_>, words: &[&str]) -> Result<String> {
    let asked = machine.run(path).args(words).arg("--help").output();
    let output = asked.with_context(|| path.display().to_string())?;
    ensure!(output.status.success(), "no help of {}", words.join(" "));
    String::from_utf8(output.stdout).context("the help is no text")
}

/// The options that a help names, each once, by name.
fn options(help: &str) -> Vec<Opt> {
    let mut found: Vec<Opt> = Vec::new();
    for line in help.lines() {
        let words: Vec<&str> = line
            .split([' ', ',', '[', ']', '|'])
            .filter(|word| !word.is_empty())
            .collect();
        for (index, word) in words.iter().enumerate() {
            let Some(name) = option_name(word) else {
                continue;
            };
            let next = words.get(index + 1);
            let has_value = next.is_some_and(|next| is_value(next));
            match found.iter_mut().find(|known| known.name == name) {
                Some(known) => known.has_value |= has_value,
                None => found.push(Opt { name, has_value }),
            }
        }
    }
    found.sort();
    found
}

fn option_name(word: &str) -> Option<String> {
    let word = word.trim_end_matches(['.', ';', ')', '"', '\'', ':']);
    let name = word.trim_start_matches('-');
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '?';
    let is_long = word.starts_with("--") && name.len() > 1;
    let is_short = word.starts_with('-') && !word.starts_with("--") && name.len() == 1;
    ((is_long || is_short) && name.chars().all(is_name)).then(|| word.to_string())
}

fn is_value(word: &str) -> bool {
    let letters = word.trim_start_matches(['<', '\'']);
    word.starts_with('<')
        || letters.len() > 1
            && letters
                .chars()
                .all(|c| c.is_ascii_uppercase() || ".'_=".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_their_values_are_found_in_usage() {
        let help = "usage: millpond x [FILTER]... [--sort size|age] [--limit N] [-o FILE | --csv]\n\
                    options: -c FILE, --zone NAME, --json\n      --case <NAME>  a case-like thing\n";
        let found: Vec<(String, bool)> = options(help)
            .into_iter()
            .map(|option| (option.name, option.has_value))
            .collect();
        let expected = [
            ("--case", true),
            ("--csv", false),
            ("--json", false),
            ("--limit", false),
            ("--sort", false),
            ("--zone", true),
            ("-c", true),
            ("-o", true),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_string(), value))
        );
    }

    #[test]
    fn usage_of_another_command_is_told_from_its_own() {
        for (line, words, expected) in [
            ("usage: millpond cache stat [--sites]", &["why"][..], true),
            ("       millpond why URL [--method METHOD]", &["why"], false),
            (
                "       millpond why URL [--method METHOD]",
                &["cache"],
                true,
            ),
            ("options: -c FILE", &["why"], false),
        ] {
            assert_eq!(is_of_another(line, words), expected, "{line}");
        }
    }
}
