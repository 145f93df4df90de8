//! Chromium over HTTPS and HTTP/2: many small objects, and a film with seeking.
//!
//! The browser takes the certificate because it is told the digest of its key
//! (`--ignore-certificate-errors-spki-list`), and no other certificate.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Browser, Deadline, Kind, LogCheck, Proxy, skip};
use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs;
use std::process::Command;

use super::kit::WAIT;

const CONF: &str = "%%GLOBALS%%
    events {}
    http {
        %%HTTP%%
        log_format seen '$connection $server_protocol $status $uri $http_range';
        access_log %%DIR%%/seen.log seen;
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            http2 on;
            ssl_certificate cert.pem;
            ssl_certificate_key key.pem;
            root %%DIR%%/www;
            location / { types { text/html html; } }
            location /objects/ { default_type text/plain; return 200 'object $uri'; }
            location /film.webm { slice 1m; proxy_cache z; proxy_cache_key $uri$slice_range;
                proxy_set_header Range $slice_range; proxy_cache_valid 200 206 1h;
                proxy_pass http://127.0.0.1:%%PORT_FILES%%; }
        }
        server {
            listen 127.0.0.1:%%PORT_FILES%%;
            access_log off;
            root %%DIR%%/www;
            types { video/webm webm; }
        }
    }";

const PAGE: &str = "<!doctype html><title>objects</title><script>
    const one = async n => (await (await fetch('/objects/' + n)).text()) === 'object /objects/' + n;
    const all = async () => {
        const whole = await Promise.all([...Array(100).keys()].map(one));
        const entries = performance.getEntriesByType('resource');
        const objects = entries.filter(it => it.name.includes('/objects/'));
        const spoken = new Set(objects.map(it => it.nextHopProtocol));
        return [whole.filter(it => it).length, objects.length, [...spoken].join()].join(' ');
    };
    all().then(it => document.title = it, it => document.title = 'failed ' + it);
</script>";

const FILM: &str = "<!doctype html><title>film</title>
    <video id=v src=/film.webm preload=auto muted></video><canvas id=c width=32 height=18></canvas>
    <script>
    // A frame of the place where the film stands: how many of its points are not black.
    const seek = to => new Promise((done, failed) => {
        v.onerror = () => failed(v.error.message);
        v.onseeked = () => {
            const drawing = c.getContext('2d');
            drawing.drawImage(v, 0, 0, 32, 18);
            const points = drawing.getImageData(0, 0, 32, 18).data;
            let light = 0;
            for (let at = 0; at < points.length; at += 4) light += points[at] + points[at + 1] > 40;
            done(Math.round(v.currentTime) + (light > 100 ? ' drawn' : ' black'));
        };
        v.currentTime = to;
    });
    v.onloadedmetadata = async () => {
        const told = [];
        try {
            for (const to of [25, 5, 15]) told.push(await seek(to));
        } catch (it) { told.push(it); }
        document.title = told.join();
    };
    </script>";

/// Base64 (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let mut three = [0; 4];
        three[1..=part.len()].copy_from_slice(part);
        let number = u32::from_be_bytes(three);
        for place in 0..4 {
            let digit = usize::try_from(number >> (18 - 6 * place) & 63).unwrap_or(0);
            text.push(if place <= part.len() {
                char::from(DIGITS[digit])
            } else {
                '='
            });
        }
    }
    text
}

/// A server, and a browser that takes its certificate; none where there is no browser.
fn start() -> Result<Option<(Proxy, Browser)>> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let digest = base64(&Sha256::digest(key.subject_public_key_info()));
    let trusted = format!("--ignore-certificate-errors-spki-list={digest}");
    let Some(browser) = Browser::start_with((800, 600), &[&trusted])? else {
        skip("chromium is not installed: `cargo xtask setup`");
        return Ok(None);
    };
    let server = Proxy::new(Kind::Millpond, CONF)
        .file("cert.pem", certificate.pem())
        .file("key.pem", key.serialize_pem())
        .file("www/objects.html", PAGE)
        .file("www/film.html", FILM)
        .log_check(LogCheck::Off)
        .start()?;
    Ok(Some((server, browser)))
}

#[test]
fn browser_gets_a_hundred_objects_over_one_connection() -> Result<()> {
    let Some((server, mut browser)) = start()? else {
        return Ok(());
    };
    browser.open(&format!("https://localhost:{}/objects.html", server.port()))?;
    browser.wait_for("document.title", &json!("100 100 h2"))?;
    let is_object = |line: &&String| line.contains(" /objects/");
    let all_lines = || {
        let found = server.wait_for_lines("seen.log", 101).ok()?;
        (found.iter().filter(is_object).count() == 100).then_some(found)
    };
    let lines = Deadline::after(WAIT)
        .poll(all_lines)
        .context("a hundred lines")?;
    let mut connections: Vec<_> = lines
        .iter()
        .filter(is_object)
        .map(|line| line.split(' ').next())
        .collect();
    connections.dedup();
    assert_eq!(connections.len(), 1, "{lines:?}");
    Ok(())
}

#[test]
fn browser_seeks_in_a_film() -> Result<()> {
    let Some((server, mut browser)) = start()? else {
        return Ok(());
    };
    let film = server.dir().join("www/film.webm");
    // More than a browser reads ahead.
    let made = Command::new("ffmpeg")
        .args(["-loglevel", "error", "-f", "lavfi"])
        .args(["-i", "testsrc=duration=30:size=640x360:rate=8"])
        .args([
            "-vf",
            "noise=alls=60:allf=t",
            "-c:v",
            "libvpx",
            "-b:v",
            "10M",
        ])
        .args([
            "-minrate",
            "10M",
            "-maxrate",
            "10M",
            "-deadline",
            "realtime",
        ])
        .args(["-cpu-used", "8", "-g", "8"])
        .arg(&film)
        .output();
    let Ok(made) = made else {
        skip("ffmpeg is not installed: `cargo xtask setup`");
        return Ok(());
    };
    ensure!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let len = fs::metadata(&film)?.len();
    ensure!(len > 8 << 20, "the film has {len} bytes only");
    browser.open(&format!("https://localhost:{}/film.html", server.port()))?;
    browser.wait_for("document.title", &json!("25 drawn,5 drawn,15 drawn"))?;
    // The last answer may be broken off, and is logged then.
    drop(browser);
    let has_sought = || {
        let log = server.read_file("seen.log");
        let ranges: Vec<_> = log
            .lines()
            .filter(|it| it.contains(" /film.webm "))
            .collect();
        // What it has in its own cache is confirmed by 304 (RFC 9110 §13.2.2: before the range).
        let is_part = |it: &&str| [" 206 ", " 304 "].iter().any(|status| it.contains(status));
        let whole = ranges
            .iter()
            .all(|it| it.contains(" HTTP/2.0 ") && is_part(it));
        let far = ranges.iter().any(|it| !it.ends_with("bytes=0-"));
        (whole && far).then_some(())
    };
    let found = Deadline::after(WAIT).poll(has_sought);
    found.with_context(|| server.read_file("seen.log"))
}
