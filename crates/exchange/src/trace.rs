//! Trace of a request's exchanges with upstreams, for `$upstream_*` variables.
//!
//! A request may try several peers, and go through several upstreams by internal redirection; each
//! try is an [`Attempt`], and variables join them with ", " and " : " as nginx does.
//!
//! `span` is a trace of another kind: OpenTelemetry's, of which the request is a part; `policy` has
//! its settings.

pub mod policy;
pub mod span;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::reason::Account;
use millpond_store::Key;
use millpond_wire::header::Fields;
use millpond_wire::spare::Spares;

use crate::counters::Number;
use crate::protocol::Protocol;

/// The reason why an upstream is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Why {
    /// For a client alone: nothing is stored.
    #[default]
    Pass,
    /// The cache has no entry.
    Miss,
    /// The cache is not looked at, but takes the answer.
    Bypass,
    /// The entry is stale.
    Expired,
    /// The entry is stale, and is asked about by its validator.
    Revalidate,
    /// A part of an entry is missing.
    Slice,
    /// Behind a client's request, for the cache.
    Background,
}

impl Why {
    /// All reasons.
    pub const ALL: [Why; 7] = [
        Why::Pass,
        Why::Miss,
        Why::Bypass,
        Why::Expired,
        Why::Revalidate,
        Why::Slice,
        Why::Background,
    ];

    /// Index of the reason in [`Why::ALL`], which is in the order of the declaration.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word of `$upstream_reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Pass => "pass",
            Why::Miss => "miss",
            Why::Bypass => "bypass",
            Why::Expired => "expired",
            Why::Revalidate => "revalidate",
            Why::Slice => "slice",
            Why::Background => "background",
        }
    }
}

/// One try with one peer.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The peer's address as configured or resolved; the group's name when none was live.
    pub peer: Arc<str>,
    /// Node of the fleet that was asked, if the peer is one.
    pub node: Option<Arc<str>>,
    /// Protocol in which the peer is spoken to.
    pub protocol: Protocol,
    /// True if what it is told is encrypted.
    pub is_encrypted: bool,
    /// The reason why it was asked.
    pub why: Why,
    /// Number of redirects that led to it.
    pub redirects: u32,
    /// The head that it was sent, if it speaks HTTP.
    pub head: Bytes,
    /// The range that the cache asked for.
    pub range: Option<Bytes>,
    /// Begin of the attempt, milliseconds since 1970.
    pub started_ms: i64,
    /// Cache key under which the answer is stored.
    pub entry: Option<Key>,
    /// Number of clients that got the answer.
    pub clients: u32,
    /// Status of its answer; 502 or 504 when it failed; 0 while unknown, or when nobody was asked.
    pub status: u16,
    /// Time for which the request waited in the queue of the group before it, if it did.
    pub queued: Option<Duration>,
    /// Time to connect.
    pub connect: Option<Duration>,
    /// Time to the answer's head.
    pub header: Option<Duration>,
    /// Time to the end of the answer.
    pub response: Option<Duration>,
    /// Bytes of the answer's body.
    pub body_bytes: u64,
    /// Bytes received, head included.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// True when the request went on to another upstream after this one (internal redirect): the
    /// log separates with a colon.
    pub ends_group: bool,
}

/// The peer and what it is asked for, as nginx's error log names them: `http://127.0.0.1:80/a`; of
/// other protocols the peer alone.
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plain, encrypted) = (self.protocol.scheme(), self.protocol.encrypted_scheme());
        let scheme = encrypted.filter(|_| self.is_encrypted).unwrap_or(plain);
        write!(f, "{scheme}://{}", self.peer)?;
        if self.peer.starts_with("unix:") {
            f.write_str(":")?;
        }
        let target = asked::target(&self.head).unwrap_or_default();
        f.write_str(&String::from_utf8_lossy(target))
    }
}

