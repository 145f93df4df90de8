//! The root helper's own side: one question after the other, until its server is gone.
//!
//! Invariants are those of `root_helper`, which asks. What the configuration named once since the
//! start stays known (`Known`): a reload that is refused goes on with what it had.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_conf::{Files, Seen};
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::ledger;
use millpond_proxy::downstream::listener;
use millpond_system::address::Address;
use millpond_system::clock;
use millpond_system::heritage::{Heritage, Program};
use millpond_system::log::file;
use millpond_system::root_helper::Owner;
use millpond_system::root_helper::message::{self, Answer, Ask};
use millpond_system::root_helper::place::Place;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchown, fstat, ftruncate, openat};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::fs::{chownat, mkdirat, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Uid};

use crate::control::{ControlSocket, Wanted};
use crate::pid::{PidError, PidFile};
use crate::source::ConfSource;

/// Paths of logs and sockets that are remembered from earlier configurations. Arbitrary: beyond
/// them only those of the newest are known.
const PATHS_MAX: usize = 10_000;
/// Descriptors of one successor (a listener for each address and worker, and as many files are
/// allowed to a process by default).
const TAKEN_MAX: usize = 4096;
/// Time that the successor may take from letting its channel go to its end, and the pause between
/// two looks. Arbitrary: the successor writes its last lines then.
const ENDED_PATIENCE: Duration = Duration::from_secs(5);
const ENDED_PAUSE: Duration = Duration::from_millis(5);

/// Duty that the helper was started for.
#[derive(Debug)]
pub struct Duty {
    /// Source from which the configuration is read.
    pub source: ConfSource,
    /// The program that takes over when the binary is changed.
    pub program: Program,
    /// User and groups that own the things that are made.
    pub owner: Owner,
}

/// Answers until the other side of the channel is gone, and removes the pid file then.
pub fn serve(channel: &OwnedFd, duty: Duty) -> io::Result<()> {
    let mut helper = Helper::new(duty);
    let served = helper.answer_all(channel);
    if let Some(file) = helper.pid.take() {
        file.remove();
    }
    served
}

/// Paths that the configuration named since the start.
#[derive(Debug, Default)]
struct Known {
    logs: BTreeMap<PathBuf, u32>,
    sockets: BTreeMap<PathBuf, SocketKind>,
}

/// Purpose of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketKind {
    /// Clients.
    Listener,
    /// `millpond cache`.
    Control,
}

/// Group that a file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// The file keeps its own group, as nginx's logs do: readers of logs are often in that group.
    Kept,
    /// The user's.
    Owners,
}

#[derive(Debug)]
struct Helper {
    duty: Duty,
    server: Option<Pid>,
    known: Known,
    /// The file of the start; it is counted in until the end.
    counters: Option<PathBuf>,
    pid_path: PathBuf,
    pid: Option<PidFile>,
    taken: Vec<OwnedFd>,
    successor: Option<Child>,
}

impl Helper {
    fn new(duty: Duty) -> Helper {
        let mut helper = Helper {
            duty,
            server: rustix::process::getppid(),
            known: Known::default(),
            counters: None,
            pid_path: PathBuf::new(),
            pid: None,
            taken: Vec::new(),
            successor: None,
        };
        if let Some(conf) = helper.duty.source.read().conf {
            helper.note(&conf);
            helper.counters = ledger::place(&conf);
        }
        helper
    }

    fn answer_all(&mut self, channel: &OwnedFd) -> io::Result<()> {
        while let Some((bytes, fds)) = message::receive(channel)? {
            let question = Ask::decode(&bytes).ok_or(Errno::BADMSG)?;
            message::reply(channel, self.heed(question, fds))?;
        }
        Ok(())
    }

    fn heed(&mut self, question: Ask, fds: Vec<OwnedFd>) -> io::Result<Answer> {
        match question {
            Ask::Read => self.read().map(with_fd),
            Ask::Log(path) => self.open_log(&path).map(with_fd),
            Ask::PidWrite => self.write_pid().map(done),
            Ask::PidAside => self.with_pid(PidFile::set_aside).map(done),
            Ask::PidBack => self.with_pid(PidFile::put_back).map(done),
            Ask::PidMove => {
                let path = self.pid_path.clone();
                self.with_pid(|file| file.move_to(&path)).map(done)
            }
            Ask::CountersBegin => self.begin_counters().map(with_fd),
            Ask::CountersPlace => self.rename_counters(".new", "").map(done),
            Ask::CountersAside => self.rename_counters("", ".set-aside").map(done),
            Ask::Bind(path) => self.bind(&path).map(with_fd),
            Ask::Remove(path) => self.remove_socket(&path).map(done),
            Ask::Take => self.take(fds).map(done),
            Ask::Start | Ask::StartWithoutControl => self.start(&question).map(with_number),
            Ask::Ended => self.wait_for_successor().map(with_number),
        }
    }

