//! `control`: a Unix socket on which a running process is asked and told things, by
//! `millpond cache` and by whoever speaks HTTP.
//!
//! ```text
//! millpond cache …, curl --unix-socket ──► socket.rs ──► connection.rs ──► api.rs ──► report.rs
//!                                          (main thread)  (a thread each)
//! millpond cache …, no process ────────── rest.rs ─────────────────────────► api.rs
//! ```
//!
//! The process answers HTTP/1.1 with JSON below [`api::PREFIX`]. Connections are accepted on the
//! main thread, which only waits for signals, and each is served by a thread of its own, so that a
//! long list keeps no worker and no other connection waiting.
//!
//! Who may: the file has mode 0600 and belongs to the user of the process, so the kernel lets in
//! that user and root. Nobody's name is asked beyond that.
//!
//! 1. Nothing but this file's mode guards the socket, so it is never open wider, not for a moment:
//!    it has its mode before it listens.
//! 2. Only who has the caches accepts; while the binary is changed both processes have the socket.
//! 3. A socket of another process that lives is not replaced, and a file that is no socket never.
//! 4. At most `CONNECTIONS_MAX` connections are served at once.
//!
//! What it does not do: TCP, TLS, passwords.

use millpond_exchange::settings::Conf;
use millpond_exchange::settings::main::SocketPath;
use millpond_exchange::worker::Shared;
use millpond_proxy::cache::zones::Zones;
use millpond_system::clock;
use millpond_system::log::error::{self, Level};

pub mod api;
mod connection;
#[cfg(test)]
mod document;
pub mod events;
pub(crate) mod events_log;
pub mod fleet;
mod fleet_list;
pub(crate) mod foreign;
pub mod health;
pub mod holdings;
pub(crate) mod lines;
pub mod peers;
pub(crate) mod plus;
pub mod query;
pub mod reload;
pub mod report;
pub mod rest;
mod socket;
pub mod tiers;
pub mod warm;
pub mod why;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use millpond_conf::OffOr;
use millpond_fleet::ask::Catalogue;
use tokio::net::UnixListener;
use tokio::task::AbortHandle;

pub use socket::{ControlError, ControlSocket};

use crate::sockets::{Inherited, SocketFiles};
use events_log::EventsLog;
use fleet_list::OwnZones;

use api::{Answer, Ask, Scene, SceneZone, ServerFacts, Standing};

/// Connections at once; a few people and a few scripts.
const CONNECTIONS_MAX: usize = 16;
/// Wait after an accept that failed for want of descriptors, as of the other listeners.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Ending of the pid file's name, and the one that takes its place.
const PID_ENDING: &str = "pid";
const ENDING: &str = "control";

/// Place that a configuration wants for the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nowhere.
    Off,
    /// Here; without it the process does not start.
    Named(PathBuf),
    /// Here, since nothing is said; the process does without if it must.
    BesidePid(PathBuf),
}

impl Wanted {
    /// Returns the place that a configuration wants; relative paths start at `prefix`.
    pub fn of(conf: &Conf, prefix: &Path) -> Wanted {
        match &conf.main.control.socket {
            Some(OffOr::Off) => Wanted::Off,
            Some(OffOr::On(SocketPath(path))) => Wanted::Named(path.clone()),
            None => Wanted::BesidePid(beside(&prefix.join(&conf.main.process.pid))),
        }
    }

    /// The path, if there is to be one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Wanted::Off => None,
            Wanted::Named(path) | Wanted::BesidePid(path) => Some(path),
        }
    }
}

fn beside(pid: &Path) -> PathBuf {
    if pid.extension().is_some_and(|it| it == PID_ENDING) {
        pid.with_extension(ENDING)
    } else {
        let mut name = pid.as_os_str().to_owned();
        name.push(".");
        name.push(ENDING);
        name.into()
    }
}

/// Source from which connections are answered.
#[derive(Debug, Default)]
struct Source {
    conf: ArcSwapOption<Conf>,
    shared: ArcSwapOption<Shared>,
    connections: AtomicUsize,
}

impl Source {
    fn scene(&self) -> Scene {
        let (conf, shared) = (self.conf.load_full(), self.shared.load_full());
        scene(conf.as_ref(), shared.as_ref(), "by the control socket")
    }

    fn answer(&self, ask: &Ask) -> Answer {
        let shared = self.shared.load_full();
        reload::answer(ask, shared.as_deref()).unwrap_or_else(|| api::answer(&self.scene(), ask))
    }
}

/// Scene of a process that serves, and the client that asks, for the record.
pub fn scene(conf: Option<&Arc<Conf>>, shared: Option<&Arc<Shared>>, by: &str) -> Scene {
    let declared = conf.into_iter().flat_map(|conf| {
        let zones = conf.declared.zones.iter();
        zones.filter_map(|it| Some((it, conf.parts.of::<Zones>().get(it.name.as_bytes())?)))
    });
    let zones = declared.map(|(declared, zone)| SceneZone {
        declared: declared.clone(),
        zone: Arc::clone(zone),
    });
    Scene {
        zones: zones.collect(),
        standing: Standing::Running(ServerFacts {
            pid: std::process::id(),
            conf: conf.map(Arc::clone),
            shared: shared.map(Arc::clone),
            answers: shared.map(|it| it.cache.snapshot()).unwrap_or_default(),
            by: by.to_string(),
        }),
    }
}

