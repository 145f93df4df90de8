//! Signals: which there are, what they mean, and waiting for the next one.
//!
//! | signal | `-s` | meaning |
//! |---|---|---|
//! | QUIT | quit | stop accepting, close idle connections, finish requests, end |
//! | TERM, INT | stop | end now |
//! | HUP | reload | read the configuration again (`reload.rs`) |
//! | USR1 | reopen | open the logs again, after they were renamed |
//! | WINCH | | stop accepting and let requests end, go on waiting for signals; only in the background |
//! | USR2 | | change the binary (`server/successor.rs`) |
//! | CHLD | | the new binary has ended |
//! | XFSZ | | nothing: a file has reached `ulimit -f`, and the call that met the limit says so |
//!
//! How the end proceeds stands in `server.rs` and `server/thread.rs`.

use std::io;
use std::task::{Context, Poll};

use tokio::signal::unix::{self, SignalKind};

/// The action that a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Read the configuration again.
    Reload,
    /// Open the logs again.
    Reopen,
    /// Accept nothing more.
    CloseListeners,
    /// Change the binary.
    Upgrade,
    /// A process that we started has ended.
    ChildEnded,
    /// End gracefully.
    Quit,
    /// End now.
    Stop,
}

impl Signal {
    /// Number and name, for the log.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Reload => "1 (SIGHUP)",
            Signal::Reopen => "10 (SIGUSR1)",
            Signal::CloseListeners => "28 (SIGWINCH)",
            Signal::Upgrade => "12 (SIGUSR2)",
            Signal::ChildEnded => "17 (SIGCHLD)",
            Signal::Quit => "3 (SIGQUIT)",
            Signal::Stop => "15 (SIGTERM)",
        }
    }
}

/// The signals of this process.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// The signal of files that are too long: caught, so that it does not end the process; nobody
    /// waits for it.
    _file_too_long: unix::Signal,
}

impl Signals {
    /// Begins to catch signals; must be called inside a runtime.
    pub fn new() -> io::Result<Signals> {
        let kinds = [
            (Signal::Stop, SignalKind::terminate()),
            (Signal::Stop, SignalKind::interrupt()),
            (Signal::Quit, SignalKind::quit()),
            (Signal::Reload, SignalKind::hangup()),
            (Signal::Reopen, SignalKind::user_defined1()),
            (Signal::Upgrade, SignalKind::user_defined2()),
            (Signal::CloseListeners, SignalKind::window_change()),
            (Signal::ChildEnded, SignalKind::child()),
        ];
        let mut streams = Vec::new();
        for (signal, kind) in kinds {
            streams.push((signal, unix::signal(kind)?));
        }
        let too_long = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        Ok(Signals {
            streams,
            _file_too_long: unix::signal(too_long)?,
        })
    }

    /// Waits for the next one; of several that wait, the one that ends soonest.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.streams {
            if stream.poll_recv(cx).is_ready() {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}
