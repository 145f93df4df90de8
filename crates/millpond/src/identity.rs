//! `user`: who the process is.
//!
//! nginx has a master that stays root and workers that do not. Here the server becomes the user for
//! good, after the sockets and logs are open. What it keeps is the right to bind ports below 1024,
//! so that a reload can, and the right to foreign addresses (CAP_NET_RAW), if its configuration
//! uses them. What it will need is given to the user first: the logs, the folders of the caches and
//! of temporary files, the counters of sites and the control socket. What only root can do later is
//! done by a process beside it (`millpond_system::root_helper`), which also has the pid file, so
//! that the user cannot name another process in it.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group`. The change is made before any other
//! thread is started, because it concerns the calling thread and those that it starts.
//!
//! What it does not do: without `user` nothing changes, also for root.

use std::path::Path;

use anyhow::{Context, Result, bail};
use millpond_system::log::error::{self, Level, os_error};
use millpond_system::root_helper::Owner;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// Local addresses that connections may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// Addresses of this machine.
    Own,
    /// Any.
    Foreign,
}

impl Sources {
    /// All that is kept of root's rights.
    fn rights(self) -> CapabilitySet {
        match self {
            Sources::Own => CapabilitySet::NET_BIND_SERVICE,
            Sources::Foreign => CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_RAW,
        }
    }
}

/// A user that the process can become.
#[derive(Debug)]
pub(crate) struct Identity {
    uid: Uid,
    gid: Gid,
    /// Groups of the user, all of them.
    groups: Vec<Gid>,
}

/// Extent to which a file changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The group, too.
    WithGroup,
    /// The file gets the user and not its group: nginx leaves logs to theirs, in which those are
    /// who read them.
    UserOnly,
}

impl Identity {
    /// The user and group of `user name [group]`; none if the process is not root, and so cannot
    /// become anybody.
    pub(crate) fn find(names: &[String]) -> Result<Option<Identity>> {
        if !rustix::process::geteuid().is_root() {
            let message =
                "the \"user\" directive makes sense only if the program runs as root, ignored";
            error::process(Level::Warn, format_args!("{message}"));
            return Ok(None);
        }
        let (user, uid, gid) = find(names)?;
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        let mut groups = groups_of(&groups, user);
        groups.push(gid);
        Ok(Some(Identity { uid, gid, groups }))
    }

    /// True if the identity is root, so that nothing changes.
    pub(crate) fn is_root(&self) -> bool {
        self.uid.is_root()
    }

    /// Numbers of the identity, for the root helper.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            uid: self.uid.as_raw(),
            gid: self.gid.as_raw(),
            groups: self.groups.iter().map(|group| group.as_raw()).collect(),
        }
    }

    /// Makes a file or folder the user's; one that is not there is none of the user's needs.
    pub(crate) fn give(&self, path: &Path, given: Given) {
        let gid = (given == Given::WithGroup).then_some(self.gid);
        match rustix::fs::chown(path, Some(self.uid), gid) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => warn_of(path, errno),
        }
    }

    /// Gives the user what root has left in the folder of a cache: the process ran without `user`
    /// before. A file that has another name, too, may be one that the user has led here.
    pub(crate) fn give_content(&self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let given = rustix::fs::open(entry.path(), flags, Mode::empty()).and_then(|file| {
                let found = rustix::fs::fstat(&file)?;
                let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
                if found.st_uid != 0 || !is_file || found.st_nlink != 1 {
                    return Ok(());
                }
                let (uid, gid) = (Some(self.uid), Some(self.gid));
                rustix::fs::chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)
            });
            if let Err(errno) = given {
                warn_of(&entry.path(), errno);
            }
        }
    }

    /// Becomes the user, for good.
    pub(crate) fn take(&self, sources: Sources) -> Result<()> {
        let (uid, gid) = (self.uid, self.gid);
        set_keep_capabilities(true).context("prctl(PR_SET_KEEPCAPS)")?;
        set_thread_groups(&self.groups).context("setgroups()")?;
        set_thread_res_gid(gid, gid, gid).context("setgid()")?;
        set_thread_res_uid(uid, uid, uid).context("setuid()")?;
        if !uid.is_root() {
            keep_rights(sources.rights()).context("capset()")?;
        }
        Ok(())
    }
}

fn warn_of(path: &Path, errno: Errno) {
    let (path, reason) = (path.display(), os_error(&errno.into()));
    let message = format_args!("chown(\"{path}\") failed ({reason})");
    error::process(Level::Warn, message);
}

/// Checks that the process can change to the named user and group: root must find them, for others
/// they mean nothing.
pub(crate) fn check(names: &[String]) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        find(names).map(|_| ())
    } else {
        Ok(())
    }
}

/// The user's name and the identities of user and group.
fn find(names: &[String]) -> Result<(&str, Uid, Gid)> {
    let (user, group) = match names {
        [user] => (user, user),
        [user, group] => (user, group),
        _ => bail!("invalid number of arguments in \"user\" directive"),
    };
    let uid = find_id("/etc/passwd", user).with_context(|| format!("unknown user \"{user}\""))?;
    let gid = find_id("/etc/group", group).with_context(|| format!("unknown group \"{group}\""))?;
    Ok((user, Uid::from_raw(uid), Gid::from_raw(gid)))
}

/// Drops every right of root but these, also for what this process starts.
fn keep_rights(wanted: CapabilitySet) -> rustix::io::Result<()> {
    let had = rustix::thread::capabilities(None)?.permitted;
    let kept = had & wanted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        },
    )?;
    // The kernel takes one at a time.
    for right in kept.iter() {
        configure_capability_in_ambient_set(right, true)?;
    }
    Ok(())
}

/// The groups that list a user as a member.
fn groups_of(text: &str, user: &str) -> Vec<Gid> {
    let of_line = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let id = fields.next()?.parse().ok()?;
        let is_member = fields.next()?.split(',').any(|name| name == user);
        is_member.then(|| Gid::from_raw(id))
    };
    text.lines().filter_map(of_line).collect()
}

/// The third field of the line of a name.
fn find_id(path: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_name_the_user() {
        let text = "root:x:0:\nadm:x:4:syslog,www\nwww:x:33:\nwwwx:x:34:wwwx,x\nbad\n";
        let ids = |user: &str| -> Vec<u32> {
            let groups = groups_of(text, user);
            groups.into_iter().map(Gid::as_raw).collect()
        };
        assert_eq!(ids("www"), [4]);
        assert_eq!(ids("x"), [34]);
        assert_eq!(ids("root"), [0; 0]);
    }
}
