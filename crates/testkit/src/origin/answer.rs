//! Answers: what the origin sends for a request, and how it misbehaves while it does.
//!
//! An [`Answer`] is built by naming what is special about it; everything else is an honest answer
//! with Content-Length. Bodies are bytes, or generated from their offset ([`offset_bytes`]), so
//! that any part of a large body proves where it came from and of which version it is.
//!
//! The order in which the parts act: head gate, head delay, head, body up to the body gate, the
//! rest at the rate, then the drop.

use super::select::Lie;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of one line of a generated body.
const LINE: u64 = 16;
/// Longest wait at a gate; a gate that a failed test never opens must not hang the run.
const GATE_WAIT: Duration = Duration::from_secs(30);

/// Framing of a body: the way in which its end is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// The body ends by Content-Length.
    #[default]
    Length,
    /// The body ends by chunked coding, in pieces of at most 8 KiB.
    Chunked,
    /// The body ends by closing the connection.
    UntilClose,
}

/// Treatment of Range requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranges {
    /// Range is ignored, and Accept-Ranges is not sent.
    #[default]
    Ignored,
    /// A single range is answered with 206 or 416, If-Range is honoured.
    Supported,
    /// Range requests are honoured, but If-Range is not looked at.
    Unconditional,
}

/// Answer of the origin.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub(super) status: u16,
    pub(super) reason: Option<String>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Body,
    pub(super) framing: Framing,
    pub(super) ranges: Ranges,
    pub(super) revalidates: bool,
    pub(super) trailers: Vec<(String, String)>,
    pub(super) head_gate: Option<Gate>,
    pub(super) head_delay: Duration,
    pub(super) body_gate: Option<(u64, Gate)>,
    pub(super) held: Vec<(Range<u64>, Gate)>,
    pub(super) rate: Option<u64>,
    pub(super) drop_after: Option<u64>,
    pub(super) drop_at: Option<u64>,
    pub(super) lie: Option<Lie>,
    pub(super) tally: Option<Arc<AtomicU64>>,
    pub(super) raw: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Bytes(Arc<[u8]>),
    Offset { len: u64, version: u16 },
}

impl Default for Body {
    fn default() -> Body {
        Body::Bytes(Arc::from([]))
    }
}

impl Answer {
    /// An answer with an empty body.
    pub fn new(status: u16) -> Answer {
        Answer {
            status,
            ..Answer::default()
        }
    }

    /// A whole answer as bytes; the connection is closed after it. Nothing else applies to it but
    /// the head's gate and delay.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Answer {
        Answer {
            raw: Some(bytes.as_ref().to_vec()),
            ..Answer::new(0)
        }
    }

    /// Sets the words after the status.
    pub fn reason(mut self, reason: &str) -> Answer {
        self.reason = Some(reason.to_string());
        self
    }

    /// Adds a field.
    pub fn header(mut self, name: &str, value: &str) -> Answer {
        self.fields.push((name.to_string(), value.to_string()));
        self
    }

    /// Adds an ETag; give it with its quotes.
    pub fn etag(self, etag: &str) -> Answer {
        self.header("ETag", etag)
    }

    /// Adds Last-Modified.
    pub fn last_modified(self, date: &str) -> Answer {
        self.header("Last-Modified", date)
    }

    /// Sets the body.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Answer {
        self.body = Body::Bytes(Arc::from(body.as_ref()));
        self
    }

    /// Sets a generated body: `len` bytes of `offset_bytes` of `version`.
    pub fn offset_body(mut self, len: u64, version: u16) -> Answer {
        self.body = Body::Offset { len, version };
        self
    }

    /// Sets how the body's end is told.
    pub fn framing(mut self, framing: Framing) -> Answer {
        self.framing = framing;
        self
    }

    /// Honours Range.
    pub fn ranges(mut self, ranges: Ranges) -> Answer {
        self.ranges = ranges;
        self
    }

    /// Answers 304 when If-None-Match or If-Modified-Since names the present validator exactly.
    pub fn revalidates(mut self) -> Answer {
        self.revalidates = true;
        self
    }

    /// Adds a trailer field; only a chunked answer carries them.
    pub fn trailer(mut self, name: &str, value: &str) -> Answer {
        self.trailers.push((name.to_string(), value.to_string()));
        self
    }

    /// Holds the head until `gate` opens.
    pub fn hold_head(mut self, gate: &Gate) -> Answer {
        self.head_gate = Some(gate.clone());
        self
    }

    /// Waits before the head; a gate is better where the test knows what it waits for.
    pub fn delay_head(mut self, delay: Duration) -> Answer {
        self.head_delay = delay;
        self
    }

    /// Sends `bytes` bytes of the body and holds the rest until `gate` opens.
    pub fn hold_body_at(mut self, bytes: u64, gate: &Gate) -> Answer {
        self.body_gate = Some((bytes, gate.clone()));
        self
    }

    /// Holds the bytes of `range`, counted in the whole body, until `gate` opens; an answer to a
    /// range that has none of them is not held.
    pub fn hold_bytes(mut self, range: Range<u64>, gate: &Gate) -> Answer {
        self.held.push((range, gate.clone()));
        self
    }

    /// Sends the body at this many bytes a second.
    pub fn rate(mut self, bytes_per_second: u64) -> Answer {
        self.rate = Some(bytes_per_second.max(1));
        self
    }

    /// Drops the connection after this many bytes of the body.
    pub fn drop_after(mut self, bytes: u64) -> Answer {
        self.drop_after = Some(bytes);
        self
    }

    /// Drops the connection before this byte, counted in the whole body.
    pub fn drop_at(mut self, offset: u64) -> Answer {
        self.drop_at = Some(offset);
        self
    }

    /// Says something wrong in answers to ranges.
    pub fn lie(mut self, lie: Lie) -> Answer {
        self.lie = Some(lie);
        self
    }

    /// Adds what is sent of the body to `tally`.
    pub(super) fn count_in(mut self, tally: &Arc<AtomicU64>) -> Answer {
        self.tally = Some(Arc::clone(tally));
        self
    }

    /// The first value of a field that was set.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

