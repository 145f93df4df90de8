//! The origin as the machines see it: what is asked, what comes, and what becomes of it.
//!
//! The protocol side implements [`Exchange`] and [`Fetched`]; nothing here names a socket.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::Template;
use millpond_store::Key;

use crate::extent::{ExtentNumber, Extents};
use crate::reason::Note;
use crate::ruling::Ruling;
use crate::status::CacheStatus;
use crate::targeted::EachField;
use crate::use_stale::StaleCause;

/// The reason why the body of an answer ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// The origin closed or broke its answer.
    Truncated,
    /// The origin was silent for too long.
    TimedOut,
}

impl FetchEnd {
    /// Word of `proxy_cache_use_stale` for the end.
    pub(crate) fn cause(self) -> StaleCause {
        match self {
            FetchEnd::Truncated => StaleCause::Error,
            FetchEnd::TimedOut => StaleCause::Timeout,
        }
    }

    /// The status of a request that has nothing else to be answered with.
    pub(crate) fn status(self) -> u16 {
        match self {
            FetchEnd::Truncated => 502,
            FetchEnd::TimedOut => 504,
        }
    }
}

/// An answer of the origin: its head is known, its body arrives.
pub trait Fetched: 'static {
    /// Time when the answer's head came, in seconds since 1970, if that was noted.
    fn came_at(&self) -> Option<i64> {
        None
    }
    /// Number of seconds that passed from the request to the answer's head.
    fn delay(&self) -> u64 {
        0
    }
    /// Status code.
    fn status(&self) -> u16;
    /// Status and reason as the origin wrote them, where they are not what is sent for the status
    /// anyway.
    fn status_text(&self) -> Option<&[u8]> {
        None
    }
    /// Length of the body, when announced.
    fn length(&self) -> Option<u64>;
    /// True if length or coding tell where the body ends.
    fn is_delimited(&self) -> bool {
        true
    }
    /// True if the answer may not be read ahead of its client, and so not be stored.
    fn is_unbuffered(&self) -> bool {
        false
    }
    /// Seconds for which the answer is fresh yet, where who gave it is a cache that knows, negative
    /// for a stale one: it is kept as fresh for no longer.
    fn fresh_left(&self) -> Option<i64> {
        None
    }
    /// True for the answer of another node that keeps it, and of which there is no copy here yet.
    fn is_left_to_owner(&self) -> bool {
        false
    }
    /// All fields, in order.
    fn each_field(&self, each: &mut dyn FnMut(&[u8], &[u8]));
    /// The next bytes of the body; `None` at its end.
    fn next(&mut self) -> impl Future<Output = Option<Result<Bytes, FetchEnd>>>;
    /// The next bytes if they are there already: `None` for need to wait.
    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>>;
    /// Notes at the answer its fate, once, for logs.
    fn note_outcome(&self, _outcome: &Outcome) {}
}

/// Fate of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Entry that the answer is stored in, or is a part of.
    pub entry: Option<Key>,
    /// Clients that got the answer.
    pub clients: Clients,
}

/// Number of clients that got an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Number of clients besides the one that the answer was asked for.
    Besides(u32),
    /// Number of clients in all.
    InAll(u32),
}

/// A failure to get an answer at all.
pub trait FetchFailure {
    /// Word of `proxy_cache_use_stale` for the failure.
    fn cause(&self) -> Option<StaleCause>;
    /// The status that the client would get.
    fn status(&self) -> u16;
    /// A failure that another request saw.
    fn shared(status: u16) -> Self;
    /// Failure of a validation without which a stored answer may not be served: 504.
    #[must_use]
    fn unvalidated(self) -> Self;
}

/// Request to the origin, besides the client's request itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Purpose of the answer; if it is for the cache, the client's conditions and ranges are not
    /// sent.
    pub purpose: Purpose,
    /// If-None-Match, of the stale entry.
    pub if_none_match: Option<Bytes>,
    /// If-Modified-Since, of the stale entry.
    pub if_modified_since: Option<Bytes>,
    /// Range, of what is missing.
    pub range: Option<Bytes>,
    /// If-Range, of the version that the range is wanted of.
    pub if_range: Option<Bytes>,
    /// The extent that the range lies in, where it may be asked of the node that owns the extent.
    pub extent: Option<ExtentNumber>,
    /// Label so far of the request that the answer is for, for logs.
    pub label: Option<CacheStatus>,
    /// Text of the cache key of what is missing here, where a copy that is kept elsewhere is as
    /// good as the origin's answer.
    pub missing: Option<Bytes>,
}

