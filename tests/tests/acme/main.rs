//! Certificates that are ordered by ACME, from pebble.

use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

mod kit;
mod lines;
mod refused;

use kit::{Options, Pebble, WAIT, ask, certificate, connect, says};

/// One issuer with HTTP-01, and the names of variables as nginx's module has them.
const BY_HTTP: &str = "
    acme_issuer pebble {
        uri %%URI%%;
        ssl_trusted_certificate pebble.pem;
        state_path %%DIR%%/acme;
        accept_terms_of_service;
    }
    server {
        listen 127.0.0.1:%%HTTP_01%%;
        access_log %%DIR%%/plain.log;
        return 301 https://$host/;
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name .a.example;
        acme_certificate pebble;
        ssl_certificate $acme_certificate;
        ssl_certificate_key $acme_certificate_key;
        location / { return 200 there; }
    }";

#[test]
fn certificates_are_ordered_by_requests() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let proxy = pebble.proxy(BY_HTTP).start()?;
    says(
        &proxy,
        "the certificate for www.a.example, a.example was issued",
        1,
    )?;
    let config = pebble.client()?;
    for name in ["a.example", "www.a.example"] {
        let mut stream = connect(&config, proxy.port(), name)?;
        assert!(ask(&mut stream, name, "there")?.contains("200 OK"));
        assert!(!certificate(&stream)?.is_empty());
    }
    // Answers to the authority come before the redirect, and are logged as they were given.
    let log = proxy.read_file("plain.log");
    assert!(log.lines().count() >= 2, "{log}");
    for line in log.lines() {
        assert!(
            line.contains("/.well-known/acme-challenge/") && line.contains("\" 200 "),
            "{log}"
        );
    }
    assert_eq!(pebble.orders(), 1, "{}", pebble.log());
    Ok(())
}

/// An issuer, and a server with the short form.
const AUTO: &str = "
    acme_issuer default {
        uri %%URI%%;
        ssl_trusted_certificate pebble.pem;
        %%MORE%%
        accept_terms_of_service;
    }
    server {
        listen 127.0.0.1:%%HTTP_01%%;
        access_log %%DIR%%/plain.log;
    }
    server {
        listen 127.0.0.1:%%TLS_01%% ssl;
        server_name a.example;
        ssl_certificate auto;
        location / { return 200 there; }
    }";

#[test]
fn certificates_are_ordered_by_handshakes() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let proxy = pebble
        .proxy(AUTO)
        .value("MORE", "challenge tls-alpn-01;")
        .start()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    let mut stream = connect(&pebble.client()?, pebble.tls_port(), "a.example")?;
    assert!(ask(&mut stream, "a.example", "there")?.contains("200 OK"));
    // Nobody was asked by another way.
    assert!(!proxy.read_file("plain.log").contains("acme-challenge"));
    Ok(())
}

#[test]
fn servers_without_a_certificate_refuse_handshakes_and_say_why() -> Result<()> {
    let conf = AUTO.replace("ssl_trusted_certificate pebble.pem;", "ssl_verify off;");
    let port = millpond_testkit::free_port()?.to_string();
    let proxy = Proxy::new(Kind::Millpond, &conf.replace("%%TLS_01%%", "%%PORT%%"))
        .value("URI", "https://127.0.0.1:1/dir")
        .value("MORE", "")
        .value("HTTP_01", &port)
        .log_check(LogCheck::Off)
        .start()?;
    says(
        &proxy,
        "no certificate for a.example: https://127.0.0.1:1/dir: connect()",
        1,
    )?;
    let config = kit::trusting_nobody()?;
    let Err(error) = connect(&config, proxy.port(), "a.example") else {
        bail!("it is served");
    };
    ensure!(format!("{error:#}").contains("InternalError"), "{error:#}");
    let why =
        "no certificate for a.example from issuer \"default\" as yet: https://127.0.0.1:1/dir";
    says(&proxy, why, 1)?;
    Ok(())
}

/// The chain that is kept.
fn kept(proxy: &Proxy) -> Result<PathBuf> {
    let folder = proxy.dir().join("acme_default");
    let mut names = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let is_certificate = |path: &PathBuf| path.extension().is_some_and(|it| it == "crt");
    names.find(is_certificate).context("no certificate is kept")
}

/// Questions for advice so far.
fn questions(pebble: &Pebble) -> usize {
    pebble.log().matches("/renewalInfo/").count()
}

/// Waits until there are more questions than so many.
fn is_asked_again(pebble: &Pebble, before: usize) -> Result<()> {
    let asked = || (questions(pebble) > before).then_some(());
    let found = Deadline::after(WAIT).poll(asked);
    found.with_context(|| format!("no question: {}", pebble.log()))
}

#[test]
fn what_is_kept_outlives_the_process_and_is_mended_when_it_is_damaged() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let mut proxy = pebble.proxy(AUTO).value("MORE", "").start()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    let config = pebble.client()?;
    let first = certificate(&connect(&config, pebble.tls_port(), "a.example")?)?;
    is_asked_again(&pebble, 0)?;
    let folder = proxy.dir().join("acme_default");
    let mode =
        |path: &PathBuf| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o777) };
    assert_eq!(mode(&folder)?, 0o700);
    for entry in fs::read_dir(&folder)? {
        assert_eq!(mode(&entry?.path())?, 0o600);
    }
    let questions = questions(&pebble);
    proxy.restart()?;
    let again = certificate(&connect(&config, pebble.tls_port(), "a.example")?)?;
    assert!(first == again, "another certificate");
    // Whoever asks has looked at what is kept, and orders nothing then.
    is_asked_again(&pebble, questions)?;
    assert_eq!(pebble.orders(), 1, "{}", pebble.log());
    // Half a file, and no key.
    let file = kept(&proxy)?;
    let text = fs::read_to_string(&file)?;
    fs::write(&file, &text[..text.len() / 2])?;
    fs::write(folder.join("account.key"), "nonsense")?;
    proxy.restart()?;
    says(&proxy, "the certificate for a.example was issued", 2)?;
    for name in [file.clone(), folder.join("account.key")] {
        says(
            &proxy,
            &format!("\"{}\" cannot be used: ", name.display()),
            1,
        )?;
        let aside = PathBuf::from(format!("{}.damaged", name.display()));
        assert!(aside.is_file(), "{aside:?}");
    }
    let third = certificate(&connect(&config, pebble.tls_port(), "a.example")?)?;
    assert!(first != third, "the same certificate");
    assert_eq!(pebble.orders(), 2);
    Ok(())
}

