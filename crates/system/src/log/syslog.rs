//! `syslog:server=…`: logs that go to a syslog server, as datagrams over UDP or a Unix socket.
//!
//! ```text
//! <PRIORITY>Mon dd hh:mm:ss HOST TAG: MESSAGE        priority = facility * 8 + severity
//! ```
//!
//! This is the form of RFC 3164, which nginx writes. Host names of servers are resolved when the
//! configuration is read; the socket is made for the first message and made again after an error.
//!
//! Invariants:
//! 1. Sending never waits: what the socket does not take at once is lost, counted and told.
//! 2. A datagram that the server of the one before refused is sent again once, since such an error
//!    says nothing about the message it meets.
//!
//! What it does not do: TCP, TLS, and the form of RFC 5424.
//!
//! Sources: RFC 3164; nginx's documentation for parameters and defaults.

use std::cell::Cell;
use std::io;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwapOption;
use millpond_conf::{ArgError, Words};

use super::error::{Level, os_error};
use super::loss::{Loss, Why};
use super::stamp;
use crate::address::Address;
use crate::clock;
use crate::network;

/// Port on which syslog servers listen.
const PORT: u16 = 514;

/// Longest tag (RFC 3164 §4.1.3).
const MAX_TAG: usize = 32;

/// Facilities by number.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// The facility of logs that name none: local7.
const DEFAULT_FACILITY: usize = 23;

/// A syslog server and how messages to it look. Clones share the socket.
#[derive(Clone, Debug)]
pub struct Syslog(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    server: Address,
    facility: usize,
    severity: Level,
    /// ` HOST TAG: ` or ` TAG: `.
    label: String,
    socket: ArcSwapOption<Socket>,
    loss: Loss,
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// The parameters while they are read.
#[derive(Default)]
struct Draft {
    server: Option<Address>,
    facility: Option<usize>,
    severity: Option<Level>,
    tag: Option<String>,
    is_nohostname: bool,
}

impl Syslog {
    /// Reads what follows `syslog:`; the error is about the first argument of its directive.
    pub fn parse(text: &str) -> Result<Syslog, ArgError> {
        let mut draft = Draft::default();
        for parameter in text.split(',') {
            draft
                .apply(parameter)
                .map_err(|message| ArgError::value(0, message))?;
        }
        let Some(server) = draft.server else {
            return Err(ArgError::value(0, "no syslog server specified"));
        };
        let tag = draft.tag.as_deref().unwrap_or("nginx");
        let label = if draft.is_nohostname {
            format!(" {tag}: ")
        } else {
            format!(" {} {tag}: ", *HOST)
        };
        Ok(Syslog(Arc::new(Parts {
            server,
            facility: draft.facility.unwrap_or(DEFAULT_FACILITY),
            severity: draft.severity.unwrap_or(Level::Info),
            label,
            socket: ArcSwapOption::empty(),
            loss: Loss::default(),
        })))
    }

    /// Sends a message with the severity that the configuration names, for access logs.
    pub fn send(&self, message: &[u8]) {
        self.send_as(self.0.severity, message);
    }

    /// Sends a message with a severity of its own, for error logs.
    pub fn send_as(&self, severity: Level, message: &[u8]) {
        let mut datagram = DATAGRAM.take();
        datagram.clear();
        let priority = self.0.facility * 8 + severity as usize;
        datagram.push(b'<');
        datagram.extend_from_slice(priority.to_string().as_bytes());
        datagram.push(b'>');
        stamp::append(&mut datagram, stamp::Form::Syslog, clock::now_ms());
        datagram.extend_from_slice(self.0.label.as_bytes());
        datagram.extend_from_slice(message.strip_suffix(b"\n").unwrap_or(message));
        let outcome = self.0.transmit(&datagram);
        DATAGRAM.set(datagram);
        if let Err(failure) = outcome {
            let server = &self.0.server;
            let reason = os_error(&failure);
            let what = format_args!("send() to syslog server \"{server}\" failed ({reason})");
            self.0.loss.note(Why::Syslog, Level::Warn, 1, what);
        }
    }
}

impl Draft {
    fn apply(&mut self, parameter: &str) -> Result<(), String> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let is_known_twice = match name {
            "server" => self.server.is_some(),
            "facility" => self.facility.is_some(),
            "severity" => self.severity.is_some(),
            "tag" => self.tag.is_some(),
            _ => false,
        };
        if is_known_twice {
            return Err(format!("duplicate syslog \"{name}\""));
        }
        match name {
            "server" => self.server = Some(server(value)?),
            "facility" => {
                let found = FACILITIES.iter().position(|known| *known == value);
                let unknown = || format!("unknown syslog facility \"{value}\"");
                self.facility = Some(found.ok_or_else(unknown)?);
            }
            "severity" => {
                let unknown = || format!("unknown syslog severity \"{value}\"");
                self.severity = Some(Level::parse(value).ok_or_else(unknown)?);
            }
            "tag" => self.tag = Some(tag(value)?),
            "nohostname" if parameter == name => self.is_nohostname = true,
            _ => return Err(format!("unknown syslog parameter \"{parameter}\"")),
        }
        Ok(())
    }
}

