//! The module `fs` of scripts, below the language: what they do with files and folders.
//!
//! A call waits for the disk, and its worker with it, as in nginx. So what one call may do is
//! bounded: in bytes, in open files, in the depth of folders, and by the script's time, which is
//! looked at between its steps. What could wait for somebody else (a pipe) does not.
//!
//! Invariants:
//! 1. A script reaches no descriptor of the process but those that it has opened.
//! 2. What a context has opened is closed when its request has ended.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::fs::{self, Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags};
use rustix::io::{self, Errno, retry_on_intr};

/// The most files that a context has open at a time (arbitrary: a script needs few).
const MOST_OPEN: usize = 64;
/// The deepest folder below one that is removed with all that is in it (arbitrary).
const MOST_DEPTH: usize = 64;
/// Bytes that are read or written between two looks at the time.
const STEP: usize = 256 << 10;

/// A call that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The reason.
    pub(crate) why: Errno,
    /// The system call.
    pub(crate) call: &'static str,
}

type Result<T> = std::result::Result<T, Failed>;

/// The bounds of one call.
pub(crate) struct Bounds<'a> {
    /// The most bytes that it brings into memory.
    pub(crate) bytes: usize,
    /// True once the script's time is over.
    pub(crate) is_late: &'a dyn Fn() -> bool,
}

impl Bounds<'_> {
    fn look_at_time(&self) -> std::result::Result<(), Errno> {
        if (self.is_late)() {
            return Err(Errno::TIMEDOUT);
        }
        Ok(())
    }
}

/// The facts of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    /// dev, mode, nlink, uid, gid, rdev, blksize, ino, size, blocks.
    pub(crate) numbers: [f64; 10],
    /// Milliseconds since 1970: the last look, the last change, the last change of the file's own
    /// facts, its making.
    pub(crate) times: [f64; 4],
}

/// The path that facts are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// That which a symbolic link leads to.
    Follow,
    /// A symbolic link itself.
    Stay,
}

/// The fate of the other folders that stand in a call's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Made, or removed, too.
    Too,
    /// Left as they are.
    Left,
}

impl Others {
    /// The fate that the prelude names.
    pub(crate) fn named(name: &str) -> Others {
        match name {
            "recursive" => Others::Too,
            _ => Others::Left,
        }
    }
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) name: Vec<u8>,
    /// The kind, as `d_type` of readdir(3) has it.
    pub(crate) kind: u8,
}

/// The files that a context has open.
#[derive(Debug, Default)]
pub(crate) struct Files(HashMap<RawFd, OwnedFd>);

impl Files {
    /// Opens a file.
    pub(crate) fn open(&mut self, path: &[u8], (flags, mode): (OFlags, u32)) -> Result<RawFd> {
        if self.0.len() >= MOST_OPEN {
            return Err(failed("open")(Errno::MFILE));
        }
        let fd = open(path, flags, mode).map_err(failed("open"))?;
        let number = fd.as_raw_fd();
        self.0.insert(number, fd);
        Ok(number)
    }

    /// Closes a file.
    pub(crate) fn close(&mut self, number: RawFd) -> Result<()> {
        let fd = self.0.remove(&number);
        fd.map(drop).ok_or(failed("close")(Errno::BADF))
    }

    /// Closes all files.
    pub(crate) fn close_all(&mut self) {
        self.0.clear();
    }

