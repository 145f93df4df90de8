//! Facts of a page about how its figures came about: what was done, when, with which versions, on
//! what machine, and with which words.
//!
//! Versions are what the programs say of themselves (`-v`); one that says nothing is named so.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;

use super::arguments::{Arguments, LoadArguments, Task};
use crate::report::About;

/// Letters of what a program says of its version (arbitrary: a line).
const VERSION_MAX: usize = 120;
const DAY_S: u64 = 86_400;

/// Facts that are known before anything is measured; `words` begin with the program's name.
pub(super) fn about(words: &[OsString], arguments: &Arguments, now: SystemTime) -> About {
    let (what, load, mut facts) = match &arguments.task {
        Task::Origin(_) => ("gauge: an origin", None, Vec::new()),
        Task::Run(wanted) => {
            let url = wanted.url.clone().unwrap_or_default();
            let fact = ("Server".to_string(), format!("{url}, which ran already"));
            (
                "gauge: one server under load",
                Some(&wanted.load),
                vec![fact],
            )
        }
        Task::Compare(wanted) => {
            let servers = [("Server a", &wanted.a), ("Server b", &wanted.b)];
            let named = servers.into_iter().filter_map(|(name, command)| {
                let command = command.as_ref()?;
                Some((
                    name.to_string(),
                    format!("{command} ({})", version(command)),
                ))
            });
            let mut facts: Vec<_> = named.collect();
            let rounds = format!(
                "{}; in each, every server is started anew and gets the same requests",
                wanted.rounds
            );
            facts.push(("Rounds".to_string(), rounds));
            (
                "gauge: servers under the same load",
                Some(&wanted.load),
                facts,
            )
        }
    };
    let mut all = vec![("When".to_string(), date(now))];
    all.extend(load.into_iter().flat_map(of_load));
    all.append(&mut facts);
    all.push(("Gauge".to_string(), env!("CARGO_PKG_VERSION").to_string()));
    all.push(("Machine".to_string(), machine()));
    let words: Vec<_> = words
        .iter()
        .map(|word| quoted(&word.to_string_lossy()))
        .collect();
    all.push(("Command".to_string(), words.join(" ")));
    About {
        what: what.to_string(),
        facts: all,
        summary: String::new(),
    }
}

/// Actions of the users, and their number.
fn of_load(load: &LoadArguments) -> Vec<(String, String)> {
    let Some(kind) = load.module else {
        let plan = "as the plan says, case by case; each report below has its own";
        return vec![("Load".to_string(), plan.to_string())];
    };
    let (name, help) = match kind.to_possible_value() {
        Some(value) => {
            let help = value.get_help().map(ToString::to_string);
            (value.get_name().to_string(), help.unwrap_or_default())
        }
        None => (String::new(), String::new()),
    };
    let wanted = load.load();
    let pace = match wanted.rate {
        Some(rate) => format!("{rate} requests a second, whatever the server does"),
        None => "each asks again as soon as it has its answer".to_string(),
    };
    let users = format!("{}; {pace}", wanted.users);
    vec![
        ("Load".to_string(), format!("{name}: {help}")),
        ("Users".to_string(), users),
        (
            "Seed".to_string(),
            format!("{}; it repeats the requests", wanted.seed),
        ),
    ]
}

/// Version that a program says it has.
fn version(command: &str) -> String {
    let Some(program) = command.split_whitespace().next() else {
        return "no program".to_string();
    };
    let mut asked = Command::new(program);
    asked.arg("-v").stdin(Stdio::null());
    let said = asked.output().ok().map(|output| {
        if output.stdout.is_empty() {
            output.stderr
        } else {
            output.stdout
        }
    });
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    let line = said.lines().next().unwrap_or_default();
    if line.is_empty() {
        "says no version".to_string()
    } else {
        line.chars().take(VERSION_MAX).collect()
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let system = rustix::system::uname();
    let (name, release) = (system.sysname(), system.release());
    format!(
        "{cores} cores, {} {}, {}; gauge and servers on the same one",
        name.to_string_lossy(),
        release.to_string_lossy(),
        system.machine().to_string_lossy()
    )
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,%+@".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// `2026-11-22 19:58:03 UTC`.
fn date(now: SystemTime) -> String {
    let since = now
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs();
    let (mut days, second) = (since / DAY_S, since % DAY_S);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    // A year each time, up to now.
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC",
        days + 1
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::report::page;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_377_483, "2026-11-22 19:58:03 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(at(seconds)), expected);
        }
    }

    #[test]
    fn a_page_says_what_when_with_what_and_how() {
        let words = [
            "gauge",
            "compare",
            "zipf",
            "--users",
            "7",
            "--a",
            "true {conf}",
            "--only",
            "a",
        ];
        let words = words.map(OsString::from);
        let arguments = Arguments::try_parse_from(&words).expect("words");
        let about = about(&words, &arguments, at(1_795_377_483));
        let page = page(&about, &[]);
        for said in [
            "servers under the same load",
            "2026-11-22 19:58:03 UTC",
            "zipf: A catalogue with popularity and sizes",
            "7; each asks again as soon as it has its answer",
            "true {conf} (says no version)",
            "gauge compare zipf --users 7 --a 'true {conf}' --only a",
            " cores, Linux ",
            "Up: time from the request to the first byte of its answer",
            "seconds since the load began",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
    }
}
