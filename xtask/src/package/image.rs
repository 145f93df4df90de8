//! The container image: the program with everything inside, and what it reads, on nothing.
//!
//! ```text
//! static program ──► image/{Containerfile,root,own} ──podman build──► localhost/millpond
//! ```
//!
//! `root` belongs to root, `own` to the user of the process. `cargo xtask package --container`
//! checks both the program, in a folder with nothing else, and the image, as a careful operator
//! runs it: no rights, no network, nothing to write but its volumes.

use super::build::{self, Build, Built, Machine};
use super::check::{Checked, named, said};
use super::{arm64, ignore_missing, stage, target};
use crate::needs::Needs;
use crate::tally::Tally;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use millpond_testkit::Deadline;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The longest that a start may take.
const WAIT: Duration = Duration::from_secs(20);

/// The name that it has on the machine that made it.
const NAME: &str = "localhost/millpond";

/// The user and the group, of which nobody else may be there.
const PASSWD: &str = "millpond:x:65532:65532::/nonexistent:/sbin/nologin\n";
const GROUP: &str = "millpond:x:65532:\n";

/// Sources of names; musl knows no others, and glibc asks this file.
const SOURCES: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// Authorities whose certificates are believed, if the machine knows any.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Copies: name in the stage, and in the image; the configuration comes from elsewhere.
const COPIES: &[(&str, &str)] = &[
    ("millpond", "root/usr/bin/millpond"),
    ("etc/mime.types", "root/etc/millpond/mime.types"),
    ("etc/fastcgi.conf", "root/etc/millpond/fastcgi.conf"),
    ("etc/fastcgi_params", "root/etc/millpond/fastcgi_params"),
    ("etc/scgi_params", "root/etc/millpond/scgi_params"),
    ("etc/uwsgi_params", "root/etc/millpond/uwsgi_params"),
    (
        "welcome/index.html",
        "root/usr/share/millpond/welcome/index.html",
    ),
    (
        "LICENSE-APACHE",
        "root/usr/share/doc/millpond/LICENSE-APACHE",
    ),
    ("LICENSE-MIT", "root/usr/share/doc/millpond/LICENSE-MIT"),
];

const OWN: [&str; 3] = ["var/cache/millpond", "run/millpond", "tmp"];

/// Writes what the image is made of, and gives the folder and the version.
fn context(built: &Built) -> Result<(PathBuf, String)> {
    let staged = stage::make(built, &target().join("static"))?.program;
    let folder = target().join("image");
    fs::remove_dir_all(&folder).or_else(ignore_missing)?;
    for name in OWN {
        fs::create_dir_all(folder.join("own").join(name))?;
    }
    fs::create_dir_all(folder.join("root/etc/millpond/conf.d"))?;
    for (from, to) in COPIES {
        copy(&staged.folder.join(from), &folder.join(to))?;
    }
    let ours = workspace::root().join("contrib/container");
    let conf = "root/etc/millpond/millpond.conf";
    copy(&ours.join("millpond.conf"), &folder.join(conf))?;
    copy(&ours.join("Containerfile"), &folder.join("Containerfile"))?;
    stage::write(&folder.join("root/etc/passwd"), PASSWD)?;
    stage::write(&folder.join("root/etc/group"), GROUP)?;
    stage::write(&folder.join("root/etc/nsswitch.conf"), SOURCES)?;
    if built.machine == Machine::Arm64 {
        for (from, to) in arm64::libraries(&built.path)? {
            copy(&from, &folder.join("root").join(to))?;
        }
    }
    let authorities = Path::new("/").join(AUTHORITIES);
    if authorities.exists() {
        copy(&authorities, &folder.join("root").join(AUTHORITIES))?;
    }
    Ok((folder, staged.version))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Programs of an image.
const PROGRAMS: [&str; 2] = ["podman", "runc"];

/// Builds the image with the storage of the user.
pub(super) fn make(machine: Machine, build: &Build) -> Result<()> {
    // Known before the build.
    missing(machine)
        .and_those(Needs::of(&PROGRAMS[..1]))
        .met("package --image")?;
    let (folder, version) = context(&program(machine, build)?)?;
    let name = build_image((Podman { storage: None }, machine), &folder, &version)?;
    println!("{name}");
    Ok(())
}

/// The things that are missing for the program of an image.
fn missing(machine: Machine) -> Needs {
    match machine {
        Machine::Here => build::missing_for_static(),
        Machine::Arm64 => arm64::missing(),
    }
}

/// The program of an image: with everything inside, or with the libraries that it wants beside it.
fn program(machine: Machine, build: &Build) -> Result<Built> {
    match machine {
        Machine::Here => build::with_all_inside(build),
        Machine::Arm64 => arm64::build(build),
    }
}

fn build_image(
    (podman, machine): (Podman, Machine),
    folder: &Path,
    version: &str,
) -> Result<String> {
    let (name, platform) = match machine {
        Machine::Here => (format!("{NAME}:{version}"), None),
        Machine::Arm64 => (format!("{NAME}:{version}-arm64"), Some("linux/arm64")),
    };
    // Health checks are a thing of this form.
    let mut command = podman.command(&["build", "--quiet", "--format", "docker", "--tag"]);
    command.arg(&name);
    if let Some(platform) = platform {
        command.args(["--platform", platform]);
    }
    said(command.arg(folder))?;
    Ok(name)
}

/// Runs the checks.
pub(super) fn check(machine: Machine) -> Result<Tally> {
    missing(machine)
        .and_those(Needs::of(&PROGRAMS))
        .and_root()
        .met("package --container")?;
    let (folder, version) = context(&program(machine, &Build::Quick)?)?;
    // The kernel runs what is in a container for arm64 by qemu, as long as this is there.
    let _runner = match machine {
        Machine::Here => None,
        Machine::Arm64 => Some(arm64::Runner::register()?),
    };
    let mut tally = Tally::default();
    if machine == Machine::Here {
        tally += named("a folder with nothing else", || alone(&folder))?;
    }
    tally += named("image", || image(machine, &folder, &version))?;
    Ok(tally)
}

/// The program finds users and names of hosts where there is nothing of a C library.
fn alone(folder: &Path) -> Result<Checked> {
    let root = target().join("alone");
    fs::remove_dir_all(&root).or_else(ignore_missing)?;
    copy(
        &folder.join("root/usr/bin/millpond"),
        &root.join("millpond"),
    )?;
    stage::write(&root.join("etc/passwd"), PASSWD)?;
    stage::write(&root.join("etc/group"), GROUP)?;
    stage::write(&root.join("etc/hosts"), "192.0.2.7 origin.example\n")?;
    let conf = "user millpond; error_log stderr; pid /pid; events {} http { access_log off; \
                server { listen 8080; location / { proxy_pass http://origin.example; } } }";
    let test = |text: &str| {
        stage::write(&root.join("conf"), text)?;
        let mut command = Command::new("chroot");
        command
            .arg(&root)
            .args(["/millpond", "-e", "stderr", "-t", "-c", "/conf"]);
        said(&mut command)
    };
    test(conf)?;
    for (word, other) in [("user millpond", "user nobody"), ("origin.", "another.")] {
        ensure!(
            test(&conf.replace(word, other)).is_err(),
            "{other} was found"
        );
    }
    Ok(Checked::Yes)
}

/// Podman, with storage of its own or with the user's.
#[derive(Clone, Copy)]
struct Podman<'a> {
    storage: Option<&'a Path>,
}

