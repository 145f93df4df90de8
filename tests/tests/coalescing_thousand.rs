//! A thousand clients who want the same ten megabytes at once, while the origin takes five seconds
//! to send them.
//!
//! They are sockets of two threads, so that a client costs little beside what it measures; each
//! compares what it reads with what it should be, as it comes. The figures are printed.
//!
//! What is demanded of a release build is what Millpond promises. Half of a thousand sends take a
//! kernel most of that time, so other programs on the same processors spoil it: the best of a few
//! rounds counts. A build without optimisation works several times as long for each answer, and its
//! clients do, too; it has one round, and only shows that nothing is polled.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, Origin, Proxy, Request, offset_bytes,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::task::LocalSet;

const CONF: &str = "%%GLOBALS%%
    worker_processes auto;
    events { worker_connections 4096; }
    http {
        %%HTTP%%
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=200m;
        add_header X-Cache $upstream_cache_status;
        server {
            listen 127.0.0.1:%%PORT%% backlog=2048;
            location /status { stub_status; }
            location / {
                proxy_pass http://%%ORIGIN%%;
                proxy_cache z;
                proxy_cache_valid 200 1h;
                proxy_cache_lock on;
                proxy_cache_lock_timeout 60s;
            }
        }
    }";

const CLIENTS: usize = 1000;
const THREADS: usize = 2;
const LEN: u64 = 10 << 20;
const SECONDS: u64 = 5;
/// Descriptors for clients and server (which inherits the limit), and some.
const FILES: u64 = 4096;
/// Bytes that a client's socket holds: a thousand large ones are more than the kernel allows, and
/// then it drops packets.
const RECEIVE_LEN: u32 = 64 << 10;
/// Bytes that one read takes at most.
const READ_LEN: usize = 256 << 10;

/// Longest time from the leader's first byte to that of the middle waiter.
const APART: Duration = if cfg!(debug_assertions) {
    // Measured on two cores that five other builds kept busy: 75 to 223 ms.
    Duration::from_millis(500)
} else {
    Duration::from_millis(5)
};
/// Rounds at most; each has an object of its own.
const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 5 };
/// Bytes that the server may need beyond the object itself, for each client: its connection and
/// request, in whatever state they are.
const CONNECTION_LEN: u64 = 32 << 10;

/// Times that a client saw.
struct Seen {
    first_byte: Instant,
    last_byte: Instant,
    is_leader: bool,
}

/// Request that the clients of a round make.
struct Wanted {
    address: SocketAddr,
    path: String,
    body: Vec<u8>,
}

/// One client: asks, and reads to the end.
async fn read(wanted: &Wanted, buf: &RefCell<Vec<u8>>) -> Result<Seen> {
    let expected = &wanted.body;
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_LEN)?;
    let mut stream = socket.connect(wanted.address).await?;
    let request = Request::get(&wanted.path).header("Connection", "close");
    stream.write_all(&request.encode()).await?;
    let (mut head, mut at) = (Vec::new(), 0);
    let (mut first_byte, mut is_in_body) = (None, false);
    loop {
        stream.readable().await?;
        let mut buf = buf.borrow_mut();
        let len = match stream.try_read(&mut buf) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        first_byte.get_or_insert_with(Instant::now);
        let mut came = buf.get(..len).unwrap_or_default();
        let mut rest = Vec::new();
        if !is_in_body {
            head.extend_from_slice(came);
            let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            rest.extend(head.drain(end + 4..));
            (came, is_in_body) = (&rest, true);
        }
        ensure!(
            expected.get(at..at + came.len()) == Some(came),
            "a wrong byte after {at}"
        );
        at += came.len();
    }
    let head = String::from_utf8(head)?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
    ensure!(at == expected.len(), "the body ends after {at} bytes");
    Ok(Seen {
        first_byte: first_byte.context("a first byte")?,
        last_byte: Instant::now(),
        is_leader: head.contains("X-Cache: MISS"),
    })
}

/// Runs so many clients on this thread.
fn crowd(wanted: &Arc<Wanted>, count: usize) -> Result<Vec<Seen>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let buf = Rc::new(RefCell::new(vec![0; READ_LEN]));
    LocalSet::new().block_on(&runtime, async {
        let one = || {
            let (wanted, buf) = (Arc::clone(wanted), Rc::clone(&buf));
            tokio::task::spawn_local(async move { read(&wanted, &buf).await })
        };
        let all: Vec<_> = (0..count).map(|_| one()).collect();
        let mut seen = Vec::new();
        for one in all {
            seen.push(one.await??);
        }
        Ok(seen)
    })
}

