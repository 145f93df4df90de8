//! Packets of QUIC as they are before they are sealed and after they were opened, for those who
//! write down what a connection says (`quic_qlog`).
//!
//! ```text
//! Starter::initial_keys ─begin─► Watcher ◄──── keys of first packets
//!                          slot     ▲
//! Starter::start_session ◄─take─────┴───────── keys of the session
//! ```
//!
//! 1. Where nobody watches, keys are as they came from rustls.
//! 2. A session has the watcher of the keys that were made last: an endpoint makes first keys and
//!    starts their session in one step, in one thread.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use quinn_proto::ConnectionId;
use quinn_proto::crypto::{CryptoError, KeyPair, Keys, PacketKey};

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// With keys that everybody can make.
    Initial,
    /// With keys of the handshake.
    Handshake,
    /// Early data (0-RTT).
    Early,
    /// All others (1-RTT).
    Data,
}

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From us.
    Sent,
    /// To us.
    Received,
}

/// A packet in clear.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its way.
    pub way: Way,
    /// Its kind.
    pub kind: PacketKind,
    /// Its number.
    pub number: u64,
    /// Its frames.
    pub frames: &'a [u8],
    /// Bytes of it, sealed, with its header.
    pub len: usize,
}

/// Somebody who looks at the packets of a connection.
pub trait Watcher: Send + Sync {
    /// Looks at a packet.
    fn see(&self, packet: &Seen<'_>);
}

/// Makes watchers.
pub trait Watchers: Send + Sync {
    /// The watcher of a connection that may begin, by the id that its client has chosen for us.
    fn begin(&self, id: &ConnectionId) -> Arc<dyn Watcher>;
}

/// The watchers of an address, and the one that was made last. INVARIANT 2.
pub struct Watch {
    watchers: Arc<dyn Watchers>,
    last: Mutex<Option<Arc<dyn Watcher>>>,
}

impl Watch {
    /// A watch over connections that have not begun.
    pub fn new(watchers: Arc<dyn Watchers>) -> Self {
        Watch {
            watchers,
            last: Mutex::default(),
        }
    }

    /// First keys, watched.
    pub(crate) fn begin(&self, id: &ConnectionId, keys: Keys) -> Keys {
        let watcher = self.watchers.begin(id);
        let tapped = watched(keys, (&watcher, PacketKind::Initial));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
        tapped
    }

    pub(crate) fn take(&self) -> Option<Arc<dyn Watcher>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.take()
    }
}

/// A key that shows its watcher what it seals and opens.
struct Tap {
    key: Box<dyn PacketKey>,
    watcher: Arc<dyn Watcher>,
    kind: PacketKind,
}

impl PacketKey for Tap {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len().saturating_sub(self.key.tag_len());
        self.watcher.see(&Seen {
            way: Way::Sent,
            kind: self.kind,
            number: packet,
            frames: buf.get(header_len..end).unwrap_or_default(),
            len: buf.len(),
        });
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let len = header.len() + payload.len();
        self.key.decrypt(packet, header, payload)?;
        self.watcher.see(&Seen {
            way: Way::Received,
            kind: self.kind,
            number: packet,
            frames: payload,
            len,
        });
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// A key that is watched.
pub(crate) fn tapped(
    key: Box<dyn PacketKey>,
    (watcher, kind): (&Arc<dyn Watcher>, PacketKind),
) -> Box<dyn PacketKey> {
    let watcher = Arc::clone(watcher);
    Box::new(Tap { key, watcher, kind })
}

/// Keys of both ways, watched.
pub(crate) fn tapped_pair(
    pair: KeyPair<Box<dyn PacketKey>>,
    watch: (&Arc<dyn Watcher>, PacketKind),
) -> KeyPair<Box<dyn PacketKey>> {
    KeyPair {
        local: tapped(pair.local, watch),
        remote: tapped(pair.remote, watch),
    }
}

/// All keys of a kind of packets, watched.
pub(crate) fn watched(keys: Keys, watch: (&Arc<dyn Watcher>, PacketKind)) -> Keys {
    Keys {
        header: keys.header,
        packet: tapped_pair(keys.packet, watch),
    }
}
