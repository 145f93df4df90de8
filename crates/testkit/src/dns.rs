//! The name server: scripted answers over UDP and TCP on one port of 127.0.0.1.
//!
//! ```text
//! name("a.test", [Record::a("127.0.0.1")])   what is said of a name; a type without a record: nothing
//! fail("a.test", 2)                          an error code instead
//! silence("a.test")                          no answer
//! truncate("a.test")                         over UDP only that the answer is too long
//! ```
//!
//! A name that is not scripted does not exist (code 3). A later script of a name replaces the
//! earlier one.
//!
//! 1. A question is recorded before it is answered.
//! 2. Dropping the server frees its port.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

/// Attempts to find a port that is free for both protocols.
const TRIES: u32 = 20;

/// Time for which a TCP connection may be silent.
const WAIT: Duration = Duration::from_secs(10);

/// One record of an answer.
#[derive(Clone, Debug)]
pub struct Record {
    number: u16,
    ttl: u32,
    data: Vec<u8>,
}

impl Record {
    /// An address, IPv4 or IPv6.
    pub fn address(ip: IpAddr) -> Record {
        let (number, data) = match ip {
            IpAddr::V4(ip) => (1, ip.octets().to_vec()),
            IpAddr::V6(ip) => (28, ip.octets().to_vec()),
        };
        let ttl = 3600;
        Record { number, ttl, data }
    }

    /// Record that gives another name.
    pub fn alias(name: &str) -> Record {
        Record {
            number: 5,
            ttl: 3600,
            data: encode_name(name),
        }
    }

    /// A target of a service.
    pub fn target(priority: u16, weight: u16, port: u16, host: &str) -> Record {
        let mut data = Vec::new();
        for number in [priority, weight, port] {
            data.extend(number.to_be_bytes());
        }
        data.extend(encode_name(host));
        Record {
            number: 33,
            ttl: 3600,
            data,
        }
    }

    /// Record with another time to live, in seconds.
    pub fn ttl(mut self, ttl: u32) -> Record {
        self.ttl = ttl;
        self
    }
}

/// A question that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Name that was asked for, as it was written.
    pub name: String,
    /// The type: 1 A, 28 AAAA, 33 SRV.
    pub number: u16,
    /// True if the question came over TCP.
    pub is_tcp: bool,
}

#[derive(Clone, Debug)]
enum Script {
    Records { records: Vec<Record>, is_long: bool },
    Code(u8),
    Silence,
}

#[derive(Debug, Default)]
struct Shared {
    scripts: Mutex<HashMap<String, Script>>,
    questions: Mutex<Vec<Question>>,
    stopped: AtomicBool,
}

/// A scripted name server.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl NameServer {
    /// Starts on a port that is free for UDP and TCP.
    pub fn start() -> Result<NameServer> {
        let (udp, tcp) = bind()?;
        let address = udp.local_addr()?;
        let shared = Arc::new(Shared::default());
        let on_thread = Arc::clone(&shared);
        std::thread::spawn(move || serve_udp(&udp, &on_thread));
        let on_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                if on_thread.stopped.load(Ordering::Relaxed) {
                    break;
                }
                let shared = Arc::clone(&on_thread);
                // A client that goes early is no fault of the test's.
                std::thread::spawn(move || serve_tcp(stream, &shared).is_ok());
            }
        });
        Ok(NameServer { address, shared })
    }

    /// Address that a configuration names the server by: `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Gives a name its records.
    pub fn name(&self, name: &str, records: impl IntoIterator<Item = Record>) {
        let records = records.into_iter().collect();
        let is_long = false;
        self.script(name, Script::Records { records, is_long });
    }

    /// Gives a name addresses.
    pub fn addresses(&self, name: &str, addresses: &[&str]) {
        let ips = addresses.iter().filter_map(|text| text.parse().ok());
        self.name(name, ips.map(Record::address));
    }

    /// Gives a name records that fit into an answer over TCP only.
    pub fn truncate(&self, name: &str, records: impl IntoIterator<Item = Record>) {
        let records = records.into_iter().collect();
        let is_long = true;
        self.script(name, Script::Records { records, is_long });
    }

    /// Answers questions for a name with an error code.
    pub fn fail(&self, name: &str, code: u8) {
        self.script(name, Script::Code(code));
    }

    /// Leaves questions for a name unanswered.
    pub fn silence(&self, name: &str) {
        self.script(name, Script::Silence);
    }

    /// Every question so far.
    pub fn questions(&self) -> Vec<Question> {
        lock(&self.shared.questions).clone()
    }

    fn script(&self, name: &str, script: Script) {
        lock(&self.shared.scripts).insert(name.to_string(), script);
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // One message and one connection wake the threads, which then see that they are stopped.
        if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
            let _woken = socket.send_to(&[], self.address);
        }
        let _woken = TcpStream::connect(self.address);
    }
}

fn bind() -> Result<(UdpSocket, TcpListener)> {
    for _ in 0..TRIES {
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        if let Ok(tcp) = TcpListener::bind(udp.local_addr()?) {
            return Ok((udp, tcp));
        }
    }
    anyhow::bail!("no port is free for both UDP and TCP")
}

fn serve_udp(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 2048];
    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        let message = buffer.get(..len).unwrap_or_default();
        if let Some(answer) = shared.answer(message, false) {
            // Who does not wait for the answer has lost it.
            let _sent = socket.send_to(&answer, from);
        }
    }
}

fn serve_tcp(mut stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_read_timeout(Some(WAIT))?;
    loop {
        let mut len = [0; 2];
        match stream.read_exact(&mut len) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut message)?;
        let answer = shared.answer(&message, true).context("a question")?;
        stream.write_all(&u16::try_from(answer.len())?.to_be_bytes())?;
        stream.write_all(&answer)?;
    }
}

impl Shared {
    /// The answer to a message; none for silence and for what is no question.
    fn answer(&self, message: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
        let (name, after) = decode_name(message, 12)?;
        let number = u16::from_be_bytes(message.get(after..after + 2)?.try_into().ok()?);
        let script = lock(&self.scripts).get(&name).cloned();
        lock(&self.questions).push(Question {
            name,
            number,
            is_tcp,
        });
        let (code, truncated, records) = match script.unwrap_or(Script::Code(3)) {
            Script::Silence => return None,
            Script::Code(code) => (code, 0, Vec::new()),
            Script::Records { is_long: true, .. } if !is_tcp => (0, 2, Vec::new()),
            Script::Records { records, .. } => (0, 0, records),
        };
        let is_wanted = |record: &Record| record.number == number || record.number == 5;
        let records: Vec<Record> = records.into_iter().filter(is_wanted).collect();
        let mut answer = message.get(..2)?.to_vec();
        answer.extend([0x81 | truncated, 0x80 | code, 0, 1]);
        answer.extend(u16::try_from(records.len()).ok()?.to_be_bytes());
        answer.extend([0; 4]);
        answer.extend(message.get(12..after + 4)?);
        for record in records {
            answer.extend([0xc0, 12]);
            answer.extend(record.number.to_be_bytes());
            answer.extend([0, 1]);
            answer.extend(record.ttl.to_be_bytes());
            answer.extend(u16::try_from(record.data.len()).ok()?.to_be_bytes());
            answer.extend(record.data);
        }
        Some(answer)
    }
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or(63));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// A name without pointers, and where it ends.
fn decode_name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let len = usize::from(*message.get(at)?);
        at += 1;
        if len == 0 {
            return Some((labels.join("."), at));
        }
        let label = message.get(at..at + len)?;
        labels.push(String::from_utf8_lossy(label).into_owned());
        at += len;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