impl Podman<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("podman");
        if let Some(storage) = self.storage {
            command.arg("--root").arg(storage.join("images"));
            command.arg("--runroot").arg(storage.join("running"));
        }
        // Machines without systemd have cgroups of another form, which crun does not know.
        if !Path::new("/run/systemd/system").exists() {
            command.args(["--runtime=runc", "--cgroup-manager=cgroupfs"]);
        }
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        Ok(said(&mut self.command(args))?.trim().to_string())
    }
}

/// A container that runs; it is taken away when dropped.
struct Container<'a> {
    podman: Podman<'a>,
}

/// The name of the container.
const CONTAINER: &str = "millpond-check";

impl Container<'_> {
    fn exec(&self, words: &str) -> Result<String> {
        let words: Vec<&str> = words.split(' ').collect();
        let start = ["exec", CONTAINER, "/usr/bin/millpond", "sensor"];
        self.podman.run(&[&start[..], &words].concat())
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = self.podman.run(&["rm", "-f", "-v", CONTAINER]);
    }
}

/// The image serves, from the cache, is healthy, writes its log and ends well.
fn image(machine: Machine, folder: &Path, version: &str) -> Result<Checked> {
    let storage = target().join("podman");
    let podman = Podman {
        storage: Some(&storage),
    };
    let name = build_image((podman, machine), folder, version)?;
    let container = Container { podman };
    podman.run(&["rm", "-f", "-v", "-i", CONTAINER])?;
    podman.run(&[
        "run",
        "--detach",
        &format!("--name={CONTAINER}"),
        "--network=none",
        "--read-only",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        // Those of the machine may be fewer than the runtime would give.
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1024:1024",
        &name,
    ])?;
    let healthy = || podman.run(&["healthcheck", "run", CONTAINER]).ok();
    if Deadline::after(WAIT).poll(healthy).is_none() {
        anyhow::bail!("never healthy: {}", podman.run(&["logs", CONTAINER])?);
    }
    for _ in 0..2 {
        let told = container.exec("latency --url http://127.0.0.1:8080/")?;
        ensure!(told.contains("status 200"), "{told}");
    }
    let told = container.exec("latency --url http://127.0.0.1:8080/ready")?;
    ensure!(told.contains("status 200"), "{told}");
    let told = container.exec("hit-ratio --socket /run/millpond/millpond.control")?;
    ensure!(told.contains("hit_ratio=50%"), "{told}");
    podman.run(&["stop", "--time=20", CONTAINER])?;
    let told = podman.run(&["logs", CONTAINER])?;
    ensure!(told.matches("\"GET / ").count() == 2, "{told}");
    ensure!(
        !told.contains("[emerg]") && !told.contains("[alert]"),
        "{told}"
    );
    let asked = "{{.State.ExitCode}} {{.Config.User}} {{.HostConfig.ReadonlyRootfs}}";
    let state = podman.run(&["inspect", "--format", asked, CONTAINER])?;
    ensure!(state == "0 65532:65532 true", "{state}");
    Ok(Checked::Yes)
}
