//! The checks of the packages that `cargo xtask test` makes, with the quick build.
//!
//! Pages, scripts and the default configuration are checked always. Packages are made, compared,
//! installed below a folder, upgraded, removed and purged where the packagers are there: `cargo
//! xtask setup` installs them, or any task that packs.
//!
//! Nothing is installed on the machine: dpkg works on a folder, and the scripts of the package know
//! that by DPKG_ROOT.

use super::build::{Built, Machine};
use super::stage::{self, Stage};
use super::{
    Compression, SUMS, boot, chart, glibc, ignore_missing, pack, repository_check, symbols, target,
    tools, vim,
};
use crate::needs::Needs;
use crate::place::{self, Place};
use crate::tally::Tally;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Kind, Proxy};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the checks; those that cannot be made here are named.
pub(crate) fn run() -> Result<Tally> {
    let folder = target().join("check");
    let texts = stage::make_texts((&workspace::binary(), Machine::Here), &folder)?;
    let mut tally = Tally::default();
    tally += named("man pages", || pages(&texts))?;
    tally += named("scripts", || scripts(&texts))?;
    tally += named("syntax for vim", || vim::check(&texts))?;
    tally += named("role of Ansible", role)?;
    tally += named("default configuration", || {
        let tree = texts.folder.join("tree");
        serves(&workspace::binary(), &texts.folder.join("etc"), &tree)
    })?;
    tally += named("place of builds", place)?;
    tally += named("C library", || glibc::check(&workspace::binary()))?;
    tally += chart()?;
    if !tools::are_there() {
        println!(
            "package: skipped, the packagers are not there: `cargo xtask setup` installs them into \
             target/tools"
        );
        tally += Tally::SKIP;
        return Ok(tally);
    }
    let first = folder.join("first");
    let second = folder.join("second");
    let built = Built::here(workspace::binary(), workspace::host()?);
    for out in [&first, &second] {
        let staged = stage::make(&built, &folder)?;
        pack(&staged, out, Compression::Fast)?;
    }
    tally += named("the same twice", || same(&first, &second))?;
    let deb = package(&first, "millpond_", ".deb")?;
    let symbols = package(&first, "millpond-dbg_", ".deb")?;
    tally += named("unpacked", || unpacked(&deb, &folder.join("unpacked")))?;
    tally += named("symbols", || {
        symbols_fit(&deb, &symbols, &folder.join("unpacked"))
    })?;
    tally += named("list of crates", || {
        let tree = folder.join("unpacked");
        crates_are_listed(&first, &tree.join("usr/bin/millpond"))
    })?;
    tally += named("installed and removed", || {
        installed(&deb, &folder.join("root"))
    })?;
    tally += named("repository", || {
        repository_check::run(&first, &folder.join("clients"))
    })?;
    tally += named("lintian", || lintian(&[deb, symbols]))?;
    tally += named("rpm", || rpm(&package(&first, "millpond-0", ".rpm")?))?;
    tally += boot::check(&first)?;
    Ok(tally)
}

/// Programs that are built at the fixed place are the same, wherever the sources are.
fn place() -> Result<Checked> {
    match Place::for_packages()? {
        Place::Here => Ok(Checked::No("the right to mount folders".to_string())),
        Place::Fixed(_) => place::check(&target().join("place")).map(|()| Checked::Yes),
    }
}

/// Checks the Helm chart.
pub(super) fn chart() -> Result<Tally> {
    named("chart", chart::check)
}

/// The outcome of a check that was made, or was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Yes,
    /// Something that it needs is missing.
    No(String),
}

impl Checked {
    /// The reason that a check which needs these programs cannot be made, if there is one.
    pub(super) fn lacks(programs: &[&'static str]) -> Option<Checked> {
        Needs::of(programs).told().map(Checked::No)
    }
}

pub(super) fn named(name: &str, check: impl FnOnce() -> Result<Checked>) -> Result<Tally> {
    Ok(match check() {
        Ok(Checked::Yes) => Tally::PASS,
        Ok(Checked::No(what)) => {
            println!("package: {name}: skipped, it needs {what}");
            Tally::SKIP
        }
        Err(error) => {
            println!("package: {name}: {error:#}");
            Tally::FAIL
        }
    })
}

/// Runs a program to its good end, and gives what it says.
pub(super) fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| name.clone())?;
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    ensure!(
        output.status.success(),
        "{name} ended with {}: {text}",
        output.status
    );
    Ok(text)
}

pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        found.push(entry?.path());
    }
    found.sort();
    Ok(found)
}

/// Each command has a page, and none has a mistake.
fn pages(staged: &Stage) -> Result<Checked> {
    let all = files(&staged.folder.join("man"))?;
    for name in [
        "millpond.8",
        "millpond.conf.5",
        "millpond-cache.8",
        "millpond-gauge-run.8",
    ] {
        ensure!(
            all.iter().any(|path| path.ends_with(name)),
            "there is no {name}"
        );
    }
    let page = fs::read_to_string(staged.folder.join("man/millpond.conf.5"))?;
    ensure!(page.contains("proxy_cache_path"), "no directives");
    if let Some(no) = Checked::lacks(&["mandoc"]) {
        return Ok(no);
    }
    said(
        Command::new("mandoc")
            .args(["-Tlint", "-Werror"])
            .args(&all),
    )?;
    Ok(Checked::Yes)
}

/// Shells read every script without complaint.
fn scripts(staged: &Stage) -> Result<Checked> {
    let mut all = files(&staged.folder.join("debian"))?;
    all.push(staged.folder.join("change-binary"));
    all.extend(files(&staged.folder.join("rpm"))?);
    for script in &all {
        said(Command::new("sh").arg("-n").arg(script))?;
    }
    let completion = staged.folder.join("completions/millpond");
    said(Command::new("bash").arg("-n").arg(&completion))?;
    let words = "COMP_WORDS=(millpond cache --js); COMP_CWORD=2; _millpond millpond --js cache; \
                 [[ ${COMPREPLY[*]} == --json ]]";
    let script = format!("source {}; {words}", completion.display());
    said(Command::new("bash").args(["-c", &script]))?;
    if let Some(no) = Checked::lacks(&["shellcheck"]) {
        return Ok(no);
    }
    said(Command::new("shellcheck").args(["-s", "sh"]).args(&all))?;
    Ok(Checked::Yes)
}

/// The playbook and its role are read without a mistake, and each variable is described.
fn role() -> Result<Checked> {
    let folder = workspace::root().join("contrib/ansible");
    let defaults = fs::read_to_string(folder.join("roles/millpond/defaults/main.yml"))?;
    let manual = fs::read_to_string(folder.join("README.md"))?;
    let variables = defaults.lines().filter_map(|line| line.split_once(':'));
    for (name, _) in variables.filter(|(name, _)| name.starts_with("millpond_")) {
        ensure!(
            manual.contains(&format!("`{name}`")),
            "README.md lacks {name}"
        );
    }
    if let Some(no) = Checked::lacks(&["ansible-playbook"]) {
        return Ok(no);
    }
    let mut command = Command::new("ansible-playbook");
    command.args(["-i", "one,", "--syntax-check", "deploy.yml"]);
    said(command.current_dir(&folder))?;
    Ok(Checked::Yes)
}

/// A program serves the default configuration, from the cache from the second request on.
fn serves(program: &Path, conf: &Path, tree: &Path) -> Result<Checked> {
    let text = fs::read_to_string(conf.join("millpond.conf"))?;
    ensure!(text.contains("listen 80 "), "it listens elsewhere");
    let welcome = tree.join("usr/share/millpond");
    fs::create_dir_all(welcome.join("welcome"))?;
    let page = workspace::root().join("packaging/welcome/index.html");
    fs::copy(page, welcome.join("welcome/index.html"))?;
    let moved = text
        .replace("/var/log/millpond", "%%DIR%%")
        .replace("/var/cache/millpond", "%%DIR%%/cache")
        .replace("/run/millpond", "%%DIR%%")
        .replace("/usr/share/millpond", &welcome.display().to_string())
        .replace("listen 80 ", "listen 127.0.0.1:%%PORT%% ");
    let mut proxy = Proxy::new(Kind::Millpond, &format!("%%GLOBALS%%\n{moved}"))
        .binary(program)
        .file("mime.types", fs::read(conf.join("mime.types"))?)
        .start()?;
    let client = Client::new(proxy.port());
    for expected in ["MISS", "HIT"] {
        let answer = client.get("/")?;
        ensure!(answer.status == 200 && answer.text().contains("Millpond serves"));
        let seen = answer.header("X-Cache");
        ensure!(
            seen == Some(expected),
            "{seen:?} where {expected} was expected"
        );
    }
    proxy.quit()?;
    Ok(Checked::Yes)
}

