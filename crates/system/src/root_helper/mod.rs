//! The root helper: a small process that stays root when the server becomes its `user`, and does
//! for it the few things that only root can.
//!
//! ```text
//! server: root ─► sockets, logs, folders ─► starts the helper ─► becomes `user` ─► serves
//!                                              │    ▲ question (message.rs)          │
//! helper:                                      └────┴─ answer ◄──────────────────────┘
//!                                              the channel ends ─► pid file removed ─► exit
//! ```
//!
//! It is what nginx's master is to its workers, the other way round: the server is the process that
//! was started, that the pid file names and that gets signals; the helper is its child.
//!
//! | asked for | done by the helper |
//! |---|---|
//! | USR1, HUP: a log in a folder of root's | opened, made if need be, and given to the user |
//! | HUP: a Unix socket in such a folder | bound |
//! | HUP: folders of caches and temporary files | made and given to the user |
//! | HUP: the configuration and its keys, which only root may be able to read | read, and handed over |
//! | USR2: pid file | renamed to `.oldbin`, and back |
//! | USR2: the new program | started as root, with the sockets |
//! | counters of sites, beside a cache | begun and renamed |
//! | end: Unix sockets, pid file | removed |
//!
//! Invariants:
//! 1. No question names what is done: paths are compared with those that the helper itself read in
//!    the configuration, of which the user has no say, and the program and its arguments are those
//!    of the start.
//! 2. What is made or opened has no name that the user could have led elsewhere
//!    (`place.rs`).
//! 3. The helper has one thread, reads no byte from a network, and ends with its server.
//! 4. The server asks only where it was refused itself: in folders of the user the helper does
//!    nothing, so that nothing there is made as root.
//!
//! This module is the server's side: it starts the helper and asks. What the helper does is in
//! `root_process` of the crate above.
//!
//! What it does not do: serve, log, or outlive its server. Without `user`, or without root, there
//! is none.

pub mod message;
pub mod place;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use millpond_conf::Seen;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::clock;
use crate::heritage::{Heritage, Program};
use crate::log::error::{self, Level};

use message::{Answer, Ask, FDS_MAX};

/// The first argument of the helper's process.
pub const ARGUMENT: &str = "--root-helper";

/// Path of the running program, also after another one has taken its name.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Time that an answer may take. Arbitrary: the work is one call of the system, or the reading of a
/// configuration whose names a slow resolver looks up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time for which the end of the process waits for the helper, and the pause between two looks.
/// Arbitrary: the helper removes one file.
const END_PATIENCE: Duration = Duration::from_secs(2);
const END_PAUSE: Duration = Duration::from_millis(1);

/// The helper of this process.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// The user that the server becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number of the user.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Owner {
    /// Argument of the helper that names the owner: numbers with colons between them.
    fn to_word(&self) -> String {
        let groups = self.groups.iter().map(|group| format!(":{group}"));
        format!("{}:{}{}", self.uid, self.gid, groups.collect::<String>())
    }

    /// Reads an argument of the helper.
    pub fn parse(word: &str) -> Option<Owner> {
        let numbers: Option<Vec<u32>> = word.split(':').map(|word| word.parse().ok()).collect();
        let (&[uid, gid], groups) = numbers.as_deref()?.split_first_chunk()?;
        let groups = groups.to_vec();
        Some(Owner { uid, gid, groups })
    }
}

/// The helper as the server sees it.
#[derive(Debug)]
struct Helper {
    /// None once it has answered in a way that cannot be relied on.
    channel: Mutex<Option<OwnedFd>>,
    child: Mutex<Child>,
}

/// Starts the helper; to be called once, as root, before the process becomes its user.
pub fn start(program: &Program, owner: &Owner) -> io::Result<()> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE))?;
    let child = Command::new(THIS_PROGRAM)
        .arg(ARGUMENT)
        .arg(owner.to_word())
        .arg(&program.path)
        .args(&program.arguments)
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let helper = Helper {
        channel: Mutex::new(Some(ours)),
        child: Mutex::new(child),
    };
    HELPER
        .set(helper)
        .map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Ends the helper, which removes the pid file, and waits until it has.
pub fn finish() {
    let Some(helper) = HELPER.get() else { return };
    *lock(&helper.channel) = None;
    let deadline = clock::instant() + END_PATIENCE;
    let mut child = lock(&helper.child);
    while matches!(child.try_wait(), Ok(None)) && clock::instant() < deadline {
        std::thread::park_timeout(END_PAUSE);
    }
}

/// True if this process has a helper.
pub fn is_there() -> bool {
    HELPER.get().is_some()
}

/// Does what was refused to this process through its helper, if it has one.
pub fn unless_refused<T>(
    done: io::Result<T>,
    by_helper: impl FnOnce() -> Option<io::Result<T>>,
) -> io::Result<T> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            by_helper().unwrap_or(Err(error))
        }
        done => done,
    }
}

