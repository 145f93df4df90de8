//! One connection, and the answer that comes on it.
//!
//! ```text
//! Closed ─begin─► Opening ─writable─► Idle ─send─► Busy ─whole answer─► Idle
//!    ▲               │                  │            │
//!    └───────────────┴── ended, refused ┴────────────┘
//! ```

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use rustix::event::epoll::EventFlags;

/// The end of a head.
const END: &[u8] = b"\r\n\r\n";
/// The field that says how long a body is; there must be one.
const LENGTH: &[u8] = b"content-length:";
/// The longest head.
const HEAD: usize = 16 << 10;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Instant at which the request should have been sent.
    pub(super) due: Instant,
    /// Number of its path.
    pub(super) number: u64,
    /// Number of times that the request was sent in vain.
    pub(super) tries: u8,
}

impl Asked {
    pub(super) fn new(due: Instant, number: u64) -> Self {
        Self {
            due,
            number,
            tries: 0,
        }
    }
}

/// Event on a connection.
#[derive(Debug)]
pub(super) enum Met {
    /// Open, with this to send.
    Opened(Option<Asked>),
    /// An answer is whole.
    Answered(Asked, Answer),
    /// Over, with a request that was not answered, and why not. Without a reason not one byte of an
    /// answer came, so that the request may be sent again.
    Ended(Option<Asked>, Option<String>),
}

/// Status and length of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body_bytes: u64,
}

impl Answer {
    /// True if it is as it should be.
    pub(super) fn is_as(&self, body_bytes: u64) -> bool {
        self.status == 200 && self.body_bytes == body_bytes
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}, {} bytes", self.status, self.body_bytes)
    }
}

/// Progress of an answer.
#[derive(Debug)]
enum Come {
    /// These bytes of a head.
    Head(Vec<u8>),
    /// A head, and so many bytes of the body are still to come.
    Body(Answer, u64),
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Opening(TcpStream, Option<Asked>),
    Idle(TcpStream),
    Busy(TcpStream, Asked, Come),
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    state: State,
}

impl Connection {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Idle(_) | State::Busy(..))
    }

    /// Begins with a socket that is being connected.
    pub(super) fn begin(&mut self, stream: TcpStream, asked: Option<Asked>) {
        self.state = State::Opening(stream, asked);
    }

    /// Sends a request on an idle connection.
    pub(super) fn send(&mut self, asked: Asked, text: &[u8]) -> Option<Met> {
        let State::Idle(mut stream) = std::mem::take(&mut self.state) else {
            return Some(Met::Ended(Some(asked), None));
        };
        match stream.write(text) {
            Ok(count) if count == text.len() => {
                self.state = State::Busy(stream, asked, Come::Head(Vec::new()));
                None
            }
            Ok(_) => Some(Met::Ended(Some(asked), Some("no room to send".to_owned()))),
            Err(_) => Some(Met::Ended(Some(asked), None)),
        }
    }

    /// Goes on with what the event loop says of it; none when there is nothing more.
    pub(super) fn advance(&mut self, flags: EventFlags, buffer: &mut [u8]) -> Option<Met> {
        match std::mem::take(&mut self.state) {
            State::Closed => None,
            State::Opening(stream, asked) => match stream.take_error() {
                Ok(None) if flags.contains(EventFlags::OUT) => {
                    self.state = State::Idle(stream);
                    Some(Met::Opened(asked))
                }
                Ok(None) => {
                    self.state = State::Opening(stream, asked);
                    None
                }
                Ok(Some(error)) | Err(error) => {
                    let why = format!("connect: {error}");
                    Some(Met::Ended(asked, Some(why)))
                }
            },
            State::Idle(mut stream) => {
                let end = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                if end && !is_quiet(&mut stream) {
                    return Some(Met::Ended(None, None));
                }
                self.state = State::Idle(stream);
                None
            }
            State::Busy(stream, asked, come) => self.receive((stream, asked, come), flags, buffer),
        }
    }

    /// Reads until the answer is whole or nothing more has come.
    fn receive(
        &mut self,
        (mut stream, asked, mut come): (TcpStream, Asked, Come),
        flags: EventFlags,
        buffer: &mut [u8],
    ) -> Option<Met> {
        loop {
            let count = match stream.read(buffer) {
                Ok(0) => return Some(ended(asked, &come, "the connection ended")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Some(ended(asked, &come, &error.to_string())),
            };
            match come.feed(&buffer[..count]) {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    self.state = State::Idle(stream);
                    return Some(Met::Answered(asked, answer));
                }
                Err(why) => return Some(Met::Ended(Some(asked), Some(why))),
            }
            // Less than there was room for is all, but for an end, which is told only once.
            if count < buffer.len() && !flags.contains(EventFlags::RDHUP) {
                break;
            }
        }
        self.state = State::Busy(stream, asked, come);
        None
    }
}

