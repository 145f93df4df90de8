//! CPU time for each byte that is stored, against nginx on the same configuration in the same run.
//!
//! Every request is for a body of a mebibyte that nobody asked for before; the zone is full soon,
//! so the figure holds eviction, too. Both servers run at once with one worker; rounds alternate.
//! What a server did not store does not count: some bodies of a round, spread over the newest of
//! which all would still be there, are asked for again, and the share of hits among them is taken
//! for the share of what was stored.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};

use crate::bench::rounds::Rounds;
use crate::bench::{cpu, load};
use crate::tally::Tally;

const CONF: &str = r"
%%GLOBALS%%
worker_processes 1;
events { worker_connections 4096; }
http {
    %%HTTP%%
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=bench:10m max_size=1g inactive=1h
                     use_temp_path=off;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_cache bench;
            proxy_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status;
        }
    }
}
";

const CONNECTIONS: u32 = 8;
const BODY: usize = 1 << 20;
/// Bodies that are asked for again: few, since a zone keeps what is asked for again.
const SAMPLE: u64 = 40;
/// The newest bodies, which fit the zone however many of a round are stored.
const NEWEST: u64 = 800;

/// Milliseconds of CPU for a stored gibibyte, of nginx and of Millpond: their ratio is at least 1.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let rounds = Rounds::from_args(args, 3)?;
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Content-Type", "video/mp4");
    origin.route("/*", answer.body(vec![b'x'; BODY]));
    let nginx = Proxy::new(Kind::Nginx, CONF).origin(&origin).start()?;
    let millpond = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    rounds.run(("a stored GiB", "ms/GiB", 1.0), |round| {
        let theirs = cost(&nginx, round, rounds.time)?;
        let ours = cost(&millpond, round, rounds.time)?;
        origin.forget_requests();
        Ok((theirs, ours))
    })
}

/// Milliseconds of the server for a gibibyte.
fn cost(proxy: &Proxy, round: usize, time: Duration) -> Result<f64> {
    let pid = proxy.pid().context("the server is not running")?;
    cpu::pin(pid, cpu::SERVER_CORE)?;
    let script = unique_paths(round)?;
    let before = cpu::spent(pid)?;
    let bodies = load::run_script(proxy, &script, CONNECTIONS, time)?;
    let spent = cpu::spent(pid)? - before;
    std::fs::remove_file(script)?;
    let share = share_of_hits(proxy, round, bodies)?;
    println!(
        "  {:?}: {bodies} bodies, {:.0} % stored",
        proxy.kind(),
        share * 100.0
    );
    let stored = bodies as f64 * share;
    Ok(spent.as_secs_f64() * 1e3 * 1024.0 / stored)
}

/// The part of the newest bodies of a round that is stored.
pub(crate) fn share_of_hits(proxy: &Proxy, round: usize, bodies: u64) -> Result<f64> {
    // The last ones were cut off by the end of the round.
    let newest = bodies.saturating_sub(NEWEST)..bodies.saturating_sub(u64::from(CONNECTIONS));
    let newest = newest.step_by((NEWEST / SAMPLE) as usize);
    let client = Client::new(proxy.port());
    let (mut hits, mut asked) = (0, 0);
    for number in newest {
        let response = client.get(&format!("/{round}/{number}"))?;
        hits += u64::from(response.header("X-Cache") == Some("HIT"));
        asked += 1;
    }
    ensure!(hits > 0, "nothing was stored");
    Ok(hits as f64 / asked as f64)
}

/// A script for wrk that asks for other paths than any round before.
pub(crate) fn unique_paths(round: usize) -> Result<PathBuf> {
    let name = format!("millpond-unique-{}-{round}.lua", std::process::id());
    let path = std::env::temp_dir().join(name);
    let script = format!(
        "local count = 0\nrequest = function()\n  count = count + 1\n  \
         return wrk.format('GET', '/{round}/' .. count)\nend\n"
    );
    std::fs::write(&path, script)?;
    Ok(path)
}
