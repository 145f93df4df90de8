//! `keepalive_streams`: connections to origins that several requests share.
//!
//! The origin is the engine in the role of a server. A script looks at each of its connections
//! whenever something has come, and from time to time, so that it can wait for what happens on
//! others.

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy, Request};
use millpond_wire::http2::{Code, Config, Connection as Engine, End, Event, Gone, Role};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(15);
/// Time between two looks of a script.
const LOOK: Duration = Duration::from_millis(5);

const CONF: &str = "
    upstream shared {
        server 127.0.0.1:%%PEER%%;
        keepalive 8;
        keepalive_streams %%STREAMS%%;
        %%MORE%%
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        client_max_body_size 16m;
        proxy_http_version 2;
        location / { proxy_pass http://shared; }
        location /live/ { proxy_pass http://shared; proxy_buffering off; }
        location /short/ { proxy_pass http://shared; proxy_read_timeout 300ms; }
        location /pkg. { grpc_pass grpc://shared; }
        location = /metrics { metrics; }
    }";

/// A request as the origin has heard it.
#[derive(Clone, Debug)]
struct Heard {
    connection: usize,
    stream: u32,
    method: String,
    path: String,
}

/// All that the origin has heard.
#[derive(Default)]
struct World {
    heard: Mutex<Vec<Heard>>,
    /// Streams that the proxy has reset, by path.
    reset: Mutex<Vec<(String, Code)>>,
    /// Connections that have ended.
    ended: AtomicUsize,
    /// A word to the scripts.
    go: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn heard(&self) -> Vec<Heard> {
        lock(&self.heard).clone()
    }

    /// Waits until the requests of these paths were heard so often in all.
    fn wait_for(&self, count: usize, prefix: &str) -> Result<()> {
        let is_there = || {
            let heard = lock(&self.heard);
            let found = heard.iter().filter(|it| it.path.starts_with(prefix));
            (found.count() >= count).then_some(())
        };
        let waited = Deadline::after(WAIT).poll(is_there);
        waited.with_context(|| format!("{count} of {prefix}: {:?}", self.heard()))?;
        Ok(())
    }

    fn go(&self) {
        self.go.store(true, Ordering::SeqCst);
    }

    fn is_going(&self) -> bool {
        self.go.load(Ordering::SeqCst)
    }

    /// The numbers of the connections that have carried requests of these paths.
    fn connections(&self, prefix: &str) -> Vec<usize> {
        let heard = self.heard();
        let found = heard.iter().filter(|it| it.path.starts_with(prefix));
        let mut numbers: Vec<usize> = found.map(|it| it.connection).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// A connection as the origin has it.
struct Talk {
    number: usize,
    socket: TcpStream,
    engine: Engine,
    input: BytesMut,
    /// Requests that were not answered.
    open: Vec<Heard>,
    /// Bodies that have come, and whether they are whole.
    bodies: HashMap<u32, (Vec<u8>, bool)>,
    world: Arc<World>,
    is_over: bool,
}

type Script = dyn Fn(&mut Talk) -> Result<()> + Send + Sync;

struct Peer {
    port: u16,
    world: Arc<World>,
}

impl Peer {
    /// Its first connection has the first configuration, all later ones the other.
    fn start(
        configs: [Config; 2],
        script: impl Fn(&mut Talk) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Peer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let world = Arc::new(World::default());
        let (on_thread, script): (_, Arc<Script>) = (Arc::clone(&world), Arc::new(script));
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().flatten().enumerate() {
                let (world, script) = (Arc::clone(&on_thread), Arc::clone(&script));
                let config = configs[number.min(1)];
                std::thread::spawn(move || {
                    let ending = Arc::clone(&world);
                    // A connection that ends is the end of its thread.
                    let _ = Talk::new((number + 1, socket), config, world)
                        .and_then(|mut talk| talk.serve(&*script));
                    ending.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Peer { port, world })
    }

    /// One that answers each request by its path, as soon as it is whole.
    fn simple() -> Result<Peer> {
        Peer::start([Config::default(); 2], Talk::answer_whole)
    }

    fn proxy_with(&self, streams: u32, more: &str) -> Result<Proxy> {
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .value("PEER", &self.port.to_string())
            .value("STREAMS", &streams.to_string())
            .value("MORE", more);
        proxy.log_check(LogCheck::Off).start()
    }

    fn proxy(&self, streams: u32) -> Result<Proxy> {
        self.proxy_with(streams, "")
    }
}

impl Talk {
    fn new(
        (number, socket): (usize, TcpStream),
        config: Config,
        world: Arc<World>,
    ) -> Result<Talk> {
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(WAIT))?;
        let mut talk = Talk {
            number,
            socket,
            engine: Engine::new(Role::Server, config),
            input: BytesMut::new(),
            open: Vec::new(),
            bodies: HashMap::new(),
            world,
            is_over: false,
        };
        talk.flush()?;
        Ok(talk)
    }

    fn serve(&mut self, script: &Script) -> Result<()> {
        let mut buf = [0; 64 * 1024];
        while !self.is_over {
            match self.socket.read(&mut buf) {
                Ok(0) => return Ok(()),
                Ok(count) => self.input.extend_from_slice(&buf[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            while let Some(event) = self.engine.next_event(&mut self.input, Duration::ZERO) {
                self.note(event);
            }
            script(self)?;
            self.flush()?;
        }
        Ok(())
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Request { stream, head, body } => {
                let line = String::from_utf8_lossy(head.line()).into_owned();
                let mut words = line.split(' ').map(str::to_owned);
                let heard = Heard {
                    connection: self.number,
                    stream,
                    method: words.next().unwrap_or_default(),
                    path: words.next().unwrap_or_default(),
                };
                let is_whole = body == millpond_wire::http2::BodyLength::None;
                self.bodies.insert(stream, (Vec::new(), is_whole));
                lock(&self.world.heard).push(heard.clone());
                self.open.push(heard);
            }
            Event::Data { stream, bytes } => {
                self.engine.consume(stream, bytes.len());
                if let Some((body, _)) = self.bodies.get_mut(&stream) {
                    body.extend_from_slice(&bytes);
                }
            }
            Event::End { stream, .. } => {
                if let Some((_, is_whole)) = self.bodies.get_mut(&stream) {
                    *is_whole = true;
                }
            }
            Event::Gone { stream, why } => {
                let gone = self.open.iter().position(|it| it.stream == stream);
                if let (Some(at), Gone::ByPeer(code)) = (gone, why) {
                    let heard = self.open.remove(at);
                    lock(&self.world.reset).push((heard.path, code));
                }
                self.engine.release(stream);
            }
            _ => {}
        }
    }

    fn flush(&mut self) -> Result<()> {
        loop {
            self.engine.produce(64 * 1024);
            let Some(piece) = self.engine.output().take() else {
                return Ok(());
            };
            self.socket.write_all(&piece)?;
        }
    }

    /// Bytes of a frame that the engine would not write.
    fn raw(&mut self, (kind, stream): (u8, u32), payload: &[u8]) -> Result<()> {
        self.raw_with((kind, 0, stream), payload)
    }

    /// One with flags.
    fn raw_with(&mut self, (kind, flags, stream): (u8, u8, u32), payload: &[u8]) -> Result<()> {
        self.flush()?;
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        let head = [&[a, b, c, kind, flags][..], &stream.to_be_bytes()].concat();
        self.socket.write_all(&[&head, payload].concat())?;
        Ok(())
    }

    /// Takes the requests out that are whole and of which this is true.
    fn take(&mut self, is_taken: impl Fn(&Heard) -> bool) -> Vec<Heard> {
        let is_whole = |it: &Heard| self.bodies.get(&it.stream).is_some_and(|(_, whole)| *whole);
        let (taken, left) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|it| is_whole(it) && is_taken(it));
        self.open = left;
        taken
    }

    fn answer(&mut self, heard: &Heard, body: impl Into<Bytes>) {
        let id = heard.stream;
        self.engine.send_answer(id, (200, End::Later), |head| {
            head.any(b"content-type", b"application/grpc");
        });
        self.engine.push(id, body.into());
        self.engine.finish(id, None);
        self.engine.release(id);
    }

    fn answer_whole(&mut self) -> Result<()> {
        for heard in self.take(|_| true) {
            self.answer(&heard, heard.path.clone());
        }
        Ok(())
    }
}

/// The status and the body of an answer, whenever it comes.
type Asked = JoinHandle<Result<(u16, Vec<u8>)>>;

fn ask(port: u16, request: Request) -> Asked {
    std::thread::spawn(move || {
        let response = Client::new(port).send(&request)?;
        ensure!(response.is_complete(), "an answer that is not whole");
        Ok((response.status, response.body.to_vec()))
    })
}

fn got(asked: Asked) -> Result<(u16, Vec<u8>)> {
    match asked.join() {
        Ok(outcome) => outcome,
        Err(_) => anyhow::bail!("a client that panicked"),
    }
}

/// The statuses of answers.
fn statuses(asked: Vec<Asked>) -> Result<Vec<u16>> {
    let each = asked.into_iter().map(|it| got(it).map(|it| it.0));
    each.collect()
}

/// Reads a number of the page of metrics.
fn metric(proxy: &Proxy, name: &str) -> Option<u64> {
    let page = Client::new(proxy.port()).get("/metrics").ok()?.text();
    let line = page.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The promise of the directive, in requests and calls of gRPC: half of them that come at once wait
/// for a connection that is being made, and open no others.
#[test]
fn a_hundred_requests_and_calls_share_two_connections() -> Result<()> {
    let peer = Peer::start([Config::default(); 2], |talk| {
        if talk.world.is_going() {
            talk.answer_whole()?;
        }
        Ok(())
    })?;
    let proxy = peer.proxy(50)?;
    let asked: Vec<Asked> = (0..100)
        .map(|number| match number % 2 {
            0 => ask(proxy.port(), Request::get(&format!("/all/{number}"))),
            _ => ask(
                proxy.port(),
                Request::post(&format!("/pkg.All/{number}"), "x".repeat(number)),
            ),
        })
        .collect();
    peer.world.wait_for(50, "/all/")?;
    peer.world.wait_for(50, "/pkg.All/")?;
    assert_eq!(
        metric(&proxy, "millpond_upstream_shared_connections{"),
        Some(2)
    );
    assert_eq!(
        metric(&proxy, "millpond_upstream_shared_requests{"),
        Some(100)
    );
    peer.world.go();
    for (number, asked) in asked.into_iter().enumerate() {
        let (status, body) = got(asked)?;
        assert_eq!(status, 200);
        let name = if number % 2 == 0 { "all" } else { "pkg.All" };
        assert_eq!(body, format!("/{name}/{number}").into_bytes());
    }
    assert_eq!(peer.world.connections("/"), [1, 2]);
    let is_idle =
        || (metric(&proxy, "millpond_upstream_shared_requests{") == Some(0)).then_some(());
    Deadline::after(WAIT)
        .poll(is_idle)
        .context("streams that have ended")?;
    Ok(())
}

/// A stream's window is its own: others of the connection go on.
#[test]
fn one_that_nobody_reads_holds_no_other_up() -> Result<()> {
    const LEN: usize = 20_000_000;
    let peer = Peer::start([Config::default(); 2], |talk| {
        for heard in talk.take(|_| true) {
            let len = if heard.path == "/live/long" {
                LEN
            } else {
                100_000
            };
            talk.answer(&heard, vec![b'y'; len]);
        }
        Ok(())
    })?;
    let proxy = peer.proxy(4)?;
    let mut slow = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    slow.set_read_timeout(Some(WAIT))?;
    slow.write_all(b"GET /live/long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    peer.world.wait_for(1, "/live/long")?;
    for number in 0..30 {
        let asked = ask(proxy.port(), Request::get(&format!("/quick/{number}")));
        let (status, body) = got(asked)?;
        assert_eq!((status, body.len()), (200, 100_000));
    }
    assert_eq!(peer.world.connections("/"), [1]);
    assert_eq!(
        metric(&proxy, "millpond_upstream_shared_requests{"),
        Some(1)
    );
    let mut all = Vec::new();
    slow.read_to_end(&mut all)?;
    let count = all.iter().filter(|byte| **byte == b'y').count();
    assert!(count >= LEN, "{count}");
    Ok(())
}

/// Long bodies take turns in both directions, and none gets bytes of another.
#[test]
fn bodies_do_not_mix() -> Result<()> {
    let peer = Peer::start([Config::default(); 2], |talk| {
        for heard in talk.take(|_| true) {
            let (body, _) = talk.bodies.remove(&heard.stream).unwrap_or_default();
            talk.answer(&heard, body);
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    let body = |number: usize| -> Vec<u8> {
        let text = (0..60_000).map(|line| format!("{number} {line}\n"));
        text.collect::<String>().into_bytes()
    };
    let send = |number| {
        let path = format!("/pkg.Echo/{number}");
        ask(proxy.port(), Request::post(&path, body(number)))
    };
    let asked: Vec<Asked> = (0..8).map(send).collect();
    for (number, asked) in asked.into_iter().enumerate() {
        let (status, came) = got(asked)?;
        assert_eq!(status, 200);
        assert!(came == body(number), "{number}: {} bytes", came.len());
    }
    assert_eq!(peer.world.connections("/"), [1]);
    Ok(())
}

/// RFC 9113 §6.8: streams above the last one of a GOAWAY were not looked at, whatever the method;
/// the others are answered.
#[test]
fn a_peer_that_goes_away_loses_no_request_and_gets_none_twice() -> Result<()> {
    let peer = Peer::start([Config::default(); 2], |talk| {
        if talk.number > 1 || !talk.world.is_going() {
            return talk.answer_whole();
        }
        if talk.open.len() == 6 {
            let mut open = talk.take(|_| true);
            open.sort_by_key(|it| it.stream);
            let last = open[2].stream;
            // Any reason: what it has not looked at is none of its concern.
            talk.raw((7, 0), &[last.to_be_bytes(), [0, 0, 0, 11]].concat())?;
            for heard in &open[..3] {
                talk.answer(heard, "old");
            }
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    assert_eq!(
        statuses(vec![ask(proxy.port(), Request::get("/first"))])?,
        [200]
    );
    peer.world.go();
    let asked: Vec<Asked> = (0..6)
        .map(|number| match number % 2 {
            0 => ask(proxy.port(), Request::get(&format!("/all/{number}"))),
            _ => ask(
                proxy.port(),
                Request::post(&format!("/all/{number}"), "body"),
            ),
        })
        .collect();
    let all: Vec<_> = asked.into_iter().map(got).collect::<Result<_>>()?;
    assert!(all.iter().all(|(status, _)| *status == 200), "{all:?}");
    assert_eq!(all.iter().filter(|(_, body)| body == b"old").count(), 3);
    let heard = peer.world.heard();
    let count = |number| {
        let found = heard
            .iter()
            .filter(|it| it.connection == number && it.path != "/first");
        found.count()
    };
    assert_eq!((count(1), count(2), heard.len()), (6, 3, 10), "{heard:?}");
    Ok(())
}

/// RFC 9113 §8.7: what was refused is asked again, once; and the connection is not tried again
/// while it has as many streams.
#[test]
fn a_refused_stream_is_asked_again_once_elsewhere() -> Result<()> {
    let peer = Peer::start([Config::default(); 2], |talk| {
        let is_full = talk.number == 1;
        let mut kept = 0;
        for heard in std::mem::take(&mut talk.open) {
            let is_held = heard.path.starts_with("/held/");
            if heard.path == "/never" || (is_full && kept == 2) {
                talk.engine.reset(heard.stream, Code::REFUSED_STREAM);
                talk.engine.release(heard.stream);
            } else if is_held && !talk.world.is_going() {
                kept += 1;
                talk.open.push(heard);
            } else {
                let path = heard.path.clone();
                talk.answer(&heard, path);
            }
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    let held: Vec<Asked> = (0..2)
        .map(|number| ask(proxy.port(), Request::get(&format!("/held/{number}"))))
        .collect();
    peer.world.wait_for(2, "/held/")?;
    for path in ["/refused", "/later"] {
        assert_eq!(
            statuses(vec![ask(proxy.port(), Request::post(path, "x"))])?,
            [200]
        );
    }
    let places: Vec<_> = peer
        .world
        .heard()
        .iter()
        .map(|it| (it.path.clone(), it.connection))
        .collect();
    let is_there = |path: &str, connection| places.contains(&(path.to_owned(), connection));
    assert!(
        is_there("/refused", 1) && is_there("/refused", 2),
        "{places:?}"
    );
    assert!(
        is_there("/later", 2) && !is_there("/later", 1),
        "{places:?}"
    );
    assert_eq!(
        statuses(vec![ask(proxy.port(), Request::get("/never"))])?,
        [502]
    );
    let never = peer.world.heard();
    assert_eq!(never.iter().filter(|it| it.path == "/never").count(), 2);
    peer.world.go();
    assert_eq!(statuses(held)?, [200, 200]);
    assert!(proxy.error_log().contains("rejected request with error 7"));
    Ok(())
}

/// RFC 9110 §9.2.2: of a connection that dies, what may be repeated is asked again on one that was
/// begun after that, and what may not is not.
#[test]
fn a_connection_that_dies_takes_with_it_what_may_not_be_repeated() -> Result<()> {
    let peer = Peer::start([Config::default(); 2], |talk| {
        let is_first = talk.number == 1;
        talk.is_over = is_first && talk.open.len() == 3;
        if !is_first || !talk.world.is_going() {
            talk.answer_whole()?;
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    assert_eq!(
        statuses(vec![ask(proxy.port(), Request::get("/first"))])?,
        [200]
    );
    peer.world.go();
    let post = ask(proxy.port(), Request::post("/post", "x"));
    let gets: Vec<Asked> = (0..2)
        .map(|number| ask(proxy.port(), Request::get(&format!("/get/{number}"))))
        .collect();
    assert_eq!(got(post)?.0, 502);
    assert_eq!(statuses(gets)?, [200, 200]);
    let heard = peer.world.heard();
    let count = |path: &str| heard.iter().filter(|it| it.path.starts_with(path)).count();
    assert_eq!((count("/post"), count("/get/")), (1, 4), "{heard:?}");
    assert_eq!(peer.world.connections("/get/"), [1, 2]);
    assert!(
        heard
            .iter()
            .all(|it| it.method == "POST" || it.path != "/post")
    );
    Ok(())
}

/// RFC 9113 §5.1.2: SETTINGS_MAX_CONCURRENT_STREAMS may change while streams are open, and a
/// connection that is being made is expected to have the lowest that was told.
#[test]
fn a_limit_that_is_lowered_is_kept() -> Result<()> {
    let bears = |max_concurrent_streams| Config {
        max_concurrent_streams,
        ..Config::default()
    };
    let peer = Peer::start([bears(4), bears(1)], |talk| {
        let are_first = talk.number == 1 && talk.open.len() == 4;
        if are_first {
            talk.raw((4, 0), &[0, 3, 0, 0, 0, 1])?;
        }
        if are_first || talk.world.is_going() {
            talk.answer_whole()?;
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    let first: Vec<Asked> = (0..4)
        .map(|number| ask(proxy.port(), Request::get(&format!("/first/{number}"))))
        .collect();
    assert_eq!(statuses(first)?, [200; 4]);
    assert_eq!(peer.world.connections("/first/"), [1]);
    let later: Vec<Asked> = (0..3)
        .map(|number| ask(proxy.port(), Request::get(&format!("/later/{number}"))))
        .collect();
    peer.world.wait_for(3, "/later/")?;
    assert_eq!(peer.world.connections("/later/"), [1, 2, 3]);
    peer.world.go();
    assert_eq!(statuses(later)?, [200; 3]);
    Ok(())
}

/// A client that leaves, and a peer that is silent, end one stream; the others are answered by the
/// same connection.
#[test]
fn a_stream_that_is_given_up_ends_alone() -> Result<()> {
    let peer = Peer::start([Config::default(); 2], |talk| {
        let is_going = talk.world.is_going();
        for heard in talk.take(|it| it.path == "/first" || (is_going && it.path == "/held")) {
            talk.answer(&heard, "");
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    assert_eq!(
        statuses(vec![ask(proxy.port(), Request::get("/first"))])?,
        [200]
    );
    let held = ask(proxy.port(), Request::get("/held"));
    let mut leaving = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    leaving.write_all(b"GET /left HTTP/1.1\r\nHost: a\r\n\r\n")?;
    peer.world.wait_for(1, "/left")?;
    drop(leaving);
    assert_eq!(
        statuses(vec![ask(proxy.port(), Request::get("/short/a"))])?,
        [504]
    );
    let both = || {
        let reset = lock(&peer.world.reset);
        let has = |path: &str| reset.iter().any(|it| it.0 == path && it.1 == Code::CANCEL);
        (has("/left") && has("/short/a")).then_some(())
    };
    Deadline::after(WAIT)
        .poll(both)
        .context("streams that are reset")?;
    peer.world.go();
    assert_eq!(got(held)?.0, 200);
    assert_eq!(peer.world.connections("/"), [1]);
    Ok(())
}

/// The failure of a connection that is being made is that of each who waits for it, and each goes
/// on to the next peer by itself.
#[test]
fn a_burst_at_a_dead_peer_goes_on_to_the_next() -> Result<()> {
    let peer = Peer::simple()?;
    let proxy = peer.proxy_with(16, "server 127.0.0.1:1 weight=100 max_fails=0;")?;
    let asked: Vec<Asked> = (0..30)
        .map(|number| ask(proxy.port(), Request::post(&format!("/{number}"), "x")))
        .collect();
    assert_eq!(statuses(asked)?, [200; 30]);
    assert_eq!(peer.world.heard().len(), 30);
    Ok(())
}

/// A connection ends with its last request, or when it was idle for too long; the next request has
/// another one.
#[test]
fn limits_of_kept_connections_are_those_of_shared_ones() -> Result<()> {
    for (more, count, connections) in [
        ("keepalive_requests 2;", 4, 2),
        ("keepalive_time 0s;", 3, 3),
        ("keepalive 0;", 3, 3),
        ("", 5, 1),
    ] {
        let peer = Peer::simple()?;
        let proxy = peer.proxy_with(4, more)?;
        for number in 0..count {
            let path = format!("/{number}");
            assert_eq!(
                got(ask(proxy.port(), Request::get(&path)))?,
                (200, path.into_bytes())
            );
        }
        assert_eq!(peer.world.connections("/").len(), connections, "{more}");
        let left = u64::from(more.is_empty());
        let is_left = || {
            (metric(&proxy, "millpond_upstream_shared_connections{") == Some(left)).then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_left)
            .with_context(|| more.to_owned())?;
    }
    let peer = Peer::simple()?;
    let proxy = peer.proxy_with(4, "keepalive_timeout 100ms;")?;
    assert_eq!(got(ask(proxy.port(), Request::get("/a")))?.0, 200);
    let is_closed = || (peer.world.ended.load(Ordering::SeqCst) == 1).then_some(());
    Deadline::after(WAIT)
        .poll(is_closed)
        .context("a connection that is closed")?;
    Ok(())
}

/// A reload lets the streams of a connection end, and the connection with the last of them.
#[test]
fn a_reload_under_load_loses_nothing() -> Result<()> {
    let peer = Peer::simple()?;
    let proxy = peer.proxy(8)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let loops: Vec<JoinHandle<Result<usize>>> = (0..8)
        .map(|number| {
            let (port, is_over) = (proxy.port(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut count = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let path = format!("/{number}/{count}");
                    let request = match count % 2 {
                        0 => Request::get(&path),
                        _ => Request::post(&path, "x"),
                    };
                    let response = Client::new(port).send(&request)?;
                    ensure!(
                        response.status == 200 && response.text() == path,
                        "{response:?}"
                    );
                    count += 1;
                }
                Ok(count)
            })
        })
        .collect();
    for round in 1..=5 {
        let heard = peer.world.heard().len();
        peer.world.wait_for(heard + 40, "/")?;
        let before = peer.world.connections("/").len();
        proxy.reload()?;
        let is_new = || (peer.world.connections("/").len() > before).then_some(());
        let waited = Deadline::after(WAIT).poll(is_new);
        waited.with_context(|| format!("a new connection after reload {round}"))?;
    }
    let heard = peer.world.heard().len();
    peer.world.wait_for(heard + 40, "/")?;
    is_over.store(true, Ordering::SeqCst);
    let mut all = 0;
    for each in loops {
        all += each.join().map_err(|_| anyhow::anyhow!("a panic"))??;
    }
    assert_eq!(peer.world.heard().len(), all, "none was asked twice");
    let connections = peer.world.connections("/").len();
    assert!((6..=40).contains(&connections), "{connections}");
    // Those of old configurations are closed.
    let are_closed = || {
        let open = connections - peer.world.ended.load(Ordering::SeqCst);
        (open <= 2).then_some(())
    };
    Deadline::after(WAIT)
        .poll(are_closed)
        .context("old connections that end")?;
    Ok(())
}

/// A block with a status of 200 (RFC 7541, appendix A).
const GOOD_HEAD: &[u8] = &[0x88];
/// RFC 9113 §8.3.2: two statuses.
const MALFORMED_HEAD: &[u8] = &[0x88, 0x88];

/// An origin that, once three requests of `/all/` are open and it is told to, does something to the
/// first of them; it answers what is open afterwards, and on other connections.
fn attacker(
    attack: impl Fn(&mut Talk, &Heard) -> Result<()> + Send + Sync + 'static,
) -> Result<Peer> {
    Peer::start([Config::default(); 2], move |talk| {
        let is_attacked = talk.world.is_going() && talk.number == 1;
        if !is_attacked {
            return talk.answer_whole();
        }
        if talk.open.len() < 3 {
            return Ok(());
        }
        let mut open = talk.take(|_| true);
        open.sort_by_key(|it| it.stream);
        attack(talk, &open[0])?;
        for heard in &open[1..] {
            talk.answer(heard, heard.path.clone());
        }
        Ok(())
    })
}

/// Three requests on one connection that is attacked.
fn three(peer: &Peer, proxy: &Proxy) -> Result<Vec<(u16, String)>> {
    assert_eq!(Client::new(proxy.port()).get("/first")?.status, 200);
    peer.world.go();
    let asked: Vec<Asked> = (0..3)
        .map(|number| {
            let asked = ask(proxy.port(), Request::post(&format!("/all/{number}"), "x"));
            peer.world.wait_for(number + 1, "/all/")?;
            Ok(asked)
        })
        .collect::<Result<_>>()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    asked
        .into_iter()
        .map(|it| got(it).map(|(status, body)| (status, text(body))))
        .collect()
}

/// RFC 9113 §5.4.2: an error of a stream is none of the others'.
#[test]
fn faults_of_a_stream_are_its_own() -> Result<()> {
    // RFC 9113 §8.1.1, §6.9.1, §6.9.
    let faults: [(u8, &[u8], u8, &str); 3] = [
        (1, MALFORMED_HEAD, 5, "invalid header"),
        (8, &[0x7f, 0xff, 0xff, 0xff], 0, "violates flow control"),
        (8, &[0; 4], 0, "window increment 0"),
    ];
    for (kind, payload, flags, text) in faults {
        let peer =
            attacker(move |talk, heard| talk.raw_with((kind, flags, heard.stream), payload))?;
        let proxy = peer.proxy(8)?;
        let got = three(&peer, &proxy)?;
        assert_eq!(got[0].0, 502, "{text}");
        for (number, answer) in got.iter().enumerate().skip(1) {
            assert_eq!(*answer, (200, format!("/all/{number}")), "{text}");
        }
        assert_eq!(peer.world.connections("/"), [1], "{text}");
        assert!(proxy.error_log().contains(text), "{text}");
    }
    Ok(())
}

/// RFC 9113 §5.4.1: an error of the connection takes all of its streams; those that may not be
/// asked again fail, and the next requests have another connection.
#[test]
fn faults_of_a_shared_connection_take_its_streams_and_no_others() -> Result<()> {
    // RFC 9113 §6.7, §5.1.1, §8.4, §4.3; RFC 9113 §10.5 for resets of streams that are gone.
    let faults: [(u8, Vec<u8>, &str); 4] = [
        (6, vec![0; 7], "incorrect length"),
        (5, vec![0, 0, 0, 2, 0x82], "push promise"),
        (1, vec![0x88, 0xbe], "invalid header"),
        (0, vec![0; 16_385], "longer than its maximum"),
    ];
    for (kind, payload, text) in faults {
        let peer = attacker(move |talk, heard| {
            let stream = if kind == 6 { 0 } else { heard.stream };
            talk.raw_with((kind, 4, stream), &payload)
        })?;
        let proxy = peer.proxy(8)?;
        for (status, _) in three(&peer, &proxy)? {
            assert_eq!(status, 502, "{text}");
        }
        let log = proxy.error_log();
        assert_eq!(
            log.lines().filter(|line| line.contains(text)).count(),
            3,
            "{log}"
        );
        // A POST was asked once.
        assert_eq!(peer.world.heard().len(), 4, "{text}");
        assert_eq!(Client::new(proxy.port()).get("/next")?.text(), "/next");
        assert_eq!(peer.world.connections("/next"), [2], "{text}");
    }
    Ok(())
}

/// RFC 9113 §10.5: a stream is reset once (§5.1), and there is no need to reset many.
#[test]
fn resets_without_end_end_the_connection() -> Result<()> {
    let peer = attacker(|talk, heard| {
        for _ in 0..500 {
            talk.raw((3, heard.stream), &8u32.to_be_bytes())?;
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    let got = three(&peer, &proxy)?;
    assert_eq!(got[0].0, 502);
    let log = proxy.error_log();
    assert!(log.contains("rejected request with error 8"), "{log}");
    assert!(
        log.contains("flood: RST_STREAM") || log.contains("closed stream"),
        "{log}"
    );
    assert_eq!(Client::new(proxy.port()).get("/next")?.text(), "/next");
    assert_eq!(peer.world.connections("/next"), [2]);
    Ok(())
}

/// RFC 9113 §6.9.1: whoever sends more than the window of a stream has lets it be reset; what is
/// held for a client that takes nothing is no more than that, and other streams go on.
#[test]
fn data_beyond_the_window_of_a_stream_resets_it() -> Result<()> {
    const FRAMES: usize = 2000;
    let peer = Peer::start([Config::default(); 2], |talk| {
        for heard in talk.take(|_| true) {
            if heard.path != "/live/flood" {
                let body = heard.path.clone();
                talk.answer(&heard, body);
                continue;
            }
            talk.raw_with((1, 4, heard.stream), GOOD_HEAD)?;
            for _ in 0..FRAMES {
                talk.raw((0, heard.stream), &[b'z'; 16_000])?;
            }
        }
        Ok(())
    })?;
    let proxy = peer.proxy(8)?;
    assert_eq!(Client::new(proxy.port()).get("/first")?.status, 200);
    let mut slow = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    slow.write_all(b"GET /live/flood HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    peer.world.wait_for(1, "/live/flood")?;
    for number in 0..3 {
        let path = format!("/other/{number}");
        assert_eq!(Client::new(proxy.port()).get(&path)?.text(), path);
    }
    slow.set_read_timeout(Some(WAIT))?;
    let mut all = Vec::new();
    slow.read_to_end(&mut all)?;
    assert!(!all.ends_with(b"0\r\n\r\n"), "{} bytes", all.len());
    assert!(all.len() < FRAMES * 16_000, "{} bytes", all.len());
    let log = proxy.error_log();
    assert!(log.contains("violates flow control"), "{log}");
    Ok(())
}

/// RFC 9113 §6.5.2: a limit of 0 is to be for a short time; who keeps it gets no request, and does
/// not have clients wait.
#[test]
fn an_origin_that_bears_no_stream_is_not_waited_for() -> Result<()> {
    let config = Config {
        max_concurrent_streams: 0,
        ..Config::default()
    };
    let peer = Peer::start([config; 2], Talk::answer_whole)?;
    let proxy = peer.proxy(8)?;
    let begun = std::time::Instant::now();
    for _ in 0..2 {
        assert_eq!(Client::new(proxy.port()).get("/a")?.status, 502);
    }
    assert!(begun.elapsed() < WAIT);
    // Before its settings are there one stream may be opened.
    let log = proxy.error_log();
    let is_told = log.contains("rejected request with error 7");
    assert!(is_told || log.contains("lets no stream be opened"), "{log}");
    assert!(peer.world.heard().is_empty());
    Ok(())
}
