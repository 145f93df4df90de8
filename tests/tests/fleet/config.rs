//! `config on` of a fleet and `millpond fleet config`: what is pushed, signed, is the configuration
//! of all nodes, in steps; what is wrong changes nothing.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy, ProxyBuilder, binary};
use serde_json::Value;

use crate::kit::{Nats, Node, WAIT};
use crate::nats;

/// Inside of the http block of a node's own file.
const OWN: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%%;
        replicas 1;
        max_lag 3s;
        config on folder=%%DIR%%/fleet trusted_key=key.pub;
    }
    %%MORE%%
    server {
        listen 127.0.0.1:%%PORT%%;
        location = /ready { health; }
        location = /metrics { metrics; }
        location /api/ { api; }
        location /look { dashboard; }
        location = /there { return 200; }
        location = /gone { return 503; }
        location / { return 404; }
    }";

/// Configuration that is pushed: a field that all answers have.
pub(crate) fn pushed(name: &str) -> String {
    format!("http {{ include more/*.conf; add_header X-Conf {name} always; }}")
}

/// Keys, and a folder whose files are pushed.
pub(crate) struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    pub(crate) fn new() -> Result<Desk> {
        let desk = Desk {
            dir: tempfile::tempdir()?,
        };
        let made = desk.command(&["fleet", "config", "key", "key"])?;
        ensure!(made.0 == Some(0), "{made:?}");
        std::fs::create_dir_all(desk.dir.path().join("conf/more"))?;
        Ok(desk)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn public_key(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.path("key.pub"))?)
    }

    fn command(&self, words: &[&str]) -> Result<(Option<i32>, String)> {
        let program = binary(Kind::Millpond).context("no binary")?;
        let mut command = Command::new(program);
        let output = command.args(words).current_dir(self.dir.path()).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    }

    /// A command for the fleet of a node.
    fn ask(&self, node: &Node, words: &[&str]) -> Result<(Option<i32>, String)> {
        let conf = node.proxy.dir().join("nginx.conf").display().to_string();
        let words = [&["fleet", "config"], words, &["-c", &conf]].concat();
        self.command(&words)
    }

    fn order(&self, node: &Node, words: &[&str]) -> Result<String> {
        let (status, said) = self.ask(node, &[words, &["--key", "key"]].concat())?;
        ensure!(status == Some(0), "{words:?}: {said}");
        Ok(said)
    }

    pub(crate) fn push(&self, node: &Node, text: &str, words: &[&str]) -> Result<String> {
        std::fs::write(self.path("conf/nginx.conf"), text)?;
        self.order(node, &[&["push", "conf"], words].concat())
    }

    fn status(&self, node: &Node) -> Result<(Option<i32>, Value)> {
        let (status, said) = self.ask(node, &["status", "--json"])?;
        let document = serde_json::from_str(&said).with_context(|| said.clone())?;
        Ok((status, document))
    }

    /// Waits until all nodes have told that they are as they should be.
    fn wait_until_well(&self, node: &Node) -> Result<()> {
        let is_well = || (self.ask(node, &["status"]).ok()?.0 == Some(0)).then_some(());
        Deadline::after(WAIT).poll(is_well).context("never well")
    }

    pub(crate) fn builder(&self, name: &str, nats: u16, more: &str) -> Result<ProxyBuilder> {
        Ok(Proxy::new(Kind::Millpond, OWN)
            .file("key.pub", self.public_key()?)
            .value("NODE", name)
            .value("MORE", more)
            .value("NATS", &nats.to_string()))
    }

    fn node(&self, name: &str, nats: u16) -> Result<Node> {
        Node::start(self.builder(name, nats, "")?)
    }
}

/// The pushed name that a node's answers have; empty without one.
fn name_of(client: &Client) -> Result<String> {
    let answer = client.get("/there")?;
    Ok(answer.header("X-Conf").unwrap_or("").to_owned())
}

fn wait_for_name(node: &Node, name: &str) -> Result<()> {
    let has = || (name_of(&node.client).ok()? == name).then_some(());
    Deadline::after(WAIT)
        .poll(has)
        .with_context(|| format!("never \"{name}\": {}", node.proxy.error_log()))
}

/// State and reason of a node, by the status of the fleet.
fn state_of(document: &Value, name: &str) -> Option<(String, String)> {
    let nodes = document["nodes"].as_array()?;
    let node = nodes.iter().find(|it| it["name"] == name)?;
    let text = |key: &str| node[key].as_str().map(str::to_owned);
    Some((text("state")?, text("reason")?))
}

