//! Purges a second that are durable, with 1, 8 and 64 threads that purge, against one thread that
//! writes and syncs as much.
//!
//! `cargo xtask store-bench purges`, or
//! `cargo run --release -p millpond-cache --example purge_speed -- [DIR]`, where DIR is on the disk
//! that is meant.
//!
//! Each thread purges one key after the other and waits for each acknowledgement. It fails when 64
//! threads do not get four times as many purges as one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_cache::purge::{Mode, Target};
use millpond_cache::zone::CacheZone;
use millpond_store::{SystemClock, Zone, ZoneConf};

const TIME: Duration = Duration::from_secs(2);
/// Bytes that a purge takes in the journal, about.
const RECORD: usize = 80;
/// Factor that gathering must gain with 64 threads; far below what it gains where a sync takes
/// long.
const BOUND: f64 = 4.0;

type Failure = Box<dyn std::error::Error>;

#[allow(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}

/// Writes and syncs a second, one after the other.
#[allow(
    clippy::disallowed_methods,
    reason = "what the journal is compared with"
)]
fn syncs(dir: &Path) -> Result<f64, Failure> {
    let file = File::create_new(dir.join("plain"))?;
    file.set_len(1 << 20)?;
    file.sync_all()?;
    let (began, mut count) = (now(), 0_u64);
    while began.elapsed() < TIME {
        file.write_all_at(&[1; RECORD], count * RECORD as u64 % (1 << 19))?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Purges a second by so many threads.
fn purges(dir: &Path, threads: u64) -> Result<f64, Failure> {
    let conf = ZoneConf {
        max_size: Some(256 << 20),
        ..ZoneConf::new("purges", dir.join(format!("zone-{threads}")))
    };
    let store = Zone::open(conf, Arc::new(SystemClock))?;
    let zone = CacheZone::new("purges".to_string(), store);
    let (count, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (zone, count, failed) = (&zone, &count, &failed);
            scope.spawn(move || {
                // Few keys, so that the book does not grow.
                let target = Target::Key(Bytes::from(format!("http://host/{thread}")));
                while began.elapsed() < TIME {
                    match zone.purge(&target, Mode::Hard, 1) {
                        Ok(_) => count.fetch_add(1, Ordering::Relaxed),
                        Err(_) => failed.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
    });
    if failed.into_inner() > 0 {
        return Err("a purge failed".into());
    }
    Ok(count.into_inner() as f64 / began.elapsed().as_secs_f64())
}

fn run(dir: &Path) -> Result<bool, Failure> {
    let plain = syncs(dir)?;
    println!("writes and syncs a second    {plain:>8.0}");
    let mut alone = plain;
    let mut gain = 0.0;
    for threads in [1, 8, 64] {
        let speed = purges(dir, threads)?;
        if threads == 1 {
            alone = speed;
        }
        gain = speed / alone;
        println!(
            "purges a second, {threads:>2} threads  {speed:>8.0}  {:.2} of the syncs",
            speed / plain
        );
    }
    Ok(gain >= BOUND)
}

fn main() -> ExitCode {
    let home = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let measured = tempfile::tempdir_in(home)
        .map_err(Failure::from)
        .and_then(|dir| run(dir.path()));
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("64 threads get less than {BOUND} times what one gets");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
