//! `cargo xtask foreign`: runs files of the nginx-tests suite, and of njs's, against the binary.
//!
//! The suite is Perl and is not part of this project: a clone is found through `--suite` or
//! `NGINX_TESTS_DIR`, and without one the task says so and counts nothing. Which files must pass
//! stands in `tests/foreign/nginx-tests.txt`; single subtests that may fail stand in
//! `tests/foreign/excused.txt` as `FILE | SUBTEST | REASON`.
//!
//! The tests of njs (`nginx/t` of a clone, `NJS_TESTS_DIR`) use the library of that suite. They run
//! after it, or alone with `--njs`; their lists are `njs-tests.txt` and `njs-excused.txt`.
//!
//! 1. A listed file that skips itself is a failure: a directive that is no longer known makes
//!    these files skip, and that must be seen.
//! 2. An excused subtest that passes is a failure: the list may only shrink.
//! 3. A file is ended after `FILE_SECONDS`.
//! 4. Nothing is left out for being slow: the suite is told to run its long tests, too.

use crate::tally::Tally;
use crate::{checks, packages, workspace};
use anyhow::{Context, Result, bail};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest time for one file; the slowest one of the suite takes about 40 s.
const FILE_SECONDS: u64 = 180;
/// Files that run at a time; the suite chooses its ports so that jobs do not collide.
const JOBS: usize = 2;

/// The command line, read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    suite: Option<PathBuf>,
    /// The suites that are run.
    wanted: Wanted,
    files: Vec<String>,
    /// True if files outside the list may be named.
    scope: Scope,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wanted {
    /// nginx-tests, and without names of files njs's.
    #[default]
    All,
    /// njs's alone.
    Njs,
}

/// A suite, and what is said of it here.
struct Suite {
    dir: PathBuf,
    /// The folder of the library, where it is that of another suite.
    library: Option<PathBuf>,
    list: &'static str,
    excused: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    Listed,
    Any,
}

/// Runs the files that `args` name, or the lists.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let request = Request::parse(args)?;
    let Some(dir) = request.suite.clone().or_else(suite_from_environment) else {
        println!("foreign: skipped, no clone of nginx-tests (set NGINX_TESTS_DIR)");
        return Ok(Tally::SKIP);
    };
    if std::env::var_os("MILLPOND_BIN").is_none() && !checks::build_binary().status()?.success() {
        bail!("the binary does not build");
    }
    let njs = std::env::var_os("NJS_TESTS_DIR").map(|njs| Suite {
        dir: PathBuf::from(njs),
        library: Some(dir.join("lib")),
        list: "njs-tests.txt",
        excused: "njs-excused.txt",
    });
    let own = Suite {
        dir,
        library: None,
        list: "nginx-tests.txt",
        excused: "excused.txt",
    };
    match (request.wanted, njs) {
        (Wanted::Njs, Some(njs)) => run_of(&njs, &request),
        (Wanted::Njs, None) => {
            bail!("--njs needs a clone of njs (set NJS_TESTS_DIR to its nginx/t)")
        }
        (Wanted::All, Some(njs)) if request.files.is_empty() => {
            let mut sum = run_of(&own, &request)?;
            sum += run_of(&njs, &request)?;
            Ok(sum)
        }
        (Wanted::All, _) => run_of(&own, &request),
    }
}

/// Runs the files of one suite.
fn run_of(suite: &Suite, request: &Request) -> Result<Tally> {
    let folder = workspace::root().join("tests/foreign");
    let listed = list(&folder.join(suite.list))?;
    let files = match (request.scope, request.files.is_empty()) {
        (_, true) => listed,
        (Scope::Any, false) => request.files.clone(),
        (Scope::Listed, false) => {
            for file in &request.files {
                if !listed.contains(file) {
                    bail!("{file} is not in the list; --all runs any file");
                }
            }
            request.files.clone()
        }
    };
    let excused = Excused::read(&folder.join(suite.excused))?;
    let reports = run_files(suite, &files)?;
    Ok(print_table(&reports, &excused))
}

/// `nginx-tests DIR [FILE…]`: [`run`] with the suite in `DIR`.
pub(crate) fn run_suite(args: &[String]) -> Result<Tally> {
    let Some((suite, files)) = args.split_first() else {
        bail!("nginx-tests needs the directory of a clone of the suite");
    };
    let mut all = vec!["--suite".to_string(), suite.clone()];
    all.extend_from_slice(files);
    run(&all)
}

