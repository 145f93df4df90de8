//! `millpond sensor NAME`: one question about a process, answered as plugins of Nagios and Icinga
//! answer, or as JSON.
//!
//! ```text
//! options ──► the process on its control socket │ a request of its own │ files ──► finding
//! finding ──► thresholds (range.rs) ──► OK, WARNING, CRITICAL, UNKNOWN: a line, the exit status
//!                                   └─► push.rs: to a database of time series
//! ```
//!
//! | status | |
//! |---|---|
//! | 0, 1, 2 | all is well, a value passed `-w`, a value passed `-c` or the thing itself is broken |
//! | 3 | it could not be found out |
//!
//! Does not keep anything between two runs: what is counted is counted since the start of the
//! process, or over the time of `--over`.

mod ask;
mod certificate;
mod disks;
mod finding;
mod http;
mod latency;
mod lines;
mod names;
mod offset;
mod options;
mod push;
mod range;
mod watch;

use std::process::ExitCode;

use anyhow::Result;

use crate::printed;
use finding::{Finding, State};
use options::{Options, Sensor};

const USAGE: &str = "usage: millpond sensor process|health|reload
       millpond sensor hit-ratio|origin-errors [--over TIME]
       millpond sensor latency                 --url URL [-H 'Name: value']...
       millpond sensor peer                    [--upstream NAME]
       millpond sensor zone|disk|space|scrub   [--zone NAME]
       millpond sensor certificate
       millpond sensor dns                     [--name NAME]...
       millpond sensor clock                   --server HOST | --url URL
       millpond sensor log                     --file FILE --pattern REGEX [--over TIME]
options: -w RANGE, -c RANGE: what is no warning, and not critical, as plugins of Nagios write it:
         10 is from 0 to 10, 10: from 10 on, ~:10 up to 10, 10:20 between, @10:20 not between
         --json, -t TIME (8s), --conf FILE, -p PREFIX, -g DIRECTIVES, or --socket PATH of the
         control socket; --ca FILE, --insecure: certificates of https://
         --push URL, --push-header 'Name: value': sends the values by OTLP over HTTP, too
values:  hit-ratio, origin-errors: percent; latency: seconds; peer: peers that are unavailable;
         zone: percent of max_size; disk: disks that failed; space: percent that is free;
         scrub: days since a pass ended; certificate: days that are left; dns: seconds of the
         slowest; clock: seconds; log: lines a minute (of the last 5m); process: requests;
         health, reload: 0 when all is well
It ends with 0 (ok), 1 (warning), 2 (critical) or 3 (unknown).
";

/// Asks what the words say, and tells.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let options = match crate::options::read(words.collect(), USAGE, options::parse) {
        Ok(options) => options,
        // What is wrong with the command line is unknown to a monitor, too.
        Err(code) if code == ExitCode::from(2) => return Ok(State::Unknown.code()),
        Err(code) => return Ok(code),
    };
    let finding = find(&options).unwrap_or_else(|error| Finding::unknown(&format!("{error:#}")));
    let judged = finding.judged(options.warning.as_ref(), options.critical.as_ref());
    let name = options.sensor.name();
    let told = if options.json {
        printed::line(judged.json(name))
    } else {
        printed::line(judged.line(name))
    };
    if let Err(error) = told {
        eprintln!("millpond: {error:#}");
        return Ok(State::Unknown.code());
    }
    if let Some(url) = &options.push
        && let Err(error) = push::push(&judged, url, &options)
    {
        eprintln!("millpond: not sent to {url}: {error:#}");
        return Ok(State::Unknown.code());
    }
    Ok(judged.state.code())
}

fn find(options: &Options) -> Result<Finding> {
    match options.sensor {
        Sensor::Process => watch::process(options),
        Sensor::Health => watch::health(options),
        Sensor::Reload => watch::reload(options),
        Sensor::HitRatio => watch::hit_ratio(options),
        Sensor::OriginErrors => watch::origin_errors(options),
        Sensor::Latency => latency::find(options),
        Sensor::Peer => watch::peer(options),
        Sensor::Zone => watch::zone(options),
        Sensor::Disk => disks::disk(options),
        Sensor::Space => disks::space(options),
        Sensor::Scrub => disks::scrub(options),
        Sensor::Certificate => certificate::find(options),
        Sensor::Dns => names::find(options),
        Sensor::Clock => offset::find(options),
        Sensor::Log => lines::find(options),
    }
}
