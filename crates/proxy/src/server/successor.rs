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
//!
//! Invariants:
//! 1. There is at most one successor.
//! 2. A successor that ends, in whatever way, brings us back: pid file, caches, connections.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as Pair;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use tokio::net::UnixStream;

/// The variable that lists the inherited sockets, `fd;fd;`, as nginx has it: either program can
/// take over from the other.
pub const SOCKETS: &str = "NGINX";
/// The variable that names the descriptor of the channel.
pub const CHANNEL: &str = "MILLPOND_UPGRADE";

/// The variable that names the descriptor of the control socket.
pub const CONTROL: &str = "MILLPOND_CONTROL";

/// The caches are wanted, or free.
pub(super) const STORE: u8 = b'C';
/// The successor serves.
pub(super) const SERVING: u8 = b'S';

/// How the program is started again.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// What a successor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It is about to open the caches.
    WantsStore,
    /// It serves.
    Serves,
}

/// The process that takes over.
#[derive(Debug)]
pub struct Successor {
    child: Child,
    /// `None` once the other end is closed.
    channel: Option<UnixStream>,
}

impl Successor {
    /// Starts it with copies of these sockets, and of the control socket.
    pub fn start(
        program: &Program,
        sockets: Vec<OwnedFd>,
        control: Option<OwnedFd>,
    ) -> io::Result<Successor> {
        let (ours, theirs) = Pair::pair()?;
        ours.set_nonblocking(true)?;
        let channel = UnixStream::from_std(ours)?;
        let theirs = OwnedFd::from(theirs);
        let mut list = String::new();
        for socket in &sockets {
            // Nothing else starts processes here, so nobody else inherits them.
            fcntl_setfd(socket, FdFlags::empty())?;
            list.push_str(&format!("{};", socket.as_raw_fd()));
        }
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .env(SOCKETS, list)
            .env(CHANNEL, theirs.as_raw_fd().to_string())
            .env_remove(CONTROL)
            .stdin(Stdio::null());
        if let Some(control) = &control {
            fcntl_setfd(control, FdFlags::empty())?;
            command.env(CONTROL, control.as_raw_fd().to_string());
        }
        let child = command.spawn()?;
        Ok(Successor {
            child,
            channel: Some(channel),
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for what it says; for ever, once it can say nothing more.
    pub async fn news(&mut self) -> News {
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
                _ => self.channel = None,
            }
        }
        std::future::pending().await
    }

    /// Tells it that the caches are free.
    pub fn give_store(&mut self) {
        if let Some(channel) = &self.channel {
            // One that is gone needs no answer; the channel has room for a byte.
            let _ = channel.try_write(&[STORE]);
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

/// What `successor` says; for ever silent if there is none.
pub async fn news_of(successor: &mut Option<Successor>) -> News {
    match successor {
        Some(successor) => successor.news().await,
        None => std::future::pending().await,
    }
}