    fn get(&self, number: RawFd, call: &'static str) -> Result<BorrowedFd<'_>> {
        let fd = self.0.get(&number).ok_or(failed(call)(Errno::BADF))?;
        Ok(fd.as_fd())
    }

    /// Reads up to `most` bytes, from a place or from where the last call has ended.
    pub(crate) fn read(
        &self,
        number: RawFd,
        (most, place): (usize, Option<u64>),
        bounds: &Bounds<'_>,
    ) -> Result<Vec<u8>> {
        let fd = self.get(number, "read")?;
        let mut bytes = vec![0; most.min(bounds.bytes)];
        let read = retry_on_intr(|| match place {
            Some(place) => io::pread(fd, &mut bytes[..], place),
            None => io::read(fd, &mut bytes[..]),
        });
        bytes.truncate(read.map_err(failed("read"))?);
        Ok(bytes)
    }

    /// Writes bytes, at a place or where the last call has ended.
    pub(crate) fn write(&self, number: RawFd, bytes: &[u8], place: Option<u64>) -> Result<usize> {
        let fd = self.get(number, "write")?;
        let written = retry_on_intr(|| match place {
            Some(place) => io::pwrite(fd, bytes, place),
            None => io::write(fd, bytes),
        });
        written.map_err(failed("write"))
    }

    /// The facts of an open file.
    pub(crate) fn facts(&self, number: RawFd) -> Result<Facts> {
        let fd = self.get(number, "fstat")?;
        facts(fd, c"", AtFlags::EMPTY_PATH).map_err(failed("fstat"))
    }
}

/// The flags that a text stands for.
pub(crate) fn flags_of(text: &str) -> Option<OFlags> {
    let (access, rest) = match text.strip_suffix('+') {
        Some(rest) => (OFlags::RDWR, rest),
        None if text.starts_with('r') => (OFlags::RDONLY, text),
        None => (OFlags::WRONLY, text),
    };
    let append = OFlags::APPEND | OFlags::CREATE;
    let anew = OFlags::TRUNC | OFlags::CREATE;
    let more = match rest {
        "r" => OFlags::empty(),
        "rs" if access == OFlags::RDWR => OFlags::SYNC,
        "a" => append,
        "as" => append | OFlags::SYNC,
        "ax" => append | OFlags::EXCL,
        "w" => anew,
        "wx" => anew | OFlags::EXCL,
        _ => return None,
    };
    Some(access | more)
}

/// The bytes of a file.
pub(crate) fn read_file(path: &[u8], flags: OFlags, bounds: &Bounds<'_>) -> Result<Vec<u8>> {
    let fd = open(path, flags, 0o666).map_err(failed("open"))?;
    let is_folder = fs::fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if is_folder.map_err(failed("stat"))? == FileType::Directory {
        return Err(failed("read")(Errno::ISDIR));
    }
    let mut bytes = Vec::new();
    let mut step = vec![0; STEP.min(bounds.bytes.saturating_add(1))];
    // Each turn takes a step of what may be read at most.
    loop {
        bounds.look_at_time().map_err(failed("read"))?;
        let read = retry_on_intr(|| io::read(&fd, &mut step[..])).map_err(failed("read"))?;
        if read == 0 {
            return Ok(bytes);
        }
        if bytes.len() + read > bounds.bytes {
            return Err(failed("read")(Errno::FBIG));
        }
        bytes.extend_from_slice(&step[..read]);
    }
}

/// Makes a file of bytes, or adds them to it.
pub(crate) fn write_file(
    path: &[u8],
    bytes: &[u8],
    (flags, mode): (OFlags, u32),
    bounds: &Bounds<'_>,
) -> Result<()> {
    let fd = open(path, flags, mode).map_err(failed("open"))?;
    for step in bytes.chunks(STEP) {
        let mut rest = step;
        while !rest.is_empty() {
            bounds.look_at_time().map_err(failed("write"))?;
            match retry_on_intr(|| io::write(&fd, rest)) {
                Ok(0) => return Err(failed("write")(Errno::IO)),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(why) => return Err(failed("write")(why)),
            }
        }
    }
    Ok(())
}

/// The facts of the file at a path.
pub(crate) fn stat(path: &[u8], link: Link) -> Result<Facts> {
    let (flags, call) = match link {
        Link::Follow => (AtFlags::empty(), "stat"),
        Link::Stay => (AtFlags::SYMLINK_NOFOLLOW, "lstat"),
    };
    facts(CWD, path, flags).map_err(failed(call))
}

/// True if a file may be used as the bits say: 4 to be read, 2 to be written, 1 to be run.
pub(crate) fn access(path: &[u8], bits: u32) -> Result<()> {
    let access = Access::from_bits_truncate(bits);
    fs::accessat(CWD, path, access, AtFlags::empty()).map_err(failed("access"))
}

/// The entries of a folder, but those for itself and the one above.
pub(crate) fn list(path: &[u8], bounds: &Bounds<'_>) -> Result<Vec<Item>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = open(path, flags, 0).map_err(failed("opendir"))?;
    let mut items = Vec::new();
    let mut bytes = 0;
    for entry in Dir::new(fd).map_err(failed("opendir"))? {
        let entry = entry.map_err(failed("readdir"))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        bytes += name.len() + size_of::<Item>();
        if bytes > bounds.bytes {
            return Err(failed("readdir")(Errno::NOMEM));
        }
        bounds.look_at_time().map_err(failed("readdir"))?;
        items.push(Item {
            name: name.to_vec(),
            kind: kind_of(entry.file_type()),
        });
    }
    Ok(items)
}

/// Makes a folder; perhaps also those above it that are not there.
pub(crate) fn make_folder(path: &[u8], mode: u32, others: Others) -> Result<()> {
    let make = |path: &[u8]| fs::mkdirat(CWD, path, Mode::from_raw_mode(mode));
    if others == Others::Left {
        return make(path).map_err(failed("mkdir"));
    }
    let bytes = path.iter().enumerate().skip(1);
    let slashes = bytes.filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for end in slashes.chain([path.len()]) {
        let part = path.get(..end).unwrap_or(path);
        match make(part) {
            Ok(()) => {}
            Err(Errno::EXIST) if is_folder(part) => {}
            // What is there may be where nothing can be made.
            Err(_) if end < path.len() && is_folder(part) => {}
            Err(Errno::EXIST) if end < path.len() => return Err(failed("mkdir")(Errno::NOTDIR)),
            Err(why) => return Err(failed("mkdir")(why)),
        }
    }
    Ok(())
}

/// Removes a folder; perhaps also all that is in it.
pub(crate) fn remove_folder(path: &[u8], others: Others, bounds: &Bounds<'_>) -> Result<()> {
    if others == Others::Too {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let folder = open(path, flags, 0).map_err(failed("rmdir"))?;
        empty(folder, MOST_DEPTH, bounds)?;
    }
    fs::unlinkat(CWD, path, AtFlags::REMOVEDIR).map_err(failed("rmdir"))
}

/// Removes all that is in a folder; no link is followed.
fn empty(folder: OwnedFd, depth: usize, bounds: &Bounds<'_>) -> Result<()> {
    let rmdir = failed("rmdir");
    // A folder that is read while it changes may not tell all.
    for name in names(&folder, bounds).map_err(rmdir)? {
        bounds.look_at_time().map_err(rmdir)?;
        let name = name.as_c_str();
        let stat = fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(rmdir)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            fs::unlinkat(&folder, name, AtFlags::empty()).map_err(rmdir)?;
            continue;
        }
        let Some(left) = depth.checked_sub(1) else {
            return Err(rmdir(Errno::NAMETOOLONG));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inner = fs::openat(&folder, name, flags, Mode::empty()).map_err(rmdir)?;
        empty(inner, left, bounds)?;
        fs::unlinkat(&folder, name, AtFlags::REMOVEDIR).map_err(rmdir)?;
    }
    Ok(())
}

/// The names in a folder, but those of itself and the one above.
fn names(folder: &OwnedFd, bounds: &Bounds<'_>) -> io::Result<Vec<CString>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        bytes += name.to_bytes().len() + size_of::<CString>();
        if bytes > bounds.bytes {
            return Err(Errno::NOMEM);
        }
        bounds.look_at_time()?;
        found.push(name.to_owned());
    }
    Ok(found)
}

