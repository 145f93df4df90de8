//! Counters of sites under mixed load of many clients on two workers: equal, to the byte, to what
//! the clients got, to what the logs say, and to what the origin was asked.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, Kind, LogCheck, Origin, Protocol, Proxy, Ranges, Request,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
worker_processes 2;
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=200m;
    proxy_cache_valid 200 206 1h;
    proxy_cache_key $host$uri;
    cache_site $host;
    log_format client \"$cache_site $upstream_cache_status $body_bytes_sent $cache_bytes \
                       $origin_bytes $uri\";
    log_format origin \"$cache_site $upstream_bytes_received $upstream_bytes_sent\";
    access_log %%DIR%%/clients.log client;
    upstream_log %%DIR%%/origin.log origin;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /free { proxy_pass http://%%ORIGIN%%; proxy_cache off; }
        location /sliced { proxy_pass http://%%ORIGIN%%; slice 64k; }
    }
}
";

const WAIT: Duration = Duration::from_secs(30);
const CLIENTS: usize = 16;
const SITES: usize = 4;
const ROUNDS: usize = 2;
const PAGE: u64 = 5_000;
const FILM: u64 = 200_000;
const SLICE: u64 = 65_536;
const LARGE: u64 = 2_000_000;

/// Counts of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Account {
    /// Requests and bytes by cache status.
    answers: BTreeMap<String, (u64, u64)>,
    cache: u64,
    origin: u64,
    exchanges: u64,
    received: u64,
    asked: u64,
}

type Accounts = BTreeMap<String, Account>;

impl Account {
    fn answer(&mut self, status: &str, (sent, cache, origin): (u64, u64, u64)) {
        let sum = self.answers.entry(status.to_owned()).or_default();
        *sum = (sum.0 + 1, sum.1 + sent);
        self.cache += cache;
        self.origin += origin;
    }

    /// Part of the account that clients can know.
    fn of_clients(&self) -> Account {
        Account {
            exchanges: 0,
            received: 0,
            asked: 0,
            ..self.clone()
        }
    }
}

/// Counts of the process.
fn counted(proxy: &Proxy) -> Result<Accounts> {
    let mut stream = UnixStream::connect(proxy.dir().join("control"))?;
    stream
        .write_all(b"GET /api/millpond/1/sites HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let (_, body) = said.split_once("\r\n\r\n").context("a body")?;
    let body: Value = serde_json::from_str(body)?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let sites = body["sites"].as_array().context("sites")?.iter();
    let account = |site: &Value| {
        let answers = site["answers"].as_object().into_iter().flatten();
        let answers = answers.map(|(status, sum)| {
            let sum = (number(&sum["requests"]), number(&sum["bytes"]));
            (status.clone(), sum)
        });
        Account {
            answers: answers.collect(),
            cache: number(&site["cache_bytes"]),
            origin: number(&site["origin_bytes"]),
            exchanges: number(&site["origin"]["requests"]),
            received: number(&site["origin"]["received"]),
            asked: number(&site["origin"]["sent"]),
        }
    };
    let named = sites.map(|site| Some((site["site"].as_str()?.to_owned(), account(site))));
    named.collect::<Option<_>>().context("names")
}

/// Counts of the logs; only of paths that begin so.
fn logged(proxy: &Proxy, path: &str) -> Result<Accounts> {
    let mut accounts = Accounts::new();
    for line in proxy.read_file("clients.log").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [site, status, sent, cache, origin, uri] = words[..] else {
            anyhow::bail!("a line: {line}");
        };
        if uri.starts_with(path) {
            let sums = (sent.parse()?, cache.parse()?, origin.parse()?);
            let account = accounts.entry(site.to_owned()).or_default();
            account.answer(status, sums);
        }
    }
    for line in proxy.read_file("origin.log").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [site, received, asked] = words[..] else {
            anyhow::bail!("a line: {line}");
        };
        let account = accounts.entry(site.to_owned()).or_default();
        account.exchanges += 1;
        account.received += received.parse::<u64>()?;
        account.asked += asked.parse::<u64>()?;
    }
    Ok(accounts)
}

/// One client, with paths of its own on one of the sites.
struct Driver {
    site: String,
    number: usize,
    connection: Connection,
    account: Account,
}

impl Driver {
    fn ask(
        &mut self,
        path: &str,
        field: Option<(&str, &str)>,
        (status, cache, origin): (&str, u64, u64),
    ) -> Result<()> {
        let mut request = Request::get(path).host(&self.site);
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        let response = self.connection.exchange(&request)?;
        let got = response.body.len() as u64;
        ensure!(
            response.status < 400 && got == cache + origin,
            "{path} {field:?}: {} with {got} bytes",
            response.status
        );
        self.account.answer(status, (got, cache, origin));
        Ok(())
    }

