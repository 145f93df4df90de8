//! `experiments lock`: the time to the first byte of ten requests for one missing entry at once.
//!
//! The origin thinks for as long as that of the article did. Cacheable answers: how far the lock
//! sets waiters back, and how often the origin is asked. Answers that may not be stored: what the
//! lock costs where it cannot help, at first and once that is known.
//!
//! Each round asks for an entry of its own; the figures are over all rounds, but for the requests
//! to the origin, which are those of the round with the most. Configurations are measured one after
//! another, so that none takes time from another.

use std::sync::{Barrier, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request, binary};

use crate::tally::Tally;
use crate::{checks, workspace};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:10m max_size=1g;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_valid 200 600s;
        location / {
            proxy_pass http://%%ORIGIN%%;
            %%LINES%%
        }
    }";

/// Requests at once, as in the article.
const CLIENTS: usize = 10;
/// Rounds of cacheable answers; those that may not be stored take nginx up to five seconds each,
/// and get fewer.
const ROUNDS: usize = 10;
const SLOW_ROUNDS: usize = 2;
/// How long the origin thinks (the article's fastest first byte came after 6.3 ms).
const THINKS: Duration = Duration::from_millis(6);
/// How far the middle one of all first bytes may be from the fastest where waiters are woken at
/// once: a tenth of the article's polling interval, which leaves room for a machine that does other
/// work.
const TOGETHER_MS: f64 = 50.0;

/// One configuration of one server.
struct Setup {
    name: &'static str,
    kind: Kind,
    lines: &'static str,
    /// Requests to the origin in a round, at most.
    asked: usize,
    has_promise: bool,
}

const OFF: &str = "";
const ON: &str = "proxy_cache_lock on;";
/// The directive of the article's patch, which nginx does not know.
const PATCH: &str = "proxy_cache_lock on; proxy_cache_lock_wait_time 10ms;";

const SETUPS: [Setup; 5] = [
    nginx("nginx, no lock", OFF),
    nginx("nginx, lock", ON),
    millpond("Millpond, no lock", OFF, CLIENTS),
    millpond("Millpond, lock", ON, 1),
    millpond("Millpond, lock, the patch's line", PATCH, 1),
];

const fn nginx(name: &'static str, lines: &'static str) -> Setup {
    Setup {
        name,
        kind: Kind::Nginx,
        lines,
        asked: usize::MAX,
        has_promise: false,
    }
}

const fn millpond(name: &'static str, lines: &'static str, asked: usize) -> Setup {
    Setup {
        name,
        kind: Kind::Millpond,
        lines,
        asked,
        has_promise: true,
    }
}

/// Times to the first byte in milliseconds, in rising order, and requests of the worst round.
#[derive(Default)]
struct Figures {
    times: Vec<f64>,
    asked: usize,
}

impl Figures {
    fn at(&self, share: f64) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.times.get(index).copied().unwrap_or(f64::NAN)
    }

    fn row(&self, name: &str) -> String {
        let sum: f64 = self.times.iter().sum();
        format!(
            "| {name} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            self.at(0.0),
            self.at(1.0),
            sum / self.times.len() as f64,
            self.at(0.95),
            self.asked
        )
    }

    fn add(&mut self, times: Vec<f64>, asked: usize) {
        self.times.extend(times);
        self.times.sort_by(f64::total_cmp);
        self.asked = self.asked.max(asked);
    }
}

/// Runs every setup and prints the tables.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    if let [other, ..] = args {
        bail!("unknown option {other}");
    }
    let built = checks::build_binary().status()?;
    ensure!(built.success(), "the binary does not build");
    let mut sum = Tally::default();
    println!("{CLIENTS} requests at once, {ROUNDS} times; the origin takes {THINKS:?}\n");
    print_head();
    for setup in present() {
        let figures = measure(setup).with_context(|| setup.name.to_owned())?;
        println!("{}", figures.row(setup.name));
        sum += judge(setup, &figures, (setup.asked, TOGETHER_MS));
    }
    println!("\nthe same with answers that may not be stored, {SLOW_ROUNDS} times\n");
    print_head();
    for setup in present().filter(|setup| setup.lines == ON) {
        let (cold, known) = measure_unstored(setup).with_context(|| setup.name.to_owned())?;
        println!("{}", cold.row(&format!("{}, at first", setup.name)));
        println!("{}", known.row(&format!("{}, then", setup.name)));
        // At first, all wait for one answer; after that nobody waits.
        let waited = TOGETHER_MS + THINKS.as_secs_f64() * 1e3;
        sum += judge(setup, &cold, (CLIENTS, waited));
        sum += judge(setup, &known, (CLIENTS, TOGETHER_MS));
    }
    Ok(sum)
}

