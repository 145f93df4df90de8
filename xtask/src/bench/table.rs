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

use anyhow::{Context, Result, bail};
use millpond_gauge::origin::{Origin, OriginConf};
use millpond_gauge::resource::Resource;
use millpond_testkit::{Client, Kind, Proxy};

use super::rows::{Asked, ROWS, Row, Setup};
use super::{cpu, load, sorted};
use crate::tally::Tally;

/// Options of the task.
struct Options {
    rounds: usize,
    time: Duration,
    only: Option<String>,
    /// Whether the gauge is asked, too.
    has_witness: bool,
}

/// The two servers on one configuration.
struct Pair {
    nginx: Proxy,
    millpond: Proxy,
}

/// Runs the table; a row below its bound counts as failed.
pub(super) fn run(args: &[String]) -> Result<Tally> {
    let options = options(args)?;
    println!(
        "hot hits, CPU µs a request, wrk (median of {} rounds of {:?})\n",
        options.rounds, options.time
    );
    println!("| row | nginx | Millpond | ratio | rounds | by gauge | at least | met |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut tally = Tally::default();
    for setup in Setup::ALL {
        let wanted = |row: &&Row| {
            let only = options.only.as_deref();
            row.setup == setup && only.is_none_or(|only| row.name.contains(only))
        };
        let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
        if rows.is_empty() {
            continue;
        }
        let origin = Origin::start(OriginConf::new())?;
        let start = |kind| {
            let address = origin.address().to_string();
            Proxy::new(kind, &setup.conf())
                .value("ORIGIN", &address)
                .start()
        };
        let pair = Pair {
            nginx: start(Kind::Nginx)?,
            millpond: start(Kind::Millpond)?,
        };
        for row in rows {
            let is_met = measure(row, &pair, &options)?;
            tally += if is_met { Tally::PASS } else { Tally::FAIL };
        }
    }
    Ok(tally)
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        rounds: 5,
        time: Duration::from_secs(2),
        only: None,
        has_witness: true,
    };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--wrk-alone" {
            options.has_witness = false;
            continue;
        }
        let value = rest
            .next()
            .with_context(|| format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
            "--seconds" => options.time = Duration::from_secs(value.parse::<u64>()?.max(1)),
            "--row" => options.only = Some(value.clone()),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(options)
}

/// Measures a row and prints it; whether its bound is met.
fn measure(row: &Row, pair: &Pair, options: &Options) -> Result<bool> {
    let script = script(row)?;
    let by_wrk = |proxy: &Proxy, time: Duration| match &script {
        Some(script) => load::run_script(proxy, script, row.connections, time),
        None => load::run(proxy, &path(row), row.connections, time),
    };
    for proxy in [&pair.nginx, &pair.millpond] {
        warm(row, proxy)?;
        by_wrk(proxy, Duration::from_secs(1))?;
    }
    let costs = rounds(pair, options, &by_wrk)?;
    let witness = match row.asked {
        Asked::Whole if options.has_witness => {
            let by_gauge =
                |proxy: &Proxy, time| load::run_gauge(proxy, row.body_bytes, row.connections, time);
            Some(ratios(&rounds(pair, options, &by_gauge)?))
        }
        _ => None,
    };
    if let Some(script) = script {
        std::fs::remove_file(script)?;
    }
    let ratios = ratios(&costs);
    let middle = ratios[ratios.len() / 2];
    let is_met = middle >= row.bound;
    println!(
        "| {} | {:.2} | {:.2} | {middle:.2} | {:.2} to {:.2} | {} | {} | {} |",
        row.name,
        median(costs.iter().map(|pair| pair.0)),
        median(costs.iter().map(|pair| pair.1)),
        ratios[0],
        ratios[ratios.len() - 1],
        witness.map_or("-".to_owned(), |ratios| format!(
            "{:.2}",
            ratios[ratios.len() / 2]
        )),
        row.bound,
        if is_met { "yes" } else { "no" },
    );
    Ok(is_met)
}

/// A load: how many requests were answered in a time.
type Drive<'a> = &'a dyn Fn(&Proxy, Duration) -> Result<u64>;

/// CPU microseconds a request, nginx's and Millpond's, round by round.
fn rounds(pair: &Pair, options: &Options, drive: Drive<'_>) -> Result<Vec<(f64, f64)>> {
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let cost = |proxy| cost(proxy, options.time, drive);
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
    let pid = proxy.pid().context("the server is not running")?;
    cpu::pin(pid, cpu::SERVER_CORE)?;
    let before = cpu::spent(pid)?;
    let requests = drive(proxy, time)?;
    let spent = cpu::spent(pid)? - before;
    Ok(spent.as_secs_f64() * 1e6 / requests as f64)
}

fn ratios(rounds: &[(f64, f64)]) -> Vec<f64> {
    sorted(rounds.iter().map(|(nginx, millpond)| nginx / millpond))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values[values.len() / 2]
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
