//! Child processes of the demo, which end with it.
//!
//! 1. A child is in a process group of its own: Ctrl-C reaches the demo alone, which ends its
//!    children in the right order.
//! 2. A child that is let go is asked to end, and killed if it has not after `PATIENCE`; it is
//!    always waited for.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Time for a child to end by itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of its output that are told of a child that does not start.
const TOLD: usize = 2000;

/// A child process that runs.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    output: PathBuf,
}

impl Running {
    /// Starts a program, whose output goes to a file.
    pub(super) fn start(command: &mut Command, output: PathBuf) -> Result<Running> {
        let file = File::create(&output).with_context(|| output.display().to_string())?;
        command.stdin(Stdio::null()).process_group(0);
        command.stdout(file.try_clone()?).stderr(file);
        let program = Path::new(command.get_program()).display().to_string();
        let child = command.spawn().with_context(|| program)?;
        Ok(Running { child, output })
    }

    /// Number of the process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True if the process has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Ends the process at once, as a crash does.
    pub(super) fn kill(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The end of what it has written.
    pub(super) fn said(&self) -> String {
        let text = std::fs::read(&self.output).unwrap_or_default();
        let start = text.len().saturating_sub(TOLD);
        let end = text.get(start..).unwrap_or_default();
        String::from_utf8_lossy(end).trim().to_string()
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // The process is not waited for yet, so the number is its own.
        if let Some(pid) = self.process() {
            let _ = kill_process(pid, Signal::TERM);
            wait(pid);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process, for as long as it may take.
fn wait(pid: Pid) {
    let Ok(ended) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let patience = Timespec::try_from(PATIENCE).ok();
    // Whatever it says, the process is killed next.
    let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], patience.as_ref());
}
