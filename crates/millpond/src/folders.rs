//! Folders and files that a start would make, looked at without making them: for `-t`.
//!
//! What is there must be usable, and what is missing must be makeable in the nearest folder that is
//! there. A process of root's that is to become a user is asked twice: root makes things and gives
//! them to the user, and the user must get to them. The second is asked by a thread that becomes
//! the user, since the kernel knows best who may do what.
//!
//! What it does not do: it opens no cache, and so cannot tell of one that is damaged or in use.

use std::io;
use std::path::{Path, PathBuf};

use millpond_exchange::settings::Conf;
use millpond_proxy::cache::zones::store_file;
use millpond_server::control::Wanted;
use millpond_system::log::error::os_error;
use rustix::fs::{Access, FileType, access, stat};
use rustix::io::Errno;

use crate::identity::{Identity, Sources};

/// Faults of a start under this configuration, in nginx's words: what it would fail to make.
pub(crate) fn faults(conf: &Conf, prefix: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let mut note = |call: &str, path: &Path, seen: io::Result<()>| {
        if let Err(error) = seen {
            let (path, reason) = (path.display(), os_error(&error));
            faults.push(format!("{call}() \"{path}\" failed ({reason})"));
        }
    };
    let zones = zone_folders(conf);
    for path in &zones {
        note("mkdir", path, is_makeable(path));
        let file = store_file(path);
        note("open", &file, is_regular(&file));
    }
    let pid = prefix.join(&conf.main.process.pid);
    note("open", &pid, is_writable(&pid));
    // One that nobody asked for may be missing.
    if let wanted @ Wanted::Named(_) = &Wanted::of(conf, prefix)
        && let Some(path) = wanted.path()
    {
        note("bind", path, is_makeable_in(path));
        if path.is_dir() {
            note("bind", path, Err(Errno::EXIST.into()));
        }
    }
    let user = conf.main.process.user.as_ref();
    // A user that there is not is told elsewhere.
    let identity = user.filter(|_| rustix::process::geteuid().is_root());
    let identity = identity.and_then(|names| Identity::find(names).ok().flatten());
    match identity {
        Some(identity) => {
            let named = conf.declared.temp_folders.named();
            let paths: Vec<PathBuf> = zones.into_iter().chain(named).collect();
            for path in &paths {
                note("mkdir", path, is_makeable(path));
            }
            let seen = as_user(&identity, &paths);
            for (path, seen) in paths.iter().zip(seen) {
                note("open", path, seen);
            }
        }
        None => {
            if let Err(failure) = conf.declared.temp_folders.check() {
                faults.push(failure.to_string());
            }
        }
    }
    faults.dedup();
    faults
}

/// Folders without which the process does not start.
fn zone_folders(conf: &Conf) -> Vec<PathBuf> {
    let zones = conf.declared.zones.iter();
    // A zone on several disks starts without those that cannot be had.
    let single = zones.filter(|zone| zone.disks.is_empty());
    single.map(|zone| zone.path.clone()).collect()
}

/// Results of reaching each of these paths as the user, once root has made it and given it away.
fn as_user(identity: &Identity, paths: &[PathBuf]) -> Vec<io::Result<()>> {
    let see = || -> Vec<io::Result<()>> {
        match identity.take(Sources::Own) {
            Ok(()) => paths.iter().map(|path| is_reachable(path)).collect(),
            // A start says why.
            Err(_) => paths.iter().map(|_| Err(Errno::PERM.into())).collect(),
        }
    };
    std::thread::scope(|scope| scope.spawn(see).join().unwrap_or_default())
}

/// The path, or the nearest folder above it that is there.
fn nearest(path: &Path) -> &Path {
    let mut all = path.ancestors();
    let there = all.find(|path| !matches!(stat(*path), Err(Errno::NOENT)));
    match there {
        // A relative path begins here.
        Some(path) if path.as_os_str().is_empty() => Path::new("."),
        other => other.unwrap_or(path),
    }
}

/// Checks that a folder is there and can be written to, or can be made.
fn is_makeable(path: &Path) -> io::Result<()> {
    let there = nearest(path);
    if there != path && path.is_symlink() {
        // It leads to nothing, and no folder can be made in its place.
        return Err(Errno::NOENT.into());
    }
    if FileType::from_raw_mode(stat(there)?.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR.into());
    }
    Ok(access(there, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Checks that something can be made in the folder that a path is in, which is not made.
fn is_makeable_in(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Checks that a file is one that bytes can be kept in, if it is there.
fn is_regular(path: &Path) -> io::Result<()> {
    match stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Directory) => Err(Errno::ISDIR.into()),
        // Whoever cannot look at it is told so elsewhere.
        Ok(FileType::RegularFile) | Err(_) => Ok(()),
        Ok(_) => Err(io::Error::other("no regular file")),
    }
}

/// Checks that a file can be replaced or written over.
fn is_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    match (is_makeable_in(path), access(path, Access::WRITE_OK)) {
        (Ok(()), _) | (_, Ok(())) => Ok(()),
        (Err(error), _) => Err(error),
    }
}

/// Checks that the folder above a path can be entered, or the nearest that there is.
fn is_reachable(path: &Path) -> io::Result<()> {
    Ok(access(
        nearest(path.parent().unwrap_or(path)),
        Access::EXEC_OK,
    )?)
}
