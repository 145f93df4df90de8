//! `cargo xtask bench tls`: what encrypted requests and handshakes cost, over HTTP/1.1 and HTTP/2,
//! against nginx on the system's OpenSSL.
//!
//! Both servers run at once on one configuration with one worker each, on one core; rounds
//! alternate. Requests are for objects that are stored, by wrk and by h2load; a handshake is a
//! connection of `openssl s_time` with one request on it. Idle connections are rustls's, which ask
//! once and keep their connection.
//!
//! Versions and the group of the key exchange are given, so that both do the same work: before
//! 1.23.4 nginx speaks TLS 1.3 only if told, and OpenSSL before 3.5 has no X25519MLKEM768.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Kind, LogCheck, Origin, Proxy};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use super::cpu::CLIENT_CORE;
use super::idle::resident;
use super::line::{Line, Wanted};
use super::load;
use super::options::Options;
use super::rounds::{Rounds, spent};
use crate::tally::Tally;

/// A server of each kind of key, and one without encryption, by which objects get stored.
const CONF: &str = "
%%GLOBALS%%
worker_processes 1;
events { worker_connections 16384; }
http {
    %%HTTP%%
    access_log off;
    sendfile on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=bench:64m max_size=1g inactive=1h
                     use_temp_path=off;
    open_file_cache max=1000 inactive=1h;
    open_file_cache_valid 1h;
    ssl_session_cache shared:sessions:10m;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ecdh_curve X25519;
    server {
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%PORT_ECDSA%% ssl http2;
        ssl_certificate ecdsa.pem;
        ssl_certificate_key ecdsa.key;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache bench;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1h;
        }
    }
    server {
        listen 127.0.0.1:%%PORT_RSA%% ssl http2;
        ssl_certificate rsa.pem;
        ssl_certificate_key rsa.key;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache bench;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1h;
        }
    }
}
";

pub(super) const SMALL: &str = "/1k";
pub(super) const LARGE: &str = "/1m";

/// The work of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Requests over kept connections of HTTP/1.1.
    Http1 {
        path: &'static str,
        connections: u32,
    },
    /// Requests over connections of HTTP/2, of which each has so many streams.
    Http2 {
        path: &'static str,
        connections: u32,
        streams: u32,
    },
    /// Connections with a request each, to the server of a key.
    Handshakes {
        key: &'static str,
        /// The options of `openssl s_time`.
        options: &'static [&'static str],
    },
}

/// A row of the table.
struct Row {
    name: &'static str,
    work: Work,
    /// nginx's CPU time over Millpond's, at least.
    bound: f64,
}

pub(super) const ECDSA: &str = "PORT_ECDSA";
const RSA: &str = "PORT_RSA";

const ROWS: [Row; 10] = [
    Row {
        name: "TLS, HTTP/1.1, 1 KiB, 64 connections",
        work: Work::Http1 {
            path: SMALL,
            connections: 64,
        },
        bound: 2.1,
    },
    Row {
        name: "TLS, HTTP/1.1, 1 MiB, 16 connections",
        work: Work::Http1 {
            path: LARGE,
            connections: 16,
        },
        bound: 2.0,
    },
    Row {
        name: "TLS 1.3 handshake, ECDSA P-256",
        work: Work::Handshakes {
            key: ECDSA,
            options: &["-new"],
        },
        bound: 2.0,
    },
    Row {
        name: "TLS 1.3 handshake, RSA 2048",
        work: Work::Handshakes {
            key: RSA,
            options: &["-new"],
        },
        bound: 1.3,
    },
    Row {
        name: "TLS 1.3 handshake, resumed",
        work: Work::Handshakes {
            key: ECDSA,
            options: &["-reuse"],
        },
        bound: 1.7,
    },
    Row {
        name: "TLS 1.2 handshake, ECDSA P-256",
        work: Work::Handshakes {
            key: ECDSA,
            options: &["-new", "-tls1_2"],
        },
        bound: 0.0,
    },
    Row {
        name: "TLS 1.2 handshake, resumed",
        work: Work::Handshakes {
            key: ECDSA,
            options: &["-reuse", "-tls1_2"],
        },
        bound: 0.0,
    },
    Row {
        name: "TLS, HTTP/2, 1 KiB, 16 connections × 32 streams",
        work: Work::Http2 {
            path: SMALL,
            connections: 16,
            streams: 32,
        },
        bound: 4.0,
    },
    Row {
        name: "TLS, HTTP/2, 1 KiB, 16 connections × 1 stream",
        work: Work::Http2 {
            path: SMALL,
            connections: 16,
            streams: 1,
        },
        bound: 1.7,
    },
    Row {
        name: "TLS, HTTP/2, 1 MiB, 16 connections × 1 stream",
        work: Work::Http2 {
            path: LARGE,
            connections: 16,
            streams: 1,
        },
        bound: 2.0,
    },
];

