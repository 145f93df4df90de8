//! `proxy_cache_path … scrub=`: what a disk has changed is found, logged and asked for again; a
//! reload turns it on and off.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, binary};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(30);
const LEN: usize = 100_000;

fn conf(parameter: &str) -> String {
    format!(
        "proxy_cache_path %%DIR%%/pond keys_zone=z:1m max_size=64m memory=0 {parameter};
        server {{
            listen 127.0.0.1:%%PORT%%;
            add_header X-Cache $upstream_cache_status;
            location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 200 1h; }}
        }}"
    )
}

fn stat(proxy: &Proxy) -> Result<Value> {
    let tool = Command::new(binary(Kind::Millpond).context("the binary")?)
        .args(["cache", "stat", "--json", "-p"])
        .arg(proxy.dir())
        .arg("-c")
        .arg(proxy.dir().join("nginx.conf"))
        .output()?;
    let said = String::from_utf8_lossy(&tool.stdout).to_string();
    serde_json::from_str(&said).with_context(|| format!("{tool:?}"))
}

fn scrub(proxy: &Proxy) -> Option<Value> {
    let stat = stat(proxy).ok()?;
    stat.pointer("/zones/0/disks/0/scrub").cloned()
}

/// Changes a byte in the middle of what was written first.
fn damage(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.to_string_lossy().contains("segment-") {
            let file = std::fs::File::options().read(true).write(true).open(path)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, 50_000)?;
            file.write_all_at(&[!byte[0]], 50_000)?;
        }
    }
    Ok(())
}

#[test]
fn what_the_disk_has_changed_is_found_and_asked_for_again() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).offset_body(LEN as u64, 1));
    let mut proxy = Proxy::new(Kind::Millpond, &conf("scrub=1s"))
        .origin(&origin)
        // What is corrupt is an error.
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    let body = client.get("/a")?.body;
    let is_hit = || (client.get("/a").ok()?.header("X-Cache")? == "HIT").then_some(());
    Deadline::after(WAIT).poll(is_hit).context("no hit")?;
    damage(&proxy.dir().join("pond"))?;
    let is_found = || proxy.error_log().contains("corrupt record").then_some(());
    Deadline::after(WAIT)
        .poll(is_found)
        .context("nothing is found")?;
    let is_counted = || (scrub(&proxy)?.get("corrupt")? == 1).then_some(());
    Deadline::after(WAIT)
        .poll(is_counted)
        .context("nothing is counted")?;
    let again = client.get("/a")?;
    assert_eq!(again.header("X-Cache"), Some("MISS"));
    assert!(again.body == body);
    assert!(proxy.error_log().contains("scrubbed"));
    proxy.set_conf(&conf("scrub=off"))?;
    proxy.reload()?;
    let is_off = || scrub(&proxy)?.is_null().then_some(());
    Deadline::after(WAIT).poll(is_off).context("it goes on")?;
    proxy.quit()
}

#[test]
fn mistakes_are_told() -> Result<()> {
    let origin = Origin::start()?;
    for value in ["scrub=often", "scrub=0", "scrub="] {
        let started = Proxy::new(Kind::Millpond, &conf(value))
            .origin(&origin)
            .start();
        let error = started.err().context("it starts")?;
        let told = format!("{error:#}");
        let expected = format!("invalid scrub value \"{value}\"");
        assert!(told.contains(&expected), "{told}");
    }
    Ok(())
}