fn suite_from_environment() -> Option<PathBuf> {
    std::env::var_os("NGINX_TESTS_DIR").map(PathBuf::from)
}

impl Request {
    fn parse(args: &[String]) -> Result<Request> {
        let mut request = Request::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--suite" => {
                    let dir = args.next().context("--suite needs a directory")?;
                    request.suite = Some(PathBuf::from(dir));
                }
                "--all" => request.scope = Scope::Any,
                "--njs" => request.wanted = Wanted::Njs,
                flag if flag.starts_with('-') => bail!("unknown flag {flag}"),
                file => request.files.push(file.to_string()),
            }
        }
        Ok(request)
    }
}

/// The names in a list file: one on a line, `#` begins a comment.
fn list(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(entries(&text).map(str::to_string).collect())
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
}

/// Subtests that may fail, as pairs of file and subtest.
struct Excused(Vec<(String, String)>);

impl Excused {
    fn read(path: &Path) -> Result<Excused> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut pairs = Vec::new();
        for line in entries(&text) {
            let mut columns = line.splitn(3, " | ");
            match (columns.next(), columns.next(), columns.next()) {
                (Some(file), Some(subtest), Some(_reason)) => {
                    pairs.push((file.trim().to_string(), subtest.trim().to_string()));
                }
                _ => bail!("{}: not `FILE | SUBTEST | REASON`: {line}", path.display()),
            }
        }
        Ok(Excused(pairs))
    }

    fn holds(&self, file: &str, subtest: &str) -> bool {
        self.0.iter().any(|(f, s)| f == file && s == subtest)
    }

    fn of_file<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(f, _)| f == file)
            .map(|(_, subtest)| subtest.as_str())
    }
}

/// The report of one file.
struct Report {
    file: String,
    taken: Duration,
    tap: Tap,
}

fn run_files(suite: &Suite, files: &[String]) -> Result<Vec<Report>> {
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(Vec::new());
    let programs = packages::is_root().then(programs_for_root).transpose()?;
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = run_file(suite, file, programs.as_deref());
            if let Ok(mut reports) = reports.lock() {
                reports.push(report);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(work);
        }
    });
    let unsorted = reports.into_inner().unwrap_or_else(|e| e.into_inner());
    let mut sorted = unsorted.into_iter().collect::<Result<Vec<_>>>()?;
    sorted.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(sorted)
}

