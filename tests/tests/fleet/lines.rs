//! The lines of the block, right and wrong; reloads; servers without a fleet.

use anyhow::{Context, Result};
use millpond_testkit::{Deadline, Kind, Origin, Proxy, binary};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;

use crate::kit::{NODE, Nats, Node, WAIT, node, page};
use crate::nats;

/// Tests a configuration with a block; the messages, or none if it passes.
pub(crate) fn mistakes(block: &str) -> Result<String> {
    let text = format!(
        "events {{}} pid x.pid; http {{ access_log off; {block}
         proxy_cache_path cache keys_zone=z:1m fleet=edge;
         server {{ listen 127.0.0.1:1; }} }}"
    );
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("main.conf"), text)?;
    std::fs::write(dir.path().join("creds"), "x")?;
    std::fs::write(dir.path().join("secret"), "0123456789abcdef\n")?;
    let output = Command::new(binary(Kind::Millpond).context("no binary")?)
        .args(["-t", "-e", "stderr", "-c", "main.conf", "-p"])
        .arg(dir.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() {
        String::new()
    } else {
        said
    })
}

#[test]
fn wrong_lines_about_peers_are_told() -> Result<()> {
    let inside = |line: &str| format!("fleet edge {{ nats nats://127.0.0.1:4222; {line} }}");
    for (block, message) in [
        (
            inside("node a zone=b;"),
            "invalid parameter \"zone=b\" in \"node\"",
        ),
        (
            inside("node a address=127.0.0.1;"),
            "there is no port in it",
        ),
        (
            inside("node a weight=0;"),
            "invalid weight \"0\", it must be from 1",
        ),
        (inside("peer_secret none;"), "open() \""),
        (
            inside("peer_secret creds;"),
            "is too short, at least 16 bytes",
        ),
        (
            inside("node a pool=;"),
            "invalid name \"\" of a pool, it must have letters",
        ),
        (inside("node a pool=a.b;"), "invalid name \"a.b\" of a pool"),
        (
            inside("") + "proxy_cache_peers owner of=x;",
            "it must be \"pool=name\", \"bound=number\", \"hedge=time\" or \"extent=size\"",
        ),
        (
            inside("") + "proxy_cache_peers owner pool=a.b;",
            "a pool has a name of letters, digits, \"-\" and \"_\"",
        ),
        (
            inside("") + "proxy_cache z; proxy_cache_peers owner;",
            "\"proxy_cache_peers\" needs \"peer_secret\" of fleet \"edge\"",
        ),
    ] {
        let said = mistakes(&block)?;
        assert!(said.contains(message), "{block}: {said}");
    }
    Ok(())
}

#[test]
fn wrong_lines_are_told_and_right_ones_pass() -> Result<()> {
    let inside = |line: &str| format!("fleet edge {{ nats nats://127.0.0.1:4222; {line} }}");
    for (block, message) in [
        (String::new(), "fleet \"edge\" is unknown"),
        ("fleet edge { }".into(), "fleet \"edge\" requires \"nats\""),
        (
            "fleet a.b { nats n; }".into(),
            "invalid name \"a.b\" of a fleet",
        ),
        (inside("") + &inside(""), "duplicate fleet \"edge\""),
        (
            inside("nats a;"),
            "\"nats\" directive of \"fleet\" is duplicate",
        ),
        (
            "fleet edge { nats '//'; }".into(),
            "invalid URL \"//\" in \"nats\"",
        ),
        (
            "fleet edge { nats ws://a; }".into(),
            "\"ws\" is neither \"nats\" nor \"tls\"",
        ),
        (inside("nats_creds none;"), "open() \""),
        (
            inside("node 'a b';"),
            "\"node\" directive of \"fleet\" has an invalid value",
        ),
        (inside("max_lag 1s;"), "\"1s\" is too short, at least 2s"),
        (inside("max_lag 2h;"), "\"2h\" is too long, at most 3600s"),
        (
            inside("max_lag soon;"),
            "\"max_lag\" directive of \"fleet\" has an invalid value",
        ),
        (
            inside("on_lag hit;"),
            "\"on_lag\" directive of \"fleet\" has an invalid value",
        ),
        (inside("retain 1m;"), "\"1m\" is too short, at least 3600s"),
        (
            inside("replicas 9;"),
            "\"replicas\" directive of \"fleet\" has an invalid value",
        ),
        (
            inside("replicas 1 2;"),
            "invalid number of arguments in \"replicas\"",
        ),
        (
            inside("weight 1;"),
            "unknown directive \"weight\" in \"fleet\"",
        ),
        (inside("proxy_cache_on_lag hit;"), "unknown directive"),
    ] {
        let said = mistakes(&block)?;
        assert!(said.contains(message), "{block}: {said}");
    }
    for line in [
        "",
        "node a.example; max_lag 2s; on_lag serve; retain 7d; replicas 5;",
        "node a.example address=127.0.0.1:80 weight=7; peer_secret secret;",
        "nats_creds creds; nats_domain edge;",
    ] {
        assert_eq!(mistakes(&inside(line))?, "", "{line}");
    }
    Ok(())
}

