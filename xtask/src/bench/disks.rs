//! `cargo xtask bench disks`: bodies that are stored on two block devices, beside one.
//!
//! The article on cache placement has two disks of their own; its plan (`cache-placement.toml`) has
//! two folders. Here each disk is a block device with a queue of its own (a loop device on a file
//! in memory, with ext4), which writes 15 MB a second at the most (`blkio.throttle`), so that
//! devices are what takes the time. Bodies of 64 KiB come faster than both can write; the time ends
//! when everything is on the devices (`sync -f`), and only what is a hit then counts as stored.
//! Millpond's zone has its disks by `disk=`, nginx's two zones are chosen by `split_clients`.
//!
//! It takes root, loop devices and the blkio controller of cgroup v1; what is missing is told, and
//! nothing is measured.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use millpond_gauge::crowd::{Paths, Steady};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy, binary};

use super::conf::Conf;
use super::line::Wanted;
use super::metrics;
use super::options::Options;
use super::steady::{self, crowd_of, in_the_middle, well};
use crate::tally::Tally;

/// Bytes of a body.
const BODY: u64 = 64 << 10;
/// Bodies of a round, unless told: 35 seconds of one device.
const ENTRIES: u64 = 8000;
/// Bodies that come a second: 1.5 times what both devices write.
const RATE: f64 = 700.0;
/// Bytes that a device writes a second.
const SPEED: u64 = 15_000_000;
/// Bytes of a device; the file takes those that were written.
const SIZE: u64 = 1 << 30;
const CONNECTIONS: usize = 16;
/// Every so many bodies one is asked for again.
const SAMPLE: usize = 7;
/// Longest wait for a server's queue of writes.
const WRITTEN: Duration = Duration::from_secs(120);
/// The least that two devices store, over what one does.
const BOUND: f64 = 1.95;
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// Measures both servers; Millpond below the bound counts as failed.
pub(super) fn run(options: &Options) -> Result<Tally> {
    let entries = options.entries(ENTRIES);
    if let Err(missing) = Device::make() {
        eprintln!("disks: skipped, since there are no devices: {missing:#}");
        return Ok(Tally::SKIP);
    }
    let origin = origin()?;
    let rounds = |kind| -> Result<[f64; 3]> {
        let mut rounds = Vec::new();
        for round in 1..=options.rounds(3) {
            let [one, two] = [1, 2].map(|disks| stored(kind, &origin, disks, entries));
            let [one, two] = [one?, two?];
            eprintln!("{kind:?}, round {round}: {one:.1} MB a second, on two {two:.1}");
            rounds.push([one, two, two / one]);
        }
        let middle = |which: usize| in_the_middle(rounds.iter().map(|round| round[which]));
        Ok([middle(0), middle(1), middle(2)])
    };
    let nginx = binary(Kind::Nginx)
        .map(|_| rounds(Kind::Nginx))
        .transpose()?;
    let millpond = rounds(Kind::Millpond)?;
    let mut tally = Tally::default();
    let rows = [
        ("stored on one disk", "MB a second", Wanted::Nothing),
        ("stored on two disks", "MB a second", Wanted::Nothing),
        ("two disks over one", "times", Wanted::OwnAtLeast(BOUND)),
    ];
    for (which, (name, unit, wanted)) in rows.into_iter().enumerate() {
        let figures = (nginx.map(|it| it[which]), millpond[which]);
        tally += steady::row(name.to_owned(), unit, figures, wanted);
    }
    Ok(tally)
}

/// A Millpond that has a body for each path.
fn origin() -> Result<Proxy> {
    let conf = "
        sendfile on;
        keepalive_requests 1000000000;
        server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/www; location / { try_files /body =404; } }";
    Proxy::new(Kind::Millpond, conf)
        .file("www/body", vec![b'x'; BODY as usize])
        .start()
}

/// Megabytes a second that a server stores on so many new devices.
fn stored(kind: Kind, origin: &Proxy, disks: usize, entries: u64) -> Result<f64> {
    let devices: Vec<Device> = (0..disks).map(|_| Device::make()).collect::<Result<_>>()?;
    let proxy = start(kind, origin, &devices)?;
    let mut crowd = crowd_of(&proxy, "", BODY)?;
    let mut first = Paths::One("/first".to_owned());
    well(crowd.open(CONNECTIONS, CONNECTIONS, &mut first)?)?;
    let began = Instant::now();
    let steady = Steady {
        active: CONNECTIONS,
        rate: RATE,
        count: entries,
    };
    well(crowd.ask(steady, &mut Paths::rising("/n/"))?)?;
    if kind == Kind::Millpond {
        let is_written = || {
            let queued = metrics::value(&proxy, "millpond_zone_queued_bytes").ok()?;
            (queued == 0.0).then_some(())
        };
        let written = Deadline::after(WRITTEN).poll(is_written);
        written.context("the queue of writes does not end")?;
    }
    let syncs: Vec<_> = devices.iter().map(Device::sync).collect::<Result<_>>()?;
    for mut sync in syncs {
        ensure!(sync.wait()?.success(), "a device does not take all");
    }
    let seconds = began.elapsed().as_secs_f64();
    let client = Client::new(proxy.port());
    let (mut hits, mut asked) = (0, 0);
    for number in (0..entries).step_by(SAMPLE) {
        let answer = client.get(&format!("/n/{number}"))?;
        hits += u64::from(answer.header("X-Cache-Status") == Some("HIT"));
        asked += 1;
    }
    let share = hits as f64 / f64::from(asked);
    let bytes = share * (entries * BODY) as f64;
    eprintln!(
        "  {kind:?}, {disks} of them: {:.0} % of {entries} bodies stored in {seconds:.1} s",
        share * 100.0
    );
    Ok(bytes / seconds / 1e6)
}