    fn round(&mut self, round: usize) -> Result<()> {
        let number = self.number;
        let page = format!("/page/{number}/{round}");
        self.ask(&page, None, ("MISS", 0, PAGE))?;
        self.ask(&page, None, ("HIT", PAGE, 0))?;
        let range = ("Range", "bytes=100-299");
        self.ask(&page, Some(range), ("HIT", 200, 0))?;
        self.ask(&page, Some(("If-None-Match", "\"1\"")), ("HIT", 0, 0))?;
        let free = format!("/free/{number}/{round}");
        self.ask(&free, None, ("-", 0, PAGE))?;
        let film = format!("/sliced/{number}/{round}");
        let first = ("Range", "bytes=0-65535");
        self.ask(&film, Some(first), ("MISS", 0, SLICE))?;
        self.ask(&film, None, ("MISS", SLICE, FILM - SLICE))?;
        self.ask(&film, None, ("HIT", FILM, 0))
    }

    /// Leaves in the middle of an answer.
    fn leave(client: &Client, site: &str) -> Result<()> {
        let mut connection = client.connect()?;
        connection.ask(&Request::get("/large").host(site))?;
        let mut response = connection.read_head("GET")?.context("a head")?;
        connection.read_some(&mut response, 10_000)
    }
}

fn site(number: usize) -> String {
    format!("site{}.example", number % SITES)
}

/// Known traffic from many clients at once; what they know of it, less the answers that they left.
fn drive(protocol: Protocol, port: u16) -> Result<Accounts> {
    let drive = move |number: usize| -> Result<(String, Account)> {
        let client = protocol.client(port);
        let mut account = Account::default();
        for round in 0..ROUNDS {
            // A new connection may be another worker's.
            let mut driver = Driver {
                site: site(number),
                number,
                connection: client.connect()?,
                account: std::mem::take(&mut account),
            };
            driver.round(round)?;
            Driver::leave(&client, &driver.site)?;
            account = driver.account;
        }
        Ok((site(number), account))
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| std::thread::spawn(move || drive(number)))
        .collect();
    let mut accounts = Accounts::new();
    for client in clients {
        let (site, more) = client.join().expect("a client does not panic")?;
        let sum = accounts.entry(site).or_default();
        add(sum, &more);
    }
    Ok(accounts)
}

fn add(sum: &mut Account, more: &Account) {
    for (status, (requests, bytes)) in &more.answers {
        let both = sum.answers.entry(status.clone()).or_default();
        *both = (both.0 + requests, both.1 + bytes);
    }
    sum.cache += more.cache;
    sum.origin += more.origin;
}

fn counters_of_clients_logs_and_origin_agree_to_the_byte(protocol: Protocol) -> Result<()> {
    let origin = Origin::start()?;
    let answer = Answer::new(200).etag("\"1\"").ranges(Ranges::Supported);
    origin.route("/*", answer.clone().offset_body(PAGE, 1));
    origin.route("/sliced/*", answer.clone().offset_body(FILM, 1));
    origin.route("/large", answer.offset_body(LARGE, 1));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    for number in 0..SITES {
        let large = Request::get("/large").host(&site(number));
        let response = protocol.client(proxy.port()).send(&large)?;
        ensure!(response.body.len() as u64 == LARGE, "a whole answer");
    }
    let known = drive(protocol, proxy.port())?;

    // An answer is counted, and a line written, after its last byte.
    let agreed = || {
        let counted = counted(&proxy).ok()?;
        let requests: u64 = counted
            .values()
            .flat_map(|account| account.answers.values())
            .map(|(requests, _)| requests)
            .sum();
        let all = CLIENTS * ROUNDS * 9 + SITES;
        let is_all = requests == all as u64;
        (is_all && logged(&proxy, "/").ok()? == counted).then_some(counted)
    };
    let counted = Deadline::after(WAIT).poll(agreed).with_context(|| {
        let both = (counted(&proxy), logged(&proxy, "/"));
        format!("counters and logs: {both:#?}")
    })?;
    assert_eq!(counted.len(), SITES);

    // What clients left, and what was stored at first, only the logs know.
    let mut of_clients = known;
    for (site, left) in logged(&proxy, "/large")? {
        add(of_clients.entry(site).or_default(), &left);
    }
    for (site, account) in &counted {
        assert_eq!(account.of_clients(), of_clients[site], "{site}");
    }
    let asked: u64 = counted.values().map(|account| account.exchanges).sum();
    assert_eq!(asked, origin.requests().len() as u64);
    Ok(())
}

millpond_testkit::each_protocol!(
    [Http1, Http2, Streams]
    counters_of_clients_logs_and_origin_agree_to_the_byte,
);
