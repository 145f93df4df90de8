//! `cargo xtask bench misses`: CPU of a miss that is not stored, against nginx.
//!
//! Every request is for another path of a kibibyte whose answer says `no-store`; connections to the
//! origin are kept. Both servers run at once on one configuration with one worker each, on one
//! core; rounds alternate. What a stored body costs is `cargo xtask store-bench stored`.

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
/// nginx's CPU time over Millpond's, at least.
const BOUND: f64 = 1.3;

/// Measures the row; fails below its bound.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let rounds = Rounds::of(options, 2);
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Cache-Control", "no-store");
    origin.route("/*", answer.body(vec![b'x'; BODY]));
    let conf = Conf {
        http: KEPT,
        pass: "http://origin",
        ..Conf::default()
    };
    let start = |kind| Proxy::new(kind, &conf.text()).origin(&origin).start();
    let (nginx, millpond) = (start(Kind::Nginx)?, start(Kind::Millpond)?);
    let costs = rounds.run("a miss of 1 KiB, not stored", |round| {
        let script = unique_paths(round)?;
        let theirs = cost(&nginx, &script, rounds.time)?;
        let ours = cost(&millpond, &script, rounds.time)?;
        std::fs::remove_file(script)?;
        origin.forget_requests();
        Ok((theirs, ours))
    })?;
    let row = "miss, 1 KiB, connections kept, not stored";
    Ok(Line::of_rounds(row, "µs", BOUND, &costs).print())
}

/// CPU microseconds of the server for a request.
fn cost(proxy: &Proxy, script: &Path, time: Duration) -> Result<f64> {
    let drive = || load::run_script(proxy, script, CONNECTIONS, time);
    let (requests, spent) = spent(proxy, drive)?;
    Ok(spent.as_secs_f64() * 1e6 / requests as f64)
}
