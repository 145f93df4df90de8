//! A worker thread: its runtime, its generations, and the commands it obeys.
//!
//! ```text
//! (nothing) ──Serve──► serving ──Serve──► serving the next; the generation before drains
//!                         └──Quit──► all generations drain ──► ended
//!                         └──Stop──► all connections are dropped ──► ended
//! ```
//!
//! A generation that drains accepts nothing, has closed its idle connections, those to origins
//! among them, and waits for the busy ones; after `worker_shutdown_timeout` it drops those that are
//! left. Fills of the cache go on after that, for clients of the next generation; where there is
//! none, they end, too.
//!
//! Invariants:
//! 1. Accepting under an old generation ends before the new one accepts.
//! 2. The thread's buffered log lines are written before it ends, and those that nothing buffers
//!    before it waits.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millpond_exchange::settings::Conf;
use millpond_exchange::settings::listen::Carries;
use millpond_exchange::worker::{Generation, Shared, Worker};
use millpond_proxy::downstream::accepted;
use millpond_proxy::downstream::listener::accept_loop;
use millpond_proxy::downstream::quic::{self, QuicSocket};
use millpond_proxy::downstream::quiet;
use millpond_proxy::log::access;
use millpond_proxy::upstream::{keepalive, refresh};
use millpond_stream::{packets, session};
use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use millpond_system::log::turn;
use millpond_system::quota::Shortage;
use millpond_system::reserve;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, spawn_local};

use crate::handler::warm;
use crate::sockets::Listening;

/// Commands that may wait for a worker; one that is further behind hangs.
const COMMANDS: usize = 64;

/// The commands to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this configuration from now on.
    Serve {
        /// The configuration.
        conf: Arc<Conf>,
        /// The sockets to accept from.
        listening: Vec<Listening>,
    },
    /// Write out buffered log lines.
    FlushLogs,
    /// Give a sign of life.
    Answer(oneshot::Sender<()>),
    /// Finish what is going on, then end.
    Quit,
    /// End now.
    Stop,
}

/// A worker as the main thread sees it.
#[derive(Debug)]
pub(crate) struct WorkerThread {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
}

impl WorkerThread {
    /// Starts a worker that serves nothing yet.
    pub(crate) fn start(index: usize, shared: Arc<Shared>) -> io::Result<WorkerThread> {
        let (sender, receiver) = mpsc::channel(COMMANDS);
        let (begun, begins) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("worker {index}"))
            .spawn(move || {
                // It belongs to its thread, and so do its tasks.
                let built = tokio::runtime::LocalRuntime::new();
                let (runtime, outcome) = match built {
                    Ok(runtime) => (Some(runtime), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                // The receiver waits in this function.
                let _ = begun.send(outcome);
                let Some(runtime) = runtime else { return };
                let worker = Rc::new(Worker::new(index, shared));
                runtime.block_on(Thread::new(worker).run(receiver));
                // A task that still runs may write a line when it is dropped.
                drop(runtime);
                access::flush_all();
            })?;
        begins.recv().map_err(io::Error::other)??;
        Ok(WorkerThread {
            commands: sender,
            thread,
        })
    }

    /// Sends the worker a command; one that has ended need not know.
    pub(crate) fn send(&self, command: Command) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.commands.try_send(command) {
            error::process(Level::Alert, format_args!("a worker does not obey"));
        }
    }

    /// True when the worker obeys no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.commands.is_closed()
    }

    /// Waits until the worker obeys no more; it still has to write out its logs.
    pub(crate) async fn ended(&self) {
        self.commands.closed().await;
    }

    /// Waits for the thread's end, which is near after [`WorkerThread::ended`].
    pub(crate) fn join(self) {
        if self.thread.join().is_err() {
            error::process(Level::Alert, format_args!("a worker thread panicked"));
        }
    }
}

/// The state of the thread itself.
struct Thread {
    worker: Rc<Worker>,
    current: Option<Serving>,
    draining: Vec<Rc<Generation>>,
}

/// The generation that accepts.
struct Serving {
    generation: Rc<Generation>,
    /// The tasks that end with the serving: accepting, and resolving the names of peers.
    tasks: Vec<AbortHandle>,
}