/// A server with its cache on devices.
fn start(kind: Kind, origin: &Proxy, devices: &[Device]) -> Result<Proxy> {
    let mut http = "access_log off; sendfile on;
        upstream origin { server %%ORIGIN%%; keepalive 64; keepalive_requests 1000000000; }"
        .to_owned();
    let usual = Conf {
        pass: "http://origin",
        ..Conf::default()
    };
    let zone = |name: &str, device: &Device, more: &str| {
        format!(
            "proxy_cache_path {}/cache{more} levels=1:2 keys_zone={name}:64m max_size=900m
             inactive=1h use_temp_path=off;",
            device.dir.display()
        )
    };
    let (zones, cache) = match (kind, devices) {
        (Kind::Millpond, [one, two]) => {
            let disk = format!(" disk={}/cache", two.dir.display());
            // A limit is that of all disks of a zone.
            (zone("bench", one, &disk).replace("900m", "1800m"), "bench")
        }
        (Kind::Nginx, [one, two]) => {
            http.push_str("split_clients $request_uri $disk { 50% one; * two; }");
            let zones = [zone("one", one, ""), zone("two", two, "")];
            (zones.concat(), "$disk")
        }
        (_, all) => (
            zone("bench", all.first().context("no device")?, ""),
            "bench",
        ),
    };
    if kind == Kind::Millpond {
        http.push_str(metrics::SERVER);
    }
    let text = Conf {
        http: &http,
        ..usual
    }
    .text();
    let (begin, rest) = text.split_once("proxy_cache_path").context("a zone")?;
    let (_, end) = rest.split_once(';').context("a zone's end")?;
    let conf = format!("{begin}{zones}{end}");
    Proxy::new(
        kind,
        &conf.replace("proxy_cache bench;", &format!("proxy_cache {cache};")),
    )
    .value("ORIGIN", &format!("127.0.0.1:{}", origin.port()))
    .log_check(LogCheck::Off)
    .start()
}

/// A block device with a file system, mounted.
struct Device {
    file: PathBuf,
    /// `/dev/loop…`.
    name: String,
    /// Its number, as `7:0`.
    number: String,
    dir: PathBuf,
}

impl Device {
    /// A new one, slow and empty; what is missing for it is the error.
    fn make() -> Result<Self> {
        let free = said(Command::new("losetup").arg("-f"))?;
        let of = format!(
            "millpond-{}-{}",
            free.replace("/dev/", ""),
            std::process::id()
        );
        let file = Path::new("/dev/shm").join(&of);
        File::create(&file)?.set_len(SIZE)?;
        // From here on what was made is undone.
        let mut device = Device {
            file,
            name: String::new(),
            number: String::new(),
            dir: std::env::temp_dir().join(of),
        };
        // All of the file system is made now, and nothing of it later, beside bodies.
        let mut format = Command::new("mkfs.ext4");
        format.args(["-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        said(format.arg(&device.file))?;
        let mut attach = Command::new("losetup");
        device.name = said(attach.args(["-f", "--show"]).arg(&device.file))?;
        let block = device.name.replace("/dev/", "/sys/block/");
        let number = std::fs::read_to_string(Path::new(&block).join("dev"))?;
        device.number = number.trim().to_owned();
        std::fs::create_dir(&device.dir)?;
        said(Command::new("mount").arg(&device.name).arg(&device.dir))?;
        let throttle = std::fs::write(THROTTLE, format!("{} {SPEED}", device.number));
        throttle.with_context(|| format!("{THROTTLE} (cgroup v1)"))?;
        Ok(device)
    }

    /// Begins to write all that it has not written.
    fn sync(&self) -> Result<std::process::Child> {
        let sync = Command::new("sync").arg("-f").arg(&self.dir).spawn();
        sync.context("sync does not run")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // What was not made cannot be undone, and need not.
        let _ = std::fs::write(THROTTLE, format!("{} 0", self.number));
        let _ = said(Command::new("umount").arg(&self.dir));
        let _ = std::fs::remove_dir(&self.dir);
        if !self.name.is_empty() {
            let _ = said(Command::new("losetup").args(["-d", &self.name]));
        }
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Runs a command: what it printed.
fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| name.clone())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