    /// Reads the configuration; what was read is answered in a file without a name.
    fn read(&mut self) -> io::Result<OwnedFd> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut source = self.duty.source.clone();
        source.files = Files::Noted(Arc::clone(&seen));
        // The server finds the faults of the configuration, too, and says them.
        if let Some(conf) = source.read().conf {
            self.note(&conf);
            self.make_folders(&conf);
        }
        let bytes = seen.lock().unwrap_or_else(PoisonError::into_inner).encode();
        let mut file = File::from(memfd_create("configuration", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file.into())
    }

    fn make_folders(&self, conf: &Conf) {
        let folders = conf.declared.zones.iter().flat_map(|zone| zone.paths());
        for path in folders.chain(conf.declared.temp_folders.paths()) {
            // One that cannot be had, or that is the user's to make, the server will find missing.
            let _ = self.make_folder(path);
        }
    }

    fn note(&mut self, conf: &Conf) {
        let known = &mut self.known;
        if known.logs.len() + known.sockets.len() > PATHS_MAX {
            *known = Known::default();
        }
        known.logs.extend(file::paths());
        for binding in conf.sockets() {
            if let Address::Unix(path) = &binding.bound {
                known.sockets.insert(path.clone(), SocketKind::Listener);
            }
        }
        let prefix = &self.duty.source.prefix;
        if let Some(path) = Wanted::of(conf, prefix).path() {
            known.sockets.insert(path.to_owned(), SocketKind::Control);
        }
        self.pid_path = prefix.join(&conf.main.process.pid);
    }

    fn place(&self, path: &Path) -> io::Result<Place> {
        Place::of(&std::path::absolute(path)?, &self.duty.owner)
    }

