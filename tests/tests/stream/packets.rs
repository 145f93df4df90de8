//! `listen … udp`: sessions of packets.

use super::{LONG, SHORT, kinds, lines, start};
use anyhow::{Context, Result};
use millpond_testkit::{Kind, LogCheck, Proxy};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A peer of UDP that answers each packet with some.
struct Peer {
    address: String,
    is_over: Arc<AtomicBool>,
}

impl Peer {
    /// A peer whose answers are made of a packet and the sender's port.
    fn new(answer: impl Fn(&str, u16) -> Vec<String> + Send + 'static) -> Result<Peer> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(SHORT))?;
        let address = socket.local_addr()?.to_string();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut room = [0; 2048];
            while !ends.load(Ordering::Relaxed) {
                let Ok((count, sender)) = socket.recv_from(&mut room) else {
                    continue;
                };
                let text = String::from_utf8_lossy(&room[..count]).into_owned();
                for text in answer(&text, sender.port()) {
                    let _ = socket.send_to(text.as_bytes(), sender);
                }
            }
        });
        Ok(Peer { address, is_over })
    }

    /// A peer that answers with what it gets and the port that it came from.
    fn echo() -> Result<Peer> {
        Peer::new(|text, port| vec![format!("{text} {port}")])
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn client(port: u16) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(LONG))?;
    Ok(socket)
}

fn read(socket: &UdpSocket) -> Result<String> {
    let mut room = [0; 2048];
    let count = socket.recv(&mut room).context("a packet")?;
    Ok(String::from_utf8_lossy(&room[..count]).into_owned())
}

fn ask(socket: &UdpSocket, text: &str) -> Result<String> {
    socket.send(text.as_bytes())?;
    read(socket)
}

#[test]
fn session_keeps_its_socket_for_as_many_packets_as_it_may_have() -> Result<()> {
    let peer = Peer::echo()?;
    for kind in kinds() {
        let conf = "server { listen 127.0.0.1:%%PORT_OPEN%% udp; proxy_pass %%PEER%%; } \
                    server { listen 127.0.0.1:%%PORT_TWO%% udp; proxy_pass %%PEER%%; \
                             proxy_requests 2; proxy_timeout 20s; }";
        let values = [("PEER", peer.address.as_str())];
        let proxy = start(kind, conf, &values)?;
        let [open, two] = ["PORT_OPEN", "PORT_TWO"].map(|name| proxy.named_port(name));
        let (first, other) = (client(open)?, client(open)?);
        let answer = ask(&first, "a")?;
        assert_ne!(ask(&other, "a")?, answer, "{kind:?}");
        for _ in 0..3 {
            assert_eq!(ask(&first, "a")?, answer, "{kind:?}");
        }
        let counted = client(two)?;
        let answers: Vec<String> = (0..4).map(|_| ask(&counted, "a")).collect::<Result<_>>()?;
        assert_eq!(answers[0], answers[1], "{kind:?}");
        assert_ne!(answers[1], answers[2], "{kind:?}");
        assert_eq!(answers[2], answers[3], "{kind:?}");
    }
    Ok(())
}

