//! `millpond demo` keeps its promises: every line that it prints is run, and what it says is to be
//! seen is checked.
//!
//! The lines are run by the test kit's client, not by curl: the range is taken from `-r`, `xargs
//! -P` means that many clients at once. The expectation is the printed one: a status, perhaps an
//! X-Cache, and a time.

use anyhow::{Context, Result, bail};
use millpond_testkit::{Client, Deadline, Kind, Request, Response, binary, skip};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time that the demo may take to start, or to end.
const WAIT: Duration = Duration::from_secs(10);
/// Seconds that "at once" may mean on a busy machine; less than one turn of a poll every 500 ms.
const AT_ONCE: f64 = 0.4;

/// A running demo and what it printed.
struct Demo {
    child: Child,
    text: String,
}

impl Demo {
    fn start() -> Result<Demo> {
        let mut child = Command::new(binary(Kind::Millpond).context("no binary")?)
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let mut demo = Demo {
            child,
            text: String::new(),
        };
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            demo.text.push_str(&line);
            demo.text.push('\n');
            if line.starts_with("Ctrl-C") {
                return Ok(demo);
            }
        }
        bail!("the demo ended, and printed: {}", demo.text)
    }

    /// The address or path behind a label of the printed list.
    fn place(&self, label: &str) -> Result<&str> {
        let words = self.text.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix(label)?;
            rest.split_whitespace().next()
        });
        words
            .into_iter()
            .find(|word| word.starts_with("http") || word.starts_with('/'))
            .with_context(|| format!("{label} is not printed"))
    }

    fn directory(&self) -> Result<&Path> {
        let log = Path::new(self.place("access log")?);
        log.parent().context("a log in a directory")
    }

    fn client(&self, label: &str) -> Result<Client> {
        let authority = self.place(label)?.trim_start_matches("http://");
        Ok(Client::at(authority.trim_end_matches('/').parse()?))
    }

    /// The command lines, each with what is to be seen.
    fn trials(&self) -> Vec<Trial<'_>> {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        lines
            .windows(2)
            .filter_map(|pair| match pair {
                [command, expect] => Some(Trial {
                    command,
                    expect: expect.strip_prefix("=> ")?,
                }),
                _ => None,
            })
            .collect()
    }

    fn end(mut self) -> Result<ExitStatus> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("process id")?;
        kill_process(pid, Signal::INT)?;
        Deadline::after(WAIT)
            .poll(|| self.child.try_wait().ok().flatten())
            .context("the demo does not end")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It has ended if the test got so far; if not, it gets the chance to clean up.
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::INT));
        let ended = Deadline::after(WAIT).poll(|| self.child.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Trial<'a> {
    command: &'a str,
    expect: &'a str,
}

impl Trial<'_> {
    /// The word after `option`.
    fn value(&self, option: &str) -> Option<&str> {
        let mut words = self.command.split(' ').skip_while(|word| *word != option);
        words.nth(1)
    }

    fn path(&self) -> Result<&str> {
        let url = self.command.split(' ').next_back().unwrap_or_default();
        let rest = url.strip_prefix("http://").context("a URL at the end")?;
        rest.find('/').and_then(|at| rest.get(at..)).context("path")
    }

    fn request(&self) -> Result<Request> {
        let request = Request::get(self.path()?);
        Ok(match self.value("-r") {
            Some(range) => request.header("Range", &format!("bytes={range}")),
            None => request,
        })
    }

    /// Runs the line and says what came, and when.
    fn run(&self, client: &Client) -> Result<(Response, f64)> {
        let clients: usize = self.value("-P").unwrap_or("1").parse()?;
        let request = self.request()?;
        let started = Instant::now();
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                let (client, request) = (*client, request.clone());
                std::thread::spawn(move || client.send(&request))
            })
            .collect();
        let mut responses = Vec::new();
        for thread in threads {
            responses.push(thread.join().expect("a client")?);
        }
        let elapsed = started.elapsed().as_secs_f64();
        let first = responses.remove(0);
        for other in responses {
            assert_eq!((other.status, other.text()), (first.status, first.text()));
        }
        Ok((first, elapsed))
    }

    /// True if an answer is the expected one, but for its time.
    fn is_met(&self, response: &Response) -> bool {
        let status = self.expect.get(..3).and_then(|word| word.parse().ok());
        let x_cache = self.expect_after("X-Cache: ");
        let number = self.expect_after("answer number ");
        let number = number.filter(|word| word.parse::<u32>().is_ok());
        Some(response.status) == status
            && x_cache.is_none_or(|word| response.header("X-Cache") == Some(word))
            && number.is_none_or(|word| response.text().contains(&format!("number {word} ")))
    }

    fn expect_after(&self, mark: &str) -> Option<&str> {
        let (_, rest) = self.expect.split_once(mark)?;
        rest.split([',', ';', ' ']).next()
    }

    fn assert_in_time(&self, elapsed: f64) {
        let seconds = |mark: &str| -> Option<f64> { self.expect_after(mark)?.parse().ok() };
        if let Some(about) = seconds("after about ") {
            let most = about * 1.3 + AT_ONCE;
            assert!(
                (about * 0.7..most).contains(&elapsed),
                "{self:?}: {elapsed} s"
            );
        } else if let Some(most) = seconds("within ") {
            assert!(elapsed < most + AT_ONCE, "{self:?}: {elapsed} s");
        } else {
            assert!(self.expect.contains("at once"), "{self:?} names a time");
            assert!(elapsed < AT_ONCE, "{self:?}: {elapsed} s");
        }
    }
}

