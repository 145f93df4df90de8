//! `upstream` with its `server` lines: groups of peers and whose turn it is.
//!
//! The turn is nginx's smooth weighted round robin: each peer's current weight grows by its
//! effective weight, the largest is taken and pays the total. A failure takes from the effective
//! weight, time gives it back. The state is shared by all workers, so that several threads take
//! turns as one worker of nginx would.
//!
//! Invariants:
//! 1. A peer that failed `max_fails` times within `fail_timeout` rests for as long.
//! 2. A group with one peer never lets it rest: there is nobody else to ask.
//! 3. Backup peers are asked only when every other one was tried or rests.

use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_conf::value::parse_duration;
use millpond_conf::{Contexts, Statement, Word};

use crate::clock::{self, Instant};
use crate::downstream::address::Address;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::scope::refused;
use crate::upstream::keepalive::KeepAliveLimits;

/// Rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "upstream",
    contexts: Contexts::HTTP,
    syntax: "name { server address [weight=n] [max_fails=n] [fail_timeout=time] [backup] [down]; … }",
    is_block: true,
    pass: Pass::First,
    doc: "A group of servers that requests are passed to in turn.",
    apply: upstream,
}];

/// Lines of the block that belong to modules of nginx of their own; `server` is everybody's.
pub const LINES: &[&str] = &[
    "keepalive",
    "keepalive_requests",
    "keepalive_time",
    "keepalive_timeout",
    "zone",
];

/// A server of a group.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it is.
    pub address: Address,
    /// The server as it was written, for `$proxy_host` and messages.
    pub server: String,
    /// Its share of the turns.
    pub weight: u32,
    /// Failures after which it rests; 0: it never does.
    pub max_fails: u32,
    /// The time in which failures count, and for which it rests.
    pub fail_timeout: Duration,
    /// Most connections at once; 0: any number.
    pub max_conns: u32,
    /// Asked only when the others cannot be.
    pub is_backup: bool,
    /// Never asked.
    pub is_down: bool,
}

/// A group of peers.
#[derive(Debug)]
pub struct Group {
    /// The name.
    pub name: String,
    /// The peers, backup ones included.
    pub peers: Vec<Peer>,
    /// How idle connections are kept.
    pub keep_alive: KeepAliveLimits,
    turns: Mutex<Vec<Turn>>,
}

/// A peer's standing.
#[derive(Clone, Debug)]
struct Turn {
    current: i64,
    effective: i64,
    fails: u32,
    connections: u32,
    accessed: Option<Instant>,
    checked: Option<Instant>,
}

/// The peers that one request has tried.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    peers: Vec<usize>,
}

impl Group {
    /// A group with all turns even.
    pub fn new(name: String, peers: Vec<Peer>, keep_alive: KeepAliveLimits) -> Self {
        let turns = peers
            .iter()
            .map(|peer| Turn {
                current: 0,
                effective: i64::from(peer.weight),
                fails: 0,
                connections: 0,
                accessed: None,
                checked: None,
            })
            .collect();
        Group {
            name,
            peers,
            keep_alive,
            turns: Mutex::new(turns),
        }
    }

    /// The number of peers that a request may try.
    pub fn tries(&self) -> usize {
        self.peers
            .iter()
            .filter(|peer| !peer.is_down)
            .count()
            .max(1)
    }

    /// The peer whose turn it is among those not tried; counts a connection to it.
    pub fn pick(&self, tried: &mut Tried) -> Option<usize> {
        let now = clock::instant();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let picked = if self.peers.len() == 1 {
            let turn_is_free = tried.peers.is_empty() && !self.peers[0].is_down;
            turn_is_free.then_some(0)
        } else {
            self.pick_of(&mut turns, tried, now, false)
                .or_else(|| self.pick_of(&mut turns, tried, now, true))
        };
        if picked.is_none() && self.peers.len() > 1 {
            // nginx: when nobody is live, everybody gets another chance next time.
            for turn in turns.iter_mut() {
                turn.fails = 0;
            }
        }
        let index = picked?;
        tried.peers.push(index);
        turns.get_mut(index)?.connections += 1;
        Some(index)
    }

