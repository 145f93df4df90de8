//! Caches that were written by every version of the formats are warm: whole bodies, slices,
//! variants, and the purges of the journal. Those whose keys were made without a secret are set
//! aside instead, and told.
//!
//! `tests/fixtures/cache-vN` holds the directories, one closed in order, one of a process that was
//! killed. `cargo test -p millpond-tests --test cache_formats -- --ignored` writes those of today's
//! version; older ones are never written again.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, Origin, Proxy, ProxyBuilder, Request, offset_bytes,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version that is written today.
const VERSION: u32 = 2;
/// The first that is still used.
const FIRST_KEYED: u32 = 2;
const WAIT: Duration = Duration::from_secs(10);

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=800k inactive=30y;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_valid 200 30y;
        proxy_cache_tag $upstream_http_xkey;
        proxy_cache_purge PURGE from 127.0.0.1 types=tag,all;
        add_header X-Cache $upstream_cache_status;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /sliced { proxy_pass http://%%ORIGIN%%; slice 16k; }
    }";

/// Path, length, version of the body, and the language that is asked for.
const STORED: [(&str, u64, u16, &str); 6] = [
    ("/empty", 0, 1, "-"),
    ("/small", 700, 2, "-"),
    ("/large", 70_000, 3, "-"),
    ("/sliced", 50_000, 4, "-"),
    ("/varied", 900, 5, "de"),
    ("/varied", 900, 5, "en"),
];
const PURGED: [&str; 2] = ["/purged", "/tagged"];

fn fixtures(version: u32) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join(format!("fixtures/cache-v{version}"))
}

fn with_files(mut builder: ProxyBuilder, from: &Path) -> Result<ProxyBuilder> {
    let entries = std::fs::read_dir(from).with_context(|| from.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().context("a name")?.to_string_lossy();
        builder = builder.file(&format!("cache/{name}"), std::fs::read(&path)?);
    }
    Ok(builder)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        std::fs::copy(&path, to.join(path.file_name().context("a name")?))?;
    }
    Ok(())
}

fn get(client: &Client, path: &str, language: &str) -> Result<(String, Vec<u8>)> {
    let request = Request::get(path).header("Accept-Language", language);
    let response = client.send(&request)?;
    let status = response.header("X-Cache").unwrap_or_default().to_string();
    Ok((status, response.body))
}

/// Writes the fixtures of today's version.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_fixtures() -> Result<()> {
    let origin = Origin::start()?;
    for (path, len, version, _) in STORED {
        let answer = Answer::new(200).offset_body(len, version).etag("\"v\"");
        let answer = match path {
            "/varied" => answer.header("Vary", "Accept-Language"),
            _ => answer,
        };
        origin.route(path, answer);
    }
    for path in PURGED {
        let answer = Answer::new(200).offset_body(600, 9);
        origin.route(path, answer.header("Xkey", &path[1..]));
    }
    let mut proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let all = STORED.map(|(path, _, _, language)| (path, language));
    for (path, language) in all.into_iter().chain(PURGED.map(|path| (path, "-"))) {
        let is_hit = || Some(get(&client, path, language).ok()?.0 == "HIT").filter(|hit| *hit);
        Deadline::after(WAIT)
            .poll(is_hit)
            .with_context(|| format!("{path} is not stored"))?;
    }
    client.send(&Request::new("PURGE", "/purged"))?;
    let purge = Request::new("PURGE", "/").header("Purge-Type", "tag");
    client.send(&purge.header("Surrogate-Key", "tagged"))?;
    copy_dir(
        &proxy.dir().join("cache"),
        &fixtures(VERSION).join("killed"),
    )?;
    proxy.quit()?;
    copy_dir(
        &proxy.dir().join("cache"),
        &fixtures(VERSION).join("closed"),
    )
}

/// All that was stored is a hit, byte for byte, and what was purged is not.
#[test]
fn caches_of_every_version_are_warm() -> Result<()> {
    for version in FIRST_KEYED..=VERSION {
        for name in ["closed", "killed"] {
            let origin = Origin::start()?;
            origin.route("/*", Answer::new(500));
            let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin);
            let from = fixtures(version).join(name);
            let mut proxy = with_files(proxy, &from)?.start()?;
            let client = Client::new(proxy.port());
            for (path, len, version, language) in STORED {
                let (status, body) = get(&client, path, language)?;
                assert_eq!(status, "HIT", "{path} of {}", from.display());
                let wanted = offset_bytes(0..len, version);
                assert!(body == wanted, "{path} of {}", from.display());
            }
            for path in PURGED {
                assert_ne!(get(&client, path, "-")?.0, "HIT", "{path}");
            }
            proxy.quit()?;
        }
    }
    Ok(())
}

/// A cache whose keys anyone could make is not used; the error log says so once, and what comes is
/// stored.
#[test]
fn caches_without_a_secret_are_set_aside() -> Result<()> {
    for version in 1..FIRST_KEYED {
        for name in ["closed", "killed"] {
            let origin = Origin::start()?;
            origin.route("/*", Answer::new(200).offset_body(600, 1));
            let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin);
            let from = fixtures(version).join(name);
            let mut proxy = with_files(proxy, &from)?.start()?;
            let told = proxy.error_log();
            let lines = told
                .lines()
                .filter(|line| line.contains("without a secret"));
            assert_eq!(lines.count(), 1, "{told}");
            let client = Client::new(proxy.port());
            let mut paths = STORED.map(|(path, ..)| path).to_vec();
            paths.dedup();
            for path in paths {
                assert_ne!(get(&client, path, "-")?.0, "HIT", "{path}");
                let is_hit = || Some(get(&client, path, "-").ok()?.0 == "HIT").filter(|hit| *hit);
                Deadline::after(WAIT).poll(is_hit).context("stored")?;
            }
            proxy.quit()?;
        }
    }
    Ok(())
}
