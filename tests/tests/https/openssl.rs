//! `openssl s_client` before a server and `openssl s_server` behind one: each protocol, suite, kind
//! of certificate and group that exists here, and the alerts that refuse the rest.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Kind, LogCheck, Origin, Proxy, binary, skip};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use super::kit::{Authority, says};

/// Suites of TLS 1.2, and the kind of certificate that each needs.
const SUITES: [(&str, &str); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDSA"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "RSA"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "ECDSA"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "RSA"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDSA"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "RSA"),
];

/// Suites of TLS 1.3.
const SUITES_13: [&str; 3] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
];

/// Groups that OpenSSL 3.0 has as well, and the names that variables print.
const GROUPS: [(&str, &str); 3] = [
    ("X25519", "X25519"),
    ("P-256", "prime256v1"),
    ("P-384", "secp384r1"),
];

/// Programs that run at the same time.
const AT_ONCE: usize = 4;

/// One agreement: protocol, suite, kind of certificate, group.
#[derive(Clone, Copy, Debug)]
struct Agreement {
    protocol: &'static str,
    suite: &'static str,
    kind: &'static str,
    group: (&'static str, &'static str),
}

/// Every agreement that can be had.
fn agreements() -> Vec<Agreement> {
    let old = SUITES.map(|(suite, kind)| ("TLSv1.2", suite, kind));
    let kinds = ["ECDSA", "RSA"];
    let new = kinds.map(|kind| SUITES_13.map(|suite| ("TLSv1.3", suite, kind)));
    let all = old.into_iter().chain(new.into_iter().flatten());
    all.flat_map(|(protocol, suite, kind)| {
        GROUPS.map(|group| Agreement {
            protocol,
            suite,
            kind,
            group,
        })
    })
    .collect()
}

/// Does something with each of these, some at the same time.
pub(crate) fn each<T: Sync>(all: &[T], act: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let act = &act;
    let share = all.len().div_ceil(AT_ONCE);
    thread::scope(|scope| {
        let running: Vec<_> = all
            .chunks(share)
            .map(|some| scope.spawn(move || some.iter().try_for_each(act)))
            .collect();
        running
            .into_iter()
            .try_for_each(|part| part.join().ok().context("a thread")?)
    })
}

const SERVER: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_ecdh_curve X25519:P-256:P-384;
        %%BOTH%%
    }
    server {
        listen 127.0.0.1:%%PORT_X25519%% ssl;
        ssl_ecdh_curve X25519;
        %%BOTH%%
    }
    server {
        listen 127.0.0.1:%%PORT_P256%% ssl;
        ssl_ecdh_curve P-256;
        %%BOTH%%
    }
    server {
        listen 127.0.0.1:%%PORT_P384%% ssl;
        ssl_ecdh_curve P-384;
        %%BOTH%%
    }
    server {
        listen 127.0.0.1:%%PORT_NEW%% ssl;
        ssl_certificate rsa.pem;
        ssl_certificate_key rsa.key;
        ssl_protocols TLSv1.3;
    }
    server {
        listen 127.0.0.1:%%PORT_OLD%% ssl;
        ssl_certificate rsa.pem;
        ssl_certificate_key rsa.key;
        ssl_protocols TLSv1.2;
    }";

/// Lines of each server that speaks both versions.
const BOTH: &str = "
    ssl_certificate ecdsa.pem;
    ssl_certificate_key ecdsa.key;
    ssl_certificate rsa.pem;
    ssl_certificate_key rsa.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ciphers %%SUITES%%;
    return 200 '[$ssl_protocol $ssl_cipher $ssl_curve]';";

fn server(kind: Kind) -> Result<Proxy> {
    let authority = Authority::new("root")?;
    let [ecdsa, ecdsa_key] = authority.sign("a.example")?;
    let [rsa, rsa_key] = authority.sign_rsa("a.example")?;
    Proxy::new(kind, &SERVER.replace("%%BOTH%%", BOTH))
        .value("SUITES", &SUITES.map(|(suite, _)| suite).join(":"))
        .file("ca.pem", &authority.pem)
        .file("ecdsa.pem", ecdsa)
        .file("ecdsa.key", ecdsa_key)
        .file("rsa.pem", rsa)
        .file("rsa.key", rsa_key)
        .log_check(LogCheck::Off)
        .start()
}

/// The output of `openssl s_client` that is given a request.
fn s_client(server: &Proxy, port: u16, words: &[&str]) -> Result<String> {
    let named = ["-servername", "a.example", "-verify_hostname", "a.example"];
    let verifying = ["-verify_return_error", "-CAfile", "ca.pem"];
    let all = [&named[..], &verifying, words].concat();
    s_client_with(
        server,
        port,
        (&all, "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n"),
    )
}

