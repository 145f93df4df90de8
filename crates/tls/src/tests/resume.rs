//! Sessions that are resumed, and those that must not be.
//!
//! The time is a number that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::agree::Noting;
use super::pair::{Kind, Pair, client, client_settings, identity, seal, server, target};
use crate::{
    CacheMode, ClientContext, ClientSessions, EarlyData, Inside, ServerContext, ServerSettings,
    SessionCache, Target, TicketKey, Tickets, Versions,
};

/// A clock that stands.
#[derive(Debug)]
struct Hand(AtomicU64);

impl Hand {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_800_000_000)))
    }

    fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl TimeProvider for Hand {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Ordering::Relaxed);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A server's settings with a clock that stands.
fn settings(time: &Arc<Hand>) -> ServerSettings {
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    settings.time = Arc::clone(time) as Arc<dyn TimeProvider>;
    settings
}

fn cache() -> CacheMode {
    CacheMode::Cache(Arc::new(SessionCache::new(1 << 20)))
}

fn tickets() -> Option<Arc<Tickets>> {
    Some(Arc::new(Tickets::rotating(Duration::from_secs(300))))
}

/// A client that keeps sessions, of one version.
fn keeping(versions: Versions, time: &Arc<Hand>) -> (ClientContext, Arc<ClientSessions>) {
    let sessions = Arc::new(ClientSessions::default());
    let mut asking = client_settings();
    asking.versions = versions;
    asking.sessions = Some(Arc::clone(&sessions));
    asking.time = Arc::clone(time) as Arc<dyn TimeProvider>;
    (client(&asking), sessions)
}

fn keyed(key: &[u8]) -> Target {
    Target {
        session_key: Some(key.into()),
        ..target("a")
    }
}

/// Connects; true if both ends say that a session was resumed.
fn is_resumed(server: &ServerContext, client: &ClientContext) -> bool {
    let pair = Pair::new(server, client, keyed(b"peer"));
    let is_resumed = pair.server.facts().is_resumed;
    assert_eq!(is_resumed, pair.client.facts().is_resumed);
    is_resumed
}

const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

#[test]
fn sessions_are_resumed_by_cache_by_ticket_or_not_at_all() {
    let time = Hand::new();
    for versions in VERSIONS {
        for (mode, tickets, expected) in [
            (CacheMode::None, tickets(), true),
            (cache(), tickets(), true),
            (cache(), None, true),
            (CacheMode::None, None, false),
            (CacheMode::Off, None, false),
        ] {
            let mut settings = settings(&time);
            (settings.cache, settings.tickets) = (mode, tickets);
            let (server, (client, _)) = (server(&settings), keeping(versions, &time));
            assert!(!is_resumed(&server, &client));
            for _ in 0..3 {
                assert_eq!(is_resumed(&server, &client), expected, "{settings:?}");
            }
        }
    }
}

#[test]
fn sessions_end_with_their_timeout() {
    for versions in VERSIONS {
        for (mode, tickets) in [(CacheMode::None, tickets()), (cache(), None)] {
            let time = Hand::new();
            let mut settings = settings(&time);
            (settings.cache, settings.tickets) = (mode, tickets);
            let server = server(&settings);
            let (client, _) = keeping(versions, &time);
            assert!(!is_resumed(&server, &client));
            time.pass(299);
            assert!(is_resumed(&server, &client));
            time.pass(300);
            assert!(!is_resumed(&server, &client), "{settings:?}");
        }
    }
}

#[test]
fn another_context_does_not_resume() {
    let time = Hand::new();
    for versions in VERSIONS {
        for (mode, tickets) in [(CacheMode::None, tickets()), (cache(), None)] {
            let mut one = settings(&time);
            (one.cache, one.tickets) = (mode, tickets);
            let mut same = one.clone();
            same.alpn = vec![b"h2".to_vec()];
            let mut other_certificate = one.clone();
            other_certificate.identities = vec![identity(Kind::Ecdsa, "b")];
            let mut other_verification = one.clone();
            other_verification.session_context = b"verify on".to_vec();
            for (other, expected) in [
                (same, true),
                (other_certificate, false),
                (other_verification, false),
            ] {
                let (client, _) = keeping(versions, &time);
                assert!(!is_resumed(&server(&one), &client));
                assert_eq!(is_resumed(&server(&other), &client), expected);
            }
        }
    }
}