/// The control socket of a process.
#[derive(Debug, Default)]
pub struct Control {
    socket: Option<ControlSocket>,
    accepting: Option<AbortHandle>,
    source: Arc<Source>,
    events_log: EventsLog,
}

impl Control {
    /// Takes the socket that a predecessor left, or binds one, or none, as is wanted.
    pub fn open(
        &self,
        wanted: &Wanted,
        inherited: Option<Inherited>,
    ) -> Result<Option<ControlSocket>, ControlError> {
        let Some(path) = wanted.path() else {
            return Ok(None);
        };
        if let Some(socket) = self.socket.as_ref().filter(|it| it.path() == path) {
            return socket.try_clone().map(Some);
        }
        if let Some(socket) = inherited.and_then(|it| ControlSocket::inherit(it, path)) {
            return Ok(Some(socket));
        }
        match (ControlSocket::bind_anywhere(path), wanted) {
            (Ok(socket), _) => Ok(Some(socket)),
            (Err(failure), Wanted::BesidePid(_)) => {
                let message = format_args!("{failure}; there is no control socket");
                error::process(Level::Warn, message);
                Ok(None)
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Takes a socket into use in place of the one that there is.
    pub fn adopt(&mut self, socket: Option<ControlSocket>, files: SocketFiles) {
        let old = std::mem::replace(&mut self.socket, socket);
        let path = self.socket.as_ref().map(ControlSocket::path);
        if let Some(old) = old.filter(|old| Some(old.path()) != path) {
            old.close(files);
        }
    }

    /// Lists of what the process has, for other nodes of its fleets; of nothing before it serves.
    pub fn catalogue(&self) -> Arc<dyn Catalogue> {
        Arc::new(OwnZones(Arc::downgrade(&self.source)))
    }

    /// Path of the socket.
    pub fn path(&self) -> Option<&Path> {
        self.socket.as_ref().map(ControlSocket::path)
    }

    /// The socket for a successor.
    pub fn share(&self) -> Option<ControlSocket> {
        self.socket.as_ref()?.try_clone().ok()
    }

    /// Answers from now on from this configuration; to be called on the event loop.
    pub fn serve(&mut self, conf: &Arc<Conf>, shared: &Arc<Shared>) {
        self.source.conf.store(Some(Arc::clone(conf)));
        self.source.shared.store(Some(Arc::clone(shared)));
        self.events_log.serve(conf);
        self.stop_accepting();
        let Some(socket) = &self.socket else { return };
        match socket.listener().and_then(UnixListener::from_std) {
            Ok(listener) => {
                let accepting = accept(listener, Arc::clone(&self.source));
                self.accepting = Some(tokio::spawn(accepting).abort_handle());
            }
            Err(failure) => error::process(
                Level::Alert,
                format_args!("control socket: {}", error::os_error(&failure)),
            ),
        }
    }

    /// Accepts nothing more, and lets the caches go: somebody else has them.
    pub fn pause(&mut self) {
        self.stop_accepting();
        self.events_log.stop();
        self.source.conf.store(None);
    }

    /// Closes it at the end of the process.
    pub fn close(&mut self, files: SocketFiles) {
        self.pause();
        if let Some(socket) = self.socket.take() {
            socket.close(files);
        }
    }

    fn stop_accepting(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }
}

async fn accept(listener: UnixListener, source: Arc<Source>) {
    loop {
        let accepted = listener.accept().await;
        let stream = accepted.and_then(|(stream, _)| stream.into_std());
        let Ok(stream) = stream else {
            clock::pause(ACCEPT_PAUSE).await;
            continue;
        };
        // INVARIANT 4.
        let place = Place::take(&source);
        let serve = move || match place {
            Some(place) => connection::serve(&stream, &|ask| place.0.answer(ask)),
            None => connection::refuse(&stream),
        };
        let thread = std::thread::Builder::new().name("control".to_string());
        // Without a thread the connection closes, and the other side sees that.
        let _ = thread.spawn(serve);
    }
}

/// One of the connections that may be.
struct Place(Arc<Source>);

impl Place {
    fn take(source: &Arc<Source>) -> Option<Place> {
        let before = source.connections.fetch_add(1, Ordering::AcqRel);
        // Dropped again, it is given back.
        Some(Place(Arc::clone(source))).filter(|_| before < CONNECTIONS_MAX)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_the_socket_stands_beside_the_pid_file() {
        for (pid, expected) in [
            ("/run/millpond.pid", "/run/millpond.control"),
            ("/run/millpond", "/run/millpond.control"),
            ("/x.d/nginx", "/x.d/nginx.control"),
            ("/run/a.b.pid", "/run/a.b.control"),
        ] {
            assert_eq!(beside(Path::new(pid)), Path::new(expected), "{pid}");
        }
    }

    #[test]
    fn places_are_few_and_given_back() {
        let source = Arc::<Source>::default();
        let mut places: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| Place::take(&source).expect("a place"))
            .collect();
        assert!(Place::take(&source).is_none());
        assert!(Place::take(&source).is_none());
        places.pop();
        assert!(Place::take(&source).is_some());
    }
}
