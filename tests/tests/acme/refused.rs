//! Authorities that refuse: orders, names, accounts.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Kind, LogCheck, Origin, Proxy, free_port};

use crate::AUTO;
use crate::kit::{Options, Pebble, connect, says};

#[test]
fn validations_that_fail_are_tried_again_later_or_after_a_reload() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    // NXDOMAIN.
    pebble.names().fail("a.example", 3);
    let proxy = pebble.proxy(AUTO).value("MORE", "").start()?;
    let why = "no certificate for a.example: \"a.example\" could not be validated by http-01 (";
    says(&proxy, why, 1)?;
    says(&proxy, "; the next try is at ", 1)?;
    let config = pebble.client()?;
    assert!(connect(&config, pebble.tls_port(), "a.example").is_err());
    says(&proxy, "as yet: \"a.example\" could not be validated", 1)?;
    assert_eq!(pebble.orders(), 1);
    pebble.names().addresses("a.example", &["127.0.0.1"]);
    proxy.reload()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    connect(&config, pebble.tls_port(), "a.example")?;
    assert_eq!(pebble.orders(), 2);
    Ok(())
}

#[test]
fn names_that_an_authority_will_not_have_are_not_tried_again() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let conf = AUTO.replace("a.example", "www.blocked.example");
    let proxy = pebble.proxy(&conf).value("MORE", "").start()?;
    says(
        &proxy,
        "no certificate for www.blocked.example: rejectedIdentifier: ",
        1,
    )?;
    says(
        &proxy,
        "there is no other try before the configuration is read again",
        1,
    )?;
    Ok(())
}

#[test]
fn customers_prove_who_they_are() -> Result<()> {
    let options = Options {
        customers: true,
        ..Options::default()
    };
    let Some(pebble) = Pebble::start(options)? else {
        return Ok(());
    };
    let bad = "external_account_key kid-1 data:AAAA;";
    for (line, expected) in [
        (
            "",
            "the account cannot be had: the authority takes accounts of its customers alone",
        ),
        (bad, "the account cannot be had: "),
        (
            "external_account_key kid-1 customer.key;",
            "the certificate for a.example was issued",
        ),
        (
            "external_account_key kid-1 data:%%CUSTOMER_KEY%%;",
            "the certificate for a.example was issued",
        ),
    ] {
        let conf = AUTO.replace("%%MORE%%", line);
        let proxy = pebble
            .proxy(&conf)
            .file("customer.key", format!("{}\n", crate::kit::CUSTOMER_KEY))
            .start()?;
        says(&proxy, expected, 1)?;
    }
    Ok(())
}

#[test]
fn accounts_whose_keys_are_refused_say_so() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    // A name that pebble takes for none.
    let proxy = pebble
        .proxy(AUTO)
        .value("MORE", "contact gopher:nobody;")
        .start()?;
    says(&proxy, "the account cannot be had: unsupportedContact", 1)?;
    says(&proxy, "there is no other try before", 1)?;
    assert_eq!(pebble.orders(), 0);
    Ok(())
}

#[test]
fn kinds_of_keys_sign_for_accounts() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    for kind in ["ecdsa:384", "ecdsa:521", "rsa:2048"] {
        let line = format!("account_key {kind}; common_name_in_csr on;");
        let proxy = pebble.proxy(AUTO).value("MORE", &line).start()?;
        says(&proxy, "the certificate for a.example was issued", 1)?;
    }
    Ok(())
}

/// An authority that answers as it is told, in clear text.
fn scripted() -> Result<Origin> {
    let origin = Origin::start()?;
    let at = |path: &str| format!("http://{}{path}", origin.address());
    let directory = serde_json::json!({
        "newNonce": at("/nonce"), "newAccount": at("/account"), "newOrder": at("/order"),
    });
    origin.route("/dir", Answer::new(200).body(directory.to_string()));
    let nonce = Answer::new(200).header("Replay-Nonce", "one");
    origin.route("/nonce", nonce);
    Ok(origin)
}

fn proxy_of(origin: &Origin) -> Result<Proxy> {
    let conf = AUTO.replace("ssl_trusted_certificate pebble.pem;", "ssl_verify off;");
    Proxy::new(Kind::Millpond, &conf)
        .value("URI", &format!("http://{}/dir", origin.address()))
        .value("MORE", "")
        .value("HTTP_01", &free_port()?.to_string())
        .value("TLS_01", &free_port()?.to_string())
        .log_check(LogCheck::Off)
        .start()
}

