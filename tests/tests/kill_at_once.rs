//! A server that was killed is asked for what it holds from the moment on in which it listens: all
//! of that is a hit, while its index is still being loaded.
//!
//! What was complete for longer than `flush` is asked for over connections that are tried again and
//! again until the first one is taken, by whole bodies and by HEAD, and a body in slices by a range
//! of eleven bytes. The origin is asked for nothing. `KILLS=100` runs the long form, `BODY_MB=600`
//! a longer body.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Connection, Deadline, Kind, LogCheck, Origin, Proxy, Ranges, Request,
    number_from_env, offset_bytes,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KILLS: u64 = 4;
const CLIENTS: u64 = 4;
/// Keys of pages.
const PAGES: u64 = 2000;
/// Bytes of the sliced body, in megabytes.
const BODY_MB: u64 = 64;
const SLICE: u64 = 1 << 20;
/// Bytes that are asked for at one time to fill the zone.
const PART: u64 = 16 << 20;
/// Length of the range that is asked for first, in the middle of the body, deep in a slice.
const ELEVEN: u64 = 11;
/// Time that anything may take (arbitrary; only a failing test takes so long).
const WAIT: Duration = Duration::from_secs(60);
/// The zone's `flush`, and half of it again.
const FLUSH: Duration = Duration::from_millis(1500);

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=2g inactive=1d;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_valid 200 206 1d;
        proxy_cache_disk_timeout 30s;
        keepalive_requests 100000000;
        add_header X-Cache $upstream_cache_status;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /sliced { proxy_pass http://%%ORIGIN%%; slice 1m; }
    }";

fn page(number: u64) -> String {
    format!("/page/{number}")
}

fn page_len(number: u64) -> u64 {
    200 + number % 1500
}

struct World {
    origin: Origin,
    body_len: u64,
    /// Set when the clients of a round are to end.
    is_over: AtomicBool,
    answers: AtomicU64,
}

impl World {
    fn start() -> Result<World> {
        let world = World {
            origin: Origin::start()?,
            body_len: number_from_env("BODY_MB", BODY_MB) << 20,
            is_over: AtomicBool::new(false),
            answers: AtomicU64::new(0),
        };
        for number in 0..PAGES {
            let answer = Answer::new(200).offset_body(page_len(number), 1);
            world.origin.route(&page(number), answer.etag("\"1\""));
        }
        let body = Answer::new(200).offset_body(world.body_len, 1);
        world
            .origin
            .route("/sliced", body.etag("\"1\"").ranges(Ranges::Supported));
        Ok(world)
    }

    /// Asks for everything, so that it is stored.
    fn fill(&self, port: u16) -> Result<()> {
        let mut connection = Client::new(port).connect()?;
        for number in 0..PAGES {
            let response = connection.exchange(&Request::get(&page(number)))?;
            ensure!(response.status == 200, "{}", response.status);
        }
        for start in (0..self.body_len).step_by(PART as usize) {
            let end = (start + PART).min(self.body_len);
            let field = format!("bytes={start}-{}", end - 1);
            let request = Request::get("/sliced").header("Range", &field);
            let response = connection.exchange(&request)?;
            ensure!(response.status == 206, "{field}: {}", response.status);
        }
        // What a busy disk has refused is stored when it is asked for again.
        let all_is_held = || self.ask_for_all(port).ok();
        let held = Deadline::after(WAIT).poll(all_is_held);
        held.context("not all of it is stored")
    }

    fn ask_for_all(&self, port: u16) -> Result<()> {
        let mut connection = Client::new(port).connect()?;
        for number in 0..PAGES {
            self.ask_for_page(&mut connection, number)?;
        }
        self.ask_for_all_slices(port)
    }

    /// Asks for pages until everything that was filled is older than `flush`.
    fn outlast_flush(&self, port: u16) -> Result<()> {
        let flush = Deadline::after(FLUSH);
        let mut connection = Client::new(port).connect()?;
        let mut number = 0;
        while !flush.is_over() {
            self.ask_for_page(&mut connection, number % PAGES)?;
            number += 1;
        }
        Ok(())
    }

