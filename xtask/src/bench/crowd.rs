//! `cargo xtask bench crowd`: a hundred thousand connections to one server.
//!
//! | row | what |
//! |---|---|
//! | memory | bytes of the server for each idle connection, as in `idle` |
//! | hits | times of 10,000 that are active among them, beside those of 64 alone, at the same rate |
//! | burst | 50,000 that come at once: until each has had its answer |
//!
//! `--connections` is the number of all, and the most of each row; where a process may not have as
//! many descriptors as they need, that is told, and as many are measured as may be. `--rate` is
//! that of all hits together. Requests are due at fixed times and count from then
//! (`millpond_gauge::crowd`), on the core that servers do not have, before everything else there.
//! Rounds of hits alternate between the two servers of one kind. Connections come from many
//! addresses of the loopback network, since one has ports for 28,000.

use std::time::Duration;

use anyhow::{Result, ensure};
use millpond_gauge::crowd::{self, Crowd, Paths, Steady};
use millpond_testkit::{Answer, Kind, Origin, Proxy, binary};

use super::conf::Conf;
use super::line::Wanted;
use super::options::Options;
use super::steady::{self, Micros, SHARES, crowd_of, hits, in_the_middle, pinned, well};
use super::{cpu, idle};
use crate::tally::Tally;

/// Bytes of the object.
const BODY: u64 = 1 << 10;
/// Connections in all, unless told.
const USUAL: u32 = 100_000;
/// Hits a second, unless told: less than half of what the slower server can.
const RATE: f64 = 15_000.0;
/// Connections of the crowd that are active.
const ACTIVE: usize = 10_000;
/// Connections that come at once.
const BURST: usize = 50_000;
/// Connections that are enough for that rate.
const FEW: usize = 64;
/// The most bytes that an idle connection may take.
const BOUND_BYTES: f64 = 700.0;
/// The most times longer that the 99th of 100 hits may take among the crowd.
const BOUND_TIME: f64 = 1.5;
/// Connections that are opened at one time while the crowd comes.
const AT_ONCE: usize = 64;
/// Descriptors of a server for three connections, and those beside them: Millpond keeps a quarter
/// for segments, and of its connections some for upstreams.
const FILES: (u64, u64) = (5, 2000);

/// The figures of one server.
struct Measured {
    /// Bytes for each idle connection.
    bytes: f64,
    /// Microseconds of hits by share, alone and in the crowd, of each round.
    hits: Vec<[Micros; 2]>,
    /// Seconds and failures of each burst.
    bursts: Vec<(f64, u64)>,
}

/// Amounts of connections and time.
#[derive(Clone, Copy)]
struct Sizes {
    all: usize,
    active: usize,
    burst: usize,
    rate: f64,
    rounds: usize,
    time: Duration,
}

/// Measures both servers; Millpond above a bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    let wanted = options.connections(USUAL) as u64;
    let all = usize::try_from(possible(wanted))?;
    if (all as u64) < wanted {
        tally += Tally::SKIP;
    }
    let sizes = Sizes {
        all,
        active: ACTIVE.min(all),
        burst: BURST.min(all),
        rate: options.rate().unwrap_or(RATE),
        rounds: options.rounds(5),
        time: options.time(5),
    };
    cpu::pin(std::process::id(), cpu::CLIENT_CORE)?;
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Content-Type", "text/plain");
    origin.route(idle::PATH, answer.body(vec![b'x'; BODY as usize]));
    let nginx = binary(Kind::Nginx)
        .map(|_| measured(Kind::Nginx, &origin, sizes))
        .transpose()?;
    let millpond = measured(Kind::Millpond, &origin, sizes)?;
    tally += told(sizes, nginx.as_ref(), &millpond);
    Ok(tally)
}

/// As many of so many connections as there may be; says what is missing for all of them.
fn possible(wanted: u64) -> u64 {
    let files = wanted * FILES.0 / 3 + FILES.1;
    let most = crowd::make_room(files);
    if most >= files {
        return wanted;
    }
    let hundreds = most.saturating_sub(FILES.1) * 3 / FILES.0 / 100;
    let all = hundreds.max(1) * 100;
    eprintln!(
        "{wanted} connections: skipped, since a process needs {files} open files and may have \
         {most} (ulimit -Hn, which only CAP_SYS_RESOURCE raises); {all} are measured"
    );
    all
}

/// Prints the rows.
fn told(sizes: Sizes, nginx: Option<&Measured>, millpond: &Measured) -> Tally {
    let mut tally = Tally::default();
    let mut row = |name: String, unit, wanted, figure: &dyn Fn(&Measured) -> f64| {
        let figures = (nginx.map(figure), figure(millpond));
        tally += steady::row(name, unit, figures, wanted);
    };
    let Sizes { all, active, .. } = sizes;
    let bound = Wanted::AtMost(BOUND_BYTES);
    let name = format!("memory of {all} idle connections");
    row(name, "bytes each", bound, &|it| it.bytes);
    let hits = [
        format!("{FEW} connections"),
        format!("{active} of {all} connections"),
    ];
    for (at, name) in hits.iter().enumerate() {
        for (share, (_, word)) in SHARES.iter().enumerate() {
            let name = format!("hits at {} a second, {name}: {word}", sizes.rate);
            row(name, "µs", Wanted::Nothing, &|it| {
                in_the_middle(it.hits.iter().map(|round| round[at][share]))
            });
        }
    }
    for (share, (_, word)) in SHARES.iter().enumerate() {
        let wanted = match share {
            1 => Wanted::AtMost(BOUND_TIME),
            _ => Wanted::Nothing,
        };
        let name = format!("hits in the crowd over those of {FEW}: {word}");
        row(name, "times", wanted, &|it| {
            in_the_middle(
                it.hits
                    .iter()
                    .map(|round| round[1][share] / round[0][share]),
            )
        });
    }
    let name = format!("{} connections at once, all answered", sizes.burst);
    row(name, "s", Wanted::Nothing, &|it| {
        in_the_middle(it.bursts.iter().map(|burst| burst.0))
    });
    let name = format!("{} connections at once, not answered", sizes.burst);
    row(name, "in all", Wanted::AtMost(0.0), &|it| {
        it.bursts.iter().map(|burst| burst.1).sum::<u64>() as f64
    });
    tally
}

