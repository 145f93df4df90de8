//! `cargo xtask bench scale`: what a million entries cost, or `--entries 10000000`.
//!
//! | row | what |
//! |---|---|
//! | memory | bytes of the server for each entry beyond the first tenth |
//! | inserts | times of misses that are stored, at a fixed rate, while tables grow |
//! | hits | CPU time of hits of a thousand entries, among all and in a cache of a thousand |
//! | restart | seconds to the first hit and until all is known, after a close and after a kill |
//!
//! All goes through the binary by HTTP: 12,000 entries a second (`--rate`) of 128 bytes, which is
//! fourteen minutes for ten million. The origin is another Millpond, on the client's core. Times of
//! inserts hold the fetch from it; how long an insert holds a thread inside is `cargo xtask
//! store-bench inserts`. The memory tier has a mebibyte, so that it hides nothing. Another row of
//! hits is of all entries by chance: most of their bodies come from the disk's pages then.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use millpond_gauge::crowd::{Crowd, Paths, Steady};
use millpond_testkit::{Client, Deadline, Kind, Proxy};

use super::conf::Conf;
use super::line::Wanted;
use super::options::Options;
use super::rounds::spent;
use super::steady::{self, crowd_of, in_the_middle, pinned, well};
use super::{cpu, idle, metrics};
use crate::tally::Tally;

/// Entries, unless told.
const ENTRIES: u64 = 1_000_000;
/// Entries of the cache that is small.
const FEW: u64 = 1000;
/// Bytes of a body.
const BODY: u64 = 128;
/// Entries that are stored a second, unless told.
const RATE: f64 = 12_000.0;
/// Hits a second.
const HIT_RATE: f64 = 20_000.0;
const CONNECTIONS: usize = 64;
/// Text before the number of an entry.
const BEFORE: &str = "/n/";
/// The most bytes of memory for an entry, and for how many the store promises it: with fewer it
/// depends on which table has just grown.
const BOUND_BYTES: (f64, u64) = (64.0, 10_000_000);
/// The most times more that a hit may cost among many.
const BOUND_CPU: f64 = 1.1;
/// Seconds within which ten million are known after a close, and the least that is asked; after a
/// kill it is twice that.
const BOUND_KNOWN: (f64, f64) = (4.0, 0.5);
/// Longest wait for a server that was started.
const START: Duration = Duration::from_secs(120);

/// Measures it; what is above a bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let entries = options.entries(ENTRIES);
    let rate = options.rate().unwrap_or(RATE);
    cpu::pin(std::process::id(), cpu::CLIENT_CORE)?;
    let origin = origin()?;
    let few = start(&origin)?;
    let mut many = start(&origin)?;
    let mut tally = Tally::default();
    insert(&few, 0..FEW, rate)?;
    insert(&many, 0..FEW, rate)?;
    tally += inserts(&many, entries, rate)?;
    tally += hits([&few, &many], entries, options)?;
    drop(few);
    for way in [Way::Close, Way::Kill] {
        tally += restart(&mut many, entries, way)?;
    }
    Ok(tally)
}

/// A row that Millpond alone has.
fn own(name: String, unit: &'static str, figure: f64, wanted: Wanted) -> Tally {
    steady::row(name, unit, (None, figure), wanted)
}

/// Another Millpond, which has a small body for each path.
fn origin() -> Result<Proxy> {
    let conf = "
        keepalive_requests 1000000000;
        server { listen 127.0.0.1:%%PORT%%; location / { return 200 %%BODY%%; } }";
    Proxy::new(Kind::Millpond, conf)
        .value("BODY", &"x".repeat(BODY as usize))
        .start()
}

fn start(origin: &Proxy) -> Result<Proxy> {
    let http = "access_log off; sendfile on;
        upstream origin { server %%ORIGIN%%; keepalive 64; keepalive_requests 1000000000; }";
    let conf = Conf {
        http: &[http, metrics::SERVER].concat(),
        pass: "http://origin",
        ..Conf::default()
    };
    let text = conf.text();
    let zone = "max_size=64g memory=1m";
    let proxy = Proxy::new(Kind::Millpond, &text.replace("max_size=8g", zone))
        .value("ORIGIN", &format!("127.0.0.1:{}", origin.port()))
        .start()?;
    pinned(&proxy)?;
    Ok(proxy)
}

