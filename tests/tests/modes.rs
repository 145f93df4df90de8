//! Rights to read and write what the process makes.
//!
//! Folders of zones are their owner's (0700), as are the files in them, the counters of sites and
//! the control socket (0600); everybody may read the pid file (0644). All of that holds under any
//! umask, also the empty one that the process has in the background.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::{Client, Deadline, Request, copy_binary, free_port};
use rustix::fs::inotify;

/// The longest time that anything here may take.
const WAIT: Duration = Duration::from_secs(10);

/// A folder of a test: the program, where `nobody` reaches it, and a configuration.
struct Site {
    dir: tempfile::TempDir,
    port: u16,
}

impl Site {
    /// Writes a configuration that makes all kinds of files.
    fn new(main: &str) -> Result<Site> {
        let dir = tempfile::tempdir()?;
        let port = free_port()?;
        // Entered by everybody, as the folders of a system are.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755))?;
        std::fs::create_dir(dir.path().join("run"))?;
        // Where everybody may make something, as in /tmp.
        std::fs::create_dir(dir.path().join("open"))?;
        std::fs::set_permissions(dir.path().join("open"), PermissionsExt::from_mode(0o1777))?;
        copy_binary(&dir.path().join("millpond"))?;
        let conf = format!(
            "{main} pid run/x.pid; error_log e.log; events {{}} http {{ access_log a.log; \
             proxy_cache_path deep/er/c keys_zone=z:1m; cache_site_counters off; \
             client_body_temp_path open/bodies; server {{ \
             listen 127.0.0.1:{port}; listen unix:u.sock; \
             location / {{ return 200 'here'; }} \
             location /body {{ client_body_in_file_only on; proxy_pass http://127.0.0.1:{port}/; }} \
             }} }}"
        );
        std::fs::write(dir.path().join("x.conf"), conf)?;
        Ok(Site { dir, port })
    }

    /// Runs the program under a umask; in the background it returns when the server serves.
    fn run(&self, umask: &str, arguments: &str) -> Result<Output> {
        let line =
            format!("umask {umask}; exec ./millpond -p $PWD -c x.conf -e start.log {arguments}");
        let mut shell = Command::new("sh");
        Ok(shell.args(["-c", &line]).current_dir(&self.dir).output()?)
    }

    fn mode(&self, path: &str) -> Result<u32> {
        let found = std::fs::symlink_metadata(self.dir.path().join(path));
        Ok(found.with_context(|| path.to_owned())?.mode() & 0o7777)
    }

    /// Starts the server, looks at what it made, and ends it.
    fn judge(&self, umask: &str) -> Result<()> {
        let started = self.run(umask, "")?;
        ensure!(started.status.success(), "{started:?}");
        let outcome = self.look(umask);
        let told = self.run("0022", "-s stop")?;
        outcome?;
        ensure!(told.status.success(), "{told:?}");
        self.wait_for_end()
    }

    fn look(&self, umask: &str) -> Result<()> {
        let posted = Client::new(self.port).send(&Request::post("/body", "a body"))?;
        ensure!(posted.status == 200, "{}", posted.status);
        for (path, mode) in [
            ("run/x.pid", 0o644),
            ("run/x.control", 0o600),
            ("u.sock", 0o666),
            ("deep", 0o755),
            ("deep/er", 0o755),
            ("deep/er/c", 0o700),
            ("open/bodies", 0o700),
            ("e.log", 0o644),
            ("a.log", 0o644),
        ] {
            let found = self.mode(path).with_context(|| format!("umask {umask}"))?;
            ensure!(found == mode, "umask {umask}: {path} has {found:o}");
        }
        for folder in ["deep/er/c", "open/bodies"] {
            let names = names_in(&self.dir.path().join(folder))?;
            ensure!(!names.is_empty(), "nothing in {folder}");
            for name in names {
                let found = self.mode(&format!("{folder}/{name}"))?;
                ensure!(found == 0o600, "umask {umask}: {folder}/{name} {found:o}");
            }
        }
        Ok(())
    }