#[test]
fn cache_outlives_the_contexts_that_name_it() {
    let time = Hand::new();
    let mut settings = settings(&time);
    settings.cache = cache();
    for versions in VERSIONS {
        let (client, _) = keeping(versions, &time);
        assert!(!is_resumed(&server(&settings), &client));
        assert!(is_resumed(&server(&settings.clone()), &client));
    }
}

#[test]
fn random_keys_change_with_their_lifetime() {
    for versions in VERSIONS {
        let time = Hand::new();
        let mut settings = settings(&time);
        settings.session_timeout = Duration::from_secs(10_000);
        settings.tickets = tickets();
        let server = server(&settings);
        let (client, _) = keeping(versions, &time);
        assert!(!is_resumed(&server, &client));
        time.pass(301);
        assert!(is_resumed(&server, &client), "the key before still opens");
        time.pass(601);
        assert!(!is_resumed(&server, &client), "it is gone");
    }
}

/// The name of the key in the ticket that a server sends, and the ticket's length.
fn key_name(tickets: &Tickets, now: u64) -> (Vec<u8>, usize) {
    let ticket = tickets.seal(&[1; 120], now).unwrap();
    (ticket[..16].to_vec(), ticket.len())
}

#[test]
fn name_of_a_random_key_stays_and_changes_with_it() {
    let tickets = Tickets::rotating(Duration::from_secs(2));
    let (name, _) = key_name(&tickets, 1000);
    assert_eq!(key_name(&tickets, 1001).0, name);
    assert_ne!(key_name(&tickets, 1002).0, name);
}

#[test]
fn given_keys_open_what_they_have_sealed_and_the_first_seals() {
    let time = Hand::new();
    let small: Vec<u8> = (0..48).collect();
    let large: Vec<u8> = (100..180).collect();
    let key = |bytes: &[u8]| TicketKey::from_bytes(bytes).unwrap();
    let mut settings = settings(&time);
    let mut context = |keys: Vec<TicketKey>| {
        settings.tickets = Some(Arc::new(Tickets::with_keys(keys)));
        server(&settings)
    };
    let old = context(vec![key(&small)]);
    let both = context(vec![key(&large), key(&small)]);
    let new = context(vec![key(&large)]);
    for versions in VERSIONS {
        let (client, _) = keeping(versions, &time);
        assert!(!is_resumed(&old, &client));
        assert!(is_resumed(&both, &client));
        let (client, _) = keeping(versions, &time);
        assert!(!is_resumed(&both, &client));
        assert!(is_resumed(&new, &client), "the first seals");
        let (client, _) = keeping(versions, &time);
        assert!(!is_resumed(&old, &client));
        assert!(!is_resumed(&new, &client));
    }
    let tickets = Tickets::with_keys(vec![key(&small)]);
    assert_eq!(key_name(&tickets, 0).0, small[..16]);
    for len in [0, 47, 49, 79, 81] {
        assert!(TicketKey::from_bytes(&vec![0; len]).is_err());
    }
}

#[test]
fn changed_tickets_do_not_open() {
    let tickets = Tickets::rotating(Duration::from_secs(300));
    let ticket = tickets.seal(b"session", 0).unwrap();
    assert_eq!(tickets.open(&ticket, 0).unwrap(), b"session");
    for index in 0..ticket.len() {
        let mut changed = ticket.clone();
        changed[index] ^= 1;
        assert!(tickets.open(&changed, 0).is_none(), "byte {index}");
        assert!(tickets.open(&ticket[..index], 0).is_none());
    }
}

