//! Invalidations of a process whose caches another one has: they are handed on.
//!
//! ```text
//! unsafe request ends here ──► Heir::tell ──► channel ──► obeyed in the new process
//!                                  └──► kept, in case that the caches come back
//! ```
//!
//! While the binary is changed, requests of the old process succeed that make stored answers wrong
//! (RFC 9111 §4.4, RFC 9875 §3), and those are the new one's by then.
//!
//! A record, integers little-endian: kind (1), length of the zone's name (2), the name, then each
//! text behind its length (4). Kinds are `k`, a key, `p`, a prefix of keys, and `t`, tags.
//!
//! 1. An invalidation is on its way before its client has the answer; nobody waits until the other
//!    process obeys.
//! 2. What was handed on is not lost with the process that it was handed to, unless that is too
//!    much: then all of the caches counts as stale.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::purge::Target;

/// Bytes of a record, at most: tags of one purge have far fewer.
pub const RECORD_MAX: u32 = 1 << 20;
/// Records that are kept (arbitrary: requests that were under way, and those of kept connections).
const KEPT_MAX: usize = 4096;

/// Kinds of what is handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handed {
    /// The entries of a key, and those that are being fetched for it.
    Key(Bytes),
    /// A purge.
    Purge(Target),
}

/// A record: a zone, and what is wrong in it.
pub type Record = (String, Handed);

/// Way to the process that has the caches, which waits for no longer than a moment.
pub type Channel = Box<dyn Write + Send>;

/// The process that has the caches of this one, if there is one.
#[derive(Debug, Default)]
pub struct Heir(Mutex<State>);

#[derive(Default)]
struct State {
    is_there: bool,
    /// The way to it, unless that has failed.
    channel: Option<Channel>,
    kept: Vec<Record>,
    /// True if not all is kept.
    is_full: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("kept", &self.kept.len())
            .finish_non_exhaustive()
    }
}

/// Invalidations that were handed on to a process that is gone.
#[derive(Debug, PartialEq, Eq)]
pub enum Returned {
    /// All of them.
    All(Vec<Record>),
    /// More than were kept.
    TooMany,
}

impl Heir {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process has the caches from here on, and is told by this channel.
    pub fn appoint(&self, channel: Channel) {
        *self.state() = State {
            is_there: true,
            channel: Some(channel),
            ..State::default()
        };
    }

    /// The caches come back; what was handed on.
    pub fn dismiss(&self) -> Returned {
        let state = std::mem::take(&mut *self.state());
        if state.is_full {
            Returned::TooMany
        } else {
            Returned::All(state.kept)
        }
    }

    /// True if another process has the caches.
    pub fn is_there(&self) -> bool {
        self.state().is_there
    }

    /// Hands on what is wrong in a zone. It may wait for a moment; the error says why the other
    /// process will never know, of this and of all that follows.
    pub fn tell(&self, zone: &str, handed: &[Handed]) -> io::Result<()> {
        let mut state = self.state();
        let lost = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut told = state.channel.as_ref().map(drop).ok_or_else(lost);
        for one in handed {
            let record = encode(zone, one);
            let mut message = BytesMut::with_capacity(record.len() + 5);
            message.put_u8(MARK);
            // At most `RECORD_MAX`: texts are those of requests.
            message.put_u32_le(record.len() as u32);
            message.put_slice(&record);
            if let Some(channel) = &mut state.channel
                && let Err(failure) = channel.write_all(&message)
            {
                // A part of a record may be there.
                state.channel = None;
                told = Err(failure);
            }
            if state.kept.len() < KEPT_MAX {
                state.kept.push((zone.to_owned(), one.clone()));
            } else {
                state.is_full = true;
            }
        }
        told
    }
}

/// The byte before the length of a record.
pub const MARK: u8 = b'I';

