//! The built-in origin: computes every body, misbehaves as it is told, and counts what it is asked.
//!
//! ```text
//! /any/name-SIZE[.suffix] ──► SIZE bytes of content.rs, in the generation of the moment
//! ```
//!
//! An answer says which generation it is (`X-Generation`, and `ETag: "g-N"` where there are
//! validators), so that a client can check the body of an answer that was stored long ago.
//!
//! - `conf` – how it behaves
//! - `answer` – request to answer, without sockets
//! - `connection` – the bytes of it
//! - `http2` – the same as streams
//! - `tls` – what is around them, if it is wanted
//! - `spoken` – uwsgi and FastCGI
//! - `pace` – rates
//! - `count` – what was asked
//!
//! 1. What is counted for a request is counted before its last byte is sent.
//! 2. It runs on one thread of its own, which ends with the [`Origin`].

mod answer;
mod conf;
mod connection;
mod count;
mod http2;
mod pace;
mod spoken;
mod tls;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

pub use self::conf::OriginConf;
use self::count::Counters;
pub use self::count::{Asked, Counts};
use self::pace::Pace;
pub use self::spoken::Spoken;

/// Name of the field with the generation of an answer.
pub const GENERATION_FIELD: &str = "X-Generation";

/// First bytes of HTTP/2 (RFC 9113, section 3.4), which no other method has.
const PREFACE: [u8; 14] = *b"PRI * HTTP/2.0";

/// State that connections share.
#[derive(Debug)]
struct Shared {
    conf: OriginConf,
    counters: Counters,
    pace: Mutex<Pace>,
    /// Added to all generations.
    bumps: AtomicU64,
    is_failing: AtomicBool,
    began: Instant,
    random: Mutex<fastrand::Rng>,
}

impl Shared {
    /// The generation of the moment.
    fn generation(&self) -> u64 {
        self.generation_at(self.began.elapsed())
    }

    fn generation_at(&self, time: Duration) -> u64 {
        let by_time = self
            .conf
            .change
            .map_or(0, |change| time.as_nanos() / change.as_nanos().max(1));
        // A run does not last for 2^64 changes.
        by_time as u64 + self.bumps.load(Ordering::SeqCst)
    }

    /// Waits for as long as it takes to begin an answer.
    async fn think(&self) {
        let wait = self.conf.delay + self.conf.jitter.mul_f64(self.chance());
        if wait > Duration::ZERO {
            tokio::time::sleep(wait).await;
        }
    }

    /// True if the request is answered with 503, which is counted.
    fn fails(&self) -> bool {
        let fails = self.is_failing.load(Ordering::SeqCst) || self.chance() < self.conf.failures;
        if fails {
            self.counters.failed();
        }
        fails
    }

    /// Offset at which the body between two offsets is cut; none if it is sent whole.
    fn cut(&self, (start, end): (u64, u64)) -> Option<u64> {
        let is_cut = self.chance() < self.conf.cuts && end - start > 1;
        is_cut.then(|| start + (end - start) / 2)
    }

    /// Bytes that go at one time by both rates.
    fn piece(&self, own: &Pace) -> usize {
        let all = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        own.piece().min(all.piece())
    }

    /// Waits until `len` bytes may go by both rates.
    async fn wait_for(&self, own: &mut Pace, len: usize) {
        let now = Instant::now();
        let all = {
            let pace = self.pace.lock();
            pace.unwrap_or_else(PoisonError::into_inner).take(len, now)
        };
        if let Some(at) = own.take(len, now).max(all) {
            tokio::time::sleep_until(at.into()).await;
        }
    }

    /// A number from 0 to 1 (excluded).
    fn chance(&self) -> f64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.f64()
    }
}

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    shared: Arc<Shared>,
    address: SocketAddr,
    over: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Starts the origin; connections are taken when this returns.
    pub fn start(conf: OriginConf) -> Result<Self> {
        let listener = std::net::TcpListener::bind(conf.listen)
            .with_context(|| format!("the origin cannot listen on {}", conf.listen))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            counters: Counters::default(),
            pace: Mutex::new(Pace::new(conf.rate_total)),
            bumps: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            began: Instant::now(),
            random: Mutex::new(fastrand::Rng::with_seed(conf.seed)),
            conf,
        });
        let over = Arc::new(Notify::new());
        let (theirs, until) = (Arc::clone(&shared), Arc::clone(&over));
        let acceptor = shared.conf.is_https.then(tls::acceptor).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("origin".to_owned())
            .spawn(move || {
                let serving = LocalSet::new();
                serving.block_on(&runtime, serve(listener, acceptor, theirs, until));
            })?;
        Ok(Self {
            shared,
            address,
            over,
            thread: Some(thread),
        })
    }

    /// Address that the origin listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL of the origin, without a path.
    pub fn url(&self) -> String {
        let conf = &self.shared.conf;
        let scheme = match (conf.spoken, conf.is_https) {
            (Spoken::Http, false) => "http",
            (Spoken::Http, true) => "https",
            (Spoken::Uwsgi, false) => "uwsgi",
            (Spoken::Uwsgi, true) => "suwsgi",
            (Spoken::Fastcgi, _) => "fastcgi",
        };
        format!("{scheme}://{}", self.address)
    }

    /// The generation of answers that begin now, if nothing changes.
    pub fn generation(&self) -> u64 {
        self.shared.generation()
    }

    /// The generation of so long ago.
    pub fn generation_before(&self, ago: Duration) -> u64 {
        self.shared
            .generation_at(self.shared.began.elapsed().saturating_sub(ago))
    }

    /// Changes every resource; returns the new generation.
    pub fn bump(&self) -> u64 {
        self.shared.bumps.fetch_add(1, Ordering::SeqCst);
        self.generation()
    }

    /// Answers everything with 503 from now on, or no longer.
    pub fn fail(&self, is_failing: bool) {
        self.shared.is_failing.store(is_failing, Ordering::SeqCst);
    }

    /// Counts of all requests to the origin.
    pub fn counts(&self) -> Counts {
        self.shared.counters.counts()
    }

    /// Counts of the requests for one path.
    pub fn asked(&self, path: &str) -> Asked {
        self.shared.counters.asked(path)
    }

    /// Counts of the requests for all paths.
    pub fn all_asked(&self) -> Vec<(String, Asked)> {
        self.shared.counters.all_asked()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.over.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed.
            let _ = thread.join();
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    until: Arc<Notify>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        tokio::select! {
            () = until.notified() => return,
            accepted = listener.accept() => {
                // Out of descriptors, most likely: the next one may work.
                let Ok((stream, _)) = accepted else { continue };
                let shared = Arc::clone(&shared);
                shared.counters.connected();
                tokio::task::spawn_local(welcome(stream, acceptor.clone(), shared));
            }
        }
    }
}

/// Serves one connection, encrypted if that is wanted.
async fn welcome(stream: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // The last piece of an answer does not wait for the client's word about the one before it.
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => {
            if shared.conf.spoken != Spoken::Http {
                return connection::serve(stream, shared).await;
            }
            let mut begin = [0; PREFACE.len()];
            // A client that knows beforehand sends it in one piece.
            match stream.peek(&mut begin).await {
                Ok(_) if begin == PREFACE => http2::serve(stream, shared).await,
                _ => connection::serve(stream, shared).await,
            }
        }
        Some(acceptor) => {
            // Who breaks a handshake off does not want to hear about it.
            if let Ok(stream) = acceptor.accept(stream).await {
                match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => http2::serve(stream, shared).await,
                    _ => connection::serve(stream, shared).await,
                }
            }
        }
    }
}