impl Body {
    /// The version of a generated body; 0 of any other.
    pub(super) fn version(&self) -> u16 {
        match self {
            Body::Bytes(_) => 0,
            Body::Offset { version, .. } => *version,
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::Offset { len, .. } => *len,
        }
    }

    /// The bytes of a range that lies within the body.
    pub(super) fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        match self {
            Body::Bytes(bytes) => {
                let start = usize::try_from(range.start).unwrap_or(usize::MAX);
                let end = usize::try_from(range.end).unwrap_or(usize::MAX);
                bytes.get(start..end).unwrap_or_default().to_vec()
            }
            Body::Offset { version, .. } => offset_bytes(range, *version),
        }
    }
}

/// The bytes of a generated body in `range`: lines of 16 bytes, `VVVV OOOOOOOOOO\n`, where V is the
/// version and O the line's offset, both hexadecimal.
pub fn offset_bytes(range: Range<u64>, version: u16) -> Vec<u8> {
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(len + 2 * LINE as usize);
    let first = range.start - range.start % LINE;
    let mut line = first;
    while line < range.end {
        push_hex(&mut bytes, u64::from(version), 4);
        bytes.push(b' ');
        push_hex(&mut bytes, line, 10);
        bytes.push(b'\n');
        line += LINE;
    }
    let before = usize::try_from(range.start - first).unwrap_or(0);
    bytes.drain(..before.min(bytes.len()));
    bytes.truncate(len);
    bytes
}

/// Appends the last `digits` hexadecimal digits; by hand, since formatting is slow for megabytes
/// in a build that is not optimised.
fn push_hex(bytes: &mut Vec<u8>, value: u64, digits: u32) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for digit in (0..digits).rev() {
        let nibble = (value >> (4 * digit)) & 0xf;
        bytes.push(DIGITS[nibble as usize]);
    }
}

/// A gate that holds answers until a test opens it.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets everything through, from now on.
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Waits until the gate is open.
    pub(super) fn pass(&self) {
        let open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _open = self
            .0
            .1
            .wait_timeout_while(open, GATE_WAIT, |open| !*open)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_generated_body_equals_the_part_of_the_whole() {
        let whole = offset_bytes(0..100, 7);
        assert_eq!(whole.len(), 100);
        assert!(whole.starts_with(b"0007 0000000000\n0007 0000000010\n"));
        for start in 0..100u64 {
            for end in start..=100 {
                let part = offset_bytes(start..end, 7);
                assert_eq!(part, whole[start as usize..end as usize]);
            }
        }
    }
}
