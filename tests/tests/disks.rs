//! A cache on several disks: one that goes, comes back, is added or taken out, over reloads.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, End, Kind, LogCheck, Origin, Proxy, Request, binary,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(30);
const KEYS: usize = 120;
const THREE: &str = "%%DIR%%/one keys_zone=z:1m max_size=6m memory=0 disk=%%DIR%%/two \
                     disk=%%DIR%%/three:2";

fn conf(zone: &str, generation: &str) -> String {
    format!(
        "proxy_cache_path {zone};
        server {{
            listen 127.0.0.1:%%PORT%%;
            add_header X-Cache $upstream_cache_status;
            location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 200 1h; }}
            location /generation {{ return 200 {generation}; }}
        }}"
    )
}

fn start(conf: &str) -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).offset_body(4000, 1));
    let proxy = Proxy::new(Kind::Millpond, conf)
        .origin(&origin)
        // A disk that fails is an error.
        .log_check(LogCheck::Off)
        .start()?;
    Ok((origin, proxy))
}

/// Asks for all keys, and looks at every byte; how many are hits.
fn hits(proxy: &Proxy) -> Result<usize> {
    let client = Client::new(proxy.port());
    let mut hits = 0;
    for number in 0..KEYS {
        let response = client.get(&format!("/{number}"))?;
        assert_eq!(response.status, 200);
        assert_eq!(response.body.len(), 4000);
        hits += usize::from(response.header("X-Cache") == Some("HIT"));
    }
    Ok(hits)
}

/// Asks until all are hits, with what the disks are tried again for between.
fn wait_until_warm(proxy: &Proxy) -> Result<()> {
    let are_hits = || (hits(proxy).ok()? == KEYS).then_some(());
    Deadline::after(WAIT)
        .poll(are_hits)
        .context("not all are hits")
}

fn reload(proxy: &mut Proxy, conf: &str, generation: &str) -> Result<()> {
    proxy.set_conf(conf)?;
    proxy.reload()?;
    let client = Client::new(proxy.port());
    let answers = || Some(client.get("/generation").ok()?.text());
    Deadline::after(WAIT)
        .poll(|| answers().filter(|text| text == generation))
        .with_context(|| format!("generation {generation} does not come"))?;
    Ok(())
}

fn wait_for_log(proxy: &Proxy, part: &str, count: usize) -> Result<()> {
    let says = || (proxy.error_log().matches(part).count() >= count).then_some(());
    Deadline::after(WAIT)
        .poll(says)
        .with_context(|| format!("nobody says {part}: {}", proxy.error_log()))
}

fn has_segments(proxy: &Proxy, name: &str) -> bool {
    let listed = std::fs::read_dir(proxy.dir().join(name));
    listed.is_ok_and(|mut names| {
        let is_segment = |name: std::ffi::OsString| name.to_string_lossy().starts_with("segment-");
        names.any(|entry| entry.is_ok_and(|entry| is_segment(entry.file_name())))
    })
}

/// Waits until nothing waits for the disk: entries are found before they are written.
fn wait_until_written(proxy: &Proxy) -> Result<()> {
    let binary = binary(Kind::Millpond).context("the binary")?;
    let is_written = || {
        let conf = proxy.dir().join("nginx.conf");
        let mut stat = Command::new(&binary);
        stat.args(["cache", "stat", "--json", "-c"]).arg(conf);
        let said = stat.arg("-p").arg(proxy.dir()).output().ok()?;
        let said = String::from_utf8(said.stdout).ok()?;
        let waiting = said.split("\"queued_bytes\":").nth(1)?;
        waiting.trim_start().starts_with("0,").then_some(())
    };
    let written = Deadline::after(WAIT).poll(is_written);
    written.context("bytes wait for the disk")
}

/// Fills disks until the log says that one was given up.
fn fill_until_given_up(proxy: &Proxy, count: usize) -> Result<()> {
    let client = Client::new(proxy.port());
    let mut number = KEYS;
    let fill = || {
        for _ in 0..50 {
            assert_eq!(client.get(&format!("/{number}")).ok()?.status, 200);
            number += 1;
        }
        (proxy.error_log().matches("is given up").count() >= count).then_some(())
    };
    Deadline::after(WAIT)
        .poll(fill)
        .context("no disk is given up")
}

