//! A server with HTTP/3, and a client of it that is none of ours.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use http::{HeaderMap, Request, Response};
use millpond_testkit::{Kind, Origin, Proxy, ProxyBuilder, Recorded};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use tokio::task::JoinHandle;

pub(crate) const WAIT: Duration = Duration::from_secs(60);

pub(crate) const CONF: &str = "%%GLOBALS%%
    worker_processes 2;
    events {}
    http {
        %%HTTP%%
        log_format h3 '$request_method $uri $status $body_bytes_sent $server_protocol $http3';
        access_log %%DIR%%/h3.log h3;
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
        client_body_buffer_size 8k;
        client_max_body_size 0;
        ssl_certificate %%DIR%%/cert.pem;
        ssl_certificate_key %%DIR%%/key.pem;
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            listen 127.0.0.1:%%PORT%% quic reuseport;
            server_name localhost;
            http3_advertise on;
            add_header X-Cache $upstream_cache_status;
            location / {
                proxy_pass http://%%ORIGIN%%;
                proxy_cache z;
                proxy_cache_valid 200 1h;
                proxy_cache_lock on;
                proxy_cache_lock_timeout 20s;
            }
            location /few { keepalive_requests 3; return 200 few; }
            location /plain { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }
            location /address { return 200 '$connection $remote_port'; }
            location /pid { return 200 $pid; }
            location /told { return 200 '$server_protocol $http3 $scheme $ssl_protocol $host'; }
            location /metrics { metrics; }
        }
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            listen 127.0.0.1:%%PORT%% quic;
            server_name off.localhost;
            http3 off;
        }
        server {
            listen 127.0.0.1:%%PORT_SHOW%% quic;
            quic_retry on;
            location / { return 200 shown; }
        }
        server {
            listen 127.0.0.1:%%PORT_SHORT%% quic;
            client_header_timeout 1s;
            location / { return 200 short; }
        }
    }";

/// A certificate for `localhost`, and its key.
pub(crate) struct Identity {
    pub(crate) pem: String,
    pub(crate) key: String,
    pub(crate) der: CertificateDer<'static>,
}

pub(crate) fn identity() -> Result<Identity> {
    let names = vec!["localhost".to_owned(), "off.localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    Ok(Identity {
        pem: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        der: made.cert.der().clone(),
    })
}

pub(crate) fn proxy(origin: &Origin, identity: &Identity) -> ProxyBuilder {
    proxy_of(CONF, origin, identity)
}

/// A server with a configuration of its own.
pub(crate) fn proxy_of(conf: &str, origin: &Origin, identity: &Identity) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, conf)
        .file("cert.pem", &identity.pem)
        .file("key.pem", &identity.key)
        .origin(origin)
}

/// Runs a test with a time limit; connections are moved by a thread of their own.
pub(crate) fn run(test: impl Future<Output = Result<()>>) -> Result<()> {
    run_within(WAIT, test)
}

/// Runs a test with a time limit of its own.
pub(crate) fn run_within(limit: Duration, test: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let all = tokio::time::timeout(limit, test);
        all.await.context("the test took too long")?
    })
}

pub(crate) fn client_config(identity: &Identity) -> Result<ClientConfig> {
    client_config_for(identity, b"h3")
}

/// A client that asks for a protocol by ALPN.
pub(crate) fn client_config_for(identity: &Identity, alpn: &[u8]) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.der.clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    // Only those who have a session, and ask for it, send some.
    tls.enable_early_data = true;
    Ok(ClientConfig::new(Arc::new(QuicClientConfig::try_from(
        tls,
    )?)))
}

/// A connection, whose streams are moved by a task.
pub(crate) struct Connected {
    pub(crate) send: SendRequest<OpenStreams, Bytes>,
    pub(crate) quic: quinn::Connection,
    endpoint: Endpoint,
    pub(crate) task: JoinHandle<h3::error::ConnectionError>,
}

impl Connected {
    /// Ends the connection, and waits until the server was told.
    pub(crate) async fn close(self) {
        self.quic.close(0x100_u32.into(), b"");
        self.endpoint.wait_idle().await;
    }
}

pub(crate) async fn connect_as(port: u16, name: &str, identity: &Identity) -> Result<Connected> {
    let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into())?;
    endpoint.set_default_client_config(client_config(identity)?);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let quic = endpoint.connect(address, name)?.await?;
    let made = h3::client::new(h3_quinn::Connection::new(quic.clone())).await;
    let (mut driver, send) = made?;
    let task = tokio::spawn(async move { driver.wait_idle().await });
    Ok(Connected {
        send,
        quic,
        endpoint,
        task,
    })
}

pub(crate) async fn connect(port: u16, identity: &Identity) -> Result<Connected> {
    connect_as(port, "localhost", identity).await
}

pub(crate) fn request(method: &str, path: &str) -> Result<Request<()>> {
    let uri = format!("https://localhost{path}");
    Ok(Request::builder().method(method).uri(uri).body(())?)
}

/// An answer, whole.
pub(crate) struct Whole {
    pub(crate) head: Response<()>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Whole {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.head.headers().get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) async fn ask(
    send: &mut SendRequest<OpenStreams, Bytes>,
    request: Request<()>,
    body: &[Bytes],
) -> Result<Whole> {
    let mut stream = send.send_request(request).await?;
    for piece in body {
        stream.send_data(piece.clone()).await?;
    }
    stream.finish().await?;
    let head = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await? {
        let len = piece.remaining();
        body.extend_from_slice(&piece.copy_to_bytes(len));
    }
    let trailers = stream.recv_trailers().await?;
    Ok(Whole {
        head,
        body,
        trailers,
    })
}

/// Requests for a path that came to an origin.
pub(crate) fn asked(origin: &Origin, path: &str) -> Vec<Recorded> {
    let all = origin.requests().into_iter();
    all.filter(|request| request.path() == path).collect()
}

pub(crate) async fn get(client: &mut Connected, path: &str) -> Result<Whole> {
    ask(&mut client.send, request("GET", path)?, &[]).await
}

/// A client's first flight: packets that it sends before it has heard anything.
pub(crate) fn flight(identity: &Identity) -> Result<Vec<Vec<u8>>> {
    let config = Arc::new(quinn_proto::EndpointConfig::default());
    let mut endpoint = quinn_proto::Endpoint::new(config, None, false, None);
    let (now, config) = (Instant::now(), client_config(identity)?);
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let (_, mut connection) = endpoint.connect(now, config, nowhere, "localhost")?;
    let mut packets = Vec::new();
    let mut out = Vec::new();
    while connection.poll_transmit(now, 1, &mut out).is_some() {
        packets.push(std::mem::take(&mut out));
    }
    ensure!(packets.iter().all(|packet| packet.len() >= 1200));
    Ok(packets)
}
