//! Requests to an authority, one connection each: it is asked seldom.
//!
//! 1. An answer is never longer than `BODY_MAX`, and takes no longer than `TIMEOUT`.
//! 2. Nothing that an authority sends makes it panic.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use millpond_system::clock;
use millpond_system::log::error::os_error;
use millpond_system::resolve::policy::{ResolverPolicy, Unresolved};
use millpond_system::socket::{More, Socket};
use millpond_system::tls_socket::TlsSocket;
use millpond_system::transport::Transport;
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::{ClientContext, Target};
use millpond_wire::head::Method;
use millpond_wire::header::Fields;
use millpond_wire::http1::chunked::{ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits};
use millpond_wire::http1::response::{
    Framing, MAX_INTERIM, Progress, ResponseHead, ResponseParser,
};

use crate::url::{Scheme, Url};

/// The longest time of a request and its answer (arbitrary: what takes an authority long, it says
/// it will have later).
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest head of an answer (arbitrary: they have a few fields).
const HEAD_MAX: usize = 16 * 1024;
/// The longest body of an answer (arbitrary: chains have a few kilobytes).
const BODY_MAX: usize = 1024 * 1024;
/// Bytes asked of the kernel at once.
const READ: usize = 16 * 1024;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    Get,
    Head,
    /// A signed message.
    Post(&'a str),
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The first value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let value = self.fields.find(name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// True for a status of success.
    pub(crate) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The way to an authority.
#[derive(Clone, Debug)]
pub struct Way {
    /// The context of encrypted connections, which takes any certificate.
    pub context: ClientContext,
    /// Judge of the authority's certificate, once a handshake is over: its words are for people.
    pub verifier: Arc<OriginVerifier>,
    /// Name servers; without them the system is asked.
    pub names: ResolverPolicy,
}

impl Way {
    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&self, url: &Url, ask: Ask<'_>) -> Result<Answer, String> {
        let asked = clock::within(TIMEOUT, self.exchange(url, ask)).await;
        let told = asked.unwrap_or_else(|| Err("it takes too long".to_owned()));
        told.map_err(|why| format!("{url}: {why}"))
    }

    async fn exchange(&self, url: &Url, ask: Ask<'_>) -> Result<Answer, String> {
        let said = |error: io::Error| os_error(&error);
        let transport = self.connect(url).await?;
        let request = request(url, ask);
        let mut left = request.as_bytes();
        while !left.is_empty() {
            let slices = [IoSlice::new(left)];
            let sent = poll_fn(|cx| transport.poll_send(cx, &slices, More::Nothing)).await;
            left.advance(sent.map_err(said)?);
        }
        let method = match ask {
            Ask::Head => Method::Head,
            Ask::Get | Ask::Post(_) => Method::Get,
        };
        let mut buf = BytesMut::new();
        let head = read_head(&transport, &mut buf).await?;
        let framing = head.framing(method).map_err(|fault| fault.to_string())?;
        let body = read_body(&transport, buf, framing).await?;
        Ok(Answer {
            status: head.status,
            fields: head.fields,
            body,
        })
    }

    async fn connect(&self, url: &Url) -> Result<Transport, String> {
        let said = |error: io::Error| os_error(&error);
        let found = self.names.addresses(&url.host, url.port).await;
        let unresolved = |why: Unresolved| {
            let (host, why) = (&url.host, why.why());
            format!("\"{host}\" could not be resolved ({why})")
        };
        let mut outcome = Err("it has no address".to_owned());
        for address in found.map_err(unresolved)? {
            let stream = tokio::net::TcpStream::connect(address).await;
            let socket = stream
                .and_then(tokio::net::TcpStream::into_std)
                .and_then(|stream| Socket::new(OwnedFd::from(stream)));
            outcome =
                socket.map_err(|why| format!("connect() to {address} failed ({})", said(why)));
            if outcome.is_ok() {
                break;
            }
        }
        let socket = outcome?;
        if url.scheme == Scheme::Http {
            return Ok(Transport::Plain(socket));
        }
        let target = Target {
            name: Arc::from(url.host.as_str()),
            alpn: vec![b"http/1.1".to_vec()],
            ..Target::default()
        };
        let mut told = BytesMut::new();
        let failed = |why: String| format!("SSL_do_handshake() failed {why}");
        let session = self.context.connect(target, &mut told);
        let tls = TlsSocket::new(socket);
        tls.begin(
            session.map_err(|why| failed(why.to_string()))?,
            BytesMut::new(),
            told,
        );
        let done = poll_fn(|cx| tls.poll_handshake(cx)).await;
        done.map_err(|why| failed(why.to_string()))?;
        let judged = tls.with_facts(|facts| {
            let chain = facts.peer_certificates;
            self.verifier.check(chain, &url.host)
        });
        judged.unwrap_or(Ok(())).map_err(|why| why.to_string())?;
        Ok(Transport::Tls(Box::new(tls)))
    }
}

fn request(url: &Url, ask: Ask<'_>) -> String {
    let (method, body) = match ask {
        Ask::Get => ("GET", None),
        Ask::Head => ("HEAD", None),
        Ask::Post(body) => ("POST", Some(body)),
    };
    // RFC 8555 §6.1: a client says who it is.
    let mut text = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: millpond/{}\r\nAccept-Language: en\r\n\
         Connection: close\r\n",
        url.target(),
        url.authority(),
        env!("CARGO_PKG_VERSION")
    );
    if let Some(body) = body {
        text += &format!(
            "Content-Type: application/jose+json\r\nContent-Length: {}\r\n",
            body.len()
        );
    }
    text + "\r\n" + body.unwrap_or_default()
}

