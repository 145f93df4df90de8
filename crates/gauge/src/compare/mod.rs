//! Two servers in turn on one configuration: `gauge compare`.
//!
//! ```text
//! round: A: directory, origin, server ► load ► figures of its processes ► stop;   B: the same
//! ```
//!
//! - `server` – a server in a directory of its own
//! - `ratio` – figures of both, their ratio and its spread
//!
//! 1. Both get the same requests: seed, paths and order of chances are the same.
//! 2. A server never meets another's files, and is ended by its own process id.
//! 3. A wrong byte counts whoever sent it; all else counts for the servers that are judged.

mod ratio;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};

use self::ratio::Figures;
use self::server::Server;
use crate::command::{
    CompareArguments, Outcome, Sides, Verdict, broken_limits, is_interrupted, measure, print,
};
use crate::load::Shared;
use crate::module::Module;
use crate::origin::Origin;
use crate::report::{self, Report, ServerUse, table};

/// Time between two looks at memory and disk.
const LOOK: Duration = Duration::from_millis(100);

/// One server in one round.
#[derive(Debug)]
pub struct Round {
    /// `a` or `b`.
    pub side: &'static str,
    /// Number of the round, from 1.
    pub number: u32,
    /// Report of the round.
    pub report: Report,
    /// Faults of the round that count.
    pub wrong: Vec<String>,
}

/// Result of a comparison, in the order in which it was measured.
#[derive(Debug, Default)]
pub struct Comparison {
    /// All rounds of all servers.
    pub rounds: Vec<Round>,
}

impl Comparison {
    /// Reports of one server.
    pub fn of(&self, side: &str) -> impl Iterator<Item = &Report> {
        let rounds = self.rounds.iter().filter(move |round| round.side == side);
        rounds.map(|round| &round.report)
    }

    /// The median of a figure of one server, with its unit.
    pub fn shown(&self, side: &str, figure: &str) -> Option<String> {
        let mut amounts: Vec<f64> = self.of(side).filter_map(|it| it.figure(figure)).collect();
        amounts.sort_by(f64::total_cmp);
        report::shown(figure, *amounts.get(amounts.len() / 2)?)
    }

    /// Faults of all rounds.
    pub fn wrong(&self) -> impl Iterator<Item = String> {
        let of_round = |round: &Round| {
            let (side, number) = (round.side, round.number);
            let texts = round.wrong.iter();
            let named = texts.map(move |text| format!("{side}, round {number}: {text}"));
            named.collect::<Vec<_>>()
        };
        self.rounds.iter().flat_map(of_round)
    }
}

/// Starts both in turn, loads and compares them, and prints what came.
pub(crate) fn run(wanted: &CompareArguments) -> Result<Outcome> {
    let output = &wanted.output;
    let comparison = take(wanted)?;
    let pairs: Vec<(Figures, Figures)> = comparison
        .of("a")
        .zip(comparison.of("b"))
        .map(|(a, b)| (Figures::new(a), Figures::new(b)))
        .collect();
    let summary = if pairs.is_empty() {
        String::new()
    } else {
        ratio::table(&pairs)
    };
    if !summary.is_empty() {
        print(output, &summary);
    }
    let is_wrong = comparison.wrong().next().is_some();
    let reports: Vec<(String, Report)> = comparison
        .rounds
        .into_iter()
        .map(|round| {
            (
                format!("{}, round {}", round.side, round.number),
                round.report,
            )
        })
        .collect();
    Ok(Outcome {
        verdict: if is_wrong {
            Verdict::Wrong
        } else {
            Verdict::Right
        },
        summary,
        reports,
    })
}

/// Starts both servers in turn, and loads them.
pub(crate) fn take(wanted: &CompareArguments) -> Result<Comparison> {
    let sides = [("a", Sides::A, &wanted.a), ("b", Sides::B, &wanted.b)];
    let mut chosen = Vec::new();
    for (name, side, command) in sides {
        match command {
            _ if !wanted.only.has(side) => {}
            Some(command) => chosen.push((name, side, command)),
            None => bail!("which server? Say --{name} 'COMMAND', or --only the other"),
        }
    }
    let mut comparison = Comparison::default();
    for number in 1..=wanted.rounds {
        for (name, side, command) in &chosen {
            let (report, checked) = measured_side(wanted, command)?;
            let mut wrong = wrong(wanted, *side, &report);
            wrong.extend(checked);
            // What was wrong is shown with its round, and the last round for all.
            let is_shown = !wrong.is_empty() || number == wanted.rounds || is_interrupted();
            let told = format!("{name}, round {number}: {command}");
            tell(wanted, &told, &report, &wrong);
            if is_shown && !wanted.output.is_mute {
                print(&wanted.output, &format!("{told}\n{}", table(&report)));
            }
            comparison.rounds.push(Round {
                side: name,
                number,
                report,
                wrong,
            });
            if is_interrupted() {
                return Ok(comparison);
            }
        }
    }
    Ok(comparison)
}

