//! Configurations that are too much: each is refused with a clear message, or read, within bounded
//! time and memory.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Kind, binary};
use std::path::Path;
use std::process::{Command, Output};

/// Address space that a test may take, in KiB; what is read takes far less.
const MEMORY_KIB: u64 = 4_000_000;
/// CPU seconds that a test may take with a debug build; each takes about one.
const CPU_S: u64 = 30;

/// Tests a configuration with the resources bounded.
fn test(dir: &Path, http: &str) -> Result<Output> {
    let text = format!("events {{}} pid x.pid; http {{ access_log off; {http} }}");
    std::fs::write(dir.join("main.conf"), text)?;
    let program = binary(Kind::Millpond).context("no binary")?;
    let script = format!(
        "ulimit -v {MEMORY_KIB}; ulimit -t {CPU_S}; exec {} -t -p {} -e stderr -c main.conf",
        program.display(),
        dir.display()
    );
    Ok(Command::new("sh").args(["-c", &script]).output()?)
}

/// Message about a configuration that is refused.
fn refused(http: &str) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let output = test(dir.path(), http)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(1),
        "{:?}: {said}",
        output.status
    );
    Ok(said)
}

/// Blocks, words, expressions and mistakes without end are refused by name.
#[test]
fn too_much_is_refused_by_name() -> Result<()> {
    let expression = |text: &str| {
        format!("server {{ listen 127.0.0.1:1; location ~ \"{text}\" {{ return 200; }} }}")
    };
    let unknown: String = (0..20_000)
        .map(|number| format!("unknown_{number} x;\n"))
        .collect();
    for (http, message) in [
        (
            format!("server {{ {}", "location / { ".repeat(10_000)),
            "blocks are nested more than 100 deep",
        ),
        (
            format!("server_name {};", "x".repeat(1_000_000)),
            "too long parameter",
        ),
        (
            format!("server_name \"{}\";", "x".repeat(1_000_000)),
            "too long parameter",
        ),
        (
            expression("^(?:a{1000}){1000}{1000}$"),
            "invalid regular expression",
        ),
        (unknown, "unknown directive \"unknown_0\""),
        ("include main.conf;".to_owned(), "includes itself"),
        ("include ./*.conf;".to_owned(), "includes itself"),
        ("include /dev/zero;".to_owned(), "larger than"),
    ] {
        let said = refused(&http)?;
        ensure!(said.contains(message), "{message:?} is not in: {said:.500}");
        // A line is shown whole, however long it is.
        let most = 2 * http.len() + 100_000;
        ensure!(said.len() < most, "{} bytes are said", said.len());
    }
    Ok(())
}

/// Files that include each other twofold stop at a bound, not at the end of memory.
#[test]
fn includes_that_multiply_are_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    for number in 0..40 {
        let next = number + 1;
        let text = format!("include {next}.inc; include {next}.inc;\n");
        std::fs::write(dir.path().join(format!("{number}.inc")), text)?;
    }
    std::fs::write(dir.path().join("40.inc"), "gzip on;")?;
    let output = test(dir.path(), "include 0.inc;")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1),
        "{:?}: {said:.500}",
        output.status
    );
    ensure!(
        said.contains("more than 100000 files are included"),
        "{said:.500}"
    );
    Ok(())
}
