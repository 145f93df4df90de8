//! The origin: a scripted HTTP/1.1 server in the test's process.
//!
//! A test gives routes their answers and reads back what was asked. Every connection has a thread;
//! requests are parsed strictly, so that a proxy which sends something odd is found out.
//!
//! ```text
//! route("/a", Answer)             always this answer
//! route("/files/*", Answer)       every path with this beginning
//! sequence("/a", [A1, A2])        A1, then A2 for every later request
//! answer_with("/a", |request| …)  computed
//! resource("/film", &Resource)    ranges of a large body, with the manners of the moment
//! ```
//!
//! The longest matching route wins; a later definition of a route replaces the earlier one; a
//! path without a route gets 404.
//!
//! 1. A request is recorded before the first byte of its answer is sent, so a client that has its
//!    answer finds the request in [`Origin::requests`].
//! 2. What a connection did wrong is in [`Origin::faults`]; it is never ignored.
//! 3. Dropping the origin closes every connection and its port.
//!
//! Does not add fields to an answer except for framing: no Date and no Server.

mod answer;
mod resource;
mod select;
mod serve;

pub use answer::{Answer, Framing, Gate, Ranges, offset_bytes};
pub use resource::{Manners, Outage, Resource, Turn, Validator};
pub use select::Lie;

use crate::deadline::Deadline;
use crate::message::Fields;
use crate::wire::{Stream, Wire};
use anyhow::{Context, Result};
use select::Selected;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time that `wait_for_requests` waits.
const WAIT: Duration = Duration::from_secs(10);

/// A request that the origin saw.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Method as written.
    pub method: String,
    /// Path and query, as written.
    pub target: String,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// Header fields.
    pub headers: Fields,
    /// Body of the request, without its transfer coding.
    pub body: Vec<u8>,
    /// Time when the request's head had been read.
    pub when: Instant,
    /// Number of the connection that the request came on, counted from 1.
    pub connection: u64,
}

impl Recorded {
    /// Target of the request without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or(&self.target)
    }

    /// The first value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.value(name)
    }
}

/// An answer as it went out: a request, and which bytes were sent for it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request.
    pub request: Recorded,
    /// The status of the answer.
    pub status: u16,
    /// The version of a generated body, else 0.
    pub version: u16,
    /// Range of the body that the answer is about to send; `sent` says how far it came.
    pub range: Range<u64>,
    sent: Arc<AtomicU64>,
}

impl Exchange {
    /// Number of bytes of the body that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The bytes of the body that were sent.
    pub fn sent_range(&self) -> Range<u64> {
        self.range.start..self.range.start + self.sent()
    }

    fn add_sent(&self, count: u64) {
        self.sent.fetch_add(count, Ordering::Relaxed);
    }
}

/// A scripted server.
#[derive(Debug)]
pub struct Origin {
    place: Place,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(u16),
    Unix(PathBuf),
}

/// Function that finds the answer for a request.
type Script = Arc<dyn Fn(&Recorded) -> Answer + Send + Sync>;

