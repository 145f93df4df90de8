//! The listening sockets of the process, by address.
//!
//! Each TCP address has as many sockets as there are workers (SO_REUSEPORT), so that the kernel
//! spreads connections and no two workers wait on one socket. So has each UDP address: packets of
//! QUIC are spread by the number of the socket that stands in them, those of sessions by their
//! client. A Unix address has one socket, which all workers share.
//!
//! A reload first opens what is missing ([`Sockets::open`]); only when all of that worked are the
//! new ones kept and those that are no longer configured closed ([`Sockets::adopt`]).
//!
//! Invariants:
//! 1. The first socket of an address that we do not listen on yet is bound exclusively: another
//!    process on it is an error, even one that shares its port. Only then may our further sockets
//!    join.
//! 2. No socket that is still configured is closed, because its queue of connections would be lost
//!    with it: with fewer workers than sockets, workers have several.

pub mod activation;
pub(crate) mod inherited;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millpond_exchange::settings::listen::{Binding, Carries};
use millpond_proxy::downstream::listener::{self, PortUse};
use millpond_proxy::downstream::quic;
use millpond_stream::packets;
use millpond_system::address::Address;
use millpond_system::log::error::{self, Level, os_error};
use millpond_system::udp;

/// The count of attempts to bind when the address is in use, as by a predecessor that is about to
/// end (nginx: 5).
const BIND_TRIES: u32 = 5;

/// Pause between two such tries (nginx: 500 ms).
const BIND_PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// A socket could not be had; in nginx's words.
#[derive(Debug, thiserror::Error)]
#[error("bind() to {address} failed ({})", os_error(source))]
pub struct BindError {
    /// The address that could not be bound.
    pub address: Address,
    /// The reason.
    pub source: io::Error,
}

/// A worker's listener and what answers on it.
#[derive(Debug)]
pub struct Listening {
    /// The servers.
    pub binding: Arc<Binding>,
    /// The place of the socket among those of the address.
    pub number: usize,
    /// The socket.
    pub fd: OwnedFd,
}

/// A listening socket that another process left us.
#[derive(Debug)]
pub struct Inherited {
    /// The address that the socket listens on.
    pub address: Address,
    /// True for a socket of UDP.
    pub is_udp: bool,
    /// The socket.
    pub fd: OwnedFd,
    /// The owner of its file, if it has one.
    pub file: SocketFiles,
}

/// The fate of the files of Unix sockets: to go with the sockets, or to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFiles {
    /// The files are ours alone.
    Ours,
    /// Another process listens on the sockets too.
    Shared,
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    bound: Vec<Bound>,
}

/// The sockets of one address.
#[derive(Debug)]
struct Bound {
    address: Address,
    is_udp: bool,
    fds: Vec<OwnedFd>,
    /// The owner of its file: whoever bound it.
    file: SocketFiles,
}

/// Sockets that were opened for a configuration that is not in force yet.
#[derive(Debug)]
pub struct Opened(Vec<Bound>);

impl Sockets {
    /// Begins with sockets that another process left.
    pub fn inherit(inherited: Vec<Inherited>) -> Sockets {
        let mut sockets = Sockets::default();
        for new in inherited {
            sockets.add(Bound {
                address: new.address,
                is_udp: new.is_udp,
                fds: vec![new.fd],
                file: new.file,
            });
        }
        sockets
    }

