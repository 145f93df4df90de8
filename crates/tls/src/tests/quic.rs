//! Handshakes inside of QUIC, between quinn-proto's client and a server of this crate.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, ServerConfig, TransportErrorCode,
};
use rustls::crypto::aws_lc_rs as provider;

use super::pair::{Kind, Trusting, identity, server};
use crate::quic::{Choice, Chooser, Desk, HostKey, Progress, Starter};
use crate::{
    CacheMode, ClientHello, EarlyData, ServerContext, ServerSettings, SessionCache, Tickets,
    UNRECOGNIZED_NAME, Versions,
};

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2);

/// The longest time in which a handshake, with one probe of the client, comes to its end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Packets that go back and forth in a handshake, with much to spare.
const TURNS: usize = 200;

/// Chooses by a function.
struct By<F>(F);

impl<F: Fn(&ClientHello) -> Choice + Send + Sync> Chooser for By<F> {
    fn choose(&self, hello: &ClientHello) -> Choice {
        (self.0)(hello)
    }
}

fn chooser(choose: impl Fn(&ClientHello) -> Choice + Send + Sync + 'static) -> Arc<dyn Chooser> {
    Arc::new(By(choose))
}

fn serving(context: &ServerContext) -> Arc<dyn Chooser> {
    let context = context.clone();
    chooser(move |_| Choice::Serve(Box::new(context.clone()), None))
}

fn settings() -> ServerSettings {
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "one.example")]);
    settings.quic_alpn = vec![b"h3".to_vec(), b"hq-interop".to_vec()];
    settings
}

fn client(alpn: &str) -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(provider::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    config.enable_early_data = true;
    Arc::new(config)
}

/// Both ends, and the time, which only a test moves.
struct Pair {
    now: std::time::Instant,
    client: (Endpoint, ConnectionHandle, Connection),
    server: (Endpoint, Option<(ConnectionHandle, Connection)>),
    failure: Option<ConnectionError>,
    lost: Option<ConnectionError>,
    is_connected: bool,
}

impl Pair {
    fn new(chooser: Arc<dyn Chooser>, client: &Arc<rustls::ClientConfig>) -> Self {
        let key = HostKey::new(b"secret");
        let starter = Arc::new(Starter::new(chooser, None).unwrap());
        let config = Arc::new(ServerConfig::new(starter, key.token()));
        let ends = Arc::new(EndpointConfig::new(key.reset()));
        let server = Endpoint::new(Arc::clone(&ends), Some(config), false, Some([1; 32]));
        let mut endpoint = Endpoint::new(ends, None, false, Some([2; 32]));
        let crypto = QuicClientConfig::try_from(Arc::clone(client)).unwrap();
        let config = ClientConfig::new(Arc::new(crypto));
        let now = std::time::Instant::now();
        let connected = endpoint.connect(now, config, SERVER, "one.example");
        let (handle, connection) = connected.unwrap();
        Pair {
            now,
            client: (endpoint, handle, connection),
            server: (server, None),
            failure: None,
            lost: None,
            is_connected: false,
        }
    }

    /// Carries packets until nobody has anything to say.
    fn carry(&mut self) {
        for _ in 0..TURNS {
            let sent = self.carry_to_server() | self.carry_to_client();
            while let Some(event) = self.client.2.poll() {
                match event {
                    Event::Connected => self.is_connected = true,
                    Event::ConnectionLost { reason } => self.lost = Some(reason),
                    _ => {}
                }
            }
            if !sent {
                return;
            }
        }
        panic!("no end of it");
    }

