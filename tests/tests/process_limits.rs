//! Limits of the process: how long its files are (`ulimit -f`) and how many are open (`ulimit -n`).

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, binary};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(30);

/// The server's binary behind a shell that sets a limit first.
fn limited(dir: &tempfile::TempDir, limit: &str) -> Result<PathBuf> {
    let binary = binary(Kind::Millpond).context("the binary")?;
    let path = dir.path().join("limited");
    let script = format!(
        "#!/bin/sh\nulimit {limit}\nexec {} \"$@\"\n",
        binary.display()
    );
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A file that may not grow costs what would have been in it, and nothing else: the kernel's signal
/// for it (SIGXFSZ) ends a process that does not catch it.
#[test]
fn limit_on_the_length_of_files_ends_no_process() -> Result<()> {
    let home = tempfile::tempdir()?;
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).offset_body(4000, 1));
    // The zone has segments of four mebibytes, and files may have one (a block has 512 bytes).
    let conf = "
        proxy_cache_path %%DIR%%/zone keys_zone=z:1m max_size=64m;
        server {
            listen 127.0.0.1:%%PORT%%;
            access_log %%DIR%%/access.log;
            location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 200 1h; }
        }";
    let mut proxy = Proxy::new(Kind::Millpond, conf)
        .origin(&origin)
        .binary(&limited(&home, "-f 2048")?)
        // That a segment cannot be made is an error.
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    for number in 0..50 {
        let response = client.get(&format!("/{number}"))?;
        assert_eq!((response.status, response.body.len()), (200, 4000));
    }
    let is_told = || proxy.error_log().contains("File too large").then_some(());
    Deadline::after(WAIT)
        .poll(is_told)
        .with_context(|| format!("nobody says why: {}", proxy.error_log()))?;
    // The access log reaches the limit, too, and requests go on.
    let path = format!("/{}", "x".repeat(3000));
    for _ in 0..400 {
        assert_eq!(client.get(&path)?.status, 200);
    }
    assert!(proxy.dir().join("access.log").metadata()?.len() <= 1 << 20);
    proxy.quit()
}

/// A zone of fifty segments works, and is warm after a restart, in a process that may open fewer
/// files than that.
#[test]
fn zone_has_more_segments_than_the_process_may_open_files() -> Result<()> {
    const KEYS: u64 = 250;
    const LEN: u64 = 800_000;
    let home = tempfile::tempdir()?;
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).offset_body(LEN, 1));
    let conf = "
        proxy_cache_path %%DIR%%/zone keys_zone=z:1m max_size=256m;
        server {
            listen 127.0.0.1:%%PORT%%;
            sendfile on;
            add_header X-Cache $upstream_cache_status;
            location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 200 1h; }
        }";
    let mut proxy = Proxy::new(Kind::Millpond, conf)
        .origin(&origin)
        .binary(&limited(&home, "-n 44")?)
        .start()?;
    let client = Client::new(proxy.port());
    let ask_all = || -> Result<Vec<bool>> {
        let ask = |number: u64| {
            let response = client.get(&format!("/{number}"))?;
            assert_eq!((response.status, response.body.len() as u64), (200, LEN));
            Ok(response.header("X-Cache") == Some("HIT"))
        };
        (0..KEYS).map(ask).collect()
    };
    ask_all()?;
    let count = |proxy: &Proxy| -> Result<usize> {
        let names = std::fs::read_dir(proxy.dir().join("zone"))?.filter_map(Result::ok);
        let is_segment =
            |name: &std::fs::DirEntry| name.file_name().to_string_lossy().starts_with("segment-");
        Ok(names.filter(is_segment).count())
    };
    assert!(count(&proxy)? > 44, "{}", count(&proxy)?);
    let held = ask_all()?.into_iter().filter(|is_hit| *is_hit).count();
    assert!(held > 240, "{held}");
    proxy.restart()?;
    let warm = ask_all()?.into_iter().filter(|is_hit| *is_hit).count();
    assert!(warm >= held, "{warm} of {held}");
    assert!(count(&proxy)? > 44);
    proxy.quit()
}

/// Descriptors that a configuration wants beside those it may have are told at the start and by a
/// test of it, with what to set; with that set, nothing is told.
#[test]
fn too_few_descriptors_are_told_with_what_to_set() -> Result<()> {
    let conf = |rest: &str| {
        format!(
            "%%GLOBALS%% worker_processes 2; {rest} events {{ worker_connections 4000; }}
            http {{ %%HTTP%% proxy_cache_path %%DIR%%/zone keys_zone=z:1m max_size=64m;
            server {{ listen 127.0.0.1:%%PORT%%; }} }}"
        )
    };
    let start = |rest: &str| Proxy::new(Kind::Millpond, &conf(rest)).start();
    let test = |proxy: &Proxy| -> Result<String> {
        let mut test = std::process::Command::new(binary(Kind::Millpond).context("the binary")?);
        let ran = test
            .args(["-t", "-c", "nginx.conf", "-p"])
            .arg(proxy.dir())
            .output()?;
        assert!(ran.status.success());
        Ok(String::from_utf8(ran.stderr)?)
    };
    let mut proxy = start("worker_rlimit_nofile 1000;")?;
    let told = proxy.error_log();
    let line = told
        .lines()
        .find(|line| line.contains("open files are allowed"));
    let line = line.with_context(|| told.clone())?;
    assert!(
        line.contains("[warn]") && line.contains("1000 open files"),
        "{line}"
    );
    assert!(
        line.contains("4000 worker_connections of 2 workers"),
        "{line}"
    );
    let advice = line.split('"').nth(1).context("no advice")?.to_string();
    assert!(advice.starts_with("worker_rlimit_nofile "), "{advice}");
    assert!(test(&proxy)?.contains(&advice));
    proxy.quit()?;
    let mut proxy = start(&advice)?;
    assert!(
        !proxy.error_log().contains("open files are allowed"),
        "{}",
        proxy.error_log()
    );
    assert!(!test(&proxy)?.contains("open files are allowed"));
    proxy.quit()
}

/// The soft limit is raised to the hard one, as far as nobody says otherwise.
#[test]
fn soft_limit_of_open_files_becomes_the_hard_one() -> Result<()> {
    let home = tempfile::tempdir()?;
    let conf = |rest: &str| {
        format!(
            "%%GLOBALS%% {rest} events {{ }}
            http {{ %%HTTP%% server {{ listen 127.0.0.1:%%PORT%%; }} }}"
        )
    };
    for (rest, expected) in [("", "3000"), ("worker_rlimit_nofile 2000;", "2000")] {
        let limited = limited(&home, "-Sn 500; ulimit -Hn 3000")?;
        let mut proxy = Proxy::new(Kind::Millpond, &conf(rest))
            .binary(&limited)
            .start()?;
        let pid = proxy.pid().context("it runs")?;
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let soft = line.and_then(|line| line.split_whitespace().nth(3));
        assert_eq!(soft, Some(expected));
        proxy.quit()?;
    }
    Ok(())
}
