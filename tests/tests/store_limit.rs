//! `max_size` and `min_free` are hard limits, measured from outside while clients fill the zone.
//!
//! Lengths and blocks of all files of the zones are added up again and again while eight clients
//! have the binary store bodies of a mebibyte that nobody asked for before. A sample counts only if
//! the directory had the same names before and after it, so that a file is never added that took
//! the place of another one. With `SEEDS` set to a number the flood is 400 MB into 100 MB instead,
//! as often as that.
//!
//! What needs a file system of its own (a tmpfs, which says at every moment how much is left) runs
//! where it can be mounted, and passes elsewhere.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy};

const MIB: u64 = 1 << 20;
const CLIENTS: u64 = 8;

const CONF: &str = "
    proxy_cache_path %%ZONES%%/one keys_zone=one:1m %%LIMIT%% admission=all;
    proxy_cache_path %%ZONES%%/two keys_zone=two:1m %%LIMIT%% admission=all;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache_valid 200 1h;
        location /one/ { proxy_pass http://%%ORIGIN%%; proxy_cache one; }
        location /two/ { proxy_pass http://%%ORIGIN%%; proxy_cache two; }
    }";

/// Bodies that differ from path to path.
fn origin() -> Result<Origin> {
    let origin = Origin::start()?;
    origin.answer_with("/*", |request| Answer::new(200).body(body(request.path())));
    Ok(origin)
}

fn body(path: &str) -> Vec<u8> {
    let mut body = path.repeat(MIB as usize / path.len() + 1).into_bytes();
    body.truncate(MIB as usize);
    body
}

/// Asks for bodies that nobody asked for before; every answer is right.
fn flood(port: u16, zones: &[&str], (round, bodies): (u64, u64)) -> Result<()> {
    let ask = |client: u64| -> Result<()> {
        let mut connection = Client::new(port).connect()?;
        for number in 0..bodies / CLIENTS {
            let zone = zones[number as usize % zones.len()];
            let path = format!("/{zone}/{round}/{client}/{number}");
            let request = millpond_testkit::Request::get(&path);
            let response = connection
                .exchange(&request)
                .with_context(|| path.clone())?;
            ensure!(response.status == 200, "{path}: {}", response.status);
            ensure!(response.body == body(&path), "{path}: another body");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || ask(client)))
            .collect();
        let mut done = asking.into_iter().map(|asking| asking.join());
        done.try_for_each(|done| done.expect("a client does not panic"))
    })
}

/// Looks again and again while `work` runs; the most that was seen, and how often it looked.
fn most_during<T>(
    look: impl Fn() -> Option<u64> + Sync,
    work: impl FnOnce() -> T,
) -> (T, u64, u64) {
    let (is_over, most, looks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if let Some(seen) = look() {
                    most.fetch_max(seen, Ordering::Relaxed);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    });
    (done, most.into_inner(), looks.into_inner())
}

/// Bytes of a zone's folder: the larger of what its files are long and what they take, and the
/// folder itself; `None` if names came or went meanwhile.
fn zone_bytes(folder: &Path) -> Option<u64> {
    let names = || -> Option<BTreeSet<PathBuf>> {
        let entries = std::fs::read_dir(folder).ok()?;
        entries.map(|entry| Some(entry.ok()?.path())).collect()
    };
    let before = names()?;
    let (mut long, mut taken) = (0, folder.metadata().ok()?.blocks() * 512);
    for path in &before {
        let file = path.metadata().ok()?;
        long += file.len();
        taken += file.blocks() * 512;
    }
    (names()? == before).then_some(long.max(taken))
}

fn rounds() -> (u64, u64, u64) {
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    match seeds {
        Some(rounds) => (rounds, 100, 400),
        None => (1, 16, 48),
    }
}