#[test]
fn session_ends_behind_the_packets_that_its_peer_owes() -> Result<()> {
    let peer = Peer::new(|text, port| match text {
        "silence" => Vec::new(),
        "" => vec![String::new(), "empty".to_string()],
        text => vec![format!("{text}1 {port}"), format!("{text}2 {port}")],
    })?;
    for kind in kinds() {
        let conf = "log_format facts '$server_port $protocol $status $bytes_received/$bytes_sent \
                                      $upstream_bytes_sent/$upstream_bytes_received'; \
                    access_log %%DIR%%/facts.log facts; \
                    error_log %%DIR%%/info.log info; \
                    server { listen 127.0.0.1:%%PORT_PAIRS%% udp; proxy_pass %%PEER%%; \
                             proxy_responses 2; proxy_timeout 400ms; } \
                    server { listen 127.0.0.1:%%PORT_NONE%% udp; proxy_pass %%PEER%%; \
                             proxy_responses 0; }";
        let values = [("PEER", peer.address.as_str())];
        let proxy = start(kind, conf, &values)?;
        let [pairs, none] = ["PORT_PAIRS", "PORT_NONE"].map(|name| proxy.named_port(name));
        let asking = client(pairs)?;
        let (first, second) = (ask(&asking, "a")?, read(&asking)?);
        assert!(
            first.starts_with("a1") && second.starts_with("a2"),
            "{kind:?} {first} {second}"
        );
        lines(
            &proxy,
            "info.log",
            "udp done, packets from/to client:1/2",
            1,
        )?;
        // The next packet is a session of its own.
        assert_ne!(ask(&asking, "a")?, first, "{kind:?}");
        read(&asking)?;
        // Packets without a byte are packets.
        assert_eq!(
            (ask(&asking, "")?, read(&asking)?),
            (String::new(), "empty".into())
        );
        client(pairs)?.send(b"silence")?;
        let failed = format!("{pairs} UDP 502 7/0 7/0");
        lines(&proxy, "facts.log", &failed, 1)?;
        let sent = client(none)?;
        sent.send(b"log line")?;
        sent.send(b"log line")?;
        lines(&proxy, "facts.log", &format!("{none} UDP 200 8/0 8/0"), 2)?;
    }
    Ok(())
}

#[test]
fn text_is_returned_to_the_address_that_asked_and_rules_hold() -> Result<()> {
    for kind in kinds() {
        let conf = "log_format s '$server_port=$status'; access_log %%DIR%%/s.log s; \
                    server { listen %%PORT_WILD%% udp; return '$protocol $server_addr'; } \
                    server { listen 127.0.0.1:%%PORT_SHUT%% udp; deny all; return never; }";
        let proxy = start(kind, conf, &[])?;
        let [wild, shut] = ["PORT_WILD", "PORT_SHUT"].map(|name| proxy.named_port(name));
        let asking = UdpSocket::bind("127.0.0.1:0")?;
        asking.connect(("127.0.0.2", wild))?;
        asking.set_read_timeout(Some(LONG))?;
        for _ in 0..2 {
            assert_eq!(ask(&asking, "?")?, "UDP 127.0.0.2", "{kind:?}");
        }
        client(shut)?.send(b"?")?;
        lines(&proxy, "s.log", &format!("{shut}=403"), 1)?;
    }
    Ok(())
}

#[test]
fn peer_that_is_away_fails_and_the_next_session_goes_elsewhere() -> Result<()> {
    let peer = Peer::echo()?;
    let away = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let conf = "upstream two { server %%AWAY%%; server %%PEER%%; } \
                log_format s 'status=$status'; access_log %%DIR%%/s.log s; \
                server { listen 127.0.0.1:%%PORT_OWN%% udp; proxy_pass two; proxy_responses 1; }";
    let values = [("PEER", peer.address.as_str()), ("AWAY", away.as_str())];
    let proxy = start(Kind::Millpond, conf, &values)?;
    let own = proxy.named_port("PORT_OWN");
    client(own)?.send(b"a")?;
    lines(&proxy, "s.log", "status=502", 1)?;
    for _ in 0..4 {
        ask(&client(own)?, "b")?;
    }
    lines(&proxy, "s.log", "status=200", 4)?;
    Ok(())
}

#[test]
fn sessions_are_bounded_and_their_places_come_back() -> Result<()> {
    let peer = Peer::echo()?;
    let conf = "%%GLOBALS%%\nevents { worker_connections 16; }\nstream { \
                server { listen 127.0.0.1:%%PORT_OWN%% udp; proxy_pass %%PEER%%; \
                         proxy_responses 3; proxy_timeout 1s; } }";
    let builder = Proxy::new(Kind::Millpond, conf).value("PEER", &peer.address);
    let proxy = builder.log_check(LogCheck::Off).start()?;
    let own = proxy.named_port("PORT_OWN");
    let clients: Vec<UdpSocket> = (0..64).map(|_| client(own)).collect::<Result<_>>()?;
    for socket in &clients {
        socket.send(b"a")?;
    }
    lines(&proxy, "error.log", "worker_connections are not enough", 1)?;
    let last = client(own)?;
    last.set_read_timeout(Some(SHORT))?;
    super::poll(|| ask(&last, "late").is_ok()).context("a place")?;
    Ok(())
}