/// A refusal.
fn refusal(kind: &str) -> Answer {
    let body = format!(r#"{{"type":"urn:ietf:params:acme:error:{kind}","detail":"no"}}"#);
    Answer::new(403)
        .header("Replay-Nonce", "two")
        .header("Content-Type", "application/problem+json")
        .body(body)
}

#[test]
fn keys_that_an_authority_will_not_have_are_not_shown_again() -> Result<()> {
    let origin = scripted()?;
    origin.route("/account", refusal("badPublicKey"));
    let proxy = proxy_of(&origin)?;
    let why = "the account cannot be had: badPublicKey: no; there is no other try before";
    says(&proxy, why, 1)?;
    // A reload may have brought another key.
    proxy.reload()?;
    says(&proxy, why, 2)
}

#[test]
fn the_time_that_an_authority_asks_for_is_waited_for() -> Result<()> {
    let origin = scripted()?;
    let day = 86_400.to_string();
    origin.route(
        "/account",
        refusal("rateLimited").header("Retry-After", &day),
    );
    let mut proxy = proxy_of(&origin)?;
    says(
        &proxy,
        "the account cannot be had: rateLimited: no; the next try is at ",
        1,
    )?;
    let log = proxy.error_log();
    let found = log.lines().find(|line| line.contains("rateLimited"));
    let line = found.context("no line")?;
    let today = line.get(..10).unwrap_or_default().replace('/', "-");
    let (_, next) = line.split_once("the next try is at ").context("no time")?;
    ensure!(!next.starts_with(&today), "{line}");
    // A reload does not mend it. Who is asked then by another issuer is asked after this one.
    let other = scripted()?;
    let more = format!(
        "acme_issuer other {{ uri http://{}/dir; ssl_verify off; }}
        server {{ listen 127.0.0.1:%%HTTP_01%%; server_name b.example; acme_certificate other; }}",
        other.address()
    );
    let asked = origin.requests().len();
    let conf = AUTO
        .replace("ssl_trusted_certificate pebble.pem;", "ssl_verify off;")
        .replace(
            "server_name a.example;",
            "server_name a.example; acme_certificate default;",
        );
    proxy.set_conf(&format!("{conf}{more}"))?;
    proxy.reload()?;
    other.wait_for_requests(2)?;
    assert_eq!(origin.requests().len(), asked);
    Ok(())
}

#[test]
fn answers_that_are_none_are_told_and_tried_again() -> Result<()> {
    let loops = |origin: &Origin| {
        let place = format!("http://{}/dir", origin.address());
        Answer::new(302).header("Location", &place)
    };
    let long = "x".repeat(2 * 1024 * 1024);
    for (path, answer, expected) in [
        (
            "/dir",
            Answer::new(200).body("nonsense"),
            "the answer cannot be read (",
        ),
        (
            "/dir",
            Answer::new(200).body("{}"),
            "the answer cannot be read (",
        ),
        ("/dir", Answer::new(500), "unexpected status 500"),
        (
            "/dir",
            Answer::new(200).body(long),
            "its answer is longer than 1048576 bytes",
        ),
        (
            "/dir",
            Answer::raw("nonsense\n\n"),
            "it does not speak HTTP",
        ),
        (
            "/dir",
            Answer::raw("HTTP/1.1 102 Processing\r\n\r\n".repeat(200)),
            "it sends nothing but informational answers",
        ),
        ("/nonce", Answer::new(200), "it gives no nonce"),
        ("/account", refusal("badNonce"), "badNonce: no"),
        (
            "/account",
            Answer::new(200).body("{}"),
            "the answer cannot be read (",
        ),
        (
            "/account",
            Answer::new(200).body(r#"{"status":"revoked"}"#),
            "not valid any more",
        ),
        (
            "/account",
            Answer::new(200).body(r#"{"status":"valid"}"#),
            "invalid URL \"\"",
        ),
    ] {
        let origin = scripted()?;
        origin.route(path, answer);
        let proxy = proxy_of(&origin)?;
        says(&proxy, expected, 1)?;
        says(&proxy, "acme: ", 1)?;
    }
    let origin = scripted()?;
    origin.route("/dir", loops(&origin));
    says(&proxy_of(&origin)?, "too many redirects", 1)
}
