//! TLS in front of a cache that speaks HTTP/1.1 in clear text: as it is, or as streams of HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{Request, Response};
use millpond_gauge::client::{Protocol, Sessions, Target, Tls, Trust};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Way in which a cache is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// HTTP/1.1 in clear text.
    Plain,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS, four users on a connection.
    Http2,
}

impl Way {
    /// All ways.
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Tls, Self::Http2];

    /// Target that leads to a cache.
    pub(crate) fn target(self, cache: SocketAddr) -> Target {
        let host = "gauge.test".to_owned();
        if self == Self::Plain {
            return Target::new(cache, host);
        }
        let tls = Tls::new(&Trust::Anyone, &host, Sessions::Resumed).expect("TLS");
        let (protocol, streams) = match self {
            Self::Http2 => (Protocol::Http2, 4),
            _ => (Protocol::Http1, 1),
        };
        Target {
            tls: Some(Arc::new(tls)),
            protocol,
            streams,
            ..Target::new(start(cache), host)
        }
    }
}

/// Settings of a server with a certificate of its own.
pub(crate) fn server_config() -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(vec!["gauge.test".to_owned()]).expect("made");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Starts a front, whose thread ends with the process.
fn start(cache: SocketAddr) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("set");
    let address = listener.local_addr().expect("an address");
    let acceptor = TlsAcceptor::from(server_config());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                // Who goes away does not want to hear about it.
                tokio::spawn(serve(stream, acceptor.clone(), cache));
            }
        });
    });
    address
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, cache: SocketAddr) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        let mut inner = TcpStream::connect(cache).await?;
        tokio::io::copy_bidirectional(&mut stream, &mut inner).await?;
        return stream.shutdown().await;
    }
    let made = h2::server::handshake(stream).await;
    let mut connection = made.map_err(std::io::Error::other)?;
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(forward(request, respond, cache));
    }
    Ok(())
}

/// Answers a stream with what the cache answers on a connection of its own.
async fn forward(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    cache: SocketAddr,
) -> std::io::Result<()> {
    let mut inner = TcpStream::connect(cache).await?;
    let range = request
        .headers()
        .get("range")
        .map(|range| format!("Range: {}\r\n", range.to_str().expect("text")));
    let (method, path) = (request.method(), request.uri().path());
    let text = format!(
        "{method} {path} HTTP/1.1\r\n{}\r\n",
        range.unwrap_or_default()
    );
    inner.write_all(text.as_bytes()).await?;
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if inner.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let mut left: usize = 0;
    let mut answer = Response::builder().status(&head[9..12]);
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ").expect("a field");
        if name == "Content-Length" {
            left = value.parse().expect("a length");
        }
        answer = answer.header(name, value);
    }
    let is_over = left == 0 || method == http::Method::HEAD;
    let answer = answer.body(()).expect("a head");
    let sent = respond.send_response(answer, is_over);
    let mut out = sent.map_err(std::io::Error::other)?;
    let mut body = Bytes::from(read.split_off(end + 4));
    if is_over {
        return Ok(());
    }
    loop {
        left -= body.len();
        let sent = out.send_data(body, left == 0);
        sent.map_err(std::io::Error::other)?;
        if left == 0 {
            break;
        }
        let mut more = Vec::with_capacity(1 << 16);
        if inner.read_buf(&mut more).await? == 0 {
            out.send_reset(Reason::INTERNAL_ERROR);
            break;
        }
        body = Bytes::from(more);
    }
    Ok(())
}
