//! `journald:`: logs that go to systemd's journal with their facts as fields, so that they can be
//! asked for: `journalctl MILLPOND_SITE=shop.example PRIORITY=3`.
//!
//! An event is one datagram to the journal's socket, a run of fields:
//!
//! ```text
//! NAME=value\n                              a value of one line
//! NAME\n LENGTH(8, little endian) value\n   a value with line ends
//! ```
//!
//! A process whose standard error stream is the journal (`JOURNAL_STREAM`) is asked by systemd to
//! speak like this instead of in lines, and `error_log stderr` then does.
//!
//! Invariants:
//! 1. Sending never waits: what the socket does not take at once is lost, counted and told.
//! 2. A value is at most [`MAX_VALUE`] bytes, and names are those of the code, so that an event is
//!    small enough for a datagram and needs no memory that is handed over as a descriptor.
//!
//! Not here: streams, and the form of syslog, which journald reads on `/dev/log`.
//!
//! Sources: systemd's JOURNAL_NATIVE_PROTOCOL, systemd.journal-fields(7), systemd.exec(5).

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use millpond_conf::ArgError;

use super::error::{Level, MAX_LINE, os_error};
use super::loss::{Loss, Why};

/// The socket of the journal, also in a namespace of its own (`LogNamespace=`).
const SOCKET: &str = "/run/systemd/journal/socket";

/// The longest value; that of a line, since the line has all values in it.
pub const MAX_VALUE: usize = MAX_LINE;

/// The name that events of ours stand under, as `journalctl -t` asks for it.
const IDENTIFIER: &str = "millpond";

/// The longest tag: that of a syslog server.
const MAX_TAG: usize = 32;

/// The journal, and the name that events get. Clones share the socket.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    path: PathBuf,
    identifier: String,
    socket: ArcSwapOption<UnixDatagram>,
    loss: Loss,
}

/// The facts of an event beside its message.
pub trait Facts {
    /// Puts each fact into an event.
    fn put(&self, event: &mut Fields<'_>);
}

/// An event without other facts.
impl Facts for () {
    fn put(&self, _event: &mut Fields<'_>) {}
}

/// The facts of an event that is told later.
#[derive(Debug, Default)]
pub struct Kept(Vec<u8>);

impl Kept {
    /// Keeps facts as they are now.
    pub fn of(facts: &dyn Facts) -> Kept {
        let mut kept = Kept::default();
        facts.put(&mut Fields(&mut kept.0));
        kept
    }

    /// The facts by their names, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (name, value) = next_field(&mut rest)?;
            Some((std::str::from_utf8(name).unwrap_or_default(), value))
        })
    }
}

/// Takes the first field of a run, in either form.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = rest.iter().position(|byte| matches!(byte, b'=' | b'\n'))?;
    let (name, behind) = rest.split_at(at);
    let (len, behind) = match behind.split_first()? {
        (b'=', behind) => (behind.iter().position(|byte| *byte == b'\n')?, behind),
        (_, behind) => {
            let (len, behind) = behind.split_first_chunk()?;
            (usize::try_from(u64::from_le_bytes(*len)).ok()?, behind)
        }
    };
    let (value, behind) = behind.split_at_checked(len)?;
    *rest = behind.get(1..)?;
    Some((name, value))
}

impl Facts for Kept {
    fn put(&self, event: &mut Fields<'_>) {
        event.0.extend_from_slice(&self.0);
    }
}

/// The fields of an event, while it is put together.
#[derive(Debug)]
pub struct Fields<'a>(&'a mut Vec<u8>);

impl Fields<'_> {
    /// Puts a field; an empty value is left out, and a long one is cut.
    pub fn put(&mut self, name: &str, value: &[u8]) {
        let value = value.get(..MAX_VALUE).unwrap_or(value);
        if value.is_empty() {
            return;
        }
        self.0.extend_from_slice(name.as_bytes());
        if value.contains(&b'\n') {
            self.0.push(b'\n');
            self.0.extend((value.len() as u64).to_le_bytes());
        } else {
            self.0.push(b'=');
        }
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Puts a field whose value is shown.
    pub fn show(&mut self, name: &str, value: impl fmt::Display) {
        let mut text = String::new();
        // A value that shows itself as nothing is left out.
        let _ = write!(text, "{value}");
        self.put(name, text.as_bytes());
    }
}

impl Journal {
    /// The journal of the machine.
    fn of_machine() -> Journal {
        Journal::new(Path::new(SOCKET), IDENTIFIER)
    }

    fn new(path: &Path, identifier: &str) -> Journal {
        Journal(Arc::new(Parts {
            path: path.to_owned(),
            identifier: identifier.to_owned(),
            socket: ArcSwapOption::empty(),
            loss: Loss::default(),
        }))
    }

    /// Reads what follows `journald:`; the error is about the first argument of its directive.
    pub fn parse(text: &str) -> Result<Journal, ArgError> {
        let (mut path, mut tag) = (SOCKET, IDENTIFIER);
        for parameter in text.split(',').filter(|it| !it.is_empty()) {
            match parameter.split_once('=') {
                Some(("socket", value)) if value.starts_with('/') => path = value,
                Some(("tag", value)) if is_tag(value) => tag = value,
                _ => {
                    let message = format!("invalid journald parameter \"{parameter}\"");
                    return Err(ArgError::value(0, message));
                }
            }
        }
        Ok(Journal::new(Path::new(path), tag))
    }

