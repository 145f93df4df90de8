//! Plaintext on its way: pieces, records, ends, and what a session keeps meanwhile.
//!
//! Records are counted by their heads, which are in the clear.

use std::io::IoSlice;

use bytes::BytesMut;

use super::pair::{Kind, Pair, client, client_settings, identity, seal, server, target};
use crate::{Ending, Inside, ServerSettings, Versions};

const VERSIONS: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

fn pair_of(versions: Versions, fragment: usize) -> Pair {
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    settings.versions = versions;
    settings.fragment = fragment;
    Pair::new(&server(&settings), &client(&client_settings()), target("a"))
}

/// The lengths of records, without their heads.
fn record_lens(mut records: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while let Some((head, rest)) = records.split_first_chunk::<5>() {
        let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
        lens.push(len);
        records = &rest[len..];
    }
    lens
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 7 + index / 256) as u8)
        .collect()
}

#[test]
fn pieces_are_gathered_into_full_records() {
    for versions in VERSIONS {
        for (fragment, lens) in [
            (16384, vec![100, 5000, 0, 40_000, 3]),
            (16384, vec![16384; 3]),
            (4096, vec![1, 4095, 4096, 4097, 12_288]),
            (32, vec![30, 3, 64, 1]),
        ] {
            let mut pair = pair_of(versions, fragment);
            let pieces: Vec<Vec<u8>> = lens.iter().map(|len| pattern(*len)).collect();
            let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let mut records = seal(&mut *pair.server, &slices);
            let total: usize = lens.iter().sum();
            let found = record_lens(&records);
            assert_eq!(
                found.len(),
                total.div_ceil(fragment),
                "{fragment}: {lens:?}"
            );
            assert!(found.iter().all(|len| *len <= fragment + 25));
            let mut out = BytesMut::new();
            pair.client
                .receive(&mut records, &mut pair.at_client, &mut out)
                .unwrap();
            assert_eq!(pair.at_client[..], pieces.concat());
        }
    }
}

#[test]
fn plaintext_does_not_depend_on_how_records_are_cut() {
    for versions in VERSIONS {
        let mut pair = pair_of(versions, 16384);
        let text = pattern(40_000);
        for cut in [1, 2, 4, 5, 6, 999, 16_000, 20_000] {
            let mut records = seal(&mut *pair.server, &[&text]);
            let mut out = BytesMut::new();
            for piece in records.chunks_mut(cut) {
                pair.client
                    .receive(piece, &mut pair.at_client, &mut out)
                    .unwrap();
            }
            assert_eq!(pair.at_client[..], text, "{cut}");
            assert!(out.is_empty());
            pair.at_client.clear();
        }
    }
}

#[test]
fn handshake_does_not_depend_on_how_messages_are_cut() {
    for versions in VERSIONS {
        for cut in [1, 3, 50] {
            let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
            settings.versions = versions;
            let server = server(&settings);
            let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
            let mut client = client(&client_settings())
                .connect(target("a"), &mut to_server)
                .unwrap();
            let mut acceptor = crate::Acceptor::new();
            let mut rest = to_server.split();
            let accepted = loop {
                let piece = rest.split_to(cut.min(rest.len()));
                match acceptor.accept(&piece, &mut to_client).unwrap() {
                    crate::Accepting::Partial(more) => acceptor = more,
                    crate::Accepting::Whole(accepted) => break accepted,
                }
            };
            assert!(rest.is_empty());
            let mut plain = BytesMut::new();
            let (mut server, _) = accepted
                .choose((&server, Inside::Usual), &mut plain, &mut to_client)
                .unwrap();
            let mut done = 0;
            while !to_client.is_empty() || !to_server.is_empty() {
                for piece in to_client.split().chunks_mut(cut) {
                    client.receive(piece, &mut plain, &mut to_server).unwrap();
                }
                for piece in to_server.split().chunks_mut(cut) {
                    let received = server.receive(piece, &mut plain, &mut to_client).unwrap();
                    done += usize::from(received.is_handshake_done);
                }
            }
            assert_eq!(done, 1);
            assert!(!client.is_handshaking() && plain.is_empty());
        }
    }
}

