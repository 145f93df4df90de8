//! `landlock`: the kernel refuses to the process what its configuration does not name, and a reload
//! that names it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy, binary, skip};
use rustix::process::Signal;

/// The longest wait for something that must come.
const WAIT: Duration = Duration::from_secs(20);

/// A configuration with more of the main level and of the server.
fn conf(main: &str, server: &str) -> String {
    format!(
        "%%GLOBALS%%
        {main}
        events {{}}
        http {{
            access_log logs/access.log;
            proxy_cache_path cache keys_zone=z:1m max_size=8m;
            server {{
                listen 127.0.0.1:%%PORT%%;
                location / {{ root site; }}
                location = /any {{ alias $arg_path; }}
                location /cached/ {{
                    proxy_cache z; proxy_cache_valid 1h;
                    add_header X-Cache $upstream_cache_status;
                    proxy_pass http://127.0.0.1:%%PORT%%/;
                }}
                {server}
            }}
        }}"
    )
}

/// A server with a site in its folder, and a folder elsewhere.
fn start(text: &str, outside: &Path) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, text)
        .value("OUTSIDE", &outside.display().to_string())
        .file("site/page", "inside")
        .file("logs/none", "")
        .log_check(LogCheck::Off)
        .start()
}

fn outside() -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("secret"), "secret")?;
    std::fs::create_dir(dir.path().join("open"))?;
    std::fs::write(dir.path().join("open/page"), "open")?;
    Ok(dir)
}

/// The process, if the kernel binds it.
fn bound(text: &str, outside: &Path) -> Result<Option<Proxy>> {
    let proxy = start(text, outside)?;
    if proxy.error_log().contains("this kernel has no Landlock") {
        skip("this kernel has no Landlock");
        return Ok(None);
    }
    Ok(Some(proxy))
}

fn reload(proxy: &Proxy) -> Result<Output> {
    let output = Command::new(binary(Kind::Millpond).context("no binary")?)
        .args([
            "-s",
            "reload",
            "--wait",
            "-e",
            "stderr",
            "-c",
            "nginx.conf",
            "-p",
        ])
        .arg(proxy.dir())
        .output()?;
    Ok(output)
}

#[test]
fn files_outside_are_refused_and_those_of_the_configuration_are_not() -> Result<()> {
    let outside = outside()?;
    let Some(mut proxy) = bound(&conf("landlock on;", ""), outside.path())? else {
        return Ok(());
    };
    std::os::unix::fs::symlink(outside.path(), proxy.dir().join("site/link"))?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/page")?.text(), "inside");
    let secret = outside.path().join("secret").display().to_string();
    for path in [format!("/any?path={secret}"), "/link/secret".to_owned()] {
        assert_eq!(client.get(&path)?.status, 403, "{path}");
    }
    let log = proxy.error_log();
    let denied = format!("open() \"{secret}\" failed (13: Permission denied)");
    assert!(log.contains(&denied), "{log}");
    // Caches, logs that are opened anew and the end need what they need.
    for expected in ["MISS", "HIT"] {
        let answer = client.get("/cached/page")?;
        assert_eq!(answer.header("X-Cache"), Some(expected));
    }
    let logs = proxy.dir().join("logs");
    std::fs::rename(logs.join("access.log"), logs.join("access.log.1"))?;
    proxy.signal(Signal::USR1)?;
    let is_there = || logs.join("access.log").exists().then_some(());
    Deadline::after(WAIT).poll(is_there).context("no new log")?;
    proxy.set_log_check(LogCheck::On);
    proxy.quit()
}

#[test]
fn reload_takes_what_is_inside_and_refuses_the_rest_by_name() -> Result<()> {
    let outside = outside()?;
    let main = "landlock on; landlock_read %%OUTSIDE%%/open;";
    let Some(mut proxy) = bound(&conf(main, ""), outside.path())? else {
        return Ok(());
    };
    let client = Client::new(proxy.port());
    proxy.set_conf(&conf(
        main,
        "location = /more { alias %%OUTSIDE%%/open/page; }",
    ))?;
    let output = reload(&proxy)?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(client.get("/more")?.text(), "open");
    let named = outside.path().display();
    for (main, server, message) in [
        (
            main,
            "location /out/ { root %%OUTSIDE%%; }",
            format!("\"{named}\" of \"root\" may not be read"),
        ),
        (
            main,
            "location /out/ { access_log %%OUTSIDE%%/a.log; }",
            format!("\"{named}\" of \"access_log\" may not be written"),
        ),
        (
            "",
            "location /out/ { alias %%OUTSIDE%%/$arg_a; }",
            format!("\"{named}\" of \"alias\" may not be read"),
        ),
    ] {
        proxy.set_conf(&conf(main, server))?;
        let output = reload(&proxy)?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(&message),
            "{server}: {said}"
        );
        assert!(proxy.error_log().contains(&message));
        // The one before it stays in force.
        assert_eq!(client.get("/more")?.text(), "open");
    }
    Ok(())
}

/// Lines of blocks name files, too, which a reload reads again.
#[test]
fn secret_of_a_fleet_is_inside() -> Result<()> {
    let outside = outside()?;
    let secret = outside.path().join("fleet");
    std::fs::write(&secret, "a secret of all nodes\n")?;
    let fleet = "fleet edge { nats nats://127.0.0.1:1; peer_secret %%OUTSIDE%%/fleet; } server {";
    let text = conf("landlock on;", "").replacen("server {", fleet, 1);
    let Some(proxy) = bound(&text, outside.path())? else {
        return Ok(());
    };
    let output = reload(&proxy)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    std::fs::write(&secret, "short\n")?;
    let output = reload(&proxy)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("fleet\" is too short"), "{said}");
    Ok(())
}

/// A changed binary keeps the rules, however often it is changed: the kernel would not pile up more
/// than sixteen.
#[test]
fn successors_keep_the_rules() -> Result<()> {
    let outside = outside()?;
    let Some(proxy) = bound(&conf("landlock on;", ""), outside.path())? else {
        return Ok(());
    };
    let client = Client::new(proxy.port());
    let path = format!("/any?path={}/secret", outside.path().display());
    let pid = || proxy.read_file("server.pid").trim().parse::<i32>().ok();
    for turn in 0..18 {
        let old = pid().context("no process")?;
        let process = rustix::process::Pid::from_raw(old).context("a pid")?;
        // It is refused, and harmless, as long as the process before has not quite ended.
        let is_new = || {
            rustix::process::kill_process(process, Signal::USR2).ok()?;
            pid().filter(|new| *new != old)
        };
        let found = Deadline::after(WAIT).poll(is_new);
        let new = found.with_context(|| format!("{turn}: no successor: {}", proxy.error_log()))?;
        rustix::process::kill_process(process, Signal::QUIT)?;
        assert_eq!(client.get(&path)?.status, 403, "{turn}: {new}");
        assert_eq!(client.get("/page")?.text(), "inside", "{turn}");
    }
    if let Some(last) = pid().and_then(rustix::process::Pid::from_raw) {
        rustix::process::kill_process(last, Signal::TERM)?;
    }
    Ok(())
}

#[test]
fn without_it_nothing_is_refused() -> Result<()> {
    let outside = outside()?;
    let proxy = start(&conf("", ""), outside.path())?;
    let path = format!("/any?path={}/secret", outside.path().display());
    assert_eq!(Client::new(proxy.port()).get(&path)?.text(), "secret");
    Ok(())
}
