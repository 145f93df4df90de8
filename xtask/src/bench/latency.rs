//! `cargo xtask bench latency`: times of hits of a kibibyte while something else goes on.
//!
//! | state | what goes on |
//! |---|---|
//! | quiet | nothing |
//! | filling | bodies are stored in a full cache, 200 MB a second or as many as go |
//! | purges | ten purges by prefix a second, and 2000 small entries come (Millpond) |
//! | scrub | all that the disk holds is compared, again and again (Millpond) |
//! | reloads | the configuration is read again each second |
//! | restart | the second in which an index of `--entries` is loaded |
//!
//! Hits come at half of the rate that wrk reaches with that server, or at `--rate`, and count from
//! when they were due, as in `crowd`. Each state has a server of its own, on its own core; clients
//! and the origin, another Millpond, have the other core, and hits come first there. nginx loads
//! its index a minute after its start, so that its restart is measured then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use millpond_gauge::crowd::{Crowd, Paths, Steady};
use millpond_testkit::{Client, Kind, LogCheck, Proxy, Request, binary};

use super::conf::Conf;
use super::line::Wanted;
use super::options::Options;
use super::steady::{self, Micros, SHARES, crowd_of, hits, in_the_middle, pinned, well};
use super::{cpu, load, metrics};
use crate::tally::Tally;

const HOT: &str = "/small/hot";
const SMALL: u64 = 1 << 10;
const LARGE: u64 = 1 << 20;
/// Connections of hits.
const CONNECTIONS: u32 = 64;
/// Bodies of a mebibyte that are fetched a second: 200 MB.
const LARGE_RATE: f64 = 190.0;
/// Small entries that come a second while others are purged.
const SMALL_RATE: f64 = 2000.0;
/// Small entries that come a second before a restart.
const ENTRY_RATE: f64 = 10_000.0;
/// Small entries before a restart, unless told.
const ENTRIES: u64 = 300_000;
/// Mebibytes that the cache may have.
const ROOM: u64 = 512;
/// Time between two purges.
const PURGE: Duration = Duration::from_millis(100);
/// Time between two looks at what goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two reloads.
const RELOAD: Duration = Duration::from_secs(1);
/// Time after which nginx's loader begins.
const LOADER: Duration = Duration::from_secs(60);
/// Time within which an index is loaded.
const LOADING: Duration = Duration::from_secs(1);
/// The most times longer that the 999th of 1000 hits may take than in quiet.
const BOUND: f64 = 2.0;

/// Something that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Quiet,
    Filling,
    Purging,
    Scrubbing,
    Reloading,
    Restarting,
}

impl State {
    const ALL: [State; 6] = [
        State::Quiet,
        State::Filling,
        State::Purging,
        State::Scrubbing,
        State::Reloading,
        State::Restarting,
    ];

    fn name(self) -> &'static str {
        match self {
            State::Quiet => "quiet",
            State::Filling => "filling and evicting",
            State::Purging => "purges by prefix",
            State::Scrubbing => "scrub",
            State::Reloading => "a reload each second",
            State::Restarting => "the index is loaded",
        }
    }

    /// True if a server has it.
    fn is_of(self, kind: Kind) -> bool {
        kind == Kind::Millpond || !matches!(self, State::Purging | State::Scrubbing)
    }
}

/// Amounts.
struct Sizes {
    rounds: usize,
    time: Duration,
    entries: u64,
}

/// A server of one kind: hits a second, and times by state.
struct Measured {
    rate: f64,
    states: Vec<(State, Micros)>,
    /// Megabytes a second that were stored beside hits.
    filled: f64,
}

/// Account of what went on beside hits.
#[derive(Default)]
struct Beside {
    text: String,
    /// Megabytes a second that were fetched.
    megabytes: f64,
}

impl Measured {
    fn micros(&self, state: State) -> Option<Micros> {
        let found = self.states.iter().find(|of| of.0 == state);
        found.map(|of| of.1)
    }
}

