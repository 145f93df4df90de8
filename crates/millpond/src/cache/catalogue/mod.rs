//! The catalogue as an SQLite database: `millpond cache export --sqlite FILE` and
//! `millpond cache sql QUERY`.
//!
//! ```text
//! the process, or the zone at rest ── entries, as they are read ──► a database in the making
//!                                                 export: renamed to FILE when it is whole
//!                                                 sql: asked, and gone
//! ```
//!
//! | file | what |
//! |---|---|
//! | `database.rs`, `schema.sql`, `indexes.sql` | the tables, and how they are filled |
//! | `query.rs` | a query and its rows |
//! | `nodes.rs` | entries of all nodes of a fleet |
//! | `unfinished.rs` | a file that is whole or not there |
//!
//! 1. A process that is asked sends what it would send for `ls`, and knows no database.
//! 2. At every moment FILE is what it was before, or a whole database.

mod database;
mod nodes;
mod query;
mod unfinished;

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result};
use millpond_system::clock;
use rusqlite::Connection;

pub(super) use query::run as query;

use super::Outcome;
use super::access::Site;
use super::figures::count;
use super::list;
use super::options::Options;
use super::output::Bar;
use unfinished::Unfinished;

/// Writes the catalogue to a file.
pub(super) fn export(options: &Options, site: &Site, path: &Path) -> Result<Outcome> {
    let file = Unfinished::beside(path)?;
    let database = Connection::open(file.path()).context("a new database")?;
    let entries = fill(options, site, &database)?;
    database.close().map_err(|(_, error)| error)?;
    file.finish()?;
    let entries = count(entries.unsigned_abs(), "entry", "entries");
    eprintln!("millpond: {}: {entries}", path.display());
    Ok(Outcome::Done)
}

/// Fills an empty database with the entries that are meant; how many they are.
fn fill(options: &Options, site: &Site, database: &Connection) -> Result<i64> {
    database::begin(database, clock::now_ms().div_euclid(1000))?;
    let mut writer = database::Writer::new(database)?;
    let mut left = options.limit.unwrap_or(usize::MAX);
    for zone in &site.zones(options.zone.as_deref())? {
        let bar = Some(Bar::new(&zone.name));
        let parameters = options.parameters.clone();
        let flow = list::walk(
            site,
            zone,
            (parameters, list::Depth::All),
            bar,
            &mut |entry| {
                if left == 0 {
                    return Ok(ControlFlow::Break(()));
                }
                left -= 1;
                writer.push(&entry)?;
                Ok(ControlFlow::Continue(()))
            },
        )?;
        if flow.is_break() {
            break;
        }
    }
    let entries = writer.end()?;
    database::finish(database)?;
    Ok(entries)
}
