//! Clients that people use, all at the same time against one server that speaks HTTP/1.1 and
//! HTTP/2 over TLS: libraries of Go, Java, Node and Python, libcurl with GnuTLS, and the programs
//! curl, gnutls-cli, nghttp and h2load.
//!
//! Each library does `TASKS` one after the other, then `PARALLEL` requests for the large body at
//! the same time, and prints a line for each answer: the task, the status, the protocol, and the
//! SHA-256 of the body. One whose sessions can be kept then makes a new connection and prints
//! `again` with what the server says of it in `X-Reused`: the session was resumed.
//!
//! Programs that are not installed are skipped by name.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Framing, Kind, Origin, Proxy, offset_bytes, skip};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

const CONF: &str = "%%GLOBALS%%
    events {}
    http {
        %%HTTP%%
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            http2 on;
            ssl_certificate cert.pem;
            ssl_certificate_key key.pem;
            ssl_session_cache shared:s:1m;
            add_header X-Reused $ssl_session_reused always;
            location / { proxy_pass http://%%ORIGIN%%; }
            location = /large {
                proxy_cache z;
                proxy_cache_valid 200 1h;
                proxy_pass http://%%ORIGIN%%;
            }
        }
    }";

const LARGE_LEN: u64 = 3_000_000;
/// Requests at the same time.
const PARALLEL: usize = 20;
/// Seconds that a client may take on a machine that does much else.
const PATIENCE: &str = "180";
/// Requests of h2load.
const LOAD: u64 = 200;

/// A request of each client, and its answer.
struct Task {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    status: u16,
    body: fn() -> Vec<u8>,
}

const TASKS: [Task; 6] = [
    Task {
        name: "small",
        method: "GET",
        path: "/small",
        status: 200,
        body: || b"small".to_vec(),
    },
    Task {
        name: "large",
        method: "GET",
        path: "/large",
        status: 200,
        body: large,
    },
    Task {
        name: "chunks",
        method: "GET",
        path: "/chunks",
        status: 200,
        body: || b"onetwothree".to_vec(),
    },
    Task {
        name: "upload",
        method: "POST",
        path: "/echo",
        status: 200,
        body: upload,
    },
    Task {
        name: "head",
        method: "HEAD",
        path: "/large",
        status: 200,
        body: Vec::new,
    },
    Task {
        name: "missing",
        method: "GET",
        path: "/missing",
        status: 404,
        body: || b"nothing".to_vec(),
    },
];

fn large() -> Vec<u8> {
    offset_bytes(0..LARGE_LEN, 1)
}

/// The body that clients send, which each makes by itself.
fn upload() -> Vec<u8> {
    (0..300_000_u32)
        .map(|index| u8::try_from(index * 7 % 251).unwrap_or_default())
        .collect()
}

/// The line that a client prints of an answer.
fn line(task: &str, status: u16, protocol: &str, body: &[u8]) -> String {
    let sum = Sha256::digest(body);
    let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{task} {status} {protocol} {hex}")
}

fn origin() -> Result<Origin> {
    let origin = Origin::start()?;
    origin.route("/missing", Answer::new(404).body("nothing"));
    origin.route("/small", Answer::new(200).body("small"));
    let large = Answer::new(200).etag("\"1\"").offset_body(LARGE_LEN, 1);
    origin.route("/large", large);
    let chunks = Answer::new(200).body("onetwothree");
    origin.route("/chunks", chunks.framing(Framing::Chunked));
    origin.answer_with("/echo", |request| Answer::new(200).body(&request.body));
    Ok(origin)
}

/// A server, and the certificate of the authority that clients trust.
fn serve(origin: &Origin) -> Result<Proxy> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    // OpenSSL takes a certificate for self-signed whose name is its issuer's.
    params.distinguished_name.push(DnType::CommonName, "root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let signed = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &issuer)?;
    Proxy::new(Kind::Millpond, CONF)
        .origin(origin)
        .file("ca.pem", authority)
        .file("cert.pem", signed.pem())
        .file("key.pem", key.serialize_pem())
        .file("upload", upload())
        .start()
}

/// The place that all clients ask.
struct Site {
    url: String,
    dir: PathBuf,
}

impl Site {
    fn authority(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }
}

/// The protocol that a client is told to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

impl Version {
    fn name(self) -> &'static str {
        match self {
            Version::Http1 => "h1",
            Version::Http2 => "h2",
        }
    }
}

/// The way to begin a program, where it is installed.
type Start = fn() -> Option<Command>;

/// Deeds of a program.
#[derive(Clone, Copy, Debug)]
enum Deeds {
    /// The tasks, and a session that is resumed.
    Resuming(Version),
    /// The tasks.
    Tasks(Version),
    Curl(Version),
    H2load(Version),
    Nghttp,
    GnutlsCli,
}