/// Removes a file.
pub(crate) fn unlink(path: &[u8]) -> Result<()> {
    fs::unlinkat(CWD, path, AtFlags::empty()).map_err(failed("unlink"))
}

/// Gives a file another path.
pub(crate) fn rename(from: &[u8], to: &[u8]) -> Result<()> {
    fs::renameat(CWD, from, CWD, to).map_err(failed("rename"))
}

/// Makes a symbolic link.
pub(crate) fn symlink(target: &[u8], path: &[u8]) -> Result<()> {
    fs::symlinkat(target, CWD, path).map_err(failed("symlink"))
}

/// The path that a symbolic link has.
pub(crate) fn read_link(path: &[u8]) -> Result<Vec<u8>> {
    let target = fs::readlinkat(CWD, path, Vec::new()).map_err(failed("readlink"))?;
    Ok(target.into_bytes())
}

/// The path without links and dots.
pub(crate) fn real_path(path: &[u8]) -> Result<Vec<u8>> {
    match std::fs::canonicalize(OsStr::from_bytes(path)) {
        Ok(found) => Ok(found.into_os_string().into_vec()),
        Err(error) => {
            let why = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Err(failed("realpath")(why))
        }
    }
}

/// Makes a reason a failure of a call.
fn failed(call: &'static str) -> impl Fn(Errno) -> Failed + Copy {
    move |why| Failed { why, call }
}

/// Opens a file. One that is none (a pipe) is not waited for.
fn open(path: &[u8], flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    retry_on_intr(|| fs::openat(CWD, path, flags, mode))
}

