//! Started as root with `user`: all files stand in folders in which only root may write, as those
//! of a system do, and everything works that works without `user`.
//!
//! The server is the user's; a helper beside it, which is root's, does what only root can.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Request, copy_binary, free_port, sites_in_file};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// The longest time that anything here may take.
const WAIT: Duration = Duration::from_secs(20);
/// Number of `nobody` on every system.
const NOBODY: u32 = 65_534;
/// The folders that root has made.
const FOLDERS: [&str; 6] = ["run", "log", "cache", "temp", "sock", "etc"];

/// A folder of root's with the program, folders of root's in it, and a configuration.
struct Site {
    dir: tempfile::TempDir,
    port: u16,
}

impl Site {
    /// Writes a configuration; `main` and `http` stand in it besides what all of them have.
    fn new(main: &str, http: &str) -> Result<Site> {
        let dir = tempfile::tempdir()?;
        set_mode(dir.path(), 0o755)?;
        for folder in FOLDERS {
            std::fs::create_dir(dir.path().join(folder))?;
            set_mode(&dir.path().join(folder), 0o755)?;
        }
        copy_binary(&dir.path().join("millpond"))?;
        let site = Site {
            dir,
            port: free_port()?,
        };
        site.write_conf(main, http, "one")?;
        Ok(site)
    }

    fn write_conf(&self, main: &str, http: &str, text: &str) -> Result<()> {
        let port = self.port;
        let conf = format!(
            "daemon on; user nobody nogroup; worker_processes 2; pid run/x.pid; {main} \
             events {{}} http {{ log_format path $uri; access_log log/a.log path; {http} \
             proxy_cache_path cache/z keys_zone=z:1m; client_body_temp_path temp/bodies; \
             server {{ server_name one.example; listen 127.0.0.1:{port}; listen unix:sock/u.sock; \
             location / {{ return 200 '{text}'; }} \
             location /cached {{ proxy_cache z; proxy_cache_valid 1h; proxy_pass http://127.0.0.1:{port}/origin; }} \
             location /body {{ client_body_in_file_only on; proxy_pass http://127.0.0.1:{port}/; }} \
             }} }}"
        );
        Ok(std::fs::write(self.path("etc/x.conf"), conf)?)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Runs the program as root, with these arguments besides those that all have.
    fn run(&self, arguments: &str) -> Result<Output> {
        let line = format!("exec ./millpond -p $PWD -c etc/x.conf -e log/start.log {arguments}");
        let mut shell = Command::new("sh");
        Ok(shell.args(["-c", &line]).current_dir(&self.dir).output()?)
    }

    fn must_run(&self, arguments: &str) -> Result<()> {
        let told = self.run(arguments)?;
        ensure!(told.status.success(), "{arguments}: {told:?}");
        Ok(())
    }

    fn must_run_failing(&self, arguments: &str) -> Result<()> {
        let told = self.run(arguments)?;
        ensure!(!told.status.success(), "{arguments}: {told:?}");
        Ok(())
    }

    fn start(&self) -> Result<()> {
        self.must_run("")
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.read("run/x.pid").trim().parse().ok()?)
    }

    fn get(&self, path: &str) -> Result<String> {
        Ok(Client::new(self.port).get(path)?.text())
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) -> Result<()> {
        let waited = Deadline::after(WAIT).poll(|| is_so().then_some(()));
        waited.with_context(|| format!("{what}; the log: {}", self.read("log/e.log")))
    }