const CLIENTS: [(&str, Start, Deeds); 16] = [
    ("go_http1", go, Deeds::Resuming(Version::Http1)),
    ("go_http2", go, Deeds::Resuming(Version::Http2)),
    ("java_http1", java, Deeds::Resuming(Version::Http1)),
    ("java_http2", java, Deeds::Resuming(Version::Http2)),
    ("node_http1", node, Deeds::Resuming(Version::Http1)),
    ("node_http2", node, Deeds::Resuming(Version::Http2)),
    ("python_http1", python, Deeds::Resuming(Version::Http1)),
    ("python_http2", httpx, Deeds::Tasks(Version::Http2)),
    ("gnutls_http1", gnutls, Deeds::Tasks(Version::Http1)),
    ("gnutls_http2", gnutls, Deeds::Tasks(Version::Http2)),
    (
        "curl_http1",
        || program("curl"),
        Deeds::Curl(Version::Http1),
    ),
    (
        "curl_http2",
        || program("curl"),
        Deeds::Curl(Version::Http2),
    ),
    (
        "h2load_http1",
        || program("h2load"),
        Deeds::H2load(Version::Http1),
    ),
    (
        "h2load_http2",
        || program("h2load"),
        Deeds::H2load(Version::Http2),
    ),
    ("nghttp", || program("nghttp"), Deeds::Nghttp),
    ("gnutls_cli", || program("gnutls-cli"), Deeds::GnutlsCli),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn script(name: &str) -> PathBuf {
    root().join("tests/clients").join(name)
}

/// A program that ends in `PATIENCE`, if it is there.
fn program(path: impl AsRef<Path>) -> Option<Command> {
    let path = path.as_ref();
    let folders = std::env::var_os("PATH")?;
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(path).is_file());
    is_there.then(|| {
        let mut command = Command::new("timeout");
        command.arg(PATIENCE).arg(path);
        command
    })
}

fn with_script(name: &str, file: &str) -> Option<Command> {
    let mut command = program(name)?;
    command.arg(script(file));
    Some(command)
}

fn go() -> Option<Command> {
    program(root().join("target/tools/bin/web"))
}

fn java() -> Option<Command> {
    with_script("java", "Client.java")
}

fn node() -> Option<Command> {
    with_script("node", "client.mjs")
}

fn python() -> Option<Command> {
    with_script("python3", "client.py")
}

fn httpx() -> Option<Command> {
    let libraries = root().join("target/tools/python");
    let mut command = python().filter(|_| libraries.join("httpx").is_dir())?;
    command.env("PYTHONPATH", libraries);
    Some(command)
}

fn gnutls() -> Option<Command> {
    let mut attempt = program("python3")?;
    attempt.args(["-c", "import ctypes; ctypes.CDLL('libcurl-gnutls.so.4')"]);
    let is_there = attempt.output().ok()?.status.success();
    with_script("python3", "gnutls.py").filter(|_| is_there)
}

/// The program's output, if it ends well.
fn output(mut command: Command) -> Result<Vec<u8>> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(output.stdout)
}

/// The lines of a program that does the tasks.
fn expected(version: Version, more: &[&str]) -> Vec<String> {
    let protocol = version.name();
    let of = |task: &Task| line(task.name, task.status, protocol, &(task.body)());
    let mut lines: Vec<_> = TASKS.iter().map(of).collect();
    let many = line("many", 200, protocol, &large());
    lines.resize(TASKS.len() + PARALLEL, many);
    lines.extend(more.iter().map(|line| (*line).to_owned()));
    lines.sort();
    lines
}

fn run_tasks(site: &Site, version: Version, more: &[&str], mut command: Command) -> Result<()> {
    command.args([site.url.as_ref(), site.authority().as_os_str()]);
    command.arg(version.name());
    let text = String::from_utf8(output(command)?)?;
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    let expected = expected(version, more);
    let wrong: Vec<_> = lines.iter().filter(|it| !expected.contains(it)).collect();
    let absent: Vec<_> = expected.iter().filter(|it| !lines.contains(it)).collect();
    let count = lines.len();
    ensure!(
        lines == expected,
        "{count} lines; wrong {wrong:#?}, absent {absent:#?}"
    );
    Ok(())
}

/// The program curl, which has OpenSSL here.
fn curl(site: &Site, version: Version, start: Start) -> Result<()> {
    let (option, told) = match version {
        Version::Http1 => ("--http1.1", "1.1"),
        Version::Http2 => ("--http2", "2"),
    };
    let many = Task {
        name: "many",
        method: "GET",
        path: "/large",
        status: 200,
        body: large,
    };
    for task in TASKS.iter().chain([&many]) {
        let count = if task.name == "many" { PARALLEL } else { 1 };
        let mut curl = start().context("it is gone")?;
        curl.args(["-sS", "-Z", "-w", "%{http_code} %{http_version}\n", option]);
        curl.arg("--cacert").arg(site.authority());
        match task.method {
            "HEAD" => curl.arg("-I"),
            "POST" => curl
                .arg("--data-binary")
                .arg(format!("@{}", site.dir.join("upload").display())),
            _ => &mut curl,
        };
        let folder = site
            .dir
            .join(format!("curl-{}-{}", version.name(), task.name));
        fs::create_dir_all(&folder)?;
        for index in 0..count {
            curl.arg(format!("{}{}", site.url, task.path));
            curl.arg("-o").arg(folder.join(index.to_string()));
        }
        let said = String::from_utf8(output(curl)?)?;
        let expected = format!("{} {told}\n", task.status).repeat(count);
        ensure!(said == expected, "{}: {said}", task.name);
        for index in 0..count {
            let body = fs::read(folder.join(index.to_string()))?;
            // Where there is no body, its head is written.
            let is_same = task.method == "HEAD" || body == (task.body)();
            ensure!(is_same, "{}: {} bytes", task.name, body.len());
        }
    }
    Ok(())
}

