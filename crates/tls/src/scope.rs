//! One connection, seen from the parts that all connections share.
//!
//! A verifier, a store of sessions and a key that signs belong to a context and serve every
//! connection of it, on every thread. What one of them learns of a connection, and what it must
//! know of it, stands in a place of the thread for as long as rustls works for that connection:
//!
//! ```text
//! Session::receive ─► put in ─► rustls ─► verifier: note(…), server_name() ─► take out
//! ```
//!
//! 1. A connection never leaves its thread, and nothing waits in between: so what stands there is
//!    of the one connection that is being worked for.
//! 2. Outside of that time there is nothing: notes are lost, questions have no answer.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::sign::CertifiedKey;

/// The length of an identifier of a session.
pub const SESSION_ID_LEN: usize = 32;

/// The identifier of a session.
pub type SessionId = [u8; SESSION_ID_LEN];

thread_local! {
    static CURRENT: RefCell<Option<Learned>> = const { RefCell::new(None) };
}

/// Facts that were learned of a connection beside those that rustls keeps, and facts that its
/// helpers must know.
#[derive(Default, Debug)]
pub(crate) struct Learned {
    pub sigalg: Option<SignatureScheme>,
    pub peer_sigalg: Option<SignatureScheme>,
    /// The session that was made here, if its identifier is known to the peer.
    pub made: Option<SessionId>,
    /// The session that was found, and the note that was kept with it.
    pub found: Option<(SessionId, Box<[u8]>)>,
    pub note: Box<[u8]>,
    /// The upstream's name as it was configured.
    pub server_name: Option<Arc<str>>,
    /// The key under which sessions of an upstream are kept.
    pub session_key: Option<Arc<[u8]>>,
    /// Certificates of this connection alone, in place of the context's, until the handshake ends.
    pub certificates: Option<Arc<[Arc<CertifiedKey>]>>,
}

impl Learned {
    /// The note that belongs to the session: that which came with it, if it was resumed.
    pub(crate) fn current_note(&self) -> &[u8] {
        match &self.found {
            Some((_, note)) if self.note.is_empty() => note,
            _ => &self.note,
        }
    }
}

/// Runs `work` for the connection whose facts are in `learned`.
pub(crate) fn with<R>(learned: &mut Learned, work: impl FnOnce() -> R) -> R {
    struct Back<'l>(&'l mut Learned, Option<Learned>);
    impl Drop for Back<'_> {
        fn drop(&mut self) {
            let outer = self.1.take();
            let inner = CURRENT.with(|current| current.replace(outer));
            *self.0 = inner.unwrap_or_default();
        }
    }
    let inner = std::mem::take(learned);
    let outer = CURRENT.with(|current| current.replace(Some(inner)));
    let _back = Back(learned, outer);
    work()
}

pub(crate) fn edit(change: impl FnOnce(&mut Learned)) {
    ask(|learned| {
        change(learned);
        Some(())
    });
}

pub(crate) fn ask<R>(question: impl FnOnce(&mut Learned) -> Option<R>) -> Option<R> {
    CURRENT.with(|current| question(current.borrow_mut().as_mut()?))
}

/// Keeps bytes with the connection, and with its session: [`crate::Facts::note`] has them, also
/// when the session is resumed later and nothing is verified. A verifier writes its verdict here.
pub fn note(bytes: &[u8]) {
    edit(|learned| learned.note = bytes.into());
}

/// The upstream's name as it was configured, for a verifier: the name that rustls knows may be
/// another one, as it takes no names that are not of DNS.
pub fn server_name() -> Option<Arc<str>> {
    ask(|learned| learned.server_name.clone())
}
