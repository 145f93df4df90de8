//! A server that is killed again and again serves no wrong byte, is warm, and forgets no purge.
//!
//! Clients ask for whole bodies and for ranges, of entries whole and in slices, and check every
//! byte: bodies follow from the path, the version and the offset. Meanwhile entries change at the
//! origin and are purged. Then the process is killed with signal 9 and starts again at once on the
//! same directory. `KILLS=200` runs the long form.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Kind, LogCheck, Origin, Proxy, Random, Request, number_from_env,
};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const KILLS: u64 = 20;
const CLIENTS: u64 = 3;
const LENGTHS: [u64; 6] = [0, 700, 9_000, 70_000, 300_000, 500_000];
const PATHS: usize = 48;
/// Number of pages that are purged; the others stay as they are, over all kills.
const PURGED: usize = 36;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=256m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_valid 200 206 1h;
        proxy_cache_purge PURGE from 127.0.0.1;
        add_header X-Cache $upstream_cache_status;
        location /whole/ { proxy_pass http://%%ORIGIN%%; }
        location /sliced/ { proxy_pass http://%%ORIGIN%%; slice 64k; }
    }";

/// One resource of the origin.
#[derive(Debug, Default)]
struct Page {
    /// Version of the page at the origin.
    version: AtomicU16,
    /// No older one may be served: the purge of what was before was acknowledged.
    oldest: AtomicU16,
    /// The version of which the whole body is stored, and in which life of the server it was seen
    /// first.
    stored: Mutex<Option<(u16, u64)>>,
}

struct World {
    origin: Origin,
    pages: Vec<Page>,
    served: AtomicU64,
    purged: AtomicU64,
    is_over: AtomicBool,
    /// Number of times that the server was killed.
    life: AtomicU64,
}

fn path(number: usize) -> String {
    let kind = if number.is_multiple_of(3) {
        "sliced"
    } else {
        "whole"
    };
    format!("/{kind}/{number}")
}

fn len(number: usize) -> u64 {
    LENGTHS[number % LENGTHS.len()] + number as u64
}

impl World {
    fn offer(&self, number: usize, version: u16) {
        let answer = Answer::new(200).offset_body(len(number), version);
        let answer = answer.etag(&format!("\"{version}\""));
        self.origin.route(&path(number), answer);
    }

    /// Asks for something and checks what comes; errors are what a killed server makes.
    fn ask(&self, client: &Client, random: &mut Random) -> Result<()> {
        let number = random.below(PATHS as u64) as usize;
        let page = &self.pages[number];
        let oldest = page.oldest.load(Ordering::SeqCst);
        let total = len(number);
        let mut request = Request::get(&path(number));
        let mut range = 0..total;
        if total > 100 && random.below(3) == 0 {
            range = random.part_of(total);
            let field = format!("bytes={}-{}", range.start, range.end - 1);
            request = request.header("Range", &field);
        }
        let Ok(response) = client.send(&request) else {
            return Ok(());
        };
        // A server may answer a range with the whole.
        let range = if response.status == 200 {
            0..total
        } else {
            range
        };
        let is_whole = range == (0..total);
        let Some(version) = response
            .checked_version(range)
            .with_context(|| path(number))?
        else {
            return Ok(());
        };
        anyhow::ensure!(
            version >= oldest,
            "{}: version {version} was purged, and {oldest} is the oldest",
            path(number)
        );
        self.served.fetch_add(1, Ordering::Relaxed);
        // What was asked for before its purge was acknowledged may be purged by it, and what is on
        // its way from the origin may be refused by a busy disk.
        let is_hit = response.header("X-Cache") == Some("HIT");
        if is_hit && is_whole && response.is_complete() && version == oldest {
            let mut stored = page.stored.lock().unwrap_or_else(PoisonError::into_inner);
            if stored.is_none_or(|(other, _)| other != version) {
                *stored = Some((version, self.life.load(Ordering::SeqCst)));
            }
        }
        Ok(())
    }

    /// Changes a resource and purges what was stored of it.
    fn purge(&self, client: &Client, random: &mut Random) {
        let number = random.below(PURGED as u64) as usize;
        let page = &self.pages[number];
        let version = page.version.fetch_add(1, Ordering::SeqCst) + 1;
        *page.stored.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.offer(number, version);
        let purged = client.send(&Request::new("PURGE", &path(number)));
        if purged.is_ok_and(|response| response.status < 300 || response.status == 404) {
            page.oldest.fetch_max(version, Ordering::SeqCst);
            self.purged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An entry that was found after an earlier kill is a hit after this one: what a server has
    /// found when it began is not only in its memory. What it stored itself may have been on its
    /// way to the disk.
    fn check_warm(&self, client: &Client) -> Result<usize> {
        let mut warm = 0;
        for (number, page) in self.pages.iter().enumerate() {
            let stored = *page.stored.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((version, seen)) = stored else {
                continue;
            };
            if version != page.version.load(Ordering::SeqCst) {
                continue;
            }
            let response = client.get(&path(number))?;
            let found = response.checked_version(0..len(number))?;
            anyhow::ensure!(response.is_complete(), "{} is cut off", path(number));
            let status = response.header("X-Cache").unwrap_or_default();
            let is_there = status == "HIT" && found == Some(version);
            let is_old = seen < self.life.load(Ordering::SeqCst);
            anyhow::ensure!(
                is_there || !is_old,
                "{} was stored and is {status}",
                path(number)
            );
            if !is_there {
                // What was complete only a moment ago may be lost, and has to be seen again.
                *page.stored.lock().unwrap_or_else(PoisonError::into_inner) = None;
                continue;
            }
            warm += usize::from(is_old);
        }
        Ok(warm)
    }
}

#[test]
fn killed_server_is_warm_and_serves_no_wrong_byte() -> Result<()> {
    let kills = number_from_env("KILLS", KILLS);
    let world = World {
        origin: Origin::start()?,
        pages: (0..PATHS).map(|_| Page::default()).collect(),
        served: AtomicU64::new(0),
        purged: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        life: AtomicU64::new(0),
    };
    (0..PATHS).for_each(|number| world.offer(number, 0));
    let mut proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&world.origin)
        .log_check(LogCheck::Off)
        .start()?;
    let mut random = Random(7);
    let mut warm = 0;
    for _ in 0..kills {
        world.is_over.store(false, Ordering::SeqCst);
        let world = &world;
        let port = proxy.port();
        std::thread::scope(|scope| -> Result<()> {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let mut random = Random(random.below(u64::MAX));
                    scope.spawn(move || -> Result<()> {
                        let client = Client::new(port);
                        while !world.is_over.load(Ordering::SeqCst) {
                            world.ask(&client, &mut random)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            let client = Client::new(port);
            let until = Instant::now() + Duration::from_millis(100 + random.below(250));
            while Instant::now() < until {
                world.purge(&client, &mut random);
            }
            proxy.kill9()?;
            world.is_over.store(true, Ordering::SeqCst);
            for client in clients {
                client.join().expect("a client does not panic")?;
            }
            Ok(())
        })?;
        proxy.restart()?;
        warm += world.check_warm(&Client::new(proxy.port()))?;
        world.life.fetch_add(1, Ordering::SeqCst);
    }
    let (served, purged) = (world.served.into_inner(), world.purged.into_inner());
    println!("{kills} kills, {served} answers, {purged} purges, {warm} entries warm after a kill");
    assert!(served > 0 && purged > 0 && warm > 0, "too little happened");
    proxy.quit()
}
