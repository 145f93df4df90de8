//! Certificates that are chosen when a connection begins: by variables in the names of their files.

use anyhow::{Context, Result};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Origin, Proxy};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;

use super::kit::{Authority, WAIT, says};

const FRONT: &str = "
    proxy_ssl_server_name on;
    proxy_ssl_session_reuse off;
    proxy_ssl_verify on;
    proxy_ssl_trusted_certificate ca.pem;
    proxy_ssl_name $arg_name;
    proxy_set_header Connection close;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass https://127.0.0.1:%%BACK%%; }
        location /shown {
            proxy_ssl_certificate $arg_own.pem;
            proxy_ssl_certificate_key $arg_own.key;
            proxy_pass https://127.0.0.1:%%BACK%%;
        }
    }";

const BACK: &str = "
        map $ssl_server_name $file { default $ssl_server_name; two.example two; }
        server {
            listen 127.0.0.1:%%PORT%% ssl;
            ssl_certificate $file.pem;
            ssl_certificate_key $file.key;
            ssl_verify_client optional;
            ssl_client_certificate ca.pem;
            return 200 '$ssl_server_name $ssl_client_s_dn';
        }";

/// A server with certificates by name, the one that asks it, and the authority of both.
fn start() -> Result<([Proxy; 2], Authority)> {
    let authority = Authority::new("root")?;
    let mut back = Proxy::new(Kind::Millpond, BACK).file("ca.pem", &authority.pem);
    for (name, file) in [("one.example", "one.example"), ("two.example", "two")] {
        let [certificate, key] = authority.sign(name)?;
        back = back
            .file(&format!("{file}.pem"), certificate)
            .file(&format!("{file}.key"), key);
    }
    let back = back.log_check(LogCheck::Off).start()?;
    let [certificate, key] = authority.sign("client")?;
    let front = Proxy::new(Kind::Millpond, FRONT)
        .origin(&Origin::start()?)
        .value("BACK", &back.port().to_string())
        .file("ca.pem", &authority.pem)
        .file("client.pem", certificate)
        .file("client.key", key)
        .log_check(LogCheck::Off)
        .start()?;
    Ok(([front, back], authority))
}

#[test]
fn names_choose_certificates_and_those_without_one_are_refused() -> Result<()> {
    let ([front, back], _authority) = start()?;
    let client = Client::new(front.port());
    // The front accepts a certificate only if it is for the name.
    for name in ["one.example", "two.example"] {
        let answer = client.get(&format!("/?name={name}"))?;
        assert_eq!(answer.text(), format!("{name} "));
    }
    assert_eq!(client.get("/?name=none.example")?.status, 502);
    says(&back, "cannot load certificate")?;
    says(&back, "none.example.pem")?;
    says(&front, "tlsv1 alert internal error")?;
    Ok(())
}

#[test]
fn certificates_that_are_shown_to_origins_follow_variables_too() -> Result<()> {
    let ([front, _back], _authority) = start()?;
    let client = Client::new(front.port());
    let shown = |own: &str| client.get(&format!("/shown?name=one.example&own={own}"));
    assert_eq!(shown("client")?.text(), "one.example CN=client");
    assert_eq!(shown("nobody")?.status, 500);
    says(&front, "nobody.pem")?;
    Ok(())
}

#[test]
fn handshakes_wait_for_slow_files_and_their_worker_does_not() -> Result<()> {
    let ([front, back], authority) = start()?;
    let pipe = |name: &str| {
        let path = back.dir().join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)?;
        anyhow::Ok(path)
    };
    let (slow, key_file) = (pipe("slow.example.pem")?, pipe("slow.example.key")?);
    let port = front.port();
    let waiting = thread::spawn(move || Client::new(port).get("/?name=slow.example"));
    // Its reader has come when the pipe can be opened for writing.
    let mut certificate_end = opened(&slow)?;
    for _ in 0..3 {
        let other = Client::new(port).get("/?name=one.example")?;
        assert_eq!(other.text(), "one.example ");
    }
    assert!(!waiting.is_finished());
    let [certificate, key] = authority.sign("slow.example")?;
    certificate_end.write_all(certificate.as_bytes())?;
    drop(certificate_end);
    opened(&key_file)?.write_all(key.as_bytes())?;
    let answer = waiting.join().ok().context("a thread")??;
    assert_eq!(answer.text(), "slow.example ");
    Ok(())
}

/// The end of a pipe that somebody reads.
fn opened(path: &Path) -> Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let found = Deadline::after(WAIT).poll(|| open(path, flags, Mode::empty()).ok());
    Ok(File::from(found.context("nobody reads the file")?))
}
