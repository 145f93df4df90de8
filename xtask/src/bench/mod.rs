//! `cargo xtask bench [NAME]`: what requests cost.
//!
//! | name | what |
//! |---|---|
//! | `table`, or none | hot hits of Millpond against nginx's: `table.rs`, `rows.rs` |
//! | `misses` | misses of small bodies, against nginx's |
//! | `waiters` | who asks for what is being fetched, with nginx beside |
//! | `idle` | memory of idle connections, with nginx beside |
//! | `crowd` | a hundred thousand connections: memory, hits among them, a burst, with nginx beside |
//! | `latency` | times of hits while something else goes on, with nginx beside |
//! | `scale` | a million entries: memory, inserts, hits, restarts |
//! | `disks` | bodies that are stored on two block devices, beside one |
//! | `tls` | encrypted requests, handshakes and idle connections, against nginx's |
//! | `http3` | requests over HTTP/3, against those of an nginx that speaks it |
//! | `stream` | connections that are passed on as they are, against nginx's |
//! | `all` | hits, misses, waiters, idle connections and bodies that are stored, as one table |
//! | `haproxy` | hot hits against those of HAProxy's cache in memory |
//! | `sites` | Millpond against itself, counting by site or not |
//! | `fleet` | how soon a purge is in force on a hundred nodes of a fleet |
//! | `eviction` | what the store keeps, against other policies: `store-bench replay` |
//!
//! The tables are Markdown on the standard output; what is going on is told on the other one.
//!
//! - `conf` – the configuration
//! - `cpu` – CPU time of processes, and their cores
//! - `crowd` – many connections to one server
//! - `disks` – two block devices
//! - `encrypted` – encrypted requests of both protocols, and handshakes
//! - `fleet` – a hundred nodes of a fleet
//! - `haproxy` – HAProxy and its rows
//! - `http3` – requests over HTTP/3
//! - `latency` – times of hits while something else goes on
//! - `line` – a line of the table
//! - `load` – what drives servers
//! - `metrics` – figures that Millpond tells of itself
//! - `options` – the command line
//! - `rounds` – rounds in which servers take turns
//! - `scale` – many entries
//! - `steady` – hits that are due at fixed times
//! - `training` – the work that a guided build learns by

pub(crate) mod conf;
pub(crate) mod cpu;
mod crowd;
mod disks;
mod encrypted;
mod fleet;
mod haproxy;
mod http3;
mod idle;
mod latency;
pub(crate) mod line;
pub(crate) mod load;
mod metrics;
mod misses;
pub(crate) mod options;
pub(crate) mod rounds;
mod rows;
mod scale;
mod sites;
mod steady;
mod stream;
mod table;
pub(crate) mod training;
mod waiters;

use anyhow::Result;

use self::line::Line;
use self::options::{Name, Options};
use crate::machine;
use crate::store_bench::{self, stored};
use crate::tally::Tally;

/// Bytes stored, as a row of the table of all: nginx's CPU time over Millpond's, at least.
const STORED_BOUND: f64 = 1.3;

/// Runs the benchmark that the arguments name.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    if let Some((name, rest)) = args.split_first()
        && name == "eviction"
    {
        return store_bench::run(&store_bench::with("replay", rest));
    }
    let options = Options::of_bench(args);
    if options.name == Name::Sites {
        return sites::run(&options);
    }
    let begun = machine::Begun::now()?;
    if options.name == Name::Fleet {
        let tally = fleet::run(&options)?;
        println!("\n({}.)\n", begun.told()?);
        return Ok(tally);
    }
    let other = match options.name {
        Name::Haproxy => "HAProxy",
        _ => "nginx",
    };
    println!("{}", Line::heading(other));
    let sum = match options.name {
        Name::Haproxy => haproxy::run(&options)?,
        Name::Tls => encrypted::run(&options)?,
        Name::Http3 => http3::run(&options)?,
        Name::Disks => disks::run(&options)?,
        Name::Crowd => crowd::run(&options)?,
        Name::Idle => idle::run(&options)?,
        Name::Latency => latency::run(&options)?,
        Name::Misses => misses::run(&options)?,
        Name::Scale => scale::run(&options)?,
        Name::Stream => stream::run(&options)?,
        Name::Waiters => waiters::run(&options)?,
        Name::All => all(&options)?,
        Name::Table | Name::Sites | Name::Fleet => table::run(&options)?,
    };
    println!("\n({}.)\n", begun.told()?);
    Ok(sum)
}

fn all(options: &Options) -> Result<Tally> {
    let mut sum = table::run(options)?;
    sum += misses::run(options)?;
    sum += stored::measured(options, STORED_BOUND)?.print();
    // The last ones, since the first of them stays on one core.
    sum += waiters::run(options)?;
    sum += idle::run(options)?;
    Ok(sum)
}

/// Values in rising order.
fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