/// Measures both servers; Millpond above a bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    cpu::pin(std::process::id(), cpu::CLIENT_CORE)?;
    let origin = origin()?;
    let sizes = Sizes {
        rounds: options.rounds(3),
        time: options.time(5),
        entries: options.entries(ENTRIES),
    };
    let measured = |kind| measured(kind, &origin, &sizes, options);
    let nginx = binary(Kind::Nginx)
        .map(|_| measured(Kind::Nginx))
        .transpose()?;
    let millpond = measured(Kind::Millpond)?;
    let mut tally = Tally::default();
    let rates = (nginx.as_ref().map(|it| it.rate), millpond.rate);
    tally += steady::row("hits".to_owned(), "a second", rates, Wanted::Nothing);
    if let Some(name) = filling(&millpond) {
        let rates = (nginx.as_ref().map(|it| it.filled), millpond.filled);
        tally += steady::row(name, "MB a second", rates, Wanted::Nothing);
    }
    for (share, (_, word)) in SHARES.iter().enumerate() {
        for (state, micros) in &millpond.states {
            let name = format!("hits, {}: {word}", state.name());
            let theirs = nginx.as_ref().and_then(|it| it.micros(*state));
            let figures = (theirs.map(|it| it[share]), micros[share]);
            tally += steady::row(name, "µs", figures, Wanted::Nothing);
        }
    }
    let last = SHARES.len() - 1;
    let over = |it: &Measured, state| {
        let quiet = it.micros(State::Quiet)?;
        Some(it.micros(state)?[last] / quiet[last])
    };
    for (state, _) in millpond.states.iter().skip(1) {
        let name = format!(
            "hits, {}, over those of quiet: {}",
            state.name(),
            SHARES[last].1
        );
        let theirs = nginx.as_ref().and_then(|it| over(it, *state));
        let ours = over(&millpond, *state).context("a state was not measured")?;
        tally += steady::row(name, "times", (theirs, ours), Wanted::AtMost(BOUND));
    }
    Ok(tally)
}

/// Name of the row with what was stored, if that was measured.
fn filling(of: &Measured) -> Option<String> {
    of.micros(State::Filling)?;
    Some(format!("stored while {}", State::Filling.name()))
}

/// Another Millpond, which has a small body or a large one for each path.
fn origin() -> Result<Proxy> {
    let conf = "
        sendfile on;
        keepalive_requests 1000000000;
        server {
            listen 127.0.0.1:%%PORT%%;
            root %%DIR%%/www;
            location /small/ { try_files /small.bin =404; }
            location /large/ { try_files /large.bin =404; }
        }";
    Proxy::new(Kind::Millpond, conf)
        .file("www/small.bin", vec![b'x'; SMALL as usize])
        .file("www/large.bin", vec![b'x'; LARGE as usize])
        .start()
}

/// A server that has the hot object.
fn start(kind: Kind, origin: &Proxy, state: State) -> Result<Proxy> {
    let http = "access_log off; sendfile on;
        upstream origin { server %%ORIGIN%%; keepalive 64; keepalive_requests 1000000000; }";
    let (more, location) = match kind {
        Kind::Millpond => (metrics::SERVER, "proxy_cache_purge PURGE from 127.0.0.1;"),
        Kind::Nginx => ("", ""),
    };
    let conf = Conf {
        http: &[http, more].concat(),
        pass: "http://origin",
        location,
        ..Conf::default()
    };
    let zone = match state {
        State::Filling => format!("max_size={ROOM}m"),
        State::Scrubbing => "max_size=8g scrub=1s".to_owned(),
        _ => "max_size=8g".to_owned(),
    };
    let proxy = Proxy::new(kind, &conf.text().replace("max_size=8g", &zone))
        .value("ORIGIN", &format!("127.0.0.1:{}", origin.port()))
        .log_check(LogCheck::Off)
        .start()?;
    pinned(&proxy)?;
    Client::new(proxy.port()).get(HOT)?;
    Ok(proxy)
}