/// Entries are on all disks, and still there after a restart.
#[test]
fn zone_on_three_disks_is_warm_after_a_restart() -> Result<()> {
    let (_origin, mut proxy) = start(&conf(THREE, "g"))?;
    assert_eq!(hits(&proxy)?, 0);
    assert_eq!(hits(&proxy)?, KEYS);
    // Files are made by the threads of the disks.
    let are_made = || {
        let names = ["one", "two", "three"];
        names
            .iter()
            .all(|name| has_segments(&proxy, name))
            .then_some(())
    };
    Deadline::after(WAIT)
        .poll(are_made)
        .context("no segments")?;
    proxy.restart()?;
    assert_eq!(hits(&proxy)?, KEYS);
    assert_eq!(proxy.error_log().matches("[error]").count(), 0);
    proxy.quit()
}

/// A folder that is removed while the server runs costs its share; it is made again, and used.
#[test]
fn removed_folder_costs_its_share_only_and_is_taken_back() -> Result<()> {
    let (_origin, mut proxy) = start(&conf(THREE, "g"))?;
    hits(&proxy)?;
    std::fs::remove_dir_all(proxy.dir().join("three"))?;
    fill_until_given_up(&proxy, 1)?;
    wait_for_log(&proxy, "three is in use", 1)?;
    wait_until_warm(&proxy)?;
    assert!(has_segments(&proxy, "three"));
    assert_eq!(
        proxy.error_log().matches("is given up").count(),
        1,
        "it is told once"
    );
    proxy.quit()
}

/// A folder whose parent is not there at the start, as where nothing is mounted, comes later.
#[test]
fn disk_that_is_missing_at_the_start_comes_when_it_is_mounted() -> Result<()> {
    let zone = "%%DIR%%/one keys_zone=z:1m max_size=6m disk=%%DIR%%/mnt/two";
    let (_origin, mut proxy) = start(&conf(zone, "g"))?;
    wait_for_log(&proxy, "mnt/two is given up", 1)?;
    hits(&proxy)?;
    assert_eq!(hits(&proxy)?, KEYS);
    std::fs::create_dir(proxy.dir().join("mnt"))?;
    wait_for_log(&proxy, "mnt/two is in use", 1)?;
    wait_until_warm(&proxy)?;
    assert!(has_segments(&proxy, "mnt/two"));
    proxy.quit()
}

/// Disks are added, weighed anew and taken out by a reload; other disks keep what they have.
#[test]
fn reload_adds_and_takes_out_disks_and_moves_their_share_only() -> Result<()> {
    let two = "%%DIR%%/one keys_zone=z:1m max_size=6m memory=0 disk=%%DIR%%/two";
    let (_origin, mut proxy) = start(&conf(two, "g0"))?;
    hits(&proxy)?;
    reload(&mut proxy, &conf(THREE, "g1"), "g1")?;
    wait_for_log(&proxy, "three is in use", 1)?;
    let kept = hits(&proxy)?;
    println!("hits of {KEYS} with a disk added that has half of all weight: {kept}");
    // Where a disk is decides which keys are its own, and that differs from run to run.
    assert!((KEYS / 4..KEYS * 3 / 4).contains(&kept), "{kept}");
    wait_until_warm(&proxy)?;
    reload(
        &mut proxy,
        &conf(&format!("{THREE} inactive=2h"), "g2"),
        "g2",
    )?;
    assert_eq!(hits(&proxy)?, KEYS);
    reload(&mut proxy, &conf(two, "g3"), "g3")?;
    wait_until_warm(&proxy)?;
    assert!(
        has_segments(&proxy, "three"),
        "what was taken out keeps its files"
    );
    assert_eq!(proxy.error_log().matches("[error]").count(), 0);
    proxy.quit()
}

/// A folder is used once, whether as a path or as a disk, and mistakes have a line.
#[test]
fn mistakes_about_disks_are_told_with_their_line() -> Result<()> {
    let (_origin, mut proxy) = start(&conf(THREE, "g"))?;
    for (zone, message) in [
        (
            "%%DIR%%/a keys_zone=z:1m disk=%%DIR%%/a",
            "/a\" is used twice",
        ),
        (
            "%%DIR%%/a keys_zone=z:1m disk=%%DIR%%/b disk=%%DIR%%/b:3",
            "/b\" is used twice",
        ),
        (
            "%%DIR%%/a keys_zone=z:1m disk=%%DIR%%/b;\nproxy_cache_path %%DIR%%/b keys_zone=y:1m",
            "/b\" is used twice",
        ),
        ("%%DIR%%/a keys_zone=z:1m disk=", "invalid disk \"disk=\""),
        (
            "%%DIR%%/a keys_zone=z:1m disk=/b:0",
            "invalid disk \"disk=/b:0\"",
        ),
    ] {
        proxy.set_conf(&conf(zone, "bad"))?;
        let before = proxy.error_log().len();
        proxy.reload()?;
        let says = || {
            let log = proxy.error_log();
            let line = log
                .get(before..)?
                .lines()
                .find(|line| line.contains(message))?;
            Some(line.to_string())
        };
        let line = Deadline::after(WAIT)
            .poll(says)
            .with_context(|| message.to_string())?;
        assert!(line.contains("nginx.conf:"), "{line}");
    }
    assert_eq!(Client::new(proxy.port()).get("/generation")?.text(), "g");
    proxy.quit()
}

