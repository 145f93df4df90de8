//! Questions to name servers over UDP, and over TCP where an answer did not fit.
//!
//! ```text
//! round 1: server i   ── all kinds at once, UDP ──► answers, truncated ones again over TCP
//! round 2: server i+1 ── the kinds without an answer, after 5 s ──► …
//! ```
//!
//! Each round has a socket of its own, so that its port, like the ids, cannot be guessed; the
//! kernel lets in what comes from the server only. What is no answer is logged and waited past.
//!
//! Invariants:
//! 1. Rounds end when every kind has an answer, when one is an error, or after `MOST_ROUNDS`.
//! 2. A message is read up to its announced length, which is 64 KiB at most.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout_at;

use super::message::{self, Answer, Kind, Unfit};
use crate::chance;
use crate::clock::{self, Instant};
use crate::log::error::{self, Level};

/// The time after which the next server is asked (nginx's number).
const ROUND_TIME: Duration = Duration::from_secs(5);

/// Rounds after which a name is given up, if somebody still waits (arbitrary: an hour).
const MOST_ROUNDS: usize = 720;

/// The size of a message over UDP that no server of ours exceeds (nginx's number, too).
const UDP_MAX: usize = 4096;

/// A question that waits for its answer.
struct Open {
    kind: Kind,
    id: u16,
    answer: Option<Answer>,
}

/// The servers, and with which to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Servers<'a> {
    /// All of them.
    pub all: &'a [SocketAddr],
    /// The first to ask.
    pub first: usize,
}

/// Asks for a name until there is an answer of each kind or one is an error; none when nobody
/// wants it any more.
pub(crate) async fn ask(
    servers: Servers<'_>,
    name: &str,
    kinds: &[Kind],
    is_wanted: impl Fn() -> bool,
) -> Option<Vec<Answer>> {
    let mut open: Vec<Open> = kinds.iter().map(|kind| Open::new(*kind)).collect();
    for round in 0..MOST_ROUNDS {
        if !is_wanted() {
            return None;
        }
        let at = servers.first.wrapping_add(round) % servers.all.len().max(1);
        let server = *servers.all.get(at)?;
        let deadline = clock::instant() + ROUND_TIME;
        let asked = timeout_at(deadline, ask_once(server, name, &mut open)).await;
        match asked {
            Ok(Ok(())) => return Some(open.into_iter().filter_map(|open| open.answer).collect()),
            Ok(Err(failure)) => {
                let text = error::os_error(&failure);
                let message = format_args!("{text} while resolving \"{name}\", resolver: {server}");
                error::process(Level::Error, message);
                let is_last = (round + 1) % servers.all.len() == 0;
                if is_last {
                    clock::sleep_until(deadline).await;
                }
            }
            Err(_) => {}
        }
    }
    None
}

impl Open {
    fn new(kind: Kind) -> Self {
        Open {
            kind,
            id: new_id(),
            answer: None,
        }
    }
}

fn new_id() -> u16 {
    (chance::word() & 0xffff) as u16
}

/// One round with one server.
async fn ask_once(server: SocketAddr, name: &str, open: &mut [Open]) -> io::Result<()> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    for question in open.iter_mut().filter(|open| open.answer.is_none()) {
        question.id = new_id();
        let message = message::question(question.id, name, question.kind);
        socket.send(&message.unwrap_or_default()).await?;
    }
    let mut buffer = vec![0; UDP_MAX];
    while !is_done(open) {
        let len = socket.recv(&mut buffer).await?;
        let received = buffer.get(..len).unwrap_or_default();
        let Some((index, answer)) = fit(received, name, open) else {
            continue;
        };
        let Some(question) = open.get_mut(index) else {
            continue;
        };
        question.answer = Some(if answer.is_truncated {
            ask_tcp(server, name, question).await?
        } else {
            answer
        });
    }
    Ok(())
}

/// True when nothing more has to be waited for.
fn is_done(open: &[Open]) -> bool {
    let is_error = |open: &Open| open.answer.as_ref().is_some_and(|answer| answer.code != 0);
    open.iter().all(|open| open.answer.is_some()) || open.iter().any(is_error)
}

/// The open question that a message answers; another message is logged.
fn fit(received: &[u8], name: &str, open: &[Open]) -> Option<(usize, Answer)> {
    let mut why = Unfit::Other;
    for (index, question) in open.iter().enumerate() {
        if question.answer.is_some() {
            continue;
        }
        match message::answer(received, (question.id, name, question.kind)) {
            Ok(answer) => return Some((index, answer)),
            Err(Unfit::Other) => {}
            Err(other) => why = other,
        }
    }
    let message = format_args!("{why} for {name}");
    error::process(Level::Error, message);
    None
}

async fn ask_tcp(server: SocketAddr, name: &str, question: &Open) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let message = message::question(question.id, name, question.kind).unwrap_or_default();
    let len = u16::try_from(message.len()).unwrap_or_default();
    let framed = [&len.to_be_bytes()[..], &message].concat();
    stream.write_all(&framed).await?;
    let mut buffer = Vec::new();
    loop {
        let len = stream.read_u16().await?;
        buffer.resize(usize::from(len), 0);
        stream.read_exact(&mut buffer).await?;
        match message::answer(&buffer, (question.id, name, question.kind)) {
            Ok(answer) if !answer.is_truncated => return Ok(answer),
            _ => {
                let message = format_args!("unexpected TCP DNS response for {name}");
                error::process(Level::Error, message);
            }
        }
    }
}

/// Instant until which an answer that comes now is good.
pub(crate) fn valid_until(answers: &[Answer], valid: Option<Duration>) -> Instant {
    let ttl = answers.iter().filter_map(|answer| answer.ttl).min();
    let lifetime = valid.unwrap_or(Duration::from_secs(u64::from(ttl.unwrap_or(0))));
    clock::instant() + lifetime
}