    fn pick_of(
        &self,
        turns: &mut [Turn],
        tried: &Tried,
        now: Instant,
        backup: bool,
    ) -> Option<usize> {
        let mut best: Option<(usize, i64)> = None;
        let mut total = 0;
        for (index, (peer, turn)) in self.peers.iter().zip(turns.iter_mut()).enumerate() {
            if peer.is_backup != backup || !turn.is_live(peer, now) || tried.peers.contains(&index)
            {
                continue;
            }
            turn.current += turn.effective;
            total += turn.effective;
            if turn.effective < i64::from(peer.weight) {
                turn.effective += 1;
            }
            if best.is_none_or(|(_, current)| turn.current > current) {
                best = Some((index, turn.current));
            }
        }
        let (index, _) = best?;
        let turn = turns.get_mut(index)?;
        turn.current -= total;
        if turn
            .checked
            .is_none_or(|at| now - at > self.peers[index].fail_timeout)
        {
            turn.checked = Some(now);
        }
        Some(index)
    }

    /// Ends a connection's count.
    pub fn release(&self, index: usize) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get_mut(index) {
            turn.connections = turn.connections.saturating_sub(1);
        }
    }

    /// Notes that a peer failed.
    pub fn failed(&self, index: usize) {
        let (Some(peer), now) = (self.peers.get(index), clock::instant()) else {
            return;
        };
        if self.peers.len() == 1 {
            return;
        }
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(turn) = turns.get_mut(index) else {
            return;
        };
        turn.fails += 1;
        turn.accessed = Some(now);
        turn.checked = Some(now);
        if let Some(share) = peer.weight.checked_div(peer.max_fails) {
            turn.effective = (turn.effective - i64::from(share)).max(0);
        }
    }

    /// Notes that a peer answered.
    pub fn answered(&self, index: usize) {
        if self.peers.len() == 1 {
            return;
        }
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(turn) = turns.get_mut(index) else {
            return;
        };
        if turn.accessed < turn.checked {
            turn.fails = 0;
        }
    }
}

impl Turn {
    fn is_live(&self, peer: &Peer, now: Instant) -> bool {
        if peer.is_down || (peer.max_conns > 0 && self.connections >= peer.max_conns) {
            return false;
        }
        let rests = peer.max_fails > 0
            && self.fails >= peer.max_fails
            && self.checked.is_some_and(|at| now - at <= peer.fail_timeout);
        !rests
    }
}

/// Reads the block.
fn upstream(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [name] = statement.args.as_slice() else {
        builder.error(
            statement.span,
            "invalid number of arguments in \"upstream\" directive",
        );
        return;
    };
    if builder
        .declared
        .upstreams
        .iter()
        .any(|group| group.name == name.text)
    {
        builder.error(name.span, format!("duplicate upstream \"{}\"", name.text));
        return;
    }
    let mut peers = Vec::new();
    let mut keep_alive = KeepAliveLimits::default();
    let body = statement.body.as_deref().unwrap_or_default();
    for line in body {
        match line.name.text.as_str() {
            "server" => match parse_server(line) {
                Ok(found) => peers.extend(found),
                Err((word, message)) => builder.error(word.span, message),
            },
            "zone" => {}
            other if other.starts_with("keepalive") => {
                if let Err(message) = keep_alive.apply(line) {
                    builder.error(line.span, message);
                }
            }
            _ => unclaimed(builder, line),
        }
    }
    if peers.is_empty() && !builder.cx.diagnostics.has_errors() {
        builder.error(statement.span, "no servers are inside upstream");
    }
    let group = Group::new(name.text.clone(), peers, keep_alive);
    builder.declared.upstreams.push(Arc::new(group));
}

/// A line that a group does not have: refused by name, or a mistake.
fn unclaimed(builder: &mut Builder, line: &Statement) {
    let name = &line.name.text;
    let diagnostics = &mut builder.cx.diagnostics;
    match refused::find(name) {
        Some(reason) => {
            let message = format!("directive \"{name}\" is not supported");
            diagnostics.push_error(line.name.span, message).help(reason);
        }
        None => {
            let error =
                diagnostics.push_error(line.name.span, format!("unknown directive \"{name}\""));
            if line.args.is_empty() {
                error.help(format!(
                    "a server of the group is written \"server {name};\""
                ));
            }
        }
    }
}

fn parse_server(line: &Statement) -> Result<Vec<Peer>, (Word, String)> {
    let Some((address, parameters)) = line.args.split_first() else {
        let message = "invalid number of arguments in \"server\" directive".to_string();
        return Err((line.name.clone(), message));
    };
    let mut peer = Peer {
        address: Address::Unix(Default::default()),
        server: address.text.clone(),
        weight: 1,
        max_fails: 1,
        fail_timeout: Duration::from_secs(10),
        max_conns: 0,
        is_backup: false,
        is_down: false,
    };
    for word in parameters {
        apply_parameter(&mut peer, word).map_err(|message| (word.clone(), message))?;
    }
    let addresses = resolve(&address.text, 80).map_err(|why| {
        (
            address.clone(),
            format!("{why} in upstream \"{}\"", address.text),
        )
    })?;
    Ok(addresses
        .into_iter()
        .map(|address| Peer {
            address,
            ..peer.clone()
        })
        .collect())
}