/// The data of an extension in a client's first message.
fn extension(hello: &[u8], kind: u16) -> Option<Vec<u8>> {
    let number = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    let session_id = 5 + 4 + 2 + 32;
    let suites = session_id + 1 + usize::from(hello[session_id]);
    let compression = suites + 2 + number(suites);
    let mut at = compression + 1 + usize::from(hello[compression]) + 2;
    while at < hello.len() {
        let len = number(at + 2);
        if number(at) == usize::from(kind) {
            return Some(hello[at + 4..at + 4 + len].to_vec());
        }
        at += 4 + len;
    }
    None
}

#[test]
fn tickets_have_a_length_that_is_written_in_one_byte_as_nginxs_test_wants() {
    const TICKET: u16 = 35;
    const PRE_SHARED_KEY: u16 = 41;
    let time = Hand::new();
    let mut settings = settings(&time);
    settings.tickets = tickets();
    settings.alpn = vec![b"http/1.1".to_vec()];
    let server = server(&settings);
    let mut target = keyed(b"peer");
    target.alpn = settings.alpn.clone();
    for versions in VERSIONS {
        let (client, _) = keeping(versions, &time);
        Pair::new(&server, &client, target.clone());
        let mut hello = BytesMut::new();
        let _ = client.connect(target.clone(), &mut hello).unwrap();
        let len = if versions == Versions::Tls12 {
            extension(&hello, TICKET).unwrap().len()
        } else {
            let offer = extension(&hello, PRE_SHARED_KEY).unwrap();
            usize::from(u16::from_be_bytes([offer[2], offer[3]]))
        };
        assert!((128..256).contains(&len), "{versions:?}: {len}");
    }
}

#[test]
fn identifier_is_known_once_both_have_it() {
    let time = Hand::new();
    for (mode, tickets) in [(CacheMode::None, tickets()), (cache(), None)] {
        let has_cache = matches!(mode, CacheMode::Cache(_));
        let mut settings = settings(&time);
        (settings.cache, settings.tickets) = (mode, tickets);
        let server = server(&settings);
        for versions in VERSIONS {
            let (client, _) = keeping(versions, &time);
            let first = Pair::new(&server, &client, keyed(b"peer"));
            let id = first.server.facts().session_id.copied();
            let is_known = has_cache && versions == Versions::Tls12;
            assert_eq!(id.is_some(), is_known, "{versions:?} {has_cache}");
            let second = Pair::new(&server, &client, keyed(b"peer"));
            let resumed = second.server.facts().session_id.copied();
            assert!(resumed.is_some());
            assert!(!is_known || resumed == id);
        }
    }
}

#[test]
fn verdict_and_certificate_come_back_with_the_session() {
    let time = Hand::new();
    let mine = identity(Kind::Ecdsa, "client");
    for (mode, tickets) in [(CacheMode::None, tickets()), (cache(), None)] {
        let mut settings = settings(&time);
        (settings.cache, settings.tickets) = (mode, tickets);
        settings.verifier = Some(Arc::new(Noting));
        let server = server(&settings);
        for versions in VERSIONS {
            let mut asking = client_settings();
            asking.versions = versions;
            asking.identities = vec![mine.clone()];
            asking.sessions = Some(Arc::default());
            let client = client(&asking);
            for round in 0..3 {
                let pair = Pair::new(&server, &client, keyed(b"peer"));
                let facts = pair.server.facts();
                let note = format!("{} bytes", mine.chain()[0].len());
                assert_eq!(facts.is_resumed, round > 0);
                assert_eq!(facts.peer_certificates, mine.chain());
                assert_eq!(facts.note, note.as_bytes(), "round {round}");
            }
        }
    }
}

#[test]
fn upstreams_sessions_are_those_of_their_key() {
    let time = Hand::new();
    let mut settings = settings(&time);
    settings.tickets = tickets();
    let server = server(&settings);
    for versions in VERSIONS {
        let (client, sessions) = keeping(versions, &time);
        let connect = |target| {
            Pair::new(&server, &client, target)
                .client
                .facts()
                .is_resumed
        };
        assert!(!connect(keyed(b"one")));
        assert!(!connect(keyed(b"two")));
        assert!(connect(keyed(b"one")));
        assert!(!connect(target("a")), "without a key nothing is kept");
        assert_eq!(sessions.count(), 2);
    }
}

