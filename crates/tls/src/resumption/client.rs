//! `proxy_ssl_session_reuse`: sessions with upstreams, to be resumed on the next connection.
//!
//! They are kept under a key that the caller gives to each connection, as rustls only knows the
//! name that was asked for: peers with one name may be different machines, and contexts different
//! settings.
//!
//! 1. No more keys are kept than [`KEYS_MAX`], nor more tickets of one than [`TICKETS_EACH`].
//! 2. A ticket of TLS 1.3 is used once.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use crate::scope;

/// Peers whose sessions are kept; arbitrarily, more than a configuration names.
const KEYS_MAX: usize = 4096;

/// Tickets that are kept of a peer: a server sends two, and connections begin at the same time.
const TICKETS_EACH: usize = 8;

/// Sessions with upstreams.
#[derive(Default)]
pub struct ClientSessions {
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    sessions: HashMap<Arc<[u8]>, Peer>,
    /// In the order in which they came.
    sequence: VecDeque<Arc<[u8]>>,
}

#[derive(Default)]
struct Peer {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl ClientSessions {
    /// Peers of whom something is kept.
    pub fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Keeps nothing of as many peers as there may be.
    #[cfg(test)]
    pub(crate) fn fill_for_test(&self) {
        for number in 0..KEYS_MAX {
            let key: Arc<[u8]> = number.to_be_bytes().into();
            let mut peers = self.lock();
            peers.sequence.push_back(Arc::clone(&key));
            peers.sessions.insert(key, Peer::default());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<R>(&self, question: impl FnOnce(&mut Peer) -> Option<R>) -> Option<R> {
        let key = scope::ask(|learned| learned.session_key.clone())?;
        question(self.lock().sessions.get_mut(&key)?)
    }

    fn edit(&self, change: impl FnOnce(&mut Peer)) {
        let Some(key) = scope::ask(|learned| learned.session_key.clone()) else {
            return;
        };
        let mut peers = self.lock();
        if !peers.sessions.contains_key(&key) {
            if peers.sessions.len() >= KEYS_MAX
                && let Some(oldest) = peers.sequence.pop_front()
            {
                peers.sessions.remove(&oldest);
            }
            peers.sequence.push_back(Arc::clone(&key));
        }
        change(peers.sessions.entry(key).or_default());
    }
}

impl fmt::Debug for ClientSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSessions")
    }
}

impl ClientSessionStore for ClientSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.edit(|peer| peer.group = Some(group));
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.ask(|peer| peer.group)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.edit(|peer| peer.session = Some(session));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.ask(|peer| peer.session.clone())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.ask(|peer| peer.session.take());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.edit(|peer| {
            if peer.tickets.len() == TICKETS_EACH {
                peer.tickets.pop_front();
            }
            peer.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.ask(|peer| peer.tickets.pop_back())
    }
}
