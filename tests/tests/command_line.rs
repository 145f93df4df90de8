//! The command line: help and version of every command, which file `-c` means, and what is said of
//! one that is not there.

use anyhow::{Context, Result};
use millpond_testkit::{Kind, binary};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Every command besides the server itself.
const COMMANDS: [&str; 7] = ["check", "explain", "cache", "why", "top", "gauge", "demo"];

fn run(words: &[&str], dir: &Path) -> Result<Output> {
    let program = binary(Kind::Millpond).context("no binary")?;
    let mut command = Command::new(program);
    Ok(command.args(words).current_dir(dir).output()?)
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Help and version are on the standard output and end well; nothing is started by them.
#[test]
fn every_command_has_help_and_a_version() -> Result<()> {
    let here = Path::new(".");
    let whole = std::iter::once(None).chain(COMMANDS.map(Some));
    for command in whole {
        let words = |word| command.into_iter().chain([word]).collect::<Vec<_>>();
        let help = run(&words("--help"), here)?;
        let text = String::from_utf8(help.stdout)?;
        assert!(help.status.success(), "{command:?}: {text}");
        assert!(
            text.to_lowercase().contains("usage: "),
            "{command:?}: {text}"
        );
        let version = run(&words("--version"), here)?;
        let text = String::from_utf8(version.stdout)?;
        assert!(version.status.success(), "{command:?}: {text}");
        assert!(
            text.contains(env!("CARGO_PKG_VERSION")),
            "{command:?}: {text}"
        );
    }
    for command in COMMANDS {
        let output = run(&[command, "--no-such-option"], here)?;
        assert_eq!(
            output.status.code(),
            Some(2),
            "{command}: {}",
            said(&output)
        );
    }
    Ok(())
}

/// A relative `-c` is one file for the server and for every command: that of the prefix, and where
/// no prefix is named and `/etc/millpond` has none, that of the current directory.
#[test]
fn a_relative_file_is_the_same_for_every_command() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let name = "only-here.conf";
    let elsewhere = dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere)?;
    let conf = "events {} pid %/x.pid; control unix:%/control; http { access_log off;
        proxy_cache_path %/cache keys_zone=z:1m; server { listen 127.0.0.1:1; return 204; } }";
    let conf = conf.replace('%', &dir.path().display().to_string());
    std::fs::write(dir.path().join(name), conf)?;
    let prefix = dir.path().to_str().context("a path")?;
    for (dir, prefix) in [(dir.path(), &[][..]), (&elsewhere, &["-p", prefix])] {
        let with = |words: &[&str]| run(&[words, prefix].concat(), dir);
        for words in [
            &["-t", "-e", "stderr", "-c", name][..],
            &["check", "-c", name],
            &["explain", "-c", name, "http://localhost:1/"],
        ] {
            let output = with(words)?;
            assert!(output.status.success(), "{words:?}: {}", said(&output));
        }
        // Nobody serves and nothing is stored: the zone of the file is what is missing.
        let output = with(&["cache", "stat", "-c", name])?;
        assert!(!said(&output).contains("open()"), "{}", said(&output));
    }
    Ok(())
}

/// A file that is not there is named as it was looked for.
#[test]
fn a_missing_file_is_named_whole() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = "/etc/millpond/no-such-file.conf";
    let name = "no-such-file.conf";
    for words in [
        &["-t", "-e", "stderr", "-c", name][..],
        &["check", "-c", name],
        &["explain", "-c", name, "http://localhost/"],
        &["cache", "stat", "-c", name],
        &["top", "--once", "-c", name],
    ] {
        let output = run(words, dir.path())?;
        assert!(!output.status.success(), "{words:?}");
        assert!(said(&output).contains(path), "{words:?}: {}", said(&output));
    }
    Ok(())
}

/// A word that is no text is an error of whoever typed it.
#[test]
fn a_word_that_is_not_utf_8_is_an_error_and_no_panic() -> Result<()> {
    let program = binary(Kind::Millpond).context("no binary")?;
    let odd = std::ffi::OsStr::from_bytes(b"/tmp/\xff");
    let of_server = [
        vec!["-t", "-c"],
        vec!["-p"],
        vec!["-e"],
        vec!["-g"],
        vec!["-s"],
        vec![],
    ];
    let of_tools = COMMANDS
        .into_iter()
        .chain(["fleet", "sensor"])
        .map(|command| vec![command]);
    let of_cache = ["show", "purge", "ls", "sql", "warm", "export"].map(|it| vec!["cache", it]);
    for words in of_server.into_iter().chain(of_tools).chain(of_cache) {
        let output = Command::new(&program).args(&words).arg(odd).output()?;
        let text = said(&output);
        assert!(
            matches!(output.status.code(), Some(1 | 2)),
            "{words:?}: {text}"
        );
        assert!(!text.contains("panic"), "{words:?}: {text}");
    }
    Ok(())
}

/// Output that nobody reads, or that there is no room for, is no panic; the status is that of what
/// was found out, or says that nothing could be told.
#[test]
fn output_that_nobody_takes_is_no_panic() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let unknown = (0..2_000).map(|number| format!("unknown_{number} on;\n"));
    std::fs::write(dir.path().join("a.conf"), unknown.collect::<String>())?;
    let check: &[&str] = &["check", "a.conf"];
    let found = run(check, dir.path())?.status.code();
    let words: [(&[&str], _); 4] = [
        (check, found),
        (&["explain", "proxy_cache"], Some(0)),
        (&["check", "--help"], Some(0)),
        (&["--help"], Some(0)),
    ];
    for (words, status) in words {
        let program = binary(Kind::Millpond).context("no binary")?;
        let start = |out: Stdio| {
            let mut command = Command::new(&program);
            command.args(words).current_dir(dir.path());
            command.stdout(out).stderr(Stdio::piped()).spawn()
        };
        let mut unread = start(Stdio::piped())?;
        drop(unread.stdout.take());
        let ended = unread.wait_with_output()?;
        assert_eq!(ended.status.code(), status, "{words:?}: {}", said(&ended));
        let full = std::fs::File::create("/dev/full")?;
        let refused = start(full.into())?.wait_with_output()?;
        let text = said(&refused);
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {text}");
        assert!(
            text.contains("the standard output cannot be written"),
            "{text}"
        );
        assert!(!text.contains("panicked"), "{text}");
    }
    Ok(())
}
