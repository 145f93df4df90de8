//! Servers that the gauge starts: what they take of disk and memory is held against limits.
//!
//! The servers are this very program, told by a word in its environment to be one.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};

use crate::broken::{Broken, Defect};

/// Environment variable that says what to be: `KIND+PORT+ORIGIN+DIR`.
const WORD: &str = "GAUGE_TEST_SERVER";

/// Serves as the server that the environment says, if it says so.
#[test]
#[ignore = "a server that other tests start"]
fn server() {
    let Ok(words) = std::env::var(WORD) else {
        return;
    };
    let words: Vec<&str> = words.split('+').collect();
    let [kind, port, origin, dir] = words[..] else {
        panic!("{words:?}");
    };
    let origin: SocketAddr = origin.parse().expect("an address");
    let inner = Broken::start(Defect::None, origin).address();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port");
    let mut kept = Vec::new();
    for (number, client) in listener.incoming().enumerate() {
        let mut client = client.expect("a connection");
        let path = Path::new(dir).join(format!("file-{number}"));
        match kind {
            "fills-disk" => std::fs::write(path, vec![1; 1 << 20]).expect("written"),
            "leaks" => kept.push(vec![1_u8; 4 << 20]),
            _ => {}
        }
        let mut server = std::net::TcpStream::connect(inner).expect("the cache");
        let mut back = (
            server.try_clone().expect("two"),
            client.try_clone().expect("two"),
        );
        std::thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        std::thread::spawn(move || {
            // Either side may end first.
            let _ = std::io::copy(&mut client, &mut server);
            let _ = server.shutdown(std::net::Shutdown::Both);
        });
    }
    drop(kept);
}

/// Compares two kinds of server.
fn compare(a: &str, b: &str, more: &[&str]) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let conf = dir.path().join("conf");
    let mut file = std::fs::File::create(&conf).expect("created");
    writeln!(file, "nothing").expect("written");
    let this = std::env::current_exe().expect("this program");
    let command = |kind: &str| {
        format!(
            "env {WORD}={kind}+{{port}}+{{origin}}+{{dir}} {} started::server --exact --ignored",
            this.display()
        )
    };
    Command::new(env!("CARGO_BIN_EXE_gauge"))
        .args([
            "compare", "simple", "-q", "-n", "40", "-u", "4", "--size", "1k", "--rounds", "1",
        ])
        .args(["--a", &command(a), "--b", &command(b)])
        .arg("--conf")
        .arg(conf)
        .args(more)
        .output()
        .expect("the gauge runs")
}

#[test]
fn servers_within_their_limits_are_compared() {
    let limits = [
        "--fail-if",
        "server.disk > 1m",
        "--fail-if",
        "server.growth > 64m",
    ];
    let output = compare("fine", "fine", &limits);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("CPU a request") && text.contains("one round tells nothing"),
        "{text}"
    );
}

#[test]
fn a_disk_that_is_overrun_and_memory_that_leaks_are_found() {
    for (kind, limit) in [
        ("fills-disk", "server.disk > 3m"),
        ("leaks", "server.growth > 8m"),
    ] {
        let output = compare(kind, "fine", &["--fail-if", limit]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let broken: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("limit broken"))
            .collect();
        assert!(
            broken.len() == 1 && broken[0].contains("a, round 1"),
            "{kind}: {text}"
        );
    }
}

#[test]
fn a_server_that_does_not_start_is_told_with_what_it_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let conf = dir.path().join("conf");
    std::fs::write(&conf, "nothing").expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_gauge"))
        .args(["compare", "simple", "--a", "sh -c echo", "--b", "true"])
        .arg("--conf")
        .arg(conf)
        .output()
        .expect("the gauge runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("sh -c echo: ended with"), "{text}");
}
