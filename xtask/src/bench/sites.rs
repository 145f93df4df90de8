//! `cargo xtask bench sites`: what counting by site costs a hot hit, with five hundred sites.
//!
//! Two servers of one binary run at once, one that counts and one with `cache_site off`; rounds
//! alternate between them, and which of the two begins. Requests for one object go round all sites,
//! so that each counts in a row that was not used just before. The figure is the ratio of the CPU
//! times a request.
//!
//! | row | how a request's site is known |
//! |---|---|
//! | servers | each site has a server block |
//! | variable | `cache_site $host`; without counting the variable is evaluated for a header field |

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use millpond_testkit::{Answer, Kind, Origin, Proxy};

use super::options::Options;
use super::rounds::spent;
use super::{load, sorted};
use crate::tally::Tally;

const HTTP: &str = r"
%%GLOBALS%%
worker_processes 1;
events { worker_connections 4096; }
http {
    %%HTTP%%
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    server_names_hash_max_size 4096;
    proxy_cache_path %%DIR%%/cache keys_zone=bench:10m max_size=1g inactive=1h;
    proxy_cache_key $uri;
    proxy_cache bench;
    proxy_cache_valid 200 1h;
";

const SITES: usize = 500;
const CONNECTIONS: u32 = 64;
const PATH: &str = "/1k";
/// The most that counting may cost.
const BOUND: f64 = 1.02;

/// The way in which sites are told apart.
#[derive(Clone, Copy)]
enum Row {
    Servers,
    Variable,
}

/// True if requests are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    On,
    Off,
}

impl Row {
    const ALL: [Row; 2] = [Row::Servers, Row::Variable];

    fn name(self) -> &'static str {
        match self {
            Row::Servers => "servers",
            Row::Variable => "variable",
        }
    }

    fn conf(self, counting: Counting) -> String {
        let mut conf = HTTP.to_owned();
        conf.push_str(match (self, counting) {
            (_, Counting::Off) => "    cache_site off;\n",
            (Row::Servers, Counting::On) => "",
            (Row::Variable, Counting::On) => "    cache_site $host;\n",
        });
        if let Row::Variable = self {
            // Both evaluate it as often.
            conf.push_str("    add_header X-Host $host;\n");
        }
        let names: Vec<String> = match self {
            Row::Servers => (0..SITES).map(host).collect(),
            Row::Variable => vec!["_".to_owned()],
        };
        for name in names {
            // Writing into a String never fails.
            let _ = writeln!(
                conf,
                "    server {{ listen 127.0.0.1:%%PORT%%; server_name {name}; \
                 location / {{ proxy_pass http://%%ORIGIN%%; }} }}"
            );
        }
        conf.push_str("}\n");
        conf
    }
}

fn host(number: usize) -> String {
    format!("site{number}.example")
}

/// Measures both rows; one above the bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let (rounds, time) = (options.rounds(11), options.time(2));
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Content-Type", "text/plain");
    origin.route(PATH, answer.body(vec![b'x'; 1 << 10]));
    let script = script()?;
    println!("hot hits of {SITES} sites, CPU µs a request (median of {rounds} rounds)\n");
    println!(
        "{:<10} {:>9} {:>9} {:>7} {:>16}",
        "row", "without", "with", "ratio", "spread"
    );
    let mut tally = Tally::default();
    for row in Row::ALL {
        let start = |counting| {
            let proxy = Proxy::new(Kind::Millpond, &row.conf(counting));
            proxy.origin(&origin).start()
        };
        let (without, with) = (start(Counting::Off)?, start(Counting::On)?);
        let costs = measure((&without, &with), &script, (rounds, time))?;
        let ratios = sorted(costs.iter().map(|(without, with)| with / without));
        let middle = ratios.len() / 2;
        let spread = format!("{:.3} to {:.3}", ratios[0], ratios[ratios.len() - 1]);
        println!(
            "{:<10} {:>9.2} {:>9.2} {:>7.3} {:>16}",
            row.name(),
            sorted(costs.iter().map(|cost| cost.0))[middle],
            sorted(costs.iter().map(|cost| cost.1))[middle],
            ratios[middle],
            spread
        );
        tally += Tally::from(ratios[middle] <= BOUND);
    }
    std::fs::remove_file(script)?;
    Ok(tally)
}

/// CPU microseconds a request, without and with counting, round by round.
fn measure(
    (without, with): (&Proxy, &Proxy),
    script: &std::path::Path,
    (rounds, time): (usize, Duration),
) -> Result<Vec<(f64, f64)>> {
    for proxy in [without, with] {
        load::run_script(proxy, script, CONNECTIONS, Duration::from_secs(1))?;
    }
    let cost = |proxy: &Proxy| -> Result<f64> {
        let drive = || load::run_script(proxy, script, CONNECTIONS, time);
        let (requests, spent) = spent(proxy, drive)?;
        Ok(spent.as_secs_f64() * 1e6 / requests as f64)
    };
    let mut costs = Vec::new();
    for round in 0..rounds {
        // Who begins has the warmer machine.
        costs.push(match round % 2 {
            0 => (cost(without)?, cost(with)?),
            _ => {
                let with = cost(with)?;
                (cost(without)?, with)
            }
        });
    }
    Ok(costs)
}

/// A script of wrk that asks for the object of each site in turn.
fn script() -> Result<PathBuf> {
    let text = format!(
        "local asked, next = {{}}, 0\n\
         init = function()\n\
         \x20 for n = 1, {SITES} do\n\
         \x20   asked[n] = wrk.format(\"GET\", \"{PATH}\", \
         {{[\"Host\"] = \"site\" .. (n - 1) .. \".example\"}})\n\
         \x20 end\n\
         end\n\
         request = function()\n\
         \x20 next = next % {SITES} + 1\n\
         \x20 return asked[next]\n\
         end\n"
    );
    let path = std::env::temp_dir().join(format!("millpond-sites-{}.lua", std::process::id()));
    std::fs::write(&path, text)?;
    Ok(path)
}
