//! The service manager (systemd) that may have started the process: news to it, and the watchdog
//! that it wants to be fed.
//!
//! ```text
//! READY=1, MAINPID ── RELOADING=1 … READY=1 ── STATUS, WATCHDOG=1 … ── STOPPING=1
//! ```
//!
//! News are datagrams to the socket that the environment names; without one nothing is sent. While
//! the binary is changed two processes know the socket, and one of them speaks:
//!
//! 1. A process that has handed the service over says nothing more, so that its end is not taken
//!    for that of the service.
//!
//! Sending never fails a caller: a manager that cannot be told is told of in the error log.
//!
//! Does not read which sockets a manager opened; see the start of the program.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::log::error::{self, Level};

/// Pause between two reports of the status where no watchdog asks for less (arbitrary: about as
/// often as somebody looks).
const STATUS_PAUSE: Duration = Duration::from_secs(10);

/// The service manager, as the process knows it.
#[derive(Debug)]
pub struct Supervisor {
    voice: Voice,
    watchdog: Option<Duration>,
}

/// The right to speak for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    /// Nobody listens.
    NoListener,
    /// This process speaks for the service.
    Ours,
    /// A successor does.
    HandedOver,
}

/// Presence of a service manager that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The environment names a socket.
    There,
    /// The environment names none.
    Missing,
}

impl Supervisor {
    /// The manager, with the watchdog that it told of in the environment.
    pub fn new(listener: Listener) -> Self {
        match listener {
            Listener::There => Self {
                voice: Voice::Ours,
                watchdog: sd_notify::watchdog_enabled().filter(|period| !period.is_zero()),
            },
            Listener::Missing => Self {
                voice: Voice::NoListener,
                watchdog: None,
            },
        }
    }

    /// The pause between two reports of the status, half of what a watchdog allows; none if nobody
    /// wants to know.
    pub fn period(&self) -> Option<Duration> {
        let pause = self.watchdog.map_or(STATUS_PAUSE, |period| period / 2);
        (self.voice != Voice::NoListener).then(|| pause.min(STATUS_PAUSE))
    }

    /// Reports that this process serves, or serves again after a reload.
    pub fn tell_serving(&self, status: &str) {
        let id = std::process::id();
        self.tell(&[
            NotifyState::MainPid(id),
            NotifyState::Ready,
            NotifyState::Status(status),
        ]);
    }

    /// Reports that the configuration is being read again.
    pub fn tell_reloading(&self) {
        let mut news = vec![NotifyState::Reloading];
        news.extend(NotifyState::monotonic_usec_now());
        news.push(NotifyState::Status("reading the configuration"));
        self.tell(&news);
    }

    /// Reports the status, and that every worker answered.
    pub fn tell_alive(&self, status: &str) {
        self.tell(&[NotifyState::Status(status), NotifyState::Watchdog]);
    }

    /// Reports that the process is about to end.
    pub fn tell_stopping(&self) {
        let status = NotifyState::Status("finishing what is being answered");
        self.tell(&[NotifyState::Stopping, status]);
    }

    /// Names the process that the service is from now on, which speaks for itself.
    pub fn hand_over(&mut self, id: u32) {
        self.tell(&[NotifyState::MainPid(id)]);
        if self.voice == Voice::Ours {
            self.voice = Voice::HandedOver;
        }
    }

    /// Speaks again for the service, since the successor has ended.
    pub fn take_back(&mut self, status: &str) {
        if self.voice == Voice::HandedOver {
            self.voice = Voice::Ours;
            self.tell_serving(status);
        }
    }

    fn tell(&self, news: &[NotifyState<'_>]) {
        // INVARIANT 1.
        if self.voice != Voice::Ours {
            return;
        }
        if let Err(failure) = sd_notify::notify(news) {
            let reason = error::os_error(&failure);
            let message = format_args!("the service manager cannot be told ({reason})");
            error::process(Level::Warn, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor(voice: Voice, watchdog: Option<u64>) -> Supervisor {
        let watchdog = watchdog.map(Duration::from_secs);
        Supervisor { voice, watchdog }
    }

    #[test]
    fn status_is_told_twice_in_the_time_of_a_watchdog() {
        let seconds = |voice, watchdog| {
            let period = supervisor(voice, watchdog).period();
            period.map(|period| period.as_secs())
        };
        assert_eq!(seconds(Voice::NoListener, None), None);
        assert_eq!(seconds(Voice::Ours, None), Some(10));
        assert_eq!(seconds(Voice::Ours, Some(6)), Some(3));
        assert_eq!(seconds(Voice::Ours, Some(600)), Some(10));
    }

    #[test]
    fn whoever_has_handed_over_speaks_again_only_when_it_takes_back() {
        let mut ours = supervisor(Voice::Ours, None);
        ours.hand_over(4711);
        assert_eq!(ours.voice, Voice::HandedOver);
        ours.take_back("serving");
        assert_eq!(ours.voice, Voice::Ours);
        let mut nobody = supervisor(Voice::NoListener, None);
        nobody.hand_over(4711);
        nobody.take_back("serving");
        assert_eq!(nobody.voice, Voice::NoListener);
    }
}
