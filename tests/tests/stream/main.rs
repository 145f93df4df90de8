//! `stream {}`: sessions of TCP and of UDP, passed on as they are. Each scenario runs on nginx,
//! too, where that is installed, and both must do the same.

mod packets;
mod script;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, Proxy, ProxyBuilder, binary};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time after which a test has failed.
const LONG: Duration = Duration::from_secs(20);

/// The time after which a peer that says nothing is taken to be quiet.
const SHORT: Duration = Duration::from_millis(300);

/// The module that nginx has in a file of its own.
const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// The servers that a scenario runs on.
fn kinds() -> Vec<Kind> {
    let has_nginx = binary(Kind::Nginx).is_some() && Path::new(MODULE).exists();
    let nginx = has_nginx.then_some(Kind::Nginx);
    std::iter::once(Kind::Millpond).chain(nginx).collect()
}

/// A server with the inside of a `stream` block.
fn start(kind: Kind, inside: &str, values: &[(&str, &str)]) -> Result<Proxy> {
    start_whole(kind, &format!("stream {{\n{inside}\n}}\n"), values)
}

/// A server with everything behind the `events` block.
fn start_whole(kind: Kind, text: &str, values: &[(&str, &str)]) -> Result<Proxy> {
    let text = format!("%%GLOBALS%%\nevents {{}}\n{text}");
    let builder = Proxy::new(kind, &text);
    let with = |builder: ProxyBuilder, (name, value): &(&str, &str)| builder.value(name, value);
    values.iter().fold(builder, with).start()
}

/// A peer that serves each connection with a function.
struct Peer {
    address: String,
}

impl Peer {
    fn new(serve: impl Fn(TcpStream) -> Result<()> + Send + Sync + 'static) -> Result<Peer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Ok(Peer { address })
    }

    /// A peer that sends back what it gets, with its name before it.
    fn echo(name: &'static str) -> Result<Peer> {
        Peer::new(move |mut stream| {
            stream.write_all(name.as_bytes())?;
            let mut from = stream.try_clone()?;
            std::io::copy(&mut from, &mut stream)?;
            Ok(())
        })
    }

    /// A peer that reads to the end and then tells how much that was.
    fn count() -> Result<Peer> {
        Peer::new(|mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            stream.write_all(format!("{} bytes", all.len()).as_bytes())?;
            Ok(())
        })
    }
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LONG))?;
    Ok(stream)
}