pub(crate) fn wait_for_state(desk: &Desk, node: &Node, name: &str, state: &str) -> Result<String> {
    let mut last = String::new();
    let is_so = || {
        let (_, document) = desk.status(node).ok()?;
        last = document.to_string();
        let (known, reason) = state_of(&document, name)?;
        (known == state).then_some(reason)
    };
    let found = Deadline::after(WAIT).poll(is_so);
    found.with_context(|| format!("{name} never {state}: {last}"))
}

#[test]
fn what_is_pushed_is_on_all_nodes_and_outlives_restarts_without_servers() -> Result<()> {
    let mut nats = nats!();
    let desk = Desk::new()?;
    let mut nodes = [desk.node("n1", nats.port)?, desk.node("n2", nats.port)?];
    assert_eq!(name_of(&nodes[0].client)?, "");
    // The folder has files that are included, too.
    std::fs::write(
        desk.path("conf/more/a.conf"),
        "add_header X-More yes always;",
    )?;
    let said = desk.push(&nodes[0], &pushed("one"), &[])?;
    assert!(said.contains("revision 1, push, bundle "), "{said}");
    for node in &nodes {
        wait_for_name(node, "one")?;
        assert_eq!(node.client.get("/there")?.header("X-More"), Some("yes"));
    }
    desk.wait_until_well(&nodes[1])?;
    let revision = "millpond_fleet_config_revision{fleet=\"edge\"}";
    assert_eq!(nodes[1].metric(revision)?, 1.0);
    // A reload of the node's own file keeps it.
    nodes[0].proxy.reload()?;
    assert_eq!(name_of(&nodes[0].client)?, "one");

    nats.kill()?;
    nodes[0].proxy.kill9()?;
    nodes[0].proxy.restart()?;
    assert_eq!(name_of(&nodes[0].client)?, "one");
    nats.restart()?;
    desk.push(&nodes[0], &pushed("two"), &[])?;
    nodes
        .iter()
        .try_for_each(|node| wait_for_name(node, "two"))?;
    desk.wait_until_well(&nodes[0])?;
    let said = desk.order(&nodes[1], &["rollback"])?;
    assert!(
        said.contains("revision 3, rollback of revision 1,"),
        "{said}"
    );
    nodes
        .iter()
        .try_for_each(|node| wait_for_name(node, "one"))?;
    desk.wait_until_well(&nodes[0])?;

    // The log of the configuration is lost: nodes keep what they have, and go on from there.
    nats.delete_stream("MPCONF_edge")?;
    nodes[0].proxy.kill9()?;
    nodes[0].proxy.restart()?;
    assert_eq!(name_of(&nodes[0].client)?, "one");
    wait_for_state(&desk, &nodes[0], "n1", "settled")?;
    let said = desk.push(&nodes[0], &pushed("four"), &[])?;
    assert!(said.contains("revision 4, push"), "{said}");
    nodes
        .iter()
        .try_for_each(|node| wait_for_name(node, "four"))
}

/// Number of bundles that a node keeps.
fn bundles(node: &Node) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(node.proxy.dir().join("fleet"))? {
        count += usize::from(entry?.path().extension().is_some_and(|it| it == "bundle"));
    }
    Ok(count)
}

#[test]
fn what_cannot_be_kept_takes_nothing_away_and_is_kept_later() -> Result<()> {
    let mut nats = nats!();
    let (desk, other) = (Desk::new()?, Desk::new()?);
    let builder = desk.builder("n1", nats.port, "")?;
    let mut node = Node::start(builder.log_check(LogCheck::Off))?;
    desk.push(&node, &pushed("one"), &[])?;
    wait_for_name(&node, "one")?;
    desk.wait_until_well(&node)?;
    // What is good cannot be written.
    let in_the_way = node.proxy.dir().join("fleet/good.new");
    std::fs::create_dir(&in_the_way)?;
    desk.push(&node, &pushed("two"), &[])?;
    wait_for_name(&node, "two")?;
    let is_told = || {
        let log = node.proxy.error_log();
        log.contains("keeping what is good failed").then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_told)
        .context("nothing said")?;
    assert_eq!(bundles(&node)?, 2);
    nats.kill()?;
    node.proxy.kill9()?;
    node.proxy.restart()?;
    assert_eq!(name_of(&node.client)?, "one");
    nats.restart()?;
    wait_for_name(&node, "two")?;
    std::fs::remove_dir(&in_the_way)?;
    let is_kept = || (bundles(&node).ok()? == 1).then_some(());
    Deadline::after(WAIT).poll(is_kept).context("never kept")?;
    // What is kept is signed with a key that is not trusted any more.
    nats.kill()?;
    std::fs::write(node.proxy.dir().join("key.pub"), other.public_key()?)?;
    node.proxy.kill9()?;
    node.proxy.restart()?;
    assert_eq!(name_of(&node.client)?, "");
    let log = node.proxy.error_log();
    assert!(
        log.contains("cannot be used, and this file counts alone"),
        "{log}"
    );
    Ok(())
}

