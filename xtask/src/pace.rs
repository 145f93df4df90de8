//! Paces of builds: with the whole machine, or beside tests, which wait for much of their time.

use std::process::{Command, Stdio};

/// The share of the machine that a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As much as any other.
    Full,
    /// The rest that other programs leave: whatever else is ready to run goes first (SCHED_IDLE).
    Idle,
}

impl Pace {
    /// The same command at this pace, with its arguments, variables and folder; an idle one has
    /// nothing to read.
    pub(crate) fn of(self, command: Command) -> Command {
        if self == Pace::Full {
            return command;
        }
        let mut slow = Command::new("chrt");
        slow.args(["--idle", "0"]).arg(command.get_program());
        slow.args(command.get_args()).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => slow.env(name, value),
                None => slow.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            slow.current_dir(folder);
        }
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy in `/proc/PID/stat` is field 41; 5 is SCHED_IDLE (sched(7)).
    #[test]
    fn an_idle_program_has_its_folder_and_variables() {
        let said = |pace: Pace| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $A $PWD $(cut -d' ' -f41 /proc/$$/stat)"]);
            command.env("A", "b").current_dir("/");
            let output = pace.of(command).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(said(Pace::Full), "b / 0\n");
        assert_eq!(said(Pace::Idle), "b / 5\n");
    }
}