async fn read_head(transport: &Transport, buf: &mut BytesMut) -> Result<ResponseHead, String> {
    let mut parser = ResponseParser::new();
    let mut interim_left = MAX_INTERIM;
    loop {
        match parser.parse(buf, HEAD_MAX) {
            // RFC 9110 §15.2: informational answers come before the one that counts.
            Progress::Done(head) if head.status < 200 && interim_left > 0 => interim_left -= 1,
            Progress::Done(head) if head.status < 200 => {
                return Err("it sends nothing but informational answers".to_owned());
            }
            Progress::Done(head) => return Ok(head),
            Progress::NotHttp => return Err("it does not speak HTTP".to_owned()),
            Progress::Refuse(fault) => return Err(fault.to_string()),
            Progress::NeedMore => {
                if receive(transport, buf).await? == 0 {
                    return Err("it closed the connection before its answer".to_owned());
                }
            }
        }
    }
}

async fn read_body(
    transport: &Transport,
    mut buf: BytesMut,
    framing: Framing,
) -> Result<Vec<u8>, String> {
    let cut = || "it closed the connection within its answer".to_owned();
    match framing {
        Framing::None | Framing::Switched => Ok(Vec::new()),
        Framing::Length(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            within_limit(length)?;
            while buf.len() < length {
                if receive(transport, &mut buf).await? == 0 {
                    return Err(cut());
                }
            }
            Ok(buf.split_to(length).to_vec())
        }
        Framing::Chunked => read_chunks(transport, buf).await,
        Framing::UntilClose => {
            while receive(transport, &mut buf).await? > 0 {
                within_limit(buf.len())?;
            }
            if transport.is_truncated() {
                return Err(cut());
            }
            Ok(buf.to_vec())
        }
    }
}

async fn read_chunks(transport: &Transport, mut buf: BytesMut) -> Result<Vec<u8>, String> {
    let mut decoder = ChunkedDecoder::new(Strictness::Upstream, TrailerLimits::default());
    let mut body = Vec::new();
    loop {
        let event = decoder.decode(&mut buf);
        match event.map_err(|error| error.to_string())? {
            ChunkEvent::Data(bytes) => {
                body.extend_from_slice(&bytes);
                within_limit(body.len())?;
            }
            ChunkEvent::End { .. } => return Ok(body),
            ChunkEvent::NeedMore => {
                if receive(transport, &mut buf).await? == 0 {
                    return Err("it closed the connection within its answer".to_owned());
                }
            }
        }
    }
}

fn within_limit(len: usize) -> Result<(), String> {
    match len {
        0..=BODY_MAX => Ok(()),
        _ => Err(format!("its answer is longer than {BODY_MAX} bytes")),
    }
}

async fn receive(transport: &Transport, buf: &mut BytesMut) -> Result<usize, String> {
    buf.reserve(READ);
    let received = poll_fn(|cx| transport.poll_recv(cx, buf)).await;
    received.map_err(|error| os_error(&error))
}