#[test]
fn what_others_have_signed_is_not_taken() -> Result<()> {
    let nats = nats!();
    let (desk, other) = (Desk::new()?, Desk::new()?);
    let node = desk.node("n1", nats.port)?;
    let (status, said) = other.ask(&node, &["push", "conf", "--key", "key", "--no-test"])?;
    assert_eq!(status, Some(2), "{said}");
    desk.push(&node, &pushed("one"), &[])?;
    wait_for_name(&node, "one")?;

    // Somebody who can write to the servers has a key and a configuration of his own.
    let conf = format!(
        "events {{}} http {{ fleet edge {{ nats nats://127.0.0.1:{}; replicas 1;
             config on folder=fleet trusted_key=key.pub; }} }}",
        nats.port
    );
    std::fs::write(other.path("main.conf"), conf)?;
    std::fs::write(other.path("conf/nginx.conf"), pushed("evil"))?;
    let main = other.path("main.conf");
    let words = [
        "fleet",
        "config",
        "push",
        "conf",
        "--key",
        "key",
        "--no-test",
        "-c",
        &main,
    ];
    let (status, said) = other.command(&words)?;
    assert_eq!(status, Some(0), "{said}");
    let is_told = || {
        let log = node.proxy.error_log();
        log.contains("is not taken: it is not signed with a key that is trusted")
            .then_some(())
    };
    Deadline::after(WAIT).poll(is_told).context("never told")?;
    assert_eq!(name_of(&node.client)?, "one");
    // It takes no number away either.
    desk.push(&node, &pushed("two"), &[])?;
    wait_for_name(&node, "two")
}

#[test]
fn node_that_cannot_apply_what_is_pushed_stays_as_it_was_and_says_why() -> Result<()> {
    const ZONE: &str = "limit_req_zone $uri zone=pages:1m rate=1r/s;";
    let nats = nats!();
    let desk = Desk::new()?;
    let able = desk.node("able", nats.port)?;
    let builder = desk.builder("unable", nats.port, ZONE)?;
    let unable = Node::start(builder.log_check(LogCheck::Off))?;
    desk.push(&able, &pushed("one"), &[])?;
    wait_for_name(&able, "one")?;
    wait_for_name(&unable, "one")?;
    std::fs::write(desk.path("conf/more/zone.conf"), ZONE)?;
    desk.push(&able, &pushed("two"), &[])?;
    wait_for_name(&able, "two")?;
    let reason = wait_for_state(&desk, &able, "unable", "refused")?;
    assert!(reason.contains("pages"), "{reason}");
    assert_eq!(name_of(&unable.client)?, "one");
    assert_eq!(desk.status(&able)?.0, Some(1));
    let text = unable.client.get("/api/millpond/1/fleets")?.text();
    let report: Value = serde_json::from_str(&text)?;
    let config = &report["fleets"][0]["config"];
    assert_eq!(
        (&config["revision"], &config["state"]),
        (&1.into(), &"refused".into())
    );
    // The other node knows it, too.
    let told = || {
        let text = able.client.get("/api/millpond/1/fleets").ok()?.text();
        let report: Value = serde_json::from_str(&text).ok()?;
        let config = &report["fleets"][0]["config"];
        let (state, why) = state_of(config, "unable")?;
        (state == "refused" && why.contains("pages")).then(|| config["orders"].clone())
    };
    let orders = Deadline::after(WAIT).poll(told).context("never told")?;
    let newest = &orders[0];
    assert_eq!(
        (&newest["revision"], &newest["kind"], &newest["canaries"]),
        (&2.into(), &"push".into(), &Value::Array(Vec::new())),
    );
    let refused = "millpond_fleet_config_orders_total{fleet=\"edge\",result=\"refused\"}";
    assert_eq!(unable.metric(refused)?, 1.0);

    // Its own file is put right, and read again.
    let conf = std::fs::read_to_string(unable.proxy.dir().join("nginx.conf"))?;
    unable
        .proxy
        .write_file("nginx.conf", conf.replace(ZONE, ""))?;
    unable.proxy.reload()?;
    wait_for_name(&unable, "two")?;
    // What is wrong for everybody is refused before it is signed.
    std::fs::write(
        desk.path("conf/nginx.conf"),
        "http { fleet x { nats nats://a; } }",
    )?;
    let (status, said) = desk.ask(&able, &["push", "conf", "--key", "key"])?;
    assert_eq!(status, Some(2));
    assert!(
        said.contains("\"fleet\" cannot come from the fleet"),
        "{said}"
    );
    Ok(())
}