/// Connections that have asked once.
fn opened(proxy: &Proxy) -> Result<Crowd> {
    let mut crowd = crowd_of(proxy, "", BODY)?;
    let mut first = Paths::One("/first".to_owned());
    well(crowd.open(CONNECTIONS, CONNECTIONS, &mut first)?)?;
    Ok(crowd)
}

/// Stores entries: the microseconds that 999 of 1000 took at the most, and the longest.
fn insert(proxy: &Proxy, numbers: std::ops::Range<u64>, rate: f64) -> Result<(f64, f64)> {
    let mut crowd = opened(proxy)?;
    let steady = Steady {
        active: CONNECTIONS,
        rate,
        count: numbers.end - numbers.start,
    };
    let mut paths = Paths::Rising {
        before: BEFORE.to_owned(),
        next: numbers.start,
    };
    let first = cpu::First::now();
    let seen = well(crowd.ask(steady, &mut paths)?)?;
    drop(first);
    let [nearly, all] = [0.999, 1.0].map(|share| seen.times.micros_at(share));
    eprintln!(
        "entries {} to {}: {nearly:.0} µs (99.9 %), {all:.0} at the most, {:.1} s",
        numbers.start,
        numbers.end,
        seen.elapsed.as_secs_f64()
    );
    Ok((nearly, all))
}

/// Stores all entries but the first thousand, in ten parts: rows of their times, and of the memory
/// that those behind the first part took.
fn inserts(proxy: &Proxy, entries: u64, rate: f64) -> Result<Tally> {
    let mut parts = Vec::new();
    let part = |number: u64| FEW + (entries - FEW) * number / 10;
    let mut before = 0;
    for number in 0..10 {
        parts.push(insert(proxy, part(number)..part(number + 1), rate)?);
        if number == 0 {
            before = settled(proxy)?;
        }
    }
    let grown = settled(proxy)?.saturating_sub(before);
    let each = grown as f64 / (entries - part(1)).max(1) as f64;
    let known = metrics::value(proxy, "millpond_zone_records")?;
    ensure!(
        known >= entries as f64 * 0.999,
        "{known} entries were stored"
    );
    let index = metrics::value(proxy, "millpond_zone_index_bytes")? / known;
    let mut tally = Tally::default();
    let bound = match BOUND_BYTES {
        (bytes, promised) if entries >= promised => Wanted::AtMost(bytes),
        _ => Wanted::Nothing,
    };
    let name = format!("memory of {entries} entries");
    tally += own(name.clone(), "bytes each", each, bound);
    tally += own(
        format!("{name}: the index"),
        "bytes each",
        index,
        Wanted::Nothing,
    );
    let mut row = |what: &str, micros| {
        let name = format!("inserts at {rate} a second: {what}");
        tally += own(name, "µs", micros, Wanted::Nothing);
    };
    row(
        "99.9 % of the worst tenth",
        worst(parts.iter().map(|part| part.0)),
    );
    row(
        "99.9 % of the tenth in the middle",
        in_the_middle(parts.iter().map(|part| part.0)),
    );
    row("the longest of all", worst(parts.iter().map(|part| part.1)));
    Ok(tally)
}

/// Resident memory when nothing waits for the disk.
fn settled(proxy: &Proxy) -> Result<u64> {
    let is_written = || {
        let queued = metrics::value(proxy, "millpond_zone_queued_bytes").ok()?;
        (queued == 0.0).then_some(())
    };
    let written = Deadline::after(START).poll(is_written);
    written.context("the disk is not done")?;
    idle::resident(proxy)
}

