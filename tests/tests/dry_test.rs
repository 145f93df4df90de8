//! `-t` fails where a start would, for the same reason, and makes nothing.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use millpond_testkit::{copy_binary, free_port};

/// Number of `nobody` on every system.
const NOBODY: u32 = 65_534;

/// A folder with the program and two folders, of which `closed` is another's.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Result<Site> {
        let dir = tempfile::tempdir()?;
        let mode = PermissionsExt::from_mode;
        std::fs::set_permissions(dir.path(), mode(0o755))?;
        for (folder, bits) in [("closed", 0o700), ("shut", 0o755), ("open", 0o1777)] {
            std::fs::create_dir(dir.path().join(folder))?;
            std::fs::set_permissions(dir.path().join(folder), mode(bits))?;
        }
        std::fs::write(dir.path().join("file"), "")?;
        std::os::unix::fs::symlink("nowhere", dir.path().join("link"))?;
        for zone in ["of-folder", "of-pipe"] {
            std::fs::create_dir(dir.path().join(zone))?;
            std::fs::set_permissions(dir.path().join(zone), mode(0o1777))?;
        }
        std::fs::create_dir(dir.path().join("of-folder/millpond.zone"))?;
        std::fs::create_dir(dir.path().join("open/d"))?;
        let pipe = dir.path().join("of-pipe/millpond.zone");
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::from(0o666))?;
        copy_binary(&dir.path().join("millpond"))?;
        Ok(Site { dir })
    }

    /// Writes a configuration: these lines in main and in http, and what all need.
    fn write(&self, main: &str, http: &str) -> Result<()> {
        let port = free_port()?;
        let pid = if main.contains("pid ") {
            ""
        } else {
            "pid open/x.pid;"
        };
        let conf = format!(
            "daemon on; {main} {pid} error_log open/e.log; events {{}} http {{ access_log off; \
             {http} server {{ listen 127.0.0.1:{port}; }} }}"
        );
        Ok(std::fs::write(self.dir.path().join("x.conf"), conf)?)
    }

    /// Runs the program as this user.
    fn run(&self, uid: u32, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.dir.path().join("millpond"));
        command.args(["-c", "x.conf", "-e", "open/start.log", "-p"]);
        command.arg(self.dir.path()).args(arguments);
        if uid != 0 {
            command.uid(uid).gid(uid);
        }
        Ok(command.output()?)
    }

    /// Tests a configuration and starts it: both fail, and say this of this path.
    fn must_fail(&self, uid: u32, path: &str, reason: &str) -> Result<()> {
        let before = names_in(self.dir.path())?;
        let tested = self.run(uid, &["-t"])?;
        let whole = self.dir.path().join(path);
        let said = String::from_utf8_lossy(&tested.stderr).into_owned();
        let fault = said.lines().find(|line| line.contains("[emerg]"));
        let fault = fault.with_context(|| format!("no fault: {said}"))?;
        ensure!(
            !tested.status.success() && said.contains("test failed"),
            "{said}"
        );
        ensure!(
            fault.contains(&whole.display().to_string()),
            "{path}: {said}"
        );
        ensure!(fault.contains(reason), "{path}: {said}");
        assert_eq!(names_in(self.dir.path())?, before, "{path} is made");
        let started = self.run(uid, &[])?;
        if started.status.success() {
            self.run(uid, &["-s", "stop"])?;
        }
        ensure!(!started.status.success(), "{path}: the start works");
        Ok(())
    }
}

/// Names in a folder and in those in it, but for logs.
fn names_in(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path().display().to_string();
        if entry.file_type()?.is_dir() {
            found.extend(names_in(&entry.path())?);
        }
        if !path.ends_with(".log") {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: dry_test::{test} needs root");
    }
    is_root
}

const DENIED: &str = "(13: Permission denied)";