fn present() -> impl Iterator<Item = &'static Setup> {
    let setups = SETUPS.iter();
    setups.filter(|setup| setup.kind == Kind::Millpond || binary(setup.kind).is_some())
}

fn print_head() {
    println!("| time to first byte, ms | min | max | mean | 95 % | requests to origin |");
    println!("|---|---|---|---|---|---|");
}

/// Whether figures are within what is promised: requests of a round, and milliseconds from the
/// fastest first byte to the middle one.
fn judge(setup: &Setup, figures: &Figures, (asked, apart_ms): (usize, f64)) -> Tally {
    if !setup.has_promise {
        return Tally::PASS;
    }
    let apart = figures.at(0.5) - figures.at(0.0);
    if figures.asked > asked || apart > apart_ms {
        eprintln!(
            "{}: {} requests, at most {asked}; {apart:.2} ms apart, at most {apart_ms}",
            setup.name, figures.asked
        );
        return Tally::FAIL;
    }
    Tally::PASS
}

fn start(setup: &Setup, origin: &Origin) -> Result<Proxy> {
    let conf = CONF.replace("%%LINES%%", setup.lines);
    let mut builder = Proxy::new(setup.kind, &conf).origin(origin);
    if setup.kind == Kind::Millpond {
        builder = builder.binary(&workspace::binary());
    }
    builder.start()
}

fn answer() -> Answer {
    Answer::new(200).body("hello\n").delay_head(THINKS)
}

fn measure(setup: &Setup) -> Result<Figures> {
    let origin = Origin::start()?;
    origin.route("/*", answer());
    let proxy = start(setup, &origin)?;
    let mut figures = Figures::default();
    for round in 0..ROUNDS {
        ask_at_once(&proxy, &origin, &format!("/{round}"), &mut figures)?;
    }
    Ok(figures)
}

/// The first ten requests for an entry, and the next.
fn measure_unstored(setup: &Setup) -> Result<(Figures, Figures)> {
    let origin = Origin::start()?;
    origin.route("/*", answer().header("Cache-Control", "no-store"));
    let proxy = start(setup, &origin)?;
    let (mut cold, mut known) = (Figures::default(), Figures::default());
    for round in 0..SLOW_ROUNDS {
        let path = format!("/{round}");
        ask_at_once(&proxy, &origin, &path, &mut cold)?;
        ask_at_once(&proxy, &origin, &path, &mut known)?;
    }
    Ok((cold, known))
}

/// One round: every client has its connection before any of them asks.
fn ask_at_once(proxy: &Proxy, origin: &Origin, path: &str, figures: &mut Figures) -> Result<()> {
    let before = origin.requests().len();
    let (barrier, client) = (Barrier::new(CLIENTS), Client::new(proxy.port()));
    let times = std::sync::Mutex::new(Vec::new());
    let one = || -> Result<()> {
        let connected = client.connect();
        barrier.wait();
        let mut connection = connected?;
        let request = Request::get(path).header("Connection", "close");
        let started = Instant::now();
        let response = connection.exchange(&request)?;
        ensure!(response.status == 200, "status {}", response.status);
        let time = response.first_byte.saturating_duration_since(started);
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        times.push(time.as_secs_f64() * 1e3);
        Ok(())
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        for thread in started {
            match thread.join() {
                Ok(asked) => asked?,
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(())
    })?;
    let times = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    figures.add(times, origin.requests().len() - before);
    Ok(())
}
