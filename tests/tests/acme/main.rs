//! Certificates that are ordered by ACME, from pebble.

use anyhow::Result;

mod kit;

use kit::{Options, Pebble, ask, certificate, connect, says};

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