fn apply_parameter(peer: &mut Peer, word: &Word) -> Result<(), String> {
    let text = word.text.as_str();
    let invalid = || format!("invalid parameter \"{text}\"");
    match text.split_once('=') {
        None => match text {
            "backup" => peer.is_backup = true,
            "down" => peer.is_down = true,
            "resolve" | "drain" => {
                return Err(format!(
                    "the \"{text}\" parameter of \"server\" is not supported"
                ));
            }
            _ => return Err(invalid()),
        },
        Some(("weight", value)) => {
            peer.weight = value.parse().ok().filter(|w| *w > 0).ok_or_else(invalid)?;
        }
        Some(("max_fails", value)) => peer.max_fails = value.parse().map_err(|_| invalid())?,
        Some(("max_conns", value)) => peer.max_conns = value.parse().map_err(|_| invalid())?,
        Some(("fail_timeout", value)) => {
            peer.fail_timeout = parse_duration(value).ok_or_else(invalid)?;
        }
        Some(("service" | "route" | "slow_start" | "id", _)) => {
            return Err(format!(
                "the parameter \"{text}\" of \"server\" is not supported"
            ));
        }
        Some(_) => return Err(invalid()),
    }
    Ok(())
}

/// The addresses of `host[:port]` or `unix:path`.
pub fn resolve(text: &str, default_port: u16) -> Result<Vec<Address>, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path {
            "" => Err("no path".to_string()),
            path => Ok(vec![Address::Unix(path.into())]),
        };
    }
    let (host, port) = split_port(text, default_port)?;
    if host.is_empty() {
        return Err("no host".to_string());
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port)
        .to_socket_addrs()
        .map_err(|_| "host not found".to_string())?;
    let mut addresses: Vec<Address> = Vec::new();
    for address in found.map(Address::Inet) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        Err("host not found".to_string())
    } else {
        Ok(addresses)
    }
}

/// Host and port of an authority.
pub fn split_port(text: &str, default_port: u16) -> Result<(&str, u16), String> {
    let colon = match text.rfind(':') {
        Some(colon) if !text.get(colon..).unwrap_or_default().contains(']') => colon,
        _ => return Ok((text, default_port)),
    };
    let (host, port) = text.split_at(colon);
    match port.get(1..).unwrap_or_default().parse() {
        Ok(0) | Err(_) => Err("invalid port".to_string()),
        Ok(port) => Ok((host, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weights: &[u32]) -> Group {
        let peers = weights
            .iter()
            .enumerate()
            .map(|(at, weight)| Peer {
                address: Address::Unix(format!("{at}").into()),
                server: at.to_string(),
                weight: *weight,
                max_fails: 1,
                fail_timeout: Duration::from_secs(10),
                max_conns: 0,
                is_backup: false,
                is_down: false,
            })
            .collect();
        Group::new("g".to_string(), peers, KeepAliveLimits::default())
    }

    #[tokio::test(start_paused = true)]
    async fn turns_are_smooth_and_by_weight() {
        let group = group(&[5, 1, 1]);
        let picks: Vec<usize> = (0..7)
            .map(|_| group.pick(&mut Tried::default()).unwrap())
            .collect();
        assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_peer_rests_and_comes_back() {
        let group = group(&[1, 1]);
        group.failed(0);
        for _ in 0..3 {
            assert_eq!(group.pick(&mut Tried::default()), Some(1));
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        let picks: Vec<usize> = (0..6)
            .map(|_| group.pick(&mut Tried::default()).unwrap())
            .collect();
        assert!(picks.contains(&0), "{picks:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_tries_each_peer_once() {
        let group = group(&[1, 1, 1]);
        let mut tried = Tried::default();
        let mut picks: Vec<usize> = std::iter::from_fn(|| group.pick(&mut tried)).collect();
        picks.sort_unstable();
        assert_eq!(picks, [0, 1, 2]);
    }

    #[test]
    fn authorities_are_split_at_their_port() {
        let cases = [
            ("a", Ok(("a", 80))),
            ("a:81", Ok(("a", 81))),
            ("[::1]", Ok(("[::1]", 80))),
            ("[::1]:82", Ok(("[::1]", 82))),
            ("a:", Err("invalid port".to_string())),
            ("a:0", Err("invalid port".to_string())),
            ("a:99999", Err("invalid port".to_string())),
        ];
        for (text, expected) in cases {
            assert_eq!(split_port(text, 80), expected, "{text}");
        }
    }
}
