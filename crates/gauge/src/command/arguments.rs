//! Words to what is wanted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};

use super::protocol::{ProtocolArguments, Scheme};
use crate::client::Target;
use crate::load::Load;
use crate::module::{Kind, Knobs, Module};
use crate::origin::{OriginConf, Spoken};
use crate::report::{Claims, Limit};
use crate::unit;

/// Loads, verifies and compares caching HTTP proxies.
///
/// Bodies are computed from path, generation and offset, so every byte of every answer is checked:
/// what is mixed, stale, shifted, cut or made up is found, and its place is named.
#[derive(Debug, Parser)]
#[command(name = "gauge", version)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Asks a server that runs already.
    #[command(args_override_self = true)]
    Run(Box<RunArguments>),
    /// Runs an origin, until it is interrupted.
    Origin(OriginArguments),
    /// Starts two servers in turn on one configuration, and compares them.
    #[command(args_override_self = true)]
    Compare(Box<CompareArguments>),
}

/// A document that says what is wanted.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlanArguments {
    /// A plan, in TOML; what is said here beside it stands above it.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// A case of the plan; without it all, one after another.
    #[arg(long = "case", value_name = "NAME", action = clap::ArgAction::Append)]
    pub(crate) cases: Vec<String>,
    /// The short form of the plan: its cases that have one.
    #[arg(long)]
    pub(crate) brief: bool,
}

/// Actions of the users, and their number.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArguments {
    /// Module of the load: the actions of the users.
    #[arg(value_enum)]
    pub(crate) module: Option<Kind>,
    /// Users: requests at one time; each has a connection, or a stream of one (--streams).
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    users: u16,
    /// Threads that the users share.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Requests in all; 1000 if neither this nor --time is given.
    #[arg(short = 'n', long)]
    requests: Option<u64>,
    /// The longest time, as 10s or 500ms.
    #[arg(short, long, value_parser = duration)]
    time: Option<Duration>,
    /// Requests a second of all users together, sent at their time whatever the server does;
    /// without it each user asks again when it has its answer.
    #[arg(short, long)]
    rate: Option<f64>,
    /// Bytes of a body, as 1m; the median for zipf and soak.
    #[arg(long, default_value = "64k", value_parser = size)]
    size: u64,
    /// Resources.
    #[arg(long, default_value_t = 100)]
    objects: u64,
    /// Time for which the server keeps an answer fresh (micro).
    #[arg(long, default_value = "1s", value_parser = duration)]
    ttl: Duration,
    /// Exponent of popularity (zipf, soak); larger is steeper.
    #[arg(long, default_value_t = 1.0)]
    alpha: f64,
    /// The longest time of a first byte behind the first of all (coalesce).
    #[arg(long, default_value = "100ms", value_parser = duration)]
    behind: Duration,
    /// Most requests to the origin for one resource that all ask for at once (coalesce).
    #[arg(long, default_value_t = 1)]
    asks: u64,
    /// Number of times that all ask at once for the same resource (coalesce).
    #[arg(long, default_value_t = 1)]
    repeats: u64,
    /// After how long the server drops what nobody asks for, if it does within a run (stats).
    #[arg(long, default_value = "0s", value_parser = duration)]
    inactive: Duration,
    /// Path of the server's API (stats).
    #[arg(long, default_value = "/api")]
    api: String,
    /// The zone that the server's API is asked about (stats).
    #[arg(long, default_value = "z")]
    zone: String,
    /// A path of an origin that is not the gauge's; may be given more than once (given).
    #[arg(long = "path", value_name = "PATH", action = clap::ArgAction::Append)]
    paths: Vec<String>,
    /// Address of that origin; without it the server's first answers are taken for right (given).
    #[arg(long, value_name = "ADDRESS:PORT")]
    against: Option<SocketAddr>,
    /// The method that purges (purge, stats).
    #[arg(long, default_value = "PURGE")]
    purge_method: String,
    /// Seed of the chances; the same seed asks for the same.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest that an answer may take.
    #[arg(long, default_value = "60s", value_parser = duration)]
    timeout: Duration,
    /// Bytes a second that each user reads; without it as fast as they come.
    #[arg(long, value_parser = size)]
    read_rate: Option<u64>,
    /// The field that tells the cache status.
    #[arg(long, default_value = "X-Cache-Status")]
    status_field: String,
    #[command(flatten)]
    protocol: ProtocolArguments,
}