    /// Ends the server gracefully, and looks that nothing is left of it.
    fn quit(&self) -> Result<()> {
        let pid = self.pid().context("no pid")?;
        self.must_run("-s quit")?;
        self.wait_for("it ends", || test_kill_process(pid).is_err())?;
        for path in [
            "run/x.pid",
            "run/x.pid.oldbin",
            "run/x.control",
            "sock/u.sock",
        ] {
            ensure!(!self.path(path).exists(), "{path} is left");
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A test that failed leaves processes that the pid files name.
        for name in ["run/x.pid", "run/x.pid.oldbin", "run/y.pid"] {
            if let Some(pid) = self.read(name).trim().parse().ok().and_then(Pid::from_raw) {
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(std::fs::set_permissions(
        path,
        PermissionsExt::from_mode(mode),
    )?)
}

fn owner(path: &Path) -> Result<u32> {
    Ok(std::fs::symlink_metadata(path)?.uid())
}

/// True if the test can be made: only root becomes somebody else.
fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: as_user::{test} needs root");
    }
    is_root
}

/// Processes whose parent is another, with their users.
fn children_of(parent: Pid) -> Result<Vec<(Pid, u32)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // It may be gone.
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let field = |name: &str| -> Option<i32> {
            let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        if field("PPid:") == Some(parent.as_raw_nonzero().get()) {
            let user = field("Uid:").context("a user")?;
            found.push((Pid::from_raw(id).context("an id")?, user.unsigned_abs()));
        }
    }
    Ok(found)
}

/// The server is the user's, and nothing that it made is left when it has been told to quit, though
/// the folders are root's.
#[test]
fn quit_leaves_neither_pid_file_nor_sockets() -> Result<()> {
    if !is_root("quit_leaves_neither_pid_file_nor_sockets") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    let pid = site.pid().context("no pid")?;
    assert_eq!(site.get("/")?, "one");
    let server = std::fs::metadata(format!("/proc/{}", pid.as_raw_nonzero()))?;
    assert_eq!(server.uid(), NOBODY);
    assert_eq!(owner(&site.path("run/x.pid"))?, 0);
    assert_eq!(owner(&site.path("run/x.control"))?, NOBODY);
    let children = children_of(pid)?;
    let [(helper, 0)] = children.as_slice() else {
        anyhow::bail!("one helper of root's, not {children:?}");
    };
    site.quit()?;
    site.wait_for("the helper ends", || test_kill_process(*helper).is_err())
}

/// The helper ends with a server that is killed, and no pid file names who has the number next.
#[test]
fn helper_ends_with_a_server_that_is_killed() -> Result<()> {
    if !is_root("helper_ends_with_a_server_that_is_killed") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    let pid = site.pid().context("no pid")?;
    let helper = children_of(pid)?.first().context("a helper")?.0;
    kill_process(pid, Signal::KILL)?;
    site.wait_for("the helper ends", || test_kill_process(helper).is_err())?;
    assert!(!site.path("run/x.pid").exists());
    site.start()?;
    assert_eq!(site.get("/")?, "one");
    site.quit()
}

/// Signals that a terminal or a service manager sends to a whole group leave the helper alone.
#[test]
fn helper_heeds_no_signal() -> Result<()> {
    if !is_root("helper_heeds_no_signal") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    let pid = site.pid().context("no pid")?;
    let helper = children_of(pid)?.first().context("a helper")?.0;
    for signal in [
        Signal::HUP,
        Signal::USR1,
        Signal::USR2,
        Signal::INT,
        Signal::TERM,
        Signal::QUIT,
    ] {
        kill_process(helper, signal)?;
    }
    std::fs::rename(site.path("log/a.log"), site.path("log/a.old"))?;
    site.must_run("-s reopen")?;
    site.wait_for("the log is made again", || site.path("log/a.log").exists())?;
    site.quit()
}

/// USR1 after the logs were renamed: new ones are made in root's folder, are the user's, as nginx's
/// are its workers', and are written to. Their group stays, so that whoever reads logs still can.
#[test]
fn reopen_makes_logs_in_a_folder_of_root() -> Result<()> {
    if !is_root("reopen_makes_logs_in_a_folder_of_root") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    site.get("/first")?;
    site.wait_for("a line", || site.read("log/a.log") == "/first\n")?;
    for name in ["a", "e"] {
        let from = site.path(&format!("log/{name}.log"));
        std::fs::rename(from, site.path(&format!("log/{name}.old")))?;
    }
    // As logrotate's `create 0640 root adm` does.
    std::fs::write(site.path("log/e.log"), "")?;
    set_mode(&site.path("log/e.log"), 0o640)?;
    std::os::unix::fs::chown(site.path("log/e.log"), Some(0), Some(4))?;
    site.must_run("-s reopen")?;
    site.wait_for("the log is made again", || site.path("log/a.log").exists())?;
    site.get("/second")?;
    site.wait_for("a line", || site.read("log/a.log") == "/second\n")?;
    assert_eq!(site.read("log/a.old"), "/first\n");
    assert_eq!(owner(&site.path("log/a.log"))?, NOBODY);
    site.quit()?;
    assert!(
        site.read("log/e.log").contains("exit"),
        "{}",
        site.read("log/e.log")
    );
    let found = std::fs::metadata(site.path("log/e.log"))?;
    assert_eq!((found.uid(), found.gid()), (NOBODY, 4));
    Ok(())
}

/// HUP with other paths: log, pid file, control socket, Unix listener, cache and folder of bodies,
/// all of them in folders of root's.
#[test]
fn reload_makes_what_the_new_configuration_names() -> Result<()> {
    if !is_root("reload_makes_what_the_new_configuration_names") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    assert_eq!(site.get("/")?, "one");
    let conf = site.read("etc/x.conf");
    let conf = [
        ("log/a.log", "log/b.log"),
        ("run/x.pid", "run/y.pid"),
        ("sock/u.sock", "sock/v.sock"),
        ("cache/z", "cache/new/y"),
        ("temp/bodies", "temp/new/bodies"),
        ("'one'", "'two'"),
    ]
    .iter()
    .fold(conf, |conf, (from, to)| conf.replace(from, to));
    std::fs::write(site.path("etc/x.conf"), conf)?;
    // The pid file that there is is named by its old path.
    let pid = site.pid().context("no pid")?;
    kill_process(pid, Signal::HUP)?;
    site.wait_for("the new configuration", || {
        site.get("/").is_ok_and(|said| said == "two")
    })?;
    site.wait_for("the pid file moves", || {
        site.path("run/y.pid").exists() && !site.path("run/x.pid").exists()
    })?;
    let posted = Client::new(site.port).send(&Request::post("/body", "a body"))?;
    assert_eq!(posted.status, 200);
    assert_eq!(site.get("/cached")?, "two");
    for path in [
        "log/b.log",
        "run/y.control",
        "cache/new/y",
        "temp/new/bodies",
    ] {
        assert_eq!(owner(&site.path(path))?, NOBODY, "{path}");
    }
    assert!(std::os::unix::net::UnixStream::connect(site.path("sock/v.sock")).is_ok());
    for path in ["run/x.control", "sock/u.sock"] {
        assert!(!site.path(path).exists(), "{path} is left");
    }
    site.must_run("-s quit")?;
    site.wait_for("it ends", || test_kill_process(pid).is_err())?;
    for path in ["run/y.pid", "run/y.control", "sock/v.sock"] {
        assert!(!site.path(path).exists(), "{path} is left");
    }
    Ok(())
}

/// USR2 and then QUIT to the old process: the new one is started as root, becomes the user, has the
/// pid file, and everything that works in the old one.
#[test]
fn upgrade_changes_the_binary() -> Result<()> {
    if !is_root("upgrade_changes_the_binary") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    let old = site.pid().context("no pid")?;
    kill_process(old, Signal::USR2)?;
    site.wait_for("a new process", || site.pid().is_some_and(|pid| pid != old))?;
    let aside = site.read("run/x.pid.oldbin");
    assert_eq!(aside.trim(), old.as_raw_nonzero().to_string());
    site.wait_for("it serves", || {
        site.read("log/e.log")
            .matches("start worker threads")
            .count()
            > 1
    })?;
    kill_process(old, Signal::QUIT)?;
    site.wait_for("the old one ends", || test_kill_process(old).is_err())?;
    assert!(!site.path("run/x.pid.oldbin").exists());
    let new = site.pid().context("no pid")?;
    assert_eq!(site.get("/")?, "one");
    let children = children_of(new)?;
    assert!(matches!(children.as_slice(), [(_, 0)]), "{children:?}");
    let server = std::fs::metadata(format!("/proc/{}", new.as_raw_nonzero()))?;
    assert_eq!(server.uid(), NOBODY);
    std::fs::rename(site.path("log/a.log"), site.path("log/a.old"))?;
    site.must_run("-s reopen")?;
    site.wait_for("the log is made again", || site.path("log/a.log").exists())?;
    site.quit()
}

/// A new process that ends brings the old one back, with its pid file.
#[test]
fn end_of_the_new_process_brings_the_old_one_back() -> Result<()> {
    if !is_root("end_of_the_new_process_brings_the_old_one_back") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    let old = site.pid().context("no pid")?;
    for signal in [Signal::QUIT, Signal::KILL] {
        let begun = site
            .read("log/e.log")
            .matches("start worker threads")
            .count();
        kill_process(old, Signal::USR2)?;
        site.wait_for("a new process", || site.pid().is_some_and(|pid| pid != old))?;
        site.wait_for("it serves", || {
            site.read("log/e.log")
                .matches("start worker threads")
                .count()
                > begun
        })?;
        kill_process(site.pid().context("no pid")?, signal)?;
        site.wait_for("the old one has its pid file", || site.pid() == Some(old))?;
        site.wait_for("it answers", || {
            site.get("/").is_ok_and(|said| said == "one")
        })?;
    }
    assert!(!site.path("run/x.pid.oldbin").exists());
    site.quit()
}

/// Counters of sites stand beside the cache, in a folder of root's, and outlive their process.
#[test]
fn counters_of_sites_outlive_the_process() -> Result<()> {
    if !is_root("counters_of_sites_outlive_the_process") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    let mut before = 0;
    for _ in 0..2 {
        site.start()?;
        assert_eq!(site.get("/cached")?, "one");
        site.quit()?;
        let file = site.path("cache/z.sites");
        assert_eq!(owner(&file)?, NOBODY);
        let counted = sites_in_file(&file)?;
        let counted = counted.get("one.example").copied().unwrap_or(0);
        assert!(counted > before, "{counted} after {before}");
        before = counted;
    }
    assert!(!site.read("log/e.log").contains("counters of sites"));
    Ok(())
}

/// Bodies are kept in a folder that is made for the user.
#[test]
fn bodies_are_kept_in_a_folder_of_root() -> Result<()> {
    if !is_root("bodies_are_kept_in_a_folder_of_root") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.start()?;
    let posted = Client::new(site.port).send(&Request::post("/body", "a body"))?;
    assert_eq!(posted.status, 200);
    let found = std::fs::metadata(site.path("temp/bodies"))?;
    assert_eq!((found.uid(), found.mode() & 0o7777), (NOBODY, 0o700));
    site.quit()
}

/// A folder that the user does not reach is refused by name at the start, and by a reload, which
/// then changes nothing.
#[test]
fn folder_that_the_user_does_not_reach_is_refused() -> Result<()> {
    if !is_root("folder_that_the_user_does_not_reach_is_refused") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    set_mode(&site.path("temp"), 0o700)?;
    let started = site.run("")?;
    let said = String::from_utf8_lossy(&started.stderr).into_owned();
    assert!(!started.status.success());
    let told = format!(
        "{}\" failed (13: Permission denied)",
        site.path("temp/bodies").display()
    );
    assert!(
        said.contains(&told) && said.contains("\"client_body_temp_path\""),
        "{said}"
    );
    assert!(!site.path("run/x.pid").exists());
    set_mode(&site.path("temp"), 0o755)?;
    site.start()?;
    set_mode(&site.path("sock"), 0o700)?;
    let conf = site.read("etc/x.conf");
    let conf = conf
        .replace("temp/bodies", "sock/bodies")
        .replace("'one'", "'two'");
    std::fs::write(site.path("etc/x.conf"), conf)?;
    site.must_run("-s reload")?;
    site.wait_for("it is told", || {
        site.read("log/e.log").contains("sock/bodies\" failed (13:")
    })?;
    assert_eq!(site.get("/")?, "one");
    site.must_run("-s stop")
}

/// A file that the user could lead elsewhere is not touched as root: a link of the user's in place
/// of a log, in a folder of the user's, makes nobody the owner of what it points to.
#[test]
fn helper_follows_no_link_of_the_user() -> Result<()> {
    if !is_root("helper_follows_no_link_of_the_user") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "access_log own/b.log path;")?;
    std::fs::create_dir(site.path("own"))?;
    std::os::unix::fs::chown(site.path("own"), Some(NOBODY), Some(NOBODY))?;
    std::fs::write(site.path("etc/secret"), "secret")?;
    set_mode(&site.path("etc/secret"), 0o600)?;
    site.start()?;
    site.get("/first")?;
    site.wait_for("a line", || site.read("own/b.log") == "/first\n")?;
    std::fs::remove_file(site.path("own/b.log"))?;
    std::os::unix::fs::symlink(site.path("etc/secret"), site.path("own/b.log"))?;
    std::os::unix::fs::lchown(site.path("own/b.log"), Some(NOBODY), Some(NOBODY))?;
    site.must_run("-s reopen")?;
    let told = "own/b.log\" failed (13: Permission denied)";
    site.wait_for("it is told", || site.read("log/e.log").contains(told))?;
    site.get("/second")?;
    site.quit()?;
    assert_eq!(site.read("etc/secret"), "secret");
    assert_eq!(owner(&site.path("etc/secret"))?, 0);
    Ok(())
}