/// The nodes whose answers have a name, by their places.
fn having(nodes: &[Node], name: &str) -> Vec<usize> {
    let has = |node: &Node| name_of(&node.client).is_ok_and(|found| found == name);
    (0..nodes.len()).filter(|at| has(&nodes[*at])).collect()
}

fn wait_for_canary(nodes: &[Node], name: &str) -> Result<usize> {
    let found = || having(nodes, name).first().copied();
    Deadline::after(WAIT)
        .poll(found)
        .with_context(|| format!("nobody tries \"{name}\": {}", nodes[0].proxy.error_log()))
}

#[test]
fn canaries_try_first_and_what_is_worse_goes_back_by_itself() -> Result<()> {
    let nats = nats!();
    let desk = Desk::new()?;
    let start = |name| desk.node(name, nats.port);
    let nodes = [start("n1")?, start("n2")?, start("n3")?];
    for name in ["n1", "n2", "n3"] {
        wait_for_state(&desk, &nodes[0], name, "settled")?;
    }
    let steps = ["--canary", "30%", "--watch", "3s"];
    let said = desk.push(&nodes[0], &pushed("one"), &steps)?;
    assert!(said.contains(", tried for 3 s by n"), "{said}");
    let canary = wait_for_canary(&nodes, "one")?;
    assert_eq!(having(&nodes, "one"), [canary]);
    // It holds, and all get it.
    nodes
        .iter()
        .try_for_each(|node| wait_for_name(node, "one"))?;
    desk.wait_until_well(&nodes[0])?;

    let worse = "http { add_header X-Conf worse always; error_page 404 =503 /gone; }";
    let steps = ["--canary", "30%", "--watch", "1h"];
    desk.push(&nodes[0], worse, &steps)?;
    let canary = wait_for_canary(&nodes, "worse")?;
    let (status, said) = desk.ask(&nodes[0], &["push", "conf", "--key", "key"])?;
    assert!(
        status == Some(2) && said.contains("is being tried"),
        "{said}"
    );
    for node in &nodes {
        for _ in 0..60 {
            node.client.get("/missing")?;
        }
    }
    wait_for_name(&nodes[canary], "one")?;
    let name = ["n1", "n2", "n3"][canary];
    let reason = wait_for_state(&desk, &nodes[0], name, "back")?;
    assert!(reason.contains("of the answers are errors"), "{reason}");
    let log = nodes[canary].proxy.error_log();
    assert!(log.contains("revision 2 is taken back: "), "{log}");
    let back = "millpond_fleet_config_orders_total{fleet=\"edge\",result=\"back\"}";
    assert_eq!(nodes[canary].metric(back)?, 1.0);
    let text = nodes[0].client.get("/api/millpond/1/fleets")?.text();
    let report: Value = serde_json::from_str(&text)?;
    let order = &report["fleets"][0]["config"]["orders"][0];
    assert_eq!(order["verdict"], "back", "{order}");
    let why = order["reason"].as_str().context("a reason")?;
    assert!(why.starts_with(&format!("{name}: ")), "{why}");
    assert!(having(&nodes, "worse").is_empty());

    // Somebody does not want to wait.
    desk.push(&nodes[0], &pushed("three"), &steps)?;
    wait_for_canary(&nodes, "three")?;
    desk.order(&nodes[0], &["promote"])?;
    nodes
        .iter()
        .try_for_each(|node| wait_for_name(node, "three"))?;
    desk.wait_until_well(&nodes[0])
}

#[test]
fn wrong_lines_about_configuration_are_told() -> Result<()> {
    let inside = |line: &str| format!("fleet edge {{ nats nats://127.0.0.1:4222; {line} }}");
    for (line, message) in [
        ("config;", "must be \"on\" or \"off\""),
        ("config on;", "\"config on\" requires \"folder=\""),
        (
            "config on folder=f;",
            "\"config on\" requires \"trusted_key=\"",
        ),
        ("config on folder=f trusted_key=none;", "open() \""),
        (
            "config on folder=f trusted_key=secret;",
            "a line of it is no key",
        ),
        (
            "config on folder=f trusted_key=k canary=5;",
            "invalid parameter \"canary=5\"",
        ),
        (
            "config on folder=f trusted_key=k key=a;",
            "invalid parameter \"key=a\"",
        ),
        ("config off; config off;", "is duplicate"),
    ] {
        let said = crate::lines::mistakes(&inside(line))?;
        assert!(said.contains(message), "{line}: {said}");
    }
    assert_eq!(crate::lines::mistakes(&inside("config off;"))?, "");
    Ok(())
}