impl LoadArguments {
    /// Amount of load.
    pub(crate) fn load(&self) -> Load {
        let requests = match (self.requests, self.time) {
            (None, None) => Some(1000),
            (requests, _) => requests,
        };
        Load {
            users: usize::from(self.users),
            threads: usize::from(self.threads),
            requests,
            time: self.time,
            rate: self.rate.filter(|rate| *rate > 0.0),
            seed: self.seed,
        }
    }

    /// The module, made ready; `run` is part of all paths.
    pub(crate) fn module(&self, run: &str) -> Result<Module> {
        let Some(kind) = self.module else {
            bail!("which module? Name one, or a plan that does");
        };
        Ok(Module::new(kind, self.knobs(run.to_owned())))
    }

    /// Settings of the module; `run` is part of all paths.
    fn knobs(&self, run: String) -> Knobs {
        Knobs {
            size: self.size,
            objects: self.objects,
            ttl: self.ttl,
            alpha: self.alpha,
            behind: self.behind,
            asks: self.asks,
            repeats: self.repeats,
            inactive: self.inactive,
            api: self.api.clone(),
            zone: self.zone.clone(),
            paths: self.paths.clone(),
            against: self.against,
            purge_method: self.purge_method.clone(),
            run,
        }
    }

    /// Server that is asked, and the manner of asking.
    pub(crate) fn target(
        &self,
        address: SocketAddr,
        host: String,
        scheme: Scheme,
    ) -> Result<Target> {
        Ok(Target {
            address,
            host,
            protocol: self.protocol.protocol,
            streams: self.protocol.streams()?,
            tls: self.protocol.tls(scheme)?,
            lifetime: self.protocol.lifetime(),
            status_field: self.status_field.clone(),
            timeout: self.timeout,
            read_rate: self.read_rate,
        })
    }
}

/// Behaviour of an origin.
#[derive(Clone, Debug, Args)]
pub(crate) struct OriginArguments {
    /// Address that the built-in origin listens on.
    #[arg(long = "origin", value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Protocol that the built-in origin is asked in; for fastcgi and uwsgi the server passes it
    /// REQUEST_URI, REQUEST_METHOD and fields as HTTP_….
    #[arg(long, value_enum, default_value_t)]
    origin_protocol: Spoken,
    /// The built-in origin speaks https, with a certificate of its own making.
    #[arg(long)]
    origin_https: bool,
    /// Time between a request and the head of the origin's answer.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    delay: Duration,
    /// Up to this much more, at random.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    jitter: Duration,
    /// Bytes a second on each connection of the origin.
    #[arg(long, value_parser = size)]
    origin_rate: Option<u64>,
    /// Bytes a second on all its connections together.
    #[arg(long, value_parser = size)]
    origin_rate_total: Option<u64>,
    /// The part of the requests that the origin answers with 503, from 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    failures: f64,
    /// The part of the origin's answers that end in the middle of their body, from 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    cuts: f64,
    /// All resources change once in so much time.
    #[arg(long, value_parser = duration)]
    change: Option<Duration>,
    /// The origin knows no ranges.
    #[arg(long)]
    no_ranges: bool,
    /// The origin has no ETag, and knows no conditions.
    #[arg(long)]
    no_validators: bool,
    /// Value of Cache-Control.
    #[arg(long)]
    cache_control: Option<String>,
}

impl OriginArguments {
    /// Configuration of the origin; it listens where the words say, or where the system chooses.
    pub(crate) fn conf(&self, seed: u64) -> OriginConf {
        let usual = OriginConf::new();
        OriginConf {
            listen: self.listen.unwrap_or(usual.listen),
            spoken: self.origin_protocol,
            is_https: self.origin_https,
            delay: self.delay,
            jitter: self.jitter,
            rate: self.origin_rate,
            rate_total: self.origin_rate_total,
            failures: self.failures,
            cuts: self.cuts,
            change: self.change,
            has_ranges: !self.no_ranges,
            has_validators: !self.no_validators,
            cache_control: self.cache_control.clone(),
            seed,
        }
    }
}