/// The most that an idle connection may hold, bytes: over HTTP/1.1, and over HTTP/2.
const IDLE_BOUNDS: [(&str, &[u8], f64); 2] = [
    ("TLS, HTTP/1.1", b"http/1.1", 10.0 * 1024.0),
    ("TLS, HTTP/2", b"h2", 12.0 * 1024.0),
];

/// Measures the rows; one below its bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let keys = tempfile_dir()?;
    let outcome = run_with(options, &keys);
    fs::remove_dir_all(&keys)?;
    outcome
}

fn run_with(options: &Options, keys: &Path) -> Result<Tally> {
    let origin = Origin::start()?;
    for (path, len) in [(SMALL, 1 << 10), (LARGE, 1 << 20)] {
        let answer = Answer::new(200).header("Cache-Control", "max-age=36000");
        origin.route(path, answer.body(vec![b'x'; len]));
    }
    make_key(
        keys,
        "ecdsa",
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    )?;
    make_key(keys, "rsa", &["rsa:2048"])?;
    let start = |kind| start(kind, &origin, keys);
    let (nginx, millpond) = (start(Kind::Nginx)?, start(Kind::Millpond)?);
    let mut sum = Tally::default();
    let is_wanted = |name: &str| options.row.as_deref().is_none_or(|it| name.contains(it));
    for row in ROWS.iter().filter(|row| is_wanted(row.name)) {
        sum += measure(row, [&nginx, &millpond], options)?;
    }
    drop((nginx, millpond));
    for (name, protocol, bound) in IDLE_BOUNDS {
        let row = format!("{name}, memory of idle connections");
        if is_wanted(&row) {
            let held = |kind| held(&start(kind)?, protocol, options.connections(10_000));
            let line = Line {
                row,
                unit: "bytes each",
                nginx: Some(held(Kind::Nginx)?),
                millpond: held(Kind::Millpond)?,
                wanted: Wanted::AtMost(bound),
            };
            sum += line.print();
        }
    }
    Ok(sum)
}

pub(super) fn tempfile_dir() -> Result<std::path::PathBuf> {
    let name = format!("millpond-bench-tls-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// A key and a certificate of its own, by the program openssl.
pub(super) fn make_key(keys: &Path, name: &str, kind: &[&str]) -> Result<()> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "30", "-subj"])
        .args(["/CN=bench.example", "-newkey"])
        .args(kind)
        .arg("-keyout")
        .arg(keys.join(format!("{name}.key")))
        .arg("-out")
        .arg(keys.join(format!("{name}.pem")))
        .output()
        .context("openssl is not installed")?;
    let said = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "openssl failed: {said}");
    Ok(())
}

/// A server that has both objects.
fn start(kind: Kind, origin: &Origin, keys: &Path) -> Result<Proxy> {
    let mut builder = Proxy::new(kind, CONF)
        .origin(origin)
        .log_check(LogCheck::Off);
    for name in ["ecdsa.pem", "ecdsa.key", "rsa.pem", "rsa.key"] {
        builder = builder.file(name, fs::read(keys.join(name))?);
    }
    let proxy = builder.start()?;
    for path in [SMALL, LARGE] {
        Client::new(proxy.port()).get(path)?;
    }
    Ok(proxy)
}

fn measure(row: &Row, servers: [&Proxy; 2], options: &Options) -> Result<Tally> {
    let rounds = Rounds::of(options, 2);
    let costs = rounds.run(row.name, |_| {
        let mut costs = [0.0; 2];
        for (cost, proxy) in costs.iter_mut().zip(servers) {
            let (count, spent) = spent(proxy, || drive(row.work, proxy, rounds.time))?;
            *cost = spent.as_secs_f64() * 1e6 / count as f64;
        }
        Ok((costs[0], costs[1]))
    })?;
    Ok(Line::of_rounds(row.name, "µs", row.bound, &costs).print())
}