/// All exchanges of one request.
#[derive(Clone, Debug, Default)]
pub struct UpstreamTrace {
    /// The authority that requests name (`$proxy_host`), as it is passed to.
    pub host: Option<Arc<str>>,
    /// Port of the upstream.
    pub port: u16,
    /// In order.
    pub attempts: Vec<Attempt>,
    /// Fields of the last answer, or of the cached head that was served.
    pub fields: Option<Rc<Fields>>,
    /// Trailer fields of the last answer.
    pub trailers: Option<Rc<Fields>>,
    /// The Last-Modified and ETag of the stale entry that is being revalidated.
    pub validators: (Option<Bytes>, Option<Bytes>),
    /// The Set-Cookie field that binds the client to the last peer.
    pub sticky_cookie: Option<Bytes>,
    /// The cache zone that was looked at last.
    pub zone: Option<Number>,
    /// `$upstream_cache_status`.
    pub cache_status: Option<&'static str>,
    /// Account of what the cache did and why.
    pub account: Account,
    /// Age of the answer from the cache when it was served, and the time for which it was fresh.
    pub freshness: Option<Freshness>,
    /// Number of times that the entry that answers was found, if anybody wants to know.
    pub hits: Option<u64>,
    /// Outcome of a question to the second tier of the zone.
    pub tier: Option<TierWord>,
}

/// Outcome of a question to a second tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierWord {
    /// There was a copy.
    Hit,
    /// There was none that may be used.
    Miss,
    /// The tier has failed.
    Fault,
}

impl TierWord {
    /// The outcome in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            TierWord::Hit => "hit",
            TierWord::Miss => "miss",
            TierWord::Fault => "fault",
        }
    }
}

/// Attempts that a trace keeps the memory for: what the first of a list takes.
const ATTEMPTS_KEPT: usize = 4;

thread_local! {
    /// Empty ones, whose memory is that of requests that have ended.
    static SPARES: Spares<Rc<RefCell<UpstreamTrace>>> = const { Spares::new() };
}

/// Trace that a request begins with.
pub fn begin() -> Rc<RefCell<UpstreamTrace>> {
    SPARES.with(Spares::take).unwrap_or_default()
}

/// Keeps the memory of what was learnt of a request that ended, unless others hold it.
pub fn give_back(mut trace: Rc<RefCell<UpstreamTrace>>) {
    if let Some(ended) = Rc::get_mut(&mut trace) {
        let ended = ended.get_mut();
        let mut attempts = std::mem::take(&mut ended.attempts);
        attempts.clear();
        if attempts.capacity() > ATTEMPTS_KEPT {
            attempts = Vec::new();
        }
        *ended = UpstreamTrace {
            attempts,
            ..UpstreamTrace::default()
        };
        SPARES.with(|it| it.keep(trace));
    }
}

/// Freshness of an answer from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Age of the answer (RFC 9111 §4.2.3), seconds.
    pub age: i64,
    /// For how many seconds it is fresh yet; negative once it is stale.
    pub ttl: i64,
}

/// Reading the head that a peer was sent; we wrote it ourselves.
pub mod asked {
    use millpond_wire::header::Known;

    /// The method.
    pub fn method(head: &[u8]) -> Option<&[u8]> {
        words(head).next().filter(|method| !method.is_empty())
    }

    /// The target.
    pub fn target(head: &[u8]) -> Option<&[u8]> {
        words(head).nth(1)
    }

    /// The first field of a name.
    pub fn field(head: &[u8], known: Known) -> Option<&[u8]> {
        let name = known.lower().as_bytes();
        head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
            let (start, rest) = line.split_at_checked(name.len())?;
            let value = rest.strip_prefix(b":")?;
            start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
        })
    }

    fn words(head: &[u8]) -> impl Iterator<Item = &[u8]> {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        line.split(|byte| *byte == b' ')
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_was_written_is_read() {
            let head = b"GET /a?b HTTP/1.1\r\nHost: a:80\r\nRange: bytes=0-\r\n\r\n";
            assert_eq!(method(head), Some(&b"GET"[..]));
            assert_eq!(target(head), Some(&b"/a?b"[..]));
            assert_eq!(field(head, Known::Host), Some(&b"a:80"[..]));
            assert_eq!(field(head, Known::Range), Some(&b"bytes=0-"[..]));
            assert_eq!(field(head, Known::IfRange), None);
            assert_eq!((method(b""), target(b"")), (None, None));
        }
    }
}
