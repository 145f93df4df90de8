//! Quiet sockets: watched together, by one descriptor on the event loop, so that none of them costs
//! an entry of the loop's own.
//!
//! The set is an epoll descriptor, which the event loop watches like a socket: it is readable when
//! one of its sockets is.
//!
//! Invariants:
//! 1. A socket is told once, and then no more until it is added again.
//! 2. Whoever adds a socket takes it out before it is closed or watched elsewhere.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use tokio::io::unix::AsyncFd;

use crate::socket::watch;

/// Sockets that are told at a time.
const BATCH: usize = 256;

/// A set of quiet sockets.
pub struct QuietSockets {
    epoll: AsyncFd<OwnedFd>,
}

impl QuietSockets {
    /// An empty set on the current runtime.
    pub fn new() -> io::Result<Self> {
        let epoll = watch(epoll::create(CreateFlags::CLOEXEC)?)?;
        Ok(QuietSockets { epoll })
    }

    /// Watches a socket until its peer has sent something or has left, which may have been before;
    /// `token` is its name.
    pub fn add(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        // INVARIANT 1.
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
        epoll::add(
            self.epoll.get_ref(),
            socket,
            EventData::new_u64(token),
            flags,
        )?;
        Ok(())
    }

    /// Takes a socket out.
    pub fn remove(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        epoll::delete(self.epoll.get_ref(), socket)?;
        Ok(())
    }

    /// The names of sockets that have something to read, as many as are told at a time.
    pub fn poll_heard(&self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u64>>> {
        loop {
            let mut ready = ready!(self.epoll.poll_read_ready(cx))?;
            let mut events: Vec<Event> = Vec::with_capacity(BATCH);
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(self.epoll.get_ref(), room, Some(&Timespec::default()))?;
            // A full batch may have left something.
            if events.len() < BATCH {
                ready.clear_ready();
            }
            if !events.is_empty() {
                let tokens = events.iter().map(|event| event.data.u64());
                return Poll::Ready(Ok(tokens.collect()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn on_runtime(test: impl Future<Output = io::Result<()>>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(test).unwrap();
    }

    #[test]
    fn a_socket_is_told_once_until_it_is_added_again() {
        on_runtime(async {
            let set = QuietSockets::new()?;
            let (mut ours, mut theirs) = UnixStream::pair()?;
            let (other, _held) = UnixStream::pair()?;
            set.add(ours.as_fd(), 7)?;
            set.add(other.as_fd(), 8)?;
            theirs.write_all(b"x")?;
            assert_eq!(poll_fn(|cx| set.poll_heard(cx)).await?, [7]);
            let again = poll_fn(|cx| Poll::Ready(set.poll_heard(cx).is_ready())).await;
            assert!(!again, "told twice");
            set.remove(ours.as_fd())?;
            ours.read_exact(&mut [0])?;
            // What came before it was added is told, too.
            theirs.write_all(b"y")?;
            set.add(ours.as_fd(), 9)?;
            assert_eq!(poll_fn(|cx| set.poll_heard(cx)).await?, [9]);
            Ok(())
        });
    }

    #[test]
    fn a_peer_that_leaves_is_told() {
        on_runtime(async {
            let set = QuietSockets::new()?;
            let (ours, theirs) = UnixStream::pair()?;
            set.add(ours.as_fd(), 1)?;
            drop(theirs);
            assert_eq!(poll_fn(|cx| set.poll_heard(cx)).await?, [1]);
            Ok(())
        });
    }

    #[test]
    fn more_sockets_than_a_batch_are_all_told() {
        on_runtime(async {
            let set = QuietSockets::new()?;
            let count = BATCH + BATCH / 2;
            let mut pairs = Vec::new();
            for token in 0..count {
                let (ours, mut theirs) = UnixStream::pair()?;
                set.add(ours.as_fd(), token as u64)?;
                theirs.write_all(b"x")?;
                pairs.push((ours, theirs));
            }
            let mut told = Vec::new();
            while told.len() < count {
                told.extend(poll_fn(|cx| set.poll_heard(cx)).await?);
            }
            told.sort_unstable();
            let all: Vec<u64> = (0..count as u64).collect();
            assert_eq!(told, all);
            Ok(())
        });
    }
}