/// Drives a server for a time: how many requests or handshakes it has done.
pub(super) fn drive(work: Work, proxy: &Proxy, time: Duration) -> Result<u64> {
    match work {
        Work::Http1 { path, connections } => {
            let url = format!("https://127.0.0.1:{}{path}", proxy.named_port(ECDSA));
            load::run_url(&url, connections, time)
        }
        Work::Http2 {
            path,
            connections,
            streams,
        } => {
            let url = format!("https://127.0.0.1:{}{path}", proxy.named_port(ECDSA));
            h2load(&url, (connections, streams), time)
        }
        Work::Handshakes { key, options } => s_time(proxy.named_port(key), options, time),
    }
}

fn on_its_core(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", CLIENT_CORE, program]);
    command
}

/// Requests of h2load, each answered with 200.
fn h2load(url: &str, (connections, streams): (u32, u32), time: Duration) -> Result<u64> {
    let output = on_its_core("h2load")
        .args(["-c", &connections.to_string(), "-m", &streams.to_string()])
        .args(["-D", &time.as_secs().to_string(), url])
        .output()
        .context("h2load is not installed (Debian package nghttp2-client)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find(|line| line.starts_with("requests: "))
        .with_context(|| format!("no count in the output of h2load:\n{text}"))?;
    let of = |word: &str| -> Result<u64> {
        let part = line.split([',', ':']).find(|part| part.contains(word));
        let digits = part.and_then(|part| part.trim().split(' ').next());
        Ok(digits.with_context(|| line.to_owned())?.parse()?)
    };
    ensure!(of("failed")? == 0 && of("succeeded")? > 0, "{line}");
    of("succeeded")
}

/// Connections of `openssl s_time`, each with a request.
fn s_time(port: u16, options: &[&str], time: Duration) -> Result<u64> {
    let output = on_its_core("openssl")
        .args(["s_time", "-connect", &format!("127.0.0.1:{port}")])
        .args(["-www", SMALL, "-time", &time.as_secs().to_string()])
        .args(options)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A letter for each connection: r where the session was resumed.
    let marks: String = text
        .lines()
        .filter(|line| line.chars().all(|mark| "rtT*36".contains(mark)))
        .collect();
    let resumed = marks.chars().filter(|mark| *mark == 'r').count();
    let wanted = if options.contains(&"-reuse") {
        marks.len()
    } else {
        0
    };
    ensure!(!marks.is_empty() && resumed == wanted, "{text}");
    Ok(marks.len() as u64)
}

/// Bytes by which the server grows with each idle connection, after the first tenth of them.
fn held(proxy: &Proxy, protocol: &[u8], wanted: usize) -> Result<f64> {
    let mut config = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let config = Arc::new(config);
    let mut open = Vec::new();
    let mut before = 0;
    while open.len() < wanted {
        if open.len() == wanted / 10 {
            before = resident(proxy)?;
        }
        open.push(idle(proxy.named_port(ECDSA), &config)?);
    }
    let growth = resident(proxy)?.saturating_sub(before);
    Ok(growth as f64 / (wanted - wanted / 10) as f64)
}

/// A connection that has had the small object.
fn idle(port: u16, config: &Arc<ClientConfig>) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let name = ServerName::try_from("bench.example")?;
    let connection = ClientConnection::new(Arc::clone(config), name)?;
    let mut stream = StreamOwned::new(connection, socket);
    let request = match config.alpn_protocols.first().map(Vec::as_slice) {
        Some(b"h2") => HTTP2_REQUEST,
        _ => b"GET /1k HTTP/1.1\r\nHost: bench.example\r\n\r\n".as_slice(),
    };
    stream.write_all(request)?;
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    let body = [b'x'; 1 << 10];
    while !heard.ends_with(&body) {
        let count = stream.read(&mut piece)?;
        ensure!(count > 0, "the server closed a connection");
        heard.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Ok(stream)
}

/// The preface of HTTP/2, empty settings, and a GET of the small object on the first stream.
const HTTP2_REQUEST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x16\x01\x05\x00\x00\x00\x01\
    \x82\x87\x04\x03/1k\x01\x0dbench.example";

/// A verifier to which each certificate is right: the servers are the benchmark's own.
#[derive(Debug)]
pub(super) struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
