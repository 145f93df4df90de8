//! Connections that an upstream switches to another protocol: bytes go both ways, and only for
//! clients that asked.

use anyhow::{Context, Result};
use millpond_testkit::{Client, Kind, Proxy, Request};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=10m;
    server {
        listen 127.0.0.1:%%PORT%%;
        access_log %%DIR%%/access.log;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection upgrade;
        location / { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /cached {
            proxy_pass http://127.0.0.1:%%PORT2%%;
            proxy_cache z;
            proxy_cache_valid any 1h;
        }
        location /short { proxy_pass http://127.0.0.1:%%PORT2%%; proxy_read_timeout 200ms; }
    }";

const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\nhello ";
const LONG: Duration = Duration::from_secs(10);

/// An upstream that switches `connections` connections and then echoes what it gets.
fn echo(connections: usize) -> Result<(u16, JoinHandle<Result<()>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let thread = thread::spawn(move || {
        for _ in 0..connections {
            let (mut peer, _) = listener.accept()?;
            read_head(&mut peer)?;
            peer.write_all(SWITCH)?;
            let mut echoed = peer.try_clone()?;
            std::io::copy(&mut peer, &mut echoed)?;
        }
        Ok(())
    });
    Ok((port, thread))
}

fn read_head(peer: &mut TcpStream) -> Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        peer.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(())
}

fn start(connections: usize) -> Result<(Proxy, JoinHandle<Result<()>>)> {
    let (port, upstream) = echo(connections)?;
    let conf = CONF.replace("%%PORT2%%", &port.to_string());
    Ok((Proxy::new(Kind::Millpond, &conf).start()?, upstream))
}

/// Opens a tunnel; `ahead` is sent in one piece with the request.
fn open(port: u16, path: &str, ahead: &[u8]) -> Result<(TcpStream, Vec<u8>)> {
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    client.set_read_timeout(Some(LONG))?;
    let mut request = Request::get(path)
        .header("Connection", "upgrade")
        .header("Upgrade", "echo")
        .encode();
    request.extend_from_slice(ahead);
    client.write_all(&request)?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).context("head")?;
        head.push(byte[0]);
    }
    Ok((client, head))
}

fn expect(client: &mut TcpStream, wanted: &[u8]) -> Result<()> {
    let mut got = vec![0; wanted.len()];
    client.read_exact(&mut got)?;
    assert!(got == wanted, "{:?}", String::from_utf8_lossy(&got));
    Ok(())
}

/// Both ways, what was sent ahead of the answer included, and much more than any buffer holds.
#[test]
fn bytes_go_both_ways_after_a_101() -> Result<()> {
    for path in ["/plain", "/cached"] {
        let (proxy, upstream) = start(1)?;
        let (mut client, head) = open(proxy.port(), path, b"ahead ")?;
        let head = String::from_utf8(head)?;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("\r\nConnection: upgrade\r\n"), "{head}");
        assert!(head.contains("\r\nUpgrade: echo\r\n"), "{head}");
        assert!(!head.contains("Transfer-Encoding"), "{head}");
        expect(&mut client, b"hello ahead ")?;
        let much: Vec<u8> = (0..4_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut writer = client.try_clone()?;
        let sent = much.clone();
        let writing = thread::spawn(move || writer.write_all(&sent));
        expect(&mut client, &much)?;
        writing.join().expect("the writer does not panic")?;
        // The client's end is the upstream's end.
        drop(client);
        upstream.join().expect("the upstream does not panic")?;
    }
    Ok(())
}

/// The end of the upstream is the client's end, after all that was sent.
#[test]
fn the_upstreams_end_ends_the_tunnel() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let conf = CONF.replace("%%PORT2%%", &listener.local_addr()?.port().to_string());
    let proxy = Proxy::new(Kind::Millpond, &conf).start()?;
    let upstream = thread::spawn(move || -> Result<()> {
        let (mut peer, _) = listener.accept()?;
        read_head(&mut peer)?;
        peer.write_all(SWITCH)?;
        Ok(peer.write_all(b"and goodbye")?)
    });
    let (mut client, _) = open(proxy.port(), "/", b"")?;
    let mut all = String::new();
    client.read_to_string(&mut all)?;
    assert_eq!(all, "hello and goodbye");
    upstream.join().expect("the upstream does not panic")?;
    Ok(())
}

/// A silent tunnel ends after `proxy_read_timeout`.
#[test]
fn a_silent_tunnel_ends() -> Result<()> {
    let (proxy, upstream) = start(1)?;
    let (mut client, _) = open(proxy.port(), "/short", b"")?;
    let mut all = String::new();
    client.read_to_string(&mut all)?;
    assert_eq!(all, "hello ");
    upstream.join().expect("the upstream does not panic")?;
    Ok(())
}

/// A client that did not ask for another protocol is not given one.
#[test]
fn an_unasked_switch_is_an_error() -> Result<()> {
    let (proxy, upstream) = start(1)?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/")?.status, 502);
    upstream.join().expect("the upstream does not panic")?;
    Ok(())
}

/// A switched answer is nobody else's: the next client gets a tunnel of its own.
#[test]
fn a_switched_answer_is_not_stored() -> Result<()> {
    let (proxy, upstream) = start(2)?;
    for text in [&b"one"[..], b"two"] {
        let (mut client, head) = open(proxy.port(), "/cached", text)?;
        assert!(head.starts_with(b"HTTP/1.1 101 "));
        expect(&mut client, &[b"hello ", text].concat())?;
    }
    upstream.join().expect("the upstream does not panic")?;
    Ok(())
}
