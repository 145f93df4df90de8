//! Time and memory that it takes to open a zone of many small entries, and costs of its index.
//!
//! `cargo xtask store-bench open`, `… index` and `… slices`, or
//! `cargo run --release -p millpond-store --example open_index -- WHAT [ENTRIES] [DIR]`
//!
//! `slices` is the memory of entries whose bodies are slices, and whose heads stand in another
//! segment than those because they were all replaced: each is known to two segments.
//!
//! The zone is made once in DIR (a temporary one if there is none, removed in the end) and opened
//! by processes of their own, so that what is measured of memory is the zone's alone: after a
//! close, and after a process that had it open was killed. The files are in the page cache, unless
//! memory is short.
//!
//! `inserts` stores entries and tells how long each of them held its thread.
//!
//! Bounds: a million entries in half a second and ten million in four, twice that after a kill;
//! 64 bytes of memory an entry, all of the process included; 200 ns a lookup. One that must wait
//! for the one before may take as long as two reads of memory, where those take longer. No entry
//! that is stored holds its thread for a millisecond.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use memmap2::{Advice, MmapMut};
use millpond_store::{Clock, Key, ManualClock, Platform, SystemClock, Zone, ZoneConf};

const BODY: usize = 20;
const HEAD: usize = 30;
/// Keys that are looked up, in no order.
const PROBES: u64 = 1 << 20;
/// Number of times that each figure is taken; the best counts, because others use the machine's
/// memory, too.
const ROUNDS: u32 = 9;
/// Entries that are looked up in the memory tier.
const KEPT: u64 = 100_000;
/// Keys that are at home in one place, and how long it may take to store and to find them all.
const MET: u64 = 30_000;
const MET_MAX: Duration = Duration::from_secs(3);
/// The longest of what is measured one by one that are shown.
const SHOWN: usize = 6;
/// Longest time that an entry which is stored may hold its thread.
const INSERT_MAX: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map(String::as_str);
    let entries = word(1).and_then(|word| word.parse().ok());
    let entries: u64 = entries.unwrap_or(10_000_000);
    let dir = word(2).map(PathBuf::from);
    match word(0).unwrap_or("open") {
        "child-open" => child_open(&conf(&dir.expect("a directory"), entries), entries),
        "child-index" => child_index(&conf(&dir.expect("a directory"), entries), entries),
        "child-slices" => child_slices(&sliced(&dir.expect("a directory"), entries), entries),
        "child-killed" => child_killed(&conf(&dir.expect("a directory"), entries)),
        "child-inserts" => child_inserts(&conf(&dir.expect("a directory"), entries), entries),
        what => parent(what, entries, dir),
    }
}

fn conf(dir: &Path, entries: u64) -> ZoneConf {
    ZoneConf {
        max_size: Some(entries * 400 + (1 << 30)),
        inactive: Duration::from_secs(1_000_000),
        memory: 256 << 20,
        ..ZoneConf::new("open", dir)
    }
}

/// No body stands in a record.
fn sliced(dir: &Path, entries: u64) -> ZoneConf {
    ZoneConf {
        small: 0,
        memory: 0,
        max_size: Some(entries * 800 + (1 << 30)),
        ..conf(dir, entries)
    }
}

