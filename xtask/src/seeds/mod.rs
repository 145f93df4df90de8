//! `cargo xtask seeds [PLAN...] [--brief]`: what articles and a thesis on caching measured,
//! measured again.
//!
//! ```text
//! bench/plans/NAME.toml ──► gauge: nginx and Millpond, every body compared ──► docs/seeds.md
//! ```
//!
//! A plan has the experiment, what its source found and concluded, and what must be true of
//! Millpond. The long form runs all cases on nginx, where it is installed, and on the release
//! binary (or `MILLPOND_BIN`), one after another, and writes the document if it ran all plans.
//! `--brief` runs the plans' short forms on the binary under test, side by side, for the run of
//! all tests: what it holds Millpond to are bytes and counts, and no times.
//!
//! - `page` – the document
//!
//! 1. A wrong byte of either server fails, as does whatever of a plan's claims and limits Millpond
//!    breaks; nginx is shown as it is.

mod page;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use millpond_gauge::Comparison;
use millpond_gauge::plan::{Case, Plan};
use millpond_testkit::{Kind, binary};

use crate::machine;
use crate::packages;
use crate::tally::Tally;
use crate::workspace;

/// The plans, in the order of the document.
const PLANS: [&str; 5] = [
    "byte-ranges",
    "microcaching",
    "proxy-cache-lock",
    "cache-placement",
    "thesis",
];

/// The form of the plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Long,
    Brief,
}

/// A plan, and what came of it.
struct Experiment {
    plan: Plan,
    rows: Vec<Row>,
}

/// A case, and what came of it; or why it was not measured.
struct Row {
    case: String,
    outcome: Result<Comparison, String>,
}

/// The two servers, as commands.
struct Servers {
    nginx: Option<String>,
    millpond: String,
}

/// Runs the plans that the arguments name, or all.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let is_brief = args.iter().any(|arg| arg == "--brief");
    let mut names: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "--brief")
        .collect();
    if let Some(name) = names.iter().find(|name| !PLANS.contains(name)) {
        bail!("no plan is called {name}; there are: {}", PLANS.join(", "));
    }
    if is_brief {
        return brief(&names);
    }
    let is_whole = names.is_empty();
    if is_whole {
        names = PLANS.to_vec();
    }
    let servers = Servers {
        nginx: binary(Kind::Nginx).map(|path| command(&path)),
        millpond: command(&release_binary()?),
    };
    let begun = machine::Begun::now()?;
    let mut sum = Tally::default();
    let mut experiments = Vec::new();
    for name in names {
        let (experiment, tally) = experiment(name, &servers, Form::Long)?;
        println!("{}", page::section(&experiment));
        experiments.push(experiment);
        sum += tally;
    }
    if is_whole {
        let path = workspace::root().join("docs").join("seeds.md");
        std::fs::write(&path, page::page(&experiments, &begun.told()?))?;
    }
    Ok(sum)
}

/// The plans that can be run in seconds, for the run of all tests.
pub(crate) fn run_briefly() -> Result<Tally> {
    brief(&[])
}

fn brief(names: &[&str]) -> Result<Tally> {
    let servers = Servers {
        nginx: None,
        millpond: command(&workspace::binary()),
    };
    let chosen = PLANS
        .iter()
        .filter(|name| names.is_empty() || names.contains(name));
    let ended: Vec<Result<(Experiment, Tally)>> = std::thread::scope(|scope| {
        let servers = &servers;
        let started: Vec<_> = chosen
            .map(|name| scope.spawn(move || experiment(name, servers, Form::Brief)))
            .collect();
        let ended = started.into_iter().map(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(_) => bail!("a plan panicked"),
        });
        ended.collect()
    });
    let mut sum = Tally::default();
    for ended in ended {
        let (experiment, tally) = ended?;
        println!("{}", page::table(&experiment));
        sum += tally;
    }
    Ok(sum)
}

/// Runs the cases of a plan; each counts as one check.
fn experiment(name: &str, servers: &Servers, form: Form) -> Result<(Experiment, Tally)> {
    let path = workspace::root().join(format!("bench/plans/{name}.toml"));
    let plan = Plan::read(&path)?;
    let is_brief = form == Form::Brief;
    let mut sum = Tally::default();
    let mut rows = Vec::new();
    for case in plan.chosen(&[], is_brief) {
        if let Some(missing) = missing(&case) {
            println!("{name}: {}: {missing} is not installed", case.name);
            continue;
        }
        let mut words: Vec<OsString> = vec!["--plan".into(), path.clone().into()];
        words.extend(["--case".into(), (&case.name).into()]);
        words.extend(["--b".into(), (&servers.millpond).into()]);
        match &servers.nginx {
            Some(nginx) => words.extend(["--a".into(), nginx.into()]),
            None => words.extend(["--only".into(), "b".into()]),
        }
        words.extend(is_brief.then(|| "--brief".into()));
        eprintln!("{name}: {}", case.name);
        let outcome = measured(&words);
        sum += judged(&format!("{name}: {}", case.name), &outcome);
        rows.push(Row {
            case: case.name,
            outcome,
        });
    }
    Ok((Experiment { plan, rows }, sum))
}

fn measured(words: &[OsString]) -> Result<Comparison, String> {
    let told = |error: anyhow::Error| format!("{error:#}");
    let all = millpond_gauge::compare(words).map_err(told)?;
    all.into_iter()
        .next()
        .map(|(_, comparison)| comparison)
        .ok_or_else(|| "there is no such case".to_owned())
}

fn judged(name: &str, outcome: &Result<Comparison, String>) -> Tally {
    let wrong: Vec<String> = match outcome {
        Ok(comparison) => comparison.wrong().collect(),
        Err(error) => vec![error.clone()],
    };
    for text in &wrong {
        eprintln!("{name}: {text}");
    }
    Tally::from(wrong.is_empty())
}

/// The program that a case runs its server in, if it is not there.
fn missing(case: &Case) -> Option<String> {
    let mut flags = case.flags.iter();
    let (_, under) = flags.find(|(flag, _)| flag == "under")?;
    let program = under.as_deref()?.split_whitespace().next()?;
    (!packages::runs(program, &["--version"])).then(|| program.to_owned())
}

/// The command with which the gauge starts a server.
fn command(path: &std::path::Path) -> String {
    format!("{} -c {{conf}} -p {{dir}}", path.display())
}

/// The binary that figures are about.
fn release_binary() -> Result<PathBuf> {
    if std::env::var_os("MILLPOND_BIN").is_some() {
        return Ok(workspace::binary());
    }
    let built = workspace::cargo(&["build", "--release", "-p", "millpond"]).status()?;
    ensure!(built.success(), "the binary does not build");
    let debug = workspace::binary();
    let target = debug
        .parent()
        .and_then(std::path::Path::parent)
        .context("the binary is in no target directory")?;
    Ok(target.join("release/millpond"))
}
