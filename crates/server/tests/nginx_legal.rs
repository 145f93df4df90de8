//! Lines that nginx takes are taken: each directive that it has, in every block, once and twice,
//! and the forms of values that people write.
//!
//! ```text
//! nginx-commands.txt ─► a line for each directive ─┐
//! nginx-lines.txt    ─► lines with other forms    ─┴─► × blocks × once, twice ─► nginx -t
//!                                                                            └─► ConfSource::read
//! ```
//!
//! 1. What nginx takes and we refuse is a fault, and so is what nginx refuses and we take, unless
//!    `nginx-lines-departures.txt` has it with a reason.
//! 2. A departure that no longer differs is a fault.
//! 3. A line without effect here may stand twice: nobody has to choose between the two.
//! 4. What only a later nginx has is not asked of this one; of such directives the sources say
//!    whether they may stand twice.

use anyhow::{Context, Result, bail, ensure};
use millpond_conf::Severity;
use millpond_server::source::ConfSource;
use millpond_system::log::error::{ErrorLog, Level};
use millpond_system::log::file::LogFile;
use millpond_testkit::{Kind, binary};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const COMMANDS: &str = include_str!("../../../tests/foreign/nginx-commands.txt");
const LINES: &str = include_str!("../../../tests/foreign/nginx-lines.txt");
const DEPARTURES: &str = include_str!("../../../tests/foreign/nginx-lines-departures.txt");
/// The module that Debian's nginx loads for `stream`.
const STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Parts of the configuration around a line in `http`.
const HTTP: &str = "events { } http { upstream u { server 127.0.0.1:9; } \
                    limit_conn_zone $binary_remote_addr zone=a:1m; \
                    limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s; ";

/// A context, and what opens and closes it.
const BLOCKS: [(&str, &str, &str); 12] = [
    ("main", "", "events { } http { }"),
    ("events", "events {", "} http { }"),
    (
        "http",
        "events { } http {",
        "server { listen 127.0.0.1:18099; } }",
    ),
    ("server", "server {", "} }"),
    (
        "location",
        "server { listen 127.0.0.1:18099; location / {",
        "} } }",
    ),
    ("upstream", "upstream w {", "server 127.0.0.1:8; } }"),
    (
        "if-in-server",
        "server { listen 127.0.0.1:18099; if ($uri) {",
        "} } }",
    ),
    (
        "if-in-location",
        "server { listen 127.0.0.1:18099; location / { if ($uri) {",
        "} } } }",
    ),
    (
        "limit_except",
        "server { listen 127.0.0.1:18099; location / { limit_except GET {",
        "} } } }",
    ),
    ("stream", "events { } stream {", "}"),
    (
        "server-in-stream",
        "events { } stream { server { listen 127.0.0.1:18098;",
        "proxy_pass 127.0.0.1:1; } }",
    ),
    (
        "upstream-in-stream",
        "events { } stream { upstream u {",
        "server 127.0.0.1:1; } }",
    ),
];

/// Whole files, and files without blocks that others have.
const FILES: [&str; 14] = [
    "events { } http { server { listen 127.0.0.1:18099; ssl off; } }",
    "events { } http { ssl off; server { listen 127.0.0.1:18099; ssl off; } }",
    "events { } http { server { listen 127.0.0.1:18099; ssl on; } }",
    "events { } http { ssl on; server { listen 127.0.0.1:18099; } }",
    "events { } http { server { listen 127.0.0.1:18099; ssl off; ssl off; } }",
    "",
    "events { }",
    "http { }",
    "events { } http { }",
    "events { } stream { }",
    "# nothing\n",
    "events { } http { server { http2_max_concurrent_streams 8; ssl_protocols TLSv1.2; } }",
    "events { } http { ssl_session_cache shared:SSL:10m; server { listen 127.0.0.1:18099; } }",
    "events { } events { } http { }",
];

/// A line in a block.
#[derive(Clone, Debug)]
struct Case {
    context: &'static str,
    line: String,
    is_twice: bool,
    /// True if nginx's sources let it stand twice.
    may_repeat: bool,
}

/// The answer of one program: nothing if it does not know the directive.
type Answer = Option<Result<(), String>>;