    /// Copies of all sockets, for another process.
    pub fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        let all = self.bound.iter().flat_map(|bound| &bound.fds);
        all.map(OwnedFd::try_clone).collect()
    }

    /// Opens what `bindings` need beyond what there is. All errors are returned, and nothing is
    /// kept then.
    pub fn open(
        &self,
        bindings: &[Arc<Binding>],
        workers: usize,
    ) -> Result<Opened, Vec<BindError>> {
        let mut opened = Vec::new();
        let mut errors = Vec::new();
        for binding in bindings {
            match self.open_address(binding, workers) {
                Ok(fds) => opened.push(Bound {
                    address: binding.bound.clone(),
                    is_udp: binding.is_udp,
                    fds,
                    file: SocketFiles::Ours,
                }),
                Err(source) => errors.push(BindError {
                    address: binding.bound.clone(),
                    source,
                }),
            }
        }
        if errors.is_empty() {
            Ok(Opened(opened))
        } else {
            Err(errors)
        }
    }

    fn open_address(&self, binding: &Binding, workers: usize) -> io::Result<Vec<OwnedFd>> {
        let have = self.find(binding).map_or(0, |bound| bound.fds.len());
        let want = match binding.bound {
            Address::Inet(_) => workers,
            Address::Unix(_) => 1,
        };
        let mut fds = Vec::new();
        while have + fds.len() < want {
            if have > 0 {
                // Sockets that a service manager opened as root cannot be joined: they are shared.
                match bind(binding, PortUse::Joined) {
                    Err(error) if is_refused_to_join(&error) => break,
                    bound => fds.push(bound?),
                }
                continue;
            }
            let port_use = if fds.is_empty() && !self.has_port(binding) {
                PortUse::Exclusive
            } else {
                PortUse::Joined
            };
            fds.push(bind_patiently(binding, port_use)?);
        }
        Ok(fds)
    }

    /// Keeps what was opened and closes what `bindings` do not name.
    pub fn adopt(&mut self, opened: Opened, bindings: &[Arc<Binding>], files: SocketFiles) {
        for new in opened.0.into_iter().filter(|new| !new.fds.is_empty()) {
            self.add(new);
        }
        let is_named = |bound: &Bound| bindings.iter().any(|it| bound.is_of(it));
        let (kept, gone) = std::mem::take(&mut self.bound)
            .into_iter()
            .partition(is_named);
        self.bound = kept;
        remove_files(&gone, files);
        let of_quic = bindings.iter().filter(|binding| binding.is_quic());
        let sockets = of_quic.filter_map(|binding| self.find(binding));
        sockets.for_each(choose_by_number);
    }

    /// Copies of the sockets that the worker of an index accepts from.
    pub fn share_of(
        &self,
        index: usize,
        workers: usize,
        bindings: &[Arc<Binding>],
    ) -> io::Result<Vec<Listening>> {
        let mut share = Vec::new();
        for binding in bindings {
            let Some(bound) = self.find(binding) else {
                continue;
            };
            for (number, fd) in mine(&bound.fds, index, workers) {
                share.push(Listening {
                    binding: Arc::clone(binding),
                    number,
                    fd: fd.try_clone()?,
                });
            }
        }
        Ok(share)
    }

    /// Closes all sockets, so that nobody connects to a process that is about to end. Workers close
    /// their copies themselves.
    pub fn close(&mut self, files: SocketFiles) {
        remove_files(&self.bound, files);
        self.bound.clear();
    }

    fn find(&self, binding: &Binding) -> Option<&Bound> {
        self.bound.iter().find(|bound| bound.is_of(binding))
    }

    /// Adds sockets to those of their address.
    fn add(&mut self, new: Bound) {
        let is_same = |it: &Bound| it.address == new.address && it.is_udp == new.is_udp;
        let known = self.bound.iter().position(is_same);
        let at = known.unwrap_or(self.bound.len());
        match self.bound.get_mut(at) {
            Some(bound) => bound.fds.extend(new.fds),
            None => self.bound.push(new),
        }
    }

    /// True when we listen on the port under some address, as a wildcard that replaces it.
    fn has_port(&self, binding: &Binding) -> bool {
        let port = binding.bound.port();
        let has_port =
            |bound: &Bound| bound.address.port() == port && bound.is_udp == binding.is_udp;
        port != 0 && self.bound.iter().any(has_port)
    }
}

impl Bound {
    fn is_of(&self, binding: &Binding) -> bool {
        self.address == binding.bound && self.is_udp == binding.is_udp
    }
}