/// The package of a name's start and an ending.
pub(super) fn package(out: &Path, start: &str, ending: &str) -> Result<PathBuf> {
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(ending)
    };
    files(out)?
        .into_iter()
        .find(is_it)
        .with_context(|| format!("no {start}*{ending} in {}", out.display()))
}

/// The checksums of two runs are the same, and are those of the files.
fn same(first: &Path, second: &Path) -> Result<Checked> {
    let sums = fs::read_to_string(first.join(SUMS))?;
    ensure!(
        sums.lines().count() == 6,
        "not five packages and the list: {sums}"
    );
    let again = fs::read_to_string(second.join(SUMS))?;
    ensure!(sums == again, "other bytes:\n{sums}{again}");
    said(
        Command::new("sha256sum")
            .args(["--check", "--quiet", SUMS])
            .current_dir(first),
    )?;
    Ok(Checked::Yes)
}

/// The program of a package serves the configuration of the package.
fn unpacked(deb: &Path, tree: &Path) -> Result<Checked> {
    fs::remove_dir_all(tree).or_else(ignore_missing)?;
    said(Command::new("dpkg-deb").arg("-x").arg(deb).arg(tree))?;
    let folders = [
        "usr/share/man/man8",
        "usr/share/bash-completion/completions",
    ];
    for folder in folders {
        ensure!(!files(&tree.join(folder))?.is_empty(), "{folder} is empty");
    }
    ensure!(
        tree.join("usr/lib/systemd/system/millpond.service")
            .is_file(),
        "no unit"
    );
    serves(
        &tree.join("usr/bin/millpond"),
        &tree.join("etc/millpond"),
        tree,
    )
}

/// The program has no lines of the source, and finds them in the package with symbols.
fn symbols_fit(deb: &Path, symbols: &Path, tree: &Path) -> Result<Checked> {
    fs::remove_dir_all(tree).or_else(ignore_missing)?;
    for package in [deb, symbols] {
        said(Command::new("dpkg-deb").arg("-x").arg(package).arg(tree))?;
    }
    let program = tree.join("usr/bin/millpond");
    let sections = said(Command::new("readelf").args(["-S", "-W"]).arg(&program))?;
    ensure!(
        !sections.contains(".debug_line"),
        "the program is not stripped"
    );
    let id = symbols::build_id(&program)?;
    let (first, rest) = id.split_at(2);
    let name = format!("{rest}.debug");
    let file = tree.join("usr/lib/debug/.build-id").join(first).join(&name);
    ensure!(
        symbols::build_id(&file)? == id,
        "symbols of another program"
    );
    let names = said(Command::new("nm").arg(&file))?;
    let address = names
        .lines()
        .find(|line| line.contains("8millpond4main17h"))
        .and_then(|line| line.split(' ').next());
    // Beside the program the file is found by its name, and taken if its checksum is right.
    fs::copy(&file, program.with_file_name(&name))?;
    let mut ask = Command::new("addr2line");
    ask.arg("-e").arg(&program);
    let line = said(ask.arg(address.context("no main among the symbols")?))?;
    ensure!(
        line.contains("main.rs:"),
        "the program finds no lines: {line}"
    );
    Ok(Checked::Yes)
}

