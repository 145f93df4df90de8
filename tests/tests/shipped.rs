//! Shipped examples and units start as they are: every example by the line in its header, and the
//! systemd unit by its own command line with the configuration that it is shipped with.
//!
//! Folders and ports are put in the place of those that a machine has once; nothing else is
//! changed.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Kind, binary, free_port};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The longest that a start or an end may take.
const WAIT: Duration = Duration::from_secs(20);

/// The root of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Copies the files of a folder and of those in it, with words replaced.
fn copy(from: &Path, to: &Path, words: &[(&str, String)]) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let path = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &path, words)?;
        } else {
            fs::write(path, replaced(&fs::read_to_string(entry.path())?, words))?;
        }
    }
    Ok(())
}

fn replaced(text: &str, words: &[(&str, String)]) -> String {
    let replace = |text: String, (from, to): &(&str, String)| text.replace(from, to);
    words.iter().fold(text.to_string(), replace)
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

/// Starts a server, waits for its pid file and its port, and ends it as an operator does.
fn starts_and_ends(args: &[&str], pid: &Path, port: u16) -> Result<()> {
    let program = binary(Kind::Millpond).context("no binary")?;
    let child = Command::new(&program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut running = Running(child);
    let is_up = || {
        let is_over = running.0.try_wait().ok().flatten();
        let is_there = fs::read_to_string(pid).is_ok_and(|text| !text.is_empty());
        let status = is_there.then(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        is_over.map(Err).or(status.map(Ok))
    };
    match Deadline::after(WAIT).poll(is_up).context("no start")? {
        Ok(answers) => ensure!(answers, "nobody listens"),
        Err(status) => {
            let mut said = String::new();
            let stderr = running.0.stderr.as_mut().context("no stderr")?;
            std::io::Read::read_to_string(stderr, &mut said)?;
            anyhow::bail!("{status}: {said}");
        }
    }
    let mut quit = args.to_vec();
    quit.extend(["-s", "quit"]);
    let told = Command::new(&program).args(&quit).output()?;
    ensure!(
        told.status.success(),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    let ended = Deadline::after(WAIT).poll(|| running.0.try_wait().ok().flatten());
    ensure!(ended.context("no end")?.success(), "not a clean end");
    Ok(())
}

#[test]
fn every_example_starts_as_its_header_says() -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("conf/examples"))? {
        names.push(entry?.file_name().into_string().ok().context("a name")?);
    }
    assert!(names.len() >= 11, "{names:?}");
    for name in names {
        let dir = tempfile::tempdir()?;
        let port = free_port()?;
        let words = [
            ("/tmp/", format!("{}/", dir.path().display())),
            ("listen 8080", format!("listen 127.0.0.1:{port}")),
        ];
        copy(&root().join("conf"), &dir.path().join("conf"), &words)?;
        let conf = dir.path().join("conf/examples").join(&name);
        let conf = conf.to_str().context("a path")?;
        let pid = dir.path().join("millpond.pid");
        starts_and_ends(&["-c", conf], &pid, port).with_context(|| name)?;
    }
    Ok(())
}

/// The value of a line of the unit, the first of that name.
fn line<'a>(unit: &'a str, name: &str) -> Result<&'a str> {
    let mut values = unit.lines().filter_map(|line| line.strip_prefix(name));
    values.next().with_context(|| format!("no {name}"))
}

#[test]
fn the_unit_starts_the_configuration_that_is_shipped_with_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let port = free_port()?;
    let at = |name: &str| format!("{}/{name}", dir.path().display());
    let words = [
        ("/etc/millpond", at("etc")),
        ("/run/millpond", at("run")),
        ("/var/log/millpond", at("log")),
        ("/var/cache/millpond", at("cache")),
        ("listen 80;", format!("listen 127.0.0.1:{port};")),
    ];
    for name in ["run", "log", "cache"] {
        fs::create_dir(at(name))?;
    }
    copy(&root().join("conf"), Path::new(&at("etc")), &words)?;
    let unit = replaced(
        &fs::read_to_string(root().join("contrib/millpond.service"))?,
        &words,
    );
    let globals = line(&unit, "Environment=\"GLOBALS=")?.trim_end_matches('"');
    let program = "/usr/local/bin/millpond ";
    let words_of = |name: &str| -> Result<Vec<&str>> {
        let command = line(&unit, name)?.strip_prefix(program);
        let words = command.context("another program")?.split(' ');
        // systemd gives the value of a name in braces as one argument.
        Ok(words
            .map(|word| if word == "${GLOBALS}" { globals } else { word })
            .collect())
    };
    let tested = Command::new(binary(Kind::Millpond).context("no binary")?)
        .args(words_of("ExecStartPre=")?)
        .output()?;
    let said = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{said}");
    assert!(!said.contains("duplicate"), "{said}");
    let pid = PathBuf::from(at("run/millpond.pid"));
    starts_and_ends(&words_of("ExecStart=")?, &pid, port)
}

/// Debian's nginx.conf has lines for TLS in `http`, where nobody may use them.
#[test]
fn the_stock_file_of_debian_passes() -> Result<()> {
    let stock = Path::new("/etc/nginx/nginx.conf");
    if !stock.exists() {
        millpond_testkit::skip("nginx of Debian is not installed");
        return Ok(());
    }
    let program = binary(Kind::Millpond).context("no binary")?;
    let checked = Command::new(program).arg("check").arg(stock).output()?;
    let report = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{report}");
    assert!(!report.contains("Refused"), "{report}");
    Ok(())
}