/// Has the kernel choose by the number in a packet. Without that packets are handed over, so it is
/// no reason to serve nothing.
fn choose_by_number(bound: &Bound) {
    let [first, _, ..] = &bound.fds[..] else {
        return;
    };
    if let Err(error) = udp::choose_by_number(first) {
        let (address, why) = (&bound.address, os_error(&error));
        let message =
            format_args!("packets of QUIC to {address} are not chosen by their connection ({why})");
        error::process(Level::Warn, message);
    }
}

/// The sockets for a worker: every `workers`th one, or a shared one when there are too few.
fn mine(fds: &[OwnedFd], index: usize, workers: usize) -> impl Iterator<Item = (usize, &OwnedFd)> {
    let count = fds.len().max(1);
    let step = workers.min(count).max(1);
    fds.iter().enumerate().skip(index % step).step_by(step)
}

fn bind(binding: &Binding, port_use: PortUse) -> io::Result<OwnedFd> {
    let bind = match (binding.is_udp, binding.carries) {
        (false, _) => listener::bind,
        (true, Carries::Requests) => quic::bind,
        (true, Carries::Sessions) => packets::bind,
    };
    bind(&binding.bound, &binding.options, port_use)
}

fn bind_patiently(binding: &Binding, port_use: PortUse) -> io::Result<OwnedFd> {
    let mut tries = 1;
    loop {
        match bind(binding, port_use) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < BIND_TRIES => {
                tries += 1;
                // No runtime is there yet, and during a reload the workers go on without this
                // thread.
                std::thread::park_timeout(BIND_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// True if a socket of an address that we listen on may not have another one beside it.
fn is_refused_to_join(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied];
    kinds.contains(&error.kind())
}

fn remove_files(sockets: &[Bound], files: SocketFiles) {
    if files == SocketFiles::Ours {
        let ours = sockets.iter().filter(|it| it.file == SocketFiles::Ours);
        ours.for_each(|bound| listener::remove_file(&bound.address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sockets: usize, workers: usize) -> Vec<Vec<usize>> {
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds: Vec<OwnedFd> = (0..sockets)
            .map(|_| null.try_clone().unwrap().into())
            .collect();
        (0..workers)
            .map(|index| mine(&fds, index, workers).map(|(at, _)| at).collect())
            .collect()
    }

    #[test]
    fn every_socket_has_a_worker_and_every_worker_a_socket() {
        let cases = [
            (1, 1, vec![vec![0]]),
            (3, 3, vec![vec![0], vec![1], vec![2]]),
            (1, 3, vec![vec![0], vec![0], vec![0]]),
            (2, 3, vec![vec![0], vec![1], vec![0]]),
            (3, 2, vec![vec![0, 2], vec![1]]),
        ];
        for (sockets, workers, expected) in cases {
            assert_eq!(
                shares(sockets, workers),
                expected,
                "{sockets} for {workers}"
            );
        }
    }

    /// Another user's socket cannot be joined either, and a service manager is another user.
    #[test]
    fn workers_share_a_socket_that_none_may_join() {
        let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Inet(theirs.local_addr().unwrap());
        let binding = Arc::new(Binding {
            bound: address.clone(),
            is_udp: false,
            options: Default::default(),
            carries: Carries::Requests,
            listens: Vec::new(),
        });
        let mut sockets = Sockets::inherit(vec![Inherited {
            address,
            is_udp: false,
            fd: theirs.into(),
            file: SocketFiles::Shared,
        }]);
        let opened = sockets.open(std::slice::from_ref(&binding), 2).unwrap();
        let bindings = [binding];
        sockets.adopt(opened, &bindings, SocketFiles::Ours);
        let shares = [0, 1].map(|index| sockets.share_of(index, 2, &bindings).unwrap().len());
        assert_eq!(shares, [1, 1]);
    }
}
