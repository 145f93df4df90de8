//! A video of eighty gigabytes is held in slices, and never in memory.
//!
//! The origin has it whole; clients ask for places all over it, and one watches more of it than the
//! zone holds. With `SEEDS` set to a number it watches as many gibibytes.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Ranges, Request, offset_bytes};

const TOTAL: u64 = 80_000_000_000;
const VERSION: u16 = 7;
const MIB: u64 = 1 << 20;
/// Memory that the process may ever take: far less than is watched in the long form, and than a
/// table with a word for each slice and reader would leave for buffers.
const MEMORY: u64 = 100 * MIB;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=24m memory=8m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid 200 206 1h;
            slice 1m;
        }
    }";

/// The most memory that a process ever had.
fn most_memory(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line
        .context("no peak is given")?
        .trim()
        .trim_end_matches(" kB");
    Ok(kib.parse::<u64>()? * 1024)
}

fn check_range(client: &Client, (start, len): (u64, u64)) -> Result<()> {
    let range = format!("bytes={start}-{}", start + len - 1);
    let response = client.send(&Request::get("/video").header("Range", &range))?;
    ensure!(response.status == 206, "{range}: {}", response.status);
    let total = format!("bytes {start}-{}/{TOTAL}", start + len - 1);
    ensure!(
        response.header("Content-Range") == Some(total.as_str()),
        "{range}"
    );
    ensure!(
        response.body == offset_bytes(start..start + len, VERSION),
        "{range}: other bytes"
    );
    Ok(())
}

#[test]
fn eighty_gigabytes_are_served_in_slices_with_bounded_memory() -> Result<()> {
    let origin = Origin::start()?;
    let video = Answer::new(200).offset_body(TOTAL, VERSION);
    origin.route("/video", video.etag("\"v\"").ranges(Ranges::Supported));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    for _ in 0..2 {
        for start in [0, 12_345_678_901, TOTAL / 2, TOTAL - 5000] {
            check_range(&client, (start, 5000))?;
        }
    }
    // A slice for each place, no byte twice.
    let sent = origin.sent_bytes();
    ensure!(sent <= 4 * MIB, "{sent} bytes from the origin");
    let gibibytes = std::env::var("SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse::<u64>().ok());
    let watched = gibibytes.map_or(48, |gibibytes| gibibytes << 10);
    for piece in 0..watched / 16 {
        check_range(&client, (20_000_000_000 + piece * 16 * MIB, 16 * MIB))?;
    }
    let memory = most_memory(proxy.pid().context("it runs")?)?;
    println!(
        "{watched} MiB watched, {} MiB of memory at most",
        memory / MIB
    );
    ensure!(memory <= MEMORY, "{memory} bytes of memory");
    Ok(())
}
