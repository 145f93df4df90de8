//! `millpond demo --fleet`: three nodes of a fleet, the log that their purges go through, an
//! origin, and a page that shows which node has what.
//!
//! ```text
//! browser ◄──── page :8090, in this process ────► origin :8094, in this process
//!                │ asks, purges, kills, starts           ▲
//!                ▼ entries, events, lag                  │ misses
//!          n1 :8091   n2 :8092   n3 :8093  ──────────────┘     processes of their own
//!                └────────┼─────────┘
//!                  nats-server :8095                           a process of its own
//! ```
//!
//! The nodes are what anybody would run: this program, with `conf/demo-fleet.conf`. All that the
//! page knows of them it has from their API, but for the numbers of their processes.
//!
//! Invariants:
//! 1. However the demo ends, all processes have ended before the folder is removed. (A demo that is
//!    itself killed cannot see to that.)
//! 2. Whoever waits, waits on [`Stop`], so that the demo ends at once.

mod board;
mod child;
mod client;
mod nats;
mod node;
mod origin;
mod page;
mod part;
mod watch;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_system::clock;
use millpond_system::shutdown::{Signal, Signals};

use self::board::{Board, State};
use self::node::{Around, Node};
use self::origin::Origin;
use self::part::Part;
use super::http::{self, Stop, lock};
use super::options::FleetOptions;

/// Number of nodes.
const NODES: usize = 3;
const NAMES: [&str; NODES] = ["n1", "n2", "n3"];
/// The first of the ports that are used if nobody else has them.
const FIRST_PORT: u16 = 8090;
/// Ports: of the page, the nodes, the origin, and NATS.
const PORTS: usize = NODES + 3;
/// Pause between two looks at the parts.
const LOOK: Duration = Duration::from_millis(100);
/// The longest time for all parts to start.
const START: Duration = Duration::from_secs(60);

/// A fleet that is shown.
#[derive(Debug)]
struct Fleet {
    nodes: [Node; NODES],
    nats: Part,
    origin: Arc<Origin>,
    board: Mutex<Board>,
    stop: Arc<Stop>,
}

