//! `cache_events_log`: what happens to entries, as lines of a file.
//!
//! A line is what a reader of events is told ([`events`]): an object in JSON. A thread reads the
//! events as any other reader does, and writes them: nobody else waits for the file.
//!
//! 1. A reload changes the zones and the file that are written, and loses no event of a zone that
//!    stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use millpond_cache::watch::{Queue, Watch};
use millpond_conf::{Contexts, Statement};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::Conf;
use millpond_exchange::settings::declared::Declared;
use millpond_proxy::cache::zones::Zones;
use millpond_system::log::error::{self, Level};
use millpond_system::log::file::LogFile;

use super::{events, report};

/// Time between two looks at whether it is over.
const LOOK: Duration = Duration::from_secs(1);

/// The row.
pub(crate) const ROWS: &[Row] = &[Row {
    name: "cache_events_log",
    contexts: Contexts::HTTP,
    syntax: "path | off",
    is_block: false,
    pass: Pass::First,
    doc: "The file in which a line tells of each entry that is stored, freshened, replaced, \
          evicted, removed, swept for want of use, and of each purge, of all zones: the objects in \
          JSON that `/millpond/1/events` of the API has. Lines that the disk is too slow for are \
          left out, as those of other logs. Without the directive, or with `off`, nothing is \
          written.",
    apply: cache_events_log,
}];

fn cache_events_log(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [word] = statement.args.as_slice() else {
        let message = "invalid number of arguments in \"cache_events_log\" directive";
        return builder.error(statement.span, message);
    };
    if builder.of::<Declared>().events_log.is_some() {
        let message = "\"cache_events_log\" directive is duplicate";
        return builder.error(statement.span, message);
    }
    if word.text != "off" {
        let path = builder.cx.prefix.join(&word.text);
        builder.of::<Declared>().events_log = Some(LogFile::at(&path));
    }
}

/// The log of a process, as far as a configuration wants one.
#[derive(Debug, Default)]
pub(super) struct EventsLog(Option<Running>);

impl EventsLog {
    /// Writes the events of the zones from now on as a configuration says.
    pub(super) fn serve(&mut self, conf: &Conf) {
        let Some(file) = &conf.declared.events_log else {
            self.0 = None;
            return;
        };
        let zones = conf.parts.of::<Zones>();
        let declared = conf.declared.zones.iter();
        let zones = declared.filter_map(|it| zones.get(it.name.as_bytes()));
        let watches = zones.map(|zone| Arc::clone(&zone.watch)).collect();
        let running = self.0.get_or_insert_with(|| Running::start(file));
        running.file.store(Arc::clone(file));
        running.watch(watches);
    }

    /// Writes nothing more.
    pub(super) fn stop(&mut self) {
        self.0 = None;
    }
}

/// A thread that writes.
#[derive(Debug)]
struct Running {
    queue: Arc<Queue>,
    watches: Vec<Arc<Watch>>,
    file: Arc<ArcSwap<LogFile>>,
    is_over: Arc<AtomicBool>,
}

impl Running {
    fn start(file: &Arc<LogFile>) -> Running {
        let running = Running {
            queue: Arc::default(),
            watches: Vec::new(),
            file: Arc::new(ArcSwap::new(Arc::clone(file))),
            is_over: Arc::default(),
        };
        let (queue, file) = (Arc::clone(&running.queue), Arc::clone(&running.file));
        let is_over = Arc::clone(&running.is_over);
        let thread = std::thread::Builder::new().name("events".to_string());
        if let Err(failure) = thread.spawn(move || write(&queue, &file, &is_over)) {
            let message = format_args!("no thread for \"cache_events_log\": {failure}");
            error::process(Level::Alert, message);
        }
        running
    }

    /// Watches these from now on. INVARIANT 1.
    fn watch(&mut self, watches: Vec<Arc<Watch>>) {
        for gone in self.watches.iter().filter(|it| !has(&watches, it)) {
            gone.leave(&self.queue);
        }
        let known = std::mem::take(&mut self.watches);
        let is_told = |it: &Arc<Watch>| has(&known, it) || it.join(&self.queue);
        self.watches = watches.into_iter().filter(is_told).collect();
    }
}

fn has(list: &[Arc<Watch>], one: &Arc<Watch>) -> bool {
    list.iter().any(|it| Arc::ptr_eq(it, one))
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watches.iter().for_each(|it| it.leave(&self.queue));
        self.is_over.store(true, Ordering::Release);
    }
}

/// Writes until it is over, and what is left then.
fn write(queue: &Queue, file: &ArcSwap<LogFile>, is_over: &AtomicBool) {
    loop {
        let was_over = is_over.load(Ordering::Acquire);
        let taken = queue.take(if was_over { Duration::ZERO } else { LOOK });
        let reports = taken.events.iter().map(events::report_of);
        for report in reports.chain(events::missed(taken.lost)) {
            let line = report::line(&report) + "\n";
            file.load().write(line.as_bytes(), 1);
        }
        if was_over {
            return;
        }
    }
}