/// All that comes until the end; a reset is an end.
fn read_all(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let mut buf = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buf) {
        all.extend_from_slice(&buf[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// The answer to a session that says something, and ends its direction when it has that much back.
fn say(port: u16, text: &str, len: usize) -> Result<String> {
    let mut stream = connect(port)?;
    stream.write_all(text.as_bytes())?;
    let mut back = vec![0; len];
    stream.read_exact(&mut back)?;
    stream.shutdown(Shutdown::Write)?;
    Ok(String::from_utf8(back)? + &read_all(&mut stream))
}

/// Waits until something holds.
fn poll(mut holds: impl FnMut() -> bool) -> Option<()> {
    Deadline::after(LONG).poll(|| holds().then_some(()))
}

/// The lines of a log that hold a word, once there are `count`.
fn lines(proxy: &Proxy, log: &str, word: &str, count: usize) -> Result<Vec<String>> {
    let path = proxy.dir().join(log);
    let found = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains(word));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    poll(|| found().len() >= count).context("lines of the log")?;
    Ok(found())
}

#[test]
fn bytes_go_both_ways_whole() -> Result<()> {
    let peer = Peer::echo("")?;
    for kind in kinds() {
        let conf = "server { listen 127.0.0.1:%%PORT%%; proxy_pass %%PEER%%; \
                    proxy_buffer_size 4k; }";
        let proxy = start(kind, conf, &[("PEER", &peer.address)])?;
        let sent: Vec<u8> = (0..3_000_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        let stream = connect(proxy.port())?;
        let writer: JoinHandle<Result<()>> = {
            let (mut stream, sent) = (stream.try_clone()?, sent.clone());
            thread::spawn(move || Ok(stream.write_all(&sent)?))
        };
        let mut back = vec![0; sent.len()];
        (&stream).read_exact(&mut back)?;
        writer.join().expect("the writer ends")?;
        assert!(back == sent, "{kind:?}");
    }
    Ok(())
}

/// nginx: `ngx_stream_proxy_test_finalize`.
#[test]
fn end_of_one_side_ends_the_session_unless_it_may_half_close() -> Result<()> {
    let peer = Peer::count()?;
    for kind in kinds() {
        let conf = "server { listen 127.0.0.1:%%PORT%%; proxy_pass %%PEER%%; } \
                    server { listen 127.0.0.1:%%PORT_HALF%%; proxy_pass %%PEER%%; \
                             proxy_half_close on; }";
        let proxy = start(kind, conf, &[("PEER", &peer.address)])?;
        for (name, expected) in [("PORT", ""), ("PORT_HALF", "5 bytes")] {
            let mut stream = connect(proxy.named_port(name))?;
            stream.write_all(b"hello")?;
            stream.shutdown(Shutdown::Write)?;
            assert_eq!(read_all(&mut stream), expected, "{kind:?} {name}");
        }
    }
    Ok(())
}

#[test]
fn peers_take_turns_and_the_next_one_is_tried() -> Result<()> {
    let (a, b) = (Peer::echo("a")?, Peer::echo("b")?);
    let dead = millpond_testkit::free_port()?.to_string();
    for kind in kinds() {
        let conf = "log_format peers '$status tried=$upstream_addr connect=$upstream_connect_time'; \
                    access_log %%DIR%%/peers.log peers; \
                    upstream turns { server %%A%%; server %%B%%; } \
                    upstream next { server 127.0.0.1:%%DEAD%%; server %%A%%; } \
                    upstream spare { server 127.0.0.1:%%DEAD%%; server %%B%% backup; } \
                    server { listen 127.0.0.1:%%PORT%%; proxy_pass turns; } \
                    server { listen 127.0.0.1:%%PORT_NEXT%%; proxy_pass next; } \
                    server { listen 127.0.0.1:%%PORT_SPARE%%; proxy_pass spare; } \
                    server { listen 127.0.0.1:%%PORT_NONE%%; proxy_pass next; \
                             proxy_next_upstream off; }";
        let values = [
            ("A", a.address.as_str()),
            ("B", b.address.as_str()),
            ("DEAD", dead.as_str()),
        ];
        let proxy = start(kind, conf, &values)?;
        let mut said = Vec::new();
        for name in ["PORT", "PORT", "PORT_SPARE", "PORT_NEXT"] {
            said.push(say(proxy.named_port(name), "x", 2)?);
        }
        let mut turns = said[..2].to_vec();
        turns.sort();
        assert_eq!(turns, ["ax", "bx"], "{kind:?}");
        assert_eq!(said[2..], ["bx", "ax"], "{kind:?}");
        let tried = format!("tried=127.0.0.1:{dead}, {}", b.address);
        let line = &lines(&proxy, "peers.log", &tried, 1)?[0];
        assert!(line.starts_with("200 "), "{kind:?} {line}");
        assert!(line.contains("connect=-, "), "{kind:?} {line}");
    }
    Ok(())
}

#[test]
fn variables_choose_the_peer_and_tell_of_the_session() -> Result<()> {
    let (a, b) = (Peer::echo("a")?, Peer::echo("b")?);
    for kind in kinds() {
        let conf = "map $server_port $where { %%PORT%% %%A%%; default named; } \
                    upstream named { server %%B%%; } \
                    log_format facts 'to=$where $protocol $status in=$bytes_received \
                                 out=$bytes_sent \
                                 $upstream_bytes_sent/$upstream_bytes_received \
                                 from=$remote_addr'; \
                    access_log %%DIR%%/facts.log facts; \
                    server { listen 127.0.0.1:%%PORT%%; proxy_pass $where; } \
                    server { listen 127.0.0.1:%%PORT_B%%; set $target $where; proxy_pass $target; }";
        let values = [("A", a.address.as_str()), ("B", b.address.as_str())];
        let proxy = start(kind, conf, &values)?;
        assert_eq!(say(proxy.port(), "hello", 6)?, "ahello", "{kind:?}");
        assert_eq!(
            say(proxy.named_port("PORT_B"), "hello", 6)?,
            "bhello",
            "{kind:?}"
        );
        let expected = "TCP 200 in=5 out=6 5/6 from=127.0.0.1";
        let found = lines(&proxy, "facts.log", expected, 2)?;
        assert!(
            found.iter().any(|line| line.starts_with("to=named ")),
            "{kind:?}"
        );
    }
    Ok(())
}

#[test]
fn text_is_returned_and_rules_keep_clients_out() -> Result<()> {
    for kind in kinds() {
        let conf = "geo $place { default out; 127.0.0.0/8 home; } \
                    log_format s '$server_port=$status'; access_log %%DIR%%/s.log s; \
                    server { listen 127.0.0.1:%%PORT%%; return \"at $place\"; } \
                    server { listen 127.0.0.1:%%PORT_SHUT%%; deny 127.0.0.1; allow all; \
                             return never; }";
        let proxy = start(kind, conf, &[])?;
        assert_eq!(read_all(&mut connect(proxy.port())?), "at home", "{kind:?}");
        let shut = proxy.named_port("PORT_SHUT");
        assert_eq!(read_all(&mut connect(shut)?), "", "{kind:?}");
        lines(&proxy, "s.log", &format!("{shut}=403"), 1)?;
        lines(&proxy, "s.log", &format!("{}=200", proxy.port()), 1)?;
        lines(&proxy, "error.log", "access forbidden by rule", 1)?;
    }
    Ok(())
}

#[test]
fn connections_of_a_key_are_bounded() -> Result<()> {
    let peer = Peer::echo("+")?;
    for kind in kinds() {
        let conf = "limit_conn_zone $binary_remote_addr zone=one:1m; \
                    server { listen 127.0.0.1:%%PORT%%; limit_conn one 1; proxy_pass %%PEER%%; }";
        let proxy = start(kind, conf, &[("PEER", &peer.address)])?;
        let mut byte = [0];
        let mut first = poll_connected(proxy.port())?;
        // The second one is refused as long as the first one is there.
        assert_eq!(read_all(&mut connect(proxy.port())?), "", "{kind:?}");
        first.write_all(b"x")?;
        first.read_exact(&mut byte)?;
        drop(first);
        poll_connected(proxy.port())?;
    }
    Ok(())
}

/// A session that has its peer's first byte: those before it may still be ending.
fn poll_connected(port: u16) -> Result<TcpStream> {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        let mut stream = connect(port)?;
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_ok() {
            return Ok(stream);
        }
    }
    anyhow::bail!("no session was let in")
}

#[test]
fn quiet_sessions_end() -> Result<()> {
    let peer = Peer::echo("+")?;
    for kind in kinds() {
        let conf = "server { listen 127.0.0.1:%%PORT%%; proxy_timeout 300ms; \
                             proxy_pass %%PEER%%; }";
        let proxy = start(kind, conf, &[("PEER", &peer.address)])?;
        let began = Instant::now();
        assert_eq!(read_all(&mut connect(proxy.port())?), "+", "{kind:?}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(250), "{kind:?} {took:?}");
    }
    Ok(())
}

/// HAProxy, doc/proxy-protocol.txt, version 1.
#[test]
fn proxy_protocol_is_read_and_written() -> Result<()> {
    let peer = Peer::echo("")?;
    for kind in kinds() {
        let conf = "set_real_ip_from 127.0.0.1; \
                    log_format who '$remote_addr/$realip_remote_addr/$proxy_protocol_port'; \
                    access_log %%DIR%%/who.log who; \
                    server { listen 127.0.0.1:%%PORT%% proxy_protocol; proxy_protocol on; \
                             proxy_pass %%PEER%%; }";
        let proxy = start(kind, conf, &[("PEER", &peer.address)])?;
        let told = "PROXY TCP4 192.0.2.7 192.0.2.8 1234 5678\r\nhello";
        let expected = format!(
            "PROXY TCP4 192.0.2.7 127.0.0.1 1234 {}\r\nhello",
            proxy.port()
        );
        assert_eq!(
            say(proxy.port(), told, expected.len())?,
            expected,
            "{kind:?}"
        );
        lines(&proxy, "who.log", "192.0.2.7/127.0.0.1/1234", 1)?;
        let mut broken = connect(proxy.port())?;
        broken.write_all(b"no header of the protocol\r\n")?;
        assert_eq!(read_all(&mut broken), "", "{kind:?}");
    }
    Ok(())
}

/// The first bytes of a client of TLS that asks for a name.
fn client_hello(name: &'static str) -> Result<Vec<u8>> {
    let roots = rustls::RootCertStore::empty();
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut client = rustls::ClientConnection::new(Arc::new(config), name.try_into()?)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

/// RFC 6066 §3: the name stands in the first message, which goes on unchanged.
#[test]
fn name_of_a_handshake_chooses_the_peer() -> Result<()> {
    let (a, b) = (Peer::echo("a")?, Peer::echo("b")?);
    for kind in kinds() {
        let conf = "map $ssl_preread_server_name $peer { a.example %%A%%; default %%B%%; } \
                    log_format tls '$ssl_preread_server_name|$ssl_preread_alpn_protocols|\
                                    $ssl_preread_protocol|$status'; \
                    access_log %%DIR%%/tls.log tls; \
                    server { listen 127.0.0.1:%%PORT%%; ssl_preread on; preread_timeout 300ms; \
                             proxy_pass $peer; }";
        let values = [("A", a.address.as_str()), ("B", b.address.as_str())];
        let proxy = start(kind, conf, &values)?;
        for (name, expected) in [("a.example", b'a'), ("c.example", b'b')] {
            let hello = client_hello(name)?;
            let mut stream = connect(proxy.port())?;
            let (begin, rest) = hello.split_at(7);
            stream.write_all(begin)?;
            stream.write_all(rest)?;
            let mut back = vec![0; hello.len() + 1];
            stream.read_exact(&mut back)?;
            assert_eq!(
                (back[0], &back[1..]),
                (expected, &hello[..]),
                "{kind:?} {name}"
            );
        }
        lines(&proxy, "tls.log", "a.example|h2,http/1.1|TLSv1.3|200", 1)?;
        // What is no handshake goes on at once; who says nothing gets no peer.
        assert_eq!(say(proxy.port(), "plain", 6)?, "bplain", "{kind:?}");
        assert_eq!(read_all(&mut connect(proxy.port())?), "", "{kind:?}");
    }
    Ok(())
}

#[test]
fn session_is_handed_over_to_a_server_of_http() -> Result<()> {
    for kind in kinds() {
        let text = "http { %%HTTP%% server { listen 127.0.0.1:%%PORT_WEB%%; \
                    location / { return 200 \"web $remote_addr\"; } } }\n\
                    stream { server { listen 127.0.0.1:%%PORT%%; pass 127.0.0.1:%%PORT_WEB%%; } }";
        if kind == Kind::Nginx && !nginx_knows_pass() {
            continue;
        }
        let proxy = start_whole(kind, text, &[])?;
        let answer = Client::new(proxy.port()).get("/")?;
        assert_eq!(
            (answer.status, answer.text()),
            (200, "web 127.0.0.1".to_owned()),
            "{kind:?}"
        );
    }
    Ok(())
}

/// True if the nginx that is installed has the module (since 1.25.5).
fn nginx_knows_pass() -> bool {
    let program = binary(Kind::Nginx).expect("nginx is installed");
    let output = std::process::Command::new(program).arg("-v").output();
    let said = output.map(|it| String::from_utf8_lossy(&it.stderr).into_owned());
    let line = said.unwrap_or_default();
    let version = line.trim().rsplit('/').next().unwrap_or_default();
    let mut numbers = version.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next(), numbers.next());
    major.zip(minor).is_some_and(|it| it >= (1, 26))
}

#[test]
fn sessions_outlive_a_reload_and_a_graceful_end() -> Result<()> {
    let peer = Peer::echo("")?;
    let conf = "%%GLOBALS%%\nevents {}\nstream { server { listen 127.0.0.1:%%PORT%%; \
                proxy_pass %%PEER%%; } }";
    let builder = Proxy::new(Kind::Millpond, conf).value("PEER", &peer.address);
    let mut proxy = builder.start()?;
    let mut stream = connect(proxy.port())?;
    let round = |stream: &mut TcpStream| -> Result<()> {
        let mut byte = [0];
        stream.write_all(b"x")?;
        stream.read_exact(&mut byte)?;
        ensure!(byte == *b"x");
        Ok(())
    };
    round(&mut stream)?;
    proxy.set_conf(&conf.replace("proxy_pass %%PEER%%", "return new"))?;
    proxy.reload()?;
    // The old one says nothing.
    let is_new = || {
        let mut byte = [0];
        let stream = connect(proxy.port());
        stream.is_ok_and(|mut stream| {
            let limited = stream.set_read_timeout(Some(SHORT));
            limited.is_ok() && stream.read_exact(&mut byte).is_ok()
        })
    };
    poll(is_new).context("the new configuration")?;
    round(&mut stream)?;
    proxy.signal(Signal::QUIT)?;
    poll(|| connect(proxy.port()).is_err()).context("the end of listening")?;
    round(&mut stream)?;
    drop(stream);
    proxy.quit()
}

/// A certificate for a name, and its key, in PEM.
fn certificate(name: &str) -> Result<[String; 2]> {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()])?;
    Ok([made.cert.pem(), made.signing_key.serialize_pem()])
}

/// RFC 8446: a session is opened here and encrypted again towards its peer, which is verified.
#[test]
fn sessions_are_opened_and_encrypted_again() -> Result<()> {
    let peer = Peer::echo("+")?;
    let [certificate, key] = certificate("peer.example")?;
    for kind in kinds() {
        // Encrypted on the way from the second server to the first.
        let conf = "log_format tls '$ssl_server_name|$status'; \
                    ssl_certificate %%DIR%%/c.pem; ssl_certificate_key %%DIR%%/k.pem; \
                    server { listen 127.0.0.1:%%PORT_TLS%% ssl; access_log %%DIR%%/t.log tls; \
                             proxy_pass %%PEER%%; } \
                    server { listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:%%PORT_TLS%%; \
                             proxy_ssl on; proxy_ssl_server_name on; proxy_ssl_name peer.example; \
                             proxy_ssl_verify on; \
                             proxy_ssl_trusted_certificate %%DIR%%/c.pem; } \
                    server { listen 127.0.0.1:%%PORT_WRONG%%; \
                             proxy_pass 127.0.0.1:%%PORT_TLS%%; \
                             proxy_ssl on; proxy_ssl_name other.example; proxy_ssl_verify on; \
                             proxy_ssl_trusted_certificate %%DIR%%/c.pem; }";
        let text = format!("%%GLOBALS%%\nevents {{}}\nstream {{ {conf} }}\n");
        let proxy = Proxy::new(kind, &text)
            .value("PEER", &peer.address)
            .file("c.pem", &certificate)
            .file("k.pem", &key)
            .start()?;
        assert_eq!(say(proxy.port(), "hello", 6)?, "+hello", "{kind:?}");
        lines(&proxy, "t.log", "peer.example|", 1)?;
        let wrong = proxy.named_port("PORT_WRONG");
        assert_eq!(read_all(&mut connect(wrong)?), "", "{kind:?}");
        let said = "upstream SSL certificate does not match \"other.example\"";
        lines(&proxy, "error.log", said, 1)?;
        let mut plain = connect(proxy.named_port("PORT_TLS"))?;
        plain.write_all(b"no handshake at all")?;
        let _alert = read_all(&mut plain);
        lines(&proxy, "t.log", "|500", 1)?;
    }
    Ok(())
}
