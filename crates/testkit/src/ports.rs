//! Ports of 127.0.0.1 for servers that tests start.
//!
//! Servers share ports with each other (SO_REUSEPORT), so that a port which the kernel says is free
//! may have been promised to the server of another test. Each process has blocks of ports, and a
//! block is held by a socket on its first port; below what the kernel gives to sockets that ask for
//! any port.

use std::io;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// The first port of the first block.
const FIRST: u16 = 12_000;
/// Ports of a block.
const BLOCK: u16 = 64;
/// Blocks of this machine: up to the ports that Linux gives to sockets by itself.
const BLOCKS: u16 = 320;

/// The blocks of this process, which are kept to its end: what has been given out may still be in
/// use. The last one has ports left.
static HELD: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// Ports that no other process gives out.
struct Block {
    _hold: TcpListener,
    next: u16,
    end: u16,
}

impl Block {
    /// The first block that nobody holds.
    fn take() -> io::Result<Block> {
        let starts = (0..BLOCKS).map(|number| FIRST + number * BLOCK);
        for start in starts {
            match TcpListener::bind(("127.0.0.1", start)) {
                Ok(hold) => {
                    return Ok(Block {
                        _hold: hold,
                        next: start + 1,
                        end: start + BLOCK,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("all ports for tests are held"))
    }

    /// A port of the block that nobody listens on.
    fn give(&mut self) -> io::Result<Option<u16>> {
        while self.next < self.end {
            let port = self.next;
            self.next += 1;
            match TcpListener::bind(("127.0.0.1", port)) {
                Ok(_) => return Ok(Some(port)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// A port of 127.0.0.1 that nobody listens on at this moment, and that no other test is given.
///
/// # Errors
///
/// If a socket cannot be made, or all ports are held.
pub fn free_port() -> io::Result<u16> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(block) = held.last_mut()
            && let Some(port) = block.give()?
        {
            return Ok(port);
        }
        held.push(Block::take()?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_port_is_given_twice() {
        let count = usize::from(BLOCK) * 2;
        let ports: BTreeSet<u16> = (0..count).map(|_| free_port().expect("a port")).collect();
        assert_eq!(ports.len(), count);
        let of_kernel = ports.iter().filter(|port| **port >= FIRST + BLOCKS * BLOCK);
        assert_eq!(of_kernel.count(), 0);
    }
}
