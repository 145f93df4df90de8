//! `daemon`, `master_process`, `worker_processes`, `pid`, `user`, `control` and their like: the
//! process.
//!
//! They are obeyed by the program (`millpond/src/start.rs`), by `server.rs` and by `control`; here
//! they are only declared.

use std::path::PathBuf;
use std::time::Duration;

use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{Family, OffOr, ParseContext, Scope, Word};
use millpond_system::confinement::ConfinementPolicy;
use millpond_system::core_dumps::CorePolicy;
use millpond_system::log::error::ProcessLogPolicy;
use millpond_system::quota::ConnectionPolicy;

/// The number of worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// One worker per core.
    Auto,
    /// Number of workers.
    Count(usize),
}

impl millpond_conf::value::FromArgs for WorkerCount {
    const SYNTAX: &'static str = "number | auto";

    fn from_args(
        args: &mut millpond_conf::value::Args<'_>,
    ) -> Result<Self, millpond_conf::value::ArgError> {
        if args.words.len() == 1 && args.words[0].text == "auto" {
            return Ok(WorkerCount::Auto);
        }
        match u32::from_args(args)? {
            // Arbitrary, far above any machine's cores: a slip of the pen does not start a million
            // threads.
            count @ 1..=1024 => Ok(WorkerCount::Count(count as usize)),
            _ => Err(millpond_conf::value::ArgError::Value {
                word: 0,
                message: "it must be from 1 to 1024".to_string(),
            }),
        }
    }
}

/// The way in which the process runs.
#[derive(Clone, Debug, Family)]
#[family(main)]
pub struct ProcessPolicy {
    /// Sends the program to the background.
    #[directive(name = "daemon", default = "on")]
    pub daemon: bool,
    /// Makes workers processes of their own in nginx; here they are threads in both cases.
    #[directive(name = "master_process", default = "on")]
    pub master_process: bool,
    /// The number of worker threads. Each has `worker_connections` connections.
    #[directive(name = "worker_processes", default = "1")]
    pub workers: WorkerCount,
    /// The file that the process id is written to. Everybody may read it (0644), whatever the
    /// umask, and it is never seen without the id in it.
    #[directive(name = "pid", default = "/run/millpond.pid")]
    pub pid: String,
    /// The user and group that the process changes to when it was started as root.
    ///
    /// # Differs from nginx
    ///
    /// Without it nothing changes. With it no thread of the server stays root, but it may bind
    /// ports below 1024 for good. What only root can do later (new logs, pid file, Unix sockets,
    /// folders, a changed binary) a helper does that stays root; it goes through no folder or link
    /// that the user could have put there. Logs keep their group and are given to the user, as are
    /// folders of caches and of temporary files; the pid file stays root's. A folder of temporary
    /// files that the user cannot reach is refused at the start and by a reload.
    #[directive(name = "user")]
    pub user: Option<Vec<String>>,
    /// The largest number of open files of the process, connections among them.
    ///
    /// # Differs from nginx
    ///
    /// Without it the soft limit that the process was started with is raised to the hard one. A
    /// quarter of it is for files of cache segments, which are closed and opened again as they are
    /// used; some are kept back for logs, disks and files; the rest is shared by the connections of
    /// all workers. When none is left, idle connections are closed (see `worker_connections`).
    /// Where it is less than what `worker_connections` of all workers and the zones take, a start
    /// and a test warn, and say what to set.
    #[directive(name = "worker_rlimit_nofile")]
    pub open_files: Option<u32>,
    /// The time after which a graceful shutdown closes the connections that are left.
    #[directive(name = "worker_shutdown_timeout")]
    pub shutdown_timeout: Option<Duration>,
    /// The time for which a process that was told to quit goes on as before, while `health` says
    /// that it is not ready: balancers take it out before its listeners close. A second QUIT ends
    /// the wait; a process whose successor serves does not wait.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such time.
    #[directive(name = "shutdown_delay", default = "0s")]
    pub shutdown_delay: Duration,
}

impl ProcessPolicy {
    /// The count of threads that serve the configuration.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            WorkerCount::Count(count) => count,
            WorkerCount::Auto => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Settings of the socket on which the process is asked and told things.
#[derive(Clone, Debug, Family)]
#[family(main)]
pub struct ControlPolicy {
    /// The Unix socket on which the process answers `millpond cache` and speaks HTTP with JSON, or
    /// `off`. Without the directive it stands beside the pid file: `/run/millpond.control` for
    /// `/run/millpond.pid`. Only the user of the process and root can use it.
    #[directive(name = "control")]
    pub socket: Option<OffOr<SocketPath>>,
}

/// `unix:` and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPath(pub PathBuf);

impl FromWord for SocketPath {
    const SYNTAX: &'static str = "unix:path";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        match word.text.strip_prefix("unix:") {
            Some("") | None => Err(WordError::Message(format!(
                "\"control\" must be \"off\" or \"unix:\" with a path, not \"{}\"",
                word.text
            ))),
            Some(path) => Ok(SocketPath(cx.prefix.join(path))),
        }
    }
}

/// Settings of QUIC that the process has.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(main)]
pub struct QuicRouting {
    /// Lets packets find the worker of their connection whatever address they come from.
    ///
    /// # Differs from nginx
    ///
    /// The value is only checked. Each packet with a short header has the number of its socket in
    /// it, which a classic program of the kernel reads without a privilege; and packets that still
    /// come to another worker are handed on.
    #[directive(name = "quic_bpf", default = "off")]
    pub uses_program: bool,
}

/// Settings of the process.
#[derive(Clone, Debug, Scope)]
pub struct MainSettings {
    /// The process.
    pub process: ProcessPolicy,
    /// The core dumps of the process.
    pub cores: CorePolicy,
    /// The folders that the process may reach.
    pub confinement: ConfinementPolicy,
    /// The limits of connections of the process's workers.
    pub connections: ConnectionPolicy,
    /// Policy of the process's own log.
    pub log: ProcessLogPolicy,
    /// The control socket, on which the process is asked and told things.
    pub control: ControlPolicy,
    /// The way of QUIC's packets to their worker.
    pub quic: QuicRouting,
}
