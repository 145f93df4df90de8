//! Records of one direction: sealed and opened where they stand.
//!
//! | version and suite | before the plaintext | behind it |
//! |---|---|---|
//! | TLS 1.3 | head (5) | kind of the content (1), tag (16) |
//! | TLS 1.2, GCM | head (5), nonce (8) | tag (16) |
//! | TLS 1.2, ChaCha20 | head (5) | tag (16) |
//!
//! A head is the kind (in TLS 1.3 always that of data), the version 3.3, and the length of what
//! follows, big-endian (RFC 8446 §5.2, RFC 5246 §6.2.3.3, RFC 5288 §3, RFC 7905 §2).
//!
//! 1. No nonce is used twice with a key: it comes from the sequence number, which only grows.
//! 2. A record that does not open leaves nothing that could be taken for its plaintext.

use std::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::{ConnectionTrafficSecrets, InvalidMessage, ProtocolVersion};

use crate::FRAGMENT_MAX;

const HEAD_LEN: usize = 5;
const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;
/// The part of a nonce that records of TLS 1.2 carry for GCM.
const EXPLICIT_LEN: usize = 8;
/// The most that may follow a head (RFC 5246 §6.2.3): more than any suite here makes of a record.
const SEALED_MAX: usize = FRAGMENT_MAX + 2048;

/// The most that a record adds to its plaintext.
pub(crate) const OVERHEAD: usize = HEAD_LEN + EXPLICIT_LEN + 1 + TAG_LEN;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ChangeCipherSpec = 20,
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::ChangeCipherSpec,
            Self::Alert,
            Self::Handshake,
            Self::Data,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// The places of nonce and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Tls13,
    Tls12Gcm,
    Tls12ChaCha,
}

/// One direction of a connection.
pub(crate) struct Direction {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
    layout: Layout,
}

/// The reason for which bytes are no record of the peer's.
#[derive(Debug, PartialEq)]
pub(crate) enum Flaw {
    /// The head is none.
    Head(InvalidMessage),
    /// A record that does not open.
    Sealed,
    /// More plaintext than a record may have.
    TooLong,
    /// No kind, or none that may stand there.
    Kind,
}

/// Reads a head: the length of the record with it, if the head is there.
pub(crate) fn record_len(bytes: &[u8]) -> Result<Option<usize>, Flaw> {
    let Some(&[kind, major, _, high, low]) = bytes.first_chunk::<HEAD_LEN>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let flaw = match Kind::of(kind) {
        None => Some(InvalidMessage::InvalidContentType),
        _ if major != 3 => Some(InvalidMessage::UnknownProtocolVersion),
        _ if len > SEALED_MAX => Some(InvalidMessage::MessageTooLarge),
        Some(kind) if len == 0 && kind != Kind::Data => Some(InvalidMessage::InvalidEmptyPayload),
        Some(_) => None,
    };
    match flaw {
        Some(flaw) => Err(Flaw::Head(flaw)),
        None => Ok(Some(HEAD_LEN + len)),
    }
}