impl Case {
    fn text(&self, dir: &Path) -> Result<String> {
        let block = BLOCKS.iter().find(|(name, ..)| *name == self.context);
        let (name, before, after) = block.with_context(|| format!("{self:?}"))?;
        let is_in_server = before.starts_with("server") || *name == "upstream";
        let http = if is_in_server { HTTP } else { "" };
        let twice = if self.is_twice { &self.line } else { "" };
        let has_own_place = ["pid ", "error_log "]
            .iter()
            .any(|it| self.line.starts_with(it));
        let places = if has_own_place {
            ""
        } else {
            "pid @/x.pid; error_log stderr;"
        };
        let text = format!("{places}{http}{before}\n{}\n{twice}\n{after}\n", self.line);
        let dir = dir.to_str().context("a path")?;
        Ok(text
            .replace("@/", &format!("{dir}/"))
            .replace("@;", &format!("{dir};")))
    }

    fn key(&self) -> String {
        let times = if self.is_twice { "twice " } else { "" };
        format!("{times}{} in {}", self.line, self.context)
    }
}

/// Values that a grammar takes.
fn values(grammar: &str) -> Option<&str> {
    Some(match grammar {
        "flag" => "on",
        "text" => "text",
        "pair" => "A b",
        "number" => "1",
        "size" => "8k",
        "time" => "10s",
        "buffers" => "8 8k",
        "path" => "@/p",
        "access" => "user:rw",
        "type" => "text/plain",
        "address" => "127.0.0.1",
        _ => grammar.strip_prefix("word:")?,
    })
}

fn cases() -> Vec<Case> {
    let mut forms: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in LINES.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split([' ', ';']).next().unwrap_or_default();
        forms.entry(name).or_default().push(line);
    }
    let mut cases = Vec::new();
    for fact in COMMANDS.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&'static str> = fact.split(' ').collect();
        let [name, contexts, _, _, _, repeats, grammar] = columns[..] else {
            panic!("seven columns: {fact}");
        };
        // The reader of the language has the first; a file has one of each of the others.
        if ["include", "http", "events", "stream"].contains(&name) {
            continue;
        }
        let plain = values(grammar).map(|value| format!("{name} {value};"));
        let own = forms.get(name).into_iter().flatten();
        let lines = plain.into_iter().chain(own.map(|line| line.to_string()));
        for (number, line) in lines.enumerate() {
            // Further forms are those of the first block that may have them.
            let most = if number == 0 { usize::MAX } else { 1 };
            let places = contexts.split(',').take(most);
            for (place, context) in places.enumerate() {
                let case = Case {
                    context,
                    line: line.clone(),
                    is_twice: false,
                    may_repeat: repeats == "again",
                };
                let twice = (place == 0).then(|| Case {
                    is_twice: true,
                    ..case.clone()
                });
                cases.extend([Some(case), twice].into_iter().flatten());
            }
        }
    }
    cases
}

/// The answer of nginx.
fn nginx(text: &str, program: &Path, dir: &Path) -> Result<Answer> {
    let module = if text.contains("stream {") && Path::new(STREAM).exists() {
        format!("load_module {STREAM};\n")
    } else {
        String::new()
    };
    std::fs::write(dir.join("nginx.conf"), module + text)?;
    let mut command = Command::new(program);
    command.args(["-t", "-e", "stderr", "-c", "nginx.conf", "-p"]);
    let output = command.arg(dir).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let mistake = said.lines().find(|line| line.contains("[emerg]"));
    Ok(match (output.status.success(), mistake) {
        (true, _) => Some(Ok(())),
        (false, Some(line)) if line.contains("unknown directive") => None,
        (false, line) => Some(Err(line.unwrap_or(&said).to_string())),
    })
}

/// Our answer, and whether a line has no effect.
fn ours(text: &str, dir: &Path) -> Result<(Answer, bool)> {
    let path = dir.join("millpond.conf");
    std::fs::write(&path, text)?;
    let source = ConfSource {
        path,
        prefix: dir.to_owned(),
        globals: None,
        files: Default::default(),
        error_log: ErrorLog::to(LogFile::stderr(), Level::Error),
        beside: Default::default(),
    };
    let reading = source.read();
    let first = |severity| {
        reading
            .diagnostics
            .iter()
            .find(|it| it.severity == severity)
    };
    let has_no_effect = first(Severity::Note).is_some();
    let mistake = first(Severity::Error);
    Ok((
        match mistake {
            None => Some(Ok(())),
            Some(it) if it.message.contains("is not supported") => None,
            Some(it) => Some(Err(it.message.clone())),
        },
        has_no_effect,
    ))
}