/// The output of `openssl s_client` that gets such an input, which does not end before it.
pub(crate) fn s_client_with(
    server: &Proxy,
    port: u16,
    (words, given): (&[&str], &str),
) -> Result<String> {
    let mut client = Command::new("timeout")
        .args(["60", "openssl", "s_client", "-connect"])
        .arg(format!("127.0.0.1:{port}"))
        .args(words)
        .current_dir(server.dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = client.stdin.take().context("its input")?;
    // A handshake that fails ends the program before it reads.
    let _refused = input.write_all(given.as_bytes());
    let output = client.wait_with_output()?;
    drop(input);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn clients_of_openssl_agree_on_each_suite_certificate_and_group() -> Result<()> {
    let server = server(Kind::Millpond)?;
    each(&agreements(), |it| {
        let groups = allowed(it);
        let words = match it.protocol {
            "TLSv1.2" => vec!["-tls1_2", "-cipher", it.suite, "-groups", &groups],
            _ => {
                // The certificate is the one that the client can verify (RFC 8446 §4.4.2.2).
                let schemes = match it.kind {
                    "RSA" => "rsa_pss_rsae_sha256",
                    _ => "ecdsa_secp256r1_sha256",
                };
                let words = ["-tls1_3", "-ciphersuites", it.suite, "-groups", it.group.0];
                [&words[..], &["-sigalgs", schemes]].concat()
            }
        };
        let name = it.group.0.replace('-', "");
        let port = server.named_port(&format!("PORT_{name}"));
        let said = s_client(&server, port, &words)?;
        let signature = match it.kind {
            "RSA" => "Peer signature type: RSA-PSS\n",
            _ => "Peer signature type: ECDSA\n",
        };
        for part in [
            format!("[{} {} {}]", it.protocol, it.suite, it.group.1),
            format!("New, {}, Cipher is {}\n", it.protocol, it.suite),
            "Verify return code: 0 (ok)\n".to_owned(),
            signature.to_owned(),
        ] {
            ensure!(said.contains(&part), "{it:?}: no {part:?} in {said}");
        }
        Ok(())
    })
}

/// RFC 8422 §5.1: of a client of TLS 1.2 without the curve of one certificate the other is shown.
#[test]
fn certificate_has_a_curve_that_the_client_names() -> Result<()> {
    for kind in Kind::both() {
        if binary(kind).is_none() {
            skip("nginx is not installed");
            continue;
        }
        let server = server(kind)?;
        for (groups, signature) in [("X25519", "RSA-PSS"), ("X25519:P-256", "ECDSA")] {
            let said = s_client(&server, server.port(), &["-tls1_2", "-groups", groups])?;
            let signature = format!("Peer signature type: {signature}\n");
            ensure!(said.contains(&signature), "{kind:?} {groups}: {said}");
        }
    }
    Ok(())
}

/// RFC 8446 §4.1.4: a group that the client has and has not sent a share of is asked for.
#[test]
fn group_without_a_share_is_asked_for() -> Result<()> {
    let server = server(Kind::Millpond)?;
    for (name, printed) in GROUPS {
        let groups = format!("P-521:{name}");
        let said = s_client(&server, server.port(), &["-tls1_3", "-groups", &groups])?;
        let answer = format!("[TLSv1.3 TLS_AES_256_GCM_SHA384 {printed}]");
        ensure!(said.contains(&answer), "{said}");
    }
    Ok(())
}

const WEAK: &str = "DEFAULT:@SECLEVEL=0";

/// The offer of a client, the port where, and the alert that refuses it.
const REFUSED: &[(&[&str], &str, u8)] = &[
    // RFC 5246 §E.1, RFC 8446 §D.2: "protocol_version" to who is too old, or too young.
    (&["-tls1", "-cipher", WEAK], "PORT", 70),
    (&["-tls1_1", "-cipher", WEAK], "PORT", 70),
    (&["-tls1_2"], "PORT_NEW", 70),
    (&["-tls1_3"], "PORT_OLD", 70),
    // RFC 5246 §7.4.1.3, RFC 8446 §4.1.1: "handshake_failure" where nothing is in common:
    // CBC, static RSA, DHE, CCM, without encryption, without certificates;
    (
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"],
        "PORT",
        40,
    ),
    (&["-tls1_2", "-cipher", "ECDHE-RSA-AES256-SHA"], "PORT", 40),
    (&["-tls1_2", "-cipher", "AES128-SHA"], "PORT", 40),
    (&["-tls1_2", "-cipher", "AES256-GCM-SHA384"], "PORT", 40),
    (
        &["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"],
        "PORT",
        40,
    ),
    (
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-CCM"],
        "PORT",
        40,
    ),
    (
        &["-tls1_2", "-cipher", "NULL-SHA256:@SECLEVEL=0"],
        "PORT",
        40,
    ),
    (
        &["-tls1_2", "-cipher", "AECDH-AES128-SHA:@SECLEVEL=0"],
        "PORT",
        40,
    ),
    (
        &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"],
        "PORT",
        40,
    ),
    // groups, of either version;
    (&["-tls1_3", "-groups", "P-521:X448"], "PORT", 40),
    (&["-tls1_3", "-groups", "ffdhe2048"], "PORT", 40),
    (&["-tls1_2", "-groups", "P-521"], "PORT", 40),
    // signatures.
    (&["-tls1_3", "-sigalgs", "ed25519"], "PORT", 40),
    // RFC 7507 §3: a client that has fallen back below what both speak.
    (&["-tls1_2", "-fallback_scsv"], "PORT", 86),
    // RFC 7301 §3.2: protocols inside of which none is spoken.
    (&["-alpn", "spdy/1,none"], "PORT", 120),
];

/// Debian's nginx is asked the same, with the suites and groups of the tables as its lists.
#[test]
fn clients_that_offer_only_what_does_not_exist_get_the_alert_of_the_rfc() -> Result<()> {
    for kind in Kind::both() {
        if binary(kind).is_none() {
            skip("nginx is not installed");
            continue;
        }
        let server = server(kind)?;
        each(REFUSED, |(words, port, alert)| {
            let port = match *port {
                "PORT" => server.port(),
                name => server.named_port(name),
            };
            let said = s_client(&server, port, words)?;
            let told = said
                .split("SSL alert number ")
                .nth(1)
                .and_then(|rest| rest.split_whitespace().next());
            let expected = alert.to_string();
            ensure!(told == Some(&expected), "{kind:?} {words:?} {said}");
            Ok(())
        })?;
        // A client that is told the truth of its fall back is none.
        let said = s_client(
            &server,
            server.named_port("PORT_OLD"),
            &["-tls1_2", "-fallback_scsv"],
        )?;
        ensure!(said.contains("Verify return code: 0 (ok)"), "{said}");
    }
    Ok(())
}

/// A running `openssl s_server`, which answers each request with a page about the session.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(dir: &Path, words: &[&str]) -> Result<Server> {
        let mut child = Command::new("timeout")
            .args(["120", "openssl", "s_server", "-accept", "127.0.0.1:0"])
            .args(["-www", "-cert", "ecdsa.pem", "-key", "ecdsa.key"])
            .args(["-dcert", "rsa.pem", "-dkey", "rsa.key"])
            .args(words)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let mut port = None;
        let mut lines = output.lines();
        while port.is_none() {
            let line = lines.next().context("it ends")??;
            port = line
                .strip_prefix("ACCEPT 127.0.0.1:")
                .and_then(|it| it.parse().ok());
        }
        // It says more than a pipe holds.
        thread::spawn(move || lines.count());
        Ok(Server {
            child,
            port: port.context("a port")?,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let _ended = self.child.wait();
    }
}

/// The groups that a client must allow, so that one is agreed on.
fn allowed(it: &Agreement) -> String {
    match (it.protocol, it.kind) {
        // RFC 8422 §5.1: in TLS 1.2 the certificate's curve has to be among the client's, too.
        ("TLSv1.2", "ECDSA") if it.group.0 != "P-256" => format!("{}:P-256", it.group.0),
        _ => it.group.0.to_owned(),
    }
}

/// A location that agrees on nothing else, with the origin of that group.
fn location((index, it): (usize, &Agreement), port: u16) -> String {
    let Agreement {
        protocol,
        suite,
        kind,
        ..
    } = it;
    let suites = match *protocol {
        "TLSv1.2" => format!("proxy_ssl_ciphers {suite};"),
        _ => format!("proxy_ssl_conf_command Ciphersuites {suite};"),
    };
    let name = kind.to_lowercase();
    let groups = allowed(it);
    format!(
        "location /{index} {{
            proxy_ssl_protocols {protocol};
            {suites}
            proxy_ssl_conf_command Groups {groups};
            proxy_ssl_trusted_certificate {name}-ca.pem;
            proxy_pass https://127.0.0.1:{port}/;
        }}"
    )
}

