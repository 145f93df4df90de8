//! The check of the repositories: apt and dnf read them, take what is signed, and refuse the rest.
//!
//! The key is made for it, in a folder of its own, as are all folders of apt, dnf and rpm: nothing
//! of the machine is read or changed.

use super::check::{Checked, package, said};
use super::ignore_missing;
use super::repository::{Signer, publish};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The owner of the key.
pub(super) const OWNER: &str = "packages@millpond.example";

const PROGRAMS: [&str; 6] = [
    "gpg",
    "apt-ftparchive",
    "apt-get",
    "createrepo_c",
    "dnf",
    "rpm",
];

/// A key that was made for a check; its folder goes when it is dropped.
pub(super) struct Made {
    home: PathBuf,
    pub(super) signer: Signer,
}

impl Made {
    pub(super) fn new(name: &str) -> Result<Made> {
        // The socket of the agent has a short path, or none.
        let home = std::env::temp_dir().join(format!("millpond-{name}-{}", std::process::id()));
        fs::remove_dir_all(&home).or_else(ignore_missing)?;
        fs::create_dir_all(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        let signer = Signer {
            key: OWNER.to_string(),
            home: Some(home.clone()),
        };
        let made = Made { home, signer };
        let mut gpg = made.signer.command("gpg");
        gpg.args([
            "--batch",
            "--quiet",
            "--passphrase",
            "",
            "--quick-generate-key",
        ]);
        said(gpg.args([OWNER, "rsa3072", "sign", "never"]))?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The agent ends by itself, too, when its folder is gone.
        let mut end = self.signer.command("gpgconf");
        let _ = end.args(["--kill", "gpg-agent"]).output();
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Makes repositories of the packages in a folder, and lets the clients at them.
pub(super) fn run(packages: &Path, folder: &Path) -> Result<Checked> {
    if let Some(no) = Checked::lacks(&PROGRAMS) {
        return Ok(no);
    }
    fs::remove_dir_all(folder).or_else(ignore_missing)?;
    let repository = folder.join("repository");
    let made = Made::new("key")?;
    for _ in 0..2 {
        // The second time as with a version before it: what is there stays.
        publish(packages, &repository, &made.signer)?;
    }
    let apt = Apt::new(&repository, &folder.join("apt"))?;
    apt.takes(&package(packages, "millpond_", ".deb")?)?;
    apt.refuses_changes(&repository.join("apt/dists/stable"))?;
    let other = Made::new("other")?;
    fs::copy(repository.join("millpond.asc"), folder.join("right.asc"))?;
    let mut export = other.signer.command("gpg");
    let public = export.args(["--armor", "--export"]).output()?.stdout;
    fs::write(repository.join("millpond.asc"), public)?;
    ensure!(apt.update().is_err(), "apt took another's signature");
    let refused = dnf(&repository, &folder.join("other")).err();
    let told = format!("{:?}", refused.context("dnf took another's signature")?);
    ensure!(
        told.contains("gpgme") || told.contains("signature"),
        "{told}"
    );
    fs::copy(folder.join("right.asc"), repository.join("millpond.asc"))?;
    let listed = dnf(&repository, &folder.join("dnf"))?;
    for name in ["millpond-0:", "millpond-debuginfo-0:"] {
        ensure!(listed.contains(name), "dnf does not know {name}: {listed}");
    }
    rpm_is_signed(&repository, &folder.join("rpm"))?;
    Ok(Checked::Yes)
}

/// The client of Debian with folders of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(repository: &Path, folder: &Path) -> Result<Apt> {
        for name in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::write(folder.join("status"), "")?;
        let (key, at) = (repository.join("millpond.asc"), repository.join("apt"));
        let line = format!(
            "deb [signed-by={}] file://{} stable main\n",
            key.display(),
            at.display()
        );
        fs::write(folder.join("sources.list"), line)?;
        Ok(Apt {
            folder: folder.to_path_buf(),
        })
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new("apt-get");
        for set in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".to_string(),
            format!("Dir::State={}", at("state")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "APT::Sandbox::User=root".to_string(),
            "APT::Update::Error-Mode=any".to_string(),
        ] {
            command.args(["-o", &set]);
        }
        said(command.args(args).current_dir(&self.folder))
    }

    fn update(&self) -> Result<String> {
        self.run(&["update", "-q"])
    }

    /// The package is found, and comes as it is.
    fn takes(&self, original: &Path) -> Result<()> {
        self.update()?;
        self.run(&["download", "-q", "millpond", "millpond-dbg"])?;
        let got = package(&self.folder, "millpond_", ".deb")?;
        ensure!(
            fs::read(got)? == fs::read(original)?,
            "another package came"
        );
        Ok(())
    }

    /// An index that was changed after it was signed is not believed.
    fn refuses_changes(&self, dists: &Path) -> Result<()> {
        let release = dists.join("InRelease");
        let text = fs::read_to_string(&release)?;
        fs::write(
            &release,
            text.replacen("Label: Millpond", "Label: Swamp", 1),
        )?;
        ensure!(self.update().is_err(), "a changed index was taken");
        fs::write(&release, text)?;
        self.update().context("the right index again")?;
        Ok(())
    }
}

/// The packages that dnf finds, which asks for signatures of all.
fn dnf(repository: &Path, folder: &Path) -> Result<String> {
    for name in ["repos", "cachedir", "persistdir", "logdir"] {
        fs::create_dir_all(folder.join(name))?;
    }
    let at = repository.display();
    let text = format!(
        "[millpond]\nname=Millpond\nbaseurl=file://{at}/yum\ngpgkey=file://{at}/millpond.asc\n\
         gpgcheck=1\nrepo_gpgcheck=1\nenabled=1\n"
    );
    fs::write(folder.join("repos/millpond.repo"), text)?;
    let set = |name: &str| format!("--setopt={name}={}", folder.join(name).display());
    let mut command = Command::new("dnf");
    command.args([
        "-y",
        "-q",
        "--disableplugin=*",
        "--releasever=9",
        "--setopt=skip_if_unavailable=0",
    ]);
    command.arg(format!(
        "--setopt=reposdir={}",
        folder.join("repos").display()
    ));
    command.args(["cachedir", "persistdir", "logdir"].map(&set));
    command.arg(format!("--installroot={}", folder.join("root").display()));
    said(command.args(["repoquery", "--nevra"]))
}

/// The package has a signature that the public key proves.
fn rpm_is_signed(repository: &Path, database: &Path) -> Result<()> {
    let keys = |args: &[&str], file: &Path| {
        let mut command = Command::new("rpmkeys");
        said(command.arg("--dbpath").arg(database).args(args).arg(file))
    };
    let program = package(&repository.join("yum"), "millpond-0", ".rpm")?;
    ensure!(
        keys(&["--checksig"], &program).is_err(),
        "a signature of nobody known was taken"
    );
    keys(&["--import"], &repository.join("millpond.asc"))?;
    let told = keys(&["--checksig", "--verbose"], &program)?;
    ensure!(
        told.contains("Signature") && told.contains(": OK"),
        "{told}"
    );
    Ok(())
}