/// The difference between the answers, if it is one that must be listed.
fn difference(
    case: &Case,
    nginx: &Answer,
    (ours, has_no_effect): &(Answer, bool),
) -> Option<String> {
    let ours = ours.as_ref()?;
    match (nginx, ours) {
        (Some(Ok(())), Err(why)) => Some(format!("stricter | {} | {why}", case.key())),
        (Some(Err(_)), Ok(())) if case.is_twice && *has_no_effect => None,
        (Some(Err(why)), Ok(())) => Some(format!("laxer | {} | {why}", case.key())),
        (None, Err(why)) if case.is_twice && case.may_repeat && why.contains("duplicate") => {
            Some(format!("stricter | {} | {why}", case.key()))
        }
        _ => None,
    }
}

/// Departures: `stricter` or `laxer`, the line as a pattern, and the reason.
fn departures() -> Result<Vec<(&'static str, &'static str)>> {
    let lines = DEPARTURES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.splitn(3, " | ").collect::<Vec<_>>()[..] {
            [side, pattern, reason] if !reason.is_empty() => Ok((side, pattern)),
            _ => bail!("not `side | line | reason`: {line}"),
        })
        .collect()
}

/// True if a text is of a pattern, in which `**` stands for anything.
fn is_match(pattern: &str, text: &str) -> bool {
    match pattern.split_once("**") {
        None => pattern == text,
        Some((head, tail)) => text
            .strip_prefix(head)
            .is_some_and(|rest| rest.ends_with(tail)),
    }
}

fn differences(cases: &[Case], program: &Path) -> Result<Vec<String>> {
    let dir = tempfile::tempdir()?;
    let mut found = Vec::new();
    for case in cases {
        let text = case.text(dir.path())?;
        let answer = nginx(&text, program, dir.path())?;
        let ours = ours(&text, dir.path())?;
        found.extend(difference(case, &answer, &ours));
    }
    Ok(found)
}

#[test]
fn lines_that_nginx_takes_are_taken() -> Result<()> {
    let Some(program) = binary(Kind::Nginx) else {
        return Ok(());
    };
    let cases = cases();
    ensure!(cases.len() > 3000, "{} lines", cases.len());
    let half = cases.len() / 2;
    let (first, second) = cases.split_at(half);
    let found = std::thread::scope(|scope| {
        let first = scope.spawn(|| differences(first, &program));
        let second = differences(second, &program)?;
        let mut found = first.join().expect("no panic")?;
        found.extend(second);
        anyhow::Ok(found)
    })?;
    let departures = departures()?;
    let is_listed = |found: &&String, (side, pattern): &(&str, &str)| {
        let mut parts = found.splitn(3, " | ");
        parts.next() == Some(*side) && parts.next().is_some_and(|key| is_match(pattern, key))
    };
    let unlisted = found
        .iter()
        .filter(|it| !departures.iter().any(|departure| is_listed(it, departure)))
        .cloned();
    let gone = departures
        .iter()
        .filter(|departure| !found.iter().any(|it| is_listed(&it, departure)))
        .map(|(side, pattern)| format!("listed, and does not differ: {side} | {pattern}"));
    let faults: Vec<String> = unlisted.chain(gone).collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn files_without_blocks_are_what_nginx_says() -> Result<()> {
    let Some(program) = binary(Kind::Nginx) else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    for text in FILES {
        let has_pid = text.is_empty() || text.starts_with('#');
        let pid = format!("pid {}/x.pid;", dir.path().display());
        let place = if has_pid { "" } else { &*pid };
        let text = format!("{place}{text}");
        let theirs = nginx(&text, &program, dir.path())?.context("an answer")?;
        let (ours, _) = ours(&text, dir.path())?;
        let ours = ours.context("an answer")?;
        assert_eq!(theirs.is_ok(), ours.is_ok(), "{text}: {theirs:?} {ours:?}");
    }
    Ok(())
}