/// An origin of TLS 1.3 chooses among its certificates by itself: each kind has origins of its own.
#[test]
fn origins_of_openssl_agree_on_each_suite_certificate_and_group() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut authorities = Vec::new();
    for kind in ["ecdsa", "rsa"] {
        let authority = Authority::new(kind)?;
        let [certificate, key] = match kind {
            "rsa" => authority.sign_rsa("a.example")?,
            _ => authority.sign("a.example")?,
        };
        std::fs::write(dir.path().join(format!("{kind}.pem")), certificate)?;
        std::fs::write(dir.path().join(format!("{kind}.key")), key)?;
        authorities.push(authority.pem);
    }
    let mut origins = Vec::new();
    for (group, _) in GROUPS {
        let both = Server::start(dir.path(), &["-groups", group, "-serverpref"])?;
        let rsa = ["-groups", group, "-cert", "rsa.pem", "-key", "rsa.key"];
        origins.push((group, both, Server::start(dir.path(), &rsa)?));
    }
    let all = agreements();
    let locations: Result<String> = all
        .iter()
        .enumerate()
        .map(|(index, it)| {
            let found = origins.iter().find(|origin| origin.0 == it.group.0);
            let (_, both, rsa) = found.context("an origin")?;
            let origin = if it.kind == "RSA" { rsa } else { both };
            Ok(location((index, it), origin.port))
        })
        .collect();
    let conf = format!(
        "proxy_ssl_verify on; proxy_ssl_name a.example; proxy_ssl_server_name on;
        server {{ listen 127.0.0.1:%%PORT%%; {} }}",
        locations?
    );
    let front = Proxy::new(Kind::Millpond, &conf)
        .origin(&Origin::start()?)
        .file("ecdsa-ca.pem", &authorities[0])
        .file("rsa-ca.pem", &authorities[1])
        .start()?;
    let client = Client::new(front.port());
    for (index, it) in all.iter().enumerate() {
        let page = client.get(&format!("/{index}"))?;
        let text = page.text();
        ensure!(page.status == 200, "{it:?}: {} {text}", page.status);
        for (word, value) in [("Protocol", it.protocol), ("Cipher", it.suite)] {
            let told = text
                .lines()
                .filter_map(|line| line.trim().split_once(':'))
                .any(|(left, right)| left.trim() == word && right.trim() == value);
            ensure!(told, "{it:?}: no {word} {value} in {text}");
        }
    }
    Ok(())
}

