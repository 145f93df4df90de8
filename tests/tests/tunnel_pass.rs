//! `tunnel_pass`: CONNECT, and who may have it.

use anyhow::{Context, Result};
use millpond_testkit::{Kind, Proxy, binary};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const CONF: &str = "
    upstream end { server 127.0.0.1:1 max_fails=0; server %%END%%; }
    map $host:$request_port $allowed { %%END%% 1; default 0; }
    log_format ends '$request_method $status $upstream_addr';
    access_log %%DIR%%/access.log ends;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name open.test;
        tunnel_pass;
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shut.test;
        location / { return 200 shut; }
    }
    server {
        listen 127.0.0.1:%%PORT_2%%;
        location / {
            if ($request_method = CONNECT) { tunnel_pass end; break; }
            return 200 page;
        }
    }
    server {
        listen 127.0.0.1:%%PORT_3%%;
        auth_basic closed;
        auth_basic_user_file %%DIR%%/users;
        tunnel_pass end;
        tunnel_next_upstream off;
        location /proxied { proxy_pass http://%%END%%; }
    }
    server {
        listen 127.0.0.1:%%PORT_4%%;
        tunnel_read_timeout 200ms;
        if ($allowed = 0) { return 403; }
        tunnel_pass;
        rewrite ^/$ /proxied;
        location /proxied { proxy_pass http://%%END%%; }
        location /unused { tunnel_pass; }
    }";

/// An end of tunnels that greets, and then echoes what it gets.
fn end() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for peer in listener.incoming() {
            thread::spawn(move || -> Result<()> {
                let mut peer = peer?;
                peer.write_all(b"hello ")?;
                let mut echoed = peer.try_clone()?;
                std::io::copy(&mut peer, &mut echoed)?;
                Ok(())
            });
        }
    });
    Ok(address)
}

struct Servers {
    proxy: Proxy,
    end: String,
}

fn start() -> Result<Servers> {
    let end = end()?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .value("END", &end)
        .file("users", "me:{PLAIN}secret\n")
        .start()?;
    Ok(Servers { proxy, end })
}

/// Sends the text, and reads the head of the answer.
fn ask(port: u16, text: &str) -> Result<(TcpStream, String)> {
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    client.write_all(text.as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).context("head")?;
        head.push(byte[0]);
    }
    Ok((client, String::from_utf8(head)?))
}

fn connect(port: u16, to: &str, rest: &str) -> Result<(TcpStream, String)> {
    ask(
        port,
        &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{rest}"),
    )
}

fn status(port: u16, text: &str) -> Result<String> {
    let (_, head) = ask(port, text)?;
    Ok(head.get(9..12).unwrap_or_default().to_string())
}

#[test]
fn bytes_go_both_ways_and_those_sent_ahead_too() -> Result<()> {
    let servers = start()?;
    let (mut client, head) = connect(servers.proxy.port(), &servers.end, "\r\nahead ")?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for word in ["Content-Length", "Transfer-Encoding", "Content-Type"] {
        assert!(!head.contains(word), "{head}");
    }
    expect(&mut client, b"hello ahead ")?;
    let much: Vec<u8> = (0..2_000_000u32).map(|i| (i % 251) as u8).collect();
    let (mut writer, sent) = (client.try_clone()?, much.clone());
    let writing = thread::spawn(move || writer.write_all(&sent));
    expect(&mut client, &much)?;
    writing.join().expect("the writer does not panic")?;
    drop(client);
    let logged = servers.proxy.wait_for_lines("access.log", 1)?;
    assert_eq!(logged, [format!("CONNECT 200 {}", servers.end)]);
    Ok(())
}

fn expect(client: &mut TcpStream, wanted: &[u8]) -> Result<()> {
    let mut got = vec![0; wanted.len()];
    client.read_exact(&mut got)?;
    assert!(got == wanted);
    Ok(())
}

