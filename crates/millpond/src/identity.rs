//! `user`, `worker_rlimit_nofile`: who the process is and what it may use.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group`. The change is made before any other
//! thread is started, because it concerns the calling thread and those that it starts.
//!
//! What it does not do: without `user` nothing changes, also for root.

use anyhow::{Context, Result, bail};
use millpond_proxy::log::error::{self, Level, os_error};
use rustix::process::{Gid, Resource, Rlimit, Uid, setrlimit};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Changes to a user and a group: `user name [group]`; only root may.
pub(crate) fn change_to(names: &[String]) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let message =
            "the \"user\" directive makes sense only if the program runs as root, ignored";
        error::process(Level::Warn, format_args!("{message}"));
        return Ok(());
    }
    let (user, group) = match names {
        [user] => (user, user),
        [user, group] => (user, group),
        _ => bail!("invalid number of arguments in \"user\" directive"),
    };
    let uid = find_id("/etc/passwd", user).with_context(|| format!("unknown user \"{user}\""))?;
    let gid = find_id("/etc/group", group).with_context(|| format!("unknown group \"{group}\""))?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[gid]).context("setgroups()")?;
    set_thread_res_gid(gid, gid, gid).context("setgid()")?;
    set_thread_res_uid(uid, uid, uid).context("setuid()")?;
    Ok(())
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