fn is_folder(path: &[u8]) -> bool {
    let stat = fs::statat(CWD, path, AtFlags::empty());
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn facts(at: impl AsFd, path: impl rustix::path::Arg, flags: AtFlags) -> io::Result<Facts> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let of = fs::statx(at, path, flags, wanted)?;
    let device = |major, minor| fs::makedev(major, minor) as f64;
    let time = |at: fs::StatxTimestamp| at.tv_sec as f64 * 1e3 + f64::from(at.tv_nsec) / 1e6;
    let times = [of.stx_atime, of.stx_mtime, of.stx_ctime, of.stx_btime];
    Ok(Facts {
        numbers: [
            device(of.stx_dev_major, of.stx_dev_minor),
            f64::from(of.stx_mode),
            f64::from(of.stx_nlink),
            f64::from(of.stx_uid),
            f64::from(of.stx_gid),
            device(of.stx_rdev_major, of.stx_rdev_minor),
            f64::from(of.stx_blksize),
            of.stx_ino as f64,
            of.stx_size as f64,
            of.stx_blocks as f64,
        ],
        times: times.map(time),
    })
}

fn kind_of(kind: FileType) -> u8 {
    match kind {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        FileType::Unknown => 0,
    }
}

/// The name of a reason, as C has it.
pub(crate) fn name_of(why: Errno) -> &'static str {
    const NAMES: &[(Errno, &str)] = &[
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::NXIO, "ENXIO"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NFILE, "ENFILE"),
        (Errno::MFILE, "EMFILE"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::SPIPE, "ESPIPE"),
        (Errno::ROFS, "EROFS"),
        (Errno::MLINK, "EMLINK"),
        (Errno::PIPE, "EPIPE"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::STALE, "ESTALE"),
        (Errno::SRCH, "ESRCH"),
    ];
    let mut named = NAMES.iter().filter(|(known, _)| *known == why);
    named.next().map_or("EUNKNOWN", |(_, name)| name)
}

/// The words of a reason.
pub(crate) fn words_of(why: Errno) -> String {
    let words = std::io::Error::from(why).to_string();
    match words.split_once(" (os error") {
        Some((words, _)) => words.to_string(),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_nginx() {
        let anew = OFlags::TRUNC | OFlags::CREATE;
        for (text, flags) in [
            ("r", Some(OFlags::RDONLY)),
            ("r+", Some(OFlags::RDWR)),
            ("rs+", Some(OFlags::RDWR | OFlags::SYNC)),
            ("w", Some(anew | OFlags::WRONLY)),
            ("w+", Some(anew | OFlags::RDWR)),
            ("wx+", Some(anew | OFlags::EXCL | OFlags::RDWR)),
            ("a", Some(OFlags::APPEND | OFlags::CREATE | OFlags::WRONLY)),
            ("rs", None),
            ("rw", None),
            ("+", None),
            ("", None),
        ] {
            assert_eq!(flags_of(text), flags, "{text}");
        }
    }

    #[test]
    fn what_is_too_long_or_too_late_is_refused() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let path = place.path().as_os_str().as_bytes();
        std::fs::write(place.path(), vec![7; 1000]).unwrap();
        let bounds = |bytes, is_late: &'static dyn Fn() -> bool| Bounds { bytes, is_late };
        let read = |bounds: Bounds<'_>| read_file(path, OFlags::RDONLY, &bounds);
        assert_eq!(read(bounds(1000, &|| false)).unwrap().len(), 1000);
        let why = |bounds| read(bounds).unwrap_err().why;
        assert_eq!(why(bounds(999, &|| false)), Errno::FBIG);
        assert_eq!(why(bounds(1000, &|| true)), Errno::TIMEDOUT);
        // What never ends is not read to its end.
        let endless = read_file(b"/dev/zero", OFlags::RDONLY, &bounds(1000, &|| false));
        assert_eq!(endless.unwrap_err().why, Errno::FBIG);
    }

    #[test]
    fn a_script_has_no_descriptors_but_its_own() {
        let mut files = Files::default();
        assert_eq!(files.close(0).unwrap_err().why, Errno::BADF);
        assert_eq!(files.write(1, b"x", None).unwrap_err().why, Errno::BADF);
        let open = (OFlags::RDONLY, 0);
        let opened: Vec<_> = (0..MOST_OPEN)
            .map(|_| files.open(b"/dev/null", open).unwrap())
            .collect();
        assert_eq!(
            files.open(b"/dev/null", open).unwrap_err().why,
            Errno::MFILE
        );
        files.close(opened[0]).unwrap();
        files.open(b"/dev/null", open).unwrap();
        files.close_all();
        assert_eq!(files.facts(opened[1]).unwrap_err().why, Errno::BADF);
    }
}