#[test]
fn no_zone_is_ever_larger_than_its_max_size() -> Result<()> {
    let (rounds, limit, bodies) = rounds();
    let origin = origin()?;
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .value("ZONES", "%%DIR%%")
        .value("LIMIT", &format!("max_size={limit}m"))
        .start()?;
    for round in 0..rounds {
        let folders = ["one", "two"].map(|name| proxy.dir().join(name));
        let look = || {
            let sizes = folders.iter().map(|folder| zone_bytes(folder));
            sizes.flatten().max()
        };
        // The zones fill, and are opened again when they are full, after a clean stop and a crash.
        let ((proxy_after, outcome), most, looks) = most_during(look, || {
            let mut outcome = flood(proxy.port(), &["one", "two"], (3 * round, 2 * bodies));
            for (turn, is_clean) in [(1, true), (2, false)] {
                let stopped = if is_clean {
                    proxy.quit()
                } else {
                    proxy.kill9()
                };
                let again = stopped.and_then(|()| proxy.restart());
                let filled = again
                    .and_then(|()| flood(proxy.port(), &["one"], (3 * round + turn, bodies / 2)));
                outcome = outcome.and(filled);
            }
            (proxy, outcome)
        });
        proxy = proxy_after;
        outcome?;
        println!("at most {most} bytes of {}, {looks} looks", limit * MIB);
        ensure!(looks >= 20, "only {looks} looks");
        ensure!(most <= limit * MIB, "{most} bytes");
        ensure!(most >= limit * MIB / 10 * 7, "only {most} bytes were kept");
    }
    Ok(())
}

/// A tmpfs while it is mounted.
struct Tmpfs {
    dir: tempfile::TempDir,
}

impl Tmpfs {
    /// Mounts a tmpfs; `None` where it cannot be mounted.
    fn mount(mebibytes: u64) -> Result<Option<Tmpfs>> {
        let dir = tempfile::tempdir()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"])
            .arg(dir.path())
            .output();
        Ok(if mounted.is_ok_and(|output| output.status.success()) {
            Some(Tmpfs { dir })
        } else {
            None
        })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Bytes that are left.
    fn left(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(self.path()).ok()?;
        Some(stat.f_bavail * stat.f_frsize)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "unmounted");
    }
}

/// Space that is left stays above `min_free`, also when others fill the disk; then nothing is
/// stored, and nobody notices.
#[test]
fn what_is_left_of_a_disk_never_falls_below_min_free() -> Result<()> {
    const ALL: u64 = 48;
    const FREE: u64 = 16;
    let Some(disk) = Tmpfs::mount(ALL)? else {
        println!("no tmpfs can be mounted here");
        return Ok(());
    };
    let origin = origin()?;
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .value("ZONES", &disk.path().display().to_string())
        .value("LIMIT", &format!("max_size=20m min_free={FREE}m"))
        .start()?;
    // Two zones of 20 MiB and 16 MiB free are more than there is.
    let used = || disk.left().map(|left| ALL * MIB - left);
    let (outcome, most, looks) =
        most_during(used, || flood(proxy.port(), &["one", "two"], (0, 72)));
    outcome?;
    println!("at most {most} bytes used, {looks} looks");
    ensure!(most <= (ALL - FREE) * MIB, "{most} bytes are used");
    ensure!(most >= (ALL - FREE) * MIB / 2, "only {most} bytes are used");
    // Somebody else takes all that is left.
    std::fs::write(
        disk.path().join("other"),
        vec![1; disk.left().unwrap_or(0) as usize],
    )?;
    flood(proxy.port(), &["one", "two"], (1, 24))?;
    proxy.quit()?;
    Ok(())
}

/// A disk that is full from the start takes what fits, and every client has its answer.
#[test]
fn a_full_disk_is_never_an_error_for_a_client() -> Result<()> {
    let Some(disk) = Tmpfs::mount(12)? else {
        println!("no tmpfs can be mounted here");
        return Ok(());
    };
    let origin = origin()?;
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .value("ZONES", &disk.path().display().to_string())
        .value("LIMIT", "max_size=100m")
        .start()?;
    flood(proxy.port(), &["one", "two"], (0, 32))?;
    proxy.quit()?;
    proxy.restart()?;
    flood(proxy.port(), &["one"], (1, 16))?;
    Ok(())
}