fn server(text: &str) -> Result<Address, String> {
    let found = network::resolve(text, PORT);
    let found = found.map_err(|why| format!("{why} in syslog server \"{text}\""))?;
    let first = found.into_iter().next();
    first.ok_or_else(|| format!("host not found in syslog server \"{text}\""))
}

fn tag(text: &str) -> Result<String, String> {
    if text.len() > MAX_TAG {
        return Err(format!("syslog tag length exceeds {MAX_TAG}"));
    }
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !text.bytes().all(is_good) {
        let message = "syslog \"tag\" only allows alphanumeric characters and underscore";
        return Err(message.to_owned());
    }
    Ok(text.to_owned())
}

impl Parts {
    fn transmit(&self, datagram: &[u8]) -> io::Result<()> {
        let sent = self.socket()?.send(datagram);
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(_) => {
                // INVARIANT 2. A server that was started again has another socket, too.
                self.socket.store(None);
                self.socket()?.send(datagram)
            }
            Ok(()) => Ok(()),
        }
    }

    fn socket(&self) -> io::Result<Arc<Socket>> {
        if let Some(socket) = &*self.socket.load() {
            return Ok(Arc::clone(socket));
        }
        let socket = Arc::new(Socket::connect(&self.server)?);
        self.socket.store(Some(Arc::clone(&socket)));
        Ok(socket)
    }
}

impl Socket {
    fn connect(server: &Address) -> io::Result<Socket> {
        match server {
            Address::Inet(address) => {
                let local: std::net::SocketAddr = if address.is_ipv4() {
                    ([0, 0, 0, 0], 0).into()
                } else {
                    ([0u16; 8], 0).into()
                };
                let socket = UdpSocket::bind(local)?;
                socket.set_nonblocking(true)?;
                socket.connect(address)?;
                Ok(Socket::Udp(socket))
            }
            Address::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.connect(path)?;
                Ok(Socket::Unix(socket))
            }
        }
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self {
            Socket::Udp(socket) => socket.send(datagram),
            Socket::Unix(socket) => socket.send(datagram),
        }
        .map(drop)
    }
}

/// The name of this machine.
static HOST: LazyLock<String> = LazyLock::new(|| {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().to_lowercase()
});

thread_local! {
    /// Room for a datagram; kept, so that a message needs none of its own.
    static DATAGRAM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_priority_time_host_and_tag() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let text = format!("server=127.0.0.1:{port},facility=user,tag=pond");
        let log = Syslog::parse(&text).unwrap();
        log.send(b"a line\n");
        log.send_as(Level::Error, b"another");
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut buf = [0; 200];
            let count = server.recv(&mut buf).unwrap();
            seen.push(String::from_utf8_lossy(&buf[..count]).into_owned());
        }
        let end = format!(" {} pond: ", *HOST);
        assert!(seen[0].starts_with("<14>") && seen[0].ends_with(&format!("{end}a line")));
        assert!(seen[1].starts_with("<11>") && seen[1].ends_with(&format!("{end}another")));
        assert_eq!(
            seen[0].len(),
            "<14>Nov 21 07:00:00".len() + end.len() + "a line".len()
        );
    }

    #[test]
    fn mistakes_are_worded_as_nginx_words_them() {
        for (text, message) in [
            ("tag=a", "no syslog server specified"),
            (
                "server=127.0.0.1,server=127.0.0.1",
                "duplicate syslog \"server\"",
            ),
            (
                "server=127.0.0.1,facility=x",
                "unknown syslog facility \"x\"",
            ),
            (
                "server=127.0.0.1,severity=x",
                "unknown syslog severity \"x\"",
            ),
            ("server=127.0.0.1,x=y", "unknown syslog parameter \"x=y\""),
            (
                "server=127.0.0.1:0",
                "invalid port in syslog server \"127.0.0.1:0\"",
            ),
            (
                "server=127.0.0.1,tag=a-b",
                "syslog \"tag\" only allows alphanumeric characters and underscore",
            ),
            (
                "server=127.0.0.1,tag=abcdefghijklmnopqrstuvwxyz0123456",
                "syslog tag length exceeds 32",
            ),
        ] {
            assert_eq!(Syslog::parse(text).unwrap_err().to_string(), message);
        }
        assert!(Syslog::parse("server=unix:/dev/log,nohostname").is_ok());
    }

    #[test]
    fn server_that_is_away_costs_lines_and_comes_back() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let log = Syslog::parse(&format!("server={address}")).unwrap();
        log.send(b"1");
        drop(server);
        log.send(b"2");
        log.send(b"3");
        let server = UdpSocket::bind(address).unwrap();
        log.send(b"4");
        let mut buf = [0; 200];
        let count = server.recv(&mut buf).unwrap();
        assert!(buf[..count].ends_with(b": 4"));
    }
}