    /// Waits until the pid file names nobody.
    fn wait_for_end(&self) -> Result<()> {
        let path = self.dir.path().join("run/x.pid");
        let is_gone = || std::fs::read(&path).unwrap_or_default().is_empty();
        let waited = Deadline::after(WAIT).poll(|| is_gone().then_some(()));
        waited.context("it ends")
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder)?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A process in the background lets nobody but the owner get into a zone, and nobody else write the
/// pid that `-s stop` trusts.
#[test]
fn modes_are_the_same_under_any_umask_in_the_background() -> Result<()> {
    for umask in ["0000", "0022", "0077"] {
        Site::new("daemon on;")?.judge(umask)?;
    }
    Ok(())
}

/// Files of the `user` are as closed to others as those of root, and the pid file is root's: who
/// takes over a process of the user cannot have `-s stop` end another process.
#[test]
fn modes_are_the_same_as_a_user() -> Result<()> {
    // Only root can become somebody else.
    if !is_root() {
        return Ok(());
    }
    for umask in ["0000", "0077"] {
        let site = Site::new("daemon on; user nobody nogroup;")?;
        let started = site.run(umask, "")?;
        ensure!(started.status.success(), "{started:?}");
        let owner = std::fs::metadata(site.dir.path().join("run/x.pid"))?.uid();
        let looked = site.look(umask);
        let told = site.run("0022", "-s stop")?;
        looked?;
        assert_eq!(owner, 0);
        ensure!(told.status.success(), "{told:?}");
        site.wait_for_end()?;
    }
    Ok(())
}

/// Events of a folder, from now on.
fn watch(folder: &Path) -> Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK)?;
    let kinds = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::DELETE;
    inotify::add_watch(&watch, folder, kinds)?;
    Ok(watch)
}

/// Events of a name.
fn events_of(watch: &OwnedFd, name: &str) -> Result<Vec<inotify::ReadFlags>> {
    let mut space = [MaybeUninit::uninit(); 8192];
    let mut reader = inotify::Reader::new(watch, &mut space);
    let mut found = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => {
                let about = event.file_name().map(|name| name.to_bytes().to_vec());
                if about.as_deref() == Some(name.as_bytes()) {
                    found.push(event.events());
                }
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(found),
            Err(error) => bail!(error),
        }
    }
}

/// The pid file gets its name when the process id is in it: who waits for the name reads the id.
#[test]
fn pid_file_has_its_content_before_its_name() -> Result<()> {
    let kinds = if is_root() {
        ["daemon on;", "daemon on; user nobody nogroup;"].as_slice()
    } else {
        &["daemon on;"]
    };
    for main in kinds {
        let site = Site::new(main)?;
        let watch = watch(&site.dir.path().join("run"))?;
        let started = site.run("0022", "")?;
        ensure!(started.status.success(), "{started:?}");
        let events = events_of(&watch, "x.pid");
        let told = site.run("0022", "-s stop")?;
        assert_eq!(events?, [inotify::ReadFlags::MOVED_TO], "{main}");
        ensure!(told.status.success(), "{told:?}");
        site.wait_for_end()?;
    }
    Ok(())
}

/// A pid file that is no regular file is written to as it is: a device is not replaced.
#[test]
fn pid_file_that_is_a_device_stays_one() -> Result<()> {
    let site = Site::new("daemon on;")?;
    let fifo = site.dir.path().join("run/x.pid");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )?;
    // A FIFO that is open for reading and writing takes what is written without waiting.
    let both = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&fifo)?;
    let started = site.run("0022", "")?;
    ensure!(started.status.success(), "{started:?}");
    let mut text = [0; 32];
    let count = std::io::Read::read(&mut &both, &mut text)?;
    let pid = OsStr::new(std::str::from_utf8(&text[..count])?.trim()).to_owned();
    let pid: i32 = pid.to_string_lossy().parse()?;
    let raw = rustix::process::Pid::from_raw(pid).context("a process")?;
    rustix::process::kill_process(raw, rustix::process::Signal::TERM)?;
    Deadline::after(WAIT)
        .poll(|| Client::new(site.port).connect().is_err().then_some(()))
        .context("it ends")?;
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(
        &std::fs::metadata(&fifo)?.file_type()
    ));
    Ok(())
}
