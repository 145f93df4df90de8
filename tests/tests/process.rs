//! The process: reloads, ends, logs, and the command line.
//!
//! A reload is seen by what is answered afterwards, an end by the connections and by the files that
//! are left.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, LogCheck, Origin, Proxy, Request, binary, copy_binary,
    free_port,
};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// The longest time that anything here may take.
const WAIT: Duration = Duration::from_secs(10);

/// A server that says `text`, and what else stands in its block.
fn saying(text: &str, rest: &str) -> String {
    format!(
        "server {{ listen 127.0.0.1:%%PORT%%; {rest} location / {{ return 200 '{text}'; }} \
         location /up {{ proxy_pass http://%%ORIGIN%%; }} }}"
    )
}

fn start(conf: &str, origin: &Origin) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, conf).origin(origin).start()
}

/// Waits until a new connection is answered with `text`.
fn wait_for(proxy: &Proxy, text: &str) -> Result<()> {
    let says = || Some(Client::new(proxy.port()).get("/").ok()?.text());
    Deadline::after(WAIT)
        .poll(|| says().filter(|said| said == text))
        .with_context(|| format!("nobody says {text}"))?;
    Ok(())
}

/// Runs the program with arguments that are separated by spaces.
fn run(arguments: &str) -> Result<Output> {
    let program = binary(Kind::Millpond).context("no binary")?;
    run_program(&program, arguments)
}

fn run_program(program: &Path, arguments: &str) -> Result<Output> {
    let words = arguments.split_whitespace();
    Ok(Command::new(program).args(words).output()?)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A reload answers with the new configuration, and idle connections of the old one are closed.
#[test]
fn reload_puts_the_new_configuration_into_force() -> Result<()> {
    let origin = Origin::start()?;
    let mut proxy = start(&saying("one", ""), &origin)?;
    let mut idle = Client::new(proxy.port()).connect()?;
    assert_eq!(idle.exchange(&Request::get("/"))?.text(), "one");
    proxy.set_conf(&saying("two", ""))?;
    proxy.reload()?;
    wait_for(&proxy, "two")?;
    assert!(idle.is_closed_within(WAIT)?);
    proxy.quit()
}

/// A configuration with mistakes changes nothing, and each mistake is logged.
#[test]
fn bad_reload_changes_nothing() -> Result<()> {
    let origin = Origin::start()?;
    let conf = saying("one", "");
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let mut idle = Client::new(proxy.port()).connect()?;
    assert_eq!(idle.exchange(&Request::get("/"))?.text(), "one");
    proxy.set_conf(&saying("two", "tpyo on; keepalive_timeout x;"))?;
    proxy.reload()?;
    let count = || {
        let lines = proxy.grave_log_lines();
        Some(lines).filter(|lines| lines.len() >= 2)
    };
    let lines = Deadline::after(WAIT)
        .poll(count)
        .context("two mistakes are logged")?;
    assert!(
        lines
            .iter()
            .any(|line| line.contains("unknown directive \"tpyo\""))
    );
    assert!(lines.iter().any(|line| line.contains("keepalive_timeout")));
    assert_eq!(idle.exchange(&Request::get("/"))?.text(), "one");
    proxy.quit()
}

/// A file that has become empty, or lost its `events`, closes no listener.
#[test]
fn reload_with_an_empty_file_changes_nothing() -> Result<()> {
    let origin = Origin::start()?;
    let mut proxy = Proxy::new(Kind::Millpond, &saying("one", ""))
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let port = proxy.port();
    let missing = "no \"events\" section in configuration";
    for (round, text) in ["", "http {}"].into_iter().enumerate() {
        std::fs::write(proxy.dir().join("nginx.conf"), text)?;
        proxy.reload()?;
        let is_logged = || {
            let lines = proxy.grave_log_lines();
            let told = lines.iter().filter(|line| line.contains(missing));
            (told.count() > round).then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_logged)
            .context("the mistake is logged")?;
        assert_eq!(Client::new(port).get("/")?.text(), "one");
    }
    proxy.quit()
}

/// An address that somebody else has fails the reload, and the old configuration goes on.
#[test]
fn reload_with_a_taken_address_changes_nothing() -> Result<()> {
    let origin = Origin::start()?;
    let mut proxy = Proxy::new(Kind::Millpond, &saying("one", ""))
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    proxy.set_conf(&saying("two", "listen %%ORIGIN%%;"))?;
    proxy.reload()?;
    let is_logged = || {
        proxy
            .error_log()
            .contains("Address already in use")
            .then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_logged)
        .context("the bind is logged")?;
    wait_for(&proxy, "one")?;
    proxy.quit()
}

/// A request that is being answered is finished after QUIT, and nobody is accepted meanwhile.
#[test]
fn quit_finishes_requests() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    origin.route("/up", Answer::new(200).body("late").hold_head(&gate));
    let mut proxy = start(&saying("one", ""), &origin)?;
    let mut busy = Client::new(proxy.port()).connect()?;
    busy.send_raw(b"GET /up HTTP/1.1\r\nHost: a\r\n\r\n")?;
    origin.wait_for_requests(1)?;
    proxy.signal(Signal::QUIT)?;
    let port = proxy.port();
    Deadline::after(WAIT)
        .poll(|| Client::new(port).connect().is_err().then_some(()))
        .context("nobody listens")?;
    gate.open();
    let response = busy.read_response("GET")?;
    assert_eq!(response.text(), "late");
    assert_eq!(response.header("connection"), Some("close"));
    proxy.quit()
}

