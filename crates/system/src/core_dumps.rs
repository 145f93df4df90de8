//! `working_directory`, `worker_rlimit_core`: the folder that the process writes core dumps to, and
//! how long they may be.
//!
//! Paths of the configuration start at the prefix, and not here. The program is started again, to
//! change the binary, in the folder that it was started in at first.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use millpond_conf::Family;
use millpond_conf::value::Offset;
use rustix::fs::{Access, access};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, chdir, getcwd, getrlimit, set_dumpable_behavior, setrlimit,
};

use crate::heritage::Program;
use crate::log::error::{self, Level, os_error};

/// Settings of core dumps.
#[derive(Clone, Debug, Family)]
#[family(main)]
pub struct CorePolicy {
    /// The current folder of the process, where the system writes its core dumps unless
    /// `/proc/sys/kernel/core_pattern` says otherwise. The user of the process must be able to
    /// write to it.
    ///
    /// # Differs from nginx
    ///
    /// A folder that cannot be entered is refused at the start and by a reload, instead of ending
    /// the workers.
    #[directive(name = "working_directory")]
    pub folder: Option<PathBuf>,
    /// The largest size of a core dump. With it a process that has changed to its `user` leaves
    /// core dumps, too; they hold keys of certificates and what is in the caches.
    #[directive(name = "worker_rlimit_core")]
    pub size: Option<Offset>,
}

/// A folder that cannot be entered, in nginx's words.
#[derive(Debug, thiserror::Error)]
#[error("chdir(\"{}\") failed ({})", path.display(), os_error(source))]
pub struct FolderError {
    path: PathBuf,
    source: io::Error,
}

impl CorePolicy {
    /// Looks whether the folder can be entered.
    pub fn check(&self) -> Result<(), FolderError> {
        let Some(path) = &self.folder else {
            return Ok(());
        };
        access(path, Access::EXISTS | Access::EXEC_OK).map_err(|errno| FolderError {
            path: path.clone(),
            source: errno.into(),
        })
    }

    /// Puts folder and size into force, as the user that the process has become; what cannot be
    /// had is logged, and the process goes on without.
    pub fn obey(&self, program: &mut Program) {
        if let Some(folder) = &self.folder {
            if program.folder.is_none() {
                let here = getcwd(Vec::new()).ok();
                program.folder = here.map(|path| OsString::from_vec(path.into_bytes()).into());
            }
            if let Err(errno) = chdir(folder) {
                let (folder, reason) = (folder.display(), os_error(&errno.into()));
                let message = format_args!("chdir(\"{folder}\") failed ({reason})");
                error::process(Level::Alert, message);
            }
        }
        if let Some(Offset(size)) = self.size
            && let Err(errno) = limit(size)
        {
            let reason = os_error(&errno.into());
            let message = format_args!("setrlimit(RLIMIT_CORE, {size}) failed ({reason})");
            error::process(Level::Alert, message);
        }
    }
}

/// Limits the size of a core dump, so that a later reload can change it again, and lets a process
/// that has changed its user leave one.
fn limit(size: u64) -> rustix::io::Result<()> {
    let most = getrlimit(Resource::Core).maximum;
    let limits = Rlimit {
        current: Some(size),
        maximum: most.map(|most| most.max(size)),
    };
    setrlimit(Resource::Core, limits)?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}
