//! `resolver`, `resolver_timeout`, `server … resolve`, `service=`: names that are resolved while
//! the program runs.

use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, NameServer, Origin, Proxy, Record, Request,
};

const WAIT: Duration = Duration::from_secs(10);

fn start(conf: &str, names: &NameServer, origin: &Origin) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, conf)
        .value("DNS", &names.address())
        .value("OPORT", &origin.port().to_string())
        .origin(origin)
        .start()
}

fn origin() -> Result<Origin> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("origin"));
    Ok(origin)
}

/// The status of a request for a host.
fn ask(client: &Client, host: &str) -> Result<u16> {
    Ok(client.send(&Request::get("/").host(host))?.status)
}

const VARIABLE: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            resolver %%DNS%% ipv6=off;
            resolver_timeout 500ms;
            proxy_pass http://$host:%%OPORT%%;
            add_header X-Peer $upstream_addr always;
        }
        location /none { proxy_pass http://$host:%%OPORT%%; }
    }";

/// A name in a variable is asked for once, and remembered as long as its answer says.
#[test]
fn names_are_remembered_errors_are_not() -> Result<()> {
    let (names, origin) = (NameServer::start()?, origin()?);
    let proxy = start(VARIABLE, &names, &origin)?;
    let client = Client::new(proxy.port());
    names.addresses("good.test", &["127.0.0.1"]);
    for _ in 0..3 {
        assert_eq!(ask(&client, "good.test")?, 200);
    }
    assert_eq!(ask(&client, "GOOD.test")?, 200);
    assert_eq!(names.questions().len(), 1);
    names.fail("bad.test", 2);
    assert_eq!(ask(&client, "bad.test")?, 502);
    names.addresses("bad.test", &["127.0.0.1"]);
    assert_eq!(ask(&client, "bad.test")?, 200);
    Ok(())
}

/// A name that cannot be resolved is 502, and logged in nginx's words.
#[test]
fn what_is_not_resolved_is_a_bad_gateway() -> Result<()> {
    let (names, origin) = (NameServer::start()?, origin()?);
    let proxy = start(VARIABLE, &names, &origin)?;
    let client = Client::new(proxy.port());
    names.fail("refused.test", 5);
    names.silence("silent.test");
    names.addresses("empty.test", &[]);
    let long = format!("{}.test", "x".repeat(64));
    for (host, words) in [
        (
            "absent.test",
            "absent.test could not be resolved (3: Host not found)",
        ),
        (
            "refused.test",
            "refused.test could not be resolved (5: Operation refused)",
        ),
        (
            "silent.test",
            "silent.test could not be resolved (110: Operation timed out)",
        ),
        (
            "empty.test",
            "empty.test could not be resolved (3: Host not found)",
        ),
        (long.as_str(), "could not be resolved (3: Host not found)"),
    ] {
        assert_eq!(ask(&client, host)?, 502, "{host}");
        assert!(
            proxy.error_log().contains(words),
            "{host}: {}",
            proxy.error_log()
        );
    }
    let response = client.send(&Request::get("/none").host("a.test"))?;
    assert_eq!(response.status, 502);
    assert!(
        proxy
            .error_log()
            .contains("no resolver defined to resolve a.test")
    );
    Ok(())
}

/// Aliases are followed, answers that are too long are asked for again over TCP, and a name with
/// several addresses has as many peers.
#[test]
fn aliases_long_answers_and_many_addresses() -> Result<()> {
    let (names, origin) = (NameServer::start()?, origin()?);
    let proxy = start(VARIABLE, &names, &origin)?;
    let client = Client::new(proxy.port());
    names.name("alias.test", [Record::alias("end.test")]);
    names.name("loop.test", [Record::alias("loop.test")]);
    names.addresses("end.test", &["127.0.0.1"]);
    names.truncate("long.test", [Record::address("127.0.0.1".parse()?)]);
    assert_eq!(ask(&client, "alias.test")?, 200);
    assert_eq!(ask(&client, "loop.test")?, 502);
    assert_eq!(ask(&client, "long.test")?, 200);
    assert!(names.questions().iter().any(|question| question.is_tcp));
    names.addresses("many.test", &["127.9.9.9", "127.0.0.1"]);
    let response = client.send(&Request::get("/").host("many.test"))?;
    assert_eq!(response.status, 200);
    let peers = response.header("X-Peer").context("peers")?;
    assert_eq!(
        peers,
        format!("127.9.9.9:{0}, 127.0.0.1:{0}", origin.port())
    );
    Ok(())
}

const GROUP: &str = "
    resolver %%DNS%% valid=1s ipv6=off;
    resolver_timeout 1s;
    upstream u { zone u 64k; server host.test:%%OPORT%% resolve; }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://u; proxy_connect_timeout 1s; add_header X-Peer $upstream_addr always; }
    }";

