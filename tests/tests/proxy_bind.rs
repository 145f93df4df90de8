//! `proxy_bind`: where connections to the origin come from.

use anyhow::{Context, Result};
use millpond_testkit::{Client, Kind, LogCheck, Proxy};

/// The origin is a server of the same process that tells who asks, and on which connection.
const SERVERS: &str = "
    upstream origin { server 127.0.0.1:%%PORT_ORIGIN%%; keepalive 4; }
    upstream two { server 127.0.0.1:%%PORT_ORIGIN%%; server 127.0.0.1:%%PORT_ORIGIN%%; }
    server {
        listen 127.0.0.1:%%PORT_ORIGIN%%;
        return 200 '$remote_addr $connection';
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://origin; proxy_bind $arg_from; }
        location /two { proxy_pass http://two; proxy_bind $arg_from; }
        location /any { proxy_pass http://origin; proxy_bind $arg_from transparent; }
    }";

/// A request never goes out under the address of another one's idle connection.
#[test]
fn idle_connection_serves_only_requests_from_its_own_address() -> Result<()> {
    let proxy = Proxy::new(Kind::Millpond, SERVERS).start()?;
    let client = Client::new(proxy.port());
    let ask = |from: &str| -> Result<(String, String)> {
        let said = client.get(&format!("/?from={from}"))?.text();
        let (address, connection) = said.split_once(' ').context("two words")?;
        Ok((address.to_string(), connection.to_string()))
    };
    let second = ask("127.0.0.2")?;
    let third = ask("127.0.0.3")?;
    let own = ask("")?;
    assert_eq!(second.0, "127.0.0.2");
    assert_eq!(third.0, "127.0.0.3");
    assert_eq!(own.0, "127.0.0.1");
    // Each of them is used again where it belongs.
    assert_eq!(ask("127.0.0.2")?, second);
    assert_eq!(ask("127.0.0.3")?, third);
    assert_eq!(ask("")?, own);
    Ok(())
}

/// An address that cannot be had is a fault of this side: no peer is given up for it, and no other
/// is asked.
#[test]
fn no_peer_is_to_blame_for_an_address_that_cannot_be_had() -> Result<()> {
    let proxy = Proxy::new(Kind::Millpond, SERVERS)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    // RFC 5737: no machine has it.
    for _ in 0..4 {
        assert_eq!(client.get("/two?from=192.0.2.1")?.status, 500);
    }
    assert_eq!(client.get("/two?from=127.0.0.2")?.status, 200);
    let log = proxy.error_log();
    assert_eq!(log.matches("[crit]").count(), 4, "{log}");
    assert_eq!(log.matches("bind(192.0.2.1) failed").count(), 4, "{log}");
    assert!(!log.contains("temporarily disabled"), "{log}");
    Ok(())
}

/// A process that became a user keeps the right to foreign addresses if its configuration uses
/// them.
#[test]
fn user_keeps_the_right_to_foreign_addresses_where_they_are_used() -> Result<()> {
    // Only root can become somebody else.
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for (conf, rights) in [
        // CAP_NET_BIND_SERVICE is number 10, CAP_NET_RAW is number 13.
        (SERVERS.to_string(), "0000000000002400"),
        (SERVERS.replace(" transparent", ""), "0000000000000400"),
    ] {
        let conf =
            format!("%%GLOBALS%% user nobody nogroup; events {{}} http {{ %%HTTP%% {conf} }}");
        // The user may not remove files from root's folder, and says so at the end.
        let proxy = Proxy::new(Kind::Millpond, &conf)
            .log_check(LogCheck::Off)
            .start()?;
        let said = Client::new(proxy.port()).get("/any?from=127.0.0.2")?;
        assert!(said.text().starts_with("127.0.0.2 "), "{}", said.text());
        let pid = proxy.pid().context("it runs")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        assert_eq!(held.map(str::trim), Some(rights));
    }
    Ok(())
}
