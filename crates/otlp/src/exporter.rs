//! An exporter: the queue of a configuration, and the thread that empties it.
//!
//! ```text
//! first record ─► runs: a full batch goes at once, the rest an interval after it began to wait
//!                   └─ end (reload, shutdown) ─► all that is left, for FLUSH_MAX ─► over
//! ```
//!
//! 1. Reading a configuration starts no thread: the first record does.
//! 2. What was taken from the queue is counted once: as sent, failed or dropped.
//! 3. One batch is on its way at a time, for `EXPORT_MAX` at most.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::{self, Level};

use crate::connect::Failed;
pub use crate::connect::{Encryption, Way};
use crate::endpoint::Protocol;
use crate::grpc::{Call, Grpc, HEAD_LEN};
use crate::http::Http;
use crate::message::{self, Head};
use crate::queue::{Added, Bounds, Queue, Wanted};
use crate::signal::Signal;
use crate::tally::{Exporters, Stop};

/// The time that a batch may take, the connection included (the specification's default).
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// The time for what is left at the end (arbitrary: a collector that works needs a part of it).
pub const FLUSH_MAX: Duration = Duration::from_secs(3);
/// The time between two lines about failures (arbitrary: enough to be seen).
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Settings of an exporter.
#[derive(Debug)]
pub struct Settings {
    /// The kind of records.
    pub signal: Signal,
    /// The way to the collector.
    pub way: Way,
    /// Fields that each request to it has.
    pub headers: Vec<(String, String)>,
    /// The time after which records are sent that fill no batch.
    pub interval: Duration,
    /// Records of a batch.
    pub batch_size: usize,
    /// Batches that wait or are on their way, at most, for each thread that adds records.
    pub batch_count: usize,
    /// Attributes of the resource, which is this server.
    pub resource: Vec<(String, String)>,
}

/// An exporter. When it is dropped, its thread sends what is left and ends.
#[derive(Debug)]
pub struct Exporter(Arc<Work>);

/// The part of an exporter that its thread shares.
#[derive(Debug)]
struct Work {
    settings: Settings,
    head: Head,
    queue: Mutex<Queue>,
    stop: Arc<Stop>,
    /// The process around it, once the thread was started.
    process: OnceLock<Process>,
}

/// The process around an exporter.
#[derive(Clone, Debug)]
pub struct Process {
    /// The exporters of the process.
    pub among: Arc<Exporters>,
    /// Threads that add records.
    pub workers: usize,
}

impl Exporter {
    /// An exporter without a thread.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Exporter(Arc::new(Work {
            head: Head::new(&settings.resource),
            settings,
            queue: Mutex::default(),
            stop: Arc::default(),
            process: OnceLock::new(),
        }))
    }

    /// Hands a record over; the first one starts the thread.
    pub fn add(&self, record: Bytes, process: &Process) {
        let work = &self.0;
        let process = work.process.get_or_init(|| {
            start(Arc::clone(work), process.clone());
            process.clone()
        });
        let bounds = work.settings.bounds(process.workers);
        let added = work.with_queue(|queue| queue.add(record, bounds));
        match added {
            Added::Waits => {}
            Added::Begins | Added::Fills => work.stop.wake(),
            Added::Dropped => process.among.add_dropped(work.settings.signal, 1),
        }
    }
}

impl Settings {
    fn bounds(&self, workers: usize) -> Bounds {
        let batch = self.batch_size.max(1);
        let records = batch.saturating_mul(self.batch_count);
        Bounds {
            batch,
            records: records.saturating_mul(workers),
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.0.stop.end();
    }
}

impl Work {
    fn with_queue<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Starts the thread; records of one that cannot be started wait for nobody, and are dropped.
fn start(work: Arc<Work>, process: Process) {
    let running = Running { work, process };
    running.process.among.began(Arc::clone(&running.work.stop));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let started = runtime.and_then(|runtime| {
        let thread = std::thread::Builder::new().name("otel".to_owned());
        thread.spawn(move || runtime.block_on(run(running)))
    });
    if let Err(why) = started {
        let why = error::os_error(&why);
        error::process(
            Level::Alert,
            format_args!("the thread \"otel\" cannot be started: {why}"),
        );
    }
}

/// The thread, from its start to its end, however that comes.
struct Running {
    work: Arc<Work>,
    process: Process,
}

impl Drop for Running {
    fn drop(&mut self) {
        let left = self.work.with_queue(Queue::clear);
        let signal = self.work.settings.signal;
        self.process.among.add_dropped(signal, left as u64);
        self.process.among.ended(&self.work.stop);
    }
}

async fn run(running: Running) {
    let Running { work, process } = &running;
    let among = &*process.among;
    let mut sender = Sender {
        work,
        bounds: work.settings.bounds(process.workers),
        among,
        link: None,
        told: None,
        untold: 0,
        dropped: among.counts(work.settings.signal).dropped,
    };
    let mut due = None;
    while !work.stop.is_told() {
        let next = || clock::instant().checked_add(work.settings.interval);
        let is_idle = work.with_queue(|queue| queue.is_empty());
        due = if is_idle { None } else { due.or_else(next) };
        tokio::select! {
            () = work.stop.woken() => sender.send(Wanted::Full).await,
            () = until(due) => {
                sender.send(Wanted::All).await;
                due = None;
            }
        }
        sender.tell_of_dropped();
    }
    // What is cut off counts as dropped.
    let _ = clock::within(FLUSH_MAX, sender.send(Wanted::All)).await;
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => clock::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// A connection that is kept.
enum Link {
    Grpc(Box<Grpc>),
    Http(Http),
}

impl Link {
    fn is_usable(&self) -> bool {
        match self {
            Link::Grpc(grpc) => grpc.is_usable(),
            Link::Http(http) => http.is_usable(),
        }
    }
}

/// The side of the thread.
struct Sender<'a> {
    work: &'a Work,
    bounds: Bounds,
    among: &'a Exporters,
    link: Option<Link>,
    /// The time of the last line about failures.
    told: Option<Instant>,
    /// Failures since then.
    untold: u64,
    /// The count of dropped records that was told.
    dropped: u64,
}

/// Records on their way, which fail unless they are said to be taken.
struct Batch<'a> {
    records: Vec<Bytes>,
    work: &'a Work,
    among: &'a Exporters,
    taken: u64,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let count = self.records.len() as u64;
        let taken = self.taken.min(count);
        let signal = self.work.settings.signal;
        self.among.add_sent(signal, taken);
        self.among.add_failed(signal, count - taken);
        self.work.with_queue(|queue| queue.sent(self.records.len()));
    }
}