    /// Sends an event.
    pub fn send(&self, level: Level, message: &[u8], facts: &dyn Facts) {
        let mut datagram = DATAGRAM.take();
        datagram.clear();
        let mut fields = Fields(&mut datagram);
        fields.put("MESSAGE", message);
        fields.show("PRIORITY", level as u8);
        fields.put("SYSLOG_IDENTIFIER", self.0.identifier.as_bytes());
        fields.show("TID", rustix::thread::gettid().as_raw_nonzero());
        facts.put(&mut fields);
        let outcome = self.0.transmit(&datagram);
        DATAGRAM.set(datagram);
        if let Err(failure) = outcome {
            let (path, reason) = (self.0.path.display(), os_error(&failure));
            let what = format_args!("send() to journal \"{path}\" failed ({reason})");
            self.0.loss.note(Why::Syslog, Level::Warn, 1, what);
        }
    }
}

/// True for a word of letters, digits, `-`, `_` and `.`, which is not too long.
fn is_tag(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_TAG).contains(&text.len()) && text.bytes().all(is_good)
}

impl Parts {
    fn transmit(&self, datagram: &[u8]) -> io::Result<()> {
        match self.socket()?.send(datagram) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(_) => {
                // A journal that was started without its socket's unit has another socket.
                self.socket.store(None);
                self.socket()?.send(datagram).map(drop)
            }
            Ok(_) => Ok(()),
        }
    }

    fn socket(&self) -> io::Result<Arc<UnixDatagram>> {
        if let Some(socket) = &*self.socket.load() {
            return Ok(Arc::clone(socket));
        }
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(&self.path)?;
        let socket = Arc::new(socket);
        self.socket.store(Some(Arc::clone(&socket)));
        Ok(socket)
    }
}

/// The journal behind the standard error stream, once it is known to be there.
static STDERR: OnceLock<Journal> = OnceLock::new();

/// Speaks to the journal where lines would go to the standard error stream, if that is the file
/// that `JOURNAL_STREAM` names as `DEVICE:INODE`.
pub fn take_stderr(stream: &str) {
    let is_same = rustix::fs::fstat(io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino));
    if is_same && Path::new(SOCKET).exists() {
        // Whoever was first has set the same.
        let _ = STDERR.set(Journal::of_machine());
    }
}

/// The journal behind the standard error stream, if it is the journal.
pub fn behind_stderr() -> Option<&'static Journal> {
    STDERR.get()
}

thread_local! {
    /// Room for a datagram; kept, so that an event needs none of its own.
    static DATAGRAM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lines;

    impl Facts for Lines {
        fn put(&self, event: &mut Fields<'_>) {
            event.put("MILLPOND_REQUEST", b"two\nlines");
            event.put("MILLPOND_HOST", b"");
            event.put("MILLPOND_REFERRER", &[b'x'; MAX_VALUE * 2]);
        }
    }

    #[test]
    fn values_are_framed_bounded_and_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::parse(&format!("socket={},tag=a-b", path.display())).unwrap();
        journal.send(Level::Error, b"it failed", &Lines);
        let mut buf = vec![0; 10_000];
        let count = socket.recv(&mut buf).unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero();
        let mut expected =
            format!("MESSAGE=it failed\nPRIORITY=3\nSYSLOG_IDENTIFIER=a-b\nTID={tid}\n")
                .into_bytes();
        expected.extend_from_slice(b"MILLPOND_REQUEST\n\x09\0\0\0\0\0\0\0two\nlines\n");
        expected.extend_from_slice(b"MILLPOND_REFERRER=");
        expected.extend_from_slice(&[b'x'; MAX_VALUE]);
        expected.push(b'\n');
        assert_eq!(
            buf[..count].escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
    }

    #[test]
    fn journal_that_is_away_costs_events_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let journal = Journal::parse(&format!("socket={}", path.display())).unwrap();
        let lost = super::super::loss::lost().syslog;
        journal.send(Level::Warn, b"1", &());
        let first = UnixDatagram::bind(&path).unwrap();
        journal.send(Level::Warn, b"2", &());
        drop(first);
        std::fs::remove_file(&path).unwrap();
        let second = UnixDatagram::bind(&path).unwrap();
        journal.send(Level::Warn, b"3", &());
        let mut buf = [0; 200];
        let count = second.recv(&mut buf).unwrap();
        assert!(buf[..count].starts_with(b"MESSAGE=3\nPRIORITY=4\n"));
        assert!(super::super::loss::lost().syslog > lost);
    }

    #[test]
    fn parameters_are_socket_and_tag() {
        for text in ["", "tag=x", "socket=/a,tag=y.z"] {
            assert!(Journal::parse(text).is_ok(), "{text}");
        }
        for text in ["tag=", "tag=a b", "socket=a", "x", "server=/a", "tag=\n"] {
            let message = format!("invalid journald parameter \"{text}\"");
            assert_eq!(Journal::parse(text).unwrap_err().to_string(), message);
        }
    }
}
