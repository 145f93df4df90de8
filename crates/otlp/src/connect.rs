//! The connection to a collector: names, sockets and handshakes.
//!
//! The protocol that is spoken on it is that of who asked for it.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::BytesMut;
use millpond_system::log::error::os_error;
use millpond_system::resolve::policy::ResolverPolicy;
use millpond_system::socket::Socket;
use millpond_system::tls_socket::TlsSocket;
use millpond_system::transport::Transport;
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::{ClientContext, Target};

use crate::endpoint::{Endpoint, Protocol};

/// Bytes asked of the kernel at once.
const READ: usize = 16 * 1024;

/// The encryption of connections to a collector.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The context of connections, which takes any certificate.
    pub context: ClientContext,
    /// Judge of the collector's certificate, once a handshake is over: its words are for people.
    pub verifier: Arc<OriginVerifier>,
}

/// The way to a collector.
#[derive(Clone, Debug)]
pub struct Way {
    /// The place.
    pub endpoint: Endpoint,
    /// The encryption, where there is one.
    pub encryption: Option<Encryption>,
    /// Name servers; without them the system is asked.
    pub names: ResolverPolicy,
}

/// The reason for which nothing came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// A connection that was kept is gone, and nothing was said on it.
    Stale,
    /// Anything else, in words.
    Because(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Failed::Because(why)
    }
}

impl Way {
    pub(crate) async fn connect(&self) -> Result<Transport, String> {
        let Endpoint { host, port, .. } = &self.endpoint;
        let asked = self.names.addresses(host, *port).await;
        let found = asked.map_err(|why| format!("host \"{host}\": {}", why.why()))?;
        let mut outcome = Err(format!("host \"{host}\" has no address"));
        for address in found {
            let stream = tokio::net::TcpStream::connect(address).await;
            let socket = stream
                .and_then(tokio::net::TcpStream::into_std)
                .and_then(|stream| Socket::new(OwnedFd::from(stream)));
            outcome =
                socket.map_err(|why| format!("connect() to {address} failed ({})", os_error(&why)));
            if outcome.is_ok() {
                break;
            }
        }
        match &self.encryption {
            None => outcome.map(Transport::Plain),
            Some(encryption) => self.encrypt(outcome?, encryption).await,
        }
    }

    async fn encrypt(&self, socket: Socket, encryption: &Encryption) -> Result<Transport, String> {
        let host = self.endpoint.host.as_str();
        let protocol: &[u8] = match self.endpoint.protocol {
            Protocol::Grpc => millpond_wire::http2::ALPN,
            Protocol::Http(_) => b"http/1.1",
        };
        let target = Target {
            name: Arc::from(host),
            alpn: vec![protocol.to_vec()],
            ..Target::default()
        };
        let failed = |why: String| format!("SSL_do_handshake() failed {why}");
        let mut told = BytesMut::new();
        let begun = encryption.context.connect(target, &mut told);
        let session = begun.map_err(|why| failed(why.to_string()))?;
        let tls = TlsSocket::new(socket);
        tls.begin(session, BytesMut::new(), told);
        let done = poll_fn(|cx| tls.poll_handshake(cx)).await;
        done.map_err(|why| failed(why.to_string()))?;
        let judged =
            tls.with_facts(|facts| encryption.verifier.check(facts.peer_certificates, host));
        judged.unwrap_or(Ok(())).map_err(|why| why.to_string())?;
        Ok(Transport::Tls(Box::new(tls)))
    }
}

/// Reads more; nothing at the peer's end.
pub(crate) fn poll_receive(
    transport: &Transport,
    cx: &mut std::task::Context<'_>,
    buf: &mut BytesMut,
) -> std::task::Poll<io::Result<usize>> {
    buf.reserve(READ);
    transport.poll_recv(cx, buf)
}