/// Names of the threads of a process.
fn threads(proxy: &Proxy) -> Result<Vec<String>> {
    let pid = proxy.pid().context("it runs")?;
    let mut names = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        names.push(name.trim().to_string());
    }
    Ok(names)
}

fn fleet_threads(proxy: &Proxy) -> Option<usize> {
    let names = threads(proxy).ok()?;
    Some(
        names
            .iter()
            .filter(|name| name.starts_with("fleet"))
            .count(),
    )
}

#[test]
fn zone_joins_and_leaves_a_fleet_by_reloads() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let first = Node::start(node("first", nats.port, &origin))?;
    let alone = NODE.replace(" fleet=edge;", ";");
    let builder = Proxy::new(Kind::Millpond, &alone)
        .origin(&origin)
        .value("NODE", "second")
        .value("NATS", &nats.port.to_string());
    let mut second = Node::start(builder)?;
    assert_eq!(
        fleet_threads(&second.proxy),
        Some(0),
        "a fleet without zones"
    );
    origin.route("/a", page("old"));
    second.warm("/a")?;
    origin.route("/a", page("new"));
    first.purge("/a", &[])?;
    let answer = second.purge("/b", &[])?;
    assert_eq!((answer.status, answer.header("Purge-Fleet")), (404, None));
    assert_eq!(second.page("/a")?.1, "old", "it is alone");

    second.proxy.set_conf(NODE)?;
    second.proxy.reload()?;
    // What it has missed is not known.
    second.wait_for("/a", "new")?;
    second.warm("/a")?;
    origin.route("/a", page("newer"));
    first.purge_everywhere("/a")?;
    assert_eq!(second.page("/a")?.1, "newer");

    second.proxy.set_conf(&alone)?;
    second.proxy.reload()?;
    let have_ended = || fleet_threads(&second.proxy).filter(|it| *it == 0);
    Deadline::after(WAIT)
        .poll(have_ended)
        .context("threads are left")?;
    second.warm("/a")?;
    // A worker may take the new configuration after the threads have ended.
    let is_alone = || {
        let answer = second.purge("/a", &[]).ok()?;
        answer.header("Purge-Fleet").is_none().then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_alone)
        .context("purges are told of to a fleet")
}

/// A successor, which the kit does not know; it is ended with this.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn new_binary_follows_in_place_of_the_old_one() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let other = Node::start(node("other", nats.port, &origin))?;
    let mut changed = Node::start(node("changed", nats.port, &origin))?;
    origin.route("/a", page("old"));
    changed.warm("/a")?;
    let old = changed.proxy.pid().context("it runs")?;
    changed.proxy.signal(Signal::USR2)?;
    let successor = || {
        let text = changed.proxy.read_file("server.pid");
        let pid = text.trim().parse().ok().filter(|pid| *pid != old as i32)?;
        Some(Successor(Pid::from_raw(pid)?))
    };
    let found = Deadline::after(WAIT).poll(successor);
    let _successor = found.context("no new process")?;
    assert_eq!(
        fleet_threads(&changed.proxy),
        Some(0),
        "two follow one zone"
    );
    changed.wait_until_ready()?;
    origin.route("/a", page("new"));
    other.purge_everywhere("/a")?;
    assert_eq!(changed.page("/a")?.1, "new");
    changed.proxy.quit()?;
    assert_eq!(changed.page("/a")?.1, "new");
    let log = changed.proxy.error_log();
    assert_eq!(log.matches("counts as stale once").count(), 1, "{log}");
    Ok(())
}

#[test]
fn other_process_with_the_name_of_a_node_is_told() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let one = Node::start(node("twin", nats.port, &origin))?;
    let _other = Node::start(node("twin", nats.port, &origin))?;
    let is_told = || {
        one.proxy
            .error_log()
            .contains("is the node \"twin\", too")
            .then_some(())
    };
    Deadline::after(WAIT).poll(is_told).context("never told")
}
