//! Sessions that are resumed: the cache of a server, its tickets, and the sessions of upstreams.
//!
//! What rustls remembers of a session is an opaque value. Around it stands what decides whether it
//! may be used:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 1 | 1, the version of this layout |
//! | 1 | 16 | the context: of which certificates, verified how |
//! | 17 | 8 | when it was made, in seconds since 1970, big-endian |
//! | 25 | 2 | length n of the note, big-endian |
//! | 27 | n | what a verifier noted |
//! | 27 + n | | rustls's value |
//!
//! A [`SessionCache`] keeps it under an identifier, [`Tickets`] seal it. Both write and read it;
//! what does not fit is no session.
//!
//! 1. A session resumes only where the context is the one that made it, and not beyond the timeout.
//! 2. Where early data is taken, a session is found at most once.

mod cache;
mod client;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls::time_provider::TimeProvider;
use zeroize::Zeroizing;

pub use cache::SessionCache;
pub use client::ClientSessions;
pub use ticket::{TicketKey, TicketKeyError, Tickets};

use crate::scope::{self, SESSION_ID_LEN, SessionId};

const LAYOUT: u8 = 1;
const HEAD_LEN: usize = 27;

/// The longest note that is kept with a session; one with a longer note is not resumed.
const NOTE_MAX: usize = 1024;

/// The context of a session: the digest of what it depends on.
pub(crate) type ContextId = [u8; 16];

/// The cache of sessions that a server uses, as `ssl_session_cache` has it.
#[derive(Clone, Debug, Default)]
pub enum CacheMode {
    /// Clients are told that nothing can be resumed.
    Off,
    /// Clients are told that it could, and nothing is kept.
    #[default]
    None,
    /// Sessions are kept here.
    Cache(Arc<SessionCache>),
}

/// Conditions under which a context resumes sessions.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub context: ContextId,
    pub timeout: Duration,
    pub time: Arc<dyn TimeProvider>,
    pub use_count: UseCount,
}

/// The number of times that a session of the cache may be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseCount {
    Any,
    /// RFC 8446 §8.1: one that may bring early data.
    Once,
}

impl Rules {
    fn now(&self) -> Option<u64> {
        self.time.current_time().map(|time| time.as_secs())
    }

    fn wrap(&self, value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let made_at = self.now()?;
        let note: Box<[u8]> =
            scope::ask(|learned| Some(learned.current_note().into())).unwrap_or_default();
        if note.len() > NOTE_MAX {
            return None;
        }
        let len = HEAD_LEN + note.len() + value.len();
        let mut wrapped = Zeroizing::new(Vec::with_capacity(len));
        wrapped.push(LAYOUT);
        wrapped.extend_from_slice(&self.context);
        wrapped.extend_from_slice(&made_at.to_be_bytes());
        wrapped.extend_from_slice(&u16::try_from(note.len()).ok()?.to_be_bytes());
        wrapped.extend_from_slice(&note);
        wrapped.extend_from_slice(value);
        Some(wrapped)
    }

    fn unwrap(&self, wrapped: &[u8]) -> Option<(Box<[u8]>, Vec<u8>)> {
        let (head, rest) = wrapped.split_first_chunk::<HEAD_LEN>()?;
        let (layout, context) = (head[0], &head[1..17]);
        if layout != LAYOUT || context != self.context {
            return None;
        }
        let made_at = u64::from_be_bytes(head[17..25].try_into().ok()?);
        let age = self.now()?.checked_sub(made_at)?;
        if age >= self.timeout.as_secs() {
            return None;
        }
        let note_len = usize::from(u16::from_be_bytes([head[25], head[26]]));
        let (note, value) = rest.split_at_checked(note_len)?;
        Some((note.into(), value.to_vec()))
    }
}

/// A server's cache, seen by one context.
#[derive(Debug)]
pub(crate) struct ContextCache {
    pub mode: CacheMode,
    pub rules: Rules,
}

impl ContextCache {
    fn cache(&self) -> Option<&SessionCache> {
        match &self.mode {
            CacheMode::Cache(cache) => Some(cache),
            _ => None,
        }
    }

