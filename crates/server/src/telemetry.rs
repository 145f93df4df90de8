//! `otel_metrics`, `otel_logs`: records that a collector gets beside spans.
//!
//! ```text
//! beside the main thread, each so often: all metrics ─► exporter of metrics
//! whoever logs: line with its facts ─► listener ─► exporter of lines
//! ```
//!
//! Invariant: without these directives nothing is read and nobody listens.

use std::sync::{Arc, Weak};
use std::time::Duration;

use millpond_conf::value::Words as _;
use millpond_exchange::settings::Conf;
use millpond_exchange::worker::Shared;
use millpond_otlp::Exporter;
use millpond_otlp::exporter::Process;
use millpond_otlp::line::Line;
use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_system::log::journal::{Facts as EventFacts, Kept};
use millpond_system::log::listener::{self, Hear};
use tokio::task::AbortHandle;

use crate::metrics::facts::Facts;
use crate::metrics::{SITES_DEFAULT, points};

/// The begin of the names of facts in the journal.
const FACT: &str = "MILLPOND_";

/// The one who hears lines for a collector.
struct Ear {
    exporter: Arc<Exporter>,
    process: Process,
}

impl Hear for Ear {
    fn hear(&self, level: Level, message: &[u8], facts: &dyn EventFacts) {
        let mut line = Line::new(clock::now_us(), (severity(level), level.word()), message);
        for (name, value) in Kept::of(facts).fields() {
            let name = name.strip_prefix(FACT).unwrap_or(name).to_ascii_lowercase();
            line.text(&format!("millpond.{name}"), value);
        }
        self.exporter.add(line.finish(), &self.process);
    }
}

/// The numbers of severities, as OpenTelemetry's data model maps those of syslog.
const SEVERITIES: [u8; 8] = [21, 19, 18, 17, 13, 10, 9, 5];

fn severity(level: Level) -> u8 {
    SEVERITIES.get(level as usize).copied().unwrap_or_default()
}

fn process(conf: &Conf, shared: &Shared) -> Process {
    Process {
        among: shared.guests.of(),
        workers: conf.main.process.worker_count(),
    }
}

/// Sends the lines of a configuration from now on, if it asks for that, and the metrics until the
/// outcome is aborted.
pub(crate) fn follow(conf: &Arc<Conf>, shared: &Arc<Shared>) -> Option<AbortHandle> {
    let telemetry = &conf.declared.telemetry;
    listener::set(telemetry.logs.as_ref().map(|(exporter, level)| {
        let ear = Ear {
            exporter: Arc::clone(exporter),
            process: process(conf, shared),
        };
        (*level, Box::new(ear) as Box<dyn Hear>)
    }));
    let (_, every) = telemetry.metrics.as_ref()?;
    let keeping = keep(Arc::downgrade(conf), Arc::clone(shared), *every);
    Some(tokio::spawn(keeping).abort_handle())
}

async fn keep(conf: Weak<Conf>, shared: Arc<Shared>, every: Duration) {
    loop {
        clock::pause(every).await;
        let Some(conf) = conf.upgrade() else {
            return;
        };
        let shared = Arc::clone(&shared);
        // One that panics is told by the hook, and costs one reading.
        let _ = tokio::task::spawn_blocking(move || send_metrics(&conf, &shared)).await;
    }
}

/// Sends all metrics of a configuration that asks for it, once.
pub(crate) fn send_metrics(conf: &Conf, shared: &Shared) {
    let Some((exporter, _)) = &conf.declared.telemetry.metrics else {
        return;
    };
    let process = process(conf, shared);
    let facts = Facts::read(conf, shared, SITES_DEFAULT);
    for record in points::records(&facts, clock::now_us()) {
        exporter.add(record, &process);
    }
}
