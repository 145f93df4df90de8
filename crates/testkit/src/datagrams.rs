//! A network between clients of UDP and a server: with a delay, with losses, and with other
//! addresses for the clients when a test wants them.
//!
//! ```text
//! client ─► front socket ─► up thread   ─ delay, loss ─► back socket of the client ─► server
//!        ◄─              ◄─ down threads ◄─ delay, loss ─                          ◄─
//! ```
//!
//! 1. Losses follow from a seed and from the order of packets, not from time.
//! 2. Packets of one direction never overtake each other.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::random::Random;

/// The longest wait of a thread before it looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes of the longest packet.
const PACKET: usize = 65_536;

/// The manners of a network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network {
    /// The time that a packet takes, in either direction.
    pub delay: Duration,
    /// Packets of a thousand that are lost, in either direction.
    pub lost_per_mille: u64,
    /// Packets from the first one on that are lost, of those that clients send.
    pub lost_first_up: u64,
    /// The same of those that the server sends.
    pub lost_first_down: u64,
    /// Seed of the losses.
    pub seed: u64,
}

/// Packets that are lost besides those by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// None.
    Nothing,
    /// Those of QUIC that clients send behind their first flight, so that no handshake ends.
    Handshakes,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Moved,
    Lost,
}

/// A network that packets of UDP go through.
#[derive(Debug)]
pub struct Datagrams {
    shared: Arc<Shared>,
    port: u16,
}

#[derive(Debug)]
struct Shared {
    front: UdpSocket,
    server: SocketAddr,
    network: Network,
    is_over: AtomicBool,
    /// True while the packets are lost that end handshakes, and those that follow them.
    holds_handshakes: AtomicBool,
    /// The socket that each client is seen by.
    backs: Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>,
    /// Packets that clients have sent before they heard of the server.
    first_flights: Mutex<Vec<Vec<u8>>>,
    lost: AtomicU64,
    moved: AtomicU64,
}

impl Datagrams {
    /// A network before the server at a port of this machine.
    ///
    /// # Errors
    /// The system has no sockets.
    pub fn before(port: u16, network: Network) -> Result<Self> {
        let front = UdpSocket::bind("127.0.0.1:0")?;
        let own = front.local_addr()?.port();
        let shared = Arc::new(Shared {
            front,
            server: ([127, 0, 0, 1], port).into(),
            network,
            is_over: AtomicBool::new(false),
            holds_handshakes: AtomicBool::new(false),
            backs: Mutex::default(),
            first_flights: Mutex::default(),
            lost: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        });
        let own_share = Arc::clone(&shared);
        thread::spawn(move || own_share.carry_up());
        Ok(Datagrams { shared, port: own })
    }

    /// The port that clients send to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Gives all clients other addresses; packets to the old ones are lost.
    pub fn move_clients(&self) {
        self.shared.backs().clear();
    }

    /// Loses packets from now on, or does so no more.
    pub fn hold(&self, hold: Hold) {
        let holds = hold == Hold::Handshakes;
        self.shared.holds_handshakes.store(holds, Ordering::Relaxed);
    }

    /// Packets of QUIC that clients have sent so far before they heard of the server.
    #[must_use]
    pub fn first_flights(&self) -> Vec<Vec<u8>> {
        self.shared.first_flights().clone()
    }

