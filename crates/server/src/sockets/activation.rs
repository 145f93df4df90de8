//! Socket activation: listening sockets that a service manager opened before it started the
//! process, and their use for the addresses of `listen`.
//!
//! They are descriptors from 3 on (sd_listen_fds(3)). Each serves the `listen` with its
//! address, word for word; workers share it where no second socket may be bound beside it. The
//! file of a Unix socket is the manager's, and stays when the process ends.
//!
//! What it does not do: names of sockets (LISTEN_FDNAMES) mean nothing, addresses do.

use std::os::fd::RawFd;

use millpond_exchange::settings::Conf;
use millpond_system::log::error::{self, Level};

use super::{Inherited, SocketFiles, inherited};

/// The first descriptor (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;

/// Takes the sockets that a service manager left. To be called once, before any other descriptor is
/// opened.
pub fn take(count: u16) -> Vec<Inherited> {
    let mut sockets = Vec::new();
    for number in (FIRST..).take(usize::from(count)) {
        match inherited::any(number) {
            Some((address, is_udp, fd)) => sockets.push(Inherited {
                address,
                is_udp,
                fd,
                file: SocketFiles::Shared,
            }),
            None => {
                let message = "of the service manager is not a listening socket, ignored";
                error::process(Level::Warn, format_args!("descriptor {number} {message}"));
            }
        }
    }
    sockets
}

/// Warns of sockets that no `listen` names, which are closed.
pub fn warn_of_unused(sockets: &[Inherited], conf: &Conf) {
    let bindings = conf.sockets();
    let is_used = |socket: &&Inherited| {
        let (address, is_udp) = (&socket.address, socket.is_udp);
        let mut bindings = bindings.iter();
        !bindings.any(|it| it.bound == *address && it.is_udp == is_udp)
    };
    for socket in sockets.iter().filter(is_used) {
        let address = &socket.address;
        let message = format_args!("no \"listen\" names the service manager's socket {address}");
        error::process(Level::Warn, message);
    }
}
