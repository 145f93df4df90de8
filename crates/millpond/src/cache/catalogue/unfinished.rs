//! A file that is whole or not there.
//!
//! It is written under another name beside the one it is to have, and renamed when it is whole and
//! on the disk. Whoever is told to end (`INT`, `TERM`, `HUP`) removes it first; only what is killed
//! leaves it, with a name that begins with a dot and ends in `.part`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, bail};
use tempfile::TempPath;
use tokio::signal::unix::{SignalKind, signal};

/// The mode of a new file; what the process's mask forbids is taken from it.
const MODE: u32 = 0o666;
/// Number that a shell adds to that of a signal.
const SIGNALLED: i32 = 128;

/// A file in the making; dropped, it is removed.
pub(super) struct Unfinished {
    temporary: TempPath,
    wanted: PathBuf,
}

impl Unfinished {
    /// An empty file beside the one that it is to become.
    pub(super) fn beside(wanted: &Path) -> Result<Unfinished> {
        let shown = || wanted.display().to_string();
        if wanted.is_dir() {
            bail!("{} is a directory", shown());
        }
        let name = wanted.file_name().with_context(shown)?.to_string_lossy();
        let temporary = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".part")
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(folder(wanted))
            .with_context(shown)?
            .into_temp_path();
        remove_when_told(temporary.to_path_buf())?;
        Ok(Unfinished {
            temporary,
            wanted: wanted.to_path_buf(),
        })
    }

    /// Path of the unfinished file.
    pub(super) fn path(&self) -> &Path {
        &self.temporary
    }

    /// Gives the file its name, in place of what had that.
    pub(super) fn finish(self) -> Result<()> {
        let shown = self.wanted.display().to_string();
        let written = File::open(&self.temporary).and_then(|file| file.sync_all());
        written.with_context(|| shown.clone())?;
        let renamed = self.temporary.persist(&self.wanted);
        renamed
            .map_err(|failure| failure.error)
            .and_then(|()| File::open(folder(&self.wanted))?.sync_all())
            .context(shown)
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Ends the process when it is told to, without the file.
fn remove_when_told(path: PathBuf) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate, mut hang_up) = runtime.block_on(async {
        let told = |kind| signal(kind).context("signals");
        let interrupt = told(SignalKind::interrupt())?;
        anyhow::Ok((
            interrupt,
            told(SignalKind::terminate())?,
            told(SignalKind::hangup())?,
        ))
    })?;
    let wait = move || {
        let kind = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
                _ = hang_up.recv() => SignalKind::hangup(),
            }
        });
        // It may have its name already.
        let _ = fs::remove_file(&path);
        process::exit(SIGNALLED + kind.as_raw_value());
    };
    let thread = std::thread::Builder::new().name("signals".to_string());
    thread.spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.db");
        let names = || fs::read_dir(dir.path()).unwrap().count();
        fs::write(&path, "before").unwrap();
        let dropped = Unfinished::beside(&path).unwrap();
        fs::write(dropped.path(), "half").unwrap();
        assert_eq!(names(), 2);
        drop(dropped);
        assert_eq!((names(), fs::read(&path).unwrap()), (1, b"before".to_vec()));
        let finished = Unfinished::beside(&path).unwrap();
        fs::write(finished.path(), "whole").unwrap();
        finished.finish().unwrap();
        assert_eq!((names(), fs::read(&path).unwrap()), (1, b"whole".to_vec()));
        assert!(Unfinished::beside(dir.path()).is_err());
        assert!(Unfinished::beside(&dir.path().join("no/out")).is_err());
    }
}
