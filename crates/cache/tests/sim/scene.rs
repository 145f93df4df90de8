//! Parts that the simulations share: dice, policies, failures, readers, zones, and the run of
//! seeds.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millpond_cache::admit::AdmissionPolicy;
use millpond_cache::disk_timeout::DiskPolicy;
use millpond_cache::exchange::{FetchFailure, Fetched};
use millpond_cache::fill::lock::LockPolicy;
use millpond_cache::fill::pump::Reader;
use millpond_cache::fill::rest::Look;
use millpond_cache::hit_for_pass::HitForPassPolicy;
use millpond_cache::ignore::IgnorePolicy;
use millpond_cache::max_variants::{MaxVariantsPolicy, VariantCount};
use millpond_cache::range::{RangeFill, RangePolicy};
use millpond_cache::refresh_backoff::{Backoff, BackoffPolicy};
use millpond_cache::revalidate::RevalidatePolicy;
use millpond_cache::step::Policies;
use millpond_cache::targeted::TargetedPolicy;
use millpond_cache::use_stale::{StaleCause, StalePolicy};
use millpond_cache::valid::ValidPolicy;
use millpond_conf::{Flags, OffOr};
use millpond_store::{Admission, ManualClock, Platform, Region, SimIo, ViewState, Zone, ZoneConf};
use tokio::task::LocalSet;

/// Seeds of a run that names none.
const SEEDS: u64 = 200;
/// Wall time when a seed begins, in seconds.
pub(crate) const EPOCH: i64 = 1_700_000_000;

/// SplitMix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn ms(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

/// Kind of run that a seed makes.
#[derive(Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) is_calm: bool,
    /// The lock is on.
    pub(crate) is_locked: bool,
    /// No fill ever grows old.
    pub(crate) is_ageless: bool,
    /// The zone is small, and its disk is full now and then.
    pub(crate) is_tight: bool,
    /// Keys are purged now and then.
    pub(crate) is_purged: bool,
    /// True if stored entries go at once, again and again, and the store refuses now and then.
    pub(crate) is_churned: bool,
}

#[derive(Debug)]
pub(crate) struct Fail {
    cause: Option<StaleCause>,
    status: u16,
}

impl FetchFailure for Fail {
    fn cause(&self) -> Option<StaleCause> {
        self.cause
    }

    fn status(&self) -> u16 {
        self.status
    }

    fn shared(status: u16) -> Self {
        Fail {
            cause: None,
            status,
        }
    }

    fn unvalidated(self) -> Self {
        Fail {
            status: 504,
            ..self
        }
    }
}

pub(crate) fn fail(cause: StaleCause, status: u16) -> Fail {
    Fail {
        cause: Some(cause),
        status,
    }
}

pub(crate) async fn pass_time(by: Duration) {
    if !by.is_zero() {
        let _ = tokio::time::timeout(by, std::future::pending::<()>()).await;
    }
}

pub(crate) fn policies(dice: &mut Dice, weather: Weather) -> Policies {
    let secs = Duration::from_secs;
    let causes = [
        StaleCause::Error,
        StaleCause::Timeout,
        StaleCause::Updating,
        StaleCause::Http500,
        StaleCause::Http404,
    ];
    let drawn = causes.into_iter().filter(|_| dice.percent(40));
    let causes: Flags<StaleCause> = drawn.collect();
    let patient = secs(1000);
    Policies {
        valid: ValidPolicy { times: vec![] },
        disk: DiskPolicy { timeout: secs(1) },
        lock: LockPolicy {
            enabled: weather.is_locked,
            timeout: if weather.is_calm {
                patient
            } else {
                secs(1 + dice.below(5))
            },
            age: if weather.is_ageless {
                patient
            } else {
                secs(1 + dice.below(5))
            },
            wait_time: Duration::from_millis(500),
        },
        max_variants: MaxVariantsPolicy {
            max: VariantCount(64),
        },
        hit_for_pass: HitForPassPolicy {
            time: if dice.percent(50) {
                OffOr::On(secs(1 + dice.below(10)))
            } else {
                OffOr::Off
            },
        },
        stale: StalePolicy { causes },
        revalidate: RevalidatePolicy {
            conditional: dice.percent(50),
            in_background: dice.percent(50),
        },
        backoff: BackoffPolicy {
            backoff: if dice.percent(50) {
                OffOr::On(Backoff {
                    min: secs(1),
                    max: secs(4),
                })
            } else {
                OffOr::Off
            },
        },
        range: RangePolicy {
            max_offset: None,
            fill: RangeFill::Whole,
            resume: true,
        },
        admission: AdmissionPolicy {
            min_uses: if !weather.is_calm && dice.percent(20) {
                2
            } else {
                1
            },
        },
        ignore: IgnorePolicy { fields: None },
        targeted: TargetedPolicy { names: None },
        lag: millpond_cache::lag::LagPolicy::default(),
    }
}

