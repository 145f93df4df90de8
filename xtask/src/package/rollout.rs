//! `cargo xtask package --rollout`: the role of contrib/ansible on three machines, containers that
//! boot with systemd.
//!
//! ```text
//! package ─► 0.1.0-1, 0.1.0-2, 0.1.0-3 (a program that does not start)
//! ansible-playbook ──ssh──► one, two, three ◄── a load on each, all the while
//! ```
//!
//! Ansible comes by ssh, through a program that enters the machine and starts sshd there, since the
//! machines have no network but their own loopback. A play takes the machines one after the other,
//! so that each check that fails must leave the two behind as they are.
//!
//! The task takes minutes, and the network the first time, and is not part of `cargo xtask test`.

use super::check::said;
use super::nspawn::{self, LOAD, Machine, Root, Step};
use super::{Build, Compression, build, ignore_missing, pack, stage, target, tools};
use crate::needs::Needs;
use crate::pace::Pace;
use crate::tally::Tally;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Names of the machines, in the order of the play.
const NAMES: [&str; 3] = ["one", "two", "three"];

/// The configuration of the roll-outs; the mark tells which of them is in force.
const CONF: &str = include_str!("../../../packaging/millpond.conf");

/// Runs the steps, each of which is a check and begins where the one before ended.
pub(super) fn run() -> Result<Tally> {
    nspawn::missing()
        .and_those(Needs::of(&[
            "ansible-playbook",
            "ssh",
            "ssh-keygen",
            "dpkg-deb",
        ]))
        .met("package --rollout")?;
    let fleet = Fleet::make()?;
    Ok(nspawn::make_steps("rollout", &fleet, &STEPS))
}

const STEPS: [Step<Fleet>; 6] = [
    ("first installation", first),
    ("again without a change", again),
    ("another version under load", version),
    ("a configuration with a mistake", mistake),
    ("a site that does not answer", silent_site),
    ("a program that does not start", broken_program),
];

/// The machines, and what is brought to them.
struct Fleet {
    folder: PathBuf,
    machines: Vec<Machine>,
}

impl Fleet {
    fn make() -> Result<Fleet> {
        tools::install(Pace::Full)?;
        let folder = target().join("rollout");
        fs::create_dir_all(&folder)?;
        packages(&folder)?;
        let root = folder.join("root");
        nspawn::bootstrap(
            &root,
            "openssl,curl,logrotate,procps,python3-apt,openssh-server",
            Pace::Full,
        )?;
        key(&folder, &root)?;
        let machines = NAMES
            .iter()
            .map(|_| Machine::boot(&root, Root::Forgotten))
            .collect::<Result<Vec<_>>>()?;
        let mut inventory = String::from("[millpond]\n");
        for (name, machine) in NAMES.iter().zip(&machines) {
            let door = folder.join(format!("enter-{name}"));
            let script = format!(
                "#!/bin/sh\nexec nsenter -t {} -m -u -i -n -p sh -c \
                 'mkdir -p /run/sshd; exec /usr/sbin/sshd -i -q'\n",
                machine.leader
            );
            fs::write(&door, script)?;
            fs::set_permissions(&door, fs::Permissions::from_mode(0o755))?;
            inventory += &format!(
                "{name} ansible_user=root ansible_ssh_private_key_file={key} \
                 ansible_ssh_common_args='-o ProxyCommand={door} -o StrictHostKeyChecking=no \
                 -o UserKnownHostsFile=/dev/null'\n",
                key = folder.join("key").display(),
                door = door.display(),
            );
        }
        fs::write(folder.join("hosts.ini"), inventory)?;
        Ok(Fleet { folder, machines })
    }