/// Destination of a report, and the limits that it must keep to.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArguments {
    /// Writes the report as JSON; - is the standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes a page with charts.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// A limit, as 'ttfb.p99 > 5ms' or 'hit_ratio < 90%'; above or below it the run has failed.
    #[arg(long = "fail-if", value_name = "LIMIT", action = clap::ArgAction::Append)]
    pub(crate) limits: Vec<Limit>,
    /// Only answers and limits count, and not what the module says must be true of all.
    #[arg(long)]
    pub(crate) no_claims: bool,
    /// No bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// True if nothing is printed: a program reads the result.
    #[arg(skip)]
    pub(crate) is_mute: bool,
}

impl OutputArguments {
    /// Choice to count claims, or to ignore them.
    pub(crate) fn claims(&self) -> Claims {
        if self.no_claims {
            Claims::Ignored
        } else {
            Claims::Held
        }
    }
}

/// `gauge run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    /// The server, as http://127.0.0.1:8080 or https://example.com.
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// Value of Host; without it the one of the URL.
    #[arg(long)]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) origin: OriginArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// Servers of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sides {
    A,
    B,
    Both,
}

impl Sides {
    /// True if one of both is among them.
    pub(crate) fn has(self, side: Sides) -> bool {
        self == Sides::Both || self == side
    }
}

/// `gauge compare`.
///
/// In commands and configuration {port} stands for where the server shall listen, {origin} for the
/// address of the built-in origin, {dir} for a directory of its own, and {conf} for the
/// configuration with all this put in. Servers must stay in the foreground.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArguments {
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    #[command(flatten)]
    pub(crate) plan: PlanArguments,
    /// Command of the first server, as 'nginx -c {conf} -p {dir}'.
    #[arg(long)]
    pub(crate) a: Option<String>,
    /// Command of the second.
    #[arg(long)]
    pub(crate) b: Option<String>,
    /// The servers that are started.
    #[arg(long, value_enum, default_value_t = Sides::Both)]
    pub(crate) only: Sides,
    /// The servers whose claims and limits count; wrong bytes count always.
    #[arg(long, value_enum, default_value_t = Sides::Both)]
    pub(crate) judge: Sides,
    /// The configuration of both.
    #[arg(long)]
    pub(crate) conf: Option<PathBuf>,
    /// Text of the configuration, where a plan has it.
    #[arg(skip)]
    pub(crate) conf_text: Option<String>,
    /// NAME=TEXT: what {NAME} stands for in commands and configuration.
    #[arg(long, value_name = "NAME=TEXT", action = clap::ArgAction::Append)]
    pub(crate) put: Vec<String>,
    /// Number of times that each is measured, in turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Asks by https; {certificate} and {key} in commands and configuration are files with a
    /// certificate of the gauge's own making, which it trusts.
    #[arg(long)]
    pub(crate) https: bool,
    /// Asks for everything once before it is measured.
    #[arg(long)]
    pub(crate) warm: bool,
    /// A command that runs the servers inside itself, as 'valgrind --log-file={log}'; what it
    /// writes to {log} is printed.
    #[arg(long)]
    pub(crate) under: Option<String>,
    /// Cores of the servers, as 0 or 0,1 (taskset).
    #[arg(long)]
    pub(crate) cores: Option<String>,
    #[command(flatten)]
    pub(crate) origin: OriginArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// `500ms`, `2s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let wrong = || format!("{text}: wanted a time with its unit, as 500ms or 2s");
    let (number, factor) = unit::split(text, &units).ok_or_else(wrong)?;
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| wrong())
}

/// `100`, `64k`, `1m`, `10g`: powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let units = [("k", 10), ("m", 20), ("g", 30)];
    let (number, shift) = unit::split(&lower, &units).unwrap_or((&lower, 0));
    let number: Option<u64> = number.trim().parse().ok();
    let size = number.and_then(|number| number.checked_mul(1 << shift));
    size.ok_or_else(|| format!("{text}: wanted a number of bytes, as 100, 64k or 1m"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(duration("1500us"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(
            (size("64k"), size("7"), size("2G")),
            (Ok(65536), Ok(7), Ok(2 << 30))
        );
        for text in ["", "5", "x ms", "-1s", "1e300h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["", "k", "-1", "99999999999999g"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