fn worst(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Rows of what hits cost in both caches.
fn hits([few, many]: [&Proxy; 2], entries: u64, options: &Options) -> Result<Tally> {
    let time = options.time(5);
    let cost = |proxy: &Proxy, crowd: &mut Crowd, count| -> Result<f64> {
        let steady = Steady::lasting(CONNECTIONS, HIT_RATE, time);
        let mut paths = Paths::any(BEFORE, count);
        let (seen, spent) = spent(proxy, || {
            let _first = cpu::First::now();
            well(crowd.ask(steady, &mut paths)?)
        })?;
        Ok(spent.as_secs_f64() * 1e6 / seen.times.count() as f64)
    };
    let (mut of_few, mut of_many) = (opened(few)?, opened(many)?);
    let mut rounds = Vec::new();
    for round in 0..=options.rounds(5) {
        let costs = [
            cost(few, &mut of_few, FEW)?,
            cost(many, &mut of_many, FEW)?,
            cost(many, &mut of_many, entries)?,
        ];
        eprintln!("hits, round {round}: {costs:.2?} µs");
        // The one before the first warms both.
        if round > 0 {
            rounds.push(costs);
        }
    }
    let at = |which: usize| in_the_middle(rounds.iter().map(|costs| costs[which]));
    let over = |which: usize| in_the_middle(rounds.iter().map(|costs| costs[which] / costs[0]));
    let mut tally = Tally::default();
    let names = [
        format!("hits of {FEW} entries of {FEW}, CPU"),
        format!("hits of {FEW} entries of {entries}, CPU"),
        format!("hits of {entries} entries, CPU"),
    ];
    for (which, name) in names.iter().enumerate() {
        tally += own(name.clone(), "µs", at(which), Wanted::Nothing);
    }
    let name = format!("{}, over those of {FEW}", names[1]);
    tally += own(name, "times", over(1), Wanted::AtMost(BOUND_CPU));
    let name = format!("{}, over those of {FEW}", names[2]);
    tally += own(name, "times", over(2), Wanted::Nothing);
    Ok(tally)
}

/// The end of a process.
#[derive(Clone, Copy)]
enum Way {
    Close,
    Kill,
}

/// Ends and starts the server: rows of how long it takes until it knows what it had.
fn restart(proxy: &mut Proxy, entries: u64, way: Way) -> Result<Tally> {
    let (word, times) = match way {
        Way::Close => ("a close", 1.0),
        Way::Kill => ("a kill", 2.0),
    };
    match way {
        Way::Close => proxy.quit()?,
        Way::Kill => proxy.kill9()?,
    }
    let began = Instant::now();
    proxy.restart()?;
    pinned(proxy)?;
    // A miss stores its entry again, so each is asked for once.
    let mut number = entries;
    let client = Client::new(proxy.port());
    let mut is_hit = || {
        number = number.saturating_sub(1);
        let answer = client.get(&format!("{BEFORE}{number}")).ok()?;
        (answer.header("X-Cache-Status") == Some("HIT")).then(|| began.elapsed())
    };
    let deadline = Deadline::after(START);
    let hit = deadline.poll(&mut is_hit).context("there is no hit")?;
    let known = deadline
        .poll(|| metrics::is_ready(proxy).then(|| began.elapsed()))
        .context("not all is known again")?;
    let records = metrics::value(proxy, "millpond_zone_records")?;
    let least = match way {
        Way::Close => entries as f64 * 0.999,
        // What was not on the disk yet is gone.
        Way::Kill => entries as f64 * 0.99,
    };
    ensure!(records >= least, "{records} entries are known after {word}");
    let (seconds, at_least) = BOUND_KNOWN;
    let bound = (seconds * entries as f64 / 1e7).max(at_least) * times;
    let mut tally = Tally::default();
    let name = format!("restart of {entries} entries after {word}: first hit");
    tally += own(name, "s", hit.as_secs_f64(), Wanted::Nothing);
    let name = format!("restart of {entries} entries after {word}: all known");
    tally += own(name, "s", known.as_secs_f64(), Wanted::AtMost(bound));
    Ok(tally)
}