    /// Runs the playbook with a package and a configuration, one machine after the other.
    fn deploy(&self, package: &str, mark: &str, more: &str) -> Result<String> {
        let conf = self.folder.join("millpond.conf.j2");
        fs::write(&conf, marked(mark))?;
        let mut command = Command::new("ansible-playbook");
        let playbook = workspace::root().join("contrib/ansible/deploy.yml");
        let package = self.folder.join(package);
        command
            .arg("-i")
            .arg(self.folder.join("hosts.ini"))
            .arg(playbook)
            .args(["-e", "millpond_batch=1", "-e", "millpond_smoke_time=1s"])
            .args([
                "-e",
                &format!("millpond_package_file={}", package.display()),
            ])
            .args(["-e", &format!("millpond_conf={}", conf.display())])
            .args(["-e", more])
            .env("ANSIBLE_NOCOLOR", "1")
            // A connection that is kept would be one to a machine of an earlier run.
            .env("ANSIBLE_SSH_ARGS", "-o ControlMaster=no")
            .env("ANSIBLE_RETRY_FILES_ENABLED", "0")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        said(&mut command)
    }

    /// The mark of the configuration that each machine answers by.
    fn marks(&self) -> Result<Vec<String>> {
        let ask = "curl -si http://127.0.0.1/ | sed -n 's/\\r//; s/^X-Mark: //p'";
        self.machines.iter().map(|it| it.run(ask)).collect()
    }

    /// The version of the package that each machine has.
    fn versions(&self) -> Result<Vec<String>> {
        let ask = "dpkg-query -W -f '${Version}' millpond";
        self.machines.iter().map(|it| it.run(ask)).collect()
    }

    /// The roll-out is refused, for a reason with these words, and the machines stay as they were.
    fn refuses(&self, package: &str, mark: &str, more: &str, words: &[&str]) -> Result<()> {
        let before = (self.marks()?, self.versions()?);
        let error = match self.deploy(package, mark, more) {
            Ok(text) => anyhow::bail!("it was taken: {text}"),
            Err(error) => format!("{error:#}"),
        };
        for word in words {
            ensure!(error.contains(word), "no word of {word:?}: {error}");
        }
        let touched = NAMES[1..]
            .iter()
            .any(|name| error.contains(&format!("changed: [{name}]")));
        ensure!(!touched, "the machines behind were touched: {error}");
        let after = (self.marks()?, self.versions()?);
        ensure!(before == after, "{before:?} became {after:?}: {error}");
        for machine in &self.machines {
            machine.run("millpond sensor health && millpond sensor process")?;
        }
        Ok(())
    }
}

/// The packaged configuration with a field that tells the mark.
fn marked(mark: &str) -> String {
    CONF.replace(
        "add_header X-Cache ",
        &format!("add_header X-Mark {mark};\n        add_header X-Cache "),
    )
}

/// Makes three versions of the package; the third one's program does not start.
fn packages(folder: &Path) -> Result<()> {
    let staged = stage::make(&build::dynamic(&Build::Quick)?, folder)?;
    let out = folder.join("out");
    pack(&staged, &out, Compression::Fast)?;
    let prefix = format!("millpond_{}-1_", staged.program.version);
    let first = super::check::files(&out)?
        .into_iter()
        .find(|path| path.to_string_lossy().contains(&prefix))
        .context("no package")?;
    fs::copy(&first, folder.join("first.deb"))?;
    let tree = folder.join("tree");
    for (name, edit) in [
        (
            "second.deb",
            "sed -i 's/^Version: .*/Version: 9.0-1/' DEBIAN/control",
        ),
        (
            "broken.deb",
            "sed -i 's/^Version: .*/Version: 9.0-2/' DEBIAN/control; \
             printf '#!/bin/sh\\necho no program >&2; exit 1\\n' > usr/bin/millpond",
        ),
    ] {
        fs::remove_dir_all(&tree).or_else(ignore_missing)?;
        said(Command::new("dpkg-deb").arg("-R").args([&first, &tree]))?;
        said(Command::new("sh").args(["-ec", edit]).current_dir(&tree))?;
        let mut packed = Command::new("dpkg-deb");
        packed.args(["-Znone", "--root-owner-group", "-b"]);
        said(packed.arg(&tree).arg(folder.join(name)))?;
    }
    Ok(())
}

