//! `cargo xtask bench`: hits per CPU second of Millpond against nginx, on one configuration.
//!
//! Both servers run at once with one worker each, pinned to the first core; the client (wrk) and
//! the origin have the other. Rounds alternate between the servers, so that drift of the machine
//! meets both. A row's figure is the CPU time that the server spent, user and system, for each
//! request; the ratio is nginx's over Millpond's: above 1, Millpond needs less.
//!
//! `cargo xtask bench sites` compares Millpond with itself: `sites.rs`.

pub(crate) mod cpu;
pub(crate) mod load;
mod sites;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use millpond_testkit::{Answer, Kind, Origin, Proxy};

use crate::tally::Tally;

const CONF: &str = r"
%%GLOBALS%%
worker_processes 1;
events { worker_connections 4096; }
http {
    %%HTTP%%
    access_log %%LOG%%;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    proxy_cache_path %%DIR%%/cache keys_zone=bench:10m max_size=1g inactive=1h;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache bench;
            proxy_cache_valid 200 1h;
            add_header X-Cache-Status $upstream_cache_status;
        }
    }
}
";

/// One row of the table.
struct Row {
    name: &'static str,
    path: &'static str,
    body_bytes: usize,
    connections: u32,
}

const ROWS: &[Row] = &[
    Row {
        name: "1 KiB",
        path: "/1k",
        body_bytes: 1 << 10,
        connections: 64,
    },
    Row {
        name: "1 KiB, 1000 connections",
        path: "/1k",
        body_bytes: 1 << 10,
        connections: 1000,
    },
    Row {
        name: "64 KiB",
        path: "/64k",
        body_bytes: 64 << 10,
        connections: 64,
    },
    Row {
        // Few connections, so that a short run on a busy machine ends enough of them.
        name: "10 MiB",
        path: "/10m",
        body_bytes: 10 << 20,
        connections: 8,
    },
];

/// Options of the task.
struct Options {
    rounds: usize,
    seconds: u64,
    only: Option<String>,
    /// What stands behind `access_log`: off, or a file below the server's directory.
    log: String,
}

/// Runs the table; a row below 1.0 counts as failed.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    if let Some(("sites", rest)) = args
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return sites::run(rest);
    }
    let options = options(args)?;
    let origin = Origin::start()?;
    for row in ROWS {
        let body = vec![b'x'; row.body_bytes];
        origin.route(
            row.path,
            Answer::new(200)
                .header("Content-Type", "text/plain")
                .body(body),
        );
    }
    let conf = CONF.replace("%%LOG%%", &options.log);
    let nginx = Proxy::new(Kind::Nginx, &conf).origin(&origin).start()?;
    let millpond = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
    println!(
        "hot hits, CPU µs a request (median of {} rounds of {} s)\n",
        options.rounds, options.seconds
    );
    println!(
        "{:<26} {:>10} {:>10} {:>8} {:>16}",
        "row", "nginx", "millpond", "ratio", "spread"
    );
    let mut tally = Tally::default();
    for row in ROWS {
        if options
            .only
            .as_deref()
            .is_some_and(|only| !row.name.contains(only))
        {
            continue;
        }
        let outcome = measure(row, &nginx, &millpond, &options)?;
        println!("{outcome}");
        tally += if outcome.ratio >= 1.0 {
            Tally::PASS
        } else {
            Tally::FAIL
        };
    }
    Ok(tally)
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        rounds: 5,
        seconds: 2,
        only: None,
        log: "off".to_owned(),
    };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let value = rest
            .next()
            .with_context(|| format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
            "--seconds" => options.seconds = value.parse::<u64>()?.max(1),
            "--log" => options.log = format!("%%DIR%%/{value}"),
            "--row" => options.only = Some(value.clone()),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(options)
}

/// A row's result.
struct Outcome {
    name: &'static str,
    nginx_us: f64,
    millpond_us: f64,
    ratio: f64,
    lowest: f64,
    highest: f64,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let spread = format!("{:.2} to {:.2}", self.lowest, self.highest);
        write!(
            f,
            "{:<26} {:>10.2} {:>10.2} {:>8.2} {:>16}",
            self.name, self.nginx_us, self.millpond_us, self.ratio, spread
        )
    }
}

fn measure(row: &Row, nginx: &Proxy, millpond: &Proxy, options: &Options) -> Result<Outcome> {
    for proxy in [nginx, millpond] {
        // The first request fills, the rest of the short run warms.
        load::run(proxy, row.path, row.connections, Duration::from_secs(1))?;
    }
    let mut pairs = Vec::new();
    for _ in 0..options.rounds {
        let seconds = Duration::from_secs(options.seconds);
        let nginx_us = cost(row, nginx, seconds)?;
        let millpond_us = cost(row, millpond, seconds)?;
        pairs.push((nginx_us, millpond_us));
    }
    let ratios = sorted(pairs.iter().map(|(nginx, millpond)| nginx / millpond));
    let middle = ratios.len() / 2;
    Ok(Outcome {
        name: row.name,
        nginx_us: sorted(pairs.iter().map(|pair| pair.0))[middle],
        millpond_us: sorted(pairs.iter().map(|pair| pair.1))[middle],
        ratio: ratios[middle],
        lowest: ratios[0],
        highest: ratios[ratios.len() - 1],
    })
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// CPU microseconds of the server for a request.
fn cost(row: &Row, proxy: &Proxy, time: Duration) -> Result<f64> {
    let pid = proxy.pid().context("the server is not running")?;
    cpu::pin(pid, cpu::SERVER_CORE)?;
    let before = cpu::spent(pid)?;
    let requests = load::run(proxy, row.path, row.connections, time)?;
    let spent = cpu::spent(pid)? - before;
    Ok(spent.as_secs_f64() * 1e6 / requests as f64)
}