    /// All slices are there: a few bytes of each are.
    fn ask_for_all_slices(&self, port: u16) -> Result<()> {
        let mut connection = Client::new(port).connect()?;
        for start in (0..self.body_len).step_by(SLICE as usize) {
            self.ask_for_eleven(&mut connection, start + 300_000)?;
        }
        Ok(())
    }

    fn ask_for_page(&self, connection: &mut Connection, number: u64) -> Result<()> {
        let is_head = number.is_multiple_of(7);
        let request = if is_head {
            Request::head(&page(number))
        } else {
            Request::get(&page(number))
        };
        let response = connection.exchange(&request)?;
        let label = response.header("X-Cache").unwrap_or_default();
        ensure!(label == "HIT", "{} is {label}", page(number));
        let wanted = if is_head {
            Vec::new()
        } else {
            offset_bytes(0..page_len(number), 1)
        };
        ensure!(response.body == wanted, "other bytes of {}", page(number));
        self.answers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn ask_for_eleven(&self, connection: &mut Connection, start: u64) -> Result<()> {
        let field = format!("bytes={start}-{}", start + ELEVEN - 1);
        let request = Request::get("/sliced").header("Range", &field);
        let response = connection.exchange(&request)?;
        let label = response.header("X-Cache").unwrap_or_default();
        ensure!(label == "HIT", "the range is {label}");
        let is_right = response.body == offset_bytes(start..start + ELEVEN, 1);
        ensure!(is_right, "other bytes of the range");
        Ok(())
    }

    /// Asks as soon as somebody listens, and then until the round is over.
    fn ask_at_once(&self, port: u16, seed: u64) -> Result<()> {
        let client = Client::new(port);
        let connected = Deadline::after(WAIT).poll(|| client.connect().ok());
        let mut connection = connected.context("nobody listens")?;
        if seed.is_multiple_of(CLIENTS) {
            self.ask_for_eleven(&mut connection, self.body_len / 2 + 300_000)?;
        }
        let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % PAGES;
        let mut asked = 0;
        while asked < PAGES / CLIENTS || !self.is_over.load(Ordering::SeqCst) {
            self.ask_for_page(&mut connection, number)?;
            number = (number + 1_009) % PAGES;
            asked += 1;
        }
        Ok(())
    }

    /// Kills and starts the server; clients ask from the first moment on.
    fn round(&self, proxy: &mut Proxy, round: u64) -> Result<()> {
        proxy.kill9()?;
        self.is_over.store(false, Ordering::SeqCst);
        let port = proxy.port();
        std::thread::scope(|scope| -> Result<()> {
            let ask = |client| move || self.ask_at_once(port, round * CLIENTS + client);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(ask(client)))
                .collect();
            let restarted = proxy.restart();
            self.is_over.store(true, Ordering::SeqCst);
            for client in clients {
                client.join().expect("a client does not panic")?;
            }
            restarted
        })
    }
}

#[test]
fn from_the_first_connection_on_a_killed_server_has_all_that_it_held() -> Result<()> {
    let world = World::start()?;
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&world.origin)
        .log_check(LogCheck::Off)
        .start()?;
    world.fill(proxy.port())?;
    world.outlast_flush(proxy.port())?;
    world.origin.forget_requests();
    let kills = number_from_env("KILLS", KILLS);
    for round in 0..kills {
        world
            .round(&mut proxy, round)
            .with_context(|| format!("kill {round}"))?;
        let asked = world.origin.requests();
        let first = asked.first().map(|request| request.path().to_string());
        ensure!(asked.is_empty(), "the origin was asked for {first:?}");
    }
    world.ask_for_all_slices(proxy.port())?;
    let asked = world.origin.requests().len();
    ensure!(asked == 0, "{asked} requests for slices that were held");
    let answers = world.answers.into_inner();
    println!("{kills} kills, {answers} answers, all of them hits");
    proxy.quit()
}
