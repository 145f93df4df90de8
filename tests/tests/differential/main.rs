//! The differential suite: the same scenarios on nginx and on Millpond, compared in all that shows.
//!
//! A scenario is a configuration, an origin's script and steps of a client, in one or many cases.
//! Each runs on both servers; what clients got, what the origin saw and what logs say becomes a
//! transcript, and transcripts must be equal. Differences that are meant stand in
//! `tests/departures.txt`.
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

/// Settings by the command line and the environment.
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
                .any(|f| scenario.ids().iter().any(|id| id.contains(f.as_str())))
    }
}

fn main() -> ExitCode {
    let settings = Settings::read();
    if binary(Kind::Nginx).is_none() {
        millpond_testkit::skip("nginx is not installed, so nothing is compared");
        println!("test result: ok. 0 passed; 0 failed; 0 ignored");
        return ExitCode::SUCCESS;
    }
    if binary(settings.second).is_none() {
        println!("differential: millpond is not built; `cargo build -p millpond` first");
        println!("test result: FAILED. 0 passed; 1 failed; 0 ignored");
        return ExitCode::FAILURE;
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
    let tally: Mutex<Tally> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(scenario) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tallied = report(settings, departures, scenario);
                    tally.lock().unwrap().add(tallied);
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap();
    tally.failures.sort_unstable();
    for id in &tally.failures {
        println!("failed: {id}");
    }
    failed += tally.failures.len();
    let passed = tally.passed;
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("differential: {} scenarios", passed + failed);
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

/// Cases that passed, and the ids of those that did not.
#[derive(Default)]
struct Tally {
    passed: usize,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
    }
}

/// Ids must be unique, and departures must name scenarios; the number of those that do not is
/// given.
fn check_ids(all: &[Scenario], departures: &Departures) -> usize {
    let mut wrong = 0;
    let mut ids: Vec<String> = all.iter().flat_map(Scenario::ids).collect();
    ids.sort_unstable();
    for pair in ids.windows(2) {
        if pair[0] == pair[1] {
            println!("two scenarios have the id {}", pair[0]);
            wrong += 1;
        }
    }
    for id in departures.ids() {
        if ids
            .binary_search_by(|known| known.as_str().cmp(id))
            .is_err()
        {
            println!("departures.txt names {id}, which is no scenario");
            wrong += 1;
        }
    }
    wrong
}

/// Runs one scenario on both servers and prints the outcome of each case.
fn report(settings: &Settings, departures: &Departures, scenario: &Scenario) -> Tally {
    let start = Instant::now();
    let judged: Vec<(String, Vec<String>)> = match compare(settings, scenario) {
        Ok(cases) => cases
            .into_iter()
            .map(|(id, outcome)| {
                let problems = match outcome {
                    Ok(differences) => departures.judge(&id, &differences),
                    Err(error) => vec![format!("{error:#}")],
                };
                (id, problems)
            })
            .collect(),
        Err(error) => {
            let problem = format!("{error:#}");
            let ids = scenario.ids().into_iter();
            ids.map(|id| (id, vec![problem.clone()])).collect()
        }
    };
    let millis = start.elapsed().as_millis();
    let mut tally = Tally::default();
    let mut text = String::new();
    for (id, problems) in judged {
        let word = if problems.is_empty() { "ok" } else { "FAILED" };
        text.push_str(&format!("test {id} ... {word} ({millis} ms)\n"));
        problems
            .iter()
            .for_each(|problem| text.push_str(&format!("    {problem}\n")));
        if problems.is_empty() {
            tally.passed += 1;
        } else {
            tally.failures.push(id);
        }
    }
    // One write, so that the lines of scenarios that run at the same time do not mix.
    print!("{text}");
    tally
}

/// The id of a case and how the two servers differed in it.
type Compared = (String, anyhow::Result<Vec<Difference>>);

fn compare(settings: &Settings, scenario: &Scenario) -> anyhow::Result<Vec<Compared>> {
    let first = run::run(scenario, Kind::Nginx)?;
    let second = run::run(scenario, settings.second)?;
    let cases = first
        .into_iter()
        .zip(second)
        .map(|((id, one), (_, other))| {
            let differences = one.and_then(|one| {
                let other = other?;
                if settings.output == Output::Transcripts {
                    print!("{}", side_by_side(&id, &one, &other));
                }
                Ok(one.differences(&other))
            });
            (id, differences)
        });
    Ok(cases.collect())
}

fn side_by_side(id: &str, first: &Transcript, second: &Transcript) -> String {
    format!("--- {id}: nginx\n{first}--- {id}: second\n{second}")
}
