//! `cargo xtask bench [NAME]`: what requests cost.
//!
//! | name | what |
//! |---|---|
//! | `table`, or none | hot hits of Millpond against nginx's: `table.rs`, `rows.rs` |
//! | `all` | `table`, `waiters` and `idle`, one after another |
//! | `sites` | Millpond against itself, counting by site or not |
//! | `idle` | memory of idle connections, with nginx beside |
//! | `misses` | misses that are not stored, against nginx's |
//! | `waiters` | who asks for what is being fetched, with nginx beside |
//!
//! - `cpu` – CPU time of processes, and their cores
//! - `load` – what drives servers

pub(crate) mod cpu;
mod idle;
pub(crate) mod load;
mod misses;
pub(crate) mod rounds;
mod rows;
mod sites;
mod table;
mod waiters;

use anyhow::Result;

use crate::tally::Tally;

/// Runs the benchmark that the arguments name.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    match args.split_first().map(|(name, rest)| (name.as_str(), rest)) {
        Some(("sites", rest)) => sites::run(rest),
        Some(("table", rest)) => table::run(rest),
        Some(("all", rest)) => {
            let mut sum = table::run(rest)?;
            sum += waiters::run(&[])?;
            sum += idle::run(&[])?;
            Ok(sum)
        }
        Some(("idle", rest)) => idle::run(rest),
        Some(("misses", rest)) => misses::run(rest),
        Some(("waiters", rest)) => waiters::run(rest),
        _ => table::run(args),
    }
}

/// Values in rising order.
fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