    /// Makes a folder the user's, and those above it that are missing as everybody may enter them.
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let missing: Vec<_> = path
            .ancestors()
            .skip(1)
            .take_while(|it| !it.exists())
            .collect();
        for folder in missing.into_iter().rev() {
            let place = self.place(folder)?;
            mkdirat(&place.folder, &place.name, Mode::from_raw_mode(0o755))?;
        }
        let place = self.place(&path)?;
        match mkdirat(&place.folder, &place.name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&place.folder, &place.name, flags, Mode::empty())?;
        self.give(&folder, Group::Owners)
    }

    fn open_log(&self, path: &Path) -> io::Result<OwnedFd> {
        let mode = *self.known.logs.get(path).ok_or(Errno::ACCESS)?;
        let place = self.place(path)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(mode);
        let file = open(&place.folder, &place.name, flags, mode)?;
        self.give(&file, Group::Kept)?;
        Ok(file)
    }

    /// Gives the user a file that has one name, or a folder; a device stays whose it is.
    fn give(&self, file: &OwnedFd, group: Group) -> io::Result<()> {
        let found = fstat(file)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::RegularFile {
            // Another name may be that of a file which is none of the user's business.
            must(found.st_nlink == 1)?;
        } else if kind != FileType::Directory {
            return Ok(());
        }
        let (uid, gid) = self.ids();
        fchown(file, Some(uid), (group == Group::Owners).then_some(gid))?;
        Ok(())
    }

    fn ids(&self) -> (Uid, Gid) {
        let owner = &self.duty.owner;
        (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid))
    }

    fn write_pid(&mut self) -> io::Result<()> {
        let server = self.server.ok_or(Errno::SRCH)?.as_raw_nonzero().get();
        let file = PidFile::write_for(&self.pid_path, server.unsigned_abs());
        self.pid = Some(file.map_err(PidError::into_source)?);
        Ok(())
    }

    fn with_pid(
        &mut self,
        step: impl FnOnce(&mut PidFile) -> Result<(), PidError>,
    ) -> io::Result<()> {
        let file = self.pid.as_mut().ok_or(Errno::NOENT)?;
        step(file).map_err(PidError::into_source)
    }

    fn counters(&self) -> io::Result<Place> {
        self.place(self.counters.as_deref().ok_or(Errno::NOENT)?)
    }

    fn begin_counters(&self) -> io::Result<OwnedFd> {
        let place = self.counters()?;
        let name = place.with_ending(".new");
        let flags = OFlags::RDWR | OFlags::CREATE;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = open(&place.folder, &name, flags, mode)?;
        self.give(&file, Group::Owners)?;
        ftruncate(&file, 0)?;
        Ok(file)
    }

    /// Renames the file with one ending to that with another.
    fn rename_counters(&self, from: &str, to: &str) -> io::Result<()> {
        let place = self.counters()?;
        let (from, to) = (place.with_ending(from), place.with_ending(to));
        renameat(&place.folder, from, &place.folder, to)?;
        Ok(())
    }

    /// Binds by the whole path, which the socket then has for its name: nobody else can change
    /// where that leads.
    fn bind(&self, path: &Path) -> io::Result<OwnedFd> {
        let kind = self.known.sockets.get(path).copied();
        let place = self.place(path)?;
        match kind.ok_or(Errno::ACCESS)? {
            SocketKind::Listener => listener::bind_unix(path).map(OwnedFd::from),
            SocketKind::Control => {
                let socket = ControlSocket::bind(path);
                let socket = socket.map_err(|error| error.into_source())?;
                let (uid, gid) = self.ids();
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                chownat(&place.folder, &place.name, Some(uid), Some(gid), flags)?;
                Ok(socket.into_fd())
            }
        }
    }

    fn remove_socket(&self, path: &Path) -> io::Result<()> {
        must(self.known.sockets.contains_key(path))?;
        let place = self.place(path)?;
        let found = statat(&place.folder, &place.name, AtFlags::SYMLINK_NOFOLLOW)?;
        must(FileType::from_raw_mode(found.st_mode) == FileType::Socket)?;
        unlinkat(&place.folder, &place.name, AtFlags::empty())?;
        Ok(())
    }

    fn take(&mut self, fds: Vec<OwnedFd>) -> io::Result<()> {
        if self.taken.len() + fds.len() > TAKEN_MAX {
            self.taken.clear();
            return Err(Errno::MFILE.into());
        }
        self.taken.extend(fds);
        Ok(())
    }

    fn start(&mut self, question: &Ask) -> io::Result<u32> {
        let mut taken = std::mem::take(&mut self.taken).into_iter();
        if let Some(successor) = &mut self.successor
            && successor.try_wait()?.is_none()
        {
            return Err(Errno::BUSY.into());
        }
        let channel = taken.next().ok_or(Errno::BADF)?;
        let control = match question {
            Ask::Start => Some(taken.next().ok_or(Errno::BADF)?),
            _ => None,
        };
        let heritage = Heritage {
            sockets: taken.collect(),
            control,
            channel,
        };
        let child = heritage.start(&self.duty.program)?;
        let id = child.id();
        self.successor = Some(child);
        Ok(id)
    }

    /// The status of the successor, which is about to end.
    fn wait_for_successor(&mut self) -> io::Result<u32> {
        let child = self.successor.as_mut().ok_or(Errno::CHILD)?;
        let deadline = clock::instant() + ENDED_PATIENCE;
        loop {
            if let Some(status) = child.try_wait()? {
                self.successor = None;
                return Ok(status.into_raw().cast_unsigned());
            }
            if clock::instant() > deadline {
                return Err(Errno::TIMEDOUT.into());
            }
            std::thread::park_timeout(ENDED_PAUSE);
        }
    }
}

/// Opens a name in a folder; a link is refused.
fn open(folder: impl AsFd, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, mode)?)
}

/// INVARIANT 1.
fn must(is_allowed: bool) -> io::Result<()> {
    if is_allowed {
        Ok(())
    } else {
        Err(Errno::ACCESS.into())
    }
}

fn done((): ()) -> Answer {
    Answer::default()
}

fn with_fd(fd: OwnedFd) -> Answer {
    Answer {
        number: 0,
        fd: Some(fd),
    }
}

fn with_number(number: u32) -> Answer {
    Answer { number, fd: None }
}
