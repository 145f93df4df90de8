//! Directories for the disks of a test.
//!
//! In memory, where that can be: the speed of a disk is not what these tests are about.

use tempfile::TempDir;

/// An empty directory that goes with the test.
pub(crate) fn home() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    let home = in_memory.or_else(|_| tempfile::tempdir());
    home.expect("directory")
}
