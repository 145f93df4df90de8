//! The service manager: news on its socket, the watchdog, sockets that it opened, reloads whose
//! outcome is waited for, and the unit that is shipped.
//!
//! The manager is a datagram socket of the test's own.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Client, Deadline, Kind, LogCheck, Proxy, ProxyBuilder, binary, free_port, skip,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

const CONF: &str = "server { listen 127.0.0.1:%%PORT%%; location / { return 200 one; } }";

/// A service manager that listens.
struct Manager {
    socket: UnixDatagram,
    dir: tempfile::TempDir,
}

impl Manager {
    fn new() -> Result<Manager> {
        let dir = tempfile::tempdir()?;
        let socket = UnixDatagram::bind(dir.path().join("notify"))?;
        socket.set_read_timeout(Some(WAIT))?;
        Ok(Manager { socket, dir })
    }

    /// A server that knows the manager.
    fn server(&self, conf: &str) -> ProxyBuilder {
        let path = self.dir.path().join("notify").display().to_string();
        Proxy::new(Kind::Millpond, conf)
            .variable("NOTIFY_SOCKET", &path)
            .log_check(LogCheck::Off)
    }

    /// The next message, as its lines.
    fn next(&self) -> Result<Vec<String>> {
        let mut buf = [0; 4096];
        let len = self.socket.recv(&mut buf).context("no message")?;
        let text = String::from_utf8(buf[..len].to_vec())?;
        Ok(text.lines().map(String::from).collect())
    }

    /// The next message with a line that begins so; what comes before is passed over.
    fn next_with(&self, start: &str) -> Result<Vec<String>> {
        let deadline = Deadline::after(WAIT);
        while !deadline.is_over() {
            let lines = self.next()?;
            if lines.iter().any(|line| line.starts_with(start)) {
                return Ok(lines);
            }
        }
        anyhow::bail!("no {start}")
    }
}

fn value<'a>(lines: &'a [String], name: &str) -> Result<&'a str> {
    let mut values = lines.iter().filter_map(|line| line.strip_prefix(name));
    let value = values.next().and_then(|rest| rest.strip_prefix('='));
    value.with_context(|| format!("no {name} in {lines:?}"))
}

#[test]
fn start_reloads_and_end_are_told() -> Result<()> {
    let manager = Manager::new()?;
    let mut proxy = manager.server(CONF).start()?;
    let ready = manager.next()?;
    assert_eq!(value(&ready, "READY")?, "1");
    assert_eq!(
        value(&ready, "MAINPID")?,
        proxy.pid().context("a pid")?.to_string()
    );
    assert!(value(&ready, "STATUS")?.contains("hit ratio"), "{ready:?}");

    proxy.reload()?;
    let reloading = manager.next_with("RELOADING=1")?;
    assert!(value(&reloading, "MONOTONIC_USEC")?.parse::<u64>()? > 0);
    let taken = manager.next_with("READY=1")?;
    assert!(!value(&taken, "STATUS")?.contains("refused"), "{taken:?}");

    proxy.set_conf("server { listen 127.0.0.1:%%PORT%%; tpyo on; }")?;
    proxy.reload()?;
    manager.next_with("RELOADING=1")?;
    let refused = manager.next_with("READY=1")?;
    assert!(
        value(&refused, "STATUS")?.contains("refused"),
        "{refused:?}"
    );

    proxy.quit()?;
    assert_eq!(value(&manager.next_with("STOPPING")?, "STOPPING")?, "1");
    Ok(())
}

/// READY comes behind the sockets: who is told may connect at once.
#[test]
fn whoever_is_told_of_readiness_can_connect() -> Result<()> {
    let manager = Manager::new()?;
    let dir = tempfile::tempdir()?;
    let port = free_port()?;
    let path = dir.path().display();
    let conf = format!(
        "daemon off; pid {path}/pid; error_log {path}/log; events {{}} http {{ access_log off; \
         server {{ listen 127.0.0.1:{port}; return 200 one; }} }}"
    );
    fs::write(dir.path().join("nginx.conf"), conf)?;
    let child = Command::new(binary(Kind::Millpond).context("no binary")?)
        .args(["-e", "log", "-c", "nginx.conf", "-p"])
        .arg(dir.path())
        .env("NOTIFY_SOCKET", manager.dir.path().join("notify"))
        .spawn()?;
    let running = Running(child);
    manager.next_with("READY=1")?;
    assert_eq!(Client::new(port).get("/")?.text(), "one");
    drop(running);
    Ok(())
}