/// Every printed line shows what is printed below it; those that speak of waiting are tried until
/// the wait is over.
fn run_the_tour(demo: &Demo) -> Result<()> {
    let client = demo.client("Millpond")?;
    let trials = demo.trials();
    assert!(trials.len() >= 8, "{}", demo.text);
    for (index, trial) in trials.iter().enumerate() {
        // The last two come "two seconds later" and "half a second after that".
        let patience = if index + 2 >= trials.len() {
            Duration::from_secs(5)
        } else {
            Duration::ZERO
        };
        let mut last = None;
        let seen = Deadline::after(patience).poll(|| {
            let (response, elapsed) = trial.run(&client).ok()?;
            let met = trial.is_met(&response).then_some(elapsed);
            last = Some(response);
            met
        });
        match seen {
            Some(elapsed) => trial.assert_in_time(elapsed),
            None => bail!("{trial:?}: {last:?}"),
        }
    }
    Ok(())
}

/// The line of curl brings HTTP/2, with the certificate that is printed and with no other.
fn run_the_line_of_https(demo: &Demo) -> Result<()> {
    let mut lines = demo.text.lines();
    let line = lines
        .find(|line| line.contains("--cacert"))
        .context("no line for https")?
        .trim();
    let words: Vec<&str> = line.split(' ').collect();
    let (program, words) = words.split_first().context("a line")?;
    if Command::new(program).arg("--version").output().is_err() {
        skip("no curl");
        return Ok(());
    }
    let output = Command::new(program).args(words).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.starts_with("HTTP/2 200"), "{text}");
    assert!(text.contains("x-cache: "), "{text}");
    let is_trust = |word: &&&str| **word != "--cacert" && !word.ends_with("demo.pem");
    let untrusted: Vec<&&str> = words.iter().filter(is_trust).collect();
    let output = Command::new(program).args(untrusted).output()?;
    assert_eq!(output.status.code(), Some(60), "curl does not trust it");
    let old = Command::new(program)
        .args(words)
        .arg("--http1.1")
        .output()?;
    assert!(old.stdout.starts_with(b"HTTP/1.1 200"), "{old:?}");
    Ok(())
}

/// The printed fingerprint is that of the certificate, whose key nobody else can read.
fn check_the_certificate(demo: &Demo) -> Result<()> {
    let path = Path::new(demo.place("certificate")?);
    let der = CertificateDer::from_pem_file(path)?;
    let bytes = Sha256::digest(&der);
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    assert!(demo.text.contains(&pairs.join(":")), "{}", demo.text);
    let key = path.with_extension("key").metadata()?;
    assert_eq!(key.permissions().mode() & 0o077, 0);
    Ok(())
}

/// The first event of the live page's stream.
fn first_event(demo: &Demo) -> Result<String> {
    let authority = demo.place("live page")?.trim_start_matches("http://");
    let mut stream = TcpStream::connect(authority.trim_end_matches('/'))?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    let mut lines = BufReader::new(stream.take(1 << 20)).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some(data) = line.strip_prefix("data: ") {
            assert!(text.contains("Content-Type: text/event-stream"), "{text}");
            return Ok(data.to_string());
        }
        text.push_str(&line);
        text.push('\n');
    }
    bail!("no event came: {text}")
}

#[test]
fn the_demo_shows_what_it_says_and_leaves_nothing_behind() {
    let demo = Demo::start().unwrap();
    let directory = demo.directory().unwrap().to_path_buf();
    assert!(directory.join("demo.conf").is_file());
    let before = first_event(&demo).unwrap();
    assert!(before.starts_with("{\"requests\":0,"), "{before}");

    run_the_tour(&demo).unwrap();

    let after = first_event(&demo).unwrap();
    for part in [
        // The file once, the ten bytes with the rest of their slices, each in two requests, and two
        // times of day.
        "\"origin\":{\"requests\":7,",
        "\"target\":\"/10Mb.txt\",\"status\":200,\"announced\":10485760,\"sent\":10485760",
        "\"range\":\"bytes=5000000-5242879\",\"status\":206,\"announced\":242880,\"sent\":242880",
        "\"range\":\"bytes=4980736-4999999\",\"status\":206,\"announced\":19264,\"sent\":19264",
        "\"range\":\"bytes=4194304-4999999\",\"status\":206,\"announced\":805696,\"sent\":805696",
        "{\"name\":\"STALE\",\"requests\":1,",
    ] {
        assert!(after.contains(part), "{part} is not in {after}");
    }
    let page = demo.client("live page").unwrap().get("/").unwrap();
    assert_eq!(page.status, 200);
    assert!(page.header("Content-Security-Policy").is_some());
    assert!(
        page.text().contains("/sliced/10Mb.txt"),
        "the trials are on the page"
    );

    run_the_line_of_https(&demo).unwrap();
    check_the_certificate(&demo).unwrap();

    assert_eq!(demo.end().unwrap().code(), Some(0));
    assert!(!directory.exists(), "{} is removed", directory.display());
}

#[test]
fn two_demos_run_side_by_side_on_ports_of_their_own() {
    let (one, two) = (Demo::start().unwrap(), Demo::start().unwrap());
    for label in ["live page", "Millpond", "by https", "origin", "access log"] {
        assert_ne!(one.place(label).unwrap(), two.place(label).unwrap());
    }
    for demo in [one, two] {
        let client = demo.client("Millpond").unwrap();
        assert_eq!(client.get("/").unwrap().status, 200);
        assert_eq!(demo.end().unwrap().code(), Some(0));
    }
}
