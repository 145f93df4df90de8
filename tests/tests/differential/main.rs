//! The differential suite: the same scenarios on nginx and on Millpond, compared in all that shows.
//!
//! A scenario is a configuration, an origin's script and steps of a client. Each runs on both
//! servers; what clients got, what the origin saw and what logs say becomes a transcript, and
//! transcripts must be equal. Differences that are meant stand in `tests/departures.txt`.
//!
//! `cargo test -p millpond-tests --test differential [-- NAME…]` runs the scenarios whose id
//! contains a NAME; `-- --show NAME` prints both transcripts. With `DIFF_BOTH_NGINX=1` nginx is
//! compared with itself, which shows whether a scenario is stable.
//!
//! 1. Both servers get the same text; where versions of nginx differ in a default, the text sets
//!    it.
//! 2. A departure is checked in both directions: unlisted differences fail, and so do listed ones
//!    that are gone.

#![allow(unreachable_pub, reason = "nothing of a test program is reachable")]
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod departures;
mod run;
mod scenario;
mod scenarios;
mod transcript;

use departures::Departures;
use millpond_testkit::{Kind, binary};
use scenario::Scenario;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use transcript::{Difference, Transcript};

/// Scenarios that run at a time.
const JOBS: usize = 2;

/// What the command line and the environment ask for.
struct Settings {
    filters: Vec<String>,
    output: Output,
    second: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Differences,
    Transcripts,
}

impl Settings {
    fn read() -> Settings {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let both_nginx = std::env::var_os("DIFF_BOTH_NGINX").is_some();
        let show = args.iter().any(|arg| arg == "--show");
        Settings {
            filters: args.into_iter().filter(|a| !a.starts_with('-')).collect(),
            output: if show {
                Output::Transcripts
            } else {
                Output::Differences
            },
            second: if both_nginx {
                Kind::Nginx
            } else {
                Kind::Millpond
            },
        }
    }

    fn selects(&self, scenario: &Scenario) -> bool {
        self.filters.is_empty()
            || self
                .filters
                .iter()
                .any(|f| scenario.id.contains(f.as_str()))
    }
}

fn main() -> ExitCode {
    let settings = Settings::read();
    for kind in [Kind::Nginx, settings.second] {
        if binary(kind).is_none() {
            println!("differential: skipped, no binary of {kind:?}");
            println!("test result: ok. 0 passed; 0 failed; 0 ignored");
            return ExitCode::SUCCESS;
        }
    }
    let departures = match Departures::read(settings.second) {
        Ok(departures) => departures,
        Err(error) => {
            println!("differential: {error:#}");
            println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
            return ExitCode::FAILURE;
        }
    };
    run_all(&settings, &departures)
}

fn run_all(settings: &Settings, departures: &Departures) -> ExitCode {
    let start = Instant::now();
    let all = scenarios::all();
    let mut failed = check_ids(&all, departures);
    let selected: Vec<&Scenario> = all.iter().filter(|s| settings.selects(s)).collect();
    let next = AtomicUsize::new(0);
    let failures: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(scenario) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !report(settings, departures, scenario) {
                        failures.lock().unwrap().push(scenario.id);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort_unstable();
    for id in &failures {
        println!("failed: {id}");
    }
    failed += failures.len();
    let passed = selected.len() - failures.len();
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {word}. {passed} passed; {failed} failed; 0 ignored; finished in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Ids must be unique, and departures must name scenarios; the number of those that do not is
/// given.
fn check_ids(all: &[Scenario], departures: &Departures) -> usize {
    let mut wrong = 0;
    let mut ids: Vec<&str> = all.iter().map(|scenario| scenario.id).collect();
    ids.sort_unstable();
    for pair in ids.windows(2) {
        if pair[0] == pair[1] {
            println!("two scenarios have the id {}", pair[0]);
            wrong += 1;
        }
    }
    for id in departures.ids() {
        if !ids.contains(&id) {
            println!("departures.txt names {id}, which is no scenario");
            wrong += 1;
        }
    }
    wrong
}

/// Runs one scenario on both servers and prints the outcome; true if it is as it should be.
fn report(settings: &Settings, departures: &Departures, scenario: &Scenario) -> bool {
    let start = Instant::now();
    let outcome = compare(settings, scenario);
    let millis = start.elapsed().as_millis();
    let problems = match outcome {
        Ok(differences) => departures.judge(scenario.id, &differences),
        Err(error) => vec![format!("{error:#}")],
    };
    // One write, so that the lines of scenarios that run at the same time do not mix.
    let word = if problems.is_empty() { "ok" } else { "FAILED" };
    let details: String = problems.iter().map(|p| format!("    {p}\n")).collect();
    print!("test {} ... {word} ({millis} ms)\n{details}", scenario.id);
    problems.is_empty()
}

fn compare(settings: &Settings, scenario: &Scenario) -> anyhow::Result<Vec<Difference>> {
    let first = run::run(scenario, Kind::Nginx)?;
    let second = run::run(scenario, settings.second)?;
    if settings.output == Output::Transcripts {
        print!("{}", side_by_side(scenario, &first, &second));
    }
    Ok(first.differences(&second))
}

fn side_by_side(scenario: &Scenario, first: &Transcript, second: &Transcript) -> String {
    format!(
        "--- {}: nginx\n{first}--- {}: second\n{second}",
        scenario.id, scenario.id
    )
}
