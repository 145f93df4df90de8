//! Space that a zone took is back when nothing lives in it, though its `proxy_cache_path` has no
//! limit.
//!
//! nginx unlinks the files of what was not used for `inactive`, or was purged; so the manual's own
//! example does without `max_size`. The rule here: the folder is nearly empty within a minute.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Request};

const MIB: u64 = 1 << 20;
const PAGES: u64 = 100;
/// Bytes that a zone without entries keeps: superblock, journal and the file of uses.
const REST: u64 = MIB;
const SOON: Duration = Duration::from_secs(60);

const CONF: &str = "
    proxy_cache_path %%DIR%%/zone keys_zone=zone:10m %%LIMITS%%;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache zone;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1h;
            proxy_cache_purge PURGE purge_all from 127.0.0.1;
            add_header X-Cache $upstream_cache_status;
        }
    }";

/// Bytes that the files of a zone take.
fn taken(folder: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(folder).ok()?;
    files
        .map(|file| Some(file.ok()?.metadata().ok()?.blocks() * 512))
        .sum()
}

fn fill(client: Client) -> Result<()> {
    for number in 0..PAGES {
        let response = client.get(&format!("/{number}"))?;
        ensure!(response.status == 200, "{number}: {}", response.status);
    }
    Ok(())
}

fn started(origin: &Origin, limits: &str) -> Result<Proxy> {
    origin.route("/*", Answer::new(200).body(vec![b'x'; MIB as usize]));
    let proxy = Proxy::new(Kind::Millpond, CONF);
    let proxy = proxy.origin(origin).value("LIMITS", limits).start()?;
    fill(Client::new(proxy.port()))?;
    Ok(proxy)
}

/// Waits until a zone that was full has next to nothing.
fn space_is_back(proxy: &Proxy) -> Result<()> {
    let folder = proxy.dir().join("zone");
    let is_empty = || taken(&folder).filter(|taken| *taken <= REST);
    let empty = Deadline::after(SOON).poll(is_empty);
    empty.with_context(|| format!("{:?} bytes are left", taken(&folder)))?;
    // What comes then is stored.
    let client = Client::new(proxy.port());
    fill(client)?;
    let again = client.get("/1")?;
    ensure!(
        again.header("X-Cache") == Some("HIT"),
        "{:?}",
        again.headers
    );
    Ok(())
}

#[test]
fn space_is_back_after_inactive() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = started(&origin, "inactive=15s")?;
    space_is_back(&proxy)
}

#[test]
fn space_is_back_after_everything_was_purged() -> Result<()> {
    for limits in ["", "max_size=200m"] {
        let origin = Origin::start()?;
        let proxy = started(&origin, limits)?;
        let held = taken(&proxy.dir().join("zone")).context("no folder")?;
        ensure!(held >= PAGES * MIB, "{held} bytes");
        let purged = Client::new(proxy.port()).send(&Request::new("PURGE", "/"))?;
        ensure!(purged.status / 100 == 2, "{}", purged.status);
        space_is_back(&proxy)?;
    }
    Ok(())
}
