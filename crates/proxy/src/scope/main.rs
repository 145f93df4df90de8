//! `daemon`, `master_process`, `worker_processes`, `pid`, `user` and their like: the process.
//!
//! They are obeyed by the program (`millpond/src/start.rs`) and by `server.rs`; here they are only
//! declared.

use std::time::Duration;

use millpond_conf::{Family, Scope};

use crate::control::ControlPolicy;
use crate::log::error::ProcessLogPolicy;

/// The number of worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// One per core.
    Auto,
    /// So many.
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

/// How the process runs.
#[derive(Clone, Debug, Family)]
#[family(main)]
pub struct ProcessPolicy {
    /// Whether the program goes to the background.
    #[directive(name = "daemon", default = "on")]
    pub daemon: bool,
    /// Whether workers are processes of their own in nginx; here they are threads in both cases.
    #[directive(name = "master_process", default = "on")]
    pub master_process: bool,
    /// The number of worker threads.
    #[directive(name = "worker_processes", default = "1")]
    pub workers: WorkerCount,
    /// The file that the process id is written to.
    #[directive(name = "pid", default = "/run/millpond.pid")]
    pub pid: String,
    /// The user and group that the process changes to when it was started as root.
    ///
    /// # Differs from nginx
    ///
    /// Without it nothing changes. With it no part of the process stays root, but it may bind ports
    /// below 1024 for good; logs, the pid file and the folders of caches are given to the user.
    #[directive(name = "user")]
    pub user: Option<Vec<String>>,
    /// The largest number of open files of the process.
    #[directive(name = "worker_rlimit_nofile")]
    pub open_files: Option<u32>,
    /// The time after which a graceful shutdown closes the connections that are left.
    #[directive(name = "worker_shutdown_timeout")]
    pub shutdown_timeout: Option<Duration>,
}

/// Settings of the process.
#[derive(Clone, Debug, Scope)]
pub struct MainSettings {
    /// The process.
    pub process: ProcessPolicy,
    /// Where it logs.
    pub log: ProcessLogPolicy,
    /// Where it is asked and told things.
    pub control: ControlPolicy,
}
