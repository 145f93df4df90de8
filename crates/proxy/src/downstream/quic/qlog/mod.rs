//! `quic_qlog`: a file for each connection of QUIC with all that it says and hears, for people who
//! look into it with tools such as qvis.
//!
//! The form is that of qlog 0.3 as JSON text sequences (`.sqlog`): a record of the trace, then one
//! for each event, each between a byte 0x1e and a line feed (RFC 7464).
//!
//! | event | |
//! |---|---|
//! | `transport:packet_sent`, `transport:packet_received` | kind, number, length, frames |
//! | `recovery:metrics_updated` | round trip, congestion window, when they have changed |
//!
//! Losses are not told of: QUIC's machine counts them, and does not name them.
//!
//! Invariants:
//! 1. No more than [`FILES_MOST`] files are made by a process, none longer than [`LEN_MOST`].
//! 2. A connection whose file cannot be written is served as any other.
//! 3. No bytes of streams, tokens or keys are written.

mod frames;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_semantics::hex::Hex;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::{self, Level};
use millpond_tls::tap::{PacketKind, Seen, Watcher, Watchers, Way};
use quinn_proto::ConnectionId;

/// Files of a process (arbitrary: more than anybody reads).
const FILES_MOST: usize = 1000;
/// Bytes of a file (arbitrary: some minutes of a busy connection).
const LEN_MOST: usize = 16 * 1024 * 1024;
/// Bytes of a file that are gathered before they are written (arbitrary: a batch of packets).
const GATHERED: usize = 32 * 1024;

/// The files of a process.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// A folder that connections are written down in.
pub(super) struct Folder {
    path: PathBuf,
    /// The record of the connection that may begin next, for whoever serves it.
    next: Mutex<Option<Arc<Record>>>,
}

/// The record of one connection.
pub(super) struct Record {
    path: PathBuf,
    id: Box<[u8]>,
    began: Instant,
    state: Mutex<State>,
}

/// The file of a record.
#[derive(Default)]
enum State {
    /// Nothing was seen.
    #[default]
    Unmade,
    /// Written to, with its length and the metrics that were written last.
    Open(BufWriter<File>, usize, Option<Metrics>),
    /// There is none, or it is long enough.
    Over,
}

/// Numbers of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metrics {
    /// The round trip, smoothed.
    pub(super) rtt: Duration,
    /// The shortest one.
    pub(super) min_rtt: Duration,
    /// Bytes of the congestion window.
    pub(super) window: u64,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Arc<Self> {
        Arc::new(Folder {
            path: path.to_owned(),
            next: Mutex::default(),
        })
    }

    /// The record of the connection that has begun last.
    pub(super) fn take(&self) -> Option<Arc<Record>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        next.take()
    }
}

impl Watchers for Folder {
    fn begin(&self, id: &ConnectionId) -> Arc<dyn Watcher> {
        let name = format!("{}_server.sqlog", Hex(id));
        let record = Arc::new(Record {
            path: self.path.join(name),
            id: id.to_vec().into(),
            began: clock::instant(),
            state: Mutex::default(),
        });
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some(Arc::clone(&record));
        record
    }
}

impl Watcher for Record {
    fn see(&self, packet: &Seen<'_>) {
        let name = match packet.way {
            Way::Sent => "packet_sent",
            Way::Received => "packet_received",
        };
        let kind = match packet.kind {
            PacketKind::Initial => "initial",
            PacketKind::Handshake => "handshake",
            PacketKind::Early => "0RTT",
            PacketKind::Data => "1RTT",
        };
        let (number, len) = (packet.number, packet.len);
        let mut data = format!(
            r#"{{"header":{{"packet_type":"{kind}","packet_number":{number}}},"raw":{{"length":{len}}},"frames":["#
        );
        frames::write(packet.frames, &mut data);
        data.push_str("]}");
        self.tell(&format!("transport:{name}"), &data);
    }
}

impl Record {
    /// Notes numbers of the path, if they have changed, behind a batch of packets; what was
    /// gathered is written.
    pub(super) fn note(&self, metrics: Metrics) {
        if self.has_changed(metrics) {
            let Metrics {
                rtt,
                min_rtt,
                window,
            } = metrics;
            let (rtt, min_rtt) = (millis(rtt), millis(min_rtt));
            let data = format!(
                r#"{{"smoothed_rtt":{rtt},"min_rtt":{min_rtt},"congestion_window":{window}}}"#
            );
            self.tell("recovery:metrics_updated", &data);
        }
        let mut state = self.state();
        if let State::Open(file, ..) = &mut *state
            && let Err(error) = file.flush()
        {
            self.complain("write", &error);
            *state = State::Over;
        }
    }

    /// True for numbers that were not written last, which they are then.
    fn has_changed(&self, metrics: Metrics) -> bool {
        match &mut *self.state() {
            State::Open(_, _, last) => last.replace(metrics) != Some(metrics),
            State::Unmade | State::Over => false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, name: &str, data: &str) {
        let now = millis(clock::instant().saturating_duration_since(self.began));
        let text = format!("\u{1e}{{\"time\":{now},\"name\":\"{name}\",\"data\":{data}}}\n");
        let mut state = self.state();
        if matches!(*state, State::Unmade) {
            *state = self.make();
        }
        let State::Open(file, len, _) = &mut *state else {
            return;
        };
        *len += text.len();
        // INVARIANT 1.
        if *len > LEN_MOST {
            *state = State::Over;
        } else if let Err(error) = file.write_all(text.as_bytes()) {
            self.complain("write", &error);
            *state = State::Over;
        }
    }

    /// Makes the file. INVARIANT 1.
    fn make(&self) -> State {
        if FILES.fetch_add(1, Ordering::Relaxed) >= FILES_MOST {
            FILES.fetch_sub(1, Ordering::Relaxed);
            return State::Over;
        }
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.path)
        {
            Ok(file) => {
                let mut file = BufWriter::with_capacity(GATHERED, file);
                // An error comes again with what follows.
                let _ = file.write_all(self.head().as_bytes());
                State::Open(file, 0, None)
            }
            Err(error) => {
                self.complain("open", &error);
                State::Over
            }
        }
    }

    /// The record of the trace.
    fn head(&self) -> String {
        let (id, at_ms) = (Hex(&self.id), clock::now_ms());
        let mut text = String::from("\u{1e}");
        // Writing into a text never fails.
        let _ = write!(
            text,
            r#"{{"qlog_format":"JSON-SEQ","qlog_version":"0.3","title":"millpond","trace":{{"vantage_point":{{"name":"millpond","type":"server"}},"common_fields":{{"ODCID":"{id}","group_id":"{id}","protocol_type":["QUIC","HTTP3"],"reference_time":{at_ms},"time_format":"relative"}}}}}}"#
        );
        text.push('\n');
        text
    }

    /// INVARIANT 2.
    fn complain(&self, call: &str, error: &io::Error) {
        let (path, why) = (self.path.display(), error::os_error(error));
        error::process(
            Level::Error,
            format_args!("{call}() \"{path}\" failed ({why}), quic_qlog ends there"),
        );
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
