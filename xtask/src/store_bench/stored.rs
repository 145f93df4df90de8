//! CPU time for each byte that is stored, against nginx on the same configuration in the same run.
//!
//! Every request is for a body of a mebibyte that nobody asked for before; the zone is full soon,
//! so the figure holds eviction, too. Both servers run at once with one worker; rounds alternate.
//! What a server did not store does not count: some bodies of a round, spread over the newest of
//! which all would still be there, are asked for again, and the share of hits among them is taken
//! for the share of what was stored.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};

use crate::bench::conf::Conf;
use crate::bench::line::Line;
use crate::bench::load;
use crate::bench::options::Options;
use crate::bench::rounds::{Rounds, spent};
use crate::tally::Tally;

const CONNECTIONS: u32 = 8;
const BODY: usize = 1 << 20;
/// Bodies that are asked for again: few, since a zone keeps what is asked for again.
const SAMPLE: u64 = 40;
/// The newest bodies, which fit the zone however many of a round are stored.
const NEWEST: u64 = 800;

/// nginx's CPU time over Millpond's, at least.
const BOUND: f64 = 1.0;

/// Measures it, and prints a table with one line.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let line = measured(&Options::of(args)?, BOUND)?;
    println!("{}", Line::heading("nginx"));
    Ok(line.print())
}

/// The line of a table: milliseconds of CPU for a stored gibibyte.
pub(crate) fn measured(options: &Options, bound: f64) -> Result<Line> {
    let rounds = Rounds::of(options, 3);
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Content-Type", "video/mp4");
    origin.route("/*", answer.body(vec![b'x'; BODY]));
    let conf = Conf::default().text();
    let start = |kind| Proxy::new(kind, &conf).origin(&origin).start();
    let (nginx, millpond) = (start(Kind::Nginx)?, start(Kind::Millpond)?);
    let costs = rounds.run("a stored GiB", |round| {
        let theirs = cost(&nginx, round, rounds.time)?;
        let ours = cost(&millpond, round, rounds.time)?;
        origin.forget_requests();
        Ok((theirs, ours))
    })?;
    let row = "miss, 1 MiB, stored";
    Ok(Line::of_rounds(row, "ms a GiB", bound, &costs))
}

/// Milliseconds of the server for a gibibyte.
fn cost(proxy: &Proxy, round: usize, time: Duration) -> Result<f64> {
    let script = unique_paths(round)?;
    let drive = || load::run_script(proxy, &script, CONNECTIONS, time);
    let (bodies, spent) = spent(proxy, drive)?;
    std::fs::remove_file(script)?;
    let share = share_of_hits(proxy, round, bodies)?;
    eprintln!(
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
    let samples = newest.step_by((NEWEST / SAMPLE) as usize);
    let client = Client::new(proxy.port());
    let (mut hits, mut asked) = (0, 0);
    for number in samples {
        let response = client.get(&format!("/{round}/{number}"))?;
        hits += u64::from(response.header("X-Cache-Status") == Some("HIT"));
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
