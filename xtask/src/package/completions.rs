//! Completions for bash, zsh and fish, of the commands and options that the help tells.

use super::commands::{Command, Opt};
use anyhow::Result;
use clap::{Arg, ArgAction};
use clap_complete::{Shell, generate};

/// Names and texts of the files.
pub(super) fn all(commands: &[Command]) -> Result<Vec<(&'static str, String)>> {
    let shells = [
        ("millpond", Shell::Bash),
        ("_millpond", Shell::Zsh),
        ("millpond.fish", Shell::Fish),
    ];
    shells
        .map(|(name, shell)| Ok((name, text(commands, shell)?)))
        .into_iter()
        .collect()
}

fn text(commands: &[Command], shell: Shell) -> Result<String> {
    let mut out = Vec::new();
    generate(shell, &mut tree(commands, &[]), "millpond", &mut out);
    Ok(String::from_utf8(out)?)
}

/// The command of some words, with those below it.
fn tree(commands: &[Command], words: &[String]) -> clap::Command {
    let mut made = clap::Command::new(words.last().map_or("millpond", |word| lasting(word)))
        .disable_help_flag(true)
        .disable_help_subcommand(true);
    if let Some(command) = commands.iter().find(|command| command.words == words) {
        made = made.about(command.about.clone());
        made = made.args(command.options.iter().filter_map(arg));
    }
    let below = |command: &&Command| {
        command.words.len() == words.len() + 1 && command.words.starts_with(words)
    };
    for command in commands.iter().filter(below) {
        made = made.subcommand(tree(commands, &command.words));
    }
    // Files are configurations, plans and databases.
    made.arg(
        Arg::new("file")
            .num_args(0..)
            .value_hint(clap::ValueHint::AnyPath),
    )
}

fn arg(option: &Opt) -> Option<Arg> {
    let named = Arg::new(lasting(&option.name));
    let made = match option.name.strip_prefix("--") {
        Some(long) => named.long(lasting(long)),
        None => named.short(option.name.chars().nth(1)?),
    };
    Some(if option.has_value {
        made.action(ArgAction::Set)
            .value_hint(clap::ValueHint::AnyPath)
    } else {
        made.action(ArgAction::SetTrue)
    })
}

/// A name for as long as this task runs, as clap wants it.
fn lasting(name: &str) -> &'static str {
    name.to_string().leak()
}
