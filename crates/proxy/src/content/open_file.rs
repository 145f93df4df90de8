//! `log_not_found`, `open_file_cache` and its directives; opening and testing the files that
//! requests name, and how failures are answered.
//!
//! A file is opened once and asked through its descriptor, so that what is sent is what was looked
//! at. Opening never waits, also when the path names a pipe. With a cache, each worker keeps what
//! it opened:
//!
//! ```text
//! no entry ──open──► entry, fresh ──valid──► entry, to be checked ──same file──► entry, fresh
//!     ▲                   │                            └──changed: opened again──► entry, fresh
//!     └──────── not used for `inactive`, or the oldest of `max`
//! ```
//!
//! Invariants:
//! 1. A cache holds at most `max` entries.
//! 2. A cache belongs to one configuration on one worker, so a reload starts with an empty one.
//! 3. What was opened under one rule about links is not used under another.
//!
//! Sources: nginx ngx_open_cached_file, and its callers for the log's words.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond_conf::{ArgError, Args, FromArgs};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::{self, Level};
use millpond_system::reserve::RESERVE;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::disable_symlinks::Links;
use crate::content::settings::ContentSettings;
use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::worker::parts::{Kept, Part, Place};

/// Files that one request may close because nobody asked for them (nginx: 2).
const EXPIRED_AT_ONCE: usize = 2;

/// The files that stay open.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct OpenFilePolicy {
    /// Most files that each worker keeps open for the next request, and for how long when nobody
    /// asks for them.
    #[directive(name = "open_file_cache", default = "off")]
    pub cache: CacheRule,
    /// Time for which such a file is sent without a look for changes.
    #[directive(name = "open_file_cache_valid", default = "60s")]
    pub valid: Duration,
    /// Least count of requests for a file before it stays open.
    #[directive(name = "open_file_cache_min_uses", default = "1")]
    pub min_uses: u32,
    /// Logs requests for files that do not exist.
    #[directive(name = "log_not_found", default = "on")]
    pub log_not_found: bool,
    /// Remembers, too, that a file is missing or closed to the server.
    #[directive(name = "open_file_cache_errors", default = "off")]
    pub errors: bool,
}

/// The size of a cache of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRule {
    /// No cache.
    Off,
    /// A cache of its own.
    On {
        /// A number that tells the caches of one configuration apart.
        id: u64,
        /// The most entries.
        max: usize,
        /// The time that an entry stays that nobody asks for.
        inactive: Duration,
    },
}

impl FromArgs for CacheRule {
    const SYNTAX: &'static str = "off | max=number [inactive=time]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let words = args.at_least(1)?;
        if let [word] = words
            && word.text == "off"
        {
            return Ok(CacheRule::Off);
        }
        let mut max = None;
        let mut inactive = Duration::from_secs(60);
        for (at, word) in words.iter().enumerate() {
            if let Some(number) = args.after::<u32>(at, "max=") {
                max = Some(number?);
            } else if let Some(time) = args.after(at, "inactive=") {
                inactive = time?;
            } else {
                let message = format!("invalid \"open_file_cache\" parameter \"{}\"", word.text);
                return Err(ArgError::value(at, message));
            }
        }
        match max {
            Some(0) => Err(ArgError::value(0, "\"max\" must be at least 1")),
            Some(max) => Ok(CacheRule::On {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                max: max as usize,
                inactive,
            }),
            None => Err(ArgError::other(
                "\"open_file_cache\" must have the \"max\" parameter",
            )),
        }
    }
}

/// The kind of thing that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A device, a pipe, a socket.
    Other,
}

/// An open file and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    /// The file.
    pub file: Arc<File>,
    /// The kind of the file.
    pub kind: Kind,
    /// The size of the file in bytes.
    pub len: u64,
    /// The time of the last change, seconds since 1970.
    pub modified: i64,
    /// Device and number of the file, which a new file under the same path does not share.
    inode: (u64, u64),
}

/// The reason why a path could not be opened or tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathError {
    /// The call that failed.
    pub call: &'static str,
    /// The reason.
    pub errno: Errno,
}

/// Opens a path for reading, or takes it from the cache of the location.
pub(crate) fn open(req: &mut Request, path: &[u8]) -> Result<OpenFile, PathError> {
    let way = Way::of(req, path);
    let policy = &req.location.settings.of::<ContentSettings>().open_file;
    match policy.cache {
        CacheRule::Off => way.open(),
        CacheRule::On { id, .. } => {
            let mut caches = req.generation().of::<OpenFiles>().0.borrow_mut();
            let cache = caches.entry(id).or_default();
            cache.open(way, policy, clock::instant())
        }
    }
}

