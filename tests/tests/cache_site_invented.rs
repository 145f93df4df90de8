//! Names of sites that clients make up: they take no counters from those that are named or have
//! something stored, neither now nor after a restart.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, Kind, Origin, Proxy, Request, binary,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
worker_processes 2;
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    proxy_cache_path %%DIR%%/other keys_zone=other:1m max_size=100m;
    proxy_cache_valid 200 1h;
    proxy_cache_key $host$uri;
    cache_site $host;
    keepalive_requests 100000;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name *.wild.example ~^re[0-9]+$ .both.example;
        location / { return 204; }
        location /page { proxy_pass http://%%ORIGIN%%; proxy_cache z; }
        location /fixed { return 204; cache_site fixed; }
    }
    #customer
}
";
const CUSTOMER: &str = "
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name customer.example;
        location / { return 202; }
    }";

const WAIT: Duration = Duration::from_secs(60);
/// More than there are numbers.
const INVENTED: usize = 4200;

fn answer(proxy: &Proxy) -> Result<Value> {
    let mut stream = UnixStream::connect(proxy.dir().join("control"))?;
    stream
        .write_all(b"GET /api/millpond/1/sites HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    ensure!(said.starts_with("HTTP/1.1 200"), "{said}");
    let start = said.find('{').context("a body")?;
    Ok(serde_json::from_str(said.get(start..).context("a body")?)?)
}

/// Requests by site.
fn requests(proxy: &Proxy) -> Result<BTreeMap<String, u64>> {
    let answer = answer(proxy)?;
    let sites = answer["sites"].as_array().context("sites")?;
    let counted = sites.iter().filter_map(|site| {
        let name = site["site"].as_str()?.to_owned();
        Some((name, site["requests"].as_u64()?))
    });
    Ok(counted.collect())
}

/// Waits until so much is counted in all: an answer is counted after its last byte.
fn settled(proxy: &Proxy, all: u64) -> Result<BTreeMap<String, u64>> {
    let found = || {
        requests(proxy)
            .ok()
            .filter(|sites| sites.values().sum::<u64>() == all)
    };
    let found = Deadline::after(WAIT).poll(found);
    found.with_context(|| {
        let sum = requests(proxy).map(|sites| sites.values().sum::<u64>());
        format!("{sum:?} requests instead of {all}")
    })
}

fn ask(connection: &mut Connection, host: &str, path: &str) -> Result<()> {
    let response = connection.exchange(&Request::get(path).host(host))?;
    ensure!(response.status < 300, "{host}{path}: {}", response.status);
    Ok(())
}

fn reset(proxy: &Proxy, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary(Kind::Millpond).context("the binary")?);
    command
        .args(["cache", "reset", "-c"])
        .arg(proxy.dir().join("nginx.conf"));
    Ok(command.args(words).output()?)
}

#[test]
fn invented_hosts_leave_counters_to_customers() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("x"));
    let mut proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let mut connection = Client::new(proxy.port()).connect()?;
    for number in 0..INVENTED {
        let host = match number % 3 {
            0 => format!("n{number}.wild.example"),
            1 => format!("re{number}"),
            _ => format!("n{number}.both.example"),
        };
        ask(&mut connection, &host, "/")?;
    }
    ask(&mut connection, "both.example", "/")?;
    ask(&mut connection, "any.wild.example", "/fixed")?;
    ask(&mut connection, "stored.wild.example", "/page")?;
    ask(&mut connection, "stored.wild.example", "/")?;
    let known = [
        ("both.example", 1),
        ("fixed", 1),
        ("stored.wild.example", 2),
    ];
    let mut expected: BTreeMap<String, u64> =
        known.map(|(name, count)| (name.to_owned(), count)).into();
    expected.insert("*".to_owned(), INVENTED as u64);
    let all = INVENTED as u64 + 4;
    assert_eq!(settled(&proxy, all)?, expected);
    // A customer who comes later, by a reload.
    proxy.set_conf(&CONF.replace("#customer", CUSTOMER))?;
    proxy.reload()?;
    let mut early = 0;
    let is_served = || {
        let request = Request::get("/").host("customer.example");
        let is_served = Client::new(proxy.port()).send(&request).ok()?.status == 202;
        early += u64::from(!is_served);
        is_served.then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_served)
        .context("the reload")?;
    let all = all + early;
    // One that came early is the customer's if the process had read the name by then.
    let found = settled(&proxy, all + 1)?;
    let customers = found.get("customer.example").copied().unwrap_or(0);
    assert!((1..=early + 1).contains(&customers), "{early} {found:?}");
    expected.insert("*".to_owned(), INVENTED as u64 + early + 1 - customers);
    expected.insert("customer.example".to_owned(), customers);
    assert_eq!(found, expected);
    proxy.quit()?;
    proxy.restart()?;
    assert_eq!(settled(&proxy, all + 1)?, expected);
    // What is stored has its name after a restart, also without counters from before.
    let mut connection = Client::new(proxy.port()).connect()?;
    ask(&mut connection, "stored.wild.example", "/page")?;
    expected.insert("stored.wild.example".to_owned(), 3);
    assert_eq!(settled(&proxy, all + 2)?, expected);
    proxy.quit()
}

#[test]
fn names_with_something_stored_push_out_no_customer_and_are_reset() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("x"));
    let conf = CONF.replace("#customer", CUSTOMER);
    let mut proxy = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
    let mut connection = Client::new(proxy.port()).connect()?;
    for number in 0..INVENTED {
        ask(&mut connection, &format!("n{number}.wild.example"), "/page")?;
    }
    ask(&mut connection, "customer.example", "/")?;
    let all = INVENTED as u64 + 1;
    let counted = settled(&proxy, all)?;
    assert_eq!(counted["customer.example"], 1);
    // As many of them as there are numbers are told apart.
    assert!(
        counted.len() > 3000 && counted.len() <= 4096,
        "{}",
        counted.len()
    );
    proxy.quit()?;
    proxy.restart()?;
    assert_eq!(settled(&proxy, all)?["customer.example"], 1);
    let said = reset(&proxy, &["--sites"])?;
    assert!(said.status.success(), "{said:?}");
    let expected = [("*", INVENTED as u64), ("customer.example", 1)];
    let left: BTreeMap<String, u64> = expected.map(|(name, it)| (name.to_owned(), it)).into();
    let mut counted = settled(&proxy, all)?;
    // They hold something yet.
    counted.retain(|_, requests| *requests > 0);
    assert_eq!(counted, left);
    let said = reset(&proxy, &["--site", "customer.example"])?;
    assert!(said.status.success(), "{said:?}");
    assert_eq!(settled(&proxy, all)?["*"], all);
    let nobody = reset(&proxy, &["--site", "nobody.example"])?;
    assert_eq!(nobody.status.code(), Some(1));
    assert_eq!(reset(&proxy, &[])?.status.code(), Some(2));
    // It is counted by itself again, and so is who has something stored.
    let mut connection = Client::new(proxy.port()).connect()?;
    ask(&mut connection, "customer.example", "/")?;
    ask(&mut connection, "n7.wild.example", "/page")?;
    let counted = settled(&proxy, all + 2)?;
    assert_eq!(
        (counted["customer.example"], counted["n7.wild.example"]),
        (1, 1)
    );
    proxy.quit()
}
