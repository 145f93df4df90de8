//! Changing the binary, as seen by the process that takes over (`successor.rs` has the other side).
//!
//! The predecessor may be nginx: it hands over its sockets in the same way, and has no channel.
//!
//! Invariants:
//! 1. The caches are opened only after the predecessor let them go, or is gone.
//! 2. As long as the predecessor lives, files of Unix sockets are left to it.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use millpond_exchange::worker::Shared;
use millpond_system::address::Address;
use millpond_system::log::error::{self, Level};
use rustix::process::{Pid, getppid};

use super::handed;
use super::successor::{SERVING, STORE};
use crate::sockets::{Inherited, SocketFiles, inherited};

/// The longest time that the predecessor may take to write its caches down. Arbitrary: thirty times
/// what it takes on a disk that works.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process that started this one in its place.
#[derive(Debug, Default)]
pub struct Predecessor {
    id: Option<Pid>,
    channel: Option<UnixStream>,
    control: Option<Inherited>,
    packets: Option<UnixDatagram>,
}

impl Predecessor {
    /// Takes what a predecessor left, as its variables say: the sockets as `fd;fd;`, and the
    /// descriptors of the channel and of the control socket. To be called once, before any other
    /// descriptor is opened.
    pub fn inherit(
        sockets: &str,
        (channel, control): (Option<&str>, Option<&str>),
    ) -> (Predecessor, Vec<Inherited>) {
        let notice = format_args!("using inherited sockets from \"{sockets}\"");
        error::process(Level::Notice, notice);
        let words = sockets.split([';', ':']).filter(|word| !word.is_empty());
        let (mut sockets, mut packets) = (Vec::new(), None);
        for word in words {
            let number = word.parse().ok();
            if let Some(way) = number.and_then(inherited::packets) {
                packets = Some(way);
                continue;
            }
            match number.and_then(inherited::any) {
                Some((address, is_udp, fd)) => sockets.push(Inherited {
                    is_udp,
                    ..of_predecessor(address, fd)
                }),
                None => error::process(
                    Level::Emerg,
                    format_args!("invalid socket number \"{word}\" is inherited, ignored"),
                ),
            }
        }
        let channel = channel
            .and_then(|word| word.parse().ok())
            .and_then(inherited::stream)
            .map(OwnedFd::into);
        let control = control
            .and_then(|word| word.parse().ok())
            .and_then(inherited::listener)
            .map(|(address, fd)| of_predecessor(address, fd));
        let predecessor = Predecessor {
            id: getppid(),
            channel,
            control,
            packets,
        };
        (predecessor, sockets)
    }

    /// The predecessor's control socket, once.
    pub fn take_control(&mut self) -> Option<Inherited> {
        self.control.take()
    }

    /// The way of packets of QUIC that are the predecessor's, or ours, once.
    pub(super) fn take_packets(&mut self) -> Option<UnixDatagram> {
        self.packets.take()
    }

    /// True if there is a predecessor and it lives.
    pub fn is_alive(&self) -> bool {
        // Whoever loses its parent gets another one.
        self.id.is_some() && getppid() == self.id
    }

    /// True if this process was started by a predecessor.
    pub fn is_there(&self) -> bool {
        self.id.is_some()
    }

    /// Waits until the caches are free.
    pub fn wait_for_store(&mut self) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        let mut byte = [0; 1];
        let asked = channel
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| channel.write_all(&[STORE]))
            .and_then(|()| channel.read(&mut byte));
        if let Err(failure) = asked {
            // Opening them will tell whether that matters.
            let reason = error::os_error(&failure);
            error::process(
                Level::Warn,
                format_args!("no answer from the old process ({reason})"),
            );
        }
    }

    /// Sends the predecessor the news that this process serves, and listens to what it says from
    /// then on.
    pub fn tell_serving(&mut self, shared: &Arc<Shared>) {
        if let Some(mut channel) = self.channel.take() {
            // One that is gone need not know.
            let _ = channel.write_all(&[SERVING]);
            if let Err(failure) = handed::hear(shared, channel) {
                handed::tell_deaf(&failure);
            }
        }
    }
}

fn of_predecessor(address: Address, fd: OwnedFd) -> Inherited {
    Inherited {
        address,
        is_udp: false,
        fd,
        file: SocketFiles::Ours,
    }
}
