//! Resolution of the place to which a path leads root, if nobody but the operator has a say in it.
//!
//! The helper makes and opens files as root at paths of the configuration. Some of their folders
//! may be the server's user's, and whoever took over the server could put a link there that leads
//! root elsewhere. So the path is walked name by name, and a step is taken only if the user could
//! not have made it, nor can replace it:
//!
//! ```text
//! / ─► var ─► log ─► site ─► access.log
//! │     │      │       └ folder that the user cannot write to (or sticky: what is in it stays)
//! └─────┴──────┴ folder or link that is not the user's, in such a folder
//! ```
//!
//! Access control lists are not looked at.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::Owner;

/// Links that are followed on a path (the kernel's number).
const LINKS_MAX: u32 = 40;
/// The name of the folder above one.
const PARENT: &str = "..";

/// A name in a folder, both of which are the operator's.
#[derive(Debug)]
pub struct Place {
    /// The folder, as a path only.
    pub folder: OwnedFd,
    /// The name in it: no link, or nothing yet.
    pub name: OsString,
}

impl Place {
    /// The place that an absolute path leads to; EACCES when `user` has a say in it.
    pub fn of(path: &Path, user: &Owner) -> io::Result<Place> {
        let mut folder = root()?;
        let mut left: VecDeque<OsString> = names(path)?.collect();
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            user.must_not_write(&fstat(&folder)?)?;
            let found = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => found,
                Err(Errno::NOENT) if left.is_empty() => return Ok(Place { folder, name }),
                Err(errno) => return Err(errno.into()),
            };
            let kind = FileType::from_raw_mode(found.st_mode);
            if kind == FileType::Symlink {
                user.must_not_own(&found)?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&folder, &name, Vec::new())?.into_bytes();
                let target = OsString::from_vec(target);
                if Path::new(&target).is_absolute() {
                    folder = root()?;
                }
                names(Path::new(&target))?
                    .rev()
                    .for_each(|name| left.push_front(name));
            } else if left.is_empty() && name != PARENT {
                return Ok(Place { folder, name });
            } else {
                user.must_not_own(&found)?;
                folder = open_folder(&folder, &name)?;
            }
        }
        // The path leads to a folder.
        Err(Errno::ISDIR.into())
    }

    /// The same folder with an ending put to the name.
    pub fn with_ending(&self, ending: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(ending);
        name
    }
}

fn root() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/", flags, Mode::empty())?)
}

/// Opens a folder; a link that has taken its place since is refused.
fn open_folder(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// The names of a path, `..` among them.
fn names(path: &Path) -> io::Result<impl DoubleEndedIterator<Item = OsString> + use<>> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(Errno::INVAL.into());
    }
    let names: Vec<OsString> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(PARENT.into()),
            _ => None,
        })
        .collect();
    Ok(names.into_iter())
}

impl Owner {
    fn must_not_own(&self, found: &Stat) -> io::Result<()> {
        if found.st_uid == self.uid {
            Err(Errno::ACCESS.into())
        } else {
            Ok(())
        }
    }

    /// Refuses a folder in which the user could make, rename or remove what is not its own.
    fn must_not_write(&self, folder: &Stat) -> io::Result<()> {
        self.must_not_own(folder)?;
        let mode = Mode::from_raw_mode(folder.st_mode);
        let is_of_group = folder.st_gid == self.gid || self.groups.contains(&folder.st_gid);
        let may_write = mode.contains(Mode::WOTH) || is_of_group && mode.contains(Mode::WGRP);
        if may_write && !mode.contains(Mode::SVTX) {
            Err(Errno::ACCESS.into())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const USER: u32 = 54_321;

    fn user() -> Owner {
        Owner {
            uid: USER,
            gid: USER,
            groups: vec![USER + 1],
        }
    }

    fn is_granted(path: &Path) -> bool {
        match Place::of(path, &user()) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied,
                    "{path:?}: {error}"
                );
                false
            }
        }
    }

    #[test]
    fn links_of_the_operator_lead_to_where_they_point() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(base.join("real/deep")).unwrap();
        symlink("real", base.join("short")).unwrap();
        symlink(base.join("real/deep"), base.join("long")).unwrap();
        symlink("../short/x", base.join("real/up")).unwrap();
        for (path, name) in [
            ("a", "a"),
            ("short/a", "a"),
            ("long/../a", "a"),
            ("real/up", "x"),
        ] {
            let place = Place::of(&base.join(path), &user()).unwrap();
            assert_eq!(place.name, name, "{path}");
        }
        symlink("loop", base.join("loop")).unwrap();
        for path in ["loop", "loop/a", "none/a", "real/.."] {
            assert!(Place::of(&base.join(path), &user()).is_err(), "{path}");
        }
    }

    #[test]
    fn folders_and_links_of_the_user_are_not_gone_through() {
        // Only root can give things to others.
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: folders of another user need root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let theirs = base.join("theirs");
        fs::create_dir_all(theirs.join("roots")).unwrap();
        assert!(is_granted(&theirs.join("roots/a")));
        chown(&theirs, Some(USER), None).unwrap();
        assert!(!is_granted(&theirs.join("a")));
        assert!(
            !is_granted(&theirs.join("roots/a")),
            "the folder can be exchanged"
        );
        let shared = base.join("shared");
        fs::create_dir(&shared).unwrap();
        chown(&shared, Some(0), Some(USER + 1)).unwrap();
        for (mode, expected) in [
            (0o755, true),
            (0o775, false),
            (0o757, false),
            (0o1777, true),
            (0o2770, false),
        ] {
            fs::set_permissions(&shared, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(is_granted(&shared.join("a")), expected, "{mode:o}");
        }
        fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
        symlink("/etc/passwd", shared.join("link")).unwrap();
        std::os::unix::fs::lchown(shared.join("link"), Some(USER), None).unwrap();
        assert!(!is_granted(&shared.join("link")));
    }
}
