//! Two servers in turn on one configuration: `gauge compare`.
//!
//! ```text
//! round: A: directory, origin, server ► load ► figures of its processes ► stop;   B: the same
//! ```
//!
//! - `server` – a server in a directory of its own
//! - `process` – what the kernel knows of its processes
//! - `ratio` – figures of both, their ratio and its spread
//!
//! 1. Both get the same requests: seed, paths and order of chances are the same.
//! 2. A server never meets another's files, and is ended by its own process id.

mod process;
mod ratio;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use self::ratio::Figures;
use self::server::Server;
use crate::command::{CompareArguments, Verdict, judge, measure, print, write_files};
use crate::load::Shared;
use crate::module::Module;
use crate::origin::Origin;
use crate::report::{Report, ServerUse, table};

/// Time between two looks at memory and disk.
const LOOK: Duration = Duration::from_millis(100);

/// Starts both in turn, loads and compares them.
pub(crate) fn run(wanted: &CompareArguments) -> Result<Verdict> {
    let output = &wanted.output;
    let (mut rounds, mut reports) = (Vec::new(), Vec::new());
    let mut verdict = Verdict::Right;
    for round in 1..=wanted.rounds {
        let mut figures = [Figures::default(); 2];
        let servers = [("a", &wanted.a), ("b", &wanted.b)];
        for ((name, command), figures) in servers.into_iter().zip(&mut figures) {
            let report = side(wanted, command)?;
            *figures = Figures::new(&report);
            let name = format!("{name}, round {round}: {command}");
            eprintln!("{name}: {figures}");
            let judged = judge(output, &name, &report);
            if judged == Verdict::Wrong {
                verdict = judged;
            }
            // What was wrong is shown with its round, and the last round for all.
            if judged == Verdict::Wrong || round == wanted.rounds {
                print(output, &format!("{name}\n{}", table(&report)));
            }
            reports.push((name, report));
        }
        rounds.push((figures[0], figures[1]));
    }
    print(output, &ratio::table(&rounds));
    write_files(output, "gauge compare", &reports)?;
    Ok(verdict)
}

/// One server, once.
fn side(wanted: &CompareArguments, command: &str) -> Result<Report> {
    let load = wanted.load.load();
    let origin = Origin::start(wanted.origin.conf(load.seed))?;
    let server = Server::start(wanted, command, origin.address())?;
    let mut origin = Some(origin);
    let target = wanted
        .load
        .target(server.address(), server.address().to_string());
    let share = |origin| Arc::new(Shared::new(target.clone(), origin, load.clone()));
    let module = || {
        Arc::new(Module::new(
            wanted.load.module,
            wanted.load.knobs("gauge".to_owned()),
        ))
    };
    if wanted.warm {
        let warming = share(origin.take());
        measure(&warming, &module(), true)?;
        // Nobody else has it any more: the users are gone.
        origin = Arc::into_inner(warming).and_then(|shared| shared.origin);
    }
    measured(wanted, &server, &share(origin), &module())
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
