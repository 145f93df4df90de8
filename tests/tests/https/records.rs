//! Records and first messages that no library sends, byte by byte, and the alerts of the RFCs; and
//! floods of what is allowed once.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Kind, LogCheck, Proxy};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::{ClientConfig, ConnectionTrafficSecrets, ContentType, ProtocolVersion};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use super::kit::{Authority, Trusting, WAIT, ask, client_config, encrypted, says};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_certificate rsa.pem;
        ssl_certificate_key rsa.key;
        ssl_certificate ecdsa.pem;
        ssl_certificate_key ecdsa.key;
        return 200 here.;
    }";

fn server(authority: &Authority) -> Result<Proxy> {
    let [ecdsa, ecdsa_key] = authority.sign("a.example")?;
    let [rsa, rsa_key] = authority.sign_rsa("a.example")?;
    Proxy::new(Kind::Millpond, CONF)
        .file("ecdsa.pem", ecdsa)
        .file("ecdsa.key", ecdsa_key)
        .file("rsa.pem", rsa)
        .file("rsa.key", rsa_key)
        .log_check(LogCheck::Off)
        .start()
}

/// A vector of at most 65535 bytes.
fn vector(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes()[..], bytes].concat()
}

fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &vector(bytes)].concat()
}

/// A first message (RFC 8446 §4.1.2), which is right unless it is changed.
#[derive(Clone)]
struct Hello {
    suites: Vec<u16>,
    compressions: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
    /// Bytes behind the extensions.
    more: Vec<u8>,
}

const GROUPS: u16 = 10;
const SCHEMES: u16 = 13;
const ALPN: u16 = 16;
const PSK: u16 = 41;
const VERSIONS: u16 = 43;
const SHARE: u16 = 51;
const RENEGOTIATION: u16 = 0xff01;

impl Hello {
    /// The first message of a client of TLS 1.2.
    fn old() -> Hello {
        Hello {
            suites: vec![0xc02f, 0xc02b],
            compressions: vec![0],
            extensions: vec![
                (GROUPS, vector(&[0, 23])),
                (11, vec![1, 0]),
                (SCHEMES, vector(&[4, 1, 8, 4, 4, 3])),
            ],
            more: Vec::new(),
        }
    }

    /// The same of a client of TLS 1.3 without a share: it is asked for one.
    fn new() -> Hello {
        let mut hello = Hello::old();
        hello.suites = vec![0x1301];
        hello.extensions.push((VERSIONS, vec![2, 3, 4]));
        hello.extensions.push((SHARE, vec![0, 0]));
        hello
    }

    fn suites(mut self, suites: &[u16]) -> Hello {
        self.suites = suites.to_vec();
        self
    }

    fn compressions(mut self, numbers: &[u8]) -> Hello {
        self.compressions = numbers.to_vec();
        self
    }

    fn with(mut self, kind: u16, data: &[u8]) -> Hello {
        self.extensions.push((kind, data.to_vec()));
        self
    }

    fn without(mut self, kind: u16) -> Hello {
        self.extensions.retain(|extension| extension.0 != kind);
        self
    }

    fn more(mut self, bytes: &[u8]) -> Hello {
        self.more = bytes.to_vec();
        self
    }

    fn message(&self) -> Vec<u8> {
        let suites: Vec<u8> = self.suites.iter().flat_map(|it| it.to_be_bytes()).collect();
        let extensions: Vec<u8> = self
            .extensions
            .iter()
            .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &vector(data)].concat())
            .collect();
        let mut body = vec![3, 3];
        body.extend_from_slice(&[9; 32]);
        // A session identifier, as TLS 1.3 has it for devices in between.
        body.push(32);
        body.extend_from_slice(&[8; 32]);
        body.extend_from_slice(&vector(&suites));
        body.push(u8::try_from(self.compressions.len()).unwrap_or_default());
        body.extend_from_slice(&self.compressions);
        body.extend_from_slice(&vector(&extensions));
        body.extend_from_slice(&self.more);
        let len = u32::try_from(body.len()).unwrap_or_default();
        [&[1], &len.to_be_bytes()[1..], &body].concat()
    }

    fn record(&self) -> Vec<u8> {
        record(22, &self.message())
    }
}

