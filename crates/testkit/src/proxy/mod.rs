//! The server under test, as a child process with a directory of its own.
//!
//! ```text
//! Proxy::new(kind, conf) ─ origin, value, file … ─► start() ─► reload, restart, kill9 … ─► quit()
//! ```
//!
//! `start` writes the configuration and the files, runs the binary, and returns once the pid file
//! exists: both servers listen before they write it. A port that somebody else took in between is
//! replaced, and the start is tried again, `START_TRIES` times.
//!
//! 1. A proxy that is dropped is ended and waited for; no process is left behind.
//! 2. The error log must hold no line of level crit, alert or emerg at the end, unless the test
//!    says that it expects them ([`LogCheck::Off`]).
//! 3. A start that fails says what the server said.

mod built;
mod template;

use crate::client::Protocol;
use crate::deadline::Deadline;
use crate::origin::Origin;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};
use template::Template;

/// Time that a start, a reload or an end may take.
const WAIT: Duration = Duration::from_secs(10);
/// Attempts of a start when a port was taken.
const START_TRIES: u32 = 5;
/// Time of the last modification of every file that a test gives: a date far from now, so that
/// validators made of it are the same in every run.
const FILE_AGE: Duration = Duration::from_secs(1_000_000_000);

/// Server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// nginx, `NGINX_BIN` or `/usr/sbin/nginx`.
    Nginx,
    /// The binary of this project, `MILLPOND_BIN` or the one beside the test binary.
    Millpond,
}

impl Kind {
    /// The servers to compare: Millpond, and nginx where it is installed.
    pub fn both() -> impl Iterator<Item = Kind> {
        let nginx = Some(Kind::Nginx).filter(|kind| binary(*kind).is_some());
        std::iter::once(Kind::Millpond).chain(nginx)
    }
}

/// Check of the error log at the end of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCheck {
    /// No line of level crit, alert or emerg.
    On,
    /// Anything.
    Off,
}

/// The reason why a server did not start.
#[derive(Debug)]
pub struct ProxyError {
    /// The exit status, if it ended by itself.
    pub status: Option<ExitStatus>,
    /// Standard error and error log.
    pub said: String,
}

impl std::fmt::Display for ProxyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Some(status) => write!(f, "server ended with {status}: {}", self.said),
            None => write!(f, "server wrote no pid file: {}", self.said),
        }
    }
}

impl std::error::Error for ProxyError {}

/// The path of a server's binary, if it is there.
///
/// # Panics
///
/// If the binary beside the tests is older than its sources (`built`).
pub fn binary(kind: Kind) -> Option<PathBuf> {
    let variable = match kind {
        Kind::Nginx => "NGINX_BIN",
        Kind::Millpond => "MILLPOND_BIN",
    };
    let fallback = || match kind {
        Kind::Nginx => Some(PathBuf::from("/usr/sbin/nginx")),
        Kind::Millpond => built::beside_test_binary(),
    };
    let path = std::env::var_os(variable).map(PathBuf::from);
    path.or_else(fallback).filter(|path| path.is_file())
}

/// Copies the binary of Millpond to a path.
///
/// A program copies, not this process: a child that another test forks meanwhile would inherit the
/// descriptor that is written to, and to run the copy would fail as long as that is open (ETXTBSY).
pub fn copy_binary(to: &Path) -> Result<()> {
    let binary = binary(Kind::Millpond).context("there is no binary")?;
    let copied = Command::new("cp").arg(binary).arg(to).status()?;
    ensure!(copied.success(), "cp failed");
    Ok(())
}

/// A proxy that is not started yet.
#[derive(Clone, Debug)]
pub struct ProxyBuilder {
    kind: Kind,
    template: Template,
    files: Vec<(String, Vec<u8>)>,
    log_check: LogCheck,
    binary: Option<PathBuf>,
    variables: Vec<(String, String)>,
}

impl ProxyBuilder {
    /// Lets `%%ORIGIN%%` stand for this origin.
    pub fn origin(self, origin: &Origin) -> ProxyBuilder {
        self.value("ORIGIN", &origin.address())
    }

    /// Lets `%%NAME%%` stand for `value`.
    pub fn value(mut self, name: &str, value: &str) -> ProxyBuilder {
        self.template.set(name, value);
        self
    }

    /// Lets servers speak a protocol beside HTTP/1: `%%HTTP%%` switches HTTP/2 on, and a server
    /// that listens on `127.0.0.1:%%PORT%%` does so for HTTP/3, too.
    pub fn over(mut self, protocol: Protocol) -> ProxyBuilder {
        self.template.speak(protocol);
        if protocol == Protocol::Http3 {
            for (path, text) in crate::http3::files() {
                self = self.file(path, text);
            }
        }
        self
    }

