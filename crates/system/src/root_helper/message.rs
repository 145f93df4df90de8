//! Messages between the server and the root helper: one datagram each way, in turn.
//!
//! | question: offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | a letter of [`Ask`] |
//! | 1 | rest | path | of a log or a socket; empty for the other kinds |
//!
//! | answer: offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | errno | 0 when it was done (little endian) |
//! | 4 | 4 | number | a process id, or the status that a process ended with (little endian) |
//!
//! Descriptors go along with either. A question is valid if and only if its kind is known; the
//! helper ends at one that is not.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors in one datagram (the kernel takes 253).
pub const FDS_MAX: usize = 64;
/// The longest datagram: a kind and a path (the kernel's PATH_MAX).
const LEN_MAX: usize = 1 + 4096;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read the configuration again, and make what it needs.
    Read,
    /// Open a log of the configuration; answered with its descriptor.
    Log(PathBuf),
    /// Write the pid file.
    PidWrite,
    /// Rename it for a successor.
    PidAside,
    /// Give it its name again.
    PidBack,
    /// Move it to where the configuration has it now.
    PidMove,
    /// Begin a new file of counters; answered with its descriptor.
    CountersBegin,
    /// Put that in its place.
    CountersPlace,
    /// Rename what stands in its place and is no file of counters.
    CountersAside,
    /// Bind a Unix socket of the configuration; answered with its descriptor.
    Bind(PathBuf),
    /// Remove the file of such a socket.
    Remove(PathBuf),
    /// Take these descriptors, for a successor.
    Take,
    /// Start the successor with what was taken: its channel, its control socket, its listeners.
    Start,
    /// Start the successor like [`Ask::Start`], without a control socket.
    StartWithoutControl,
    /// Wait until the successor has ended; answered with its status.
    Ended,
}

impl Ask {
    fn kind(&self) -> u8 {
        match self {
            Ask::Read => b'R',
            Ask::Log(_) => b'L',
            Ask::PidWrite => b'P',
            Ask::PidAside => b'A',
            Ask::PidBack => b'B',
            Ask::PidMove => b'M',
            Ask::CountersBegin => b'C',
            Ask::CountersPlace => b'c',
            Ask::CountersAside => b'a',
            Ask::Bind(_) => b'U',
            Ask::Remove(_) => b'D',
            Ask::Take => b'T',
            Ask::Start => b'S',
            Ask::StartWithoutControl => b's',
            Ask::Ended => b'E',
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Ask::Log(path) | Ask::Bind(path) | Ask::Remove(path) => Some(path),
            _ => None,
        }
    }

    /// Its datagram.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind()];
        bytes.extend(
            self.path()
                .map(|path| path.as_os_str().as_bytes())
                .unwrap_or_default(),
        );
        bytes
    }

    /// The question of a datagram; none if it is not valid.
    pub fn decode(bytes: &[u8]) -> Option<Ask> {
        let (kind, path) = bytes.split_first()?;
        let path = || PathBuf::from(OsStr::from_bytes(path));
        let ask = match kind {
            b'R' => Ask::Read,
            b'L' => Ask::Log(path()),
            b'P' => Ask::PidWrite,
            b'A' => Ask::PidAside,
            b'B' => Ask::PidBack,
            b'M' => Ask::PidMove,
            b'C' => Ask::CountersBegin,
            b'c' => Ask::CountersPlace,
            b'a' => Ask::CountersAside,
            b'U' => Ask::Bind(path()),
            b'D' => Ask::Remove(path()),
            b'T' => Ask::Take,
            b'S' => Ask::Start,
            b's' => Ask::StartWithoutControl,
            b'E' => Ask::Ended,
            _ => return None,
        };
        Some(ask)
    }
}

/// An answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// The number that the question asks for, if it does.
    pub number: u32,
    /// The descriptor that the question asks for, if it does.
    pub fd: Option<OwnedFd>,
}

/// Sends the outcome of a question.
pub fn reply(channel: impl AsFd, outcome: io::Result<Answer>) -> io::Result<()> {
    let (errno, answer) = match outcome {
        Ok(answer) => (0, answer),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
            (errno, Answer::default())
        }
    };
    let mut bytes = errno.to_le_bytes().to_vec();
    bytes.extend(answer.number.to_le_bytes());
    let fds: Vec<BorrowedFd<'_>> = answer.fd.iter().map(AsFd::as_fd).collect();
    send(channel, &bytes, &fds)
}

/// Reads the outcome of a question; the outer error is one of the channel.
pub fn answer(channel: impl AsFd) -> io::Result<io::Result<Answer>> {
    let Some((bytes, fds)) = receive(channel)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let ([errno, number], []) = bytes.as_chunks::<4>() else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok(match i32::from_le_bytes(*errno) {
        0 => Ok(Answer {
            number: u32::from_le_bytes(*number),
            fd: fds.into_iter().next(),
        }),
        errno => Err(io::Error::from_raw_os_error(errno)),
    })
}

/// Sends a datagram.
pub fn send(channel: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = [IoSlice::new(bytes)];
    retry_on_intr(|| sendmsg(&channel, &bytes, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// A datagram and its descriptors.
pub type Received = (Vec<u8>, Vec<OwnedFd>);

/// The next datagram; none when the other side is gone.
pub fn receive(channel: impl AsFd) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; LEN_MAX];
    let received = retry_on_intr(|| {
        let mut into = [IoSliceMut::new(&mut bytes)];
        recvmsg(&channel, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    bytes.truncate(received.bytes);
    Ok((received.bytes > 0).then_some((bytes, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn questions_are_read_as_they_were_asked() {
        let path = || PathBuf::from("/a/b");
        for ask in [
            Ask::Read,
            Ask::Log(path()),
            Ask::PidWrite,
            Ask::PidAside,
            Ask::PidBack,
            Ask::PidMove,
            Ask::CountersBegin,
            Ask::CountersPlace,
            Ask::CountersAside,
            Ask::Bind(path()),
            Ask::Remove(path()),
            Ask::Take,
            Ask::Start,
            Ask::StartWithoutControl,
            Ask::Ended,
        ] {
            assert_eq!(Ask::decode(&ask.encode()), Some(ask));
        }
        assert_eq!(Ask::decode(b""), None);
        assert_eq!(Ask::decode(b"?/a"), None);
    }

    #[test]
    fn answers_carry_an_error_a_number_or_a_descriptor() {
        let (ours, theirs) = pair();
        reply(&theirs, Err(Errno::ACCESS.into())).unwrap();
        let error = super::answer(&ours).unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let answer = Answer {
            number: 7,
            fd: Some(fd),
        };
        reply(&theirs, Ok(answer)).unwrap();
        let answer = super::answer(&ours).unwrap().unwrap();
        assert_eq!((answer.number, answer.fd.is_some()), (7, true));
        send(&theirs, b"short", &[]).unwrap();
        assert!(super::answer(&ours).is_err());
        drop(theirs);
        assert!(receive(&ours).unwrap().is_none());
    }

    #[test]
    fn a_datagram_that_is_too_long_is_refused() {
        let (ours, theirs) = pair();
        send(&theirs, &[b'L'; LEN_MAX + 1], &[]).unwrap();
        assert!(receive(&ours).is_err());
    }
}