#[test]
fn peers_that_are_kept_have_a_bound() {
    let time = Hand::new();
    let mut settings = settings(&time);
    settings.tickets = tickets();
    let server = server(&settings);
    let (client, sessions) = keeping(Versions::Tls12, &time);
    sessions.fill_for_test();
    let before = sessions.count();
    Pair::new(&server, &client, keyed(b"one more"));
    assert_eq!(sessions.count(), before);
}

/// A client of TLS 1.3 by rustls that sends early data, and the server's session.
#[test]
fn early_data_is_taken_once() {
    use rustls::client::danger::ServerCertVerifier;
    let time = Hand::new();
    let mut settings = settings(&time);
    settings.early_data = EarlyData::Accept;
    settings.tickets = tickets();
    let context = server(&settings);
    let verifier: Arc<dyn ServerCertVerifier> = Arc::new(super::pair::Trusting);
    let mut config = rustls::ClientConfig::builder_with_details(
        Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        Arc::clone(&time) as Arc<dyn TimeProvider>,
    )
    .with_safe_default_protocol_versions()
    .unwrap()
    .dangerous()
    .with_custom_certificate_verifier(verifier)
    .with_no_client_auth();
    config.enable_early_data = true;
    let config = Arc::new(config);
    let first = early_round(&config, &context, None);
    assert!(first.is_empty());
    let second = early_round(&config, &context, None);
    assert_eq!(second, b"GET / early");
    // The very same bytes again.
    let records = early_records(&config);
    assert_eq!(
        early_round(&config, &context, Some(records.clone())),
        b"GET / early"
    );
    assert_eq!(
        early_round(&config, &context, Some(records)),
        b"",
        "replayed"
    );
}

/// The first flight of a client with early data.
fn early_records(config: &Arc<rustls::ClientConfig>) -> Vec<u8> {
    use std::io::Write;
    let name = "a".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut early = client.early_data().expect("a session to begin with");
    early.write_all(b"GET / early").unwrap();
    let mut records = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut records).unwrap();
    }
    records
}

/// Connects, or sends `records` alone; returns what came as early data.
fn early_round(
    config: &Arc<rustls::ClientConfig>,
    context: &ServerContext,
    records: Option<Vec<u8>>,
) -> Vec<u8> {
    use std::io::Write;
    let name = "a".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::clone(config), name).unwrap();
    if records.is_none()
        && let Some(mut early) = client.early_data()
    {
        early.write_all(b"GET / early").unwrap();
    }
    let mut first = records.clone().unwrap_or_default();
    while records.is_none() && client.wants_write() {
        client.write_tls(&mut first).unwrap();
    }
    let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
    let accepting = crate::Acceptor::new().accept(&first, &mut out).unwrap();
    let crate::Accepting::Whole(accepted) = accepting else {
        panic!("a whole message");
    };
    let (mut server, _) = accepted
        .choose((context, Inside::Usual), &mut plain, &mut out)
        .unwrap();
    assert_eq!(server.facts().is_early, !plain.is_empty());
    let early = plain.split().to_vec();
    if !early.is_empty() {
        assert!(server.is_handshaking() && server.may_send());
        out.extend_from_slice(&seal(&mut *server, &[b"half a round trip"]));
    }
    if records.is_some() {
        return early;
    }
    client.read_tls(&mut &out[..]).unwrap();
    client.process_new_packets().unwrap();
    let mut second = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut second).unwrap();
    }
    out.clear();
    server.receive(&mut second, &mut plain, &mut out).unwrap();
    assert!(!server.is_handshaking() && !server.facts().is_early);
    client.read_tls(&mut &out[..]).unwrap();
    client.process_new_packets().unwrap();
    early
}