    /// Packets that were lost, and those that came through.
    #[must_use]
    pub fn counts(&self) -> [u64; 2] {
        [&self.shared.lost, &self.shared.moved].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn backs(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<UdpSocket>>> {
        self.backs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_flights(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        let flights = self.first_flights.lock();
        flights.unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket that a client is seen by, with a thread that brings back what comes to it.
    fn back(self: &Arc<Self>, client: SocketAddr) -> io::Result<Arc<UdpSocket>> {
        let mut backs = self.backs();
        if let Some(back) = backs.get(&client) {
            return Ok(Arc::clone(back));
        }
        let back = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
        backs.insert(client, Arc::clone(&back));
        let (shared, own) = (Arc::clone(self), Arc::clone(&back));
        thread::spawn(move || shared.carry_down(client, &own));
        Ok(back)
    }

    fn carry_up(self: &Arc<Self>) {
        let mut line = Line::new(self.network, self.network.lost_first_up, 1);
        let mut room = vec![0; PACKET];
        while !self.is_over.load(Ordering::Relaxed) {
            if let Some((len, client)) = line.receive(&self.front, &mut room) {
                let packet = room.get(..len).unwrap_or(&room);
                let is_later = is_behind_first_flight(packet);
                if !is_later {
                    self.first_flights().push(packet.to_vec());
                }
                let is_held = is_later && self.holds_handshakes.load(Ordering::Relaxed);
                let fate = if is_held {
                    Fate::Lost
                } else {
                    line.take(packet, client)
                };
                self.note(fate);
            }
            while let Some((packet, client)) = line.next_due() {
                if let Ok(back) = self.back(client) {
                    // What cannot be sent is lost.
                    let _lost = back.send_to(&packet, self.server);
                }
            }
        }
    }

    fn carry_down(&self, client: SocketAddr, back: &Arc<UdpSocket>) {
        let mut line = Line::new(self.network, self.network.lost_first_down, 2);
        let mut room = vec![0; PACKET];
        while !self.is_over.load(Ordering::Relaxed) {
            let is_seen = |own: &Arc<UdpSocket>| Arc::ptr_eq(own, back);
            if !self.backs().get(&client).is_some_and(is_seen) {
                return;
            }
            if let Some((len, _)) = line.receive(back, &mut room) {
                self.note(line.take(room.get(..len).unwrap_or(&room), client));
            }
            while let Some((packet, client)) = line.next_due() {
                // What cannot be sent is lost.
                let _lost = self.front.send_to(&packet, client);
            }
        }
    }

    fn note(&self, fate: Fate) {
        let count = match fate {
            Fate::Moved => &self.moved,
            Fate::Lost => &self.lost,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Packets of one direction that are on their way.
struct Line {
    network: Network,
    /// Packets that are still to be lost, whatever comes.
    lost_first: u64,
    random: Random,
    waiting: VecDeque<(Instant, Vec<u8>, SocketAddr)>,
}

impl Line {
    fn new(network: Network, lost_first: u64, number: u64) -> Self {
        Line {
            network,
            lost_first,
            random: Random(network.seed.wrapping_mul(2).wrapping_add(number)),
            waiting: VecDeque::new(),
        }
    }

    /// Waits for a packet until the next one is due.
    fn receive(&self, socket: &UdpSocket, room: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let now = Instant::now();
        let due = self.waiting.front();
        let wait = due.map_or(LOOK, |(at, ..)| at.saturating_duration_since(now).min(LOOK));
        if wait.is_zero() {
            return None;
        }
        socket.set_read_timeout(Some(wait)).ok()?;
        socket.recv_from(room).ok()
    }

    /// Takes a packet on its way, unless it is lost. INVARIANT 1.
    fn take(&mut self, packet: &[u8], client: SocketAddr) -> Fate {
        let is_lost = self.random.below(1000) < self.network.lost_per_mille;
        let is_first = self.lost_first > 0;
        self.lost_first = self.lost_first.saturating_sub(1);
        if is_lost || is_first {
            return Fate::Lost;
        }
        let at = Instant::now() + self.network.delay;
        self.waiting.push_back((at, packet.to_vec(), client));
        Fate::Moved
    }

    /// The next packet that has arrived. INVARIANT 2.
    fn next_due(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        let (at, ..) = self.waiting.front()?;
        if *at > Instant::now() {
            return None;
        }
        let (_, packet, client) = self.waiting.pop_front()?;
        Some((packet, client))
    }
}

/// True if a datagram has a packet of QUIC in it that is neither an Initial one nor one of 0-RTT
/// (RFC 9000 §17.2).
fn is_behind_first_flight(datagram: &[u8]) -> bool {
    let mut left = datagram;
    while let Some(first) = left.first() {
        // The bit between may have any value (RFC 9287).
        if !matches!(first & 0xb0, 0x80 | 0x90) {
            // Zeros behind a packet are padding.
            return *first != 0;
        }
        let Some(rest) = skip_packet(left) else {
            return false;
        };
        left = rest;
    }
    false
}

/// The datagram behind an Initial packet, or one of 0-RTT.
fn skip_packet(packet: &[u8]) -> Option<&[u8]> {
    let is_initial = packet.first()? & 0x30 == 0;
    let mut rest = packet.get(5..)?;
    for _ in 0..2 {
        let len = usize::from(*rest.first()?);
        rest = rest.get(1 + len..)?;
    }
    if is_initial {
        let (len, behind) = number(rest)?;
        rest = behind.get(len..)?;
    }
    let (len, behind) = number(rest)?;
    behind.get(len..)
}

/// A number of variable length (RFC 9000 §16), and what is behind it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let (own, rest) = bytes.split_at_checked(len)?;
    let value = own
        .iter()
        .skip(1)
        .fold(usize::from(first & 0x3f), |value, byte| {
            value << 8 | usize::from(*byte)
        });
    Some((value, rest))
}
