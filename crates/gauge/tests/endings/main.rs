//! Ends of connections and streams: which of them let a request be sent again without a word, and
//! which are faults. The rules are those of RFC 9112, section 9.3.1, and RFC 9113, sections 6.8
//! and 8.7; each server answers the first request and does one thing at the second.

mod frames;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use millpond_gauge::client::{Protocol, Sessions, Target, Tls, Trust};
use millpond_gauge::load::{self, Load, Shared};
use millpond_gauge::module::{Kind, Knobs, Module};
use millpond_gauge::report::{Report, table};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::time::Duration;

/// Thing that a server does when it is asked the second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Closes the connection.
    Closes,
    /// GOAWAY with this code and the first stream as the last one, and closes.
    GoesAway(u32),
    /// RST_STREAM with this code, and goes on.
    Resets(u32),
    /// DATA on stream 0, which no client may take.
    Breaks,
    /// A record that no key opens (TLS).
    Garbles,
    /// Answers, and goes away with this code behind the answer.
    AnswersAndGoesAway(u32),
    /// Half of a body that ends with the connection, which is closed without close_notify (TLS).
    Cuts,
}

/// Codes of RFC 9113, section 7.
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Cover of the bytes on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// Clear text.
    None,
    /// TLS.
    Tls,
}

/// Report of two requests by one user.
fn asked_twice(address: SocketAddr, protocol: Protocol, cover: Cover) -> Report {
    let tls = || Tls::new(&Trust::Anyone, "gauge.test", Sessions::Resumed).expect("TLS");
    let target = Target {
        protocol,
        tls: (cover == Cover::Tls).then(|| Arc::new(tls())),
        timeout: Duration::from_secs(10),
        ..Target::new(address, "gauge.test".to_owned())
    };
    let load = Load {
        users: 1,
        threads: 1,
        requests: Some(2),
        time: None,
        rate: None,
        seed: 1,
    };
    let knobs = Knobs {
        size: 0,
        objects: 1,
        ttl: Duration::from_secs(1),
        alpha: 1.0,
        behind: Duration::from_secs(1),
        asks: 1,
        repeats: 1,
        inactive: Duration::ZERO,
        api: String::new(),
        zone: String::new(),
        paths: Vec::new(),
        against: None,
        purge_method: "PURGE".to_owned(),
        run: "test".to_owned(),
    };
    let shared = Arc::new(Shared::new(target, None, load));
    let module = Arc::new(Module::new(Kind::Placement, knobs));
    let record = load::run(&shared, &module).expect("run");
    Report::new(&module, &shared, &record, shared.began().elapsed())
}

/// Serves connections by a function, until the process ends; the number is the connection's.
fn serve(mut with: impl FnMut(TcpStream, usize) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.expect("a connection");
            let _ = stream.set_nodelay(true);
            with(stream, number);
        }
    });
    address
}

/// Requests that were sent again, and kinds of faults.
fn found(report: &Report) -> (u64, Vec<&'static str>) {
    let kinds = report.faults.keys().copied().collect();
    (report.connections.repeated, kinds)
}

#[test]
fn endings_of_http2_are_repeated_or_told() {
    for (ending, repeated, faults) in [
        (Ending::Closes, 1, vec![]),
        (Ending::GoesAway(NO_ERROR), 1, vec![]),
        (Ending::GoesAway(ENHANCE_YOUR_CALM), 0, vec!["http2"]),
        (Ending::GoesAway(INTERNAL_ERROR), 0, vec!["http2"]),
        (Ending::Resets(REFUSED_STREAM), 1, vec![]),
        (Ending::Resets(INTERNAL_ERROR), 0, vec!["http2"]),
        (Ending::Breaks, 0, vec!["http2"]),
        (Ending::AnswersAndGoesAway(NO_ERROR), 0, vec![]),
        (Ending::AnswersAndGoesAway(INTERNAL_ERROR), 0, vec!["http2"]),
    ] {
        let address = serve(move |stream, number| frames::serve(stream, number, ending));
        let report = asked_twice(address, Protocol::Http2, Cover::None);
        assert_eq!(
            found(&report),
            (repeated, faults.clone()),
            "{ending:?}\n{}",
            table(&report)
        );
        let count: u64 = report.faults.values().map(|faults| faults.count).sum();
        assert_eq!(count, faults.len() as u64, "{ending:?}: each is told once");
    }
}

#[test]
fn what_tls_finds_wrong_is_a_fault_in_both_protocols() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for (ending, repeated, faults) in [
            (Ending::Closes, 1, vec![]),
            (Ending::Garbles, 0, vec!["tls"]),
        ] {
            let config = server_config(protocol);
            let address = serve(move |stream, number| {
                let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
                let stream = StreamOwned::new(session, stream);
                match protocol {
                    Protocol::Http1 => serve_http1(stream, number, ending),
                    Protocol::Http2 => frames::serve(stream, number, ending),
                }
            });
            let report = asked_twice(address, protocol, Cover::Tls);
            let text = table(&report);
            assert_eq!(
                found(&report),
                (repeated, faults),
                "{protocol} {ending:?}\n{text}"
            );
        }
    }
}

#[test]
fn body_that_ends_with_a_connection_is_whole_only_after_close_notify() {
    let config = server_config(Protocol::Http1);
    let address = serve(move |stream, number| {
        let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
        serve_http1(StreamOwned::new(session, stream), number, Ending::Cuts);
    });
    let report = asked_twice(address, Protocol::Http1, Cover::Tls);
    assert_eq!(found(&report), (0, vec!["truncated"]), "{}", table(&report));
}

fn server_config(protocol: Protocol) -> Arc<ServerConfig> {
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    let made = rcgen::generate_simple_self_signed(vec!["gauge.test".to_owned()]).expect("made");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .expect("a certificate");
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    Arc::new(config)
}

/// Stream over which bytes can also be sent past TLS.
trait Raw: Read + Write {
    /// Sends bytes on the socket itself.
    fn write_raw(&mut self, bytes: &[u8]) -> std::io::Result<()>;
}

impl Raw for TcpStream {
    fn write_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.write_all(bytes)
    }
}

impl Raw for StreamOwned<ServerConnection, TcpStream> {
    fn write_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.sock.write_all(bytes)
    }
}

/// A record of application data that no key opens.
const GARBLED: [u8; 37] = {
    let mut record = [b'x'; 37];
    record[0] = 0x17;
    record[1] = 3;
    record[2] = 3;
    record[3] = 0;
    record[4] = 32;
    record
};

/// Answers in HTTP/1.1, and ends the first connection as it was told.
fn serve_http1(mut stream: impl Raw, number: usize, ending: Ending) {
    for asked in 0.. {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let is_second = number == 0 && asked == 1;
        match ending {
            Ending::Closes if is_second => return,
            Ending::Garbles if is_second => {
                stream.write_raw(&GARBLED).expect("sent");
                // Until the client goes.
                let _ = stream.read(&mut byte);
                return;
            }
            Ending::Cuts if is_second => {
                let head = b"HTTP/1.1 200 OK\r\nX-Generation: 0\r\n\r\n";
                stream.write_all(head).expect("sent");
                stream.flush().expect("sent");
                return;
            }
            _ => {}
        }
        let head = b"HTTP/1.1 200 OK\r\nX-Generation: 0\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(head).expect("sent");
        stream.flush().expect("sent");
    }
}