fn measured(kind: Kind, origin: &Origin, sizes: Sizes) -> Result<Measured> {
    let (bytes, hits) = idle_and_active(kind, origin, sizes)?;
    let mut bursts = Vec::new();
    let proxy = start(kind, origin, sizes.all)?;
    // Hits are wanted, and none of the origin's connections.
    well(crowd_of(&proxy, idle::FIELDS, BODY)?.open(1, 1, &mut path())?)?;
    for round in 0..sizes.rounds {
        let mut crowd = crowd_of(&proxy, idle::FIELDS, BODY)?;
        let first = cpu::First::now();
        let seen = crowd.open(sizes.burst, sizes.burst, &mut path())?;
        drop(first);
        let seconds = seen.elapsed.as_secs_f64();
        eprintln!(
            "{kind:?}, burst {round}: {seconds:.2} s, {} not answered {:?}",
            seen.failed, seen.examples
        );
        bursts.push((seconds, seen.failed));
    }
    Ok(Measured {
        bytes,
        hits,
        bursts,
    })
}

/// Bytes of an idle connection, and times of hits of each round.
fn idle_and_active(kind: Kind, origin: &Origin, sizes: Sizes) -> Result<(f64, Vec<[Micros; 2]>)> {
    let proxy = start(kind, origin, sizes.all)?;
    let mut crowd = crowd_of(&proxy, idle::FIELDS, BODY)?;
    let mut bytes = grown(&proxy, &mut crowd, sizes.all)?;
    if kind == Kind::Nginx {
        let room = room(kind, sizes.all);
        bytes += idle::in_advance(&proxy, origin, room)? * room as f64 / sizes.all as f64;
    }
    eprintln!(
        "{kind:?}: {bytes:.0} bytes for each of {} connections",
        sizes.all
    );
    let alone = start(kind, origin, FEW)?;
    let mut few = crowd_of(&alone, idle::FIELDS, BODY)?;
    well(few.open(FEW, FEW, &mut path())?)?;
    let mut rounds = Vec::new();
    // The round before the first one warms both.
    for round in 0..=sizes.rounds {
        let ask = |crowd: &mut Crowd, active| {
            let what = format!("{kind:?}, {active} active, round {round}");
            let steady = Steady::lasting(active, sizes.rate, sizes.time);
            hits(&what, crowd, steady, &mut path())
        };
        let times = [ask(&mut few, FEW)?, ask(&mut crowd, sizes.active)?];
        if round > 0 {
            rounds.push(times);
        }
    }
    ensure!(crowd.open_count() == sizes.all, "idle connections ended");
    Ok((bytes, rounds))
}

/// A server with room for so many connections, on its core.
fn start(kind: Kind, origin: &Origin, count: usize) -> Result<Proxy> {
    let conf = Conf {
        room: room(kind, count),
        ..Conf::default()
    };
    // As many as the kernel lets wait for being accepted, unless told otherwise (somaxconn).
    let text = conf.text().replace("%%PORT%%;", "%%PORT%% backlog=4096;");
    let proxy = Proxy::new(kind, &text).origin(origin).start()?;
    pinned(&proxy)?;
    Ok(proxy)
}

/// `worker_connections` for so many.
fn room(kind: Kind, count: usize) -> usize {
    match kind {
        // It ends idle ones when a sixteenth is left.
        Kind::Nginx => count + count / 8 + 200,
        // A part of them is kept for upstreams.
        Kind::Millpond => count + count / 4 + 800,
    }
}

fn path() -> Paths {
    Paths::One(idle::PATH.to_owned())
}

/// Opens connections in ten crowds with a pause behind each: by how many bytes each of those after
/// the first tenth made the server grow.
fn grown(proxy: &Proxy, crowd: &mut Crowd, all: usize) -> Result<f64> {
    let (mut before, mut first) = (0, 0);
    for number in 1..=idle::CROWDS {
        let wanted = all * number / idle::CROWDS;
        let more = wanted - crowd.open_count();
        well(crowd.open(more, AT_ONCE, &mut path())?)?;
        let rested = crowd.rest(idle::PAUSE, &mut path())?;
        ensure!(rested.ended == 0, "{} idle connections ended", rested.ended);
        if number == 1 {
            (before, first) = (idle::resident(proxy)?, wanted);
        }
    }
    let growth = idle::resident(proxy)?.saturating_sub(before);
    Ok(growth as f64 / (all - first) as f64)
}