/// The words of an origin that speaks nothing else, and the line of the log.
const STRANGE: &[(&[&str], &str)] = &[
    (
        &["-tls1", "-cipher", WEAK],
        "tlsv1 alert protocol version:SSL alert number 70",
    ),
    (
        &["-tls1_1", "-cipher", WEAK],
        "tlsv1 alert protocol version:SSL alert number 70",
    ),
    (
        &["-tls1_2", "-cipher", "AES128-SHA"],
        "ssl/tls alert handshake failure:SSL alert number 40",
    ),
    (
        &["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"],
        "ssl/tls alert handshake failure:SSL alert number 40",
    ),
    (
        &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA256"],
        "ssl/tls alert handshake failure:SSL alert number 40",
    ),
    (
        &["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"],
        "ssl/tls alert handshake failure:SSL alert number 40",
    ),
    (
        &["-tls1_3", "-groups", "P-521"],
        "ssl/tls alert handshake failure:SSL alert number 40",
    ),
];

#[test]
fn origins_that_speak_only_what_does_not_exist_are_bad_gateways() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let authority = Authority::new("root")?;
    for (kind, [certificate, key]) in [
        ("ecdsa", authority.sign("a.example")?),
        ("rsa", authority.sign_rsa("a.example")?),
    ] {
        std::fs::write(dir.path().join(format!("{kind}.pem")), certificate)?;
        std::fs::write(dir.path().join(format!("{kind}.key")), key)?;
    }
    let origins: Vec<Server> = STRANGE
        .iter()
        .map(|(words, _)| Server::start(dir.path(), words))
        .collect::<Result<_>>()?;
    let places: String = origins
        .iter()
        .enumerate()
        .map(|(index, origin)| {
            let port = origin.port;
            format!("location /{index} {{ proxy_pass https://127.0.0.1:{port}/; }}")
        })
        .collect();
    let conf = format!("server {{ listen 127.0.0.1:%%PORT%%; {places} }}");
    let front = Proxy::new(Kind::Millpond, &conf)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(front.port());
    for (index, (words, line)) in STRANGE.iter().enumerate() {
        let page = client.get(&format!("/{index}"))?;
        ensure!(page.status == 502, "{words:?}: {}", page.status);
        let request = format!("\"GET /{index} HTTP/1.1\"");
        says(&front, &request)?;
        let log = front.error_log();
        let told = log
            .lines()
            .find(|it| it.contains(&request))
            .context("a line")?;
        ensure!(told.contains(line), "{words:?}: {told}");
    }
    Ok(())
}
