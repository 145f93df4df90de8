//! `state_path`: what outlives the process, in a folder for each issuer.
//!
//! | file | content |
//! |---|---|
//! | `account.key` | the account's key in PEM |
//! | `account.url` | the account's URL, and in the second line that of the directory it belongs to |
//! | `NAME-DIGEST.key` | the key of a certificate in PEM |
//! | `NAME-DIGEST.crt` | its chain in PEM |
//!
//! `NAME` is the first of the certificate's names; the digest is of all that is ordered, and of
//! where.
//!
//! 1. The folder is its owner's alone (0700), and so is each file (0600).
//! 2. A file is written whole under another name, synced and renamed: whoever reads finds the old
//!    one or the new one.
//! 3. A key and its chain change together: both are there under other names before the first is
//!    renamed, and who finds the new key takes the new chain, wherever it is.
//! 4. A file that cannot be used is set aside as `….damaged`; nothing that stands in one makes the
//!    process end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use millpond_store::make_private_folder;
use zeroize::Zeroizing;

/// The longest file that is read (arbitrary: chains have a few kilobytes).
const FILE_MAX: u64 = 1024 * 1024;

/// The account's key.
pub(crate) const ACCOUNT_KEY: &str = "account.key";
/// The account's URL.
pub(crate) const ACCOUNT_URL: &str = "account.url";

/// A folder of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads a file; none if it is not there.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Zeroizing<String>>> {
        let file = match File::open(self.path(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_MAX).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Writes files (INVARIANTS 2 and 3); they are renamed in their order.
    pub(crate) fn write(&self, files: &[(&str, &str)]) -> io::Result<()> {
        make_private_folder(&self.0)?;
        for (name, text) in files {
            self.write_new(&new_name(name), text)?;
        }
        for (name, _) in files {
            self.take_new(name)?;
        }
        File::open(&self.0)?.sync_all()
    }

    /// Gives a new file its place.
    pub(crate) fn take_new(&self, name: &str) -> io::Result<()> {
        fs::rename(self.path(&new_name(name)), self.path(name))
    }

    fn write_new(&self, name: &str, text: &str) -> io::Result<()> {
        let new = self.path(name);
        // One that a crash left behind may have another mode.
        let _ = fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Sets a file aside (INVARIANT 4).
    pub(crate) fn set_aside(&self, name: &str) -> io::Result<PathBuf> {
        let aside = self.path(&format!("{name}.damaged"));
        fs::rename(self.path(name), &aside)?;
        Ok(aside)
    }
}

/// The name of a file that has not got its place yet.
pub(crate) fn new_name(name: &str) -> String {
    format!("{name}.new")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn files_are_replaced_whole_and_are_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder(dir.path().join("above/acme"));
        assert_eq!(folder.read("a").unwrap(), None);
        for text in ["one", "two"] {
            folder.write(&[("a", text)]).unwrap();
            assert_eq!(folder.read("a").unwrap().unwrap().as_str(), text);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.0), 0o700);
        assert_eq!(mode(&folder.path("a")), 0o600);
        let names = fs::read_dir(&folder.0).unwrap().count();
        assert_eq!(names, 1, "nothing is left behind");
    }

    #[test]
    fn files_that_are_no_text_are_errors_and_can_be_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder(dir.path().to_owned());
        fs::write(folder.path("a"), [0xff, 0xfe]).unwrap();
        assert!(folder.read("a").is_err());
        let aside = folder.set_aside("a").unwrap();
        assert_eq!(fs::read(aside).unwrap(), [0xff, 0xfe]);
        assert_eq!(folder.read("a").unwrap(), None);
    }
}
