//! HTTPS on both sides: one server asks another one over an encrypted connection, so that each test
//! goes through a listener and an upstream; nginx stands on either side, too.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Framing, Kind, Origin, Ranges, Request, offset_bytes,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

mod attacks;
mod browser;
mod certificates;
mod early;
mod key_log;
mod kit;
mod many;
mod openssl;
mod records;
mod sessions;
mod statuses;

use kit::{WAIT, pair, says};

const BACK: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name back.example;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_session_cache shared:s:1m;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /facts { return 200 '$scheme $https $ssl_protocol $ssl_server_name'; }
        location /reused { return 200 $ssl_session_reused; }
        location /moved { rewrite ^ /new redirect; }
        location /body { client_body_in_single_buffer on; client_max_body_size 8m; proxy_pass http://%%ORIGIN%%; }
    }";

const FRONT: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    upstream kept { server 127.0.0.1:%%BACK%%; keepalive 4; }
    server {
        listen 127.0.0.1:%%PORT%%;
        client_max_body_size 8m;
        proxy_http_version 1.1;
        proxy_set_header Connection '';
        location / { proxy_redirect off; proxy_pass https://127.0.0.1:%%BACK%%; }
        location /kept/ { proxy_pass https://kept/; }
        # A connection for each request.
        location /fresh/ {
            proxy_set_header Connection close;
            proxy_pass https://127.0.0.1:%%BACK%%/;
        }
        location /named/ {
            proxy_ssl_server_name on;
            proxy_ssl_name back.example:443;
            proxy_pass https://127.0.0.1:%%BACK%%/;
        }
        location /cached/ {
            proxy_cache z;
            proxy_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status;
            proxy_pass https://kept/;
        }
    }";

const LEN: usize = 3_000_000;

fn origin() -> Result<Origin> {
    let origin = Origin::start()?;
    origin.route("/small", Answer::new(200).body("small"));
    origin.route(
        "/large",
        Answer::new(200)
            .etag("\"1\"")
            .offset_body(LEN as u64, 1)
            .ranges(Ranges::Supported),
    );
    origin.route(
        "/chunks",
        Answer::new(200)
            .body("onetwothree")
            .framing(Framing::Chunked),
    );
    origin.route("/body", Answer::new(200).body("taken"));
    Ok(origin)
}

#[test]
fn pages_and_bodies_pass_whole_whoever_stands_on_either_side() -> Result<()> {
    let origin = origin()?;
    for kinds in [
        [Kind::Millpond, Kind::Millpond],
        [Kind::Nginx, Kind::Millpond],
        [Kind::Millpond, Kind::Nginx],
    ] {
        if kinds
            .iter()
            .any(|kind| millpond_testkit::binary(*kind).is_none())
        {
            millpond_testkit::skip("nginx is not installed");
            continue;
        }
        let [front, _back] = pair(kinds, [FRONT, BACK], &origin)?;
        let client = Client::new(front.port());
        for prefix in ["", "/kept", "/named"] {
            let small = client.get(&format!("{prefix}/small"))?;
            assert_eq!(
                (small.status, small.text().as_str()),
                (200, "small"),
                "{kinds:?}"
            );
            let large = client.get(&format!("{prefix}/large"))?;
            assert!(
                large.body == offset_bytes(0..LEN as u64, 1),
                "{kinds:?} {prefix}"
            );
            assert_eq!(
                client.get(&format!("{prefix}/chunks"))?.text(),
                "onetwothree"
            );
            let body = offset_bytes(0..1_500_000, 1);
            let answer = client.send(&Request::post(&format!("{prefix}/body"), &body))?;
            assert_eq!(answer.text(), "taken", "{kinds:?} {prefix}");
            let exchanges = origin.requests();
            let seen = exchanges.last().context("a request")?;
            assert!(seen.body == body, "{kinds:?} {prefix}");
        }
    }
    Ok(())
}

#[test]
fn variables_and_redirects_know_that_the_connection_is_encrypted() -> Result<()> {
    let origin = origin()?;
    let [front, back] = pair([Kind::Millpond; 2], [FRONT, BACK], &origin)?;
    let client = Client::new(front.port());
    assert_eq!(client.get("/facts")?.text(), "https on TLSv1.3 ");
    assert_eq!(
        client.get("/named/facts")?.text(),
        "https on TLSv1.3 back.example"
    );
    let moved = client.get("/moved")?;
    let expected = format!("https://127.0.0.1:{}/new", back.port());
    assert_eq!(moved.header("Location"), Some(expected.as_str()));
    // A kept connection has one session; the next connection resumes it.
    assert_eq!(client.get("/kept/reused")?.text(), ".");
    assert_eq!(client.get("/kept/reused")?.text(), ".");
    let is_resumed = || (client.get("/fresh/reused").ok()?.text() == "r").then_some(());
    Deadline::after(WAIT)
        .poll(is_resumed)
        .context("a session that is resumed")?;
    Ok(())
}

#[test]
fn answers_of_encrypted_origins_are_cached() -> Result<()> {
    let origin = origin()?;
    let [front, _back] = pair([Kind::Millpond; 2], [FRONT, BACK], &origin)?;
    let client = Client::new(front.port());
    for expected in ["MISS", "HIT"] {
        let large = client.get("/cached/large")?;
        assert_eq!(large.header("X-Cache"), Some(expected));
        assert!(large.body == offset_bytes(0..LEN as u64, 1), "{expected}");
    }
    let range = client.send(&Request::get("/cached/large").header("Range", "bytes=70000-70009"))?;
    assert_eq!(
        (range.status, range.body),
        (206, offset_bytes(70_000..70_010, 1))
    );
    Ok(())
}

#[test]
fn plain_requests_to_an_encrypted_address_are_refused_with_nginxs_words() -> Result<()> {
    let origin = origin()?;
    let mut pages = Vec::new();
    for kind in Kind::both().filter(|kind| millpond_testkit::binary(*kind).is_some()) {
        let [_front, back] = pair([Kind::Millpond, kind], [FRONT, BACK], &origin)?;
        let refused = Client::new(back.port()).get("/small")?;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.header("Connection"), Some("close"));
        pages.push(refused.text());
        // Neither a handshake nor HTTP: an end, and the server goes on.
        let mut garbage = TcpStream::connect(("127.0.0.1", back.port()))?;
        garbage.set_read_timeout(Some(WAIT))?;
        garbage.write_all(b"\x16\x03\x01\xff\xff\x00garbage")?;
        garbage.shutdown(Shutdown::Write)?;
        // An alert at most. An end that came before all was read is a reset.
        match garbage.read_to_end(&mut Vec::new()) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(error.into()),
            _ => assert_eq!(Client::new(back.port()).get("/small")?.status, 400),
        }
    }
    let phrase = "The plain HTTP request was sent to HTTPS port";
    assert!(pages.iter().all(|page| page.contains(phrase)), "{pages:?}");
    Ok(())
}