/// Only the server that has the directive is a proxy, whatever address it shares; a head that is no
/// CONNECT of HTTP/1.1 to a host and a port opens none.
#[test]
fn servers_and_heads_without_tunnels_are_refused() -> Result<()> {
    let servers = start()?;
    let (port, end) = (servers.proxy.port(), &servers.end);
    for (text, expected) in [
        (
            "CONNECT shut.test:80 HTTP/1.1\r\nHost: shut.test:80\r\n\r\n".to_string(),
            "405",
        ),
        (format!("CONNECT {end} HTTP/1.0\r\n\r\n"), "405"),
        (format!("CONNECT {end} HTTP/1.1\r\n\r\n"), "400"),
        (
            format!("CONNECT {end} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"),
            "400",
        ),
        (
            format!("CONNECT {end} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "400",
        ),
        (format!("CONNECT {end}/ HTTP/1.1\r\nHost: a\r\n\r\n"), "400"),
        (
            "CONNECT unix:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_string(),
            "500",
        ),
        (
            "CONNECT nobody.test:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_string(),
            "502",
        ),
        (
            "GET / HTTP/1.1\r\nHost: open.test\r\n\r\n".to_string(),
            "405",
        ),
    ] {
        assert_eq!(status(port, &text)?, expected, "{text}");
    }
    Ok(())
}

#[test]
fn conditions_choose_what_is_a_tunnel_and_a_dead_server_is_passed_over() -> Result<()> {
    let servers = start()?;
    let port = servers.proxy.named_port("PORT_2");
    let page = ask(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")?.1;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for _ in 0..2 {
        let (mut client, head) = connect(port, "anything.test:1", "\r\n")?;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        expect(&mut client, b"hello ")?;
    }
    Ok(())
}

/// RFC 9110 §11.7: a proxy asks in words of its own, and what an origin is told opens nothing.
#[test]
fn a_closed_proxy_wants_proxy_authorization() -> Result<()> {
    let servers = start()?;
    let port = servers.proxy.named_port("PORT_3");
    let (_, head) = connect(port, "a.test:1", "\r\n")?;
    assert!(head.starts_with("HTTP/1.1 407 "), "{head}");
    assert!(
        head.contains("\r\nProxy-Authenticate: Basic realm=\"closed\"\r\n"),
        "{head}"
    );
    assert!(!head.contains("WWW-Authenticate"), "{head}");
    let origins = "Authorization: Basic bWU6c2VjcmV0\r\n\r\n";
    assert!(
        connect(port, "a.test:1", origins)?
            .1
            .starts_with("HTTP/1.1 407 ")
    );
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let (_, head) = connect(port, "a.test:1", &format!("Proxy-{origins}"))?;
        statuses.push(head.get(9..12).unwrap_or_default().to_string());
    }
    statuses.sort();
    assert_eq!(
        statuses,
        ["200", "502"],
        "one server of two is dead, and no other one is asked"
    );
    Ok(())
}

#[test]
fn rules_say_where_a_proxy_leads_to_and_origins_are_not_asked() -> Result<()> {
    let servers = start()?;
    let port = servers.proxy.named_port("PORT_4");
    assert!(
        connect(port, "127.0.0.1:1", "\r\n")?
            .1
            .starts_with("HTTP/1.1 403 ")
    );
    // Here it comes to a location with proxy_pass.
    assert!(
        connect(port, &servers.end, "\r\n")?
            .1
            .starts_with("HTTP/1.1 405 ")
    );
    Ok(())
}

#[test]
fn explain_names_the_end_of_a_tunnel() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let conf = folder.path().join("nginx.conf");
    std::fs::write(
        &conf,
        "events {} http { server { listen 8080; tunnel_pass 127.0.0.1:9; } }",
    )?;
    let explain = |method: &str| explain(&conf, method);
    assert!(
        explain("CONNECT")?.contains("127.0.0.1:9"),
        "{}",
        explain("CONNECT")?
    );
    assert!(explain("GET")?.contains("405"), "{}", explain("GET")?);
    Ok(())
}

fn explain(conf: &Path, method: &str) -> Result<String> {
    let out = Command::new(binary(Kind::Millpond).context("the binary")?)
        .args(["explain", "-X", method, "http://127.0.0.1:8080/", "-c"])
        .arg(conf)
        .output()?;
    Ok(String::from_utf8(out.stdout)?)
}
