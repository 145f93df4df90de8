//! Records of our own against rustls's: every suite, every edge of a length, keys that change.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use bytes::BytesMut;
use rustls::crypto::aws_lc_rs::{self as provider, cipher_suite};
use rustls::{ClientConfig, ClientConnection, SupportedCipherSuite};

use super::pair::{Kind, Trusting, identity, server};
use crate::established::LIMIT;
use crate::session::Filled;
use crate::{Accepting, Acceptor, Ending, Inside, ServerSettings, Session};

const SUITES: [SupportedCipherSuite; 5] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// A server of ours, and rustls's client of it.
struct Ends {
    server: Box<dyn Session>,
    client: ClientConnection,
    /// Plaintext that the server has got.
    plain: BytesMut,
}

impl Ends {
    fn new(suite: SupportedCipherSuite) -> Self {
        Self::with_fragment(suite, crate::FRAGMENT_MAX)
    }

    fn with_fragment(suite: SupportedCipherSuite, fragment: usize) -> Self {
        let provider = rustls::crypto::CryptoProvider {
            cipher_suites: vec![suite],
            ..provider::default_provider()
        };
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting))
            .with_no_client_auth();
        let mut client = ClientConnection::new(config.into(), "a".try_into().unwrap()).unwrap();
        let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
        settings.fragment = fragment;
        let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
        let hello = written(&mut client);
        let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(&hello, &mut out) else {
            panic!("a whole message");
        };
        let chosen = accepted.choose((&server(&settings), Inside::Usual), &mut plain, &mut out);
        let mut ends = Self {
            server: chosen.unwrap().0,
            client,
            plain,
        };
        ends.hear(&mut out);
        while ends.server.is_handshaking() {
            ends.carry();
        }
        ends
    }

    /// Carries what the client has to say, and what is answered.
    fn carry(&mut self) {
        let mut records = written(&mut self.client);
        let mut out = BytesMut::new();
        self.server
            .receive(&mut records, &mut self.plain, &mut out)
            .unwrap();
        self.hear(&mut out);
    }

    /// Has the client hear records; returns the plaintext in them.
    fn hear(&mut self, records: &mut BytesMut) -> Vec<u8> {
        let mut text = Vec::new();
        let mut left = &records.split()[..];
        while !left.is_empty() {
            self.client.read_tls(&mut left).unwrap();
            self.client.process_new_packets().unwrap();
            // Nothing more is an error of the reader.
            let _ = self.client.reader().read_to_end(&mut text);
        }
        text
    }

    fn filled(&mut self, text: &[u8], len: usize) -> (BytesMut, Filled) {
        let (mut room, mut out) = (vec![0xff; 70_000], BytesMut::new());
        let mut fill = |places: &mut [IoSliceMut<'_>]| (&mut { text }).read_vectored(places);
        let filled = self
            .server
            .send_filled(len, &mut fill, &mut room, &mut out)
            .unwrap();
        out.extend_from_slice(&room[..filled.sealed]);
        (out, filled)
    }
}