/// The file beside the packages and the list in the program name the same crates, each with its
/// version, and each but ours with its checksum.
fn crates_are_listed(out: &Path, program: &Path) -> Result<Checked> {
    let text = fs::read(package(out, "millpond-", ".cdx.json")?)?;
    let document: Value = serde_json::from_slice(&text)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let components = list(&document["components"]);
    for one in &components {
        let name = one["name"].as_str().unwrap_or_default();
        let is_ours = name.starts_with("millpond-");
        ensure!(
            one["licenses"][0]["expression"].is_string(),
            "{name} has no license"
        );
        ensure!(
            is_ours != one["hashes"].is_array(),
            "the checksum of {name}"
        );
    }
    let known: BTreeSet<String> = components
        .iter()
        .chain([&document["metadata"]["component"]])
        .map(|one| one["bom-ref"].to_string())
        .collect();
    ensure!(known.len() == components.len() + 1, "a name stands twice");
    for name in ["tokio", "openssl", "millpond-proxy"] {
        ensure!(
            components.iter().any(|one| one["name"] == name),
            "no {name}"
        );
    }
    for one in list(&document["dependencies"]) {
        let named = list(&one["dependsOn"])
            .into_iter()
            .chain([one["ref"].clone()]);
        for name in named {
            ensure!(known.contains(&name.to_string()), "nobody is {name}");
        }
    }
    let reader = tools::command("rust-audit-info").arg(program).output()?;
    ensure!(
        reader.status.success(),
        "{}",
        String::from_utf8_lossy(&reader.stderr)
    );
    let said: Value = serde_json::from_slice(&reader.stdout)?;
    let listed = list(&said["packages"]);
    let purl = |one: &Value| {
        let part = |name: &str| one[name].as_str().unwrap_or_default().to_string();
        format!("\"pkg:cargo/{}@{}\"", part("name"), part("version"))
    };
    let listed: BTreeSet<String> = listed.iter().map(purl).collect();
    ensure!(listed == known, "the program lists other crates");
    Ok(Checked::Yes)
}

/// A package is installed over itself with a changed configuration, removed and purged.
fn installed(deb: &Path, root: &Path) -> Result<Checked> {
    if Path::new("/run/systemd/system").exists() || !crate::packages::is_root() {
        // Scripts of dpkg would speak to the service manager of the machine.
        return Ok(Checked::No("root, where systemd does not run".to_string()));
    }
    fs::remove_dir_all(root).or_else(ignore_missing)?;
    fs::create_dir_all(root.join("var/lib/dpkg/info"))?;
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    let dpkg = |args: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display()));
        command.args([
            "--force-script-chrootless",
            "--force-depends",
            "--force-confold",
        ]);
        said(command.args(args))
    };
    let package = deb.to_string_lossy();
    dpkg(&["-i", &package])?;
    let users = fs::read_to_string(root.join("etc/passwd"))?;
    ensure!(users.contains("millpond:"), "no user: {users}");
    let wanted = root.join("etc/systemd/system/multi-user.target.wants/millpond.service");
    ensure!(wanted.is_symlink(), "the unit is not enabled");
    let conf = root.join("etc/millpond/millpond.conf");
    fs::write(&conf, "# the operator's own\n")?;
    dpkg(&["-i", &package])?;
    ensure!(
        fs::read_to_string(&conf)?.contains("own"),
        "the configuration was replaced"
    );
    let cache = root.join("var/cache/millpond/pond");
    fs::create_dir_all(&cache)?;
    dpkg(&["-r", "millpond"])?;
    ensure!(
        !root.join("usr/bin/millpond").exists(),
        "the program is left"
    );
    ensure!(
        conf.exists() && cache.exists(),
        "a removal took what a purge takes"
    );
    dpkg(&["-P", "millpond"])?;
    ensure!(!conf.exists() && !cache.exists(), "a purge left something");
    Ok(Checked::Yes)
}

fn lintian(debs: &[PathBuf]) -> Result<Checked> {
    if let Some(no) = Checked::lacks(&["lintian"]) {
        return Ok(no);
    }
    let mut command = Command::new("lintian");
    command.args([
        "--fail-on",
        "error",
        "--allow-root",
        "--tag-display-limit",
        "0",
    ]);
    said(command.args(debs))?;
    Ok(Checked::Yes)
}

fn rpm(path: &Path) -> Result<Checked> {
    if let Some(no) = Checked::lacks(&["rpm"]) {
        return Ok(no);
    }
    let list = said(
        Command::new("rpm")
            .args(["-qlp", "--nosignature"])
            .arg(path),
    )?;
    for file in [
        "/usr/bin/millpond",
        "/usr/share/man/man8/millpond.8",
        "/etc/millpond/millpond.conf",
    ] {
        ensure!(
            list.lines().any(|line| line == file),
            "{file} is not in the package"
        );
    }
    Ok(Checked::Yes)
}
