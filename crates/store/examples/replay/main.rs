//! Replays workloads against the store and against other policies: hit ratios and bytes written.
//!
//! `cargo run --release -p millpond-store --example replay -- [--workload NAME] [--size BYTES]
//! [--policy NAME] [--requests N] [--seed N] [--dir DIR]`
//!
//! It fails when the store's write amplification is above 1.3.

mod belady;
mod hollow;
mod policy;
mod random;
mod store;
mod tiny_lfu;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use belady::Belady;
use millpond_store::Admission;
use policy::{Lfu, Lru, Policy, S3Fifo};
use store::Store;
use tiny_lfu::TinyLfu;
use workload::{Request, WORKLOADS, Workload};

/// Bytes written for each byte that was new.
const MOST_AMPLIFICATION: f64 = 1.3;

struct Options {
    workload: Option<String>,
    size: Option<u64>,
    policy: Option<String>,
    requests: Option<usize>,
    seed: u64,
    dir: PathBuf,
}

fn main() -> ExitCode {
    let options = options();
    let mut is_within = true;
    for workload in WORKLOADS {
        if options
            .workload
            .as_deref()
            .is_none_or(|name| name == workload.name)
        {
            is_within &= replay(workload, &options);
        }
    }
    if is_within {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn options() -> Options {
    let mut options = Options {
        workload: None,
        size: None,
        policy: None,
        requests: None,
        seed: 1,
        dir: std::env::temp_dir(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        let number = || value.parse::<u64>().expect("a number");
        match word.as_str() {
            "--workload" => options.workload = Some(value),
            "--size" => options.size = Some(number()),
            "--policy" => options.policy = Some(value),
            "--requests" => options.requests = Some(number() as usize),
            "--seed" => options.seed = number(),
            "--dir" => options.dir = value.into(),
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

/// Replays a workload; true if the store stays within its bound.
fn replay(workload: &Workload, options: &Options) -> bool {
    let count = options.requests.unwrap_or(workload.requests);
    let requests = (workload.make)(options.seed, count);
    let bytes: u64 = requests.iter().map(|request| u64::from(request.size)).sum();
    println!("{}: {count} requests, {} GiB", workload.name, bytes >> 30);
    println!(
        "| zone | policy | hits, % of requests | hits, % of bytes | GiB written | amplification |"
    );
    println!("|---|---|---|---|---|---|");
    let mut is_within = true;
    for size in workload.sizes {
        if options.size.is_some_and(|only| only != *size) {
            continue;
        }
        let is_wanted = |name: &str| options.policy.as_deref().is_none_or(|only| only == name);
        for policy in policies(*size, &requests) {
            if is_wanted(&policy.name()) {
                run(policy, *size, &requests);
            }
        }
        for admission in [Admission::All, Admission::SecondHit, Admission::Trial] {
            if !is_wanted(store::name(admission)) {
                continue;
            }
            is_within &= run_store((*size, admission), &requests, options);
        }
    }
    println!();
    is_within
}

fn policies(size: u64, requests: &[Request]) -> Vec<Box<dyn Policy>> {
    vec![
        Box::new(S3Fifo::fifo(size)),
        Box::new(Lru::new(size)),
        Box::new(Lfu::new(size)),
        Box::new(S3Fifo::new(size)),
        Box::new(TinyLfu::new(size, requests)),
        Box::new(Belady::new(size, requests)),
        Box::new(Lru::nginx(size, "nginx, keys_zone 10m", 10)),
        Box::new(Lru::nginx(size, "nginx, keys_zone 100m", 100)),
        Box::new(Lru::varnish(size)),
        Box::new(Lru::ats(size)),
    ]
}

fn run_store((size, admission): (u64, Admission), requests: &[Request], options: &Options) -> bool {
    let dir = options
        .dir
        .join(format!("replay-{}-{size}", std::process::id()));
    let store = Store::new(size, admission, &dir);
    let (policy, amplification) = run(Box::new(store), size, requests);
    drop(policy);
    std::fs::remove_dir_all(&dir).expect("removed");
    amplification <= MOST_AMPLIFICATION
}

/// Replays and prints one row; hits count after the first quarter, when the zone is full.
fn run(mut policy: Box<dyn Policy>, size: u64, requests: &[Request]) -> (Box<dyn Policy>, f64) {
    let warm = requests.len() / 4;
    let (mut hits, mut hit_bytes, mut bytes) = (0_u64, 0_u64, 0_u64);
    for (at, request) in requests.iter().enumerate() {
        let is_hit = policy.request(request);
        if at >= warm {
            bytes += u64::from(request.size);
            hits += u64::from(is_hit);
            hit_bytes += u64::from(is_hit) * u64::from(request.size);
        }
    }
    let amplification = policy.amplification().unwrap_or(1.0);
    println!(
        "| {} GiB | {} | {:.2} | {:.2} | {:.1} | {amplification:.3} |",
        size >> 30,
        policy.name(),
        hits as f64 * 100.0 / (requests.len() - warm) as f64,
        hit_bytes as f64 * 100.0 / bytes.max(1) as f64,
        policy.written() as f64 / (1_u64 << 30) as f64,
    );
    (policy, amplification)
}
