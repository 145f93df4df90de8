//! Lines of configurations that order certificates: mistakes, and what is said of them.

use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::{Kind, LogCheck, Proxy, binary};
use std::process::Command;

const ISSUER: &str = "acme_issuer x { uri https://localhost:1/dir; ssl_verify off; %%LINE%% }";

const SERVER: &str = "server {
    listen 127.0.0.1:%%PORT%% ssl;
    %%SERVER%%
    ssl_certificate $acme_certificate;
    ssl_certificate_key $acme_certificate_key;
}";

/// The report of a start.
fn report(http: &str, server: &str) -> Result<String> {
    let conf = format!("{http} {}", SERVER.replace("%%SERVER%%", server));
    let started = Proxy::new(Kind::Millpond, &conf)
        .log_check(LogCheck::Off)
        .start();
    match started {
        Ok(proxy) => Ok(proxy.error_log()),
        Err(error) => Ok(format!("{error:#}")),
    }
}

#[test]
fn mistakes_of_issuers_are_told() -> Result<()> {
    for (line, expected) in [
        (
            "account_key no-such-file.key;",
            "cannot load account key: open()",
        ),
        ("account_key ecdsa:234;", "unsupported curve"),
        ("account_key rsa:1024;", "unsupported key size"),
        ("challenge bad-value;", "unsupported challenge: bad-value"),
        (
            "challenge http; challenge http;",
            "\"challenge\" directive is duplicate",
        ),
        ("contact '';", "\"contact\" directive invalid value"),
        (
            "external_account_key a data:+;",
            "invalid base64url encoded value",
        ),
        ("profile a b;", "invalid parameter \"b\""),
        ("common_name_in_csr maybe;", "invalid value \"maybe\""),
        (
            "state_path;",
            "invalid number of arguments in \"state_path\"",
        ),
        ("accept_terms_of_service on;", "invalid number of arguments"),
        (
            "revoke on;",
            "unknown directive \"revoke\" in \"acme_issuer\"",
        ),
        ("uri ftp://a/;", "\"uri\" directive is duplicate"),
    ] {
        let issuer = ISSUER.replace("%%LINE%%", line);
        let told = report(&issuer, "acme_certificate x a.example;")?;
        ensure!(told.contains(expected), "{line}: {told}");
    }
    for (http, expected) in [
        ("acme_issuer x { ssl_verify off; }", "\"uri\" is missing"),
        (
            "acme_issuer x { uri ftp://a/; }",
            "invalid URL \"ftp://a/\"",
        ),
        (
            "acme_issuer default { ssl_verify off; }",
            "\"accept_terms_of_service\" is missing",
        ),
        (
            "acme_shared_zone bad-value;",
            "\"acme_shared_zone\" must have \"zone\" parameter",
        ),
        (
            "acme_shared_zone zone=t:bad;",
            "invalid zone size \"t:bad\"",
        ),
        ("acme_shared_zone zone=t:1k;", "zone \"t\" is too small"),
        (
            "acme_shared_zone zone=t:1m; acme_shared_zone zone=t:1m;",
            "\"acme_shared_zone\" directive is duplicate",
        ),
    ] {
        let told = report(http, "acme_certificate x a.example;")?;
        ensure!(told.contains(expected), "{http}: {told}");
    }
    Ok(())
}