fn measured(kind: Kind, origin: &Proxy, sizes: &Sizes, options: &Options) -> Result<Measured> {
    let rate = match options.rate() {
        Some(rate) => rate,
        None => {
            let proxy = start(kind, origin, State::Quiet)?;
            let time = Duration::from_secs(3);
            let count = load::run(proxy.port(), HOT, CONNECTIONS, time)?;
            (count as f64 / time.as_secs_f64() / 2.0).floor()
        }
    };
    let (mut states, mut filled) = (Vec::new(), 0.0);
    let wanted = |state: &State| {
        let named = options.row.as_deref();
        *state == State::Quiet || named.is_none_or(|row| state.name().contains(row))
    };
    for state in State::ALL.into_iter().filter(wanted) {
        if !state.is_of(kind) {
            continue;
        }
        let mut proxy = start(kind, origin, state)?;
        prepare(&proxy, state, sizes).context("before hits")?;
        let rounds = match state {
            State::Restarting => restarts(&mut proxy, rate, sizes)?,
            _ => {
                let (rounds, beside) = rounds(&proxy, state, rate, sizes)?;
                eprintln!("{kind:?}, {}: {}", state.name(), beside.text);
                filled += beside.megabytes;
                rounds
            }
        };
        let middle = |share: usize| in_the_middle(rounds.iter().map(|round| round[share]));
        states.push((state, std::array::from_fn(middle)));
    }
    Ok(Measured {
        rate,
        states,
        filled,
    })
}

/// Fills a cache with what a state needs.
fn prepare(proxy: &Proxy, state: State, sizes: &Sizes) -> Result<()> {
    let (paths, bytes, count, rate) = match state {
        State::Quiet | State::Reloading => return Ok(()),
        State::Filling | State::Scrubbing => ("/large/first-", LARGE, ROOM, LARGE_RATE),
        State::Purging => ("/small/", SMALL, 20_000, ENTRY_RATE),
        State::Restarting => ("/small/", SMALL, sizes.entries, ENTRY_RATE),
    };
    let mut crowd = opened(proxy, bytes)?;
    let steady = Steady {
        active: CONNECTIONS as usize,
        rate,
        count,
    };
    let seen = well(crowd.ask(steady, &mut Paths::rising(paths))?)?;
    let megabytes = seen.bytes as f64 / 1e6;
    let seconds = seen.elapsed.as_secs_f64();
    eprintln!(
        "{:?}, {}: {count} entries, {megabytes:.0} MB in {seconds:.1} s",
        proxy.kind(),
        state.name()
    );
    Ok(())
}

/// Connections that have had the hot object, for bodies of so many bytes.
fn opened(proxy: &Proxy, bytes: u64) -> Result<Crowd> {
    let mut crowd = crowd_of(proxy, "", bytes)?;
    let mut first = match bytes {
        SMALL => hot(),
        _ => Paths::One("/large/one".to_owned()),
    };
    well(crowd.open(CONNECTIONS as usize, CONNECTIONS as usize, &mut first)?)?;
    Ok(crowd)
}

fn hot() -> Paths {
    Paths::One(HOT.to_owned())
}