/// TERM ends the process at once, whatever is going on, and the pid file is gone.
#[test]
fn term_ends_at_once() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    origin.route("/up", Answer::new(200).body("x").hold_head(&gate));
    let mut proxy = start(&saying("one", ""), &origin)?;
    let mut busy = Client::new(proxy.port()).connect()?;
    busy.send_raw(b"GET /up HTTP/1.1\r\nHost: a\r\n\r\n")?;
    origin.wait_for_requests(1)?;
    proxy.signal(Signal::TERM)?;
    assert!(busy.is_closed_within(WAIT)?);
    let pid_file = proxy.dir().join("server.pid");
    Deadline::after(WAIT)
        .poll(|| (!pid_file.exists()).then_some(()))
        .context("the pid file is removed")?;
    gate.open();
    proxy.quit()
}

/// USR1 opens logs by their names again.
#[test]
fn usr1_opens_logs_again() -> Result<()> {
    let origin = Origin::start()?;
    let conf = format!(
        "log_format path $uri; access_log %%DIR%%/a.log path; {}",
        saying("one", "")
    );
    let mut proxy = start(&conf, &origin)?;
    let client = Client::new(proxy.port());
    client.get("/first")?;
    proxy.wait_for_lines("a.log", 1)?;
    std::fs::rename(proxy.dir().join("a.log"), proxy.dir().join("old.log"))?;
    proxy.signal(Signal::USR1)?;
    let is_back = || proxy.dir().join("a.log").exists().then_some(());
    Deadline::after(WAIT)
        .poll(is_back)
        .context("the log is made again")?;
    client.get("/second")?;
    assert_eq!(proxy.wait_for_lines("a.log", 1)?, ["/second"]);
    assert_eq!(proxy.wait_for_lines("old.log", 1)?, ["/first"]);
    proxy.quit()
}

/// More workers, fewer workers: no connection is refused.
#[test]
fn reload_changes_the_number_of_workers() -> Result<()> {
    let origin = Origin::start()?;
    let mut proxy = start(&saying("0", ""), &origin)?;
    let conf = std::fs::read_to_string(proxy.dir().join("nginx.conf"))?;
    for (turn, count) in [4, 2, 3, 1].into_iter().enumerate() {
        let text = format!("{}", turn + 1);
        let conf = conf.replace("'0'", &format!("'{text}'")).replace(
            "daemon off;",
            &format!("daemon off; worker_processes {count};"),
        );
        std::fs::write(proxy.dir().join("nginx.conf"), conf)?;
        proxy.reload()?;
        wait_for(&proxy, &text)?;
        for _ in 0..20 {
            assert_eq!(Client::new(proxy.port()).get("/")?.text(), text);
        }
    }
    proxy.quit()
}

/// A configuration in a directory of its own, for the command line.
fn write_conf(dir: &Path, main: &str) -> Result<u16> {
    let port = free_port()?;
    let conf = format!(
        "{main} pid x.pid; events {{}} http {{ access_log off; server {{ \
         listen 127.0.0.1:{port}; return 200 'here'; }} }}"
    );
    std::fs::write(dir.join("x.conf"), conf)?;
    Ok(port)
}

/// `daemon on` returns when the server serves; `-s` finds it by its pid file.
#[test]
fn daemon_is_controlled_by_its_pid_file() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let port = write_conf(dir.path(), "daemon on;")?;
    let here = format!("-p {} -c x.conf -e e.log", dir.path().display());
    let started = run(&here)?;
    assert!(started.status.success(), "{}", stderr(&started));
    assert_eq!(Client::new(port).get("/")?.text(), "here");
    let pid_file = dir.path().join("x.pid");
    for signal in ["reload", "reopen", "quit"] {
        let told = run(&format!("{here} -s {signal}"))?;
        assert!(told.status.success(), "{signal}: {}", stderr(&told));
    }
    Deadline::after(WAIT)
        .poll(|| (!pid_file.exists()).then_some(()))
        .context("it ends")?;
    let told = run(&format!("{here} -s quit"))?;
    assert!(!told.status.success());
    assert!(stderr(&told).contains("failed (2: No such file or directory)"));
    Ok(())
}

