//! `cargo xtask bench [table]`: hits per CPU second of Millpond against nginx, row by row.
//!
//! Both servers run at once on one configuration with one worker each, pinned to the first core;
//! the client has the other. Rounds alternate between the servers, so that drift of the machine
//! meets both. A row's figure is the CPU time that the server spent, user and system, for each
//! request; the ratio is nginx's over Millpond's: above 1, Millpond needs less.
//!
//! The client is wrk. Where a row is one whole body, `millpond gauge`, which compares every byte,
//! is asked for a second opinion; it is slower, so servers wait more often and each wait costs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use millpond_gauge::origin::{Origin, OriginConf};
use millpond_gauge::resource::Resource;
use millpond_testkit::{Client, Kind, LogCheck, Proxy};

use super::line::{Line, Wanted, ratios};
use super::load;
use super::options::Options;
use super::rounds::spent;
use super::rows::{Asked, ROWS, Row, Setup};
use crate::tally::Tally;

/// The two servers on one configuration.
struct Pair {
    nginx: Proxy,
    millpond: Proxy,
}

/// Measures the rows; one below its bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    for setup in Setup::ALL {
        let wanted = |row: &&Row| {
            let only = options.row.as_deref();
            row.setup == setup && only.is_none_or(|only| row.name.contains(only))
        };
        let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
        if rows.is_empty() {
            continue;
        }
        let origin = Origin::start(OriginConf::new())?;
        let start = |kind| {
            let address = origin.address().to_string();
            // nginx speaks of files that its cache manager meets as they go.
            Proxy::new(kind, &setup.conf())
                .value("ORIGIN", &address)
                .log_check(LogCheck::Off)
                .start()
        };
        let pair = Pair {
            nginx: start(Kind::Nginx)?,
            millpond: start(Kind::Millpond)?,
        };
        for row in rows {
            tally += measure(row, &pair, options)?.print();
        }
    }
    Ok(tally)
}

/// Measures a row.
fn measure(row: &Row, pair: &Pair, options: &Options) -> Result<Line> {
    let script = script(row)?;
    let by_wrk = |proxy: &Proxy, time: Duration| match &script {
        Some(script) => load::run_script(proxy, script, row.connections, time),
        None => load::run(proxy.port(), &path(row), row.connections, time),
    };
    for proxy in [&pair.nginx, &pair.millpond] {
        warm(row, proxy)?;
        by_wrk(proxy, Duration::from_secs(1))?;
    }
    let costs = rounds(pair, options, &by_wrk)?;
    let mut line = Line::of_rounds(row.name, "µs", row.bound, &costs);
    if row.asked == Asked::Whole
        && !options.wrk_alone
        && let Wanted::AtLeast { by_gauge, .. } = &mut line.wanted
    {
        let drive =
            |proxy: &Proxy, time| load::run_gauge(proxy, row.body_bytes, row.connections, time);
        *by_gauge = Some(ratios(&rounds(pair, options, &drive)?));
    }
    if let Some(script) = script {
        std::fs::remove_file(script)?;
    }
    Ok(line)
}

/// A load: how many requests were answered in a time.
type Drive<'a> = &'a dyn Fn(&Proxy, Duration) -> Result<u64>;

/// CPU microseconds a request, nginx's and Millpond's, round by round.
fn rounds(pair: &Pair, options: &Options, drive: Drive<'_>) -> Result<Vec<(f64, f64)>> {
    let mut rounds = Vec::new();
    for round in 0..options.rounds(5) {
        let cost = |proxy| cost(proxy, options.time(2), drive);
        // Who begins has the warmer machine.
        rounds.push(match round % 2 {
            0 => (cost(&pair.nginx)?, cost(&pair.millpond)?),
            _ => {
                let millpond = cost(&pair.millpond)?;
                (cost(&pair.nginx)?, millpond)
            }
        });
    }
    Ok(rounds)
}

/// CPU microseconds of the server for a request.
fn cost(proxy: &Proxy, time: Duration, drive: Drive<'_>) -> Result<f64> {
    let (requests, spent) = spent(proxy, || drive(proxy, time))?;
    Ok(spent.as_secs_f64() * 1e6 / requests as f64)
}

/// The body of a row that has one.
fn path(row: &Row) -> String {
    let resource = Resource::new("bench", "hot", row.body_bytes);
    resource.path().to_owned()
}

/// Fills: a body of ten mebibytes is there when its answer is.
fn warm(row: &Row, proxy: &Proxy) -> Result<()> {
    let client = Client::new(proxy.port());
    match row.asked {
        Asked::Whole | Asked::With(_) => {
            client.get(&path(row))?;
        }
        Asked::Zipf { objects } => {
            let mut connection = client.connect()?;
            for number in 0..objects {
                let path = format!("/zipf/{number}-{}.bin", row.body_bytes);
                connection.exchange(&millpond_testkit::Request::get(&path))?;
            }
        }
    }
    Ok(())
}

/// A script of wrk for rows that ask for more than one path.
fn script(row: &Row) -> Result<Option<PathBuf>> {
    let text = match row.asked {
        Asked::Whole => return Ok(None),
        Asked::With(field) => {
            let (name, value) = field.split_once(": ").context("a field has a value")?;
            format!(
                "local asked\n\
                 local fields = {{['{name}'] = '{value}'}}\n\
                 init = function() asked = wrk.format('GET', '{}', fields) end\n\
                 request = function() return asked end\n",
                path(row)
            )
        }
        // The sum of 1 / k up to n is near ln n: its inverse makes a rank of an even chance.
        Asked::Zipf { objects } => format!(
            "math.randomseed(7)\n\
             request = function()\n\
             \x20 local rank = math.floor(math.exp(math.random() * math.log({objects})))\n\
             \x20 return wrk.format('GET', '/zipf/' .. (rank - 1) .. '-{}.bin')\n\
             end\n",
            row.body_bytes
        ),
    };
    let name = format!("millpond-bench-{}.lua", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text)?;
    Ok(Some(path))
}
