//! `user`, `worker_rlimit_nofile`: who the process is and what it may use.
//!
//! nginx has a master that stays root and workers that do not. Here there is one process, and none
//! of it stays root: after the sockets and logs are open, it becomes the user for good. What it
//! keeps is the right to bind ports below 1024, so that a reload can, and a changed binary too, and
//! the right to foreign addresses (CAP_NET_RAW), if its configuration uses them.
//! What it will need later is given to the user first: the logs, the pid file, the folders of the
//! caches. So after the change
//!
//! - logs can be opened again if the user may create files where they are, or who rotates them
//!   creates them for the user;
//! - the pid file can be removed, or renamed for a change of the binary, if the user may write to
//!   its folder;
//! - a configuration that only root can read cannot be read again.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group`. The change is made before any other
//! thread is started, because it concerns the calling thread and those that it starts.
//!
//! What it does not do: without `user` nothing changes, also for root.

use std::path::Path;

use anyhow::{Context, Result, bail};
use millpond_proxy::log::error::{self, Level, os_error};
use rustix::process::{Gid, Resource, Rlimit, Uid, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// What connections may be given for their local addresses.
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

/// Changes to a user and a group: `user name [group]`; only root may. Gives `paths` to the user.
pub(crate) fn change_to(names: &[String], paths: &[&Path], sources: Sources) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let message =
            "the \"user\" directive makes sense only if the program runs as root, ignored";
        error::process(Level::Warn, format_args!("{message}"));
        return Ok(());
    }
    let (user, uid, gid) = find(names)?;
    for path in paths {
        give(path, uid, gid);
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let mut groups = groups_of(&groups, user);
    groups.push(gid);
    set_keep_capabilities(true).context("prctl(PR_SET_KEEPCAPS)")?;
    set_thread_groups(&groups).context("setgroups()")?;
    set_thread_res_gid(gid, gid, gid).context("setgid()")?;
    set_thread_res_uid(uid, uid, uid).context("setuid()")?;
    if !uid.is_root() {
        keep_rights(sources.rights()).context("capset()")?;
    }
    Ok(())
}

/// Whether the process can change to them: root must find them, for others they mean nothing.
pub(crate) fn check(names: &[String]) -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => find(names).map(|_| ()),
        false => Ok(()),
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

/// Makes a file or folder the user's; one that is not there is none of the user's needs.
fn give(path: &Path, uid: Uid, gid: Gid) {
    match rustix::fs::chown(path, Some(uid), Some(gid)) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(errno) => {
            let (path, reason) = (path.display(), os_error(&errno.into()));
            error::process(
                Level::Warn,
                format_args!("chown(\"{path}\") failed ({reason})"),
            );
        }
    }
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

/// Sets the largest number of open files.
pub(crate) fn limit_open_files(count: u32) {
    let limit = Some(u64::from(count));
    let wanted = Rlimit {
        current: limit,
        maximum: limit,
    };
    if let Err(errno) = setrlimit(Resource::Nofile, wanted) {
        let reason = os_error(&errno.into());
        error::process(
            Level::Alert,
            format_args!("setrlimit(RLIMIT_NOFILE, {count}) failed ({reason})"),
        );
    }
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