/// A body that its disk no longer has ends early for the client that is reading it, once: the next
/// one gets it whole, from the origin, and is told nothing of it.
#[test]
fn body_that_is_gone_from_its_disk_is_fetched_again() -> Result<()> {
    const LEN: usize = 3 << 20;
    let zone = "%%DIR%%/one keys_zone=z:1m max_size=64m";
    let with_sendfile = conf(zone, "g").replace("server {", "sendfile on; server {");
    for conf in [conf(zone, "g"), with_sendfile] {
        let (origin, mut proxy) = start(&conf)?;
        origin.route("/long", Answer::new(200).offset_body(LEN as u64, 1));
        let client = Client::new(proxy.port());
        let ask = || client.get("/long");
        assert_eq!(ask()?.body.len(), LEN);
        let is_hit = || {
            ask()
                .ok()?
                .header("X-Cache")
                .filter(|it| *it == "HIT")
                .map(|_| ())
        };
        Deadline::after(WAIT).poll(is_hit).context("no hit")?;
        wait_until_written(&proxy)?;
        for entry in std::fs::read_dir(proxy.dir().join("one"))? {
            let path = entry?.path();
            if path.to_string_lossy().contains("segment-") {
                // Its first mebibyte stays.
                std::fs::File::options()
                    .write(true)
                    .open(path)?
                    .set_len(1 << 20)?;
            }
        }
        let broken = ask()?;
        assert!(broken.end != End::Complete && broken.body.len() < LEN);
        let whole = ask()?;
        assert!(whole.end == End::Complete && whole.body.len() == LEN);
        assert_eq!(whole.header("X-Cache"), Some("MISS"));
        assert_eq!(origin.requests().len(), 2);
        proxy.quit()?;
    }
    Ok(())
}

/// Runs a program that only root may run, and perhaps not even root; true if it worked.
fn does(program: &str, words: &[&str], path: &Path) -> bool {
    let output = Command::new(program).args(words).arg(path).output();
    let has_worked = output.as_ref().is_ok_and(|it| it.status.success());
    if !has_worked {
        println!("{program} {words:?} is not possible here: {output:?}");
    }
    has_worked
}

/// A file system that is mounted, until this is dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(words: &[&str], path: &Path) -> Option<Mount> {
        let is_mounted = does("mount", words, path);
        is_mounted.then(|| Mount(path.to_path_buf()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        does("umount", &["-l"], &self.0);
    }
}

const THIRD_IN_MNT: &str = "%%DIR%%/one keys_zone=z:1m max_size=24m memory=0 disk=%%DIR%%/two \
                            disk=%%DIR%%/mnt/three:2";

/// A file system that somebody else fills is no error to anybody, and is not given up.
#[test]
fn disk_that_is_filled_from_outside_is_used_as_far_as_it_goes() -> Result<()> {
    let (origin, mut proxy) = start(&conf(THIRD_IN_MNT, "g"))?;
    origin.route("/big/*", Answer::new(200).offset_body(100_000, 1));
    let mnt = proxy.dir().join("mnt");
    std::fs::create_dir(&mnt)?;
    let Some(_mount) = Mount::new(&["-t", "tmpfs", "-o", "size=2m", "none"], &mnt) else {
        return proxy.quit();
    };
    wait_for_log(&proxy, "three is in use", 1)?;
    let client = Client::new(proxy.port());
    let ask_all = || -> Result<()> {
        // Half of this is the third disk's, which has room for half of that.
        for number in 0..60 {
            let response = client.get(&format!("/big/{number}"))?;
            assert_eq!((response.status, response.body.len()), (200, 100_000));
        }
        Ok(())
    };
    ask_all()?;
    assert!(has_segments(&proxy, "mnt/three"));
    let outsider = mnt.join("other");
    // As much as there is room for.
    let filled = std::fs::write(&outsider, vec![1; 8 << 20]);
    assert!(filled.is_err(), "it takes more than it has");
    ask_all()?;
    std::fs::remove_file(&outsider)?;
    ask_all()?;
    hits(&proxy)?;
    wait_until_warm(&proxy)?;
    let told = proxy.error_log().matches("is given up").count();
    assert_eq!(told, 1, "but for the start, when it was not there");
    proxy.quit()
}

