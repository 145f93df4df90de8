//! The two workloads, made from a seed.
//!
//! - **web**: a million objects with log-normal sizes (median 8 KiB, mean about 25 KiB), asked for
//!   by Zipf's law with exponent 0.9; one request in ten is for something that nobody asks for
//!   again, and twice a crawler goes through a tenth of all objects in turn.
//! - **video**: sessions that watch slices of a mebibyte in order, one every four seconds. Every
//!   few minutes a video comes out; how often it is begun falls with its age, and half of those
//!   who begin leave within the first fifth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random::{Random, mixed};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Milliseconds since the beginning.
    pub(crate) at_ms: u64,
    /// What is asked for.
    pub(crate) object: u64,
    /// Bytes of its body.
    pub(crate) size: u32,
}

/// A workload and the zone that it is tried with.
pub(crate) struct Workload {
    /// Its name.
    pub(crate) name: &'static str,
    /// Sizes of the zone, in bytes.
    pub(crate) sizes: &'static [u64],
    /// Makes that many requests.
    pub(crate) make: fn(u64, usize) -> Vec<Request>,
    /// How many requests make a representative run.
    pub(crate) requests: usize,
}

/// Both.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "web",
        sizes: &[1 << 30, 4 << 30],
        make: web,
        requests: 6_000_000,
    },
    Workload {
        name: "video",
        sizes: &[4 << 30, 16 << 30],
        make: video,
        requests: 300_000,
    },
];

const WEB_OBJECTS: u64 = 1_000_000;
const WEB_EXPONENT: f64 = 0.9;
/// Requests for a million objects in 100 minutes.
const WEB_INTERVAL_US: u64 = 1000;

fn web(seed: u64, count: usize) -> Vec<Request> {
    let mut random = Random::new(seed);
    let weights = cumulated((1..=WEB_OBJECTS).map(|rank| (rank as f64).powf(-WEB_EXPONENT)));
    let mut requests = Vec::with_capacity(count);
    let mut once = WEB_OBJECTS;
    let crawl = (WEB_OBJECTS / 10).min(count as u64 / 20);
    let mut crawled = 0;
    while requests.len() < count {
        let at = requests.len();
        let is_crawl = [count / 3, count / 3 * 2]
            .iter()
            .any(|begin| (*begin..*begin + 2 * crawl as usize).contains(&at) && at % 2 == 0);
        let object = if is_crawl {
            crawled += 1;
            // Nothing that anybody else asks for.
            2 * WEB_OBJECTS + count as u64 + crawled % crawl
        } else if random.next().is_multiple_of(10) {
            once += 1;
            once
        } else {
            chosen(&weights, &mut random)
        };
        requests.push(Request {
            at_ms: at as u64 * WEB_INTERVAL_US / 1000,
            object,
            size: web_size(object),
        });
    }
    requests
}

fn web_size(object: u64) -> u32 {
    let size = 8192.0 * (1.5 * Random::new(mixed(object)).normal()).exp();
    size.clamp(128.0, 16_777_216.0) as u32
}

/// Bytes of a slice of a video.
const SLICE: u32 = 1 << 20;
/// A slice is watched in so many milliseconds: 2 Mbit/s.
const SLICE_MS: u64 = 4000;
/// A video comes out this often.
const RELEASE_MS: u64 = 120_000;
/// Videos that are there at the beginning.
const CATALOGUE: u64 = 3000;
/// A session begins this often, on average.
const SESSION_MS: f64 = 400.0;

fn video(seed: u64, count: usize) -> Vec<Request> {
    let mut random = Random::new(seed);
    let mut requests = Vec::with_capacity(count);
    // When its next slice is due, the video, the slice, and the slice at which it is left.
    let mut sessions: BinaryHeap<Reverse<(u64, u64, u64, u64)>> = BinaryHeap::new();
    let mut begins = 0.0;
    while requests.len() < count {
        let next = sessions.peek().map_or(u64::MAX, |Reverse(next)| next.0);
        if begins as u64 <= next {
            let now = begins as u64;
            let (video, end) = begun(now, &mut random);
            sessions.push(Reverse((now, video, 0, end)));
            begins -= SESSION_MS * (1.0 - random.unit()).ln();
            continue;
        }
        let Some(Reverse((at_ms, video, slice, end))) = sessions.pop() else {
            continue;
        };
        requests.push(Request {
            at_ms,
            object: video << 16 | slice,
            size: SLICE,
        });
        if slice + 1 < end {
            sessions.push(Reverse((at_ms + SLICE_MS, video, slice + 1, end)));
        }
    }
    requests
}

/// Which video somebody begins, and at which slice it will be left.
fn begun(now_ms: u64, random: &mut Random) -> (u64, u64) {
    let newest = CATALOGUE + now_ms / RELEASE_MS;
    // The age in releases falls off as 1/age: as many watch the newest ten as the next ninety.
    let age = ((newest as f64 + 1.0).powf(random.unit()) - 1.0) as u64;
    let video = newest - age.min(newest);
    // A third of a gigabyte on average, 20 MiB to 2 GiB.
    let length = (200.0 * Random::new(mixed(video)).normal().exp()).clamp(20.0, 2048.0);
    let watched = match random.unit() {
        short if short < 0.5 => short * 0.4,
        long => long,
    };
    (video, ((length * watched) as u64).max(1))
}

fn cumulated(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |weight| {
        sum += weight;
        sum
    };
    weights.map(add).collect()
}

fn chosen(weights: &[f64], random: &mut Random) -> u64 {
    let all = weights.last().copied().unwrap_or(0.0);
    let point = random.unit() * all;
    weights.partition_point(|sum| *sum <= point) as u64
}