#[derive(Default)]
struct Shared {
    routes: Mutex<Vec<(String, Script)>>,
    requests: Mutex<Vec<Recorded>>,
    exchanges: Mutex<Vec<Exchange>>,
    faults: Mutex<Vec<String>>,
    streams: Mutex<Vec<Stream>>,
    connections: AtomicU64,
    sent: AtomicU64,
    stopped: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Origin {
    /// Starts on a port of 127.0.0.1 that the system chooses.
    pub fn start() -> Result<Origin> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        let on_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !on_thread.accept(Stream::Tcp(stream)) {
                    break;
                }
            }
        });
        Ok(Origin {
            place: Place::Tcp(port),
            shared,
        })
    }

    /// Starts on a unix socket at `path`.
    pub fn start_unix(path: &Path) -> Result<Origin> {
        let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
        let shared = Arc::new(Shared::default());
        let on_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !on_thread.accept(Stream::Unix(stream)) {
                    break;
                }
            }
        });
        Ok(Origin {
            place: Place::Unix(path.to_path_buf()),
            shared,
        })
    }

    /// Answers every request for `route` with `answer`.
    pub fn route(&self, route: &str, answer: Answer) {
        self.answer_with(route, move |_| answer.clone());
    }

    /// Answers the requests for `route` with `answers` in turn; the last one stays.
    pub fn sequence(&self, route: &str, answers: Vec<Answer>) {
        let next = AtomicU64::new(0);
        self.answer_with(route, move |_| {
            let turn = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
            let answer = answers.get(turn).or(answers.last());
            answer.cloned().unwrap_or_else(|| Answer::new(404))
        });
    }

    /// Computes the answer to every request for `route`.
    pub fn answer_with(
        &self,
        route: &str,
        script: impl Fn(&Recorded) -> Answer + Send + Sync + 'static,
    ) {
        let mut routes = lock(&self.shared.routes);
        routes.retain(|(known, _)| known != route);
        routes.push((route.to_string(), Arc::new(script)));
    }

    /// Answers every request for `route` with what `resource` is at that moment.
    pub fn resource(&self, route: &str, resource: &Resource) {
        let resource = resource.clone();
        self.answer_with(route, move |request| resource.answer(request));
    }

    /// The port; 0 for a unix socket.
    pub fn port(&self) -> u16 {
        match self.place {
            Place::Tcp(port) => port,
            Place::Unix(_) => 0,
        }
    }

    /// Address that `%%ORIGIN%%` stands for: `127.0.0.1:PORT` or `unix:PATH`.
    pub fn address(&self) -> String {
        match &self.place {
            Place::Tcp(port) => format!("127.0.0.1:{port}"),
            Place::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared.requests).clone()
    }

    /// Waits until at least `count` requests have come, and gives all; an error says how many came.
    pub fn wait_for_requests(&self, count: usize) -> Result<Vec<Recorded>> {
        let enough = || Some(self.requests()).filter(|requests| requests.len() >= count);
        Deadline::after(WAIT)
            .poll(enough)
            .with_context(|| format!("{} requests came, expected {count}", self.requests().len()))
    }

    /// Every answer that was begun so far, in the order in which they were; raw ones are left out.
    pub fn exchanges(&self) -> Vec<Exchange> {
        lock(&self.shared.exchanges).clone()
    }

    /// Forgets the requests and exchanges so far.
    pub fn forget_requests(&self) {
        lock(&self.shared.requests).clear();
        lock(&self.shared.exchanges).clear();
    }

    /// Number of connections that were accepted.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Number of bytes of bodies that were sent.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Faults of connections: requests that could not be parsed or broke off.
    pub fn faults(&self) -> Vec<String> {
        lock(&self.shared.faults).clone()
    }

    /// Closes every open connection; new ones are accepted.
    pub fn close_connections(&self) {
        for stream in lock(&self.shared.streams).drain(..) {
            stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.close_connections();
        // A last connection wakes the accepting thread, which then sees that it is stopped.
        let _woken = match &self.place {
            Place::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
            Place::Unix(path) => UnixStream::connect(path).is_ok(),
        };
    }
}

impl Shared {
    /// Serves a connection on a thread of its own; false when the origin is stopped.
    fn accept(self: &Arc<Shared>, stream: Stream) -> bool {
        if self.stopped.load(Ordering::Relaxed) {
            return false;
        }
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        if let Ok(clone) = stream.try_clone() {
            lock(&self.streams).push(clone);
        }
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            let mut wire = Wire::new(stream);
            let served = serve::serve(&shared, &mut wire, connection);
            if let Err(error) = served
                && !shared.stopped.load(Ordering::Relaxed)
            {
                lock(&shared.faults).push(format!("{error:#}"));
            }
            // After the fault is recorded: who sees the close finds the fault. A shutdown, since
            // the list of streams keeps the socket open.
            wire.stream.shutdown(Shutdown::Both);
        });
        true
    }

    fn record_exchange(&self, request: &Recorded, answer: &Answer, sent: &Selected) -> Exchange {
        let exchange = Exchange {
            request: request.clone(),
            status: sent.status,
            version: answer.body.version(),
            range: sent.range.clone(),
            sent: Arc::default(),
        };
        lock(&self.exchanges).push(exchange.clone());
        exchange
    }

    /// The answer for a request: that of the longest route that matches.
    fn answer(&self, request: &Recorded) -> Answer {
        let script = lock(&self.routes)
            .iter()
            .filter(|(route, _)| matches_route(route, request.path()))
            .max_by_key(|(route, _)| route.len())
            .map(|(_, script)| Arc::clone(script));
        match script {
            Some(script) => script(request),
            None => Answer::new(404).body("no route\n"),
        }
    }
}

fn matches_route(route: &str, path: &str) -> bool {
    match route.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => route == path,
    }
}

/// Locks, also after a panic in another thread: the data is a log, and no half-made change can be
/// seen.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