#[test]
fn watchdog_is_fed_while_workers_answer() -> Result<()> {
    let manager = Manager::new()?;
    let server = manager.server(&format!(
        "%%GLOBALS%%worker_processes 3; events {{}} http {{ %%HTTP%% {CONF} }}"
    ));
    let proxy = server.variable("WATCHDOG_USEC", "200000").start()?;
    for _ in 0..3 {
        let fed = manager.next_with("WATCHDOG=1")?;
        assert!(value(&fed, "STATUS")?.starts_with("serving"), "{fed:?}");
    }
    // Fewer workers are asked after a reload, and all of them answer.
    proxy.reload()?;
    manager.next_with("RELOADING=1")?;
    manager.next_with("WATCHDOG=1")?;
    manager.next_with("WATCHDOG=1")?;
    Ok(())
}

/// A process that the test did not start itself; it is ended with this.
struct Other(Pid);

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = kill_process(self.0, Signal::KILL);
    }
}

/// The new process is the service from the moment on in which it serves, and the end of the old one
/// is not told.
#[test]
fn changed_binary_becomes_the_main_process() -> Result<()> {
    let manager = Manager::new()?;
    let mut proxy = manager.server(CONF).start()?;
    let old = proxy.pid().context("a pid")?.to_string();
    manager.next_with("READY=1")?;
    proxy.signal(Signal::USR2)?;
    let new = loop {
        let lines = manager.next_with("MAINPID")?;
        let id = value(&lines, "MAINPID")?.to_string();
        if id != old {
            break id;
        }
    };
    let other = Other(Pid::from_raw(new.parse()?).context("a pid")?);
    // The other of the two messages, from whichever process it is.
    let again = manager.next_with("MAINPID")?;
    assert_eq!(value(&again, "MAINPID")?, new);
    proxy.quit()?;
    kill_process(other.0, Signal::QUIT)?;
    let stopping = manager.next_with("STOPPING")?;
    assert_eq!(value(&stopping, "STOPPING")?, "1");
    manager
        .socket
        .set_read_timeout(Some(Duration::from_millis(1)))?;
    assert!(manager.next().is_err(), "both said that they end");
    Ok(())
}

/// The script of the package, which a new version is installed with.
#[test]
fn change_binary_replaces_the_process_without_a_pause() -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/change-binary");
    let mut proxy = Proxy::new(Kind::Millpond, CONF).start()?;
    let old = proxy.pid().context("a pid")?;
    let pid_file = proxy.dir().join("server.pid");
    let run = || Command::new(&script).arg(&pid_file).arg("20").output();
    let output = run()?;
    assert!(output.status.success(), "{}", stderr(&output));
    let new: i32 = proxy.read_file("server.pid").trim().parse()?;
    let other = Other(Pid::from_raw(new).context("a pid")?);
    assert_ne!(u32::try_from(new)?, old);
    assert_eq!(Client::new(proxy.port()).get("/")?.text(), "one");
    // The old one has been told to end.
    proxy.quit()?;
    assert_eq!(Client::new(proxy.port()).get("/")?.text(), "one");
    drop(other);
    fs::write(&pid_file, "")?;
    assert_eq!(run()?.status.code(), Some(2));
    Ok(())
}

/// A server in the foreground; ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A folder with a configuration that listens on an address of TCP and on a Unix socket.
fn folder_for(port: u16) -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().display();
    let conf = format!(
        "daemon off; worker_processes 2; pid {path}/pid; error_log {path}/log info;\n\
         events {{}}\nhttp {{ access_log off; server {{ listen 127.0.0.1:{port}; \
         listen unix:{path}/u.sock; return 200 one; }} }}\n"
    );
    fs::write(dir.path().join("nginx.conf"), conf)?;
    Ok(dir)
}

