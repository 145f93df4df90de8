//! `landlock`, `landlock_read`, `landlock_write`: the folders that the process may reach for the
//! rest of its life, held by the kernel (Landlock).
//!
//! ```text
//! configuration ─► reaches ─enter─► rules of the kernel ─► threads, and programs that are started
//!                     └─ of a reload ─refused─► those that are outside of the rules
//! ```
//!
//! Invariants:
//! 1. Rules never become wider: what is outside of them is refused to a reload by its name, and to
//!    everything else by the kernel.
//! 2. They bind all threads: they are made before there is a second one.
//!
//! Not here: which words of a configuration name a file; network and signals, which are not bound.
//!
//! Source: landlock(7).

use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, path_beneath_rules,
};
use millpond_conf::{Family, Words};

/// The newest version of the kernel's rules that is made use of, as far as a kernel has it.
const VERSION: ABI = ABI::V5;

/// Folders that any process reads: programs, libraries, names of users and hosts, authorities.
const OF_SYSTEM: [&str; 8] = [
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/etc",
    "/proc",
    "/sys",
    "/run/systemd/resolve",
];

/// The folder of devices, such as `/dev/null` and `/dev/stdout`.
const DEVICES: &str = "/dev";

/// The need for rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Demand {
    /// No rules are made.
    #[word("off")]
    Off,
    /// Rules are made where the kernel has them.
    #[word("on")]
    On,
    /// Without rules there is no start.
    #[word("required")]
    Required,
}

impl Demand {
    /// Goes on without rules where that is allowed.
    fn do_without(self) -> Result<(), ConfinementError> {
        match self {
            Demand::Off | Demand::On => Ok(()),
            Demand::Required => Err(ConfinementError::Missing),
        }
    }
}

/// Settings of the folders that the process may reach.
#[derive(Clone, Debug, Family)]
#[family(main)]
pub struct ConfinementPolicy {
    /// Has the kernel (Landlock, since Linux 5.13) refuse to the process, from the start to its
    /// end, every file that the configuration does not name. `on` warns where the kernel has no
    /// such rules, and `required` does not start there.
    ///
    /// Read may be: folders of the configuration's files and of those that directives name, such
    /// as certificates and `auth_basic_user_file`; `root` and `alias`; what any program reads
    /// (`/usr`, `/lib`, `/etc`, `/proc`, `/sys`, `/dev`). Written may be: folders of caches,
    /// temporary files, logs, counters, `state_path`, pid file and Unix sockets,
    /// `working_directory`, and roots where `proxy_store` is `on`. Of a name with variables the
    /// folder before the first of them counts; `landlock_read` and `landlock_write` add more.
    ///
    /// Rules cannot be widened: a reload whose configuration names something outside of them is
    /// refused, with its name, and a changed binary keeps them; a restart makes new ones. A disk
    /// that is mounted after the start is outside. The helper that stays root (`user`) is not
    /// bound.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such rules.
    #[directive(name = "landlock", default = "off")]
    pub demand: Demand,
    /// A folder, or a file, that may be read under `landlock`, beside those that the configuration
    /// names.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such rules.
    #[directive(name = "landlock_read", repeat)]
    pub read: Vec<PathBuf>,
    /// A folder that may be read and written under `landlock`, beside those that the configuration
    /// names.
    ///
    /// # Differs from nginx
    ///
    /// nginx has no such rules.
    #[directive(name = "landlock_write", repeat)]
    pub written: Vec<PathBuf>,
}

/// A right to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Files are read, and programs started.
    Read,
    /// Files are made, written and removed, too.
    Write,
}

/// A path that a process wants to reach, with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The path.
    pub path: PathBuf,
    /// The right that is wanted.
    pub right: Right,
    /// The directive that names it.
    pub directive: String,
}

/// The reason for which a process cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// The kernel has no such rules.
    #[error(
        "\"landlock required\" cannot be had: this kernel has no Landlock, or it is off (`lsm=` of \
         its command line)"
    )]
    Missing,
    /// The kernel refuses the rules.
    #[error("landlock: {0}")]
    Refused(String),
}

/// A path that is outside of the rules.
#[derive(Debug, PartialEq, Eq)]
pub struct Outside(Reach);

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outside(Reach {
            path,
            right,
            directive,
        }) = self;
        let verb = match right {
            Right::Read => "read",
            Right::Write => "written",
        };
        write!(
            f,
            "\"{}\" of \"{directive}\" may not be {verb}: it is outside of what \"landlock\" allows \
             since the start; a restart allows it",
            path.display()
        )
    }
}

/// The rules that bind a process.
#[derive(Debug)]
pub struct Confinement(Vec<(PathBuf, Right)>);

impl Confinement {
    /// Binds this thread, and all that it starts, to what it wants to reach; none where nothing
    /// was demanded, or where the kernel can do without.
    pub fn enter(
        demand: Demand,
        wanted: &[Reach],
    ) -> Result<Option<Confinement>, ConfinementError> {
        if demand == Demand::Off {
            return Ok(None);
        }
        let rules = Confinement::of(wanted);
        let is_enforced = rules
            .enforce()
            .map_err(|why| ConfinementError::Refused(why.to_string()))?;
        if !is_enforced {
            return demand.do_without().map(|()| None);
        }
        Ok(Some(rules))
    }