impl Direction {
    /// A direction whose next record has this number; none if the library does not take the key.
    pub(crate) fn new(
        version: ProtocolVersion,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Option<Self> {
        let is_tls13 = version == ProtocolVersion::TLSv1_3;
        let gcm = if is_tls13 {
            Layout::Tls13
        } else {
            Layout::Tls12Gcm
        };
        let chacha = if is_tls13 {
            Layout::Tls13
        } else {
            Layout::Tls12ChaCha
        };
        let (algorithm, key, iv, layout): (&'static Algorithm, _, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv, gcm),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv, gcm),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&CHACHA20_POLY1305, key, iv, chacha)
            }
            _ => return None,
        };
        Some(Self {
            key: LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).ok()?),
            iv: iv.as_ref().try_into().ok()?,
            sequence,
            layout,
        })
    }

    /// The number of the next record.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Bytes before the plaintext of a record.
    pub(crate) fn before(&self) -> usize {
        match self.layout {
            Layout::Tls12Gcm => HEAD_LEN + EXPLICIT_LEN,
            Layout::Tls13 | Layout::Tls12ChaCha => HEAD_LEN,
        }
    }

    /// Bytes behind the plaintext of a record.
    pub(crate) fn behind(&self) -> usize {
        match self.layout {
            Layout::Tls13 => 1 + TAG_LEN,
            Layout::Tls12Gcm | Layout::Tls12ChaCha => TAG_LEN,
        }
    }

    /// Makes a record of the plaintext that stands in `record`, with [`Self::before`] and
    /// [`Self::behind`] bytes around it. `None` if it does not fit, or the library refuses.
    pub(crate) fn seal(&mut self, kind: Kind, record: &mut [u8]) -> Option<()> {
        let (before, behind) = (self.before(), self.behind());
        let len = record.len().checked_sub(before + behind)?;
        let sealed_len = u16::try_from(record.len() - HEAD_LEN).ok()?;
        let outer = match self.layout {
            Layout::Tls13 => Kind::Data,
            Layout::Tls12Gcm | Layout::Tls12ChaCha => kind,
        };
        let [high, low] = sealed_len.to_be_bytes();
        let head = [outer as u8, 3, 3, high, low];
        let nonce = self.nonce();
        let (front, rest) = record.split_at_mut_checked(before)?;
        front.get_mut(..HEAD_LEN)?.copy_from_slice(&head);
        let (text, tag) = rest.split_at_mut_checked(rest.len() - TAG_LEN)?;
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let made = match self.layout {
            Layout::Tls13 => {
                *text.last_mut()? = kind as u8;
                self.key
                    .seal_in_place_separate_tag(nonce_of, Aad::from(head), text)
            }
            Layout::Tls12Gcm | Layout::Tls12ChaCha => {
                let explicit = front.get_mut(HEAD_LEN..)?;
                explicit.copy_from_slice(&nonce[NONCE_LEN - explicit.len()..]);
                let aad = Aad::from(self.aad12(kind as u8, len)?);
                self.key.seal_in_place_separate_tag(nonce_of, aad, text)
            }
        };
        tag.copy_from_slice(made.ok()?.as_ref());
        // INVARIANT 1.
        self.sequence = self.sequence.checked_add(1)?;
        Some(())
    }

    /// Opens a whole record: its kind, and where in it the plaintext stands.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(Kind, Range<usize>), Flaw> {
        let Some((head, sealed)) = record.split_first_chunk_mut::<HEAD_LEN>() else {
            return Err(Flaw::Sealed);
        };
        let outer = Kind::of(head[0]).ok_or(Flaw::Kind)?;
        let (kind, range) = match self.layout {
            Layout::Tls13 => {
                if outer != Kind::Data {
                    return Err(Flaw::Kind);
                }
                let nonce = Nonce::assume_unique_for_key(self.nonce());
                let opened = self.key.open_in_place(nonce, Aad::from(*head), sealed);
                let text = opened.map_err(|_| Flaw::Sealed)?;
                // RFC 8446 §5.4: zeros behind the kind are padding.
                let at = text.iter().rposition(|byte| *byte != 0);
                if text.len() > FRAGMENT_MAX + 1 {
                    return Err(Flaw::TooLong);
                }
                let at = at.ok_or(Flaw::Kind)?;
                let kind = text.get(at).and_then(|byte| Kind::of(*byte));
                (kind.ok_or(Flaw::Kind)?, HEAD_LEN..HEAD_LEN + at)
            }
            Layout::Tls12Gcm | Layout::Tls12ChaCha => {
                if outer == Kind::ChangeCipherSpec {
                    return Err(Flaw::Kind);
                }
                let before = self.before();
                (outer, before..before + self.open12(outer, sealed)?)
            }
        };
        if range.len() > FRAGMENT_MAX {
            return Err(Flaw::TooLong);
        }
        self.sequence = self.sequence.checked_add(1).ok_or(Flaw::Sealed)?;
        Ok((kind, range))
    }

    /// Opens what follows the head of a record of TLS 1.2; returns the length of the plaintext.
    fn open12(&self, kind: Kind, sealed: &mut [u8]) -> Result<usize, Flaw> {
        let mut nonce = self.nonce();
        let explicit_len = self.before() - HEAD_LEN;
        let Some((explicit, sealed)) = sealed.split_at_mut_checked(explicit_len) else {
            return Err(Flaw::Sealed);
        };
        nonce[NONCE_LEN - explicit_len..].copy_from_slice(explicit);
        let len = sealed.len().checked_sub(TAG_LEN).ok_or(Flaw::Sealed)?;
        let aad = self.aad12(kind as u8, len).ok_or(Flaw::TooLong)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.key.open_in_place(nonce, Aad::from(aad), sealed);
        opened.map(|text| text.len()).map_err(|_| Flaw::Sealed)
    }

    /// RFC 8446 §5.3: the initial value and the number of the record.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        let number = self.sequence.to_be_bytes();
        for (byte, of_number) in nonce[NONCE_LEN - number.len()..].iter_mut().zip(number) {
            *byte ^= of_number;
        }
        nonce
    }

    /// RFC 5246 §6.2.3.3: what is sealed along: number, kind, version, length.
    fn aad12(&self, kind: u8, len: usize) -> Option<[u8; 13]> {
        let mut aad = [0; 13];
        aad[..8].copy_from_slice(&self.sequence.to_be_bytes());
        aad[8..11].copy_from_slice(&[kind, 3, 3]);
        aad[11..].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        Some(aad)
    }
}