impl Sender<'_> {
    /// Sends batches until there is none that is wanted.
    async fn send(&mut self, wanted: Wanted) {
        loop {
            let work = self.work;
            let records = work.with_queue(|queue| queue.take(wanted, self.bounds));
            if records.is_empty() {
                return;
            }
            let mut batch = Batch {
                records,
                work,
                among: self.among,
                taken: 0,
            };
            let ended = clock::within(EXPORT_MAX, self.export(&batch.records)).await;
            let exported = ended.unwrap_or_else(|| {
                self.link = None;
                Err(format!("it takes longer than {} s", EXPORT_MAX.as_secs()))
            });
            match exported.map(|answer| message::rejected(&answer)) {
                Ok((0, _)) => batch.taken = batch.records.len() as u64,
                Ok((rejected, why)) => {
                    batch.taken = (batch.records.len() as u64).saturating_sub(rejected);
                    let record = work.settings.signal.record();
                    self.tell(format_args!("{rejected} {record}s were rejected: {why}"));
                }
                Err(why) => self.tell(format_args!("{why}")),
            }
        }
    }

    /// Sends one batch; once more on a new connection if the one that was kept is gone.
    async fn export(&mut self, records: &[Bytes]) -> Result<Vec<u8>, String> {
        match self.export_once(records).await {
            Err(Failed::Stale) => self.link = None,
            done => return done.map_err(Failed::words),
        }
        self.export_once(records).await.map_err(Failed::words)
    }

    async fn export_once(&mut self, records: &[Bytes]) -> Result<Vec<u8>, Failed> {
        let Settings { way, headers, .. } = &self.work.settings;
        let kept = self.link.take().filter(Link::is_usable);
        let mut link = match kept {
            Some(link) => link,
            None => {
                let transport = way.connect().await?;
                match way.endpoint.protocol {
                    Protocol::Grpc => Link::Grpc(Box::new(Grpc::new(transport))),
                    Protocol::Http(_) => Link::Http(Http::new(transport)),
                }
            }
        };
        let authority = way.endpoint.authority();
        let call = Call {
            scheme: if way.endpoint.is_encrypted {
                "https"
            } else {
                "http"
            },
            authority: &authority,
            path: match &way.endpoint.protocol {
                Protocol::Grpc => self.work.settings.signal.grpc_path(),
                Protocol::Http(path) => path,
            },
            headers,
        };
        let answer = match &mut link {
            Link::Grpc(grpc) => {
                grpc.call(&call, self.work.head.message(records, HEAD_LEN))
                    .await
            }
            Link::Http(http) => http.call(&call, &self.work.head.message(records, 0)).await,
        };
        if answer.is_ok() {
            self.link = Some(link);
        }
        answer
    }

    /// Logs a failure, unless one was logged a moment ago. INVARIANT 3 of the crate.
    fn tell(&mut self, why: std::fmt::Arguments<'_>) {
        let now = clock::instant();
        if self.told.is_some_and(|told| now < told + TELL_EVERY) {
            self.untold += 1;
            return;
        }
        self.told = Some(now);
        let authority = self.work.settings.way.endpoint.authority();
        let message = match std::mem::take(&mut self.untold) {
            0 => format!("OTel export failure: {why}, collector: {authority}"),
            more => format!(
                "OTel export failure: {why}, collector: {authority}; it is one of {} since the \
                 last line",
                more + 1
            ),
        };
        error::process(Level::Error, format_args!("{message}"));
    }

    /// Logs the count of dropped records, if it has grown and nothing was logged a moment ago.
    fn tell_of_dropped(&mut self) {
        let counts = self.among.counts(self.work.settings.signal);
        let (now, dropped) = (clock::instant(), counts.dropped);
        let is_early = self.told.is_some_and(|told| now < told + TELL_EVERY);
        if dropped == self.dropped || is_early {
            return;
        }
        self.told = Some(now);
        let count = dropped - self.dropped;
        self.dropped = dropped;
        error::process(Level::Notice, format_args!("OTel dropped records: {count}"));
    }
}

impl Failed {
    fn words(self) -> String {
        match self {
            Failed::Stale => "the connection was closed".to_owned(),
            Failed::Because(why) => why,
        }
    }
}
