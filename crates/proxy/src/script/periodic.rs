//! `js_periodic`: functions that run again and again, without a request.
//!
//! ```text
//! start ─► wait ─► a run begins ─► wait ─► the run before ends ─► a run begins ─► …
//! ```
//!
//! A run has a request that nobody has sent, under the settings of its location. It is a member of
//! its generation: one that is going on when a configuration is replaced comes to its end, and no
//! other begins.
//!
//! Invariant: of a line, a worker has at most one run at a time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millpond_conf::value::parse_duration;
use millpond_conf::{Contexts, Span, Statement};
use millpond_exchange::client::connection::Connection;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::main::MainSettings;
use millpond_exchange::settings::{Location, Server};
use millpond_exchange::worker::{Generation, LocalConf};
use millpond_script::Fault;
use millpond_system::address::Address;
use millpond_system::log::error::Level;
use millpond_system::{chance, clock};
use millpond_wire::http1::Method;
use tokio::task::{AbortHandle, spawn_local};

use super::host::Out;
use super::session::Session;
use super::variable::ScriptNames;
use super::{FunctionName, Scripts, tell};
use crate::log::request_error;
use crate::request::Request;

/// The time between two runs where the line says none (nginx's number).
const INTERVAL: Duration = Duration::from_secs(5);
/// The time before the first run (nginx's number).
const FIRST: Duration = Duration::from_millis(1);

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "js_periodic",
    contexts: Contexts::LOCATION.union(Contexts::STREAM_SERVER),
    syntax: "module.function [interval=time] [jitter=time] [worker_affinity=all | mask]",
    is_block: false,
    pass: Pass::First,
    doc: "Runs a function again and again, for as long as the configuration is in force; there may \
          be several. A run begins each `interval` (5 s without it) and up to `jitter` later. One \
          that still waits when the next is due is ended, and the log has it. It runs on the first \
          worker, on `all`, or on those whose digit in the mask is 1, the first worker\'s first. \
          The function gets a session with `variables` and `rawVariables`, and may wait. A run \
          that waits when the configuration is replaced or the process is told to quit comes to \
          its end within `worker_shutdown_timeout`.",
    apply,
}];

/// The lines of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks(Vec<Tick>);

/// A line.
#[derive(Clone, Debug)]
struct Tick {
    function: FunctionName,
    span: Span,
    interval: Duration,
    jitter: Duration,
    workers: Workers,
}

/// The workers on which a function runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Workers {
    First,
    All,
    /// One is chosen where its digit is true.
    Mask(Vec<bool>),
}

/// The masks of a configuration, which have as many digits as there are workers.
#[derive(Default)]
pub struct Masks(Vec<(Span, usize)>);

impl Ticks {
    /// The first function, with the place of its line.
    pub(super) fn first(&self) -> Option<(FunctionName, Span)> {
        let first = self.0.first()?;
        Some((first.function.clone(), first.span))
    }
}

impl Workers {
    fn has(&self, index: usize) -> bool {
        match self {
            Workers::First => index == 0,
            Workers::All => true,
            Workers::Mask(digits) => digits.get(index).copied().unwrap_or_default(),
        }
    }
}

fn apply(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    match read(statement) {
        Ok(tick) => {
            if let Workers::Mask(digits) = &tick.workers {
                let mask = (statement.span, digits.len());
                builder.of::<Masks>().0.push(mask);
            }
            builder.of::<ScriptNames>().has_ticks = true;
            draft.of::<Ticks>().0.push(tick);
        }
        Err(message) => builder.error(statement.span, message),
    }
}

fn read(statement: &Statement) -> Result<Tick, String> {
    let mut words = statement.args.iter().map(|word| word.text.as_str());
    let function = words.next().ok_or("method name is required")?;
    let mut tick = Tick {
        function: FunctionName::read(function)?,
        span: statement.span,
        interval: INTERVAL,
        jitter: Duration::ZERO,
        workers: Workers::First,
    };
    for word in words {
        let invalid = || format!("invalid parameter \"{word}\"");
        match word.split_once('=') {
            Some(("interval", time)) => {
                let time = parse_duration(time).filter(|time| !time.is_zero());
                tick.interval = time.ok_or_else(invalid)?;
            }
            Some(("jitter", time)) => tick.jitter = parse_duration(time).ok_or_else(invalid)?,
            Some(("worker_affinity", "all")) => tick.workers = Workers::All,
            Some(("worker_affinity", mask)) => {
                let digit = |digit: char| match digit {
                    '0' => Ok(false),
                    '1' => Ok(true),
                    _ => Err(format!(
                        "invalid character \"{digit}\" in \"worker_affinity=\""
                    )),
                };
                tick.workers = Workers::Mask(mask.chars().map(digit).collect::<Result<_, _>>()?);
            }
            _ => return Err(invalid()),
        }
    }
    Ok(tick)
}

/// Adds the masks of a walk of its own.
pub fn add_masks(builder: &mut Builder, masks: Masks) {
    builder.of::<Masks>().0.extend(masks.0);
}