fn parent(what: &str, entries: u64, given: Option<PathBuf>) -> ExitCode {
    let own = std::env::temp_dir().join(format!("open-index-{}", std::process::id()));
    let dir = given.clone().unwrap_or_else(|| own.clone());
    if !dir.join("millpond.zone").exists() {
        match what {
            "inserts" => {}
            "slices" => fill(&sliced(&dir, entries), entries, true),
            _ => fill(&conf(&dir, entries), entries, false),
        }
    }
    let run = |word: &str| {
        let this = std::env::current_exe().expect("this program");
        let mut child = Command::new(this);
        child.arg(word).arg(entries.to_string()).arg(&dir);
        child.status().expect("started").success()
    };
    let is_fine = match what {
        "index" => run("child-index"),
        "slices" => run("child-slices"),
        "inserts" => run("child-inserts"),
        _ => {
            println!("after a close:");
            let closed = run("child-open");
            // It ends without closing the zone, and says so.
            run("child-killed");
            println!("after a kill:");
            run("child-open") && closed
        }
    };
    if given.is_none() {
        std::fs::remove_dir_all(own).expect("removed");
    }
    if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn fill(conf: &ZoneConf, entries: u64, are_replaced: bool) {
    let began = Instant::now();
    let zone = Zone::open(conf.clone(), Arc::new(SystemClock)).expect("open");
    for number in 0..entries {
        store(&zone, number);
    }
    for number in (0..entries).filter(|_| are_replaced) {
        replace(&zone, number);
    }
    zone.close();
    println!("{entries} entries made in {:.1?}", began.elapsed());
}

fn store(zone: &Arc<Zone>, number: u64) {
    loop {
        let mut writer = zone.begin(key(number), Some(BODY as u64)).expect("begun");
        writer.set_head(Bytes::from_static(&[b'h'; HEAD]));
        let body = Bytes::from_static(&[b'x'; BODY]);
        let stored = writer.append(body).and_then(|()| writer.finish());
        if stored.is_ok() {
            return;
        }
        zone.flush();
    }
}

/// Stores entries, and measures how long each held its thread, in CPU time: others may have the
/// machine meanwhile.
fn child_inserts(conf: &ZoneConf, entries: u64) -> ExitCode {
    let zone = Zone::open(conf.clone(), Arc::new(SystemClock)).expect("open");
    assert!(zone.loaded());
    let mut longest: Vec<(Duration, u64)> = Vec::new();
    let mut all = Duration::ZERO;
    let mut peak = 0_f64;
    for number in 0..entries {
        let took = timed_store(&zone, key(number));
        all += took;
        longest.push((took, number));
        if longest.len() == 2 * SHOWN {
            longest.sort_by(|one, other| other.cmp(one));
            longest.truncate(SHOWN);
        }
        if number % (entries / 64).max(1) == 0 && number > entries / 10 {
            peak = peak.max(zone.usage().index_bytes as f64 / number as f64);
        }
    }
    longest.sort_by(|one, other| other.cmp(one));
    longest.truncate(SHOWN);
    println!(
        "mean of an entry that is stored: {} ns",
        all.as_nanos() / u128::from(entries)
    );
    for (took, number) in &longest {
        println!("  {took:.1?} for entry {number}");
    }
    println!("tables take at most {peak:.1} bytes an entry while they grow");
    let began = running_time();
    for number in 0..MET {
        timed_store(&zone, met(number));
    }
    let stored = running_time() - began;
    let began = running_time();
    assert!((0..MET).all(|number| zone.find(&met(number)).is_some()));
    let found = running_time() - began;
    println!(
        "{MET} keys that are at home in one place: stored in {stored:.2?}, found in {found:.2?}"
    );
    let is_quick = stored + found < MET_MAX;
    let is_fine = is_quick && longest.first().is_none_or(|(took, _)| *took < INSERT_MAX);
    println!("bounds: {INSERT_MAX:?}, {MET_MAX:?}: {}", verdict(is_fine));
    zone.close();
    if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Keys whose mixed bits are the same, as nobody can make them without the secret of the zone.
fn met(number: u64) -> Key {
    let halves = [number, number.rotate_left(32)].map(u64::to_le_bytes);
    let mut key = [0; 16];
    key.copy_from_slice(&halves.concat());
    Key(key)
}

/// Stores like [`store`]; returns the time that it took to finish the entry, which is when the
/// index gets it.
fn timed_store(zone: &Arc<Zone>, key: Key) -> Duration {
    loop {
        let mut writer = zone.begin(key, Some(BODY as u64)).expect("begun");
        writer.set_head(Bytes::from_static(&[b'h'; HEAD]));
        let appended = writer.append(Bytes::from_static(&[b'x'; BODY]));
        let began = running_time();
        let stored = appended.and_then(|()| writer.finish());
        let took = running_time() - began;
        if stored.is_ok() {
            return took;
        }
        zone.flush();
    }
}

/// Time that this thread has run; to the nanosecond, unlike [`thread_time`].
fn running_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Gives an entry another head.
fn replace(zone: &Arc<Zone>, number: u64) {
    loop {
        let entry = zone.find(&key(number)).expect("it is there");
        let head = Bytes::from_static(&[b'i'; HEAD]);
        if zone.replace_head(&entry, head).is_ok() {
            return;
        }
        zone.flush();
    }
}

fn child_killed(conf: &ZoneConf) -> ExitCode {
    let zone = Zone::open(conf.clone(), Arc::new(SystemClock)).expect("open");
    assert!(zone.loaded());
    for number in 0..100_000 {
        store(&zone, number);
    }
    zone.flush();
    std::process::exit(1);
}

/// Opens the zone, and asks for entries meanwhile.
fn child_open(conf: &ZoneConf, entries: u64) -> ExitCode {
    let told = Arc::new(std::sync::Mutex::new(false));
    let hears = Arc::clone(&told);
    let platform = Platform {
        events: Arc::new(move |event| {
            println!("  {event}");
            *hears.lock().expect("whole") |= event.to_string().contains("not closed");
        }),
        ..Platform::default()
    };
    let began = Instant::now();
    let zone = Zone::open_on(conf.clone(), Arc::new(SystemClock), platform).expect("open");
    let opened = began.elapsed();
    let mut first = None;
    let (mut asked, mut hits, mut number) = (0_u64, 0_u64, 0_u64);
    while zone.usage().entries < entries && began.elapsed() < Duration::from_secs(60) {
        for _ in 0..100 {
            number = (number + 7_654_321) % entries;
            asked += 1;
            if zone.find(&key(number)).is_some() {
                hits += 1;
                first.get_or_insert_with(|| began.elapsed());
            }
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert!(zone.loaded());
    let loaded = began.elapsed();
    let first = first.unwrap_or(loaded);
    let cpu = cpu_time();
    println!("  there after {opened:.1?}, first hit after {first:.1?}, loaded after {loaded:.1?}");
    println!("  {hits} of {asked} look-ups were hits meanwhile; {cpu:.1} s of CPU time");
    let factor = if *told.lock().expect("whole") {
        2.0
    } else {
        1.0
    };
    let bound = factor
        * if entries <= 1_000_000 {
            0.5
        } else {
            entries as f64 / 2.5e6
        };
    let is_fine = loaded.as_secs_f64() < bound && zone.usage().entries == entries;
    println!("  bound: {bound:.1} s: {}", verdict(is_fine));
    zone.close();
    if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Opens and loads the zone, and tells what memory the process takes then: the zone, bytes of its
/// tables, and whether an entry takes no more than the bound.
fn opened(conf: &ZoneConf, entries: u64) -> (Arc<Zone>, u64, bool) {
    let before = memory("VmRSS");
    // A clock that costs nothing to read.
    let clock = ManualClock::new(SystemClock.now());
    let zone = Zone::open(conf.clone(), Arc::new(clock)).expect("open");
    assert!(zone.loaded());
    let usage = zone.usage();
    assert_eq!(usage.entries, entries);
    let each = |bytes: u64| bytes as f64 / entries as f64;
    let (all, peak) = (memory("VmRSS"), memory("VmHWM"));
    println!(
        "memory of the process: {:.1} bytes an entry ({:.1} of it tables), at its peak {:.1}; \
         {} KiB of it without the zone",
        each(all),
        each(usage.index_bytes),
        each(peak),
        before / 1024
    );
    (zone, usage.index_bytes, each(all) <= 64.0)
}

fn child_index(conf: &ZoneConf, entries: u64) -> ExitCode {
    let (zone, index_bytes, mut is_fine) = opened(conf, entries);
    let keys: Vec<Key> = (0..PROBES).map(|n| key(n * 7_654_321 % entries)).collect();
    for threads in [1, 2] {
        let nanos = look_up(threads, &keys, &|keys| {
            let peeks = zone.peeks();
            assert!(keys.iter().all(|key| peeks.is_there(key)));
        });
        println!("{threads} threads, any of all: {nanos:.0} ns a lookup in the index");
        is_fine &= nanos < 200.0;
    }
    let reads = read_memory(index_bytes, true);
    let nanos = look_up_in_turn(&zone, &keys);
    println!("each after the one before: {nanos:.0} ns a lookup in the index");
    // Memory may be slower than the bound.
    is_fine &= nanos < (reads * 2.0).max(200.0);
    let kept: Vec<Key> = (0..PROBES).map(|n| key(n * 7919 % KEPT)).collect();
    for key in kept.iter().take(KEPT as usize) {
        zone.find(key);
    }
    for threads in [1, 2] {
        let nanos = look_up(threads, &kept, &|keys| {
            assert!(keys.iter().all(|key| zone.find(key).is_some()));
        });
        println!("{threads} threads, {KEPT} in memory: {nanos:.0} ns to find an entry");
    }
    println!("for comparison, to read any line of as much memory, after the one before:");
    println!("  in huge pages: {reads:.0} ns");
    println!(
        "  in small pages: {:.0} ns",
        read_memory(index_bytes, false)
    );
    println!("bounds: 64 bytes and 200 ns: {}", verdict(is_fine));
    if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn child_slices(conf: &ZoneConf, entries: u64) -> ExitCode {
    let (_zone, _, is_fine) = opened(conf, entries);
    println!("bound: 64 bytes: {}", verdict(is_fine));
    if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Nanoseconds of CPU time for each key that `find` looks for, the best of several rounds.
fn look_up(threads: usize, keys: &[Key], find: &(dyn Fn(&[Key]) + Sync)) -> f64 {
    let round = |_: u32| {
        let spent: u64 = std::thread::scope(|scope| {
            let run = |thread: usize| {
                let (front, back) = keys.split_at(keys.len() / threads * thread);
                scope.spawn(move || {
                    find(back);
                    find(front);
                    thread_time()
                })
            };
            let running: Vec<_> = (0..threads).map(run).collect();
            let ended = running.into_iter().map(|thread| thread.join());
            ended.map(|spent| spent.expect("every key is found")).sum()
        });
        spent as f64 / (keys.len() * threads) as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Time of look-ups like [`look_up`], where what is looked up depends on what was found before.
fn look_up_in_turn(zone: &Zone, keys: &[Key]) -> f64 {
    let round = |_: u32| {
        let (began, mut at) = (thread_time(), 0);
        let peeks = zone.peeks();
        for _ in keys {
            let used = peeks.last_used(&keys[at]).expect("it is there");
            // All were used after 1970; no compiler knows.
            at = (at + 1 + used.leading_zeros() as usize) % PROBES as usize;
        }
        std::hint::black_box(at);
        (thread_time() - began) as f64 / keys.len() as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of CPU time for a read that must wait for the one before: what the machine allows.
fn read_memory(bytes: u64, is_huge: bool) -> f64 {
    const LINE: usize = 64;
    let mut map = MmapMut::map_anon(bytes as usize).expect("memory");
    if is_huge {
        map.advise(Advice::HugePage).expect("asked for");
    }
    for (number, line) in map.chunks_mut(LINE).enumerate() {
        line[..2].copy_from_slice(&(number as u16).wrapping_mul(0x9e37).to_le_bytes());
    }
    let lines = map.len() / LINE;
    let round = |_: u32| {
        let (began, mut at) = (thread_time(), 1);
        for step in 0..PROBES {
            let word = u16::from_le_bytes([map[at * LINE], map[at * LINE + 1]]);
            // Above the steps, so that no line is asked for much more often than others: a cache
            // would have it.
            let mixed = (u64::from(word) << 32 ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            at = ((u128::from(mixed) * lines as u128) >> 64) as usize;
        }
        std::hint::black_box(at);
        (thread_time() - began) as f64 / PROBES as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds that this thread has run, whatever else the machine does.
fn thread_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let first = stat.split_whitespace().next().expect("a number");
    first.parse().expect("a number")
}

/// Seconds that this process has run.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("stat");
    let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
    // User and system time, in hundredths of a second.
    let ticks = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

fn verdict(is_fine: bool) -> &'static str {
    if is_fine { "kept" } else { "missed" }
}

/// Bytes of a line of `/proc/self/status`.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status
        .lines()
        .find(|line| line.starts_with(name))
        .expect("a line");
    let number = line.split_whitespace().nth(1).expect("a number");
    number.parse::<u64>().expect("a number") * 1024
}
