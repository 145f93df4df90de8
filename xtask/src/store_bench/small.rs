//! Bytes of disk that an entry of 1 KiB takes, all included, as `du` sees it.
//!
//! The heads are those that the binary makes of an ordinary answer; files that are preallocated
//! count whole. What was not stored is left out, as in `stored`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use millpond_testkit::{Answer, Kind, Origin, Proxy};

use super::stored::{share_of_hits, unique_paths};
use crate::bench::load;
use crate::tally::Tally;

const CONF: &str = r"
    proxy_cache_path %%DIR%%/cache keys_zone=small:10m max_size=%%LIMIT%%m inactive=1d;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_cache small;
            proxy_cache_valid 200 1h;
            add_header X-Cache-Status $upstream_cache_status;
        }
    }
";

/// Bytes of disk for an entry of 1 KiB.
const BOUND: f64 = 1.6 * 1024.0;

/// Stores `--entries` of them, a million by default.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let entries = match args {
        [] => 1_000_000,
        [name, value] if name == "--entries" => value.parse::<u64>()?.max(10_000),
        _ => bail!("the option is --entries N"),
    };
    let origin = Origin::start()?;
    let answer = Answer::new(200)
        .header("Server", "nginx")
        .header("Date", "Fri, 20 Nov 2026 09:00:00 GMT")
        .header("Content-Type", "text/html; charset=utf-8")
        .header("Cache-Control", "public, max-age=3600")
        .header("Vary", "Accept-Encoding")
        .last_modified("Thu, 19 Nov 2026 10:20:30 GMT")
        .etag("\"6553f1ab-400\"");
    origin.route("/*", answer.body(vec![b'x'; 1024]));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        // Room for all of them, and segments that are small against that.
        .value("LIMIT", &(entries * 2 / 1024 + 64).to_string())
        .start()?;
    let (mut stored, mut round) = (0.0, 0);
    while stored < entries as f64 {
        let script = unique_paths(round)?;
        let asked = load::run_script(&proxy, &script, 16, Duration::from_secs(5))?;
        std::fs::remove_file(script)?;
        origin.forget_requests();
        stored += asked as f64 * share_of_hits(&proxy, round, asked)?;
        round += 1;
    }
    let taken = taken(&proxy.dir().join("cache"))? as f64;
    let each = taken / stored;
    println!("{stored:.0} entries of 1 KiB take {each:.0} bytes of disk each ({taken:.0} in all)");
    Ok(Tally::from(each < BOUND))
}

/// Bytes that a folder's files take of the file system, and the folder itself.
fn taken(folder: &Path) -> Result<u64> {
    let mut blocks = folder.metadata()?.blocks();
    for entry in std::fs::read_dir(folder)? {
        blocks += entry?.metadata()?.blocks();
    }
    Ok(blocks * 512)
}
