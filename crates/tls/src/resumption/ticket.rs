//! `ssl_session_tickets` and `ssl_session_ticket_key`: sessions that clients keep, sealed.
//!
//! | bytes | of a ticket, as OpenSSL lays it out |
//! |---|---|
//! | 16 | name of the key |
//! | 16 | initialization vector |
//! | 16 n | the session by AES-CBC, padded |
//! | 32 | HMAC-SHA256 of all that stands before it |
//!
//! Keys come from files: name, then AES-128 key and HMAC key of 16 bytes each (48 in all), or HMAC
//! key and AES-256 key of 32 bytes each (80). The first seals, all open. Without files keys are
//! random and last for a timeout of sessions, during which the one before opens what it has sealed.
//!
//! 1. What was not sealed by one of the keys does not open; the code is compared before anything is
//!    deciphered, in constant time.
//!
//! The age of a session is not looked at: it stands inside.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::cipher::{
    AES_128, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{hmac, rand};
use zeroize::Zeroizing;

const NAME_LEN: usize = 16;
const IV_LEN: usize = 16;
const CODE_LEN: usize = 32;

/// Random bytes of a key: those of the larger files.
const KEY_LEN: usize = 80;

/// A key that seals tickets.
pub struct TicketKey {
    name: [u8; NAME_LEN],
    code: hmac::Key,
    cipher: &'static Algorithm,
    secret: Zeroizing<Vec<u8>>,
}

/// A key of tickets that has a wrong size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 48 or 80 bytes")]
pub struct TicketKeyError;

impl TicketKey {
    /// Reads a key as files have it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TicketKeyError> {
        let (name, rest) = bytes
            .split_first_chunk::<NAME_LEN>()
            .ok_or(TicketKeyError)?;
        let (cipher, secret, code) = match rest.len() {
            32 => (&AES_128, &rest[..16], &rest[16..]),
            64 => (&AES_256, &rest[32..], &rest[..32]),
            _ => return Err(TicketKeyError),
        };
        Ok(Self {
            name: *name,
            code: hmac::Key::new(hmac::HMAC_SHA256, code),
            cipher,
            secret: Zeroizing::new(secret.to_vec()),
        })
    }

    fn random() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        rand::fill(bytes.as_mut()).ok()?;
        Self::from_bytes(bytes.as_ref()).ok()
    }

    fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        let unbound = UnboundCipherKey::new(self.cipher, &self.secret).ok()?;
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(unbound).ok()?;
        let mut sealed = session.to_vec();
        let context = key.encrypt(&mut sealed).ok()?;
        let DecryptionContext::Iv128(iv) = context else {
            return None;
        };
        let mut ticket = Vec::with_capacity(NAME_LEN + IV_LEN + sealed.len() + CODE_LEN);
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(iv.as_ref());
        ticket.extend_from_slice(&sealed);
        let code = hmac::sign(&self.code, &ticket);
        ticket.extend_from_slice(code.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (sealed, code) = ticket.split_at_checked(ticket.len().checked_sub(CODE_LEN)?)?;
        hmac::verify(&self.code, sealed, code).ok()?;
        let (_, rest) = sealed.split_at_checked(NAME_LEN)?;
        let (iv, sealed) = rest.split_first_chunk::<IV_LEN>()?;
        let unbound = UnboundCipherKey::new(self.cipher, &self.secret).ok()?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(unbound).ok()?;
        let context = DecryptionContext::Iv128(FixedLength::from(*iv));
        let mut session = sealed.to_vec();
        let opened = key.decrypt(&mut session, context).ok()?;
        Some(opened.to_vec())
    }
}

/// The keys that seal and open the tickets of some servers.
pub struct Tickets {
    keys: Keys,
}

enum Keys {
    /// The first seals.
    Given(Vec<TicketKey>),
    Random {
        lifetime: Duration,
        current: Box<RwLock<Rotation>>,
    },
}

/// Random keys, and when they change.
#[derive(Default)]
struct Rotation {
    key: Option<TicketKey>,
    before: Option<TicketKey>,
    until: u64,
}

impl Tickets {
    /// Tickets of given keys, of which the first seals; there must be one.
    pub fn with_keys(keys: Vec<TicketKey>) -> Self {
        Self {
            keys: Keys::Given(keys),
        }
    }

    /// Tickets of random keys, each of which seals for `lifetime`.
    pub fn rotating(lifetime: Duration) -> Self {
        Self {
            keys: Keys::Random {
                lifetime,
                current: Box::default(),
            },
        }
    }

    /// Seals a session at a time, in seconds.
    pub(crate) fn seal(&self, session: &[u8], now: u64) -> Option<Vec<u8>> {
        match &self.keys {
            Keys::Given(keys) => keys.first()?.seal(session),
            Keys::Random { lifetime, current } => {
                rotate(current, now, lifetime.as_secs());
                let current = current.read().unwrap_or_else(PoisonError::into_inner);
                current.key.as_ref()?.seal(session)
            }
        }
    }

    /// Opens a ticket at a time, in seconds.
    pub(crate) fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let name = ticket.first_chunk::<NAME_LEN>()?;
        let has_name = |key: &&TicketKey| key.name == *name;
        match &self.keys {
            Keys::Given(keys) => keys.iter().find(has_name)?.open(ticket),
            Keys::Random { lifetime, current } => {
                rotate(current, now, lifetime.as_secs());
                let current = current.read().unwrap_or_else(PoisonError::into_inner);
                let mut keys = current.key.iter().chain(&current.before);
                keys.find(has_name)?.open(ticket)
            }
        }
    }
}

/// Makes a new key if the current one has had its time.
fn rotate(current: &RwLock<Rotation>, now: u64, lifetime: u64) {
    let is_current = |rotation: &Rotation| rotation.key.is_some() && now < rotation.until;
    if is_current(&current.read().unwrap_or_else(PoisonError::into_inner)) {
        return;
    }
    let mut rotation = current.write().unwrap_or_else(PoisonError::into_inner);
    if is_current(&rotation) {
        return;
    }
    let Some(key) = TicketKey::random() else {
        return;
    };
    let is_recent = now < rotation.until.saturating_add(lifetime);
    let before = rotation.key.take().filter(|_| is_recent);
    *rotation = Rotation {
        key: Some(key),
        before,
        until: now.saturating_add(lifetime),
    };
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tickets")
    }
}

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey")
    }
}