/// Lets the helper read the configuration again and make what it needs; gives what it has read.
pub fn read_again() -> Option<io::Result<Seen>> {
    let read = |fd: OwnedFd| {
        let mut bytes = Vec::new();
        File::from(fd).read_to_end(&mut bytes)?;
        Seen::decode(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    Some(fd_of(ask(&Ask::Read)?).and_then(read))
}

/// Opens a log.
pub fn open_log(path: &Path) -> Option<io::Result<File>> {
    Some(fd_of(ask(&Ask::Log(path.to_owned()))?).map(File::from))
}

/// Binds a Unix socket, which does not listen yet.
pub fn bind(path: &Path) -> Option<io::Result<OwnedFd>> {
    Some(fd_of(ask(&Ask::Bind(path.to_owned()))?))
}

/// Removes the file of a Unix socket.
pub fn remove_socket(path: &Path) -> Option<io::Result<()>> {
    Some(ask(&Ask::Remove(path.to_owned()))?.map(|_| ()))
}

/// Begins a file of counters, beside the one that there is.
pub fn begin_counters() -> Option<io::Result<File>> {
    Some(fd_of(ask(&Ask::CountersBegin)?).map(File::from))
}

/// Puts that in the place of the one that there is.
pub fn place_counters() -> Option<io::Result<()>> {
    Some(ask(&Ask::CountersPlace)?.map(|_| ()))
}

/// Renames what has the name of the file of counters and is none.
pub fn set_aside_counters() -> Option<io::Result<()>> {
    Some(ask(&Ask::CountersAside)?.map(|_| ()))
}

/// Step that is done with the pid file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidStep {
    /// Writing of the pid file.
    Write,
    /// The pid file makes room for that of a successor.
    Aside,
    /// The pid file gets its name again.
    Back,
    /// The pid file goes to where the configuration has it now.
    Move,
}

/// Does something with the pid file.
pub fn pid(step: PidStep) -> io::Result<()> {
    let question = match step {
        PidStep::Write => Ask::PidWrite,
        PidStep::Aside => Ask::PidAside,
        PidStep::Back => Ask::PidBack,
        PidStep::Move => Ask::PidMove,
    };
    ask(&question).unwrap_or_else(gone).map(|_| ())
}

/// Starts the successor as root; gives its process id.
pub fn start_successor(heritage: &Heritage) -> Option<io::Result<u32>> {
    let helper = HELPER.get()?;
    let mut channel = lock(&helper.channel);
    let (fds, question) = match &heritage.control {
        Some(control) => (vec![&heritage.channel, control], Ask::Start),
        None => (vec![&heritage.channel], Ask::StartWithoutControl),
    };
    let fds: Vec<&OwnedFd> = fds.into_iter().chain(&heritage.sockets).collect();
    for some in fds.chunks(FDS_MAX) {
        let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        if let Err(error) = exchange(&mut channel, &Ask::Take, &some) {
            return Some(Err(error));
        }
    }
    Some(exchange(&mut channel, &question, &[]).map(|answer| answer.number))
}

/// Waits for the end of the successor; gives its status as the system has it.
pub fn successor_ended() -> Option<io::Result<u32>> {
    Some(ask(&Ask::Ended)?.map(|answer| answer.number))
}

fn ask(question: &Ask) -> Option<io::Result<Answer>> {
    let mut channel = lock(&HELPER.get()?.channel);
    Some(exchange(&mut channel, question, &[]))
}

/// Asks and waits for the answer. After a failure of the channel nothing more is asked: an answer
/// that comes late would be taken for that of the next question.
fn exchange(
    channel: &mut Option<OwnedFd>,
    question: &Ask,
    fds: &[BorrowedFd<'_>],
) -> io::Result<Answer> {
    let Some(open) = channel.as_ref() else {
        return gone();
    };
    let sent = message::send(open, &question.encode(), fds);
    match sent.and_then(|()| message::answer(open)) {
        Ok(outcome) => outcome,
        Err(error) => {
            let reason = error::os_error(&error);
            let message = format_args!("the root helper does not answer ({reason})");
            error::process(Level::Alert, message);
            *channel = None;
            gone()
        }
    }
}

fn gone<T>() -> io::Result<T> {
    Err(rustix::io::Errno::PIPE.into())
}

fn fd_of(answer: io::Result<Answer>) -> io::Result<OwnedFd> {
    answer?.fd.ok_or_else(|| rustix::io::Errno::BADF.into())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The content is changed by single assignments only.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        for groups in [vec![], vec![4, 5]] {
            let owner = Owner {
                uid: 1,
                gid: 2,
                groups,
            };
            assert_eq!(Owner::parse(&owner.to_word()), Some(owner));
        }
        for word in ["", "1", "1:", "1:x", "1:2:", "-1:2"] {
            assert_eq!(Owner::parse(word), None, "{word}");
        }
    }

    #[test]
    fn without_a_helper_what_was_refused_stays_refused() {
        let refused = || Err::<(), _>(io::ErrorKind::PermissionDenied.into());
        assert!(unless_refused(refused(), || None).is_err());
        assert!(unless_refused(refused(), || Some(Ok(()))).is_ok());
        let missing = Err::<(), _>(io::ErrorKind::NotFound.into());
        assert!(unless_refused(missing, || Some(Ok(()))).is_err());
        assert!(open_log(Path::new("/a")).is_none() && !is_there());
        assert!(pid(PidStep::Aside).is_err());
    }
}