    fn carry_to_server(&mut self) -> bool {
        let mut has_sent = false;
        let mut out = Vec::new();
        while self.client.2.poll_transmit(self.now, 1, &mut out).is_some() {
            has_sent = true;
            let packet = BytesMut::from(&std::mem::take(&mut out)[..]);
            let (endpoint, connection) = &mut self.server;
            let event = endpoint.handle(self.now, CLIENT, None, None, packet, &mut Vec::new());
            match event {
                Some(DatagramEvent::NewConnection(incoming)) => {
                    match endpoint.accept(incoming, self.now, &mut Vec::new(), None) {
                        Ok(accepted) => *connection = Some(accepted),
                        Err(error) => self.failure = Some(error.cause),
                    }
                }
                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                    connection.as_mut().unwrap().1.handle_event(event);
                }
                _ => {}
            }
        }
        has_sent
    }

    fn carry_to_client(&mut self) -> bool {
        let (endpoint, Some((handle, connection))) = &mut self.server else {
            return false;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        let mut has_sent = false;
        let mut out = Vec::new();
        while connection.poll_transmit(self.now, 1, &mut out).is_some() {
            has_sent = true;
            let packet = BytesMut::from(&std::mem::take(&mut out)[..]);
            let (endpoint, _, connection) = &mut self.client;
            let event = endpoint.handle(self.now, SERVER, None, None, packet, &mut Vec::new());
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                connection.handle_event(event);
            }
        }
        has_sent
    }

    /// Moves the time to the client's next alarm.
    fn pass(&mut self) {
        let at = self.client.2.poll_timeout().expect("the client waits");
        self.now = self.now.max(at);
        self.client.2.handle_timeout(self.now);
        if let Some((_, connection)) = &mut self.server.1 {
            connection.handle_timeout(self.now);
        }
    }

    fn progress(&self) -> Progress {
        let (_, connection) = self.server.1.as_ref().expect("a connection");
        let data = connection.crypto_session().handshake_data();
        *data.unwrap().downcast().expect("progress")
    }

    fn desk(&self) -> Arc<Desk> {
        match self.progress() {
            Progress::Waiting(_, desk) => desk,
            other => panic!("{other:?}"),
        }
    }

    fn is_resumed(&self) -> bool {
        match self.progress() {
            Progress::Running(agreement) => agreement.facts().is_resumed,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn everything_that_was_agreed_is_known() {
    let mut pair = Pair::new(serving(&server(&settings())), &client("h3"));
    pair.carry();
    assert!(pair.is_connected);
    let Progress::Running(agreement) = pair.progress() else {
        panic!("no agreement");
    };
    let facts = agreement.facts();
    assert_eq!(facts.protocol, Some("TLSv1.3"));
    assert_eq!(facts.server_name, Some("one.example"));
    assert_eq!(facts.alpn, Some(&b"h3"[..]));
    assert_eq!(facts.sigalg, Some("ecdsa_secp256r1_sha256"));
    assert!(facts.cipher.is_some() && facts.curve.is_some());
    assert!(!facts.is_resumed);
}

#[test]
fn client_that_speaks_nothing_of_ours_gets_the_alert_of_alpn() {
    let mut pair = Pair::new(serving(&server(&settings())), &client("http/1.1"));
    pair.carry();
    assert!(!pair.is_connected);
    assert_eq!(alert(&pair), Some(TransportErrorCode::crypto(120)));
}

/// The code of the error that ended the handshake at the server.
fn alert(pair: &Pair) -> Option<TransportErrorCode> {
    match (&pair.failure, &pair.lost) {
        (Some(ConnectionError::TransportError(error)), _) => Some(error.code),
        (_, Some(ConnectionError::ConnectionClosed(close))) => Some(close.error_code),
        _ => None,
    }
}

#[test]
fn name_that_is_refused_gets_its_alert() {
    let refusing = chooser(|_| Choice::Refuse(UNRECOGNIZED_NAME));
    let mut pair = Pair::new(refusing, &client("h3"));
    pair.carry();
    assert_eq!(
        alert(&pair),
        Some(TransportErrorCode::crypto(UNRECOGNIZED_NAME))
    );
}

#[test]
fn context_without_quic_serves_none() {
    let mut old = settings();
    old.versions = Versions::Tls12;
    let mut none = settings();
    none.quic_alpn.clear();
    for settings in [old, none] {
        let mut pair = Pair::new(serving(&server(&settings)), &client("h3"));
        pair.carry();
        assert!(!pair.is_connected);
        assert!(alert(&pair).is_some());
    }
}

#[test]
fn chooser_sees_the_name_and_the_protocols() {
    let seen = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&seen);
    let context = server(&settings());
    let noting = chooser(move |hello| {
        let alpn: Vec<Vec<u8>> = hello.alpn().map(<[u8]>::to_vec).collect();
        *kept.lock().unwrap() = Some((hello.server_name().map(str::to_owned), alpn));
        Choice::Serve(Box::new(context.clone()), None)
    });
    Pair::new(noting, &client("h3")).carry();
    let expected = (Some(String::from("one.example")), vec![b"h3".to_vec()]);
    assert_eq!(seen.lock().unwrap().take(), Some(expected));
}

/// RFC 9002 §6.2.2.1: a client that hears nothing of its handshake sends a probe; that is when a
/// context that came meanwhile answers.
#[test]
fn context_that_comes_late_is_found_at_the_clients_next_probe() {
    let mut pair = Pair::new(chooser(|_| Choice::Wait), &client("h3"));
    pair.carry();
    assert!(!pair.is_connected);
    let begin = pair.now;
    let own = identity(Kind::Ecdsa, "one.example");
    let context = server(&settings());
    pair.desk()
        .give(Choice::Serve(Box::new(context), Some(vec![own])));
    while !pair.is_connected {
        assert!(pair.now.duration_since(begin) < PATIENCE, "{:?}", pair.lost);
        pair.pass();
        pair.carry();
    }
}

#[test]
fn refusal_that_comes_late_ends_the_handshake() {
    let mut pair = Pair::new(chooser(|_| Choice::Wait), &client("h3"));
    pair.carry();
    pair.desk().give(Choice::Refuse(80));
    let begin = pair.now;
    while !matches!(pair.progress(), Progress::Failed) {
        assert!(pair.now.duration_since(begin) < PATIENCE);
        pair.pass();
        pair.carry();
    }
    assert!(!pair.is_connected);
}

#[test]
fn sessions_are_resumed_by_tickets() {
    let mut settings = settings();
    settings.tickets = Some(Arc::new(Tickets::rotating(Duration::from_secs(300))));
    let (context, client) = (server(&settings), client("h3"));
    for is_resumed in [false, true] {
        let mut pair = Pair::new(serving(&context), &client);
        pair.carry();
        assert!(pair.is_connected);
        assert_eq!(pair.is_resumed(), is_resumed);
    }
}

/// RFC 8446 §8.1: where early data is taken, a session is found once.
#[test]
fn early_data_is_there_before_the_handshake_is_over() {
    let mut settings = settings();
    settings.early_data = EarlyData::Accept;
    settings.cache = CacheMode::Cache(Arc::new(SessionCache::new(64 * 1024)));
    let (context, client) = (server(&settings), client("h3"));
    Pair::new(serving(&context), &client).carry();
    let mut pair = Pair::new(serving(&context), &client);
    assert!(pair.client.2.has_0rtt());
    let stream = pair.client.2.streams().open(Dir::Bi).unwrap();
    let early = Bytes::from_static(b"early");
    let written = pair.client.2.send_stream(stream).write(&early);
    assert_eq!(written, Ok(5));
    pair.carry_to_server();
    let (_, server) = pair.server.1.as_mut().unwrap();
    assert!(server.is_handshaking());
    assert_eq!(server.streams().accept(Dir::Bi), Some(stream));
    pair.carry();
    assert!(pair.is_connected && pair.client.2.accepted_0rtt());
}
