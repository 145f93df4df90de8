//! `experiments ranges [--brief]`: ranges of a file behind a line that takes ten seconds for it.
//!
//! The file has ten slices; each connection to the origin brings one slice a second. A client asks
//! for ten bytes in the middle of it, at once again while the file comes, and again when nothing
//! comes any more; then for the last kibibyte of a second file. What counts is the time to the
//! complete answer, and how many bytes of the first file the origin sent.
//!
//! All configurations run at once, each with an origin of its own: they wait more than they work.
//! `--brief` keeps the proportions, with a faster line.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::{
    Client, Deadline, Kind, Manners, Origin, Proxy, Request, Resource, Response, binary,
};

use crate::tally::Tally;
use crate::{checks, workspace};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:10m max_size=1g;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_valid 200 600s;
        add_header X-Cache $upstream_cache_status;
        location / {
            proxy_pass http://%%ORIGIN%%;
            %%LINES%%
        }
    }";

const LOCK: &str = "proxy_cache_lock on; proxy_cache_lock_timeout 0s; proxy_cache_lock_age 200s;
    proxy_cache_use_stale updating;";
const LISTING: &str = "slice %%SLICE%%;
    proxy_cache_key $host$uri$is_args$args$slice_range;
    proxy_set_header Range $slice_range;
    proxy_http_version 1.1;
    proxy_cache_valid 200 206 1h;";

/// Slices of the file.
const SLICES: u64 = 10;
/// Bytes that are wanted in the middle of the first file.
const WANTED: u64 = 10;
/// The slice that holds them, which is fetched ahead of the whole and comes with it again.
const SLICE_AHEAD: u64 = 256 << 10;
/// Bytes at the end of the second file.
const SUFFIX: u64 = 1024;
/// The part of the transfer of a slice in which an answer is one that came at once; the bytes of
/// the middle lie deeper in theirs than this.
const AT_ONCE: f64 = 0.5;
/// Nothing comes any more when the origin has sent nothing for this long; its pieces are some
/// hundredths of a second apart.
const QUIET: Duration = Duration::from_secs(1);
/// Longest wait for that; some configurations fetch the file three times.
const WAIT: Duration = Duration::from_secs(60);

/// One configuration of one server.
struct Setup {
    name: &'static str,
    kind: Kind,
    lines: &'static str,
    promise: Promise,
}

/// What a configuration promises.
#[derive(Clone, Copy)]
enum Promise {
    /// Nothing that is measured here.
    Nothing,
    /// Every answer at once, and no more slices fetched than these.
    AtOnce { slices: u64 },
    /// Every answer at once, and the file once; the ranges that come before it, by requests of
    /// their own, may come with it again.
    AtOnceAndWhole,
    /// The file once.
    Once,
}

const SETUPS: [Setup; 10] = [
    nginx("nginx", ""),
    nginx("nginx, cache lock", LOCK),
    nginx("nginx, slice", LISTING),
    millpond(
        "proxy_cache_range_fill off",
        "proxy_cache_range_fill off;",
        Promise::Once,
    ),
    millpond("default", "", Promise::AtOnceAndWhole),
    millpond("cache lock, range_fill off", LOCK_OFF, Promise::Once),
    millpond(
        "proxy_cache_range_fill whole",
        "proxy_cache_range_fill whole;",
        Promise::AtOnceAndWhole,
    ),
    millpond(
        "slice, nginx's lines",
        LISTING,
        Promise::AtOnce { slices: 1 },
    ),
    millpond(
        "slice SIZE",
        "slice %%SLICE%%;",
        Promise::AtOnce { slices: 1 },
    ),
    millpond("slice auto", "slice auto;", Promise::AtOnce { slices: 1 }),
];

const LOCK_OFF: &str = "proxy_cache_lock on; proxy_cache_lock_timeout 0s;
    proxy_cache_lock_age 200s; proxy_cache_use_stale updating; proxy_cache_range_fill off;";

const fn nginx(name: &'static str, lines: &'static str) -> Setup {
    Setup {
        name,
        kind: Kind::Nginx,
        lines,
        promise: Promise::Nothing,
    }
}

const fn millpond(name: &'static str, lines: &'static str, promise: Promise) -> Setup {
    Setup {
        name,
        kind: Kind::Millpond,
        lines,
        promise,
    }
}

/// How large, and how fast.
#[derive(Clone, Copy)]
struct Scale {
    slice: u64,
    /// Bytes a second of each connection.
    rate: u64,
}

impl Scale {
    /// That of the article.
    const FULL: Scale = Scale {
        slice: 1 << 20,
        rate: 1 << 20,
    };
    /// As large, since `slice auto` has the slices of the article; ten seconds become five.
    const BRIEF: Scale = Scale {
        slice: 1 << 20,
        rate: 2 << 20,
    };

    fn len(self) -> u64 {
        self.slice * SLICES
    }

    fn seconds_of_slice(self) -> f64 {
        self.slice as f64 / self.rate as f64
    }
}

/// What was measured of a setup: seconds, and bytes of the first file.
struct Figures {
    cold: f64,
    again: f64,
    filled: f64,
    suffix: f64,
    origin_bytes: u64,
    kept: String,
}