    /// Writes a file below the directory before the start; directories are made as needed.
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> ProxyBuilder {
        self.files
            .push((path.to_string(), content.as_ref().to_vec()));
        self
    }

    /// Says what the error log may hold at the end.
    pub fn log_check(mut self, log_check: LogCheck) -> ProxyBuilder {
        self.log_check = log_check;
        self
    }

    /// Runs this binary, wherever the server's own is.
    pub fn binary(mut self, path: &Path) -> ProxyBuilder {
        self.binary = Some(path.to_path_buf());
        self
    }

    /// Sets a variable of the server's environment.
    pub fn variable(mut self, name: &str, value: &str) -> ProxyBuilder {
        self.variables.push((name.to_string(), value.to_string()));
        self
    }

    /// Starts the server and waits until it listens.
    pub fn start(self) -> Result<Proxy> {
        let named = self.binary.or_else(|| binary(self.kind));
        let binary = named.with_context(|| match self.kind {
            Kind::Nginx => "nginx is not installed".to_owned(),
            Kind::Millpond => "there is no binary: cargo build -p millpond".to_owned(),
        })?;
        let dir = tempfile::Builder::new().prefix("millpond-").tempdir()?;
        let mut proxy = Proxy {
            kind: self.kind,
            binary,
            dir,
            template: self.template,
            log_check: self.log_check,
            variables: self.variables,
            child: None,
        };
        for (path, content) in &self.files {
            proxy.write_file(path, content)?;
        }
        for attempt in 1.. {
            proxy.template.choose_ports()?;
            proxy.write_conf()?;
            match proxy.launch() {
                Err(error) if attempt < START_TRIES && is_port_taken(&error) => {
                    proxy.template.forget_ports();
                }
                other => {
                    other?;
                    break;
                }
            }
        }
        Ok(proxy)
    }
}

fn is_port_taken(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}").to_ascii_lowercase();
    text.contains("address already in use")
}

/// A running server.
#[derive(Debug)]
pub struct Proxy {
    kind: Kind,
    binary: PathBuf,
    dir: tempfile::TempDir,
    template: Template,
    log_check: LogCheck,
    variables: Vec<(String, String)>,
    child: Option<Child>,
}

impl Proxy {
    /// A server of `kind` on a configuration.
    ///
    /// `conf` is the inside of `http { … }`, or a whole file if it has an `events` block. These
    /// are replaced: `%%PORT%%` and `%%PORT_ANYTHING%%` by free ports, `%%DIR%%` by the directory,
    /// `%%ORIGIN%%` and other names by what the builder is given. A whole file should begin with
    /// `%%GLOBALS%%` and have `%%HTTP%%` in its http block: they stand for what a test needs
    /// around it.
    #[expect(clippy::new_ret_no_self, reason = "a proxy begins as its builder")]
    pub fn new(kind: Kind, conf: &str) -> ProxyBuilder {
        ProxyBuilder {
            kind,
            template: Template::new(kind, conf),
            files: Vec::new(),
            log_check: LogCheck::On,
            binary: None,
            variables: Vec::new(),
        }
    }

    /// The port that stands for `%%PORT%%`.
    pub fn port(&self) -> u16 {
        self.named_port("PORT")
    }

    /// The port that stands for `%%NAME%%`; 0 if the configuration has none.
    pub fn named_port(&self, name: &str) -> u16 {
        self.template.port(name)
    }

