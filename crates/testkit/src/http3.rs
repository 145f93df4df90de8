//! HTTP/3 as the crates `quinn` and `h3` speak it: requests as streams of a connection that all who
//! ask an address share, since its handshake is dear.
//!
//! ```text
//! Session ──clones──► Streams ─ask─► answers in the order of their requests
//!    │
//!    └── one thread moves the packets of all connections
//! ```
//!
//! 1. A request that was asked is with QUIC when `ask` returns; its body follows as the server's
//!    windows let it.
//! 2. Bytes of a body are given back to a window when the test reads them, so that a test that does
//!    not read holds the server up.
//! 3. A stream that is dropped before its end is given up.
//!
//! Does not keep interim answers, and sends no trailers.

use crate::deadline::Deadline;
use crate::http2::{MOVER, fields_of, head_of, pieces, wait};
use crate::message::Fields;
use crate::request::Request;
use crate::wire::End;
use anyhow::{Context as _, Result};
use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use h3_quinn::OpenStreams;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, TransportConfig};
use rustls::RootCertStore;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The name that servers are asked by.
const NAME: &str = "localhost";
/// Bytes of a body that nobody reads: HTTP/2's default, so that tests find the same.
const STREAM_WINDOW: u32 = 65_535;

/// The certificate of all servers of tests that speak HTTP/3, and its key.
#[expect(
    clippy::expect_used,
    reason = "a test cannot go on without a certificate"
)]
static IDENTITY: LazyLock<rcgen::CertifiedKey<rcgen::KeyPair>> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]);
    made.expect("a certificate")
});

/// Connections, by the address that they lead to.
static SHARED: LazyLock<Mutex<HashMap<SocketAddr, Session>>> = LazyLock::new(Mutex::default);

/// The files that a server with HTTP/3 needs: a certificate and its key.
pub(crate) fn files() -> [(&'static str, String); 2] {
    [
        ("h3.pem", IDENTITY.cert.pem()),
        ("h3.key", IDENTITY.signing_key.serialize_pem()),
    ]
}

/// Forgets the connection to a port of this machine, on which another server is to listen: nobody
/// says that the one before is gone.
pub(crate) fn forget(port: u16) {
    let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    all.remove(&([127, 0, 0, 1], port).into());
}

fn config() -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(IDENTITY.cert.der().clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut transport = TransportConfig::default();
    // INVARIANT 2.
    transport.stream_receive_window(STREAM_WINDOW.into());
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// A connection; its clones are the same one.
#[derive(Clone)]
pub(crate) struct Session {
    address: SocketAddr,
    send: SendRequest<OpenStreams, Bytes>,
    quic: quinn::Connection,
    _endpoint: Endpoint,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

type Receiving = RequestStream<h3_quinn::RecvStream, Bytes>;
type Sending = RequestStream<h3_quinn::SendStream<Bytes>, Bytes>;

impl Session {
    fn connect(address: SocketAddr, timeout: Duration) -> Result<Session> {
        let connected = wait(timeout, async {
            let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
            endpoint.set_default_client_config(config()?);
            let quic = endpoint.connect(address, NAME)?.await?;
            let made = h3::client::new(h3_quinn::Connection::new(quic.clone())).await;
            let (mut driver, send) = made?;
            MOVER.spawn(async move { driver.wait_idle().await });
            anyhow::Ok(Session {
                address,
                send,
                quic,
                _endpoint: endpoint,
            })
        })?;
        connected.with_context(|| address.to_string())
    }

    /// The connection that all share who ask for one to this address; a new one when that is over.
    pub(crate) fn shared(address: SocketAddr, timeout: Duration) -> Result<Session> {
        let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = all.get(&address)
            && session.quic.close_reason().is_none()
        {
            return Ok(session.clone());
        }
        let session = Session::connect(address, timeout)?;
        all.insert(address, session.clone());
        Ok(session)
    }

    /// The connection behind one that the server has told to leave.
    fn renewed(&self, timeout: Duration) -> Result<Session> {
        let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&self.address);
        let is_this = |known: &Session| known.quic.stable_id() == self.quic.stable_id();
        if known.is_some_and(is_this) {
            all.remove(&self.address);
        }
        drop(all);
        Session::shared(self.address, timeout)
    }

    /// Sends a request; its body follows.
    fn ask(&mut self, request: &Request, timeout: Duration) -> Result<Coming> {
        let pieces = pieces(&request.body);
        let sent = wait(timeout, self.send.send_request(head_of(request, "https")?))?;
        let stream = match sent {
            Ok(stream) => stream,
            // RFC 9114 §5.2: it was not sent.
            Err(StreamError::RemoteClosing { .. } | StreamError::ConnectionError { .. }) => {
                *self = self.renewed(timeout)?;
                wait(timeout, self.send.send_request(head_of(request, "https")?))??
            }
            Err(error) => return Err(error.into()),
        };
        let (mut sending, mut receiving) = stream.split();
        if pieces.is_empty() {
            match wait(timeout, sending.finish())? {
                // RFC 9114 §4.1.1: it was answered before its end had come.
                Err(StreamError::RemoteTerminate { code, .. }) if code == Code::H3_NO_ERROR => {}
                finished => finished?,
            }
        } else {
            // A server that wants no more of a body stops the stream, or answers.
            MOVER.spawn(async { send_body(sending, pieces).await.ok() });
        }
        Ok(Coming(MOVER.spawn(async move {
            let head = receiving.recv_response().await;
            (head, Instant::now(), receiving)
        })))
    }
}

/// An answer whose head is taken when it comes, so that its time is known. INVARIANT 3.
struct Coming(JoinHandle<Came>);

/// The head of an answer, when it came, and the rest.
type Came = (Result<http::Response<()>, StreamError>, Instant, Receiving);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn send_body(mut stream: Sending, pieces: VecDeque<Bytes>) -> Result<()> {
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        stream.send_data(piece).await?;
    }
    Ok(stream.finish().await?)
}

/// Requests of one user on a connection, and their answers in the same order.
pub(crate) struct Streams {
    session: Session,
    asked: VecDeque<Coming>,
    /// The stream of the answer whose head was read last.
    body: Option<Receiving>,
    pub(crate) timeout: Duration,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Streams")
    }
}