fn written(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn every_suite_carries_every_length_both_ways() {
    for suite in SUITES {
        let mut ends = Ends::new(suite);
        for len in [1, 16_383, 16_384, 16_385, 40_000] {
            let text = text(len);
            let mut records = BytesMut::new();
            ends.server
                .send(&[IoSlice::new(&text)], &mut records)
                .unwrap();
            assert_eq!(ends.hear(&mut records), text, "{suite:?}: {len} sent");
            let (mut records, filled) = ends.filled(&text, len);
            assert_eq!(filled.plain, len);
            assert_eq!(ends.hear(&mut records), text, "{suite:?}: {len} filled in");
            ends.client.writer().write_all(&text).unwrap();
            ends.carry();
            assert_eq!(ends.plain.split(), text, "{suite:?}: {len} received");
        }
        let (records, filled) = ends.filled(b"", 0);
        assert_eq!((records.len(), filled), (0, Filled::default()));
    }
}

/// A file may be shorter than it was, or not be readable: what came of it goes out, or nothing.
#[test]
fn places_that_are_not_filled_are_not_sent() {
    for suite in SUITES {
        let mut ends = Ends::new(suite);
        let text = text(20_000);
        let (mut records, filled) = ends.filled(&text, 64 * 1024);
        assert_eq!(filled.plain, text.len());
        assert_eq!(ends.hear(&mut records), text);
        let (records, filled) = ends.filled(b"", 64 * 1024);
        assert_eq!((records.len(), filled), (0, Filled::default()));
        let mut fill = |_: &mut [IoSliceMut<'_>]| Err(io::Error::other("the disk is gone"));
        let (mut room, mut out) = (vec![0; 1000], BytesMut::new());
        let failed = ends.server.send_filled(500, &mut fill, &mut room, &mut out);
        assert_eq!(failed.unwrap_err().to_string(), "the disk is gone");
        assert!(out.is_empty());
        let (mut records, _) = ends.filled(b"goes on", 7);
        assert_eq!(ends.hear(&mut records), b"goes on");
    }
}

/// RFC 8446 §5.5: keys change before a cipher's limit; §4.6.3: and when the client asks for that.
#[test]
fn keys_change_in_the_middle_of_a_long_body() {
    for suite in &SUITES[..3] {
        LIMIT.set(Some(10));
        let mut ends = Ends::new(*suite);
        LIMIT.set(None);
        let (mut heard, mut said) = (Vec::new(), Vec::new());
        for round in 0..40 {
            let piece = text(40_000 + round);
            let (mut records, filled) = match round % 2 {
                0 => ends.filled(&piece, piece.len()),
                _ => {
                    let mut out = BytesMut::new();
                    let plain = ends.server.send(&[IoSlice::new(&piece)], &mut out).unwrap();
                    (out, Filled { plain, sealed: 0 })
                }
            };
            said.extend_from_slice(&piece[..filled.plain]);
            if round % 7 == 0 {
                ends.client.refresh_traffic_keys().unwrap();
                ends.client.writer().write_all(b"more").unwrap();
                ends.carry();
                assert_eq!(&ends.plain.split()[..], b"more");
            }
            heard.extend(ends.hear(&mut records));
        }
        assert!(heard == said, "{suite:?}");
        let mut out = BytesMut::new();
        ends.server.close(&mut out);
        ends.client.read_tls(&mut &out[..]).unwrap();
        let state = ends.client.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
    }
}

/// TLS 1.2 has no new keys: the connection sends no more data, and says its end.
#[test]
fn keys_of_tls_12_seal_no_more_than_their_limit() {
    LIMIT.set(Some(10));
    let mut ends = Ends::new(SUITES[3]);
    LIMIT.set(None);
    let mut count = 0;
    let mut out = BytesMut::new();
    let error = loop {
        match ends.server.send(&[IoSlice::new(b"x")], &mut out) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count <= 10);
    };
    // The first record was that of the handshake.
    assert_eq!(count, 9);
    assert!(error.to_string().contains("used up"), "{error}");
    assert_eq!(ends.hear(&mut out), b"x".repeat(9));
}

#[test]
fn close_is_told_by_every_suite() {
    for suite in SUITES {
        let mut ends = Ends::new(suite);
        assert_eq!(ends.server.ending(), Ending::Truncated);
        ends.client.send_close_notify();
        ends.carry();
        assert_eq!(ends.server.ending(), Ending::Closed);
        // The other direction is open.
        let (mut records, _) = ends.filled(b"goodbye", 7);
        assert_eq!(ends.hear(&mut records), b"goodbye");
    }
}

/// The kernel takes 1024 places at once; records may be so short that more would fit.
#[test]
fn short_records_are_filled_some_at_a_time() {
    let mut ends = Ends::with_fragment(SUITES[0], crate::FRAGMENT_MIN);
    let text = text(64 * 1024);
    let (mut records, filled) = ends.filled(&text, text.len());
    assert_eq!(filled.plain, 64 * crate::FRAGMENT_MIN);
    assert_eq!(ends.hear(&mut records), text[..filled.plain]);
}