impl Thread {
    fn new(worker: Rc<Worker>) -> Self {
        Thread {
            worker,
            current: None,
            draining: Vec::new(),
        }
    }

    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        spawn_local(turn::write_turns());
        spawn_local(keepalive::tend(Rc::clone(&self.worker)));
        spawn_local(quiet::tend(Rc::clone(&self.worker)));
        spawn_local(warm::tend(Rc::clone(&self.worker)));
        let worker = Rc::clone(&self.worker);
        let make_room = async move || worker.make_room(Shortage::Descriptors).await;
        spawn_local(reserve::tend(make_room));
        loop {
            match commands.recv().await {
                Some(Command::Serve { conf, listening }) => self.serve(conf, listening),
                Some(Command::FlushLogs) => access::flush_all(),
                Some(Command::Answer(answer)) => give(answer),
                Some(Command::Quit) | None => break,
                Some(Command::Stop) => return,
            }
        }
        self.retire();
        let draining = std::mem::take(&mut self.draining);
        let drained = async {
            for generation in &draining {
                generation.drained().await;
            }
        };
        let mut drained = std::pin::pin!(drained);
        let timeout = draining
            .last()
            .and_then(|last| last.conf.main.process.shutdown_timeout);
        let mut timed_out = std::pin::pin!(async {
            match timeout {
                Some(timeout) => clock::pause(timeout).await,
                None => std::future::pending().await,
            }
        });
        loop {
            tokio::select! {
                () = &mut drained => return,
                () = &mut timed_out => return,
                command = commands.recv() => match command {
                    Some(Command::Stop) | None => return,
                    Some(Command::FlushLogs) => access::flush_all(),
                    Some(Command::Answer(answer)) => give(answer),
                    Some(_) => {}
                },
            }
        }
    }

    fn serve(&mut self, conf: Arc<Conf>, listening: Vec<Listening>) {
        self.retire();
        let generation = Generation::new(Rc::clone(&self.worker), conf);
        generation.begin();
        let accept = |listening: Listening| {
            let generation = Rc::clone(&generation);
            let Listening { fd, binding, .. } = listening;
            match binding.carries {
                Carries::Sessions if binding.is_udp => {
                    spawn_local(packets::listen(fd, binding, generation))
                }
                Carries::Requests => {
                    spawn_local(accept_loop(fd, binding, generation, accepted::serve))
                }
                Carries::Sessions => {
                    spawn_local(accept_loop(fd, binding, generation, session::serve))
                }
            }
            .abort_handle()
        };
        let (of_quic, listening): (Vec<_>, Vec<_>) =
            listening.into_iter().partition(|it| it.binding.is_quic());
        let mut tasks: Vec<AbortHandle> = listening.into_iter().map(accept).collect();
        quic::listen(&generation, of_quic.into_iter().map(socket).collect());
        #[cfg(feature = "script")]
        tasks.extend(millpond_proxy::script::periodic::start(&generation));
        if self.worker.index == 0 {
            tasks.extend(refresh::start(&generation.conf));
            tasks.extend(
                generation
                    .stream
                    .iter()
                    .flat_map(|stream| refresh::start(stream)),
            );
        }
        self.current = Some(Serving { generation, tasks });
    }

    /// Lets the current generation drain.
    fn retire(&mut self) {
        let Some(serving) = self.current.take() else {
            return;
        };
        serving.tasks.iter().for_each(AbortHandle::abort);
        quic::close(&self.worker);
        let generation = serving.generation;
        generation.close();
        // nginx: they end with the worker that has them.
        keepalive::clear(&self.worker);
        self.draining.retain(|old| !old.is_empty());
        self.draining.push(Rc::clone(&generation));
        if let Some(timeout) = generation.conf.main.process.shutdown_timeout {
            spawn_local(drop_after(generation, timeout));
        }
    }
}

/// A socket of QUIC as its endpoint takes it.
fn socket(listening: Listening) -> QuicSocket {
    QuicSocket {
        binding: listening.binding,
        number: listening.number,
        fd: listening.fd,
    }
}

/// Gives a sign of life; who asked may be gone.
fn give(answer: oneshot::Sender<()>) {
    let _ = answer.send(());
}

/// Drops the connections that a generation still has after a time.
async fn drop_after(generation: Rc<Generation>, timeout: Duration) {
    tokio::select! {
        () = generation.drained() => {}
        () = clock::pause(timeout) => generation.drop_all(),
    }
}
