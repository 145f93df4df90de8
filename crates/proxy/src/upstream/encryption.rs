//! The handshake with an origin.
//!
//! The certificate is judged in the handshake; the name that it must have is that of
//! `proxy_ssl_name`, or the host of the address.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_system::socket::Socket;
use millpond_system::timer::Timer;
use millpond_system::tls_socket::{HandshakeError, TlsSocket};
use millpond_system::transport::Transport;
use millpond_tls::certificate::origin::OriginRefused;
use millpond_tls::{Facts, Fault, Target};

use super::peer::Peer;
use crate::request::Request;
use crate::tls::certificate_cache::Pair;
use crate::tls::named::Identities;
use crate::tls::origins;
use crate::tls::origins::Origin;
use crate::tls::settings::OriginSslPolicy;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::settings::UpstreamSettings;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::level::Closing;

/// Makes the context of a location that passes requests on.
pub fn close(level: &mut Closing<'_>) {
    let Some(target) = level.draft.get().and_then(PassTarget::of) else {
        return;
    };
    let target = Arc::clone(target);
    let policy = &level.settings.pass(target.protocol).ssl;
    if target.may_encrypt() {
        let origin = origins::made(policy, target.protocol, level.builder);
        origin
            .into_iter()
            .for_each(|origin| target.set_origin(origin));
    }
    let settings = level.settings.of::<UpstreamSettings>();
    if target.protocol == Protocol::Http && settings.follow.follow.on().is_some() {
        // Who it is that asks is told to nobody whom the configuration does not name.
        let policy = OriginSslPolicy {
            tells_name: true,
            name: None,
            certificate: None,
            key: None,
            password_file: None,
            commands: Vec::new(),
            ..policy.clone()
        };
        let origin = origins::made(&policy, target.protocol, level.builder);
        origin
            .into_iter()
            .for_each(|origin| target.set_foreign(origin));
    }
}

/// Encryption that a connection to a peer is to have; connections with an equal one are alike.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The context of the location.
    pub origin: Arc<Origin>,
    /// The name that the peer is told, and must have.
    pub name: Arc<str>,
    /// The protocol inside that the peer is offered (ALPN); without one nothing is said of it.
    pub protocol: Option<&'static [u8]>,
    /// The protocols that a session offers in its place, most preferred first.
    pub of_session: Vec<Bytes>,
    /// The names of our certificate and its key, where the location's lines have variables.
    pub certificate: Option<Pair>,
}

impl PartialEq for Encryption {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origin, &other.origin)
            && (&self.name, self.protocol) == (&other.name, other.protocol)
            && self.of_session == other.of_session
            && self.certificate == other.certificate
    }
}

impl Encryption {
    /// The encryption of a connection for a request, to a host by the lines of its location.
    ///
    /// # Errors
    /// The names of our certificate have no values.
    pub fn of(
        req: &mut Request,
        (origin, protocol): (&Arc<Origin>, Protocol),
        host: &str,
    ) -> Result<Encryption, Failure> {
        let location = Arc::clone(&req.location);
        let name = match &location.settings.pass(protocol).ssl.name {
            Some(name) => String::from_utf8_lossy(&req.eval(name)).into_owned(),
            None => host.to_string(),
        };
        let certificate = match &origin.named {
            Some(named) => {
                let names = named.names(|template| req.eval(template));
                // nginx: an empty name is none.
                let pair = names.map_err(Failure::Internal)?.into_iter().next();
                pair.filter(|[certificate, _]| !certificate.is_empty())
            }
            None => None,
        };
        Ok(Encryption {
            origin: Arc::clone(origin),
            name: Arc::from(bare_name(&name)),
            protocol: None,
            of_session: Vec::new(),
            certificate,
        })
    }

    /// The encryption of a connection to a host that the configuration does not name.
    pub(crate) fn to(origin: &Arc<Origin>, host: &str) -> Encryption {
        Encryption {
            origin: Arc::clone(origin),
            name: Arc::from(bare_name(host)),
            protocol: None,
            of_session: Vec::new(),
            certificate: None,
        }
    }

