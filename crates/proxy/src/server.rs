//! The running process: sockets, worker threads, and the loop that obeys signals.
//!
//! ```text
//!         bind ──► Server ──start──► workers ◄── commands (serve, flush, quit, stop)
//! main thread:       │
//!                    └─ run: signal (shutdown.rs) ──► reload.rs | reopen | quit | stop
//! ```
//!
//! All sockets are bound before a thread is started, so that a start that fails leaves nothing
//! behind. The main thread only waits for signals; requests are served by the workers
//! (`server/thread.rs`).
//!
//! Invariants:
//! 1. A socket stays open as long as its address is configured ([`sockets::Sockets`]), whatever is
//!    reloaded.
//! 2. All workers serve the same configuration, but for the moment in which a reload reaches them.
//! 3. `run` returns only after every worker has ended, or had its time to.

pub mod sockets;
pub mod thread;

use std::io;
use std::sync::Arc;

use crate::log::error::{self, Level};
use crate::log::file;
use crate::reload::{self, ConfSource};
use crate::scope::Conf;
use crate::scope::main::WorkerCount;
use crate::shutdown::{Signal, Signals};
use crate::worker::Shared;

use sockets::{BindError, Sockets};
use thread::{Command, WorkerThread};

/// Why a configuration cannot be put into force.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A cache cannot be opened.
    #[error("{0}")]
    Zone(String),
    /// A thread cannot be started.
    #[error("starting a worker thread failed ({})", error::os_error(.0))]
    Thread(io::Error),
}

/// What the process serves with.
pub struct Server {
    conf: Arc<Conf>,
    sockets: Sockets,
    workers: Vec<WorkerThread>,
    /// Workers that a reload made superfluous and that still drain.
    leaving: Vec<WorkerThread>,
    shared: Arc<Shared>,
}

impl Server {
    /// Binds the sockets of a configuration. Nothing is accepted yet.
    pub fn bind(conf: Conf) -> Result<Server, Vec<BindError>> {
        let conf = Arc::new(conf);
        let mut sockets = Sockets::default();
        let opened = sockets.open(&conf.bindings, worker_count(&conf))?;
        sockets.adopt(opened, &conf.bindings);
        Ok(Server {
            conf,
            sockets,
            workers: Vec::new(),
            leaving: Vec::new(),
            shared: Arc::default(),
        })
    }

    /// The configuration in force.
    pub fn conf(&self) -> &Arc<Conf> {
        &self.conf
    }

    /// What the workers share, counters among it.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens the caches and starts the workers.
    ///
    /// The caches come this late because they start threads, which must have the user that the
    /// process changed to.
    pub fn start(&mut self) -> Result<(), StartError> {
        if let Some(conf) = Arc::get_mut(&mut self.conf) {
            self.shared.zones.open(conf).map_err(StartError::Zone)?;
        }
        error::process(Level::Notice, format_args!("start worker threads"));
        self.grow(worker_count(&self.conf))
            .map_err(StartError::Thread)?;
        self.serve();
        Ok(())
    }

    /// Obeys signals until one of them ends the process.
    ///
    /// `signals` must have been made before the process told anybody its id.
    pub async fn run(mut self, mut signals: Signals, source: &ConfSource) {
        loop {
            let signal = signals.next().await;
            let name = signal.name();
            error::process(Level::Notice, format_args!("signal {name} received"));
            match signal {
                Signal::Reload => reload::reload(&mut self, source),
                Signal::Reopen => self.reopen_logs(),
                Signal::CloseListeners => self.close_listeners(),
                Signal::Upgrade => {
                    let message = format_args!("changing the binary is not supported");
                    error::process(Level::Error, message);
                }
                Signal::Quit => {
                    self.command_all(|| Command::Quit);
                    break;
                }
                Signal::Stop => {
                    self.command_all(|| Command::Stop);
                    break;
                }
            }
        }
        self.sockets.close();
        self.wait_for_end(&mut signals).await;
        error::process(Level::Notice, format_args!("exit"));
    }

    /// Puts another configuration into force. An error leaves everything as it was.
    pub fn change(&mut self, mut conf: Conf) -> Result<(), Vec<StartError>> {
        let count = worker_count(&conf);
        let opened = self.sockets.open(&conf.bindings, count);
        let opened = opened.map_err(|errors| Vec::from_iter(errors.into_iter().map(Into::into)))?;
        let zones = self.shared.zones.open(&mut conf);
        zones.map_err(|error| vec![StartError::Zone(error)])?;
        if let Err(error) = self.grow(count) {
            let message = format_args!("starting a worker failed ({})", error::os_error(&error));
            // The threads that there are serve it as well.
            error::process(Level::Alert, message);
        }
        self.sockets.adopt(opened, &conf.bindings);
        self.conf = Arc::new(conf);
        self.leaving.retain(|worker| !worker.has_ended());
        for worker in self.workers.drain(count.min(self.workers.len())..) {
            worker.send(Command::Quit);
            self.leaving.push(worker);
        }
        self.serve();
        Ok(())
    }

    /// Starts workers until there are `count`.
    fn grow(&mut self, count: usize) -> io::Result<()> {
        while self.workers.len() < count {
            let index = self.workers.len();
            let worker = WorkerThread::start(index, Arc::clone(&self.shared))?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Hands the configuration and its sockets to all workers.
    fn serve(&self) {
        for (index, worker) in self.workers.iter().enumerate() {
            let listening = self
                .sockets
                .share_of(index, self.workers.len(), &self.conf.bindings);
            match listening {
                Ok(listening) => worker.send(Command::Serve {
                    conf: Arc::clone(&self.conf),
                    listening,
                }),
                Err(error) => error::process(
                    Level::Alert,
                    format_args!("dup() of a listener failed ({})", error::os_error(&error)),
                ),
            }
        }
    }

    fn reopen_logs(&self) {
        error::process(Level::Notice, format_args!("reopening logs"));
        self.command_all(|| Command::FlushLogs);
        file::reopen_all();
    }

    /// nginx: WINCH ends the workers gracefully and keeps the master. Here the connections end and
    /// nothing more is accepted.
    fn close_listeners(&self) {
        self.command_all(|| Command::Serve {
            conf: Arc::clone(&self.conf),
            listening: Vec::new(),
        });
    }

    fn command_all(&self, command: impl Fn() -> Command) {
        let all = self.workers.iter().chain(&self.leaving);
        all.for_each(|worker| worker.send(command()));
    }

    /// Waits for the workers' end; another signal that asks for it makes a graceful end a fast one.
    async fn wait_for_end(&mut self, signals: &mut Signals) {
        let mut workers = std::mem::take(&mut self.workers);
        workers.append(&mut self.leaving);
        let ended = async {
            for worker in &workers {
                worker.ended().await;
            }
        };
        let mut ended = Box::pin(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                signal = signals.next() => match signal {
                    Signal::Stop => workers.iter().for_each(|worker| worker.send(Command::Stop)),
                    Signal::Reopen => self.reopen_logs(),
                    _ => {}
                },
            }
        }
        drop(ended);
        workers.into_iter().for_each(WorkerThread::join);
    }
}

fn worker_count(conf: &Conf) -> usize {
    match conf.main.process.workers {
        WorkerCount::Count(count) => count,
        WorkerCount::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    }
}
