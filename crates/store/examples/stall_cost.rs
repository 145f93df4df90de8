//! Costs of a stalled disk for those who do not need it, and for those who do.
//!
//! Two disks with the same entries; the reads of one do not return. A thousand look-ups go to it,
//! and between them look-ups go to the other, and to what the stalled one has in memory: all on one
//! thread, as a worker's do. Prints what they took and which reads were begun. Then the other disk
//! does not write: what it takes to store, to give another head and to remove is printed, too. It
//! fails when one in a hundred took longer than `LIMIT`.
//!
//! `cargo xtask store-bench stall`, or
//! `cargo run --release -p millpond-store --example stall_cost`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_store::{Fault, Key, Look, Platform, SimIo, SystemClock, Zone, ZoneConf};

/// Far above what a look-up takes, far below what anybody notices.
const LIMIT: Duration = Duration::from_millis(20);
const ENTRIES: u32 = 1000;

type Failure = Box<dyn std::error::Error>;

fn key(number: u32) -> Key {
    Key::of(&number.to_le_bytes())
}

fn open(dir: &std::path::Path, io: &Arc<SimIo>) -> Result<Arc<Zone>, Failure> {
    let conf = ZoneConf {
        max_size: Some(256 << 20),
        ..ZoneConf::new("stall", dir)
    };
    let platform = Platform {
        io: Arc::<SimIo>::clone(io),
        ..Platform::default()
    };
    Ok(Zone::open_on(conf, Arc::new(SystemClock), platform)?)
}

/// A zone with entries on the disk, of which only the first is in memory.
fn filled(dir: &std::path::Path, io: &Arc<SimIo>) -> Result<Arc<Zone>, Failure> {
    let zone = open(dir, io)?;
    for number in 0..ENTRIES {
        let mut writer = zone.begin(key(number), Some(1000))?;
        writer.set_head(Bytes::from_static(b"head"));
        writer.append(Bytes::from(vec![b'x'; 1000]))?;
        writer.finish()?;
    }
    zone.close();
    drop(zone);
    let zone = open(dir, io)?;
    zone.find(&key(0)).ok_or("an entry was lost")?;
    Ok(zone)
}

/// Times that look-ups took.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    #[allow(clippy::disallowed_methods, reason = "a measurement")]
    fn of<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = act();
        self.0.push(began.elapsed());
        done
    }

    fn look(&mut self, zone: &Zone, number: u32) -> Look {
        self.of(|| zone.look(&key(number)))
    }

    /// Prints the median and what one in a hundred is above; whether that is little.
    fn print(&mut self, what: &str) -> bool {
        let (median, most) = (self.percentile(50), self.percentile(99));
        println!(
            "{what:<28} {:>8} {:>8}",
            median.as_micros(),
            most.as_micros()
        );
        most < LIMIT
    }

    /// The one that so many of a hundred are not above.
    fn percentile(&mut self, percent: usize) -> Duration {
        self.0.sort_unstable();
        let position = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(position).copied().unwrap_or_default()
    }
}

fn run() -> Result<bool, Failure> {
    let dir = tempfile::tempdir()?;
    let (io, healthy) = (Arc::new(SimIo::new()), Arc::new(SimIo::new()));
    let stalled = filled(&dir.path().join("stalled"), &io)?;
    let other = filled(&dir.path().join("other"), &healthy)?;
    io.set(Fault::Stall);
    let (mut needs, mut memory, mut elsewhere) =
        (Times::default(), Times::default(), Times::default());
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for number in 1..ENTRIES {
        match needs.look(&stalled, number) {
            Look::Cold(cold) => waiting.push(cold),
            Look::Stalled => refused += 1,
            Look::Unknown(_) => return Err("not all is loaded".into()),
            Look::Found(_) | Look::Missing => return Err("a stalled disk has answered".into()),
        }
        let answers = [memory.look(&stalled, 0), elsewhere.look(&other, number)];
        if !answers.iter().all(|look| matches!(look, Look::Found(_))) {
            return Err("what is not on the stalled disk was not found".into());
        }
    }
    println!("look-ups while a disk does not read, microseconds: median, 99 of 100");
    let mut is_quick = true;
    for (what, times) in [
        ("of that disk, not answered", &mut needs),
        ("of that disk, in memory", &mut memory),
        ("of another disk", &mut elsewhere),
    ] {
        is_quick &= times.print(what);
    }
    println!(
        "reads that wait {}, refused at once {refused}",
        waiting.len()
    );
    println!("threads that read {}", io.stalled());
    io.set(Fault::None);
    Ok(change_without_writes(&other, &healthy)? && is_quick)
}

/// Stores, changes and removes while a disk does not write.
fn change_without_writes(zone: &Zone, io: &SimIo) -> Result<bool, Failure> {
    let (mut store, mut head, mut remove) = (Times::default(), Times::default(), Times::default());
    io.set(Fault::StallWrites);
    for number in ENTRIES..2 * ENTRIES {
        let stored = store.of(|| {
            let mut writer = zone.begin(key(number), Some(10_000))?;
            writer.set_head(Bytes::from_static(b"head"));
            writer.append(Bytes::from_static(&[b'x'; 10_000]))?;
            writer.finish()
        });
        let entry = stored?;
        head.of(|| zone.replace_head(&entry, Bytes::from_static(b"another")))?;
        if !remove.of(|| zone.remove(&key(number))) {
            return Err("what was stored was not there".into());
        }
    }
    println!("changes while a disk does not write, microseconds: median, 99 of 100");
    let is_quick = store.print("to store") & head.print("to give another head");
    let is_quick = remove.print("to remove") & is_quick;
    println!("calls that wait for it {}", io.stalled());
    io.set(Fault::None);
    Ok(is_quick)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("some took longer than {LIMIT:?}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
