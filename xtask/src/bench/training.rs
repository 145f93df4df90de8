//! The work by which a build that counts learns what runs often: `cargo xtask release`.
//!
//! The work is what a busy edge does most: hits of small and large bodies, of one and of many
//! objects, validations, ranges, misses that are stored and that are not, over HTTP/1.1 with and
//! without encryption, over HTTP/2 and HTTP/3, and handshakes. Each kind runs for two seconds, so
//! that what is quick counts more often.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Kind, LogCheck, Origin, Proxy};

use super::encrypted::{self, LARGE, SMALL, Work};
use super::{http3, load};
use crate::store_bench::stored::unique_paths;

const CONF: &str = "
%%GLOBALS%%
worker_processes 1;
events { worker_connections 16384; }
http {
    %%HTTP%%
    sendfile on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=bench:64m max_size=4g inactive=1h
                     use_temp_path=off;
    ssl_session_cache shared:sessions:10m;
    ssl_ecdh_curve X25519;
    upstream origin { server %%ORIGIN%%; keepalive 128; keepalive_requests 1000000000; }
    proxy_http_version 1.1;
    proxy_set_header Connection '';
    proxy_cache_valid 200 1h;
    ssl_certificate ecdsa.pem;
    ssl_certificate_key ecdsa.key;
    server {
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%PORT%% quic reuseport;
        listen 127.0.0.1:%%PORT_ECDSA%% ssl http2;
        access_log off;
        location / {
            proxy_pass http://origin;
            proxy_cache bench;
            proxy_cache_key $uri;
            add_header X-Cache-Status $upstream_cache_status;
        }
        location /plain/ { proxy_pass http://origin; }
    }
    server {
        listen 127.0.0.1:%%PORT_LOGGED%%;
        access_log %%DIR%%/access.log;
        location / {
            proxy_pass http://origin;
            proxy_cache bench;
        }
    }
}
";

/// The time of each kind of work.
const TIME: Duration = Duration::from_secs(2);
const CONNECTIONS: u32 = 64;

/// Works with a binary that counts, which leaves its counts in a folder when it ends.
pub(crate) fn run(binary: &Path, counts: &Path) -> Result<()> {
    let keys = encrypted::tempfile_dir()?;
    let outcome = work(binary, counts, &keys);
    fs::remove_dir_all(&keys)?;
    outcome
}

fn work(binary: &Path, counts: &Path, keys: &Path) -> Result<()> {
    encrypted::make_key(
        keys,
        "ecdsa",
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    )?;
    let origin = Origin::start()?;
    let sized = |len| Answer::new(200).body(vec![b'x'; len]);
    let stored = "max-age=36000";
    for (path, len) in [(SMALL, 1 << 10), ("/64k", 1 << 16), (LARGE, 1 << 20)] {
        origin.route(
            path,
            sized(len)
                .header("Cache-Control", stored)
                .header("ETag", "\"1\""),
        );
    }
    origin.route(
        "/plain/*",
        sized(1 << 10).header("Cache-Control", "no-store"),
    );
    origin.route("/*", sized(1 << 10).header("Cache-Control", stored));
    let mut builder = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .binary(binary)
        .variable(
            "LLVM_PROFILE_FILE",
            &counts.join("%p.profraw").to_string_lossy(),
        )
        .log_check(LogCheck::Off);
    for name in ["ecdsa.pem", "ecdsa.key"] {
        builder = builder.file(name, fs::read(keys.join(name))?);
    }
    let mut proxy = builder.start()?;
    for path in [SMALL, "/64k", LARGE] {
        Client::new(proxy.port()).get(path)?;
    }
    clear(&proxy)?;
    scripted(&proxy)?;
    encrypted(&proxy)?;
    for (path, len, streams) in [(SMALL, 1 << 10, 16), (LARGE, 1 << 20, 1)] {
        let work = http3::Work {
            path,
            len,
            connections: 8,
            streams,
        };
        http3::drive(work, proxy.port(), TIME)?;
    }
    proxy.quit().context("the server that counts")?;
    Ok(())
}

/// Hits over HTTP/1.1.
fn clear(proxy: &Proxy) -> Result<()> {
    for path in [SMALL, "/64k", LARGE] {
        load::run(proxy.port(), path, CONNECTIONS, TIME)?;
    }
    load::run(proxy.named_port("PORT_LOGGED"), SMALL, CONNECTIONS, TIME)?;
    for field in ["If-None-Match: \"1\"", "Range: bytes=5-14"] {
        load::run_with(proxy.port(), (LARGE, field), CONNECTIONS, TIME)?;
    }
    Ok(())
}

/// A path for each request: misses, then hits of many objects.
fn scripted(proxy: &Proxy) -> Result<()> {
    let paths = unique_paths(0)?;
    for _ in 0..2 {
        load::run_script(proxy, &paths, CONNECTIONS, TIME)?;
    }
    load::run(proxy.port(), "/plain/1k", CONNECTIONS, TIME)?;
    fs::remove_file(paths)?;
    Ok(())
}

fn encrypted(proxy: &Proxy) -> Result<()> {
    let (path, connections) = (SMALL, 16);
    let key = encrypted::ECDSA;
    for work in [
        Work::Http1 { path, connections },
        Work::Http1 {
            path: LARGE,
            connections,
        },
        Work::Http2 {
            path,
            connections,
            streams: 32,
        },
        Work::Http2 {
            path,
            connections,
            streams: 1,
        },
        Work::Http2 {
            path: LARGE,
            connections,
            streams: 1,
        },
        Work::Handshakes {
            key,
            options: &["-new"],
        },
        Work::Handshakes {
            key,
            options: &["-reuse"],
        },
    ] {
        encrypted::drive(work, proxy, TIME)?;
    }
    Ok(())
}