#[test]
fn renewals_disturb_no_connection() -> Result<()> {
    let options = Options {
        lifetime: Some(20),
        ..Options::default()
    };
    let Some(pebble) = Pebble::start(options)? else {
        return Ok(());
    };
    let line = "profile usual require;";
    let proxy = pebble.proxy(AUTO).value("MORE", line).start()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    let config = pebble.client()?;
    let mut old = connect(&config, pebble.tls_port(), "a.example")?;
    ask(&mut old, "a.example", "there")?;
    says(&proxy, "the certificate for a.example was renewed", 1)?;
    ask(&mut old, "a.example", "there")?;
    let new = connect(&config, pebble.tls_port(), "a.example")?;
    assert!(
        certificate(&old)? != certificate(&new)?,
        "it is still the old one"
    );
    Ok(())
}

#[test]
fn the_advice_of_the_authority_is_taken() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let mut proxy = pebble.proxy(AUTO).value("MORE", "").start()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    let text = fs::read_to_string(kept(&proxy)?)?;
    let start = text.find("-----BEGIN CERTIFICATE").context("no chain")?;
    let past =
        r#"{"suggestedWindow":{"start":"2020-01-01T00:00:00Z","end":"2020-01-02T00:00:00Z"}}"#;
    let told = serde_json::json!({ "Certificate": &text[start..], "ARIResponse": past });
    pebble.manage("POST /set-renewal-info/", &told.to_string())?;
    // It is asked at the start, and not again for hours.
    proxy.restart()?;
    says(&proxy, "the certificate for a.example was renewed", 1)?;
    assert_eq!(pebble.orders(), 2);
    Ok(())
}

#[test]
fn what_is_kept_is_served_while_the_authority_is_away() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let mut proxy = pebble.proxy(AUTO).value("MORE", "").start()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    let (config, port) = (pebble.client()?, pebble.tls_port());
    drop(pebble);
    proxy.restart()?;
    // The process before may have been asking when the authority went.
    let own = format!("[warn] {}#", proxy.pid().context("it runs")?);
    let told = || {
        let log = proxy.error_log();
        let lines = log.lines().filter(|line| line.contains(&own));
        lines.filter(|line| line.contains("no advice")).count()
    };
    let found = Deadline::after(WAIT).poll(|| (told() > 0).then_some(()));
    found.context("the authority is not missed")?;
    // It would be said every second, if it were not left alone for a minute.
    for _ in 0..20 {
        connect(&config, port, "a.example")?;
    }
    let log = proxy.error_log();
    assert_eq!(told(), 1, "{log}");
    assert!(!log.contains("no certificate"), "{log}");
    Ok(())
}

#[test]
fn reloads_order_what_is_new() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let mut proxy = pebble.proxy(AUTO).value("MORE", "").start()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    let config = pebble.client()?;
    let old = connect(&config, pebble.tls_port(), "a.example")?;
    let more = "server {
        listen 127.0.0.1:%%PORT_METRICS%%;
        location /metrics { metrics; }
    }
    server {
        listen 127.0.0.1:%%TLS_01%% ssl;
        server_name b.example;
        acme_certificate default key=rsa;
        ssl_certificate auto;
    }";
    proxy.set_conf(&format!("{AUTO}{more}"))?;
    proxy.reload()?;
    says(&proxy, "the certificate for b.example was issued", 1)?;
    let new = connect(&config, pebble.tls_port(), "a.example")?;
    assert!(
        certificate(&old)? == certificate(&new)?,
        "it was ordered again"
    );
    connect(&config, pebble.tls_port(), "b.example")?;
    assert_eq!(pebble.orders(), 2);
    let port = proxy.named_port("PORT_METRICS");
    let page = Client::new(port).get("/metrics")?.text();
    let lines: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("millpond_acme_"))
        .collect();
    let has = |parts: &[&str]| {
        lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    for name in ["a.example-", "b.example-"] {
        assert!(has(&["orders_total", name, "\"issued\"} 1"]), "{lines:?}");
        assert!(has(&["orders_total", name, "\"failed\"} 0"]), "{lines:?}");
        assert!(has(&["certificate_left_seconds", name]), "{lines:?}");
    }
    Ok(())
}

#[test]
fn another_chain_can_be_preferred() -> Result<()> {
    let options = Options {
        chains: 1,
        ..Options::default()
    };
    let Some(pebble) = Pebble::start(options)? else {
        return Ok(());
    };
    let name = pebble.root_name(1)?;
    let line = format!("preferred_chain \"{name}\";");
    let proxy = pebble.proxy(AUTO).value("MORE", &line).start()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    connect(&pebble.client_of(1)?, pebble.tls_port(), "a.example")?;
    assert!(connect(&pebble.client()?, pebble.tls_port(), "a.example").is_err());
    Ok(())
}