/// A cache that root has filled, before there was a `user`, is warm for the user.
#[test]
fn cache_of_root_becomes_that_of_the_user() -> Result<()> {
    if !is_root("cache_of_root_becomes_that_of_the_user") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    let conf = site.read("etc/x.conf");
    std::fs::write(
        site.path("etc/x.conf"),
        conf.replace("user nobody nogroup;", ""),
    )?;
    site.start()?;
    assert_eq!(site.get("/cached")?, "one");
    site.quit()?;
    std::fs::write(site.path("etc/x.conf"), conf.replace("'one'", "'two'"))?;
    site.start()?;
    assert_eq!(site.get("/cached")?, "one");
    assert_eq!(site.get("/")?, "two");
    for entry in std::fs::read_dir(site.path("cache/z"))? {
        assert_eq!(entry?.metadata()?.uid(), NOBODY);
    }
    site.quit()
}

/// HUP with a configuration that only root can read, as are the folder that it includes and the
/// files in it; what is wrong with it is told with its place.
#[test]
fn reload_reads_what_only_root_can_read() -> Result<()> {
    if !is_root("reload_reads_what_only_root_can_read") {
        return Ok(());
    }
    let site = Site::new("error_log log/e.log notice;", "")?;
    std::fs::create_dir(site.path("etc/conf.d"))?;
    let conf = site.read("etc/x.conf");
    let conf = conf.replace("server_name", "include conf.d/*.conf; server_name");
    std::fs::write(site.path("etc/x.conf"), conf.replace("'one'", "$text"))?;
    std::fs::write(site.path("etc/conf.d/a.conf"), "set $text one;")?;
    set_mode(&site.path("etc/conf.d/a.conf"), 0o600)?;
    set_mode(&site.path("etc/x.conf"), 0o640)?;
    set_mode(&site.path("etc"), 0o700)?;
    site.start()?;
    assert_eq!(site.get("/")?, "one");
    std::fs::write(site.path("etc/conf.d/a.conf"), "set $text two;")?;
    site.must_run("-s reload")?;
    site.wait_for("the new configuration", || {
        site.get("/").is_ok_and(|said| said == "two")
    })?;
    std::fs::write(site.path("etc/conf.d/b.conf"), "\ntpyo;")?;
    site.must_run_failing("-s reload")?;
    kill_process(site.pid().context("no pid")?, Signal::HUP)?;
    let told = "unknown directive \"tpyo\" in ";
    site.wait_for("it is told", || site.read("log/e.log").contains(told))?;
    assert!(
        site.read("log/e.log").contains("conf.d/b.conf:2"),
        "{}",
        site.read("log/e.log")
    );
    assert_eq!(site.get("/")?, "two");
    std::fs::remove_file(site.path("etc/conf.d/b.conf"))?;
    site.quit()
}