/// True if nothing has come, not even an end.
fn is_quiet(stream: &mut TcpStream) -> bool {
    let read = stream.read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// The end of a connection that an answer was awaited on.
fn ended(asked: Asked, come: &Come, why: &str) -> Met {
    let is_begun = !matches!(come, Come::Head(bytes) if bytes.is_empty());
    Met::Ended(
        Some(asked),
        is_begun.then(|| format!("within an answer: {why}")),
    )
}

impl Come {
    /// Takes bytes; the answer if they make it whole.
    fn feed(&mut self, bytes: &[u8]) -> Result<Option<Answer>, String> {
        let mut rest = bytes.len() as u64;
        if let Come::Head(held) = self {
            let parsed = if held.is_empty() {
                head(bytes)?
            } else {
                held.extend_from_slice(bytes);
                rest = held.len() as u64;
                head(held)?
            };
            match parsed {
                Some((answer, used)) => {
                    rest -= used as u64;
                    *self = Come::Body(answer, answer.body_bytes);
                }
                None => {
                    if held.is_empty() {
                        held.extend_from_slice(bytes);
                    }
                    let is_long = held.len() > HEAD;
                    return if is_long {
                        Err("a long head".to_owned())
                    } else {
                        Ok(None)
                    };
                }
            }
        }
        let Come::Body(answer, left) = self else {
            return Ok(None);
        };
        match left.checked_sub(rest) {
            Some(0) => Ok(Some(*answer)),
            Some(less) => {
                *left = less;
                Ok(None)
            }
            None => Err("more than the answer".to_owned()),
        }
    }
}

/// The head at the beginning of bytes, and its length, if all of it is there.
///
/// Not by `httparse`: a build without optimization, as that of tasks is, has the crates of others
/// as slow as that, and this runs for each answer.
fn head(bytes: &[u8]) -> Result<Option<(Answer, usize)>, String> {
    let mut fours = bytes.windows(END.len());
    let Some(end) = fours.position(|four| four == END) else {
        return Ok(None);
    };
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix(b"HTTP/1."))
        .and_then(|line| number(line.get(2..5)?))
        .ok_or("an answer that is not HTTP/1")?;
    let body_bytes = lines
        .find_map(|line| {
            let (name, value) = line.split_at_checked(LENGTH.len())?;
            name.eq_ignore_ascii_case(LENGTH).then_some(value)
        })
        .and_then(number)
        .ok_or("an answer without Content-Length")?;
    let answer = Answer { status, body_bytes };
    Ok(Some((answer, end + END.len())))
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte_however_it_is_cut() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX: y\r\n\r\nhello";
        for cut in 0..text.len() {
            let mut come = Come::Head(Vec::new());
            assert_eq!(come.feed(&text[..cut]), Ok(None), "{cut}");
            let answer = Answer {
                status: 200,
                body_bytes: 5,
            };
            assert_eq!(come.feed(&text[cut..]), Ok(Some(answer)), "{cut}");
        }
    }

    #[test]
    fn more_or_less_than_an_answer_is_told() {
        for (text, why) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
                "more than the answer",
            ),
            (
                "HTTP/1.1 200 OK\r\n\r\n",
                "an answer without Content-Length",
            ),
            ("SSH-2.0-OpenSSH\r\n\r\n", "an answer that is not HTTP/1"),
        ] {
            let fed = Come::Head(Vec::new()).feed(text.as_bytes());
            assert_eq!(fed, Err(why.to_owned()), "{text}");
        }
    }
}