    fn open(&self, id: SessionId, wrapped: &[u8]) -> Option<Vec<u8>> {
        let (note, value) = self.rules.unwrap(wrapped)?;
        scope::edit(|learned| learned.found = Some((id, note)));
        Some(value)
    }
}

impl StoresServerSessions for ContextCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let Some(cache) = self.cache() else {
            return false;
        };
        let Ok(id) = SessionId::try_from(key) else {
            return false;
        };
        let (Some(wrapped), Some(now)) = (self.rules.wrap(&value), self.rules.now()) else {
            return false;
        };
        scope::edit(|learned| learned.made = Some(id));
        let until = now.saturating_add(self.rules.timeout.as_secs());
        cache.put(id, wrapped, (now, until));
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let id = SessionId::try_from(key).ok()?;
        let wrapped = self.cache()?.get(&id)?;
        self.open(id, &wrapped)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.rules.use_count {
            UseCount::Any => self.get(key),
            UseCount::Once => {
                let id = SessionId::try_from(key).ok()?;
                let cache = self.cache()?;
                // Another context's session is not taken away from it.
                self.rules.unwrap(&cache.get(&id)?)?;
                let wrapped = cache.take(&id)?;
                self.open(id, &wrapped)
            }
        }
    }

    fn can_cache(&self) -> bool {
        !matches!(self.mode, CacheMode::Off)
    }
}

/// A server's tickets, seen by one context.
#[derive(Debug)]
pub(crate) struct ContextTickets {
    pub tickets: Option<Arc<Tickets>>,
    pub rules: Rules,
}

impl ProducesTickets for ContextTickets {
    fn enabled(&self) -> bool {
        self.tickets.is_some()
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.rules.timeout.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let now = self.rules.now()?;
        let wrapped = self.rules.wrap(plain)?;
        self.tickets.as_ref()?.seal(&wrapped, now)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let now = self.rules.now()?;
        let wrapped = self.tickets.as_ref()?.open(ticket, now)?;
        let (note, value) = self.rules.unwrap(&wrapped)?;
        scope::edit(|learned| learned.found = Some((id_of(ticket), note)));
        Some(value)
    }
}

/// The identifier of a session whose ticket is all that is kept of it.
fn id_of(ticket: &[u8]) -> SessionId {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ticket);
    let mut id = [0; SESSION_ID_LEN];
    id.copy_from_slice(digest.as_ref());
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Learned;
    use rustls::time_provider::DefaultTimeProvider;

    fn rules(context: u8) -> Rules {
        Rules {
            context: [context; 16],
            timeout: Duration::from_secs(300),
            time: Arc::new(DefaultTimeProvider),
            use_count: UseCount::Any,
        }
    }

    fn wrapped(note: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut learned = Learned {
            note: note.into(),
            ..Learned::default()
        };
        scope::with(&mut learned, || rules(1).wrap(b"value"))
    }

    #[test]
    fn note_stands_beside_the_value_or_there_is_no_session() {
        for len in [0, 1, NOTE_MAX] {
            let note = vec![7; len];
            let session = wrapped(&note).unwrap();
            let (found, value) = rules(1).unwrap(&session).unwrap();
            assert_eq!((&found[..], &value[..]), (&note[..], &b"value"[..]));
        }
        assert!(wrapped(&[7; NOTE_MAX + 1]).is_none());
    }

    #[test]
    fn bytes_that_do_not_fit_are_no_session() {
        let session = wrapped(b"note").unwrap();
        assert!(rules(2).unwrap(&session).is_none(), "another context");
        for end in 0..HEAD_LEN + 4 {
            assert!(rules(1).unwrap(&session[..end]).is_none(), "{end} bytes");
        }
        let mut layout = session.clone();
        layout[0] = 2;
        assert!(rules(1).unwrap(&layout).is_none(), "another layout");
        let mut future = session.clone();
        future[17] = 1;
        assert!(rules(1).unwrap(&future).is_none(), "made in the future");
    }
}