/// The first record of what a server says to these bytes: its type and content; none at an end.
fn answer(port: u16, bytes: &[u8]) -> Result<Option<(u8, Vec<u8>)>> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(WAIT))?;
    socket.write_all(bytes)?;
    let mut head = [0; 5];
    match socket.read_exact(&mut head) {
        Err(error)
            if [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&error.kind()) =>
        {
            return Ok(None);
        }
        other => other?,
    }
    let mut content = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    socket.read_exact(&mut content)?;
    Ok(Some((head[0], content)))
}

/// The server still serves.
fn serves(authority: &Authority, server: &Proxy) -> Result<()> {
    let config = client_config(authority, None)?;
    let mut stream = encrypted(&config, server.port(), "a.example")?;
    ask(&mut stream, "GET / HTTP/1.0\r\n\r\n", "here.")?;
    Ok(())
}

const HANDSHAKE: u8 = 22;

/// First bytes, and the alert that answers them.
type Refused = (&'static str, Vec<u8>, u8);

/// Offers that nobody may take.
fn refused_offers() -> Vec<Refused> {
    let (old, new) = (Hello::old, Hello::new);
    vec![
        // RFC 5246 §7.4.1.3, RFC 7465 §2: "handshake_failure".
        ("RC4", old().suites(&[0x0005, 0xc011]).record(), 40),
        ("3DES", old().suites(&[0x000a, 0xc012]).record(), 40),
        ("export, null", old().suites(&[0x0003, 0x0001]).record(), 40),
        ("no suite of TLS 1.3", new().suites(&[0xc02f]).record(), 40),
        // RFC 5746 §3.6: "MUST abort the handshake" where it is not empty.
        (
            "renegotiation of nothing",
            old().with(RENEGOTIATION, &[2, 1, 1]).record(),
            40,
        ),
        // RFC 8446 §4.1.2: "illegal_parameter" where compression is more than nothing.
        ("compression", new().compressions(&[1, 0]).record(), 47),
        // RFC 8446 §4.2.1: "protocol_version" if no version is in common.
        (
            "a version to come",
            new().without(VERSIONS).with(VERSIONS, &[2, 3, 5]).record(),
            70,
        ),
        // RFC 8446 §D.5: "protocol_version" to the form of SSL 3.0, whatever is offered inside.
        (
            "the form of SSL",
            {
                let mut bytes = new().record();
                bytes[9..11].copy_from_slice(&[3, 0]);
                bytes
            },
            70,
        ),
        // RFC 8446 §9.2: "missing_extension".
        ("no schemes", new().without(SCHEMES).record(), 109),
        ("no shares", new().without(SHARE).record(), 109),
        ("no groups", new().without(GROUPS).record(), 109),
    ]
}

/// Shared keys that stand where they may not.
fn refused_keys() -> Vec<Refused> {
    let new = Hello::new;
    vec![
        // RFC 8446 §4.2.11: it has to be the last: "illegal_parameter".
        (
            "an extension behind the shared key",
            new()
                .with(45, &[1, 1])
                .with(
                    PSK,
                    &[0, 7, 0, 1, 7, 0, 0, 0, 0, 0, 33, 32]
                        .iter()
                        .copied()
                        .chain([5; 32])
                        .collect::<Vec<u8>>(),
                )
                .with(21, &[0])
                .record(),
            47,
        ),
        // RFC 8446 §4.2.9: "missing_extension" if a shared key comes without its modes.
        (
            "a shared key without modes",
            new()
                .with(
                    PSK,
                    &[0, 7, 0, 1, 7, 0, 0, 0, 0, 0, 33, 32]
                        .iter()
                        .copied()
                        .chain([5; 32])
                        .collect::<Vec<u8>>(),
                )
                .record(),
            109,
        ),
    ]
}

/// Bytes of another form. What does not begin as a handshake is taken for plain HTTP, as by nginx.
fn refused_forms() -> Vec<Refused> {
    let old = Hello::old;
    let finished = [&[20, 0, 0, 12][..], &[0; 12]].concat();
    vec![
        // RFC 5246 §7.2.2, RFC 8446 §6.2: "decode_error".
        ("bytes behind the extensions", old().more(&[0]).record(), 50),
        (
            "schemes of odd length",
            old()
                .without(SCHEMES)
                .with(SCHEMES, &[0, 3, 4, 1, 8])
                .record(),
            50,
        ),
        (
            "no names of protocols",
            old().with(ALPN, &[0, 0]).record(),
            50,
        ),
        // RFC 5246 §6.2.1, RFC 8446 §5.1: "record_overflow".
        (
            "a record that is too long",
            record(22, &[1; 0x4001])[..5].to_vec(),
            22,
        ),
        // A message that is longer than any is taken; OpenSSL says so from 128 KiB on.
        ("a message that is too long", record(22, &[1, 1, 0, 0]), 47),
        // RFC 8446 §4, §5: "unexpected_message".
        ("the end first", record(22, &finished), 10),
        ("a fragment of nothing", record(22, &[]), 10),
    ]
}

#[test]
fn first_message_that_is_wrong_gets_the_alert_of_the_rfc() -> Result<()> {
    let authority = Authority::new("root")?;
    let server = server(&authority)?;
    let mut wrong = Vec::new();
    let refused = [refused_offers(), refused_keys(), refused_forms()].concat();
    for (name, bytes, alert) in refused {
        let told = answer(server.port(), &bytes);
        if !matches!(&told, Ok(Some((21, content))) if *content == [2, alert]) {
            wrong.push(format!("{name}: {told:?}, not {alert}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    serves(&authority, &server)
}

#[test]
fn first_message_may_come_in_any_pieces() -> Result<()> {
    let authority = Authority::new("root")?;
    let server = server(&authority)?;
    // RFC 8446 §5.1: messages may be cut anywhere, by the byte.
    for hello in [Hello::old(), Hello::new()] {
        let pieces: Vec<u8> = hello
            .message()
            .iter()
            .flat_map(|byte| record(22, &[*byte]))
            .collect();
        let told = answer(server.port(), &pieces)?.context("an answer")?;
        assert_eq!((told.0, told.1[0]), (HANDSHAKE, 2));
    }
    // As long as a record may be, and over several.
    let long = Hello::old().with(21, &vec![0; 0x4000 - 200]);
    let told = answer(server.port(), &long.record())?.context("an answer")?;
    assert_eq!((told.0, told.1[0]), (HANDSHAKE, 2));
    let longer = Hello::old().with(21, &vec![0; 40_000]).message();
    let pieces: Vec<u8> = longer
        .chunks(0x4000)
        .flat_map(|part| record(22, part))
        .collect();
    let told = answer(server.port(), &pieces)?.context("an answer")?;
    assert_eq!((told.0, told.1[0]), (HANDSHAKE, 2));
    Ok(())
}

#[test]
fn server_says_what_renegotiation_and_downgrades_need() -> Result<()> {
    let authority = Authority::new("root")?;
    let server = server(&authority)?;
    let hello_to = |hello: Hello| -> Result<Vec<u8>> {
        let told = answer(server.port(), &hello.record())?.context("an answer")?;
        ensure!((told.0, told.1[0]) == (HANDSHAKE, 2), "{told:?}");
        Ok(told.1)
    };
    let plain = hello_to(Hello::old())?;
    // RFC 8446 §4.1.3: a server of TLS 1.3 that has agreed on less says so.
    assert_eq!(plain.get(6 + 24..6 + 32), Some(&b"DOWNGRD\x01"[..]));
    let has = |told: &[u8]| told.windows(5).any(|part| part == [0xff, 1, 0, 1, 0]);
    // RFC 5746 §3.6: it is answered if it is asked for, in either form, and else it is not sent.
    assert!(!has(&plain));
    assert!(has(&hello_to(Hello::old().with(RENEGOTIATION, &[0]))?));
    assert!(has(&hello_to(Hello::old().suites(&[0xc02f, 0x00ff]))?));
    Ok(())
}

/// A connection of TLS 1.3 after its handshake, whose records are made by hand.
struct Sealer {
    socket: TcpStream,
    encrypter: Box<dyn MessageEncrypter>,
    number: u64,
}

impl Sealer {
    fn connect(port: u16) -> Result<Sealer> {
        let config = open_config()?;
        let stream = encrypted(&config, port, "a.example")?;
        let (number, secrets) = stream.conn.dangerous_extract_secrets()?.tx;
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            anyhow::bail!("another suite");
        };
        let suite = cipher_suite::TLS13_AES_128_GCM_SHA256
            .tls13()
            .context("a suite of TLS 1.3")?;
        Ok(Sealer {
            socket: stream.sock,
            encrypter: suite.aead_alg.encrypter(key, iv),
            number,
        })
    }

    /// The next record.
    fn seal(&mut self, typ: ContentType, bytes: &[u8]) -> Result<Vec<u8>> {
        let message = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(bytes),
        };
        let sealed = self.encrypter.encrypt(message, self.number)?;
        self.number += 1;
        Ok(sealed.encode())
    }

    /// Sends a record again and again, until the other side ends the connection; returns how often.
    fn flood(&mut self, typ: ContentType, bytes: &[u8]) -> Result<usize> {
        for count in 0..FLOOD {
            let record = self.seal(typ, bytes)?;
            if self.socket.write_all(&record).is_err() {
                return Ok(count);
            }
        }
        // All of it fits on the way: is it ended?
        let _ended = self.socket.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error.into()),
            _ => Ok(FLOOD),
        }
    }
}

/// Records of a flood.
const FLOOD: usize = 20_000;

/// Settings of a client whose keys can be had.
fn open_config() -> Result<Arc<ClientConfig>> {
    let mut provider = default_provider();
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let mut config = ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

#[test]
fn floods_end_and_others_are_served() -> Result<()> {
    let authority = Authority::new("root")?;
    let server = server(&authority)?;
    let port = server.port();
    // RFC 8446 §5.1 allows data of no length; nobody needs thousands.
    Sealer::connect(port)?.flood(ContentType::ApplicationData, b"")?;
    serves(&authority, &server)?;
    // RFC 8446 §6.1: user_canceled is only told once.
    Sealer::connect(port)?.flood(ContentType::Alert, &[1, 90])?;
    serves(&authority, &server)?;
    // A message of 16 MiB, piece by piece.
    let mut endless = Sealer::connect(port)?;
    let begin = endless.seal(ContentType::Handshake, &[4, 0xff, 0xff, 0xff])?;
    endless.socket.write_all(&begin)?;
    let count = endless.flood(ContentType::Handshake, &[0; 1024])?;
    assert!(count < FLOOD, "{count} KiB of one message were taken");
    serves(&authority, &server)
}

/// RFC 8446 §4.6.3 lets a client ask for new keys; each time costs an answer and two keys.
#[test]
fn flood_of_new_keys_is_not_answered_one_by_one() -> Result<()> {
    let authority = Authority::new("root")?;
    let server = server(&authority)?;
    let mut stream = encrypted(&open_config()?, server.port(), "a.example")?;
    for _ in 0..1000 {
        stream.conn.refresh_traffic_keys()?;
    }
    let _broken = stream.flush();
    let _ended = stream.sock.shutdown(Shutdown::Write);
    let mut told = Vec::new();
    match stream.sock.read_to_end(&mut told) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(error.into()),
        _ => {}
    }
    // Tickets, at most as many updates as rustls takes in a row, an alert.
    assert!(told.len() < 4096, "{} bytes", told.len());
    serves(&authority, &server)
}

/// RFC 8446 §5.2: no content is longer than 2^14 bytes; §5.4: no alert is empty; §5: a change of
/// ciphers is never encrypted.
#[test]
fn sealed_records_have_bounds() -> Result<()> {
    let authority = Authority::new("root")?;
    let server = server(&authority)?;
    for (typ, bytes, reason) in [
        (
            ContentType::ApplicationData,
            vec![0; 0x4001],
            "encrypted length too long",
        ),
        (ContentType::Alert, Vec::new(), "length mismatch"),
        (
            ContentType::ChangeCipherSpec,
            vec![1],
            "bad change cipher spec",
        ),
    ] {
        let mut sealer = Sealer::connect(server.port())?;
        let sealed = sealer.seal(typ, &bytes)?;
        sealer.socket.write_all(&sealed)?;
        says(&server, reason)?;
        // An end, not an answer.
        match sealer.socket.read_to_end(&mut Vec::new()) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                return Err(error).context(reason);
            }
            _ => {}
        }
    }
    serves(&authority, &server)
}
