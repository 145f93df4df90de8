//! Sessions that a client offers where they were not made: at another server, after keys of tickets
//! have changed. `openssl s_client` offers whatever it is told to.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy};

use super::kit::{Authority, WAIT};
use super::openssl::{each, s_client_with};

const SERVERS: &str = "
    ssl_session_cache shared:all:1m;
    ssl_session_ticket_key ticket.key;
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    ssl_client_certificate ca.pem;
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name open.example;
        return 200 '[$ssl_client_verify $ssl_session_reused]';
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name optional.example;
        ssl_verify_client optional;
        return 200 '[$ssl_client_verify $ssl_session_reused]';
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name strict.example;
        ssl_verify_client on;
        return 200 '[$ssl_client_verify $ssl_session_reused]';
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name others.example;
        ssl_verify_client optional_no_ca;
        ssl_client_certificate others.pem;
        return 200 '[$ssl_client_verify $ssl_session_reused]';
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name another.example;
        ssl_certificate cert2.pem;
        ssl_certificate_key key2.pem;
        ssl_verify_client optional;
        return 200 '[$ssl_client_verify $ssl_session_reused]';
    }";

/// The servers, and what each says of a client with and without a certificate.
const NAMES: [(&str, &str, &str); 5] = [
    ("open", "[NONE ", "[NONE .]"),
    ("optional", "[SUCCESS ", "[NONE .]"),
    (
        "strict",
        "[SUCCESS ",
        "No required SSL certificate was sent",
    ),
    ("others", "[FAILED:", "[NONE .]"),
    ("another", "[SUCCESS ", "[NONE .]"),
];

/// Ways in which a session is kept: by tickets of either version, and in the server's cache.
const WAYS: [(&str, &[&str]); 3] = [
    ("13", &["-tls1_3"]),
    ("12", &["-tls1_2"]),
    ("12-cache", &["-tls1_2", "-no_ticket"]),
];

fn ask(server: &Proxy, name: &str, words: &[&str]) -> Result<String> {
    let host = format!("{name}.example");
    let request = format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
    let all = [&["-servername", &host][..], words].concat();
    s_client_with(server, server.port(), (&all, &request))
}

/// RFC 6066 §3: a session is not resumed for another name; RFC 8446 §4.6.1 leaves that to us, and
/// where other certificates are asked for or shown it would be a way in.
#[test]
fn session_says_nothing_where_it_was_not_made() -> Result<()> {
    let (authority, others) = (Authority::new("root")?, Authority::new("others")?);
    let [cert, key] = authority.sign("open.example")?;
    let [cert2, key2] = authority.sign("another.example")?;
    let [own, own_key] = authority.sign("client")?;
    let server = Proxy::new(Kind::Millpond, SERVERS)
        .file("ticket.key", [7; 80])
        .file("ca.pem", &authority.pem)
        .file("others.pem", &others.pem)
        .file("cert.pem", cert)
        .file("key.pem", key)
        .file("cert2.pem", cert2)
        .file("key2.pem", key2)
        .file("own.pem", own)
        .file("own.key", own_key)
        .log_check(LogCheck::Off)
        .start()?;
    let made: Vec<_> = WAYS
        .iter()
        .flat_map(|way| NAMES.map(|name| (way, name)))
        .collect();
    each(&made, |((way, words), (from, shown, _))| {
        let file = format!("{from}-{way}");
        let own = ["-cert", "own.pem", "-key", "own.key", "-sess_out", &file];
        let said = ask(&server, from, &[words, &own[..]].concat())?;
        ensure!(said.contains(shown), "{from} {way}: {said}");
        for (to, shown, fresh) in NAMES {
            let said = ask(&server, to, &[words, &["-sess_in", &file][..]].concat())?;
            let what = format!("from {from} to {to} {way}: {said}");
            if to == *from {
                // The session is one that could be used.
                ensure!(said.contains(shown) && said.contains(" r]"), "{what}");
                ensure!(said.contains("\nReused, "), "{what}");
            } else {
                ensure!(said.contains(fresh) && said.contains("\nNew, "), "{what}");
            }
        }
        Ok(())
    })
}

const ROTATING: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        listen 127.0.0.1:%%PORT_PLAIN%%;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_session_cache none;
        (keys)
        return 200 '(generation) [$ssl_session_reused]';
    }";

/// The first key seals and all open: a ticket is good until its key is gone, over any reload.
#[test]
fn tickets_are_good_as_long_as_their_key_is_there() -> Result<()> {
    let authority = Authority::new("root")?;
    let [cert, key] = authority.sign("a.example")?;
    let conf = |generation: &str, keys: &[&str]| {
        let lines: String = keys
            .iter()
            .map(|key| format!("ssl_session_ticket_key {key}.key;"))
            .collect();
        let conf = ROTATING.replace("(keys)", &lines);
        conf.replace("(generation)", generation)
    };
    let mut server = Proxy::new(Kind::Millpond, &conf("g1", &["one"]))
        .file("one.key", [1; 48])
        .file("two.key", [2; 80])
        .file("cert.pem", cert)
        .file("key.pem", key)
        .start()?;
    let plain = Client::new(server.named_port("PORT_PLAIN"));
    let make = |server: &Proxy, name: &str| -> Result<()> {
        for version in ["-tls1_2", "-tls1_3"] {
            let file = format!("{name}{version}");
            let said = ask(server, "a", &[version, "-sess_out", &file])?;
            ensure!(said.contains(" [.]"), "{said}");
        }
        Ok(())
    };
    let expect = |server: &Proxy, name: &str, outcome: &str| -> Result<()> {
        for version in ["-tls1_2", "-tls1_3"] {
            let file = format!("{name}{version}");
            let said = ask(server, "a", &[version, "-sess_in", &file])?;
            ensure!(said.contains(outcome), "{name} {version} {outcome}: {said}");
        }
        Ok(())
    };
    make(&server, "first")?;
    expect(&server, "first", "g1 [r]")?;
    for (generation, keys, outcomes) in [
        ("g2", &["two", "one"][..], &[("first", "g2 [r]")][..]),
        ("g3", &["two"], &[("first", "g3 [.]"), ("second", "g3 [r]")]),
        ("g4", &["one"], &[("first", "g4 [r]"), ("second", "g4 [.]")]),
    ] {
        server.set_conf(&conf(generation, keys))?;
        server.reload()?;
        let is_there = || {
            plain
                .get("/")
                .ok()?
                .text()
                .starts_with(generation)
                .then_some(())
        };
        Deadline::after(WAIT).poll(is_there).context(generation)?;
        for (name, outcome) in outcomes {
            expect(&server, name, outcome)?;
        }
        if generation == "g2" {
            make(&server, "second")?;
        }
    }
    Ok(())
}
