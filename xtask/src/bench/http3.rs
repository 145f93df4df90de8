//! `cargo xtask bench http3`: what requests over HTTP/3 cost, against an nginx that speaks it.
//!
//! Both servers run at once on one configuration with one worker each, on one core; rounds
//! alternate. The client is `quinn` with `h3` in this very process, on the core that the servers do
//! not have. It is the same for both, but a slow one sends each request in a packet of its own:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=2` builds it with optimisation.
//!
//! `NGINX_BIN` names an nginx of 1.25 or later with `--with-http_v3_module`; Debian 12's is older.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use millpond_testkit::{Answer, Client, Kind, LogCheck, Origin, Proxy};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use tokio::task::JoinSet;

use super::cpu::{self, CLIENT_CORE};
use super::encrypted::{Anyone, LARGE, SMALL, make_key, tempfile_dir};
use super::line::Line;
use super::options::Options;
use super::rounds::{Rounds, spent};
use crate::tally::Tally;

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
    quic_gso on;
    server {
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%PORT%% quic reuseport;
        ssl_certificate ecdsa.pem;
        ssl_certificate_key ecdsa.key;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache bench;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1h;
        }
    }
}
";

/// The requests of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) path: &'static str,
    /// Bytes of the answer's body.
    pub(super) len: usize,
    pub(super) connections: usize,
    /// Streams of each connection at a time.
    pub(super) streams: usize,
}

/// A row of the table.
struct Row {
    name: &'static str,
    work: Work,
    /// nginx's CPU time over Millpond's, at least.
    bound: f64,
}

const ROWS: [Row; 3] = [
    Row {
        name: "HTTP/3, 1 KiB, 8 connections × 16 streams",
        work: Work {
            path: SMALL,
            len: 1 << 10,
            connections: 8,
            streams: 16,
        },
        bound: 1.8,
    },
    Row {
        name: "HTTP/3, 1 KiB, 8 connections × 1 stream",
        work: Work {
            path: SMALL,
            len: 1 << 10,
            connections: 8,
            streams: 1,
        },
        bound: 0.0,
    },
    Row {
        name: "HTTP/3, 1 MiB, 8 connections × 1 stream",
        work: Work {
            path: LARGE,
            len: 1 << 20,
            connections: 8,
            streams: 1,
        },
        bound: 1.0,
    },
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
    for row in ROWS {
        let answer = Answer::new(200).header("Cache-Control", "max-age=36000");
        origin.route(row.work.path, answer.body(vec![b'x'; row.work.len]));
    }
    make_key(
        keys,
        "ecdsa",
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    )?;
    let start = |kind| start(kind, &origin, keys);
    let nginx = start(Kind::Nginx).context("NGINX_BIN must name an nginx with HTTP/3")?;
    let millpond = start(Kind::Millpond)?;
    // Threads that are made from here on are the client's; servers are pinned in each round.
    cpu::pin(std::process::id(), CLIENT_CORE)?;
    let mut sum = Tally::default();
    let is_wanted = |name: &str| options.row.as_deref().is_none_or(|it| name.contains(it));
    for row in ROWS.iter().filter(|row| is_wanted(row.name)) {
        sum += measure(row, [&nginx, &millpond], options)?;
    }
    Ok(sum)
}

/// A server that has both objects.
fn start(kind: Kind, origin: &Origin, keys: &Path) -> Result<Proxy> {
    let mut builder = Proxy::new(kind, CONF)
        .origin(origin)
        .log_check(LogCheck::Off);
    for name in ["ecdsa.pem", "ecdsa.key"] {
        builder = builder.file(name, fs::read(keys.join(name))?);
    }
    let proxy = builder.start()?;
    for path in [SMALL, LARGE] {
        Client::new(proxy.port()).get(path)?;
    }
    Ok(proxy)
}

fn measure(row: &Row, servers: [&Proxy; 2], options: &Options) -> Result<Tally> {
    let rounds = Rounds::of(options, 3);
    let costs = rounds.run(row.name, |_| {
        let mut costs = [0.0; 2];
        for (cost, proxy) in costs.iter_mut().zip(servers) {
            let (count, spent) = spent(proxy, || drive(row.work, proxy.port(), rounds.time))
                .with_context(|| format!("{:?} says:\n{}", proxy.kind(), proxy.error_log()))?;
            *cost = spent.as_secs_f64() * 1e6 / count as f64;
        }
        Ok((costs[0], costs[1]))
    })?;
    Ok(Line::of_rounds(row.name, "µs", row.bound, &costs).print())
}

/// Asks for an object for a time: how many answers have come, each of them whole.
pub(super) fn drive(work: Work, port: u16, time: Duration) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let end = Instant::now() + time;
        let mut streams = JoinSet::new();
        let mut open = Vec::new();
        for _ in 0..work.connections {
            let (endpoint, send) = connect(port).await?;
            open.push(endpoint);
            for _ in 0..work.streams {
                streams.spawn(ask(send.clone(), work, end));
            }
        }
        let mut sum = 0;
        while let Some(count) = streams.join_next().await {
            sum += count??;
        }
        ensure!(sum > 0, "no request was answered");
        for endpoint in open {
            endpoint.close(0_u32.into(), b"");
            endpoint.wait_idle().await;
        }
        Ok(sum)
    })
}

/// One request after the other until the time is over.
async fn ask(mut send: SendRequest<OpenStreams, Bytes>, work: Work, end: Instant) -> Result<u64> {
    let (uri, len) = (format!("https://bench.example{}", work.path), work.len);
    let mut count = 0;
    while Instant::now() < end {
        let request = http::Request::get(&uri).body(())?;
        let mut stream = send.send_request(request).await?;
        stream.finish().await?;
        let status = stream.recv_response().await?.status();
        let mut read = 0;
        while let Some(mut piece) = stream.recv_data().await? {
            read += piece.remaining();
            piece.advance(piece.remaining());
        }
        ensure!(status == 200 && read == len, "{status} with {read} bytes");
        count += 1;
    }
    Ok(count)
}

async fn connect(port: u16) -> Result<(Endpoint, SendRequest<OpenStreams, Bytes>)> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    endpoint.set_default_client_config(config);
    let address = ([127, 0, 0, 1], port).into();
    let quic = endpoint.connect(address, "bench.example")?.await?;
    // nginx takes a reserved frame before the end of a request for a request that is cut off.
    let (mut driver, send) = h3::client::builder()
        .send_grease(false)
        .build(h3_quinn::Connection::new(quic))
        .await?;
    tokio::spawn(async move { driver.wait_idle().await });
    Ok((endpoint, send))
}
