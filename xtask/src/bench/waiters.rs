//! `cargo xtask bench waiters`: how far behind the first of many that ask for a missing object at
//! once the others get their first byte.
//!
//! The origin thinks for 100 ms, so that all have asked before there is anything; the lock is on.
//! Each round asks for an object of its own. One thread has all clients and looks at them in turn,
//! so that the figure holds no wake-ups but the server's: a look at two hundred takes a tenth of a
//! millisecond. A figure is over all waiters of all rounds.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::{Answer, Kind, Origin, Proxy, binary};

use super::conf::Conf;
use super::line::{Line, Wanted};
use super::options::Options;
use super::{cpu, sorted};
use crate::tally::Tally;

/// The time that the origin thinks.
const THINKS: Duration = Duration::from_millis(100);
/// Longest wait for all answers of a round; nginx polls every half second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Clients at once, and how many milliseconds behind the first the 99th of 100 may be.
const ROWS: [(usize, f64); 2] = [(10, 2.0), (200, 10.0)];

/// Measures both rows with both servers; Millpond above a bound counts as failed, and so does a
/// second request to the origin.
pub(super) fn run(options: &Options) -> Result<Tally> {
    // The clients' thread is never idle, and is not to take the server's core.
    cpu::pin(std::process::id(), cpu::CLIENT_CORE)?;
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("hello\n").delay_head(THINKS));
    let conf = Conf {
        location: "proxy_cache_lock on;",
        ..Conf::default()
    };
    let start = |kind| -> Result<Proxy> {
        let proxy = Proxy::new(kind, &conf.text()).origin(&origin).start()?;
        let pid = proxy.pid().context("the server is not running")?;
        cpu::pin(pid, cpu::SERVER_CORE)?;
        Ok(proxy)
    };
    let nginx = binary(Kind::Nginx)
        .map(|_| start(Kind::Nginx))
        .transpose()?;
    let millpond = start(Kind::Millpond)?;
    let mut tally = Tally::default();
    for (clients, bound) in ROWS {
        let measured = |proxy| measured(proxy, &origin, (clients, options.rounds(10)));
        let (millpond, asked) = measured(&millpond)?;
        let line = Line {
            row: format!("{clients} waiters: first byte behind the leader's, 99 %"),
            unit: "ms",
            nginx: nginx.as_ref().map(measured).transpose()?.map(|it| it.0),
            millpond,
            wanted: Wanted::AtMost(bound),
        };
        tally += line.print();
        if asked != 1.0 {
            eprintln!("the origin was asked {asked:.1} times in each round");
            tally += Tally::FAIL;
        }
    }
    Ok(tally)
}

/// Milliseconds that 99 of 100 waiters come behind the first at the most, and requests to the
/// origin in a round.
fn measured(
    proxy: &Proxy,
    origin: &Origin,
    (clients, rounds): (usize, usize),
) -> Result<(f64, f64)> {
    origin.forget_requests();
    let mut behind = Vec::new();
    for round in 0..rounds {
        let path = format!("/{:?}/{clients}/{round}", proxy.kind());
        behind.extend(ask_at_once(proxy, clients, &path)?);
    }
    let asked = origin.requests().len() as f64 / rounds as f64;
    let behind = sorted(behind.into_iter());
    let at = |share: f64| behind[((behind.len() - 1) as f64 * share).round() as usize];
    eprintln!(
        "{:?}, {clients} clients: {:.2} ms in the middle, {:.2} at the most",
        proxy.kind(),
        at(0.5),
        at(1.0)
    );
    Ok((at(0.99), asked))
}

/// One round: milliseconds from the first client's first byte to each of the others'.
fn ask_at_once(proxy: &Proxy, clients: usize, path: &str) -> Result<Vec<f64>> {
    let mut open = Vec::new();
    for _ in 0..clients {
        open.push(TcpStream::connect(("127.0.0.1", proxy.port()))?);
    }
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    for stream in &mut open {
        stream.write_all(request.as_bytes())?;
        stream.set_nonblocking(true)?;
    }
    let started = Instant::now();
    let mut came = Vec::new();
    while !open.is_empty() {
        ensure!(started.elapsed() < PATIENCE, "a client was not answered");
        let mut error = None;
        open.retain_mut(|stream| {
            let mut answer = [0; 1024];
            match stream.read(&mut answer) {
                Ok(count) if answer[..count].starts_with(b"HTTP/1.1 200") => {
                    came.push(started.elapsed().as_secs_f64() * 1e3);
                    false
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => true,
                other => {
                    error = Some(format!("not answered with 200: {other:?}"));
                    false
                }
            }
        });
        if let Some(error) = error {
            bail!(error);
        }
        // The origin's threads have this core, too.
        std::thread::yield_now();
    }
    let first = came.iter().copied().fold(f64::INFINITY, f64::min);
    let mut behind: Vec<f64> = came.into_iter().map(|time| time - first).collect();
    // The first is behind nobody.
    behind.sort_by(f64::total_cmp);
    behind.remove(0);
    Ok(behind)
}