/// Keys are root's alone, at the start and when a reload finds others.
#[test]
fn reload_reads_keys_that_are_roots() -> Result<()> {
    if !is_root("reload_reads_keys_that_are_roots") {
        return Ok(());
    }
    let [port, front] = [free_port()?, free_port()?];
    let http = format!(
        "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate own.pem; ssl_certificate_key own.key; \
         return 200 encrypted; }} \
         server {{ server_name front.example; listen 127.0.0.1:{front}; \
         proxy_ssl_verify on; proxy_ssl_trusted_certificate own.pem; \
         location /one {{ proxy_ssl_name one.example; proxy_pass https://127.0.0.1:{port}; }} \
         location /two {{ proxy_ssl_name two.example; proxy_pass https://127.0.0.1:{port}; }} }}"
    );
    let site = Site::new("error_log log/e.log notice;", "")?;
    site.write_conf("error_log log/e.log notice;", &http, "one")?;
    let identify = |site: &Site, name: &str| -> Result<()> {
        let key = rcgen::KeyPair::generate()?;
        let params = rcgen::CertificateParams::new(vec![name.to_owned()])?;
        std::fs::write(site.path("etc/own.pem"), params.self_signed(&key)?.pem())?;
        std::fs::write(site.path("etc/own.key"), key.serialize_pem())?;
        set_mode(&site.path("etc/own.key"), 0o600)
    };
    let status = |path: &str| -> Result<u16> { Ok(Client::new(front).get(path)?.status) };
    identify(&site, "one.example")?;
    site.start()?;
    assert_eq!(status("/one")?, 200);
    assert_eq!(status("/two")?, 502);
    identify(&site, "two.example")?;
    site.must_run("-s reload")?;
    site.wait_for("the new certificate", || {
        status("/two").is_ok_and(|it| it == 200)
    })?;
    assert_eq!(status("/one")?, 502);
    site.quit()
}