/// Waits until the server has so many requests in work, that of the question included.
fn wait_until_all_wait(client: &Client, count: usize) -> Result<()> {
    let in_work = || {
        let text = client.get("/status").ok()?.text();
        let (_, rest) = text.split_once("Writing: ")?;
        let number: usize = rest.split_whitespace().next()?.parse().ok()?;
        (number > count).then_some(())
    };
    let waited = Deadline::after(Duration::from_secs(30)).poll(in_work);
    waited.context("not all requests arrived")
}

/// A size of the server in bytes.
fn memory(proxy: &Proxy, name: &str) -> Result<u64> {
    let pid = proxy.pid().context("a process")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kibibytes.context("a size")?.parse::<u64>()? << 10)
}

fn raise_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        limit.current = Some(FILES);
        setrlimit(Resource::Nofile, limit).context("4096 descriptors")?;
    }
    Ok(())
}

/// Server, origin, and what is known of a round before it begins.
struct Scene {
    origin: Origin,
    proxy: Proxy,
    client: Client,
    body: Vec<u8>,
    gate: Gate,
}

impl Scene {
    fn begin() -> Result<Scene> {
        let origin = Origin::start()?;
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        let client = Client::new(proxy.port());
        client.get("/status")?;
        Ok(Scene {
            origin,
            proxy,
            client,
            body: offset_bytes(0..LEN, 1),
            gate: Gate::new(),
        })
    }

    /// Lets the clients ask for an object of their own, and the origin answer when all of them
    /// wait; gives what they saw, and when that was.
    fn round(&mut self, number: usize) -> Result<(Vec<Seen>, Instant)> {
        self.gate = Gate::new();
        let path = format!("/{number}");
        let answer = Answer::new(200).offset_body(LEN, 1).rate(LEN / SECONDS);
        self.origin.route(&path, answer.hold_head(&self.gate));
        let wanted = Arc::new(Wanted {
            address: SocketAddr::from(([127, 0, 0, 1], self.proxy.port())),
            path,
            body: self.body.clone(),
        });
        let crowds: Vec<_> = (0..THREADS)
            .map(|_| {
                let wanted = Arc::clone(&wanted);
                std::thread::spawn(move || crowd(&wanted, CLIENTS / THREADS))
            })
            .collect();
        wait_until_all_wait(&self.client, CLIENTS)?;
        let opened = Instant::now();
        self.gate.open();
        let mut seen = Vec::new();
        for crowd in crowds {
            match crowd.join() {
                Ok(crowd) => seen.extend(crowd?),
                Err(_) => bail!("a thread of clients panicked"),
            }
        }
        let asked = self.origin.requests();
        let asked = asked.iter().filter(|one| one.path() == wanted.path);
        ensure!(asked.count() == 1, "more than one request to the origin");
        Ok((seen, opened))
    }
}

/// Prints the figures of a round and gives the distance of the middle waiter from the leader.
fn tell(seen: &[Seen], opened: Instant) -> Result<Duration> {
    let leaders: Vec<&Seen> = seen.iter().filter(|one| one.is_leader).collect();
    let [leader] = leaders[..] else {
        bail!("{} clients were leaders", leaders.len())
    };
    let distance = |one: &Seen| {
        let after = one.first_byte.saturating_duration_since(leader.first_byte);
        after.max(leader.first_byte.saturating_duration_since(one.first_byte))
    };
    let mut apart: Vec<Duration> = seen.iter().map(distance).collect();
    apart.sort();
    let at = |share: usize| apart[(apart.len() - 1) * share / 100];
    let last = seen.iter().map(|one| one.last_byte).max();
    println!(
        "first byte of the leader {:.1} ms after the origin's; of waiters from the leader's: \
         median {:.2} ms, 90 % {:.2} ms, all {:.2} ms; last byte {:.2} s after the origin's first",
        millis(leader.first_byte - opened),
        millis(at(50)),
        millis(at(90)),
        millis(at(100)),
        (last.context("clients")? - opened).as_secs_f64(),
    );
    Ok(at(50))
}

/// One origin request; first bytes together; every body right; memory that holds the object once.
#[test]
fn a_thousand_clients_of_a_cold_object_share_one_fill() -> Result<()> {
    raise_limit()?;
    let mut scene = Scene::begin()?;
    let idle = memory(&scene.proxy, "VmRSS")?;
    let mut best = Duration::MAX;
    for number in 0..ROUNDS {
        let (seen, opened) = scene.round(number)?;
        best = best.min(tell(&seen, opened)?);
        if best <= APART {
            break;
        }
    }
    let peak = memory(&scene.proxy, "VmHWM")?;
    let (idle_kib, peak_kib) = (idle >> 10, peak >> 10);
    println!("memory of the server: idle {idle_kib} KiB, at most {peak_kib} KiB");
    assert!(best <= APART, "the median is {best:?}");
    let most = idle + LEN + CLIENTS as u64 * CONNECTION_LEN;
    assert!(peak <= most, "{peak} bytes, at most {most}");
    Ok(())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
