//! A server in a directory of its own.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::certificate::Certificate;
use crate::client::Trust;
use crate::command::{CompareArguments, Scheme};
use crate::load::Restart;
use crate::process::Usage;

/// Time that a server may take to listen, and to end; a checker makes it slow.
const PATIENCE: Duration = Duration::from_secs(180);
/// Time between two looks.
const TICK: Duration = Duration::from_millis(20);
/// Lines of a log that are shown.
const LOG_LINES: usize = 40;

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    child: Mutex<Child>,
    /// Program and arguments of the server.
    words: Vec<String>,
    address: SocketAddr,
    dir: PathBuf,
    /// Certificate that the server was given; none: it is asked in clear text.
    certificate: Option<Certificate>,
    has_checker: bool,
}

impl Server {
    /// Starts the server, and waits until it listens.
    pub(super) fn start(
        wanted: &CompareArguments,
        command: &str,
        origin: SocketAddr,
    ) -> Result<Self> {
        let template = template(wanted)?;
        let values = values(&wanted.put)?;
        let address = free_address()?;
        let dir = new_dir()?;
        let conf = dir.join("gauge.conf");
        let certificate = wanted.https.then(Certificate::make).transpose()?;
        let (pem, key) = (dir.join("gauge.pem"), dir.join("gauge.key"));
        if let Some(certificate) = &certificate {
            fs::write(&pem, &certificate.pem)?;
            fs::write(&key, &certificate.key_pem)?;
        }
        let put_in = |text: &str| {
            let mut text = text.to_owned();
            for (name, value) in &values {
                text = text.replace(&format!("{{{name}}}"), value);
            }
            text.replace("{port}", &address.port().to_string())
                .replace("{origin}", &origin.to_string())
                .replace("{dir}", &dir.display().to_string())
                .replace("{conf}", &conf.display().to_string())
                .replace("{certificate}", &pem.display().to_string())
                .replace("{key}", &key.display().to_string())
                .replace("{log}", &dir.join("checker.log").display().to_string())
        };
        fs::write(&conf, put_in(&template))?;
        let mut words = Vec::new();
        if let Some(cores) = &wanted.cores {
            words.extend(["taskset", "-c", cores].map(str::to_owned));
        }
        if let Some(under) = &wanted.under {
            words.extend(put_in(under).split_whitespace().map(str::to_owned));
        }
        words.extend(put_in(command).split_whitespace().map(str::to_owned));
        let server = Self {
            child: Mutex::new(spawned(&words, &dir)?),
            words,
            address,
            dir,
            certificate,
            has_checker: wanted.under.is_some(),
        };
        server.wait_until_there()?;
        Ok(server)
    }

    fn wait_until_there(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let command = || self.words.join(" ");
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child().try_wait()? {
                bail!(
                    "{}: ended with {status}\n{}",
                    command(),
                    tail(&self.dir.join("server.log"))
                );
            }
            if Instant::now() > deadline {
                bail!("{}: does not listen on {}", command(), self.address);
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address that the server listens on.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Manner in which the server is asked.
    pub(super) fn scheme(&self) -> Scheme {
        match &self.certificate {
            Some(certificate) => Scheme::Https(
                self.address.ip().to_string(),
                Trust::Certificate(certificate.der.clone()),
            ),
            None => Scheme::Http,
        }
    }

    /// Resources that the server used so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        Usage::of(self.child().id())
    }

    /// Bytes of disk that the server's directory takes.
    pub(super) fn disk_bytes(&self) -> u64 {
        disk_bytes(&self.dir)
    }
}

impl Server {
    /// Ends the server. With a checker, what that wrote is printed, and its displeasure told.
    pub(super) fn end(&self, is_mute: bool) -> Result<Option<String>> {
        self.stop();
        if !self.has_checker {
            return Ok(None);
        }
        let found = tail(&self.dir.join("checker.log"));
        if !is_mute {
            eprintln!("{found}");
        }
        let status = self.child().wait()?;
        let wrong = || format!("the checker ended with {status}:\n{found}");
        Ok((!status.success()).then(wrong))
    }

    fn stop(&self) {
        let mut child = self.child();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // It may have ended by itself.
        if let Some(pid) = pid.filter(|_| matches!(child.try_wait(), Ok(None))) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + PATIENCE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                break;
            }
            std::thread::sleep(TICK);
        }
    }
}

impl Restart for Server {
    fn restart(&self) -> Result<()> {
        self.stop();
        *self.child() = spawned(&self.words, &self.dir)?;
        self.wait_until_there()
    }
}

/// Starts a program whose output goes to the log in a directory.
fn spawned(words: &[String], dir: &Path) -> Result<Child> {
    let Some((program, words)) = words.split_first() else {
        bail!("the command of a server is empty");
    };
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("server.log"))?;
    Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        // Ctrl-C is the gauge's, which ends the server when its users are done.
        .process_group(0)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {program}"))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("gauge: {} stays: {error}", self.dir.display());
        }
    }
}

/// The text of the configuration.
fn template(wanted: &CompareArguments) -> Result<String> {
    match (&wanted.conf, &wanted.conf_text) {
        (Some(path), _) => {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        }
        (None, Some(text)) => Ok(text.clone()),
        (None, None) => bail!("which configuration? Say --conf FILE, or a plan that has one"),
    }
}

/// Names and what is put in for them; of two of one name the later.
fn values(put: &[String]) -> Result<BTreeMap<&str, &str>> {
    let mut values = BTreeMap::new();
    for text in put {
        let Some((name, value)) = text.split_once('=') else {
            bail!("--put {text}: wanted NAME=TEXT");
        };
        values.insert(name, value);
    }
    Ok(values)
}

/// The last lines of a file.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(LOG_LINES);
    lines[first..].join("\n")
}

/// An address that nobody listens on.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    Ok(listener.local_addr()?)
}

/// A directory that was not there; its name has nothing that a command line takes apart.
fn new_dir() -> Result<PathBuf> {
    let base = std::env::temp_dir();
    for number in 0..10_000_u32 {
        let dir = base.join(format!("gauge-{}-{number}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make {}", dir.display()));
            }
        }
    }
    bail!("too many directories of this process in {}", base.display());
}

/// Bytes of disk that a directory takes.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(of).sum()
}