const DEMANDING: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name back.example;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_verify_client on;
        ssl_client_certificate ca.pem;
        return 200 '$ssl_client_verify $ssl_client_s_dn';
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name optional.example;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_verify_client optional_no_ca;
        ssl_client_certificate ca.pem;
        return 200 '$ssl_client_verify';
    }";

const SHOWING: &str = "
    proxy_ssl_server_name on;
    proxy_ssl_session_reuse off;
    proxy_set_header Host $arg_host;
    proxy_ssl_name $arg_name;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /none { proxy_pass https://127.0.0.1:%%BACK%%; }
        location /known {
            proxy_ssl_certificate client.pem;
            proxy_ssl_certificate_key client.key;
            proxy_pass https://127.0.0.1:%%BACK%%;
        }
        location /strange {
            proxy_ssl_certificate stranger.pem;
            proxy_ssl_certificate_key stranger.key;
            proxy_pass https://127.0.0.1:%%BACK%%;
        }
    }";

#[test]
fn clients_show_certificates_where_they_are_demanded() -> Result<()> {
    let origin = origin()?;
    for back in Kind::both().filter(|kind| millpond_testkit::binary(*kind).is_some()) {
        let [front, _back] = pair([Kind::Millpond, back], [SHOWING, DEMANDING], &origin)?;
        let client = Client::new(front.port());
        let (own, other) = ("back.example", "optional.example");
        for (path, name, host, status, text) in [
            ("/known", own, own, 200, "SUCCESS CN=client"),
            (
                "/none",
                own,
                own,
                400,
                "No required SSL certificate was sent",
            ),
            ("/strange", own, own, 400, "The SSL certificate error"),
            ("/none", other, other, 200, "NONE"),
            ("/known", other, other, 200, "SUCCESS"),
            (
                "/strange",
                other,
                other,
                200,
                "FAILED:unable to verify the first certificate",
            ),
            // What one server has verified says nothing at another.
            ("/known", other, own, 421, "421 Misdirected Request"),
            ("/none", other, own, 421, "421 Misdirected Request"),
        ] {
            let answer = client.get(&format!("{path}?name={name}&host={host}"))?;
            let what = format!("{back:?} {path} {name} {host}");
            assert_eq!(answer.status, status, "{what}: {}", answer.text());
            assert!(answer.text().contains(text), "{what}: {}", answer.text());
        }
    }
    Ok(())
}