/// Reads a body as a proxy does: one that ends before its announced length has broken off.
pub(crate) async fn drain(mut fetched: impl Fetched) -> Result<Vec<u8>, Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = fetched.next().await {
        match piece {
            Ok(bytes) => body.extend_from_slice(&bytes),
            Err(_) => return Err(body),
        }
    }
    match fetched.length() {
        Some(length) if length != body.len() as u64 => Err(body),
        _ => Ok(body),
    }
}

/// End of reading a running fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    Whole,
    Broken,
    /// The reader was too slow for the others, or the origin for it: the rest may be had elsewhere.
    Left,
}

/// The most that a reader takes at once.
const LOOK_BYTES: u64 = 64 << 10;

/// Reads a running fill as a proxy does; `pace` is how long it takes over each piece.
pub(crate) async fn read(reader: Reader, pace: impl Fn() -> Duration) -> (Vec<u8>, ReadEnd) {
    let mut body = Vec::new();
    loop {
        let state = reader.view.state();
        let at = body.len() as u64;
        reader.seat.move_to(at);
        body.extend(regions(reader.view.regions(at..at + LOOK_BYTES)));
        if body.len() as u64 > at {
            pass_time(pace()).await;
            continue;
        }
        match state {
            ViewState::Complete => return (body, ReadEnd::Whole),
            ViewState::Filling => {
                reader.view.changed(at).await;
                continue;
            }
            ViewState::Abandoned(_) => {}
        }
        match reader.seat.look(&(at..at + LOOK_BYTES)) {
            Look::InView => {}
            Look::Bytes(bytes) => {
                body.extend(regions(bytes));
                pass_time(pace()).await;
            }
            Look::Wait(version) => reader.seat.changed(version).await,
            Look::End(Ok(())) => return (body, ReadEnd::Whole),
            Look::End(Err(_)) if !reader.seat.is_begun() => return (body, ReadEnd::Broken),
            Look::LetGo | Look::End(Err(_)) => return (body, ReadEnd::Left),
        }
    }
}

pub(crate) fn regions(regions: impl IntoIterator<Item = Region>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for region in regions {
        match region {
            Region::Memory(memory) => bytes.extend_from_slice(&memory),
            Region::File { file, offset, len } => {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                file.read_exact_at(&mut bytes[start..], offset)
                    .expect("read");
            }
        }
    }
    bytes
}

/// The zones that seeds run in; keys carry the seed.
pub(crate) struct Stores {
    pub(crate) roomy: Arc<Zone>,
    pub(crate) tight: Arc<Zone>,
    /// Zone that takes, once it is full, what is asked for twice.
    pub(crate) picky: Arc<Zone>,
    /// The disk of the tight one.
    pub(crate) disk: Arc<SimIo>,
}

impl Stores {
    pub(crate) fn open(dir: &Path) -> Self {
        let clock = || Arc::new(ManualClock::new(EPOCH as u64 * 1000));
        let conf = |name: &str, mebibytes: u64| ZoneConf {
            max_size: Some(mebibytes << 20),
            flush: Duration::ZERO,
            ..ZoneConf::new(name, dir.join(name))
        };
        let disk = Arc::new(SimIo::new());
        let platform = Platform {
            io: disk.clone(),
            ..Platform::default()
        };
        let picky = ZoneConf {
            admission: Admission::SecondHit,
            ..conf("picky", 2)
        };
        Stores {
            roomy: Zone::open(conf("roomy", 256), clock()).expect("zone"),
            tight: Zone::open_on(conf("tight", 2), clock(), platform).expect("zone"),
            picky: Zone::open(picky, clock()).expect("zone"),
            disk,
        }
    }
}

/// Guard that prints the seed when the run fails.
struct Failing(u64);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SEED={} fails", self.0);
        }
    }
}

/// Runs the seeds that the environment names, each on a paused clock of its own.
pub(crate) fn run_seeds<'a, F: Future<Output = ()>>(
    stores: &'a Stores,
    simulate: impl Fn(u64, &'a Stores) -> F,
) {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(value.parse::<u64>().expect("SEED and SEEDS are numbers"))
    };
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(SEEDS),
    };
    println!("seeds {seeds:?}; SEED=n runs one");
    for seed in seeds {
        let _failing = Failing(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        LocalSet::new().block_on(&runtime, simulate(seed, stores));
        stores.roomy.flush();
    }
}