/// Starts the server as a manager does: two sockets are its descriptors 3 and 4.
fn activated(dir: &Path, sockets: [OwnedFd; 2]) -> Result<Running> {
    let [first, second] = sockets;
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
    let child = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(binary(Kind::Millpond).context("no binary")?)
        .args(["-e", "log", "-c", "nginx.conf", "-p"])
        .arg(dir)
        .stdin(Stdio::from(first))
        .stdout(Stdio::from(second))
        .spawn()?;
    let running = Running(child);
    let pid_file = dir.join("pid");
    let is_up = || {
        fs::read_to_string(&pid_file)
            .ok()
            .filter(|text| !text.is_empty())
    };
    Deadline::after(WAIT).poll(is_up).with_context(|| {
        format!(
            "no start: {}",
            fs::read_to_string(dir.join("log")).unwrap_or_default()
        )
    })?;
    Ok(running)
}

fn ask_unix(path: &Path) -> Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

#[test]
fn sockets_of_the_manager_serve_the_listens_with_their_addresses() -> Result<()> {
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    let port = tcp.local_addr()?.port();
    let dir = folder_for(port)?;
    let path = dir.path().join("u.sock");
    let unix = UnixListener::bind(&path)?;
    // Copies, so that the manager's own stay open, as they do.
    let sockets = [tcp.try_clone()?.into(), unix.try_clone()?.into()];
    let mut running = activated(dir.path(), sockets)?;
    for _ in 0..8 {
        assert_eq!(Client::new(port).get("/")?.text(), "one");
    }
    assert!(ask_unix(&path)?.ends_with("one"));
    let id = i32::try_from(running.0.id())?;
    kill_process(Pid::from_raw(id).context("a pid")?, Signal::QUIT)?;
    let ended = Deadline::after(WAIT).poll(|| running.0.try_wait().ok().flatten());
    assert!(ended.context("no end")?.success());
    assert!(path.exists(), "the socket's file is the manager's");
    // The manager's sockets go on, and the next process answers what came in between.
    let mut early = std::net::TcpStream::connect(("127.0.0.1", port))?;
    early.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    fs::remove_file(dir.path().join("pid")).ok();
    let _next = activated(dir.path(), [tcp.into(), unix.into()])?;
    early.set_read_timeout(Some(WAIT))?;
    let mut said = String::new();
    early.read_to_string(&mut said)?;
    assert!(said.ends_with("one"), "{said}");
    Ok(())
}

#[test]
fn socket_that_no_listen_names_is_told_and_closed() -> Result<()> {
    let (one, other) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let (port, unused) = (one.local_addr()?.port(), other.local_addr()?.port());
    let dir = folder_for(port)?;
    let _running = activated(dir.path(), [one.into(), other.into()])?;
    let log = fs::read_to_string(dir.path().join("log"))?;
    let told = format!("no \"listen\" names the service manager's socket 127.0.0.1:{unused}");
    assert!(log.contains(&told), "{log}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", unused)).is_err());
    assert_eq!(Client::new(port).get("/")?.text(), "one");
    Ok(())
}

fn reload_and_wait(proxy: &Proxy) -> Result<Output> {
    let program = binary(Kind::Millpond).context("no binary")?;
    let mut command = Command::new(program);
    command.args([
        "-s",
        "reload",
        "--wait",
        "-e",
        "stderr",
        "-c",
        "nginx.conf",
        "-p",
    ]);
    Ok(command.arg(proxy.dir()).output()?)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn reload_that_is_waited_for_is_in_force_when_it_returns() -> Result<()> {
    let mut proxy = Proxy::new(Kind::Millpond, CONF).start()?;
    let two = CONF.replace("one", "two");
    proxy.set_conf(&two)?;
    let output = reload_and_wait(&proxy)?;
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(Client::new(proxy.port()).get("/")?.text(), "two");
    proxy.quit()?;
    let output = reload_and_wait(&proxy)?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no process answers"),
        "{}",
        stderr(&output)
    );
    Ok(())
}

#[test]
fn refused_reload_fails_with_its_reasons() -> Result<()> {
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .log_check(LogCheck::Off)
        .start()?;
    let taken = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let holder = TcpListener::bind(taken)?;
    // The process alone can know that somebody else has the address.
    let two = CONF.replace("one", "two").replace(
        "listen",
        &format!("listen {}; listen", holder.local_addr()?),
    );
    for (conf, reason) in [
        (
            two,
            format!("bind() to {taken} failed (98: Address already in use)"),
        ),
        (
            CONF.replace("return", "tpyo on; return"),
            "unknown directive \"tpyo\"".to_string(),
        ),
    ] {
        proxy.set_conf(&conf)?;
        let output = reload_and_wait(&proxy)?;
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(&reason), "{}", stderr(&output));
        assert_eq!(Client::new(proxy.port()).get("/")?.text(), "one");
    }
    Ok(())
}

