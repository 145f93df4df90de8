//! `cargo xtask bench idle`: memory of a server for each idle connection.
//!
//! Every client asks for one small object, has its answer, and keeps its connection. They come in
//! ten crowds with a pause behind each, in which those that came before are idle in earnest. The
//! figure is by how much the server's resident memory has grown since it had the first crowd, over
//! the connections opened since then. What the kernel holds for a socket is not in it. nginx sets
//! its connections up in advance, as many as `worker_connections` says: that is counted by starting
//! another one without.
//!
//! A client looks like a browser: a request line and six fields.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Kind, Origin, Proxy, binary};

use super::conf::Conf;
use super::cpu;
use super::line::{Line, Wanted};
use super::options::Options;
use crate::tally::Tally;

pub(super) const PATH: &str = "/1k";
/// Fields of a request, as a browser sends them.
pub(super) const FIELDS: &str = "\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
Accept-Language: en-GB,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
Connection: keep-alive\r\n";
/// The most that one may take.
const BOUND_BYTES: f64 = 700.0;
/// The crowds in which clients come.
pub(super) const CROWDS: usize = 10;
/// The time behind each of them; a connection of Millpond is quiet after two seconds.
pub(super) const PAUSE: Duration = Duration::from_millis(2500);

/// Measures both servers; Millpond above the bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let wanted = options.connections(10_000);
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("Content-Type", "text/plain");
    origin.route(PATH, answer.body(vec![b'x'; 1 << 10]));
    let nginx = match binary(Kind::Nginx) {
        Some(_) => {
            let proxy = start(Kind::Nginx, &origin, wanted)?;
            Some(grown(&proxy, wanted)?.1 + in_advance(&proxy, &origin, wanted)?)
        }
        None => None,
    };
    let proxy = start(Kind::Millpond, &origin, wanted)?;
    let (count, millpond) = grown(&proxy, wanted)?;
    let line = Line {
        row: format!("memory of {count} idle connections"),
        unit: "bytes each",
        nginx,
        millpond,
        wanted: Wanted::AtMost(BOUND_BYTES),
    };
    Ok(line.print())
}

fn start(kind: Kind, origin: &Origin, room: usize) -> Result<Proxy> {
    let conf = Conf {
        room: room + 200,
        ..Conf::default()
    };
    Proxy::new(kind, &conf.text()).origin(origin).start()
}

/// Opens connections and leaves them idle: how many, and by how many bytes each of those after the
/// first tenth made the server grow.
fn grown(proxy: &Proxy, wanted: usize) -> Result<(usize, f64)> {
    let mut open = Vec::new();
    let first = wanted / CROWDS;
    while open.len() < first {
        open.push(idle(proxy)?);
    }
    be_quiet(&mut open)?;
    let before = resident(proxy)?;
    while open.len() < wanted {
        match idle(proxy) {
            Ok(connection) => open.push(connection),
            Err(error) => {
                eprintln!(
                    "{} connections are as many as can be: {error:#}",
                    open.len()
                );
                break;
            }
        }
        if open.len() % first.max(1) == 0 {
            be_quiet(&mut open)?;
        }
    }
    ensure!(open.len() > first, "no more connections can be opened");
    be_quiet(&mut open)?;
    let growth = resident(proxy)?.saturating_sub(before);
    Ok((open.len(), growth as f64 / (open.len() - first) as f64))
}

/// Lets the connections idle for a while; none of them may end.
fn be_quiet(open: &mut [TcpStream]) -> Result<()> {
    let Some(first) = open.first_mut() else {
        return Ok(());
    };
    first.set_read_timeout(Some(PAUSE))?;
    let end = first.read(&mut [0]);
    let is_open = end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    ensure!(is_open, "an idle connection ended");
    Ok(())
}

/// Bytes for each connection that the server took when it started.
pub(super) fn in_advance(proxy: &Proxy, origin: &Origin, room: usize) -> Result<f64> {
    let small = start(proxy.kind(), origin, 0)?;
    let large = start(proxy.kind(), origin, room)?;
    let more = resident(&large)?.saturating_sub(resident(&small)?);
    Ok(more as f64 / room as f64)
}

/// A connection that has had its answer.
fn idle(proxy: &Proxy) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{FIELDS}\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        // The object is one KiB long.
        if end.is_some_and(|end| answer.len() >= end + 4 + (1 << 10)) {
            ensure!(answer.starts_with(b"HTTP/1.1 200"), "not answered with 200");
            return Ok(stream);
        }
        let count = stream.read(&mut piece)?;
        ensure!(count > 0, "the server closed a connection");
        answer.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
}

/// Resident memory of a server's processes, bytes.
pub(super) fn resident(proxy: &Proxy) -> Result<u64> {
    let pid = proxy.pid().context("the server is not running")?;
    let mut sum = 0;
    for pid in cpu::family(pid)? {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        sum += kib.context("no VmRSS")?.trim().parse::<u64>()? << 10;
    }
    Ok(sum)
}