/// A start in the background that fails says why, to whoever started it.
#[test]
fn daemon_that_cannot_start_says_why() -> Result<()> {
    let dir = tempfile::tempdir()?;
    write_conf(dir.path(), "daemon on; error_log /nonexistent/x.log;")?;
    let here = format!("-p {} -c x.conf -e e.log", dir.path().display());
    let started = run(&here)?;
    assert!(!started.status.success());
    assert!(stderr(&started).contains("open() \"/nonexistent/x.log\" failed"));
    Ok(())
}

/// `-t` and `-T` speak as nginx does.
#[test]
fn tests_of_configurations_speak_as_nginx_does() -> Result<()> {
    let dir = tempfile::tempdir()?;
    write_conf(dir.path(), "")?;
    let path = dir.path().join("x.conf");
    let here = format!("-p {} -c x.conf -e e.log", dir.path().display());
    let tested = run(&format!("-t {here}"))?;
    let expected = format!(
        "millpond: the configuration file {0} syntax is ok\n\
         millpond: configuration file {0} test is successful\n",
        path.display()
    );
    assert_eq!(stderr(&tested), expected);
    assert!(tested.status.success());
    assert_eq!(stderr(&run(&format!("-tq {here}"))?), "");
    let dumped = run(&format!("-Tq {here}"))?;
    let expected = format!(
        "# configuration file {}:\n{}\n",
        path.display(),
        std::fs::read_to_string(&path)?
    );
    assert_eq!(String::from_utf8_lossy(&dumped.stdout), expected);
    std::fs::write(&path, "events {} http { dav_methods PUT; stream_typo; }")?;
    let failed = run(&format!("-t {here}"))?;
    let said = stderr(&failed);
    assert!(!failed.status.success());
    assert!(
        said.contains("directive \"dav_methods\" is not supported"),
        "{said}"
    );
    assert!(said.contains("unknown directive \"stream_typo\""), "{said}");
    assert!(said.ends_with("test failed\n"), "{said}");
    Ok(())
}

/// A process that became a user keeps the right to bind low ports, over reloads and a change of the
/// binary, and no other right of root; logs, pid file and caches are the user's.
#[test]
fn user_keeps_low_ports_and_nothing_else_of_root() -> Result<()> {
    // CAP_NET_BIND_SERVICE is number 10.
    const LOW_PORTS: &str = "0000000000000400";
    // Only root can become somebody else.
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    // The folder of the test belongs to root alone otherwise.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open)?;
    // A user may be unable to reach the folder in which the binary was built.
    let program = dir.path().join("millpond");
    copy_binary(&program)?;
    let run = |arguments: &str| run_program(&program, arguments);
    let here = format!("-p {} -c x.conf -e e.log", dir.path().display());
    let main = "user nobody nogroup; daemon on; error_log e.log;";
    let port = write_conf(dir.path(), main)?;
    let path = dir.path().join("x.conf");
    let conf = std::fs::read_to_string(&path)?;
    let conf = conf.replace("server {", "proxy_cache_path c keys_zone=z:1m; server {");
    std::fs::write(&path, &conf)?;
    let started = run(&here)?;
    assert!(started.status.success(), "{}", stderr(&started));
    let pid = || std::fs::read_to_string(dir.path().join("x.pid")).unwrap_or_default();
    let first = pid();
    let field = |name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid().trim())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let check = || -> Result<()> {
        assert_eq!(Client::new(port).get("/")?.text(), "here");
        assert_eq!(field("Uid:").as_deref(), Some("65534 65534 65534 65534"));
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(field(set).as_deref(), Some(LOW_PORTS), "{set}");
        }
        Ok(())
    };
    let low = || std::net::TcpStream::connect(("127.0.0.1", 83)).is_ok();
    let outcome = (|| -> Result<()> {
        check()?;
        assert!(dir.path().join("c/millpond.zone").exists());
        std::fs::write(
            &path,
            conf.replace("server {", "server { listen 127.0.0.1:83;"),
        )?;
        assert!(run(&format!("{here} -s reload"))?.status.success());
        Deadline::after(WAIT)
            .poll(|| low().then_some(()))
            .context("a reload binds a low port")?;
        let raw = rustix::process::Pid::from_raw(first.trim().parse()?).context("a process")?;
        rustix::process::kill_process(raw, Signal::USR2)?;
        // It writes its pid first, and becomes the user before it serves.
        let is_new = || {
            let is_user = || field("CapAmb:").as_deref() == Some(LOW_PORTS);
            (!pid().trim().is_empty() && pid() != first && is_user()).then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_new)
            .context("a changed binary")?;
        check()?;
        rustix::process::kill_process(raw, Signal::QUIT)?;
        Ok(())
    })();
    let told = run(&format!("{here} -s stop"))?;
    outcome?;
    assert!(told.status.success(), "{}", stderr(&told));
    let is_gone = || (!dir.path().join("x.pid").exists()).then_some(());
    Deadline::after(WAIT).poll(is_gone).context("it ends")
}