/// Makes a key that the machines know.
fn key(folder: &Path, root: &Path) -> Result<()> {
    let key = folder.join("key");
    if !key.exists() {
        let mut command = Command::new("ssh-keygen");
        said(
            command
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(&key),
        )?;
    }
    let known = root.join("root/.ssh");
    fs::create_dir_all(&known)?;
    fs::set_permissions(&known, fs::Permissions::from_mode(0o700))?;
    fs::copy(key.with_extension("pub"), known.join("authorized_keys"))?;
    Ok(())
}

/// Requests on each machine, until they are told to end.
struct Load(Vec<Child>);

impl Load {
    fn begin(fleet: &Fleet) -> Result<Load> {
        let start = |machine: &Machine| {
            machine.run("rm -f /root/stop")?;
            Ok(machine.command(LOAD).stdout(Stdio::piped()).spawn()?)
        };
        Ok(Load(
            fleet.machines.iter().map(start).collect::<Result<_>>()?,
        ))
    }

    /// Ends it; each request was answered.
    fn end(self, fleet: &Fleet) -> Result<()> {
        for machine in &fleet.machines {
            machine.run("touch /root/stop")?;
        }
        for (child, name) in self.0.into_iter().zip(NAMES) {
            let output = child.wait_with_output()?;
            let told = String::from_utf8_lossy(&output.stdout).trim().to_string();
            println!("package --rollout: {name}: {told}");
            let is_whole = told.ends_with(" 0 failed") && !told.starts_with("0 ");
            ensure!(is_whole, "{name}: {told}");
        }
        Ok(())
    }
}

/// Machines without the package have it, with its service, its configuration and its checks.
fn first(fleet: &Fleet) -> Result<()> {
    fleet.deploy("first.deb", "a", "x=y")?;
    let marks = fleet.marks()?;
    ensure!(marks == ["a"; 3], "{marks:?}");
    for machine in &fleet.machines {
        machine.run("systemctl is-enabled millpond && millpond sensor health")?;
    }
    Ok(())
}

/// A roll-out of the things that are in force changes nothing.
fn again(fleet: &Fleet) -> Result<()> {
    let text = fleet.deploy("first.deb", "a", "x=y")?;
    ensure!(text.matches("changed=0 ").count() == 3, "{text}");
    Ok(())
}

/// Another version and another configuration come without a request that fails.
fn version(fleet: &Fleet) -> Result<()> {
    let load = Load::begin(fleet)?;
    let outcome = fleet.deploy("second.deb", "b", "x=y");
    load.end(fleet)?;
    outcome?;
    let (marks, versions) = (fleet.marks()?, fleet.versions()?);
    ensure!(
        marks == ["b"; 3] && versions == ["9.0-1"; 3],
        "{marks:?} {versions:?}"
    );
    Ok(())
}

/// A configuration that is refused is put into force nowhere.
fn mistake(fleet: &Fleet) -> Result<()> {
    let words = ["Test the configuration", "unknown directive"];
    fleet.refuses("second.deb", "c; tpyo on", "x=y", &words)
}

/// A configuration that serves, but not the site that is asked, goes back.
fn silent_site(fleet: &Fleet) -> Result<()> {
    let urls = r#"{"millpond_smoke_urls": [{"url": "http://127.0.0.1/", "status": 418}]}"#;
    let load = Load::begin(fleet)?;
    let outcome = fleet.refuses("second.deb", "d", urls, &["Ask the sites", "went back"]);
    load.end(fleet)?;
    outcome
}

/// A package whose program does not start goes back to the one before, and nobody notices.
fn broken_program(fleet: &Fleet) -> Result<()> {
    let load = Load::begin(fleet)?;
    let outcome = fleet.refuses("broken.deb", "e", "x=y", &["went back"]);
    load.end(fleet)?;
    outcome
}
