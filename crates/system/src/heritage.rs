//! Heritage of a successor: how the program is started again, and what it gets from the old
//! process.
//!
//! The new process finds the listening sockets, its end of the channel and the control socket by
//! the numbers of their descriptors, which are told in variables of its environment. It is started
//! by the server itself or, where it is to be root, by the root helper. What the two then say to
//! each other is in `server/successor.rs` and `server/predecessor.rs`.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};

/// The variable that lists the inherited sockets, `fd;fd;`, as nginx has it: either program can
/// take over from the other.
pub const SOCKETS: &str = "NGINX";
/// The variable that names the descriptor of the channel.
pub const CHANNEL: &str = "MILLPOND_UPGRADE";

/// The variable that names the descriptor of the control socket.
pub const CONTROL: &str = "MILLPOND_CONTROL";

/// The variable that says that the kernel binds the old process (`landlock`), and so the new one.
pub const CONFINED: &str = "MILLPOND_CONFINED";

/// The way in which the program is started again.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The folder that relative names in them start at, once the process has left it.
    pub folder: Option<PathBuf>,
    /// True if the kernel binds this process, and all that it starts, to the files of `landlock`.
    pub is_confined: bool,
}

/// Things that the new process gets from the old one.
#[derive(Debug)]
pub struct Heritage {
    /// The listening sockets.
    pub sockets: Vec<OwnedFd>,
    /// The control socket.
    pub control: Option<OwnedFd>,
    /// Its end of the channel.
    pub channel: OwnedFd,
}

impl Heritage {
    /// Starts the program with it.
    pub fn start(&self, program: &Program) -> io::Result<Child> {
        let mut list = String::new();
        for socket in &self.sockets {
            // Nothing else starts processes here, so nobody else inherits them.
            fcntl_setfd(socket, FdFlags::empty())?;
            list.push_str(&format!("{};", socket.as_raw_fd()));
        }
        fcntl_setfd(&self.channel, FdFlags::empty())?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .env(SOCKETS, list)
            .env(CHANNEL, self.channel.as_raw_fd().to_string())
            .env_remove(CONTROL)
            .env_remove(CONFINED)
            // They are about this process, by its id; the new one is fed and watched like it.
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .stdin(Stdio::null());
        if program.is_confined {
            command.env(CONFINED, "1");
        }
        if let Some(folder) = &program.folder {
            command.current_dir(folder);
        }
        if let Some(control) = &self.control {
            fcntl_setfd(control, FdFlags::empty())?;
            command.env(CONTROL, control.as_raw_fd().to_string());
        }
        command.spawn()
    }
}
