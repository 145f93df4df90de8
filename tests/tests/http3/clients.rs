//! Clients of HTTP/3 that people use: the libraries aioquic and quic-go, and Chromium.
//!
//! | deed | aioquic | quic-go | Chromium |
//! |---|---|---|---|
//! | many requests at once | four large ones | 300 small ones | 100 objects of a page |
//! | ranges | one | a body in 30 | |
//! | a body that goes up | 300 kB | 300 kB | 300 kB |
//! | a new key (RFC 9001 §6) | yes | | |
//! | another connection ID, another port (RFC 9000 §5.1, §9) | yes, in the middle of a body | | |
//! | a session that is resumed, with early data (RFC 9001 §4.6) | yes | yes | |
//!
//! Each library prints a line for each deed. What is not installed is skipped by name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Browser, Deadline, LogCheck, Origin, Proxy, offset_bytes, skip};
use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::kit::{Identity, WAIT, identity, proxy_of};

const CONF: &str = "%%GLOBALS%%
    worker_processes 2;
    events {}
    http {
        %%HTTP%%
        log_format seen '$server_protocol $status $uri';
        access_log %%DIR%%/seen.log seen;
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
        ssl_certificate %%DIR%%/cert.pem;
        ssl_certificate_key %%DIR%%/key.pem;
        ssl_early_data on;
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            listen 127.0.0.1:%%PORT%% quic reuseport;
            server_name localhost;
            location / { proxy_pass http://%%ORIGIN%%; }
            location = /large {
                proxy_pass http://%%ORIGIN%%;
                proxy_cache z;
                proxy_cache_valid 200 1h;
            }
            location = /address { return 200 '$connection $remote_port'; }
            location /objects/ { default_type text/plain; return 200 'object $uri'; }
            location = /page { default_type text/html; alias %%DIR%%/page.html; }
        }
    }";

const LARGE_LEN: u64 = 3_000_000;
/// Seconds that a client may take on a machine that does much else.
const PATIENCE: &str = "120";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn origin() -> Result<Origin> {
    let origin = Origin::start()?;
    origin.route("/small", Answer::new(200).body("small"));
    let large = Answer::new(200).header("Accept-Ranges", "bytes");
    origin.route("/large", large.etag("\"1\"").offset_body(LARGE_LEN, 1));
    origin.answer_with("/echo", |request| Answer::new(200).body(&request.body));
    Ok(origin)
}

fn serve(origin: &Origin, identity: &Identity) -> Result<Proxy> {
    let proxy = proxy_of(CONF, origin, identity).file("page.html", PAGE);
    proxy.log_check(LogCheck::Off).start()
}

/// The lines that a client prints of what it does with a server.
fn lines_of(mut client: Command) -> Result<Vec<String>> {
    let (origin, identity) = (origin()?, identity()?);
    let proxy = serve(&origin, &identity)?;
    let large = Sha256::digest(offset_bytes(0..LARGE_LEN, 1));
    let digest: String = large.iter().map(|byte| format!("{byte:02x}")).collect();
    client.arg(proxy.port().to_string());
    client.arg(proxy.dir().join("cert.pem")).arg(digest);
    let output = client.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = String::from_utf8(output.stdout)?;
    let is_good = output.status.success();
    ensure!(
        is_good,
        "{}: {said}\n{lines}\n{}",
        output.status,
        proxy.error_log()
    );
    Ok(lines.lines().map(str::to_owned).collect())
}

/// A program that ends in `PATIENCE`.
fn program(path: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE).arg(path.as_ref());
    command
}

#[test]
fn aioquic_does_what_it_can() -> Result<()> {
    let libraries = root().join("target/tools/python");
    if !libraries.join("aioquic").is_dir() {
        skip("aioquic is not installed: `cargo xtask setup`");
        return Ok(());
    }
    let mut client = program("python3");
    client.arg(root().join("tests/clients/quic.py"));
    client.env("PYTHONPATH", libraries);
    let expected = [
        "small small",
        "upload 200 True",
        "large {True}",
        "range 206 10",
        "key small",
        "id small",
        "moved True True",
        "meanwhile True",
        "again small True True",
    ];
    assert_eq!(lines_of(client)?, expected);
    Ok(())
}

#[test]
fn quic_go_does_what_it_can() -> Result<()> {
    let client = root().join("target/tools/bin/quic");
    if !client.is_file() {
        skip("the client by quic-go is not built: `cargo xtask setup`");
        return Ok(());
    }
    let expected = [
        "small 300",
        "ranges true",
        "upload 200 true",
        "first false",
        "again small true true",
    ];
    assert_eq!(lines_of(program(client))?, expected);
    Ok(())
}

const PAGE: &str = "<!doctype html><title>objects</title><script>
    const one = async n => (await (await fetch('/objects/' + n)).text()) === 'object /objects/' + n;
    const all = async () => {
        const whole = await Promise.all([...Array(100).keys()].map(one));
        const large = await (await fetch('/large')).arrayBuffer();
        const sent = new Uint8Array(300000).map((_, at) => at * 7 % 251);
        const echo = await fetch('/echo', { method: 'POST', body: sent });
        const came = new Uint8Array(await echo.arrayBuffer());
        const entries = performance.getEntriesByType('resource');
        const spoken = new Set(entries.map(it => it.nextHopProtocol));
        const same = came.length === sent.length && came.every((byte, at) => byte === sent[at]);
        const right = whole.filter(it => it).length;
        return [right, large.byteLength, same, [...spoken].join()].join(' ');
    };
    all().then(it => document.title = it, it => document.title = 'failed ' + it);
</script>";

/// The digest of a key, as the browser wants to be told it.
fn digest_of(key: &KeyPair) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(key.subject_public_key_info());
    // RFC 4648 §4: 32 bytes are ten groups of three, and two bytes.
    let digits = digest.chunks(3).flat_map(|part| {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let number = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = move |place: u32| DIGITS[(number >> (18 - 6 * place) & 63) as usize];
        (0..=part.len() as u32).map(digit)
    });
    digits.map(char::from).chain(['=']).collect()
}

#[test]
fn chromium_loads_a_page_of_many_objects() -> Result<()> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let identity = Identity {
        pem: certificate.pem(),
        key: key.serialize_pem(),
        der: certificate.der().clone(),
    };
    let origin = origin()?;
    let proxy = serve(&origin, &identity)?;
    let trusted = format!("--ignore-certificate-errors-spki-list={}", digest_of(&key));
    let quic = format!("--origin-to-force-quic-on=localhost:{}", proxy.port());
    // It would try ::1 first, and over QUIC that only.
    let place = "--host-resolver-rules=MAP localhost 127.0.0.1";
    let Some(mut browser) = Browser::start_with((800, 600), &[&trusted, &quic, place])? else {
        skip("chromium is not installed: `cargo xtask setup`");
        return Ok(());
    };
    browser.open(&format!("https://localhost:{}/page", proxy.port()))?;
    browser.wait_for("document.title", &json!("100 3000000 true h3"))?;
    let is_seen = || {
        let seen = proxy.read_file("seen.log");
        seen.contains("HTTP/3.0 200 /page").then_some(seen)
    };
    let seen = Deadline::after(WAIT).poll(is_seen).context("the page")?;
    assert!(!seen.contains("HTTP/2"), "{seen}");
    Ok(())
}