/// Waits until a request goes to these peers.
fn wait_for_peers(client: &Client, expected: &str) -> Result<()> {
    let look = || {
        let response = client.get("/").ok()?;
        (response.header("X-Peer") == Some(expected)).then_some(())
    };
    let last = || {
        client
            .get("/")
            .ok()
            .and_then(|it| it.header("X-Peer").map(str::to_string))
    };
    Deadline::after(WAIT)
        .poll(look)
        .with_context(|| format!("{:?} instead of {expected}", last()))
}

/// The peers of a group follow its names; an error leaves them, also over a reload.
#[test]
fn peers_follow_their_name() -> Result<()> {
    let (names, origin) = (NameServer::start()?, origin()?);
    names.addresses("host.test", &["127.0.0.1"]);
    let mut proxy = start(GROUP, &names, &origin)?;
    let client = Client::new(proxy.port());
    let port = origin.port();
    wait_for_peers(&client, &format!("127.0.0.1:{port}"))?;
    names.addresses("host.test", &["127.0.0.3"]);
    wait_for_peers(&client, &format!("127.0.0.3:{port}"))?;
    names.fail("host.test", 2);
    let failed = || {
        proxy
            .error_log()
            .contains("host.test could not be resolved (2: Server failure)")
    };
    Deadline::after(WAIT)
        .poll(|| failed().then_some(()))
        .context("an error")?;
    wait_for_peers(&client, &format!("127.0.0.3:{port}"))?;
    proxy.set_conf(&GROUP.replace("zone u 64k;", "zone u 64k; keepalive 4;"))?;
    proxy.reload()?;
    let reloaded = || proxy.error_log().contains("reconfiguring");
    Deadline::after(WAIT)
        .poll(|| reloaded().then_some(()))
        .context("a reload")?;
    for _ in 0..5 {
        let response = client.get("/")?;
        assert_eq!(
            response.header("X-Peer"),
            Some(format!("127.0.0.3:{port}").as_str())
        );
    }
    names.fail("host.test", 3);
    wait_for_peers(&client, "u")?;
    names.addresses("host.test", &["127.0.0.1"]);
    wait_for_peers(&client, &format!("127.0.0.1:{port}"))
}

/// A service tells ports, weights and priorities; worse priorities are backup peers.
#[test]
fn services_have_targets() -> Result<()> {
    let (names, origin) = (NameServer::start()?, origin()?);
    let conf = GROUP.replace(
        "host.test:%%OPORT%% resolve",
        "host.test resolve service=http",
    );
    let port = origin.port();
    let closed = millpond_testkit::free_port()?;
    names.addresses("one.test", &["127.0.0.1"]);
    names.addresses("two.test", &["127.0.0.1"]);
    names.name(
        "_http._tcp.host.test",
        [
            Record::target(1, 5, closed, "one.test"),
            Record::target(2, 5, port, "two.test"),
        ],
    );
    let proxy = start(&conf, &names, &origin)?;
    let client = Client::new(proxy.port());
    wait_for_peers(&client, &format!("127.0.0.1:{closed}, 127.0.0.1:{port}"))
}

/// Mistakes are found when the configuration is read.
#[test]
fn mistakes_are_told() -> Result<()> {
    for (line, words) in [
        (
            "resolver;",
            "invalid number of arguments in \"resolver\" directive",
        ),
        ("resolver valid=1s;", "no name servers defined"),
        (
            "resolver 127.0.0.1 ipv4=off ipv6=off;",
            "cannot both be \"off\"",
        ),
        ("resolver 127.0.0.1 valid=x;", "invalid parameter: valid=x"),
        (
            "upstream u { server a.test resolve; }",
            "to be in shared memory",
        ),
        (
            "upstream u { zone u 64k; server a.test resolve; }",
            "no resolver defined to resolve names",
        ),
        (
            "upstream u { server 127.0.0.1 service=a; }",
            "requires \"resolve\" parameter",
        ),
        (
            "upstream u { server a.test:1 resolve service=a; }",
            "may not have port",
        ),
        (
            "upstream u { server 127.0.0.1 resolve service=a; }",
            "requires domain name",
        ),
        (
            "upstream u { zone u 1k; server 127.0.0.1; }",
            "zone \"u\" is too small",
        ),
        (
            "upstream u { ip_hash; server 127.0.0.1 backup; }",
            "does not support parameter \"backup\"",
        ),
        (
            "upstream u { hash; server 127.0.0.1; }",
            "invalid number of arguments in \"hash\" directive",
        ),
        (
            "upstream u { hash a b; server 127.0.0.1; }",
            "invalid parameter \"b\"",
        ),
        ("upstream u { zone u 64k; }", "no servers in upstream \"u\""),
    ] {
        let conf = format!("{line} server {{ listen 127.0.0.1:%%PORT%%; }}");
        let started = Proxy::new(Kind::Millpond, &conf).start();
        let said = started
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default();
        assert!(said.contains(words), "{line}: {said}");
    }
    Ok(())
}