fn encode(zone: &str, handed: &Handed) -> Bytes {
    let (kind, texts): (u8, &[Bytes]) = match handed {
        Handed::Key(text) => (b'k', std::slice::from_ref(text)),
        Handed::Purge(Target::Prefix(text)) => (b'p', std::slice::from_ref(text)),
        Handed::Purge(Target::Tags(tags)) => (b't', tags),
        // Origins purge nothing else; to make too much stale is safe.
        Handed::Purge(_) => (b'p', &[Bytes::new()]),
    };
    let mut out = BytesMut::new();
    out.put_u8(kind);
    // Names of zones are words of a configuration.
    out.put_u16_le(u16::try_from(zone.len()).unwrap_or(u16::MAX));
    out.put_slice(zone.as_bytes());
    for text in texts {
        out.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
        out.put_slice(text);
    }
    out.freeze()
}

/// Reads a record; none if it is none.
pub fn decode(mut rest: Bytes) -> Option<Record> {
    let kind = rest.try_get_u8().ok()?;
    let len = usize::from(rest.try_get_u16_le().ok()?);
    let name = (len <= rest.len()).then(|| rest.split_to(len))?;
    let zone = String::from_utf8(name.to_vec()).ok()?;
    let mut texts = Vec::new();
    while !rest.is_empty() {
        let len = rest.try_get_u32_le().ok()? as usize;
        texts.push((len <= rest.len()).then(|| rest.split_to(len))?);
    }
    let one = || match texts.as_slice() {
        [text] => Some(text.clone()),
        _ => None,
    };
    let handed = match kind {
        b'k' => Handed::Key(one()?),
        b'p' => Handed::Purge(Target::Prefix(one()?)),
        b't' => Handed::Purge(Target::Tags(texts)),
        _ => return None,
    };
    Some((zone, handed))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn records() -> Vec<Record> {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let of = |handed| ("a zone".to_owned(), handed);
        vec![
            of(Handed::Key(text("h/a"))),
            of(Handed::Key(Bytes::new())),
            of(Handed::Purge(Target::Prefix(text("h/a QUERY ")))),
            of(Handed::Purge(Target::Tags(vec![text("x"), text("y z")]))),
        ]
    }

    #[test]
    fn records_are_read_as_they_were_written_and_nothing_else_is_one() {
        for (zone, handed) in records() {
            let bytes = encode(&zone, &handed);
            assert_eq!(decode(bytes.clone()), Some((zone, handed.clone())));
            for end in 0..bytes.len() {
                // Tags may be fewer.
                let cut = decode(bytes.slice(..end));
                let is_fewer = matches!(&cut, Some((_, Handed::Purge(Target::Tags(_)))));
                assert!(cut.is_none() || is_fewer, "{handed:?} at {end}");
            }
        }
        assert_eq!(decode(Bytes::from_static(b"x\0\0")), None);
    }

    #[test]
    fn what_is_handed_on_is_kept_for_the_return() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let heir = Heir::default();
        assert!(!heir.is_there());
        heir.appoint(Box::new(ours));
        assert!(heir.is_there());
        for (zone, handed) in records() {
            heir.tell(&zone, &[handed]).unwrap();
        }
        for expected in records() {
            let mut head = [0; 5];
            theirs.read_exact(&mut head).unwrap();
            let [mark, len @ ..] = head;
            assert_eq!(mark, MARK);
            let mut record = vec![0; u32::from_le_bytes(len) as usize];
            theirs.read_exact(&mut record).unwrap();
            assert_eq!(decode(record.into()), Some(expected));
        }
        drop(theirs);
        let late = [Handed::Key(Bytes::from_static(b"late"))];
        assert!(heir.tell("a zone", &late).is_err() && heir.tell("a zone", &late).is_err());
        let Returned::All(kept) = heir.dismiss() else {
            panic!("too many")
        };
        assert_eq!(kept.len(), records().len() + 2);
        assert!(!heir.is_there());
        heir.appoint(Box::new(std::io::sink()));
        for _ in 0..=KEPT_MAX {
            heir.tell("z", &[Handed::Key(Bytes::new())]).unwrap();
        }
        assert_eq!(heir.dismiss(), Returned::TooMany);
    }
}