/// Refuses masks that have not a digit for each worker.
pub fn check_masks(builder: &mut Builder, main: &MainSettings) {
    let count = main.process.worker_count();
    for (span, digits) in builder.take::<Masks>().0 {
        if digits != count {
            let message = "the number of \"worker_processes\" is not equal to the size of \
                           \"worker_affinity\" mask";
            builder.error(span, message);
        }
    }
}

/// Starts the functions of a generation; they end with the tasks.
pub fn start(generation: &Rc<Generation>) -> Vec<AbortHandle> {
    let confs = [Some(&generation.conf), generation.stream.as_ref()];
    let mut tasks = Vec::new();
    for conf in confs.into_iter().flatten() {
        if conf.parts.of::<ScriptNames>().has_ticks {
            start_of(generation, conf, &mut tasks);
        }
    }
    tasks
}

fn start_of(generation: &Rc<Generation>, conf: &Rc<LocalConf>, tasks: &mut Vec<AbortHandle>) {
    let mut servers: Vec<&Arc<Server>> = Vec::new();
    for binding in &conf.bindings {
        let found = binding.listens.iter();
        servers.extend(found.flat_map(|listen| listen.names.servers()));
    }
    servers.sort_by_key(|server| Arc::as_ptr(server));
    servers.dedup_by_key(|server| Arc::as_ptr(server));
    for server in servers {
        let mut start = |location: &Arc<Location>| {
            let scripts = location.parts.get::<Scripts>();
            for tick in scripts.iter().flat_map(|scripts| &scripts.ticks.0) {
                if tick.workers.has(generation.worker.index) {
                    let place = Place {
                        conf: Rc::clone(conf),
                        server: Arc::clone(server),
                        location: Arc::clone(location),
                    };
                    let kept = keep(Rc::clone(generation), place, tick.clone());
                    tasks.push(spawn_local(kept).abort_handle());
                }
            }
        };
        start(&server.location);
        server.location.children.each(&mut start);
    }
}

/// The place of a line.
struct Place {
    conf: Rc<LocalConf>,
    server: Arc<Server>,
    location: Arc<Location>,
}

/// Runs a function again and again, for as long as the task is let live.
async fn keep(generation: Rc<Generation>, place: Place, tick: Tick) {
    let most = u64::try_from(tick.jitter.as_millis()).unwrap_or(u64::MAX);
    let jitter = || Duration::from_millis(chance::below(most));
    let mut last: Option<AbortHandle> = None;
    clock::pause(FIRST + jitter()).await;
    // Ends with its task.
    loop {
        let req = request(&generation, &place);
        if let Some(last) = last.take().filter(|last| !last.is_finished()) {
            let message = format_args!(
                "js periodic \"{}\" is already running, killing previous instance",
                tick.function.0
            );
            request_error::write(&req, Level::Error, message);
            last.abort();
        }
        last = Some(begin(req, tick.function.clone()));
        clock::pause(tick.interval.saturating_add(jitter())).await;
    }
}

/// A request that nobody has sent, and nobody gets the answer of.
fn request(generation: &Rc<Generation>, place: &Place) -> Request {
    let here = || Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
    let now = clock::instant();
    let connection = Connection::new(Rc::clone(generation), 0, [here(), here()], now);
    let conf = Rc::clone(&place.conf);
    let mut req = Request::without_head(conf, Rc::new(connection), Arc::clone(&place.server));
    req.location = Arc::clone(&place.location);
    req.method = Method::Get;
    req.uri = bytes::Bytes::from_static(b"/");
    req.is_internal = true;
    req.is_background = true;
    req
}

/// Begins a run, as a member of its generation.
fn begin(mut req: Request, function: FunctionName) -> AbortHandle {
    let connection = Rc::clone(&req.client.connection);
    let generation = Rc::clone(req.generation());
    let member = generation.enter();
    let slot = member.slot();
    let running = spawn_local(async move {
        if let Err(fault) = run(&mut req, &function).await {
            tell(&req, &fault);
        }
        drop(member);
    });
    let task = running.abort_handle();
    generation.adopt(slot, (task.clone(), Rc::downgrade(&connection)));
    task
}

async fn run(req: &mut Request, function: &FunctionName) -> Result<(), Fault> {
    let location = Arc::clone(&req.location);
    let Some(scripts) = location.parts.get::<Scripts>() else {
        return Ok(());
    };
    let mut out = Out::of_tick();
    let mut session = Session::begin(req, scripts)?;
    session.tick(req, &mut out, &function.0).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_workers_by_their_digits() {
        let mask = Workers::Mask(vec![false, true, false]);
        let has = |workers: &Workers| [0, 1, 2, 3].map(|index| workers.has(index));
        assert_eq!(has(&mask), [false, true, false, false]);
        assert_eq!(has(&Workers::First), [true, false, false, false]);
        assert_eq!(has(&Workers::All), [true; 4]);
    }
}