/// A path that cannot be made without root fails the test, which names it.
#[test]
fn what_a_user_cannot_make_fails_the_test() -> Result<()> {
    if !is_root("what_a_user_cannot_make_fails_the_test") {
        return Ok(());
    }
    let site = Site::new()?;
    for (main, http, path, reason) in [
        (
            "",
            "proxy_cache_path shut/c keys_zone=z:1m;",
            "shut/c",
            DENIED,
        ),
        (
            "",
            "proxy_cache_path shut/deep/c keys_zone=z:1m;",
            "shut/deep/c",
            DENIED,
        ),
        (
            "",
            "proxy_cache_path closed/c keys_zone=z:1m;",
            "closed/c",
            DENIED,
        ),
        (
            "",
            "proxy_cache_path file/c keys_zone=z:1m;",
            "file/c",
            "(20: Not a directory)",
        ),
        (
            "",
            "proxy_cache_path link keys_zone=z:1m;",
            "link",
            "(2: No such file or directory)",
        ),
        ("", "client_body_temp_path shut/t;", "shut/t", DENIED),
        (
            "",
            "proxy_temp_path shut/p; proxy_store on;",
            "shut/p",
            DENIED,
        ),
        ("", "access_log shut/a.log;", "shut/a.log", DENIED),
        ("pid shut/x.pid; control off;", "", "shut/x.pid", DENIED),
        (
            "pid none/x.pid; control off;",
            "",
            "none/x.pid",
            "(2: No such file or directory)",
        ),
        ("control unix:shut/x.control;", "", "shut/x.control", DENIED),
    ] {
        site.write(main, http)?;
        site.must_fail(NOBODY, path, reason)?;
    }
    site.write(
        "",
        "proxy_cache_path open/deep/c keys_zone=z:1m; client_body_temp_path open/t;",
    )?;
    let before = names_in(site.dir.path())?;
    let tested = site.run(NOBODY, &["-t"])?;
    ensure!(tested.status.success(), "{tested:?}");
    assert_eq!(names_in(site.dir.path())?, before);
    Ok(())
}

/// A folder or a pipe where a file is wanted fails the test, which does not wait for it.
#[test]
fn what_is_no_file_fails_the_test() -> Result<()> {
    if !is_root("what_is_no_file_fails_the_test") {
        return Ok(());
    }
    let site = Site::new()?;
    for (main, http, path, reason) in [
        ("control unix:open/d;", "", "open/d", "(17: File exists)"),
        (
            "pid open/d; control off;",
            "",
            "open/d",
            "(21: Is a directory)",
        ),
        (
            "",
            "proxy_cache_path of-folder keys_zone=z:1m;",
            "of-folder/millpond.zone",
            "(21: Is a directory)",
        ),
        (
            "",
            "proxy_cache_path of-pipe keys_zone=z:1m;",
            "of-pipe/millpond.zone",
            "(no regular file)",
        ),
    ] {
        site.write(main, http)?;
        site.must_fail(NOBODY, path, reason)?;
    }
    Ok(())
}

/// A path that the user would not get to, though root can make it, fails under root with `user`,
/// and so does a user that there is not. What root makes and gives away passes.
#[test]
fn what_the_user_of_root_does_not_reach_fails_the_test() -> Result<()> {
    if !is_root("what_the_user_of_root_does_not_reach_fails_the_test") {
        return Ok(());
    }
    let site = Site::new()?;
    let user = "user nobody nogroup;";
    for (http, path, reason) in [
        (
            "proxy_cache_path closed/c keys_zone=z:1m;",
            "closed/c",
            DENIED,
        ),
        ("client_body_temp_path closed/t;", "closed/t", DENIED),
        (
            "proxy_cache_path file/c keys_zone=z:1m;",
            "file/c",
            "(20: Not a directory)",
        ),
    ] {
        site.write(user, http)?;
        site.must_fail(0, path, reason)?;
    }
    site.write("user nobody-of-this-name;", "")?;
    let tested = site.run(0, &["-t"])?;
    let said = String::from_utf8_lossy(&tested.stderr).into_owned();
    ensure!(!tested.status.success(), "{said}");
    assert!(
        said.contains("unknown user \"nobody-of-this-name\""),
        "{said}"
    );
    site.write(
        &format!("{user} pid shut/x.pid;"),
        "proxy_cache_path shut/c keys_zone=z:1m; client_body_temp_path shut/t; access_log shut/a.log;",
    )?;
    let tested = site.run(0, &["-t"])?;
    ensure!(tested.status.success(), "{tested:?}");
    assert!(!site.dir.path().join("shut/c").exists());
    Ok(())
}
