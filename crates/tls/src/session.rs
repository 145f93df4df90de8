//! One connection's TLS: bytes of a socket to plaintext and back.
//!
//! ```text
//! socket ─► receive(records, plain, out) ─► plaintext, events; answers of the handshake in `out`
//! socket ◄─ out ◄─ send(pieces, out) ◄─ plaintext
//! ```
//!
//! 1. A session keeps nothing between calls but the beginning of a record or message that has not
//!    come whole. All other buffers are the caller's. An idle one takes about 4 KiB, keys included
//!    (`cargo run -p millpond-tls --example idle_bytes`).
//! 2. What stands in `out` goes to the peer, in order and whole; also after an error, when it is
//!    the alert.
//! 3. After an error each call that could go on returns it again.

use std::io::{self, IoSlice, IoSliceMut};

use bytes::BytesMut;
use rustls::pki_types::CertificateDer;

use crate::error::Error;
use crate::hello::ClientHello;
use crate::scope::SessionId;

/// One connection's TLS, for clients and upstreams alike.
pub trait Session {
    /// Takes bytes that came from the socket, and appends the plaintext in them to `plain` and
    /// what the peer must be told to `out`. `records` is decrypted in its place.
    ///
    /// A handshake may complete with plaintext in the same call. As long as
    /// [`Session::is_handshaking`] holds, plaintext is early data, which somebody may have
    /// recorded and sent again.
    fn receive(
        &mut self,
        records: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Received, Error>;

    /// Appends the records of all `pieces`, in sequence, to `out`. Returns how many bytes were
    /// taken: all of them, or none while [`Session::may_send`] does not hold.
    fn send(&mut self, pieces: &[IoSlice<'_>], out: &mut BytesMut) -> Result<usize, Error>;

    /// True if [`Session::send_filled`] may be called.
    fn may_fill(&self) -> bool;

    /// Seals up to `len` bytes that `fill` puts in their places, which are in `room`, and says how
    /// many they and their records were. `fill` fills one place after the other, and the last one
    /// perhaps in part. What stands in `out` afterwards goes to the peer before the records.
    fn send_filled(
        &mut self,
        len: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
        room: &mut [u8],
        out: &mut BytesMut,
    ) -> io::Result<Filled>;

    /// Says the end of our plaintext: appends close_notify to `out`, once, and if a handshake has
    /// come far enough.
    fn close(&mut self, out: &mut BytesMut);

    /// True until both sides have finished the handshake.
    fn is_handshaking(&self) -> bool;

    /// True if plaintext may go out: after the handshake or as the answer to early data, and before
    /// [`Session::close`].
    fn may_send(&self) -> bool;

    /// The end of the peer's bytes: when the socket has come to its end, this tells a close from
    /// bytes that were cut off.
    fn ending(&self) -> Ending;

    /// Everything that was agreed.
    fn facts(&self) -> Facts<'_>;
}

/// The events of one [`Session::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The handshake has been completed by this call.
    pub is_handshake_done: bool,
    /// The peer has said the end of its plaintext by this call.
    pub is_closed: bool,
    /// Bytes of plaintext that were appended.
    pub plain_len: usize,
}

/// The outcome of a [`Session::send_filled`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes of plaintext.
    pub plain: usize,
    /// Bytes of their records, at the begin of the room.
    pub sealed: usize,
}

/// The end of the peer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer has said that no more comes.
    Closed,
    /// The peer has said nothing: if the socket is at its end, something may be missing.
    Truncated,
}

/// Everything that was agreed, by the names that OpenSSL has for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'s> {
    /// The version, as in `TLSv1.3`.
    pub protocol: Option<&'static str>,
    /// The cipher suite, as in `TLS_AES_256_GCM_SHA384` or `ECDHE-RSA-AES128-GCM-SHA256`.
    pub cipher: Option<&'static str>,
    /// The group of the key exchange, as in `X25519` or `prime256v1`.
    pub curve: Option<&'static str>,
    /// The protocol inside.
    pub alpn: Option<&'s [u8]>,
    /// The name that the client asked for, in lower case; for upstreams, the name that is sent.
    pub server_name: Option<&'s str>,
    /// The scheme of the server's signature.
    pub sigalg: Option<&'static str>,
    /// The scheme of the client's signature.
    pub client_sigalg: Option<&'static str>,
    /// The identifier of the session, if both sides know one. With TLS 1.3 there is none before a
    /// session has been resumed.
    pub session_id: Option<&'s SessionId>,
    /// True if a session was resumed.
    pub is_resumed: bool,
    /// True as long as what came is early data.
    pub is_early: bool,
    /// The peer's certificates, its own first; those of the first handshake if resumed.
    pub peer_certificates: &'s [CertificateDer<'static>],
    /// The verifier's note ([`crate::note`]) of this handshake, or of that which made the session.
    pub note: &'s [u8],
    /// The client's first message, if the context keeps it.
    pub hello: Option<&'s ClientHello>,
}