/// Asks what a path names, without opening it.
pub(crate) fn test(req: &mut Request, path: &[u8]) -> Result<Kind, PathError> {
    let way = Way::of(req, path);
    let policy = &req.location.settings.of::<ContentSettings>().open_file;
    if let CacheRule::On { id, .. } = policy.cache {
        let caches = req.generation().of::<OpenFiles>().0.borrow();
        let now = clock::instant();
        let fresh = caches
            .get(&id)
            .and_then(|cache| cache.fresh(way, policy, now));
        if let Some(found) = fresh {
            return found.as_ref().map(|file| file.kind).map_err(|error| *error);
        }
    }
    way.stat().map(|stat| kind(&stat))
}

/// True if a path names something that its owner may execute, as nginx asks it.
pub(crate) fn is_executable(req: &mut Request, path: &[u8]) -> bool {
    let stat = Way::of(req, path).stat();
    stat.is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR))
}

/// A path, and which links on it are followed.
#[derive(Clone, Copy, Debug)]
struct Way<'a> {
    path: &'a [u8],
    links: Links,
}

impl<'a> Way<'a> {
    fn of(req: &mut Request, path: &'a [u8]) -> Way<'a> {
        let links = Links::of(req, path);
        Way { path, links }
    }

    fn open(self) -> Result<OpenFile, PathError> {
        let (file, stat) = self.open_and_stat()?;
        Ok(OpenFile {
            file: Arc::new(File::from(file)),
            kind: kind(&stat),
            len: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: stat.st_mtime,
            inode: (stat.st_dev, stat.st_ino),
        })
    }

    fn stat(self) -> Result<Stat, PathError> {
        if !self.links.follows_all() {
            return self.open_and_stat().map(|(_, stat)| stat);
        }
        rustix::fs::statat(CWD, self.path, AtFlags::empty()).map_err(|errno| PathError {
            call: "stat()",
            errno,
        })
    }

    fn open_and_stat(self) -> Result<(OwnedFd, Stat), PathError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || {
            if self.links.follows_all() {
                rustix::fs::open(self.path, flags, Mode::empty()).map_err(|errno| PathError {
                    call: "open()",
                    errno,
                })
            } else {
                self.links.open(self.path, flags)
            }
        };
        let file = RESERVE.with_room(open, |error| Some(error.errno))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| PathError {
            call: "fstat()",
            errno,
        })?;
        // Writing the time of access down makes who sends a file wait for the journal of its disk.
        // Not when it is opened: that fails where somebody else owns it.
        let _ = rustix::fs::fcntl_setfl(&file, OFlags::NONBLOCK | OFlags::NOATIME);
        Ok((file, stat))
    }
}

fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    }
}

/// The caches of a configuration on a worker, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(RefCell<HashMap<u64, FileCache>>);

impl Kept for OpenFiles {}

impl Part for OpenFiles {
    const PLACE: Place = Place::Files;
}

/// Files that stay open.
#[derive(Debug, Default)]
struct FileCache {
    entries: HashMap<Rc<[u8]>, Entry>,
    /// Paths with the turn of their last use when they were put here, oldest first. One entry
    /// stands here once; its turn is looked up again when it is at the front.
    queue: VecDeque<(Rc<[u8]>, u64)>,
    turn: u64,
}

#[derive(Debug)]
struct Entry {
    /// The symbolic links that were followed.
    links: Links,
    /// The result of the look-up; none before the path was asked for often enough.
    found: Option<Result<OpenFile, PathError>>,
    uses: u32,
    used: Instant,
    checked: Instant,
    turn: u64,
}

impl FileCache {
    fn open(
        &mut self,
        way: Way<'_>,
        policy: &OpenFilePolicy,
        now: Instant,
    ) -> Result<OpenFile, PathError> {
        let CacheRule::On { max, inactive, .. } = policy.cache else {
            return way.open();
        };
        self.expire(inactive, now);
        self.turn += 1;
        let turn = self.turn;
        if let Some(entry) = self.entries.get_mut(way.path) {
            if now - entry.used > inactive {
                entry.forget();
            }
            (entry.used, entry.turn) = (now, turn);
            entry.uses = entry.uses.saturating_add(1);
            return entry.open(way, policy, now);
        }
        let mut entry = Entry {
            links: way.links,
            found: None,
            uses: 1,
            used: now,
            checked: now,
            turn,
        };
        let found = entry.open(way, policy, now);
        if found.is_ok() || policy.errors {
            self.make_room(max);
            let path: Rc<[u8]> = way.path.into();
            self.queue.push_back((Rc::clone(&path), turn));
            self.entries.insert(path, entry);
        }
        found
    }

