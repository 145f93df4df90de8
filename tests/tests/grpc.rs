//! gRPC by the libraries of Go and Python (`tests/clients`), each as client and as server, through
//! `grpc_pass`, in clear text and over TLS: calls of all four types, statuses, and a deadline.
//!
//! Ends that are not installed are skipped by name.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Kind, LogCheck, Proxy, free_port, skip};
use rcgen::{CertificateParams, DnType, KeyPair};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CONF: &str = "%%GLOBALS%%
    events {}
    http {
        %%HTTP%%
        client_max_body_size 8m;
        server {
            listen 127.0.0.1:%%PORT%%;
            listen 127.0.0.1:%%PORT_TLS%% ssl;
            http2 on;
            ssl_certificate cert.pem;
            ssl_certificate_key key.pem;
            grpc_ssl_verify on;
            grpc_ssl_trusted_certificate cert.pem;
            grpc_ssl_name localhost;
            location /millpond.Echo/ { grpc_pass %%SCHEME%%://127.0.0.1:%%SERVER%%; }
            # The server does not know the deadline: only the client ends the call.
            location = /millpond.Echo/Hang {
                grpc_set_header Grpc-Timeout '';
                grpc_pass %%SCHEME%%://127.0.0.1:%%SERVER%%;
            }
            location /dead.Service/ { grpc_pass grpc://127.0.0.1:%%DEAD%%; }
            location /denied.Service/ { return 403; }
            location /none.Service/ { return 404; }
            location /limited.Service/ { return 503; }
        }
    }";

/// The lines that each client prints: codes of failed calls are those of the server, and for
/// answers that are no gRPC those that the status of HTTP stands for.
fn expected() -> String {
    let mut lines = vec![
        r#"unary hello "some text" "\x00\xff" "end""#.to_owned(),
        "large true".to_owned(),
        "down true".to_owned(),
        "up true".to_owned(),
        "both true".to_owned(),
    ];
    lines.extend((1..=16).map(|code| format!("fail {code} über {code}")));
    for (service, code) in [
        ("millpond.Echo/Nothing", 12),
        ("dead.Service/Call", 14),
        ("denied.Service/Call", 7),
        ("none.Service/Call", 12),
        ("limited.Service/Call", 14),
    ] {
        lines.push(format!("{service} {code}"));
    }
    lines.extend(["deadline 4".to_owned(), "the server knows\n".to_owned()]);
    lines.join("\n")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The end of a call in a language, if it is there.
fn end(language: &str) -> Option<Command> {
    let tools = root().join("target/tools");
    let mut command = Command::new("timeout");
    command.arg("180");
    let is_there = if language == "go" {
        command.arg(tools.join("bin/rpc"));
        tools.join("bin/rpc").is_file()
    } else {
        command
            .arg("python3")
            .arg(root().join("tests/clients/rpc.py"));
        command.env("PYTHONPATH", tools.join("python"));
        tools.join("python/grpc").is_dir()
    };
    is_there.then_some(command)
}

/// A server, which ends with its input.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(mut command: Command, files: &[PathBuf]) -> Result<Server> {
        command.arg("server").args(files);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut port = String::new();
        let output = child.stdout.take().context("its output")?;
        BufReader::new(output).read_line(&mut port)?;
        let port = port.trim().to_owned();
        Ok(Server { child, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The calls of a client in one language to a server in another, in clear text and over TLS.
fn call(client: &str, server: &str) -> Result<()> {
    let (Some(_), Some(_)) = (end(client), end(server)) else {
        skip(&format!(
            "{client} or {server} is not installed: `cargo xtask setup`"
        ));
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let files = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    let pems = [params.self_signed(&key)?.pem(), key.serialize_pem()];
    for (file, pem) in files.iter().zip(&pems) {
        std::fs::write(file, pem)?;
    }
    for (scheme, port, of_server, of_client) in [
        ("grpc", "PORT", &[][..], &[][..]),
        ("grpcs", "PORT_TLS", &files[..], &files[..1]),
    ] {
        let command = end(server).context("it is gone")?;
        let behind = Server::start(command, of_server)?;
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .value("SCHEME", scheme)
            .value("SERVER", &behind.port)
            .value("DEAD", &free_port()?.to_string())
            .file("cert.pem", &pems[0])
            .file("key.pem", &pems[1])
            .log_check(LogCheck::Off)
            .start()?;
        let mut command = end(client).context("it is gone")?;
        command.arg("client");
        command.arg(format!("localhost:{}", proxy.named_port(port)));
        let output = command.args(of_client).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            said == expected(),
            "{client} {scheme} {server}: {said} {errors}"
        );
    }
    Ok(())
}

#[test]
fn calls_of_go_reach_go() -> Result<()> {
    call("go", "go")
}

#[test]
fn calls_of_go_reach_python() -> Result<()> {
    call("go", "python")
}

#[test]
fn calls_of_python_reach_go() -> Result<()> {
    call("python", "go")
}

#[test]
fn calls_of_python_reach_python() -> Result<()> {
    call("python", "python")
}