/// A file system that is taken away while it is used costs its share, and is as it was when it is
/// there again.
#[test]
fn disk_that_is_pulled_costs_its_share_and_comes_back_with_it() -> Result<()> {
    let (_origin, mut proxy) = start(&conf(THIRD_IN_MNT, "g"))?;
    let (mnt, disk) = (proxy.dir().join("mnt"), proxy.dir().join("disk"));
    std::fs::create_dir(&disk)?;
    let Some(_disk) = Mount::new(&["-t", "tmpfs", "-o", "size=40m", "none"], &disk) else {
        return proxy.quit();
    };
    let source = disk.display().to_string();
    std::fs::create_dir(&mnt)?;
    let plug = || Mount::new(&["--bind", &source], &mnt).context("it is not mounted");
    let plugged = plug()?;
    wait_for_log(&proxy, "three is in use", 1)?;
    hits(&proxy)?;
    wait_until_warm(&proxy)?;
    drop(plugged);
    fill_until_given_up(&proxy, 2)?;
    wait_until_warm(&proxy)?;
    let _plugged = plug()?;
    wait_for_log(&proxy, "three is in use", 2)?;
    wait_until_warm(&proxy)?;
    let told = proxy.error_log().matches("is given up").count();
    assert_eq!(told, 2, "at the start, and when it was pulled");
    proxy.quit()
}

/// A file system of its own whose directory `one` is a zone's only disk.
struct Lone {
    mount: Mount,
    /// Directory that it is mounted on.
    _at: tempfile::TempDir,
}

impl Lone {
    /// `None` where nothing can be mounted.
    fn new(options: &str) -> Result<Option<Lone>> {
        let at = tempfile::tempdir()?;
        let mount = Mount::new(&["-t", "tmpfs", "-o", options, "none"], at.path());
        Ok(mount.map(|mount| Lone { mount, _at: at }))
    }

    fn path(&self) -> &Path {
        &self.mount.0
    }

    fn remount(&self, option: &str) {
        let options = format!("remount,{option}");
        assert!(does("mount", &["-o", &options], self.path()));
    }

    fn start(&self) -> Result<(Origin, Proxy)> {
        let path = self.path().display();
        let zone = format!("{path}/one keys_zone=z:1m max_size=6m memory=0");
        let purge = "location / { proxy_cache_purge PURGE from 127.0.0.1;";
        start(&conf(&zone, "g").replace("location / {", purge))
    }
}

/// A server whose only disk is read-only at the start serves without it, says that it holds no
/// purge, and has it back when it takes writes again.
#[test]
fn only_disk_that_is_read_only_at_the_start_costs_hits_alone() -> Result<()> {
    let Some(lone) = Lone::new("size=16m")? else {
        return Ok(());
    };
    let (_origin, mut proxy) = lone.start()?;
    wait_until_warm(&proxy)?;
    proxy.quit()?;
    lone.remount("ro");
    proxy.restart()?;
    assert_eq!(hits(&proxy)?, 0);
    assert_eq!(hits(&proxy)?, 0);
    let purge = Request::new("PURGE", "/1");
    assert_eq!(Client::new(proxy.port()).send(&purge)?.status, 500);
    wait_for_log(&proxy, "is given up and will be tried again", 1)?;
    lone.remount("rw");
    wait_for_log(&proxy, "one is in use", 1)?;
    wait_until_warm(&proxy)?;
    proxy.quit()
}

/// A zone whose file system others have filled to the last byte starts with what it holds.
#[test]
fn disk_that_is_full_at_the_start_serves_what_it_holds() -> Result<()> {
    let Some(lone) = Lone::new("size=16m")? else {
        return Ok(());
    };
    let (_origin, mut proxy) = lone.start()?;
    wait_until_warm(&proxy)?;
    proxy.quit()?;
    let filled = std::fs::write(lone.path().join("other"), vec![1; 64 << 20]);
    assert!(filled.is_err(), "it takes more than it has");
    proxy.restart()?;
    assert_eq!(hits(&proxy)?, KEYS);
    proxy.quit()
}