/// The program nghttp, which speaks HTTP/2 only and writes bodies.
fn nghttp(site: &Site, start: Start) -> Result<()> {
    for task in TASKS.iter().filter(|task| task.method != "HEAD") {
        let mut nghttp = start().context("it is gone")?;
        if task.method == "POST" {
            nghttp.arg("-d").arg(site.dir.join("upload"));
        }
        nghttp.arg(format!("{}{}", site.url, task.path));
        let body = output(nghttp)?;
        let is_same = body == (task.body)();
        ensure!(is_same, "{}: {} bytes", task.name, body.len());
    }
    Ok(())
}

/// The program h2load, which counts.
fn h2load(site: &Site, version: Version, mut command: Command) -> Result<()> {
    let (option, told) = match version {
        Version::Http1 => ("--npn-list=http/1.1", "http/1.1"),
        Version::Http2 => ("--npn-list=h2", "h2"),
    };
    let count = LOAD.to_string();
    command.args([option, "-c", "4", "-m", "10", "-n", &count]);
    command.arg(format!("{}/large", site.url));
    let said = String::from_utf8(output(command)?)?;
    for part in [
        format!("Application protocol: {told}\n"),
        format!("{LOAD} succeeded, 0 failed, 0 errored, 0 timeout"),
        format!("({}) data", LOAD * LARGE_LEN),
    ] {
        ensure!(said.contains(&part), "no {part:?} in {said}");
    }
    Ok(())
}

/// The program gnutls-cli, which resumes a session and sends what it reads.
///
/// It waits no longer than two seconds for anything once its input has ended, which is too short on
/// a machine that does much else: the input stays open until it has gone by itself.
fn gnutls_cli(site: &Site, mut command: Command) -> Result<()> {
    let port = site.url.rsplit(':').next().context("a port")?;
    // With TLS 1.3 it resumes only what it has heard of within a moment.
    command.args(["--priority", "NORMAL:-VERS-TLS1.3"]);
    command.args(["--resume", "--port", port, "--x509cafile"]);
    command.arg(site.authority()).arg("localhost");
    let mut client = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = client.stdin.take().context("its input")?;
    input.write_all(b"GET /small HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let output = client.wait_with_output()?;
    drop(input);
    let said = String::from_utf8(output.stdout)?;
    for part in ["X-Reused: r\r\n", "\r\n\r\nsmall"] {
        ensure!(said.contains(part), "no {part:?} in {said}");
    }
    Ok(())
}

/// One client, if it is there; else it is skipped by name.
fn run((name, start, deeds): (&str, Start, Deeds), site: &Site) -> Result<()> {
    let Some(command) = start() else {
        skip("it is not installed: `cargo xtask setup`");
        return Ok(());
    };
    let outcome = match deeds {
        Deeds::Resuming(version) => run_tasks(site, version, &["again r"], command),
        Deeds::Tasks(version) => run_tasks(site, version, &[], command),
        Deeds::Curl(version) => curl(site, version, start),
        Deeds::H2load(version) => h2load(site, version, command),
        Deeds::Nghttp => nghttp(site, start),
        Deeds::GnutlsCli => gnutls_cli(site, command),
    };
    outcome.context(name.to_owned())
}

#[test]
fn each_client_gets_whole_answers_over_each_protocol() -> Result<()> {
    let origin = origin()?;
    let proxy = serve(&origin)?;
    let site = Site {
        url: format!("https://localhost:{}", proxy.port()),
        dir: proxy.dir().to_owned(),
    };
    let failed: Vec<String> = thread::scope(|scope| {
        let site = &site;
        let running = CLIENTS.map(|client| {
            // The name of a skipped test is that of its thread.
            let thread = thread::Builder::new().name(client.0.to_owned());
            thread.spawn_scoped(scope, move || run(client, site))
        });
        running
            .into_iter()
            .filter_map(|client| match client.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(outcome)) => outcome.err().map(|error| format!("{error:#}")),
                Ok(Err(_)) => Some("a client's thread panicked".to_owned()),
                Err(error) => Some(format!("no thread: {error}")),
            })
            .collect()
    });
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