    /// The certificates of the names; none if the context has them, or there are none.
    async fn identities(&self) -> Result<Option<Identities>, String> {
        match (&self.origin.named, &self.certificate) {
            (Some(named), Some(pair)) => named.load(vec![pair.clone()]).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The key of sessions with a peer: whoever shows another certificate has others.
    fn session_key(&self, peer: &Peer) -> Arc<[u8]> {
        let mut key = [peer.name.as_bytes(), b"/", self.name.as_bytes()].concat();
        for name in self.certificate.iter().flatten() {
            key.push(0);
            key.extend_from_slice(name.as_bytes());
        }
        key.into()
    }
}

/// The end of a handshake with a peer that did not lead to an encrypted connection.
#[derive(Debug, thiserror::Error)]
pub enum EncryptError {
    /// The time is over.
    #[error("upstream timed out (110: Connection timed out)")]
    TimedOut,
    /// The handshake failed.
    #[error("SSL_do_handshake() failed {0}")]
    Tls(#[source] millpond_tls::Error),
    /// The peer's certificate was refused.
    #[error(transparent)]
    Refused(#[from] OriginRefused),
    /// Our certificate cannot be shown.
    #[error("{0}")]
    Certificate(String),
    /// The connection failed, or was closed.
    #[error("{0}")]
    Connection(HandshakeError),
}

impl EncryptError {
    /// The level at which it is logged.
    pub fn level(&self) -> Level {
        match self {
            EncryptError::Tls(error) if error.fault() == Fault::Ours => Level::Crit,
            _ => Level::Error,
        }
    }
}

/// The name of an authority without its port.
///
/// nginx: the port of `$proxy_host` or `$http_host` is no part of the name.
pub(crate) fn bare_name(text: &str) -> &str {
    let after = match text.strip_prefix('[') {
        Some(rest) => rest.find(']').map_or(0, |end| end + 2),
        None => 0,
    };
    let rest = text.get(after..).unwrap_or_default();
    match rest.find(':') {
        Some(colon) => text.get(..after + colon).unwrap_or_default(),
        None => text,
    }
}

/// Encrypts a connection that was made to a peer, within a time.
pub async fn encrypt(
    socket: Socket,
    peer: &Peer,
    by: &Encryption,
    (timer, timeout): (&Timer, Duration),
) -> Result<Transport, EncryptError> {
    let started = clock::instant();
    let identities = match timer.guard_for(timeout, by.identities()).await {
        Err(_) => return Err(EncryptError::TimedOut),
        Ok(identities) => identities.map_err(EncryptError::Certificate)?,
    };
    let mut told = BytesMut::new();
    let target = Target {
        name: Arc::clone(&by.name),
        alpn: by
            .protocol
            .into_iter()
            .chain(by.of_session.iter().map(|name| &**name))
            .map(<[u8]>::to_vec)
            .collect(),
        session_key: Some(by.session_key(peer)),
        identities,
    };
    let session = by.origin.context.connect(target, &mut told);
    let tls = TlsSocket::new(socket);
    tls.begin(session.map_err(EncryptError::Tls)?, BytesMut::new(), told);
    let done = std::future::poll_fn(|cx| tls.poll_handshake(cx));
    let left = timeout.saturating_sub(clock::instant().saturating_duration_since(started));
    match timer.guard_for(left, done).await {
        Err(_) => return Err(EncryptError::TimedOut),
        Ok(Err(HandshakeError::Tls(error))) => return Err(EncryptError::Tls(error)),
        Ok(Err(error)) => return Err(EncryptError::Connection(error)),
        Ok(Ok(())) => {}
    }
    // nginx: the handshake is made first, whatever the certificate.
    let judge = |facts: Facts<'_>| {
        let chain = facts.peer_certificates;
        by.origin.verifier.check(chain, &by.name)
    };
    tls.with_facts(judge).unwrap_or(Ok(()))?;
    Ok(Transport::Tls(Box::new(tls)))
}

#[cfg(test)]
mod tests {
    use super::bare_name;

    #[test]
    fn names_lose_their_ports() {
        for (text, name) in [
            ("example.com", "example.com"),
            ("example.com:8443", "example.com"),
            ("[::1]:8443", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(bare_name(text), name, "{text}");
        }
    }
}