#[test]
fn mistakes_of_servers_are_told() -> Result<()> {
    let issuer = ISSUER.replace("%%LINE%%", "state_path off;");
    for (server, expected) in [
        ("acme_certificate;", "\"issuer\" is missing"),
        (
            "acme_certificate none a.example;",
            "issuer \"none\" is missing",
        ),
        (
            "acme_certificate x;",
            "no identifiers found in \"server_name\"",
        ),
        (
            "server_name _; acme_certificate x;",
            "no identifiers found in \"server_name\"",
        ),
        (
            "acme_certificate x a..b;",
            "invalid server name \"a..b\": unexpected character '.'",
        ),
        (
            "acme_certificate x a.example key=dsa;",
            "invalid \"key\" value",
        ),
        (
            "acme_certificate x a.example key=rsa:1;",
            "unsupported key size",
        ),
        (
            "server_name *.a.example; acme_certificate x;",
            "invalid server name \"*.a.example\": a name with a wildcard",
        ),
        (
            "server_name www.a.*; acme_certificate x;",
            "invalid server name \"www.a.*\": a name with a wildcard",
        ),
        (
            "server_name ~^a a.example; acme_certificate x;",
            "no certificate is ordered for the regular expression \"^a\"",
        ),
        (
            "acme_certificate x a.example; acme_certificate x a.example;",
            "\"acme_certificate\" directive is duplicate",
        ),
    ] {
        let told = report(&issuer, server)?;
        ensure!(told.contains(expected), "{server}: {told}");
    }
    Ok(())
}

#[test]
fn the_short_form_needs_an_issuer_whose_terms_are_accepted() -> Result<()> {
    let two = "acme_issuer a { uri https://localhost:1/dir; ssl_verify off; }
        acme_issuer b { uri https://localhost:1/dir; ssl_verify off; }";
    for (http, server, expected) in [
        (
            "",
            "",
            "\"ssl_certificate auto\" needs an issuer of certificates",
        ),
        ("", "", "acme_issuer default { accept_terms_of_service; }"),
        (
            two,
            "",
            "\"ssl_certificate auto\" does not say which issuer is meant",
        ),
        (
            "",
            "ssl_certificate_key auto.key;",
            "\"ssl_certificate auto\"",
        ),
    ] {
        let conf = format!(
            "{http} server {{ listen 127.0.0.1:%%PORT%% ssl; server_name a.example;
                ssl_certificate auto; {server} }}"
        );
        let started = Proxy::new(Kind::Millpond, &conf).start();
        let Err(error) = started else {
            bail!("it starts: {conf}");
        };
        let told = format!("{error:#}");
        ensure!(told.contains(expected), "{told}");
    }
    Ok(())
}

/// The words of the program about a configuration, on both of its streams.
fn told(arguments: &[&str], conf: &str) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("nginx.conf");
    std::fs::write(
        &path,
        format!("pid {}/pid; events {{}} {conf}", dir.path().display()),
    )?;
    let program = binary(Kind::Millpond).context("no binary")?;
    let (first, rest) = arguments.split_first().context("no arguments")?;
    let output = Command::new(program)
        .args([*first, "-c"])
        .arg(&path)
        .args(rest)
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    let words: Vec<_> = String::from_utf8_lossy(&text)
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    // A test makes nothing.
    ensure!(!dir.path().join("acme_x").exists(), "a folder was made");
    Ok(words.join(" "))
}

const WHOLE: &str = "http {
    acme_issuer x { uri https://localhost:1/dir; ssl_verify off; }
    server { listen 127.0.0.1:18081; }
    server { listen 127.0.0.1:18444 ssl; server_name .a.example; ssl_certificate auto; }
    server {
        listen 127.0.0.1:18444 ssl;
        server_name b.example;
        ssl_certificate $acme_certificate;
        ssl_certificate_key $acme_certificate_key;
    }
}";

#[test]
fn checks_say_what_would_go_wrong_and_explanations_what_is_sent() -> Result<()> {
    let checked = told(&["check"], WHOLE)?;
    for expected in [
        "names are validated by http-01 on port 80, where nothing listens for plain HTTP",
        "\"$acme_certificate\" has no value in a server without \"acme_certificate\"",
    ] {
        ensure!(checked.contains(expected), "{checked}");
    }
    let explained = told(&["explain", "https://www.a.example:18444/"], WHOLE)?;
    let expected = "that for www.a.example, a.example, ordered from the issuer \"x\"";
    ensure!(explained.contains(expected), "{explained}");
    let heard = WHOLE.replace("127.0.0.1:18081", "127.0.0.1:80");
    let checked = told(&["check"], &heard)?;
    ensure!(!checked.contains("names are validated"), "{checked}");
    Ok(())
}