    /// The result that is known of a path, without asking the system.
    fn fresh(
        &self,
        way: Way<'_>,
        policy: &OpenFilePolicy,
        now: Instant,
    ) -> Option<&Result<OpenFile, PathError>> {
        let entry = self.entries.get(way.path)?;
        let is_usable = entry.links == way.links && entry.is_fresh(policy, now);
        entry.found.as_ref().filter(|_| is_usable)
    }

    /// Closes files that nobody asks for; a few at a time, as nginx does, so that no request pays
    /// for many.
    fn expire(&mut self, inactive: Duration, now: Instant) {
        for _ in 0..EXPIRED_AT_ONCE {
            let Some((path, turn)) = self.queue.pop_front() else {
                return;
            };
            match self.entries.get(&path) {
                Some(entry) if now - entry.used <= inactive => {
                    let back = entry.turn != turn;
                    let place = (path, entry.turn);
                    if back {
                        self.queue.push_back(place);
                    } else {
                        self.queue.push_front(place);
                    }
                    return;
                }
                _ => {
                    self.entries.remove(&path);
                }
            }
        }
    }

    /// INVARIANT 1: evicts the entries that were not used for longest, until one more has room.
    fn make_room(&mut self, max: usize) {
        // Each round removes an entry, or moves one behind all that were used before it.
        while self.entries.len() >= max {
            let Some((path, turn)) = self.queue.pop_front() else {
                return;
            };
            match self.entries.get(&path) {
                Some(entry) if entry.turn != turn => {
                    let turn = entry.turn;
                    self.queue.push_back((path, turn));
                }
                _ => {
                    self.entries.remove(&path);
                }
            }
        }
    }
}

impl Entry {
    fn open(
        &mut self,
        way: Way<'_>,
        policy: &OpenFilePolicy,
        now: Instant,
    ) -> Result<OpenFile, PathError> {
        if self.links != way.links {
            // INVARIANT 3.
            (self.links, self.found) = (way.links, None);
        }
        if let Some(found) = &self.found {
            if self.is_fresh(policy, now) {
                return found.clone();
            }
            if let Ok(file) = found
                && file.is_still_at(way)
            {
                self.checked = now;
                return found.clone();
            }
        }
        let found = way.open();
        let is_kept = self.uses >= policy.min_uses && (found.is_ok() || policy.errors);
        self.found = is_kept.then(|| found.clone());
        self.checked = now;
        found
    }

    fn is_fresh(&self, policy: &OpenFilePolicy, now: Instant) -> bool {
        now - self.checked < policy.valid
    }

    fn forget(&mut self) {
        self.found = None;
        self.uses = 0;
    }
}

impl OpenFile {
    /// True when the path still names this file, unchanged.
    fn is_still_at(&self, way: Way<'_>) -> bool {
        way.stat().is_ok_and(|stat| {
            (stat.st_dev, stat.st_ino) == self.inode
                && stat.st_mtime == self.modified
                && u64::try_from(stat.st_size) == Ok(self.len)
        })
    }
}

impl PathError {
    /// True when there is no such file.
    pub(crate) fn is_missing(&self) -> bool {
        // A path with a zero byte in it is no name of a file either.
        matches!(
            self.errno,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL
        )
    }

