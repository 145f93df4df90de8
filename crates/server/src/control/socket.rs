//! The control socket's file: bound, inherited, and removed.
//!
//! 1. It has mode 0600 before it listens.
//! 2. What is removed is what was bound: the file with the same device and number.
//!
//! What a process leaves that is killed is a socket on which nobody answers; it is replaced.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use millpond_system::address::Address;
use millpond_system::log::error::os_error;
use millpond_system::root_helper;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::sockets::{Inherited, SocketFiles};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Those who may ask: the user of the process, and root.
const MODE: u32 = 0o600;

/// A socket that cannot be had; in nginx's words.
#[derive(Debug, thiserror::Error)]
#[error("bind() to unix:{} failed ({})", path.display(), os_error(source))]
pub struct ControlError {
    path: PathBuf,
    source: io::Error,
}

impl ControlError {
    /// The reason.
    pub fn into_source(self) -> io::Error {
        self.source
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    fd: OwnedFd,
    /// Device and number of the file.
    file: (u64, u64),
}

impl ControlSocket {
    /// Binds and listens.
    pub fn bind(path: &Path) -> Result<ControlSocket, ControlError> {
        let bound = make_way(path).and_then(|()| bind(path));
        bound.map_err(|source| ControlError {
            path: path.to_owned(),
            source,
        })
    }

    /// Binds like [`ControlSocket::bind`], by the root helper where only root can.
    pub fn bind_anywhere(path: &Path) -> Result<ControlSocket, ControlError> {
        let bound = ControlSocket::bind(path).map_err(ControlError::into_source);
        let by_helper = || {
            let bound = root_helper::bind(path)?;
            Some(bound.and_then(|fd| ControlSocket::of(fd, path)))
        };
        root_helper::unless_refused(bound, by_helper).map_err(|source| ControlError {
            path: path.to_owned(),
            source,
        })
    }

    /// Wraps the socket that listens at a path.
    fn of(fd: OwnedFd, path: &Path) -> io::Result<ControlSocket> {
        Ok(ControlSocket {
            path: path.to_owned(),
            fd,
            file: file_id(path)?,
        })
    }

    /// Takes what a predecessor left, if it is the one at `path`.
    pub fn inherit(inherited: Inherited, path: &Path) -> Option<ControlSocket> {
        let is_it = matches!(&inherited.address, Address::Unix(theirs) if theirs == path);
        is_it.then(|| ControlSocket::of(inherited.fd, path).ok())?
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Descriptor of the socket, to be left to another process.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Second handle of the same socket.
    pub fn try_clone(&self) -> Result<ControlSocket, ControlError> {
        let fd = self.fd.try_clone().map_err(|source| ControlError {
            path: self.path.clone(),
            source,
        })?;
        Ok(ControlSocket {
            path: self.path.clone(),
            fd,
            file: self.file,
        })
    }

    /// To accept from, without waiting.
    pub fn listener(&self) -> io::Result<UnixListener> {
        let listener = UnixListener::from(self.fd.try_clone()?);
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Ends it, and removes its file unless others listen there.
    pub fn close(self, files: SocketFiles) {
        // INVARIANT 2.
        let is_ours = file_id(&self.path).is_ok_and(|file| file == self.file);
        if files == SocketFiles::Ours && is_ours {
            let removed = fs::remove_file(&self.path);
            let by_helper = || root_helper::remove_socket(&self.path);
            // In a folder that is nobody's here it stays, and is replaced by who comes next.
            let _ = root_helper::unless_refused(removed, by_helper);
        }
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// Removes what a process left that is gone.
fn make_way(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !meta.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Somebody listens there, though perhaps not now.
        Ok(()) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::ErrorKind::AddrInUse.into())
        }
        Err(error) => Err(error),
    }
}

fn bind(path: &Path) -> io::Result<ControlSocket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // INVARIANT 1: nobody can connect to what does not listen.
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)?;
    ControlSocket::of(socket.into(), path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_private_and_goes_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let socket = ControlSocket::bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        assert!(ControlSocket::bind(&path).is_err(), "it is taken");
        socket.try_clone().unwrap().close(SocketFiles::Shared);
        assert!(path.exists());
        socket.close(SocketFiles::Ours);
        assert!(!path.exists());
    }

    #[test]
    fn only_what_nobody_listens_on_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        let socket = ControlSocket::bind(&path).unwrap();
        // Somebody else has the name by now.
        fs::remove_file(&path).unwrap();
        let other = ControlSocket::bind(&path).unwrap();
        socket.close(SocketFiles::Ours);
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        assert!(ControlSocket::bind(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"text");
        let long = dir.path().join("x".repeat(200));
        assert!(ControlSocket::bind(&long).is_err());
    }
}