/// Times of each round while something goes on.
fn rounds(proxy: &Proxy, state: State, rate: f64, sizes: &Sizes) -> Result<(Vec<Micros>, Beside)> {
    let (over, until) = channel();
    let is_over = AtomicBool::new(false);
    let kind = proxy.kind();
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| disturb(proxy, state, &is_over, until));
        let measure = || -> Result<Vec<Micros>> {
            let mut crowd = opened(proxy, SMALL)?;
            let steady = Steady::lasting(CONNECTIONS as usize, rate, sizes.time);
            let mut rounds = Vec::new();
            for round in 0..=sizes.rounds {
                let what = format!("{kind:?}, {}, round {round}", state.name());
                let micros = hits(&what, &mut crowd, steady, &mut hot())?;
                // The one before the first warms the server.
                if round > 0 {
                    rounds.push(micros);
                }
            }
            Ok(rounds)
        };
        let measured = measure();
        is_over.store(true, Ordering::SeqCst);
        drop(over);
        match beside.join() {
            Ok(beside) => Ok((measured?, beside?)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Disturbance of a state, until it is over; a word about it.
fn disturb(
    proxy: &Proxy,
    state: State,
    is_over: &AtomicBool,
    until: Receiver<()>,
) -> Result<Beside> {
    let told = |text| {
        Ok(Beside {
            text,
            ..Beside::default()
        })
    };
    match state {
        State::Quiet | State::Restarting => told("nothing beside".to_owned()),
        State::Filling => {
            let mut paths = Paths::rising("/large/more-");
            let rate = fill(proxy, (LARGE, LARGE_RATE), is_over, &mut paths)?;
            let megabytes = rate / 1e6;
            Ok(Beside {
                text: format!("{megabytes:.0} MB a second"),
                megabytes,
            })
        }
        State::Purging => std::thread::scope(|scope| {
            let purges = scope.spawn(|| {
                again(until, PURGE, |number| {
                    let prefix = format!("/small/{}*", number % 9 + 1);
                    let purge = Request::new("PURGE", &prefix);
                    let status = Client::new(proxy.port()).send(&purge)?.status;
                    ensure!(status == 200, "a purge was answered with {status}");
                    Ok(())
                })
            });
            let mut paths = Paths::rising("/small/");
            let rate = fill(proxy, (SMALL, SMALL_RATE), is_over, &mut paths)?;
            let count = purges.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            let rate = rate / SMALL as f64;
            told(format!("{count} purges, {rate:.0} requests a second"))
        }),
        State::Scrubbing => {
            let mut running = 0;
            let looks = again(until, LOOK, |_| {
                running += u64::from(metrics::value(proxy, "millpond_disk_scrub_running")? > 0.0);
                Ok(())
            })?;
            ensure!(
                2 * running > looks,
                "a scrub ran at {running} of {looks} looks"
            );
            told(format!("a scrub ran at {running} of {looks} looks"))
        }
        State::Reloading => {
            let count = again(until, RELOAD, |_| proxy.reload())?;
            told(format!("{count} reloads"))
        }
    }
}

/// Asks for other bodies at a rate; bytes a second that came.
fn fill(
    proxy: &Proxy,
    (bytes, rate): (u64, f64),
    is_over: &AtomicBool,
    paths: &mut Paths,
) -> Result<f64> {
    let mut crowd = opened(proxy, bytes)?;
    let (began, mut sum) = (Instant::now(), 0);
    let steady = Steady::lasting(16, rate, Duration::from_millis(200));
    while !is_over.load(Ordering::SeqCst) {
        sum += well(crowd.ask(steady, paths)?)?.bytes;
    }
    Ok(sum as f64 / began.elapsed().as_secs_f64())
}

/// Does something in equal distances until the sender is gone: how often.
fn again(
    until: Receiver<()>,
    every: Duration,
    mut what: impl FnMut(u64) -> Result<()>,
) -> Result<u64> {
    for number in 0.. {
        match until.recv_timeout(every) {
            Err(RecvTimeoutError::Timeout) => what(number)?,
            _ => return Ok(number),
        }
    }
    bail!("it never ended")
}

/// Times of hits behind restarts.
fn restarts(proxy: &mut Proxy, rate: f64, sizes: &Sizes) -> Result<Vec<Micros>> {
    let kind = proxy.kind();
    let mut rounds = Vec::new();
    for round in 1..=sizes.rounds {
        proxy.restart()?;
        pinned(proxy)?;
        let mut crowd = opened(proxy, SMALL)?;
        if kind == Kind::Nginx {
            crowd.rest(LOADER + LOADING / 10, &mut hot())?;
        }
        let what = format!("{kind:?}, restart {round} of {} entries", sizes.entries);
        let steady = Steady::lasting(CONNECTIONS as usize, rate, LOADING);
        rounds.push(hits(&what, &mut crowd, steady, &mut hot())?);
        if kind == Kind::Nginx {
            break;
        }
    }
    Ok(rounds)
}