    /// True when access is denied.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.errno, Errno::ACCESS | Errno::LOOP | Errno::MLINK)
    }

    /// The failure of the request whose file this was; logs it.
    pub(crate) fn fail(&self, req: &Request, path: &[u8]) -> Failure {
        let (level, status) = if self.is_missing() {
            (Level::Error, 404)
        } else if self.is_denied() {
            (Level::Error, 403)
        } else {
            (Level::Crit, 500)
        };
        if status != 404
            || req
                .location
                .settings
                .of::<ContentSettings>()
                .open_file
                .log_not_found
        {
            self.log(req, level, path);
        }
        Failure::Status(status)
    }

    /// Logs the failed call.
    pub(crate) fn log(&self, req: &Request, level: Level, path: &[u8]) {
        let (call, path, reason) = (self.call, String::from_utf8_lossy(path), self.reason());
        request_error::write(
            req,
            level,
            format_args!("{call} \"{path}\" failed {reason}"),
        );
    }

    /// Number and text of the error, as nginx writes them: `(2: No such file or directory)`.
    pub(crate) fn reason(&self) -> String {
        format!("({})", error::os_error(&self.errno.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(path: &str) -> Way<'_> {
        let links = Links::ALL;
        let path = path.as_bytes();
        Way { path, links }
    }

    #[test]
    fn kinds_are_told_apart() {
        let dir = env!("CARGO_MANIFEST_DIR");
        let manifest = format!("{dir}/Cargo.toml");
        let tested = |path: &str| way(path).stat().map(|stat| kind(&stat));
        assert_eq!(tested(dir), Ok(Kind::Directory));
        assert_eq!(tested(&manifest), Ok(Kind::File));
        assert_eq!(tested("/dev/null"), Ok(Kind::Other));
        let file = way(&manifest).open().unwrap();
        assert_eq!(file.kind, Kind::File);
        assert!(file.len > 0 && file.modified > 0);
        assert_eq!(way(dir).open().unwrap().kind, Kind::Directory);
    }

    fn policy(max: usize, min_uses: u32, errors: bool) -> OpenFilePolicy {
        OpenFilePolicy {
            cache: CacheRule::On {
                id: 0,
                max,
                inactive: Duration::from_secs(10),
            },
            valid: Duration::from_secs(2),
            log_not_found: true,
            min_uses,
            errors,
        }
    }

    fn folder(name: &str) -> String {
        let name = format!("millpond-open-file-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder.to_str().unwrap().to_owned()
    }

    fn write(path: &str, text: &str) {
        // A new file under the path, as a careful writer makes it.
        std::fs::write(format!("{path}.new"), text).unwrap();
        std::fs::rename(format!("{path}.new"), path).unwrap();
    }

    #[test]
    fn changed_file_is_seen_when_its_time_is_over() {
        let path = format!("{}/a", folder("changed"));
        write(&path, "one");
        let (mut cache, policy) = (FileCache::default(), policy(10, 1, false));
        let start = clock::instant();
        let mut len_after = |seconds| {
            let now = start + Duration::from_secs(seconds);
            cache.open(way(&path), &policy, now).map(|file| file.len)
        };
        assert_eq!(len_after(0), Ok(3));
        write(&path, "three");
        assert_eq!(len_after(1), Ok(3));
        assert_eq!(len_after(2), Ok(5));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(len_after(3), Ok(5));
        assert!(len_after(5).is_err());
        assert!(len_after(6).is_err());
        std::fs::remove_dir_all(folder("changed")).unwrap();
    }

    #[test]
    fn errors_and_rare_files_are_kept_only_when_it_is_wanted() {
        let folder = folder("kept");
        let path = format!("{folder}/a");
        for (min_uses, errors, kept) in [(1, false, false), (1, true, true), (2, true, false)] {
            let (mut cache, policy) = (FileCache::default(), policy(10, min_uses, errors));
            let now = clock::instant();
            assert!(cache.open(way(&path), &policy, now).is_err());
            write(&path, "x");
            assert_eq!(cache.open(way(&path), &policy, now).is_err(), kept);
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_that_nobody_asks_for_are_closed() {
        let folder = folder("expire");
        let paths: Vec<String> = (0..3).map(|number| format!("{folder}/{number}")).collect();
        paths.iter().for_each(|path| write(path, "x"));
        let (mut cache, policy) = (FileCache::default(), policy(10, 1, false));
        let start = clock::instant();
        for (at, seconds) in [(0, 0), (1, 1), (2, 9), (2, 12)] {
            let now = start + Duration::from_secs(seconds);
            cache.open(way(&paths[at]), &policy, now).unwrap();
        }
        assert_eq!((cache.entries.len(), cache.queue.len()), (1, 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn entry_that_was_not_used_for_longest_gives_way() {
        let folder = folder("room");
        let paths: Vec<String> = (0..4).map(|number| format!("{folder}/{number}")).collect();
        paths.iter().for_each(|path| write(path, "x"));
        let (mut cache, policy) = (FileCache::default(), policy(3, 1, false));
        let now = clock::instant();
        for at in [0, 1, 2, 0, 3, 0, 2] {
            cache.open(way(&paths[at]), &policy, now).unwrap();
            assert!(cache.entries.len() <= 3);
        }
        let held = |at: usize| cache.entries.contains_key(paths[at].as_bytes());
        assert_eq!(
            [held(0), held(1), held(2), held(3)],
            [true, false, true, true]
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn missing_files_are_told_from_denied_ones() {
        let dir = env!("CARGO_MANIFEST_DIR");
        for path in [
            format!("{dir}/nothing"),
            format!("{dir}/Cargo.toml/x"),
            "a\0b".into(),
        ] {
            let error = way(&path).open().unwrap_err();
            assert!(error.is_missing() && !error.is_denied(), "{path}");
        }
        let error = PathError {
            call: "open()",
            errno: Errno::NOENT,
        };
        assert_eq!(error.reason(), "(2: No such file or directory)");
    }
}