const JUDGING: &str = "
    proxy_ssl_session_reuse off;
    proxy_ssl_verify on;
    proxy_ssl_name $arg_name;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /known/ {
            proxy_ssl_trusted_certificate ca.pem;
            proxy_pass https://127.0.0.1:%%BACK%%/;
        }
        location /others/ {
            proxy_ssl_trusted_certificate others.pem;
            proxy_pass https://127.0.0.1:%%BACK%%/;
        }
    }";

#[test]
fn origins_are_judged_by_their_chains_and_names() -> Result<()> {
    let origin = origin()?;
    let [front, _back] = pair([Kind::Millpond; 2], [JUDGING, BACK], &origin)?;
    let client = Client::new(front.port());
    assert_eq!(client.get("/known/small?name=back.example")?.status, 200);
    for (path, line) in [
        (
            "/known/small?name=other.example",
            "upstream SSL certificate does not match \"other.example\"",
        ),
        (
            "/others/small?name=back.example",
            "upstream SSL certificate verify error: (21:unable to verify the first certificate)",
        ),
    ] {
        assert_eq!(client.get(path)?.status, 502, "{path}");
        says(&front, &format!("{line} while SSL handshaking to upstream"))?;
    }
    Ok(())
}

const CHOOSING: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl default_server;
        ssl_reject_handshake on;
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name back.example *.wild.example;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_protocols TLSv1.2;
        ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;
        return 200 '$ssl_protocol $ssl_cipher';
    }";

#[test]
fn names_choose_servers_before_anything_is_agreed() -> Result<()> {
    let origin = origin()?;
    for back in Kind::both().filter(|kind| millpond_testkit::binary(*kind).is_some()) {
        let [front, _back] = pair([Kind::Millpond, back], [SHOWING, CHOOSING], &origin)?;
        let client = Client::new(front.port());
        for name in ["back.example", "a.wild.example"] {
            let answer = client.get(&format!("/none?name={name}&host={name}"))?;
            assert_eq!(
                answer.text(),
                "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256",
                "{back:?}"
            );
        }
        assert_eq!(client.get("/none?name=unknown.example&host=x")?.status, 502);
        says(&front, "unrecognized name").with_context(|| format!("{back:?}"))?;
    }
    Ok(())
}

#[test]
fn sessions_outlive_a_reload() -> Result<()> {
    let origin = origin()?;
    let [front, back] = pair([Kind::Millpond; 2], [FRONT, BACK], &origin)?;
    let client = Client::new(front.port());
    assert_eq!(client.get("/fresh/reused")?.text(), ".");
    back.reload()?;
    let is_resumed = || (client.get("/fresh/reused").ok()?.text() == "r").then_some(());
    Deadline::after(WAIT)
        .poll(is_resumed)
        .context("a session that is resumed")?;
    Ok(())
}