#[test]
fn working_directory_is_entered_and_core_dumps_are_limited() -> Result<()> {
    let conf = format!(
        "%%GLOBALS%% working_directory %%DIR%%/cores; worker_rlimit_core 1m; events {{}}\n\
         http {{ %%HTTP%% {CONF} }}"
    );
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .file("cores/.keep", "")
        .start()?;
    let id = proxy.pid().context("a pid")?;
    let folder = |id: &str| fs::read_link(format!("/proc/{id}/cwd"));
    let cores = proxy.dir().join("cores");
    let entered = || (folder(&id.to_string()).ok()? == cores).then_some(());
    Deadline::after(WAIT).poll(entered).context("not entered")?;
    let limits = fs::read_to_string(format!("/proc/{id}/limits"))?;
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = line.context("a limit")?.split_whitespace().collect();
    assert_eq!(words.get(4), Some(&"1048576"), "{words:?}");
    let missing = conf.replace("/cores", "/nowhere");
    proxy.set_log_check(LogCheck::Off);
    proxy.set_conf(&missing)?;
    let output = reload_and_wait(&proxy)?;
    assert!(
        stderr(&output).contains("/nowhere\") failed (2: No such file"),
        "{}",
        stderr(&output)
    );
    proxy.set_conf(&conf)?;
    proxy.reload()?;
    proxy.quit()
}

/// Configuration and program that were named by relative paths are found again from elsewhere.
#[test]
fn relative_paths_mean_the_same_in_another_working_directory() -> Result<()> {
    let manager = Manager::new()?;
    let dir = tempfile::tempdir()?;
    let port = free_port()?;
    let conf = |text: &str| {
        format!(
            "daemon off; pid pid; working_directory cores; error_log log; events {{}}\n\
             http {{ access_log off; server {{ listen 127.0.0.1:{port}; return 200 {text}; }} }}"
        )
    };
    fs::create_dir(dir.path().join("cores"))?;
    fs::write(dir.path().join("nginx.conf"), conf("one"))?;
    let child = Command::new(binary(Kind::Millpond).context("no binary")?)
        .args(["-e", "log", "-c", "nginx.conf", "-p", "."])
        .current_dir(dir.path())
        .env("NOTIFY_SOCKET", manager.dir.path().join("notify"))
        .spawn()?;
    let id = child.id().to_string();
    let _running = Running(child);
    manager.next_with("READY=1")?;
    fs::write(dir.path().join("nginx.conf"), conf("two"))?;
    let old = Pid::from_raw(id.parse()?).context("a pid")?;
    kill_process(old, Signal::HUP)?;
    manager.next_with("RELOADING=1")?;
    manager.next_with("READY=1")?;
    assert_eq!(Client::new(port).get("/")?.text(), "two");
    kill_process(old, Signal::USR2)?;
    let told = manager.next_with("MAINPID")?;
    let new = value(&told, "MAINPID")?;
    assert_ne!(new, id);
    drop(Other(Pid::from_raw(new.parse()?).context("a pid")?));
    Ok(())
}

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/millpond.service")
}

/// The worst exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE: &str = "16";

#[test]
fn unit_is_hardened_and_has_no_mistakes() -> Result<()> {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        skip("systemd-analyze is not installed");
        return Ok(());
    }
    let judged = Command::new("systemd-analyze")
        .args([
            "security",
            "--offline=true",
            &format!("--threshold={EXPOSURE}"),
        ])
        .arg(unit())
        .output()?;
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(
        judged.status.success(),
        "{}",
        said.lines().last().unwrap_or_default()
    );
    // The program and the page are where the package puts them, or are not there yet.
    let dir = tempfile::tempdir()?;
    let text = fs::read_to_string(unit())?
        .replace("/usr/local/bin/millpond", "/bin/true")
        .replace("man:millpond(8) ", "");
    let path = dir.path().join("millpond.service");
    fs::write(&path, text)?;
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&path)
        .output()?;
    let said = String::from_utf8_lossy(&verified.stderr);
    ensure!(!said.contains("millpond.service"), "{said}");
    Ok(())
}