    /// The rules of a process that was started by one that is bound: those of the old one hold, and
    /// these say what the new one wants of them.
    pub fn of(wanted: &[Reach]) -> Confinement {
        let of_system = OF_SYSTEM.iter().map(|path| (Path::new(path), Right::Read));
        let wanted = wanted.iter().map(|it| (it.path.as_path(), it.right));
        let all = of_system.chain(wanted);
        Confinement(all.map(|(path, right)| (real(path), right)).collect())
    }

    /// Makes the rules; true if the kernel holds them.
    fn enforce(&self) -> Result<bool, landlock::RulesetError> {
        let of = |wanted: Right| {
            let rules = self.0.iter().filter(move |(_, right)| *right == wanted);
            rules.map(|(path, _)| path)
        };
        let all = AccessFs::from_all(VERSION);
        let devices = AccessFs::from_read(VERSION) | AccessFs::WriteFile | AccessFs::IoctlDev;
        let status = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .create()?
            .add_rules(path_beneath_rules(
                of(Right::Read),
                AccessFs::from_read(VERSION),
            ))?
            .add_rules(path_beneath_rules(of(Right::Write), all))?
            .add_rules(path_beneath_rules([DEVICES], devices))?
            .restrict_self()?;
        Ok(status.ruleset != RulesetStatus::NotEnforced)
    }

    /// Those of some paths that the rules do not allow. INVARIANT 1.
    pub fn refused(&self, wanted: &[Reach]) -> Vec<Outside> {
        let is_outside = |it: &&Reach| {
            let path = real(&it.path);
            let allows =
                |(rule, right): &(PathBuf, Right)| *right >= it.right && path.starts_with(rule);
            !self.0.iter().any(allows) && !path.starts_with(DEVICES)
        };
        wanted
            .iter()
            .filter(is_outside)
            .cloned()
            .map(Outside)
            .collect()
    }
}

/// A path without links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|part| {
        let real = part.canonicalize().ok()?;
        Some((part, real))
    });
    match there {
        Some((part, real)) => real.join(path.strip_prefix(part).unwrap_or(Path::new(""))),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(path: &Path, right: Right) -> Reach {
        Reach {
            path: path.to_owned(),
            right,
            directive: "root".to_owned(),
        }
    }

    #[test]
    fn paths_outside_are_refused_by_name_and_those_below_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("site/a")).unwrap();
        std::fs::create_dir_all(at("other")).unwrap();
        std::os::unix::fs::symlink(at("other"), at("site/link")).unwrap();
        let rules = Confinement::of(&[reach(&at("site"), Right::Read)]);
        for (path, right, is_allowed) in [
            (at("site"), Right::Read, true),
            (at("site/a/later"), Right::Read, true),
            (at("site/a"), Right::Write, false),
            (at("site/link"), Right::Read, false),
            (at("site2"), Right::Read, false),
            (at("other"), Right::Read, false),
            ("/etc/ssl".into(), Right::Read, true),
            ("/dev/null".into(), Right::Write, true),
        ] {
            let refused = rules.refused(&[reach(&path, right)]);
            assert_eq!(refused.is_empty(), is_allowed, "{path:?}");
        }
        let refused = rules.refused(&[reach(Path::new("/nowhere/x"), Right::Write)]);
        assert!(
            refused[0]
                .to_string()
                .starts_with("\"/nowhere/x\" of \"root\" may not be written: it is outside")
        );
    }

    #[test]
    fn kernels_without_rules_are_refused_where_rules_are_required() {
        assert!(Confinement::enter(Demand::Off, &[]).unwrap().is_none());
        assert!(Demand::On.do_without().is_ok());
        let why = Demand::Required.do_without().unwrap_err().to_string();
        assert!(why.contains("this kernel has no Landlock"), "{why}");
    }

    /// In a thread of its own, which alone is bound.
    #[test]
    fn kernel_refuses_what_is_outside() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["in", "out"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("file"), name).unwrap();
        }
        let wanted = [reach(&at("in"), Right::Write)];
        let bound = || {
            let entered = Confinement::enter(Demand::On, &wanted).unwrap();
            let seen = [at("in"), at("out")].map(|folder| {
                let read = std::fs::read(folder.join("file")).map_err(|why| why.kind());
                let made = std::fs::write(folder.join("new"), "").map_err(|why| why.kind());
                (read.map(|_| ()), made)
            });
            (entered.is_some(), seen)
        };
        let joined = std::thread::scope(|scope| scope.spawn(bound).join());
        let (is_bound, [inside, outside]) = joined.unwrap();
        assert_eq!(inside, (Ok(()), Ok(())));
        let denied = Err(std::io::ErrorKind::PermissionDenied);
        // A kernel without Landlock says so, and refuses nothing.
        let expected = if is_bound {
            (denied, denied)
        } else {
            (Ok(()), Ok(()))
        };
        assert_eq!(outside, expected);
    }
}