/// Purpose of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The answer is for the client alone: its request goes on as it is.
    #[default]
    Pass,
    /// The cache: the whole, unconditionally.
    Fill,
}

/// One request to an origin through the cache, as the protocol side sees it.
pub trait Exchange {
    /// An answer.
    type Fetched: Fetched;
    /// No answer.
    type Failure: FetchFailure;
    /// Exchange like this one without its client.
    type Background: Exchange<Fetched = Self::Fetched, Failure = Self::Failure> + 'static;

    /// Wall time in seconds.
    fn now(&self) -> i64;
    /// True when no client waits.
    fn is_background(&self) -> bool;
    /// The values of a field of the client's request.
    fn field(&self, name: &[u8]) -> Vec<&[u8]>;
    /// The values of a field by which variants are told apart.
    fn selecting(&self, name: &[u8]) -> Vec<&[u8]> {
        self.field(name)
    }
    /// True if the look-up is to be skipped.
    fn must_bypass(&mut self) -> bool;
    /// True if only what is stored may answer the request (`cached_only`); asked once nothing fresh
    /// was found.
    fn must_be_stored(&mut self) -> bool {
        false
    }
    /// The extents in which bodies in slices are asked for; none where all of a body is asked of
    /// one.
    fn extents(&self) -> Option<Extents> {
        None
    }
    /// True if the answer must not be stored (`proxy_no_cache`); asked once its head is known.
    fn must_not_store(&mut self) -> bool;
    /// True if the request has content that may have made the answer what it is, although its
    /// method gives content no meaning.
    fn has_content(&self) -> bool {
        false
    }
    /// The ruling of the operator's own code about an answer, by its status and fields; asked when
    /// the answer may be stored, or makes what is stored fresh again.
    fn ruling(&mut self, _status: u16, _each_field: EachField<'_>) -> Option<Ruling> {
        None
    }
    /// Tags that the answer can be purged by, as [`crate::tag`] writes them, with those of a
    /// ruling; asked once the answer is to be stored. All fields of the answer are given.
    fn tags(&mut self, _each_field: EachField<'_>, _ruled: &[Bytes]) -> Bytes {
        Bytes::new()
    }
    /// Takes what an answer that is to be stored says of the keys of its path; false if it may not
    /// be stored under its own. All fields of the answer are given.
    fn takes_key(&mut self, _status: u16, _each_field: EachField<'_>) -> bool {
        true
    }
    /// The time that a text with variables of the request and its answer tells; none if it is empty
    /// or no time.
    fn time_of(&mut self, _text: &Template) -> Option<Duration> {
        None
    }
    /// Labels the request with what the cache does for it so far; what it is served with may say
    /// otherwise, a failure says no more.
    fn label(&mut self, _status: CacheStatus) {}
    /// True if asking the origin once more does nothing but ask it.
    fn may_ask_again(&self) -> bool {
        false
    }
    /// Notes that a body broke off after so many bytes, and that the rest is asked for.
    fn note_broken(&self, _at: u64, _why: FetchEnd) {}
    /// Enters in the request's account what was decided and why.
    fn note(&mut self, _note: Note) {}
    /// Asks the origin.
    fn fetch(&mut self, ask: Ask) -> impl Future<Output = Result<Self::Fetched, Self::Failure>>;
    /// The exchange for work in the background.
    fn background(&self) -> Self::Background;
    /// The exchange for an update in the background of what this request is served; a connection
    /// that closes behind the answer may wait for it a little.
    fn updater(&self) -> Self::Background {
        self.background()
    }
    /// Starts a task on this worker.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
}

/// The first value of a field of an answer.
pub(crate) fn field<F: Fetched>(fetched: &F, wanted: &[u8]) -> Option<Bytes> {
    let mut found = None;
    fetched.each_field(&mut |name, value| {
        if found.is_none() && name.eq_ignore_ascii_case(wanted) {
            found = Some(Bytes::copy_from_slice(value));
        }
    });
    found
}
