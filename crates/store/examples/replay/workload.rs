//! The workloads, made from a seed.
//!
//! - **web**: a million objects with log-normal sizes (median 8 KiB, mean about 25 KiB), asked for
//!   by Zipf's law with exponent 0.9; one request in ten is for something that nobody asks for
//!   again, and twice a crawler goes through a tenth of all objects in turn.
//! - **video**: sessions that watch slices of a mebibyte in order, one every four seconds. Every
//!   few minutes a video comes out; how often it is begun falls with its age, and half of those
//!   who begin leave within the first fifth.
//! - **once**: 200,000 objects of the same sizes by Zipf's law with exponent 0.8; every second
//!   request is for something that nobody asks for again.
//! - **scan**: the same objects with exponent 1; five times somebody goes through all of
//!   them in turn, which is a third of all requests.
//! - **shift**: the same objects with exponent 1; ten times during the run other objects
//!   become the popular ones.
//! - **fits**: 20,000 objects that fit the zone with exponent 0.6; one request in ten is for
//!   something that nobody asks for again, so that the zone fills.
//! - **zipf-0.7**, **zipf-0.9**, **zipf-1.1**: 200,000 objects by Zipf's law with these exponents,
//!   and nothing else.
//! - **sizes**: 100,000 objects from 1 KiB to 1 GiB by Pareto's law with exponent 0.6 (mean about
//!   400 KiB), asked for by Zipf's law with exponent 0.9.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random::{Random, mixed};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Milliseconds since the beginning.
    pub(crate) at_ms: u64,
    /// Object that is asked for.
    pub(crate) object: u64,
    /// Bytes of the object's body.
    pub(crate) size: u32,
}

/// A workload and the zone that it is tried with.
pub(crate) struct Workload {
    /// Name of the workload.
    pub(crate) name: &'static str,
    /// Sizes of the zone, in bytes.
    pub(crate) sizes: &'static [u64],
    /// Makes that many requests.
    pub(crate) make: fn(u64, usize) -> Vec<Request>,
    /// Number of requests that make a representative run.
    pub(crate) requests: usize,
}

/// Workloads that can be replayed.
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
    Workload {
        name: "once",
        sizes: &[1 << 30],
        make: |seed, count| few(seed, count, &ONCE),
        requests: 2_000_000,
    },
    Workload {
        name: "scan",
        sizes: &[1 << 30],
        make: |seed, count| few(seed, count, &SCAN),
        requests: 2_000_000,
    },
    Workload {
        name: "shift",
        sizes: &[1 << 30],
        make: |seed, count| few(seed, count, &SHIFT),
        requests: 2_000_000,
    },
    Workload {
        name: "fits",
        sizes: &[1 << 30],
        make: |seed, count| few(seed, count, &FITS),
        requests: 2_000_000,
    },
    Workload {
        name: "zipf-0.7",
        sizes: &[1 << 30],
        make: |seed, count| {
            few(
                seed,
                count,
                &Few {
                    exponent: 0.7,
                    ..ZIPF
                },
            )
        },
        requests: 2_000_000,
    },
    Workload {
        name: "zipf-0.9",
        sizes: &[1 << 30],
        make: |seed, count| {
            few(
                seed,
                count,
                &Few {
                    exponent: 0.9,
                    ..ZIPF
                },
            )
        },
        requests: 2_000_000,
    },
    Workload {
        name: "zipf-1.1",
        sizes: &[1 << 30],
        make: |seed, count| {
            few(
                seed,
                count,
                &Few {
                    exponent: 1.1,
                    ..ZIPF
                },
            )
        },
        requests: 2_000_000,
    },
    Workload {
        name: "sizes",
        sizes: &[8 << 30],
        make: |seed, count| few(seed, count, &SIZES),
        requests: 1_000_000,
    },
];

/// A workload of few objects by Zipf's law.
struct Few {
    objects: u64,
    exponent: f64,
    /// One request in so many is for something new; 0: none.
    once: u64,
    /// Number of passes through all objects.
    scans: u64,
    /// Number of times that the popularity of all objects changes.
    shifts: u64,
    /// Bytes of an object.
    size: fn(u64) -> u32,
}

const ONCE: Few = Few {
    objects: 200_000,
    exponent: 0.8,
    once: 2,
    scans: 0,
    shifts: 0,
    size: web_size,
};
const ZIPF: Few = Few { once: 0, ..ONCE };
const SIZES: Few = Few {
    objects: 100_000,
    exponent: 0.9,
    once: 0,
    size: wide_size,
    ..ONCE
};
const SCAN: Few = Few {
    exponent: 1.0,
    once: 0,
    scans: 5,
    ..ONCE
};
const SHIFT: Few = Few {
    exponent: 1.0,
    once: 0,
    shifts: 10,
    ..ONCE
};
const FITS: Few = Few {
    objects: 20_000,
    exponent: 0.6,
    once: 10,
    ..ONCE
};

fn few(seed: u64, count: usize, of: &Few) -> Vec<Request> {
    let mut random = Random::new(seed);
    let weights = cumulated((1..=of.objects).map(|rank| (rank as f64).powf(-of.exponent)));
    let mut new = 1 << 40;
    let scan = count as u64 / 3 / of.scans.max(1);
    let every = count as u64 / of.scans.max(1);
    let one = |at: u64| {
        let is_scan = of.scans > 0 && at % every < 2 * scan && at.is_multiple_of(2);
        let object = if is_scan {
            at % every / 2 % of.objects
        } else if of.once > 0 && random.next().is_multiple_of(of.once) {
            new += 1;
            new
        } else {
            let shift = at * (of.shifts + 1) / count as u64;
            let rank = chosen(&weights, &mut random);
            // Ranks are spread over the objects, another way after each shift.
            (rank * 7_919 + shift * 65_537) % of.objects
        };
        Request {
            at_ms: at,
            object,
            size: (of.size)(object),
        }
    };
    (0..count as u64).map(one).collect()
}

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

/// From 1 KiB to 1 GiB by Pareto's law with exponent 0.6.
fn wide_size(object: u64) -> u32 {
    let size = 1024.0 * Random::new(mixed(object)).unit().max(1e-9).powf(-1.0 / 0.6);
    size.min((1_u64 << 30) as f64) as u32
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

/// Video that somebody begins, and the slice at which it will be left.
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