    /// Every name of the template and what it stands for.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.template.values()
    }

    /// The directory that stands for `%%DIR%%`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Server program of this proxy.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Writes a file below the directory, with a modification time that is always the same.
    pub fn write_file(&self, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.dir().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content)?;
        let file = fs::File::options().write(true).open(&path)?;
        file.set_modified(SystemTime::UNIX_EPOCH + FILE_AGE)?;
        Ok(())
    }

    /// Changes what the end asks of the error log.
    pub fn set_log_check(&mut self, log_check: LogCheck) {
        self.log_check = log_check;
    }

    /// Replaces the configuration; `reload` or `restart` then reads it.
    pub fn set_conf(&mut self, conf: &str) -> Result<()> {
        self.template.set_text(conf);
        self.template.choose_ports()?;
        self.write_conf()
    }

    /// Signals the server to read its configuration again. What it changes takes effect at once or
    /// a little later, so poll for it.
    pub fn reload(&self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// Sends a signal to the server's (main) process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the server does not run")?;
        kill_process(pid_of(child)?, signal).context("signal")
    }

    /// Stops the server's (main) process: see [`stop_process`].
    pub fn stop(&self) -> Result<()> {
        let child = self.child.as_ref().context("the server does not run")?;
        stop_process(pid_of(child)?)
    }

    /// Ends the server gracefully and checks its error log.
    pub fn quit(&mut self) -> Result<()> {
        self.end(Signal::QUIT)?;
        self.check_log()
    }

    /// Ends the server as a crash would, with every process that belongs to it.
    pub fn kill9(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let workers = children_of(child.id());
        child.kill()?;
        child.wait()?;
        for worker in workers {
            if let Some(pid) = Pid::from_raw(worker) {
                // It may be gone already.
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
        fs::remove_file(self.dir().join("server.pid")).or_else(ignore_missing)?;
        Ok(())
    }

    /// Ends the server if it runs, and starts it again on the same directory and ports.
    pub fn restart(&mut self) -> Result<()> {
        self.end(Signal::QUIT)?;
        self.launch()
    }

    /// The error log so far.
    pub fn error_log(&self) -> String {
        self.read_file("error.log")
    }

    /// A file below the directory; empty if it is not there.
    pub fn read_file(&self, path: &str) -> String {
        let bytes = fs::read(self.dir().join(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until a file below the directory has at least `count` lines, and gives them.
    pub fn wait_for_lines(&self, path: &str, count: usize) -> Result<Vec<String>> {
        let lines = || -> Vec<String> { self.read_file(path).lines().map(String::from).collect() };
        Deadline::after(WAIT)
            .poll(|| Some(lines()).filter(|lines| lines.len() >= count))
            .with_context(|| format!("{path} has {} lines, expected {count}", lines().len()))
    }

    /// Lines of the error log that a healthy run does not have.
    pub fn grave_log_lines(&self) -> Vec<String> {
        let log = self.error_log();
        log.lines()
            .filter(|line| {
                ["[crit]", "[alert]", "[emerg]"]
                    .iter()
                    .any(|l| line.contains(l))
            })
            .map(str::to_string)
            .collect()
    }

    fn write_conf(&self) -> Result<()> {
        let text = self.template.render(self.dir());
        fs::write(self.dir().join("nginx.conf"), text).context("nginx.conf")
    }

    fn launch(&mut self) -> Result<()> {
        let dir = self.dir().to_path_buf();
        let pid_file = dir.join("server.pid");
        fs::remove_file(&pid_file).or_else(ignore_missing)?;
        crate::http3::forget(self.port());
        let stderr = fs::File::create(dir.join("stderr"))?;
        let mut child = Command::new(&self.binary)
            .arg("-p")
            .arg(&dir)
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .with_context(|| self.binary.display().to_string())?;
        let status = Deadline::after(WAIT).poll(|| {
            if pid_file.metadata().is_ok_and(|meta| meta.len() > 0) {
                return Some(None);
            }
            child.try_wait().ok().flatten().map(Some)
        });
        if let Some(None) = status {
            self.child = Some(child);
            return Ok(());
        }
        let _gone = child.kill();
        child.wait()?;
        // The error tells what the log says; dropping the proxy need not complain again.
        self.log_check = LogCheck::Off;
        bail!(ProxyError {
            status: status.flatten(),
            said: format!("{}{}", self.read_file("stderr"), self.error_log()),
        })
    }

    /// Ends the server with `signal`, harder if it does not obey.
    fn end(&mut self, signal: Signal) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let pid = pid_of(&child)?;
        for signal in [signal, Signal::TERM, Signal::KILL] {
            let _gone = kill_process(pid, signal);
            let ended = Deadline::after(WAIT).poll(|| child.try_wait().ok().flatten());
            if ended.is_some() {
                return Ok(());
            }
        }
        bail!("process {} does not end", child.id())
    }

    fn check_log(&self) -> Result<()> {
        let lines = self.grave_log_lines();
        if self.log_check == LogCheck::On && !lines.is_empty() {
            bail!("error log:\n{}", lines.join("\n"));
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let ended = self.end(Signal::TERM);
        if std::thread::panicking() {
            eprintln!("{}", self.error_log());
            return;
        }
        if let Err(error) = ended.and_then(|()| self.check_log()) {
            panic!("{error:#}");
        }
    }
}

fn pid_of(child: &Child) -> Result<Pid> {
    let raw = i32::try_from(child.id())?;
    Pid::from_raw(raw).context("process id 0")
}

/// Stops a process, and waits until each of its threads stands still: until then one may go on to
/// accept and to answer.
pub fn stop_process(pid: Pid) -> Result<()> {
    kill_process(pid, Signal::STOP).context("signal")?;
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let stands = |task: io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        Some(status.contains("State:\tT"))
    };
    let all = || {
        let mut tasks = fs::read_dir(&tasks).ok()?;
        tasks.all(|task| stands(task) == Some(true)).then_some(())
    };
    Deadline::after(WAIT).poll(all).context("it does not stop")
}

/// The processes that `pid` has started.
fn children_of(pid: u32) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error)
    }
}