/// Faults of a report that count.
fn wrong(wanted: &CompareArguments, side: Sides, report: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_judged = wanted.judge.has(side);
    if !report.has_right_bytes() || is_judged && !report.faults.is_empty() {
        let kinds: Vec<&str> = report.faults.keys().copied().collect();
        wrong.push(format!("wrong answers: {}", kinds.join(", ")));
    }
    if !is_judged {
        return wrong;
    }
    let claims = report.claims.iter().filter(|claim| !claim.is_kept);
    if !wanted.output.no_claims {
        wrong.extend(claims.map(|claim| format!("{} (found {})", claim.text, claim.found)));
    }
    let limits = broken_limits(&wanted.output, report).into_iter();
    wrong.extend(limits.map(|limit| format!("limit broken: {limit}")));
    wrong
}

/// Prints the figures and faults of a round.
fn tell(wanted: &CompareArguments, name: &str, report: &Report, wrong: &[String]) {
    if wanted.output.is_mute {
        return;
    }
    eprintln!("{name}: {}", Figures::new(report));
    for text in wrong {
        eprintln!("gauge: {name}: {text}");
    }
}

/// One server, once; and what its checker found.
fn measured_side(wanted: &CompareArguments, command: &str) -> Result<(Report, Option<String>)> {
    let load = wanted.load.load();
    let origin = Origin::start(wanted.origin.conf(load.seed))?;
    let server = Arc::new(Server::start(wanted, command, origin.address())?);
    let mut origin = Some(origin);
    let host = server.address().to_string();
    let scheme = server.scheme();
    let target = wanted.load.target(server.address(), host, scheme)?;
    let share = |origin| {
        let mut shared = Shared::new(target.clone(), origin, load.clone());
        shared.server = Some(Arc::<Server>::clone(&server));
        Arc::new(shared)
    };
    let module = || wanted.load.module("gauge").map(Arc::new);
    if wanted.warm {
        let warming = share(origin.take());
        measure(&warming, &module()?, true)?;
        // Nobody else has it any more: the users are gone.
        origin = Arc::into_inner(warming).and_then(|shared| shared.origin);
    }
    let report = measured(wanted, &server, &share(origin), &module()?)?;
    let checked = server.end(wanted.output.is_mute)?;
    Ok((report, checked))
}

fn measured(
    wanted: &CompareArguments,
    server: &Server,
    shared: &Arc<Shared>,
    module: &Arc<Module>,
) -> Result<Report> {
    let before = server.usage()?;
    let most = Most::default();
    let report = std::thread::scope(|scope| {
        let looking = scope.spawn(|| most.look(server));
        let report = measure(shared, module, wanted.output.quiet);
        most.is_over.store(true, Ordering::SeqCst);
        looking.thread().unpark();
        report
    });
    let (mut report, after) = (report?, server.usage()?);
    let requests = report.requests.max(1) as f64;
    report.server = Some(ServerUse {
        cpu_us: (after.cpu - before.cpu) * 1e6 / requests,
        calls: after.calls.saturating_sub(before.calls) as f64 / requests,
        memory: most.memory.load(Ordering::SeqCst),
        growth: after.memory.saturating_sub(before.memory),
        disk: most.disk.load(Ordering::SeqCst),
        written: after.written.saturating_sub(before.written),
    });
    Ok(report)
}

/// The most that a server had at any look.
#[derive(Debug, Default)]
struct Most {
    memory: AtomicU64,
    disk: AtomicU64,
    is_over: AtomicBool,
}

impl Most {
    /// Looks again and again until it is over, and once more then.
    fn look(&self, server: &Server) {
        loop {
            let is_over = self.is_over.load(Ordering::SeqCst);
            // A process that is gone has nothing.
            let memory = server.usage().map_or(0, |usage| usage.memory);
            self.memory.fetch_max(memory, Ordering::SeqCst);
            self.disk.fetch_max(server.disk_bytes(), Ordering::SeqCst);
            if is_over {
                return;
            }
            std::thread::park_timeout(LOOK);
        }
    }
}