#[test]
fn close_is_told_from_what_was_cut_off() {
    for versions in VERSIONS {
        let mut pair = pair_of(versions, 16384);
        let received = pair.ask(&[b"last words"]);
        assert!(!received.is_closed);
        assert_eq!(received.plain_len, 10);
        assert_eq!(pair.server.ending(), Ending::Truncated);
        let (mut records, mut out) = (BytesMut::new(), BytesMut::new());
        pair.client.close(&mut records);
        assert!(!records.is_empty());
        let received = pair
            .server
            .receive(&mut records.clone(), &mut pair.at_server, &mut out)
            .unwrap();
        assert!(received.is_closed);
        assert_eq!(pair.server.ending(), Ending::Closed);
        records.clear();
        pair.client.close(&mut records);
        assert!(records.is_empty(), "it is said once");
        // The other direction is open.
        pair.answer(&[b"goodbye"]);
        assert_eq!(&pair.at_client[..], b"goodbye");
        pair.server.close(&mut out);
        let mut told = out.split();
        let received = pair
            .client
            .receive(&mut told, &mut pair.at_client, &mut out)
            .unwrap();
        assert!(received.is_closed);
    }
}

#[test]
fn bytes_behind_a_close_are_ignored() {
    for versions in VERSIONS {
        let mut pair = pair_of(versions, 16384);
        let mut records = BytesMut::new();
        pair.client.close(&mut records);
        records.extend_from_slice(b"\x17\x03\x03\x40\x00more that makes no sense");
        let mut out = BytesMut::new();
        let received = pair
            .server
            .receive(&mut records, &mut pair.at_server, &mut out)
            .unwrap();
        assert!(received.is_closed);
        let mut more = *b"and more";
        let received = pair
            .server
            .receive(&mut more, &mut pair.at_server, &mut out);
        assert_eq!(received.unwrap().plain_len, 0);
    }
}

#[test]
fn nothing_is_taken_before_it_may_be_sent() {
    let mut records = BytesMut::new();
    let mut client = client(&client_settings())
        .connect(target("a"), &mut records)
        .unwrap();
    records.clear();
    assert!(!client.may_send());
    let sent = client.send(&[IoSlice::new(b"early")], &mut records);
    assert_eq!(sent.unwrap(), 0);
    client.close(&mut records);
    assert!(records.is_empty());
}

#[test]
fn keys_that_the_peer_changes_are_followed() {
    let settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    let mut config = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(super::pair::Trusting))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    let name = "a".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(config.into(), name).unwrap();
    let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
    let first = written(&mut client);
    let Ok(crate::Accepting::Whole(accepted)) = crate::Acceptor::new().accept(&first, &mut out)
    else {
        panic!("a whole message");
    };
    let (mut session, _) = accepted
        .choose((&server(&settings), Inside::Usual), &mut plain, &mut out)
        .unwrap();
    for round in 0..5 {
        client.read_tls(&mut &out.split()[..]).unwrap();
        client.process_new_packets().unwrap();
        if round > 0 {
            client.refresh_traffic_keys().unwrap();
            let text = read(&mut client);
            assert_eq!(text, format!("answer {}", round - 1).into_bytes());
        }
        std::io::Write::write_all(&mut client.writer(), b"question").unwrap();
        let mut records = written(&mut client);
        session.receive(&mut records, &mut plain, &mut out).unwrap();
        assert_eq!(&plain.split()[..], b"question");
        let answer = format!("answer {round}");
        session
            .send(&[IoSlice::new(answer.as_bytes())], &mut out)
            .unwrap();
    }
}

fn written(client: &mut rustls::ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn read(client: &mut rustls::ClientConnection) -> Vec<u8> {
    let mut text = vec![0; 100];
    let len = std::io::Read::read(&mut client.reader(), &mut text).unwrap();
    text.truncate(len);
    text
}