/// Runs the fleet until it is interrupted, with all of its files in a folder.
pub(super) fn run(options: FleetOptions, dir: &Path) -> Result<ExitCode> {
    let Some(program) = nats::find(options.nats) else {
        eprintln!("millpond: {}", nats::MISSING);
        return Ok(ExitCode::FAILURE);
    };
    let stop = Arc::new(Stop::default());
    catch_signals(&stop)?;
    let ports = Ports::choose(options.port)?;
    let fleet = Arc::new(Fleet::make(&ports, &program, dir, &stop)?);
    let outcome = fleet.show(ports, dir);
    stop.set();
    fleet.end();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Listens for whoever ends the demo: Ctrl-C, `kill`, a terminal that is closed.
fn catch_signals(stop: &Arc<Stop>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    let stop = Arc::clone(stop);
    let ends = |signal| matches!(signal, Signal::Stop | Signal::Quit | Signal::Reload);
    let name = "demo-signals".to_string();
    std::thread::Builder::new().name(name).spawn(move || {
        while !ends(runtime.block_on(signals.next())) {}
        stop.set();
    })?;
    Ok(())
}

/// Sockets of the demo's own, and those that hold the ports of others until these are started.
struct Ports {
    page: TcpListener,
    others: Vec<TcpListener>,
}

impl Ports {
    /// Takes all ports: those that are wished for, or the usual ones, or any.
    fn choose(first: Option<u16>) -> Result<Ports> {
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let usual = bind(first.unwrap_or(FIRST_PORT));
        // Who has the page's usual port may have the others, too: so demos that start together
        // never choose the same.
        let base = usual.is_ok().then_some(FIRST_PORT);
        let page = match (usual, first) {
            (Ok(page), _) => page,
            (Err(error), Some(port)) => return Err(error).context(format!("127.0.0.1:{port}")),
            (Err(_), None) => bind(0)?,
        };
        let other = |number: u16| match (first, base) {
            (Some(first), _) => {
                let port = first.saturating_add(number);
                bind(port).with_context(|| format!("127.0.0.1:{port}"))
            }
            (None, Some(base)) => Ok(bind(base.saturating_add(number)).or_else(|_| bind(0))?),
            (None, None) => Ok(bind(0)?),
        };
        let others = (1..).take(PORTS - 1).map(other);
        Ok(Ports {
            page,
            others: others.collect::<Result<_>>()?,
        })
    }

    /// The port of a part: nodes, then the origin, then NATS.
    fn of(&self, number: usize) -> Result<u16> {
        let listener = self.others.get(number).context("a port")?;
        Ok(listener.local_addr()?.port())
    }
}

impl Fleet {
    fn make(ports: &Ports, program: &Path, dir: &Path, stop: &Arc<Stop>) -> Result<Fleet> {
        let around = Around {
            origin: ports.of(NODES)?,
            nats: ports.of(NODES + 1)?,
        };
        let node = |number: usize| {
            let name = NAMES.get(number).copied().unwrap_or_default();
            Node::make((name, ports.of(number)?), around, dir, stop)
        };
        Ok(Fleet {
            nodes: [node(0)?, node(1)?, node(2)?],
            nats: nats::server(program, around.nats, dir, stop),
            origin: Arc::new(Origin::new(Arc::clone(stop))),
            board: Mutex::default(),
            stop: Arc::clone(stop),
        })
    }

    /// Starts everything, tells where it is, and waits for the end.
    fn show(self: &Arc<Self>, ports: Ports, dir: &Path) -> Result<()> {
        let Ports { page, mut others } = ports;
        let address = page.local_addr()?;
        http::spawn(others.remove(NODES), Arc::clone(&self.origin) as _)?;
        drop(others);
        self.nats.start()?;
        for node in &self.nodes {
            node.part.start()?;
        }
        for number in 0..NODES {
            watch::start(self, number)?;
        }
        http::spawn(page, Arc::new(page::Page::new(Arc::clone(self))))?;
        if self.wait_until_ready()? {
            print(self, &address.to_string(), dir)?;
        }
        // The parts may be killed and started; the demo goes on until it is ended itself.
        while self.stop.wait(LOOK).is_ok() {}
        Ok(())
    }

    /// Waits until all nodes know all purges; false if the demo is ended before.
    fn wait_until_ready(&self) -> Result<bool> {
        let deadline = clock::instant() + START;
        loop {
            let is_ready = |board: &Board| {
                let mut nodes = board.nodes.iter();
                nodes.all(|node| node.state == State::UpToDate)
            };
            if is_ready(&lock(&self.board)) {
                return Ok(true);
            }
            self.nats.check()?;
            for node in &self.nodes {
                node.part.check()?;
            }
            let is_late = clock::instant() > deadline;
            ensure!(!is_late, "the nodes do not get ready");
            if self.stop.wait(LOOK).is_err() {
                return Ok(false);
            }
        }
    }

    /// Ends all processes: the nodes before the log that they follow.
    fn end(&self) {
        for node in &self.nodes {
            node.part.end();
        }
        self.nats.end();
    }
}

fn print(fleet: &Fleet, page: &str, dir: &Path) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let [first, second, third] = &fleet.nodes;
    let [n1, n2, n3] = [first, second, third].map(|node| node.part.port);
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("millpond"));
    writeln!(
        out,
        "Millpond demo: a fleet. What is purged on one node is purged on all.

  page           http://{page}/
  nodes          http://127.0.0.1:{n1}/   http://127.0.0.1:{n2}/   http://127.0.0.1:{n3}/
  dashboard      http://127.0.0.1:{n1}/dashboard
  log            nats://127.0.0.1:{nats}
  configuration  conf/demo-fleet.conf; with these ports: {conf}

Open the page, or try in another terminal:

     curl -s -D - http://127.0.0.1:{n2}/news
     => X-Cache: MISS, then HIT
     curl -s -D - -X PURGE http://127.0.0.1:{n1}/news
     => Purge-Fleet: acknowledged
     curl -s -D - http://127.0.0.1:{n2}/news
     => X-Cache: MISS
     {program} fleet status -c {conf}
     => the nodes, and how far each has come

Ctrl-C ends all of it and removes {dir}.",
        nats = fleet.nats.port,
        conf = first.conf.display(),
        program = program.display(),
        dir = dir.display(),
    )?;
    out.flush()?;
    Ok(())
}