/// A directory of programs that stand before the system's: memcached runs as root only when it is
/// told to.
fn programs_for_root() -> Result<PathBuf> {
    let dir = workspace::root().join("target/foreign");
    let script = "#!/bin/sh\nPATH=${PATH#*:}\nexec memcached -u root \"$@\"\n";
    let path = dir.join("memcached");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    fs::write(&path, script).with_context(|| path.display().to_string())?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// Runs a file; with `programs` as root.
fn run_file(suite: &Suite, file: &str, programs: Option<&Path>) -> Result<Report> {
    let start = Instant::now();
    let mut command = Command::new("timeout");
    command.args(["-k", "5", &FILE_SECONDS.to_string(), "perl"]);
    if let Some(library) = &suite.library {
        command.arg("-I").arg(library);
    }
    command
        .arg(file)
        .current_dir(&suite.dir)
        .stdin(Stdio::null())
        // INVARIANT 4.
        .env("TEST_NGINX_UNSAFE", "1")
        .env("TEST_NGINX_BINARY", workspace::binary());
    if let Some(programs) = programs {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", programs.display()));
        // Files and sockets are made by the harness as root, and workers must reach them.
        command.env("TEST_NGINX_GLOBALS", "user root;");
    }
    let output = command.output().context("perl does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let tap = Tap::parse(&text, output.status.success());
    if tap.is_broken() || !tap.failed.is_empty() {
        println!("-- {file}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(Report {
        file: file.to_string(),
        taken: start.elapsed(),
        tap,
    })
}

/// The outcome of a file in the Test Anything Protocol.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tap {
    planned: Option<u64>,
    passed: Vec<String>,
    failed: Vec<String>,
    todo: u64,
    skipped: Option<String>,
    /// True if the program ended well; it does not when a subtest failed.
    success: bool,
}

impl Tap {
    fn parse(text: &str, success: bool) -> Tap {
        let mut tap = Tap {
            success,
            ..Tap::default()
        };
        for line in text.lines() {
            if let Some(plan) = line.strip_prefix("1..") {
                let (count, note) = plan.split_once(" # ").unwrap_or((plan, ""));
                tap.planned = count.trim().parse().ok();
                if tap.planned == Some(0) {
                    tap.skipped = Some(note.trim().to_string());
                }
            } else if let Some(rest) = line.strip_prefix("ok ") {
                tap.passed.push(subtest_name(rest).to_string());
            } else if let Some(rest) = line.strip_prefix("not ok ") {
                if rest.contains("# TODO") {
                    tap.todo += 1;
                } else {
                    tap.failed.push(subtest_name(rest).to_string());
                }
            }
        }
        tap
    }

    /// True if the file did not run to its end: died, timed out, or ran another number of subtests.
    fn is_broken(&self) -> bool {
        if self.skipped.is_some() {
            return false;
        }
        let ran = (self.passed.len() + self.failed.len()) as u64 + self.todo;
        self.planned != Some(ran) || (!self.success && self.failed.is_empty())
    }
}

/// `3 - name # note` without its number and note.
fn subtest_name(rest: &str) -> &str {
    let name = rest
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim_start()
        .trim_start_matches("- ");
    name.split(" # ").next().unwrap_or(name).trim()
}

fn print_table(reports: &[Report], excused: &Excused) -> Tally {
    let mut sum = Tally::default();
    for report in reports {
        let (tally, notes) = judge(report, excused);
        let verdict = if tally.failed == 0 { "pass" } else { "FAIL" };
        println!(
            "{verdict}  {:<40} {:>4} passed {:>4} failed  {:>5.1} s",
            report.file,
            tally.passed,
            tally.failed,
            report.taken.as_secs_f64()
        );
        for note in notes {
            println!("        {note}");
        }
        sum += tally;
    }
    sum
}

fn judge(report: &Report, excused: &Excused) -> (Tally, Vec<String>) {
    let tap = &report.tap;
    let mut notes = Vec::new();
    let mut tally = Tally::new(tap.passed.len() as u64 + tap.todo, 0);
    for name in &tap.failed {
        if excused.holds(&report.file, name) {
            notes.push(format!("excused: {name}"));
        } else {
            notes.push(format!("not ok: {name}"));
            tally.failed += 1;
        }
    }
    // INVARIANT 2.
    for name in excused.of_file(&report.file) {
        if !tap.failed.iter().any(|failed| failed == name) {
            notes.push(format!("excused but does not fail: {name}"));
            tally.failed += 1;
        }
    }
    // INVARIANT 1.
    if let Some(reason) = &tap.skipped {
        notes.push(format!("skipped itself: {reason}"));
        tally.failed += 1;
    }
    if tap.is_broken() {
        notes.push("did not run to its end".to_string());
        tally.failed += 1;
    }
    (tally, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, success: bool) -> Report {
        Report {
            file: "a.t".to_string(),
            taken: Duration::ZERO,
            tap: Tap::parse(text, success),
        }
    }

    #[test]
    fn files_are_judged_by_plan_subtests_and_excuses() {
        let none = Excused(vec![]);
        let b = Excused(vec![("a.t".to_string(), "b".to_string())]);
        let good = "1..2\nok 1 - a\nok 2 - b\n";
        let todo = "1..2\nok 1 - a\nnot ok 2 - b # TODO not yet\n";
        let bad = "1..2\nok 1 - a\nnot ok 2 - b\n";
        for (text, success, excused, passed, failed) in [
            (good, true, &none, 2, 0),
            (todo, true, &none, 2, 0),
            (bad, false, &none, 1, 1),
            (bad, false, &b, 1, 0),
            (good, true, &b, 2, 1),
            ("1..2\nok 1 - a\n", false, &none, 1, 1),
            ("1..0 # SKIP no cache\n", true, &none, 0, 1),
            ("", false, &none, 0, 1),
        ] {
            let (tally, notes) = judge(&report(text, success), excused);
            assert_eq!(tally, Tally::new(passed, failed), "{text} {notes:?}");
        }
    }

    #[test]
    fn list_keeps_names_and_drops_comments() {
        let text = "# head\na.t\n\n b.t  # why\n";
        assert_eq!(entries(text).collect::<Vec<_>>(), ["a.t", "b.t"]);
    }
}
