//! `cargo xtask bench stream`: CPU of connections that are passed on as they are (`stream`),
//! against nginx.
//!
//! What is passed is HTTP on connections that stay: small requests, and bodies of a mebibyte. Both
//! servers have one worker, on one core; rounds alternate. The origin is in this process and costs
//! neither.

use anyhow::Result;
use millpond_testkit::{Answer, Kind, Origin, Proxy};

use super::line::Line;
use super::load;
use super::options::Options;
use super::rounds::{Rounds, spent};
use crate::tally::Tally;

const CONF: &str = "
%%GLOBALS%%
worker_processes 1;
events { worker_connections 4096; }
stream {
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_pass %%ORIGIN%%;
        tcp_nodelay on;
    }
}
";

/// A row of the table.
struct Row {
    name: &'static str,
    path: &'static str,
    connections: u32,
}

const ROWS: [Row; 2] = [
    Row {
        name: "stream, 1 KiB at a time, 64 connections",
        path: "/small",
        connections: 64,
    },
    Row {
        name: "stream, 1 MiB at a time, 16 connections",
        path: "/large",
        connections: 16,
    },
];

/// Measures the rows. Nothing is wanted of them.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let rounds = Rounds::of(options, 2);
    let origin = Origin::start()?;
    origin.route("/small", Answer::new(200).body(vec![b'x'; 1 << 10]));
    origin.route("/large", Answer::new(200).body(vec![b'x'; 1 << 20]));
    let start = |kind| Proxy::new(kind, CONF).origin(&origin).start();
    let (nginx, millpond) = (start(Kind::Nginx)?, start(Kind::Millpond)?);
    let mut sum = Tally::default();
    for row in &ROWS {
        let costs = rounds.run(row.name, |_| {
            let costs = (cost(&nginx, row, &rounds)?, cost(&millpond, row, &rounds)?);
            origin.forget_requests();
            Ok(costs)
        })?;
        sum += Line::of_rounds(row.name, "µs", 0.0, &costs).print();
    }
    Ok(sum)
}

/// CPU microseconds of the server for a request.
fn cost(proxy: &Proxy, row: &Row, rounds: &Rounds) -> Result<f64> {
    let drive = || load::run(proxy.port(), row.path, row.connections, rounds.time);
    let (requests, spent) = spent(proxy, drive)?;
    Ok(spent.as_secs_f64() * 1e6 / requests as f64)
}
