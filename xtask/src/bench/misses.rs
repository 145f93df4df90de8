//! `cargo xtask bench misses`: CPU of a miss that is not stored, against nginx.
//!
//! Every request is for another path of a kibibyte whose answer says `no-store`; connections to the
//! origin are kept. Both servers run at once on one configuration with one worker each, on one
//! core; rounds alternate. What a stored body costs is `cargo xtask store-bench stored`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Kind, Origin, Proxy};

use super::rounds::Rounds;
use super::{cpu, load};
use crate::store_bench::stored::unique_paths;
use crate::tally::Tally;

const CONF: &str = r"
%%GLOBALS%%
worker_processes 1;
events { worker_connections 4096; }
http {
    %%HTTP%%
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    proxy_cache_path %%DIR%%/cache keys_zone=bench:10m max_size=1g inactive=1h;
    upstream origin {
        server %%ORIGIN%%;
        keepalive 128;
        keepalive_requests 1000000000;
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_cache bench;
            proxy_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status;
        }
    }
}
";

const CONNECTIONS: u32 = 64;
const BODY: usize = 1 << 10;
/// nginx's CPU time over Millpond's, at least.
const BOUND: f64 = 1.3;

/// Measures the row; fails below its bound.
pub(super) fn run(args: &[String]) -> Result<Tally> {
    let rounds = Rounds::from_args(args, 2)?;
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Cache-Control", "no-store");
    origin.route("/*", answer.body(vec![b'x'; BODY]));
    let nginx = Proxy::new(Kind::Nginx, CONF).origin(&origin).start()?;
    let millpond = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let row = ("a miss of 1 KiB, not stored", "us a request", BOUND);
    rounds.run(row, |round| {
        let script = unique_paths(round)?;
        let theirs = cost(&nginx, &script, rounds.time)?;
        let ours = cost(&millpond, &script, rounds.time)?;
        std::fs::remove_file(script)?;
        origin.forget_requests();
        Ok((theirs, ours))
    })
}

/// CPU microseconds of the server for a request.
fn cost(proxy: &Proxy, script: &Path, time: Duration) -> Result<f64> {
    let pid = proxy.pid().context("the server is not running")?;
    cpu::pin(pid, cpu::SERVER_CORE)?;
    let before = cpu::spent(pid)?;
    let requests = load::run_script(proxy, script, CONNECTIONS, time)?;
    let spent = cpu::spent(pid)? - before;
    Ok(spent.as_secs_f64() * 1e6 / requests as f64)
}