impl Streams {
    pub(crate) fn new(session: Session, timeout: Duration) -> Streams {
        Streams {
            session,
            asked: VecDeque::new(),
            body: None,
            timeout,
        }
    }

    /// True if the connection ends within this time.
    pub(crate) fn is_closed_within(&self, timeout: Duration) -> bool {
        let ended = || self.session.quic.close_reason().map(|_| ());
        Deadline::after(timeout).poll(ended).is_some()
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        self.asked
            .push_back(self.session.ask(request, self.timeout)?);
        Ok(())
    }

    /// Status and fields of the next answer, and when they came; none if the server has ended the
    /// stream.
    pub(crate) fn read_head(&mut self) -> Result<Option<((u16, Fields), Instant)>> {
        let mut coming = self.asked.pop_front().context("nothing was asked")?;
        let (head, at, stream) = wait(self.timeout, &mut coming.0)??;
        match head {
            Ok(head) => {
                self.body = Some(stream);
                let fields = fields_of(head.headers());
                Ok(Some(((head.status().as_u16(), fields), at)))
            }
            Err(error) if is_end(&error) => Ok(None),
            Err(error) => Err(error).context("waiting for a head"),
        }
    }

    /// Reads on in the body until it has so many bytes, or to its end.
    pub(crate) fn read_body(
        &mut self,
        most: usize,
        (all, trailers): (&mut Vec<u8>, &mut Fields),
    ) -> Result<End> {
        let Some(body) = &mut self.body else {
            return Ok(End::Complete);
        };
        match wait(self.timeout, read_on(body, most, all)) {
            Ok(Ok(None)) => return Ok(End::Complete),
            Ok(Ok(Some(came))) => *trailers = came,
            Ok(Err(error)) if is_end(&error) => {
                self.body = None;
                return Ok(End::Truncated(error.to_string()));
            }
            Ok(Err(error)) => return Err(error).context("reading a body"),
            Err(error) => return Err(error.context("reading a body")),
        }
        self.body = None;
        Ok(End::Complete)
    }
}

/// Reads until there are so many bytes; the trailers, at the end.
async fn read_on(
    body: &mut Receiving,
    most: usize,
    all: &mut Vec<u8>,
) -> Result<Option<Fields>, StreamError> {
    while all.len() < most {
        let Some(mut piece) = body.recv_data().await? else {
            let trailers = body.recv_trailers().await?;
            return Ok(Some(fields_of(&trailers.unwrap_or_default())));
        };
        let len = piece.remaining();
        all.extend_from_slice(&piece.copy_to_bytes(len));
    }
    Ok(None)
}

/// True if the server has ended a stream or the connection, and has not only made a mistake.
fn is_end(error: &StreamError) -> bool {
    matches!(
        error,
        StreamError::RemoteTerminate { .. } | StreamError::ConnectionError { .. }
    )
}
