//! `cargo xtask bench misses`: CPU of misses of a kibibyte, against nginx: of one that is not
//! stored, of one that is, and of a request that no cache is asked for.
//!
//! Every request is for another path; connections to the origin are kept. Both servers run at once
//! on one configuration with one worker each, on one core; rounds alternate. What a large stored
//! body costs is `cargo xtask store-bench stored`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use millpond_testkit::{Answer, Kind, Origin, Proxy};

use super::conf::Conf;
use super::line::Line;
use super::load;
use super::options::Options;
use super::rounds::{Rounds, spent};
use crate::store_bench::stored::unique_paths;
use crate::tally::Tally;

const KEPT: &str = "access_log off; sendfile on;
    upstream origin { server %%ORIGIN%%; keepalive 128; keepalive_requests 1000000000; }";

const CONNECTIONS: u32 = 64;
const BODY: usize = 1 << 10;

/// A row of the table.
struct Row {
    name: &'static str,
    /// The origin's fields about storing.
    cache_control: &'static str,
    /// The line that stands in the place of the one that names the cache.
    cache: &'static str,
    /// nginx's CPU time over Millpond's, at least; 0 where nothing is wanted.
    bound: f64,
}

const CACHE: &str = "proxy_cache bench;";

const ROWS: [Row; 3] = [
    Row {
        name: "miss, 1 KiB, connections kept, not stored",
        cache_control: "no-store",
        cache: CACHE,
        bound: 1.3,
    },
    Row {
        name: "miss, 1 KiB, connections kept, stored",
        cache_control: "max-age=3600",
        cache: CACHE,
        bound: 0.0,
    },
    Row {
        name: "1 KiB, connections kept, without a cache",
        cache_control: "no-store",
        cache: "",
        bound: 0.0,
    },
];

/// Measures the rows; fails if one is below its bound.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let mut sum = Tally::default();
    for row in &ROWS {
        sum += measure(row, options)?;
    }
    Ok(sum)
}

fn measure(row: &Row, options: &Options) -> Result<Tally> {
    let rounds = Rounds::of(options, 2);
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Cache-Control", row.cache_control);
    origin.route("/*", answer.body(vec![b'x'; BODY]));
    let conf = Conf {
        http: KEPT,
        pass: "http://origin",
        ..Conf::default()
    };
    let text = conf.text().replace(CACHE, row.cache);
    let start = |kind| Proxy::new(kind, &text).origin(&origin).start();
    let (nginx, millpond) = (start(Kind::Nginx)?, start(Kind::Millpond)?);
    let costs = rounds.run(row.name, |round| {
        let script = unique_paths(round)?;
        let theirs = cost(&nginx, &script, rounds.time)?;
        let ours = cost(&millpond, &script, rounds.time)?;
        std::fs::remove_file(script)?;
        origin.forget_requests();
        Ok((theirs, ours))
    })?;
    Ok(Line::of_rounds(row.name, "µs", row.bound, &costs).print())
}

/// CPU microseconds of the server for a request.
fn cost(proxy: &Proxy, script: &Path, time: Duration) -> Result<f64> {
    let drive = || load::run_script(proxy, script, CONNECTIONS, time);
    let (requests, spent) = spent(proxy, drive)?;
    Ok(spent.as_secs_f64() * 1e6 / requests as f64)
}