/// A new zone on a file system without room for its first file is made when there is room.
#[test]
fn new_zone_on_a_full_disk_is_made_when_there_is_room() -> Result<()> {
    let Some(lone) = Lone::new("size=16m,nr_inodes=2")? else {
        return Ok(());
    };
    let (_origin, mut proxy) = lone.start()?;
    assert_eq!(hits(&proxy)?, 0);
    assert_eq!(hits(&proxy)?, 0);
    lone.remount("nr_inodes=1000");
    wait_until_warm(&proxy)?;
    proxy.quit()
}

/// A folder in which nothing can be made any more is given up once, until that has changed.
#[test]
fn folder_that_may_not_be_written_to_is_given_up_once() -> Result<()> {
    let (_origin, mut proxy) = start(&conf(THREE, "g"))?;
    hits(&proxy)?;
    let three = proxy.dir().join("three");
    if !does("chattr", &["+i"], &three) {
        return proxy.quit();
    }
    let checked = (|| {
        fill_until_given_up(&proxy, 1)?;
        // It is tried again after a second, and after two more.
        for _ in 0..10 {
            wait_until_warm(&proxy)?;
        }
        Ok(proxy.error_log().matches("three is in use").count())
    })();
    // Otherwise nobody could remove it.
    assert!(does("chattr", &["-i"], &three));
    let returns: Result<usize> = checked;
    assert_eq!(returns?, 0, "it is not in use");
    wait_for_log(&proxy, "three is in use", 1)?;
    wait_until_warm(&proxy)?;
    assert_eq!(proxy.error_log().matches("is given up").count(), 1);
    proxy.quit()
}

/// Waits until the counters of sites know of each answer of the access log, once.
fn settle_counters(proxy: &Proxy) -> Result<()> {
    let ask = || Client::new(proxy.port()).get("/api/millpond/1/sites");
    let counted = || -> Option<u64> {
        let said: serde_json::Value = serde_json::from_slice(&ask().ok()?.body).ok()?;
        // The questions to the API belong to no site, and are in no log.
        let mut sites = said["sites"].as_array()?.iter();
        sites.find(|it| it["site"] != "-")?["requests"].as_u64()
    };
    let logged = || proxy.read_file("access.log").lines().count() as u64;
    Deadline::after(WAIT)
        .poll(|| counted().filter(|count| *count == logged()))
        .with_context(|| format!("{:?} of {} are counted", counted(), logged()))?;
    Ok(())
}

/// Nothing stays open on a disk that is given up, also what is kept beside it: the counters of
/// sites, which go on where they were when it is back.
#[test]
fn disk_that_is_given_up_is_unmounted_with_what_is_beside_it() -> Result<()> {
    let image = tempfile::NamedTempFile::new()?;
    image.as_file().set_len(64 << 20)?;
    let mnt = tempfile::tempdir()?;
    if !does("mkfs.ext4", &["-q", "-F"], image.path()) {
        return Ok(());
    }
    let source = image.path().display().to_string();
    let plug = || Mount::new(&["-o", "loop", &source], mnt.path());
    let Some(plugged) = plug() else {
        return Ok(());
    };
    std::fs::create_dir(mnt.path().join("cache"))?;
    let zone = format!(
        "{}/cache/one keys_zone=z:1m max_size=24m memory=0 disk=%%DIR%%/two",
        mnt.path().display()
    );
    let with_counters = conf(&zone, "g").replace(
        "location / {",
        "location /api { api; }
         location / { cache_site $host; access_log %%DIR%%/access.log;",
    );
    let (_origin, mut proxy) = start(&with_counters)?;
    hits(&proxy)?;
    wait_until_warm(&proxy)?;
    assert!(mnt.path().join("cache/one.sites").is_file());

    // What ext4 does after an error of the device.
    assert!(does("mount", &["-o", "remount,abort"], mnt.path()));
    fill_until_given_up(&proxy, 1)?;
    let unmount = || does("umount", &[], mnt.path()).then_some(());
    Deadline::after(WAIT)
        .poll(unmount)
        .context("something there is still open")?;
    std::mem::forget(plugged);
    wait_until_warm(&proxy)?;
    settle_counters(&proxy)?;

    let _plugged = plug().context("it is not mounted")?;
    wait_for_log(&proxy, "one is in use", 1)?;
    wait_until_warm(&proxy)?;
    proxy.restart()?;
    // What was counted while it was away is in the file, and nothing twice.
    hits(&proxy)?;
    settle_counters(&proxy)?;
    proxy.quit()
}
