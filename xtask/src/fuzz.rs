//! `cargo xtask fuzz`: the targets of `fuzz/` under libFuzzer, with the stable compiler.
//!
//! A sanitizer needs a nightly compiler, counting what is covered does not: the flags in [`FLAGS`]
//! put counters into everything that is built for the targets, and libFuzzer finds them.
//!
//! Each target starts from its corpus (`fuzz/corpus/TARGET`), which a run does not change; what is
//! found on the way is kept in `target/fuzz/found/TARGET` and used again. An input that breaks a
//! promise is written to `target/fuzz/broken/` and named.
//!
//! 1. A run ends after its seconds, whatever the targets do: an input that takes longer than
//!    [`TIMEOUT_S`] or more memory than [`MEMORY_MB`] is itself a failure.
//! 2. A short run takes the same steps on machines of the same speed: its seed is fixed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::pace::Pace;
use crate::tally::Tally;
use crate::{packages, workspace};

/// Flags that count coverage; `fuzzing` is the name that `cargo fuzz` gives it, too.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Seconds for each target in a run of all tests.
const SHORT_S: u32 = 3;
/// Seconds for each target when a run is asked for.
const LONG_S: u32 = 60;
/// Longest time for one input; the slowest honest one takes about 20 ms.
const TIMEOUT_S: u32 = 5;
/// Most memory of a target.
const MEMORY_MB: u32 = 1024;
/// Longest input.
const MAX_LEN: u32 = 4096;

/// The targets, and the time for each.
struct Plan {
    names: Vec<String>,
    seconds: u32,
    seed: u32,
}

/// Runs the targets that the arguments name, or all.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let mut plan = Plan {
        names: Vec::new(),
        seconds: LONG_S,
        seed: 0,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let value = args.next().context("--seconds needs a number")?;
                plan.seconds = value.parse().context("--seconds needs a number")?;
            }
            name if name.starts_with('-') => bail!("unknown option {name}"),
            name => plan.names.push(name.to_owned()),
        }
    }
    execute(plan)
}

/// Builds all targets and runs each for a moment, as part of all tests.
pub(crate) fn run_briefly() -> Result<Tally> {
    execute(Plan {
        names: Vec::new(),
        seconds: SHORT_S,
        seed: 1,
    })
}

fn execute(mut plan: Plan) -> Result<Tally> {
    let all = targets()?;
    if plan.names.is_empty() {
        plan.names = all.clone();
    }
    if let Some(name) = plan.names.iter().find(|name| !all.contains(name)) {
        bail!("there is no target {name}; there are: {}", all.join(", "));
    }
    build(&plan.names, Pace::Full)?;
    let mut sum = Tally::default();
    for name in &plan.names {
        sum += fuzz(name, &plan)?;
    }
    Ok(sum)
}

/// The names of all targets: the files that libFuzzer starts.
fn targets() -> Result<Vec<String>> {
    let dir = workspace::root().join("fuzz/fuzz_targets");
    let mut names: Vec<String> = std::fs::read_dir(&dir)
        .with_context(|| format!("reading {}", dir.display()))?
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds all targets, so that they are there when they are to run.
pub(crate) fn build_all(pace: Pace) -> Result<()> {
    build(&targets()?, pace)
}

fn build(names: &[String], pace: Pace) -> Result<()> {
    let mut command = build_command(names)?;
    command.envs(variables()).stdin(Stdio::null());
    if !pace.of(command).status()?.success() {
        bail!("the fuzz targets do not build");
    }
    Ok(())
}

/// The environment of a build. OpenSSL is the system's where it has one: no target is about it, and
/// to compile it takes longer than all targets.
fn variables() -> Vec<(&'static str, &'static str)> {
    let mut variables = vec![("RUSTFLAGS", FLAGS)];
    if packages::runs("pkg-config", &["--exists", "openssl >= 3"]) {
        variables.push(("OPENSSL_NO_VENDOR", "1"));
    }
    variables
}

/// The command that builds targets, but for its environment.
fn build_command(names: &[String]) -> Result<Command> {
    let mut command =
        workspace::cargo(&["build", "--quiet", "--profile", "fuzz", "--manifest-path"]);
    command.arg("fuzz/Cargo.toml");
    // With a target named, the flags do not reach build scripts and macros, which have no
    // libFuzzer to count for.
    command
        .args(["--target", &workspace::host()?, "--target-dir"])
        .arg(home());
    for name in names {
        command.args(["--bin", name]);
    }
    Ok(command)
}

/// The folder of everything that fuzzing makes.
fn home() -> PathBuf {
    workspace::root().join("target/fuzz")
}

fn fuzz(name: &str, plan: &Plan) -> Result<Tally> {
    let found = home().join("found").join(name);
    let broken = home().join("broken");
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&broken)?;
    let binary = home().join(workspace::host()?).join("fuzz").join(name);
    let corpus = workspace::root().join("fuzz/corpus").join(name);
    let mut command = Command::new(binary);
    command.arg(found);
    if corpus.is_dir() {
        command.arg(corpus);
    }
    let dictionary = workspace::root().join("fuzz/words").join(name);
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    command
        .arg(format!("-artifact_prefix={}/{name}-", broken.display()))
        .arg(format!("-max_total_time={}", plan.seconds))
        .arg(format!("-seed={}", plan.seed))
        .arg(format!("-timeout={TIMEOUT_S}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB}"))
        .arg(format!("-max_len={MAX_LEN}"))
        .args(["-print_final_stats=1", "-verbosity=0"]);
    let log = broken.join(format!("{name}.log"));
    let output = std::fs::File::create(&log)?;
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .status()
        .with_context(|| format!("{name} does not start"))?;
    Ok(report(name, status.success(), &log))
}

fn report(name: &str, is_good: bool, log: &Path) -> Tally {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if is_good {
        let runs = text
            .lines()
            .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        println!("fuzz {name}: {} inputs", runs.unwrap_or("no").trim());
        return Tally::PASS;
    }
    println!("fuzz {name}: broken; the log is {}", log.display());
    let is_telling = |line: &&str| {
        ["panicked", "ERROR", "artifact_prefix"]
            .iter()
            .any(|word| line.contains(word))
    };
    for line in text.lines().filter(is_telling) {
        println!("  {line}");
    }
    Tally::FAIL
}
