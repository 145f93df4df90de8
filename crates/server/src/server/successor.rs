//! Changing the binary, as seen by the process that is running.
//!
//! USR2 starts the program again with our listening sockets and one end of a channel. Both
//! processes have the sockets from then on, so no connection is refused whoever ends.
//!
//! ```text
//! we:         start it ─────────► lend the caches ───────────► accept no more ───► QUIT
//!                │                 ▲ C          │ C            ▲ S
//! successor:     └─► read, bind ───┘            └─► open them ─┴─► serve ───────────►
//!
//! it ends, wherever it is ───► we take the caches back, and accept
//! ```
//!
//! | byte | from | meaning |
//! |---|---|---|
//! | `C` | successor | it is about to open the caches |
//! | `C` | us | the caches are free; sent unasked when we end |
//! | `S` | successor | it serves |
//! | `I` | us | a record follows: what a request that ended here has made invalid (`handed.rs`) |
//!
//! Invariants:
//! 1. There is at most one successor.
//! 2. A successor that ends, in whatever way, brings us back: pid file, caches, connections.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Pair;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use millpond_system::heritage::{Heritage, Program};
use millpond_system::root_helper;
use tokio::net::UnixStream;

/// The caches are wanted, or free.
pub(super) const STORE: u8 = b'C';
/// The successor serves.
pub(super) const SERVING: u8 = b'S';

/// The news from a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The successor is about to open the caches.
    WantsStore,
    /// The successor serves.
    Serves,
    /// The successor has ended, or is about to; only of one that the root helper started.
    Ended,
}

/// The process that takes over.
#[derive(Debug)]
pub(crate) struct Successor {
    process: NewProcess,
    /// `None` once the other end is closed.
    channel: Option<UnixStream>,
    /// True once it was told that the caches are free: that is not said again among records.
    has_store: bool,
}

/// The new process, by whose child it is, who is told of its end.
#[derive(Debug)]
enum NewProcess {
    /// Ours.
    Own(Child),
    /// A child of the root helper; its end shows by that of the channel.
    OfRootHelper(u32),
}

impl Successor {
    /// Starts a successor with copies of these sockets, and of the control socket; as root, if the
    /// process has a root helper.
    pub(crate) fn start(
        program: &Program,
        sockets: Vec<OwnedFd>,
        control: Option<OwnedFd>,
    ) -> io::Result<Successor> {
        let (ours, theirs) = Pair::pair()?;
        ours.set_nonblocking(true)?;
        let channel = Some(UnixStream::from_std(ours)?);
        let heritage = Heritage {
            sockets,
            control,
            channel: theirs.into(),
        };
        let process = match root_helper::start_successor(&heritage) {
            Some(id) => NewProcess::OfRootHelper(id?),
            None => NewProcess::Own(heritage.start(program)?),
        };
        Ok(Successor {
            process,
            channel,
            has_store: false,
        })
    }

    /// The process id of the successor.
    pub(crate) fn id(&self) -> u32 {
        match &self.process {
            NewProcess::Own(child) => child.id(),
            NewProcess::OfRootHelper(id) => *id,
        }
    }

    /// Waits for what the successor says; for ever, once the successor can say nothing more.
    pub(crate) async fn news(&mut self) -> News {
        while let Some(channel) = &self.channel {
            let mut byte = [0; 1];
            // Readiness may be false, so nothing follows from it alone.
            let read = match channel.readable().await {
                Ok(()) => channel.try_read(&mut byte),
                Err(error) => Err(error),
            };
            match (read, byte) {
                (Ok(1), [STORE]) => return News::WantsStore,
                (Ok(1), [SERVING]) => return News::Serves,
                (Ok(1), _) => {}
                (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => {
                    self.channel = None;
                    if matches!(self.process, NewProcess::OfRootHelper(_)) {
                        return News::Ended;
                    }
                }
            }
        }
        std::future::pending().await
    }

    /// Sends the successor the news that the caches are free.
    pub(crate) fn give_store(&mut self) {
        if std::mem::replace(&mut self.has_store, true) {
            return;
        }
        if let Some(channel) = &self.channel {
            // One that is gone needs no answer; the channel has room for a byte.
            let _ = channel.try_write(&[STORE]);
        }
    }

    /// Another descriptor of our end of the channel.
    pub(crate) fn share_channel(&self) -> Option<OwnedFd> {
        let channel = self.channel.as_ref()?;
        channel.as_fd().try_clone_to_owned().ok()
    }

    /// The status with which the successor ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.process {
            NewProcess::Own(child) => child.try_wait().ok().flatten(),
            NewProcess::OfRootHelper(_) if self.channel.is_some() => None,
            NewProcess::OfRootHelper(_) => {
                let status = root_helper::successor_ended()?.ok()?;
                Some(ExitStatus::from_raw(status.cast_signed()))
            }
        }
    }
}

/// Waits for the news of `successor`; for ever if there is none.
pub(crate) async fn news_of(successor: &mut Option<Successor>) -> News {
    match successor {
        Some(successor) => successor.news().await,
        None => std::future::pending().await,
    }
}