/// Runs every setup and prints the table.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let scale = match args {
        [] => Scale::FULL,
        [brief] if brief == "--brief" => Scale::BRIEF,
        [other, ..] => bail!("unknown option {other}"),
    };
    if std::env::var_os("MILLPOND_BIN").is_none() {
        let built = checks::build_binary().status()?;
        ensure!(built.success(), "the binary does not build");
    }
    let present = |setup: &&Setup| setup.kind == Kind::Millpond || binary(setup.kind).is_some();
    let setups: Vec<&Setup> = SETUPS.iter().filter(present).collect();
    let measured: Vec<Result<Figures>> = std::thread::scope(|scope| {
        let started: Vec<_> = setups
            .iter()
            .map(|setup| scope.spawn(move || measure(setup, scale)))
            .collect();
        let ended = started.into_iter().map(|thread| match thread.join() {
            Ok(figures) => figures,
            Err(_) => bail!("the measurement panicked"),
        });
        ended.collect()
    });
    println!(
        "ranges of a file of {SLICES} slices of {} bytes, {} bytes a second\n",
        scale.slice, scale.rate
    );
    println!("| configuration | cold, s | again, s | filled, s | suffix, s | origin | third |");
    println!("|---|---|---|---|---|---|---|");
    let mut sum = Tally::default();
    for (setup, figures) in setups.iter().zip(measured) {
        let broken = match figures {
            Ok(figures) => {
                println!("{}", figures.row(setup));
                figures.broken_promise(setup.promise, scale)
            }
            Err(error) => {
                println!("| {} | {} |", setup.name, first_line(&error));
                Some("it was not measured".to_owned())
            }
        };
        match broken.filter(|_| setup.kind == Kind::Millpond) {
            Some(why) => {
                eprintln!("{}: {why}", setup.name);
                sum += Tally::FAIL;
            }
            None => sum += Tally::PASS,
        }
    }
    Ok(sum)
}

fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().to_owned()
}

impl Figures {
    fn row(&self, setup: &Setup) -> String {
        let server = match setup.kind {
            Kind::Nginx => "",
            Kind::Millpond => "Millpond, ",
        };
        format!(
            "| {server}{} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} MB | {} |",
            setup.name,
            self.cold,
            self.again,
            self.filled,
            self.suffix,
            self.origin_bytes as f64 / 1e6,
            self.kept
        )
    }

    /// What of the promise was not kept.
    fn broken_promise(&self, promise: Promise, scale: Scale) -> Option<String> {
        let most = match promise {
            Promise::Nothing => return None,
            Promise::AtOnce { slices } => slices * scale.slice,
            Promise::AtOnceAndWhole => scale.len() + SLICE_AHEAD,
            Promise::Once => scale.len(),
        };
        if self.origin_bytes > most {
            return Some(format!(
                "{} bytes fetched, at most {most}",
                self.origin_bytes
            ));
        }
        if self.kept != "HIT" {
            return Some(format!("the third answer was {}, not HIT", self.kept));
        }
        if matches!(promise, Promise::Once) {
            return None;
        }
        let at_once = AT_ONCE * scale.seconds_of_slice();
        let slowest = [self.cold, self.again, self.filled, self.suffix]
            .into_iter()
            .fold(0.0, f64::max);
        (slowest > at_once).then(|| format!("{slowest:.2} s for an answer, at most {at_once:.2}"))
    }
}

/// One setup from its cold cache on.
fn measure(setup: &Setup, scale: Scale) -> Result<Figures> {
    let origin = Origin::start()?;
    let mut manners = Manners::of(scale.len());
    manners.rate = Some(scale.rate);
    let file = Resource::new(manners);
    origin.resource("/first", &file);
    origin.resource("/second", &file);
    let conf = CONF
        .replace("%%LINES%%", setup.lines)
        .replace("%%SLICE%%", &scale.slice.to_string());
    let mut builder = Proxy::new(setup.kind, &conf).origin(&origin);
    if setup.kind == Kind::Millpond {
        builder = builder.binary(&workspace::binary());
    }
    let proxy = builder.start()?;
    let client = Client::new(proxy.port());
    // The place of the article: deep in the fifth slice.
    let start = scale.len() / 2 - scale.slice / 4;
    let middle = format!("bytes={start}-{}", start + WANTED - 1);
    let expected = file.bytes(start..start + WANTED);
    let ask = || timed(&client, "/first", &middle, &expected);
    let (cold, _) = ask()?;
    let (again, _) = ask()?;
    wait_until_quiet(&origin)?;
    let (filled, third) = ask()?;
    let origin_bytes = sent_of(&origin, "/first");
    let tail = file.bytes(scale.len() - SUFFIX..scale.len());
    let (suffix, _) = timed(&client, "/second", &format!("bytes=-{SUFFIX}"), &tail)?;
    Ok(Figures {
        cold,
        again,
        filled,
        suffix,
        origin_bytes,
        kept: third.header("X-Cache").unwrap_or("-").to_owned(),
    })
}

/// Seconds to the end of the answer, which must have these bytes.
fn timed(client: &Client, path: &str, range: &str, expected: &[u8]) -> Result<(f64, Response)> {
    let started = Instant::now();
    let response = client.send(&Request::get(path).header("Range", range))?;
    let seconds = started.elapsed().as_secs_f64();
    ensure!(response.status == 206, "status {}", response.status);
    ensure!(response.body == expected, "wrong bytes for {path} {range}");
    Ok((seconds, response))
}

/// Waits until the origin has sent nothing for a while.
fn wait_until_quiet(origin: &Origin) -> Result<()> {
    let mut last = (origin.sent_bytes(), Instant::now());
    let quiet = Deadline::after(WAIT).poll(|| {
        let sent = origin.sent_bytes();
        if sent != last.0 {
            last = (sent, Instant::now());
        }
        (last.1.elapsed() >= QUIET).then_some(())
    });
    quiet.context("the origin sends without end")
}

fn sent_of(origin: &Origin, path: &str) -> u64 {
    let exchanges = origin.exchanges();
    let of_path = exchanges
        .iter()
        .filter(|exchange| exchange.request.path() == path);
    of_path.map(millpond_testkit::Exchange::sent).sum()
}
