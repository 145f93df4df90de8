//! `ssl_key_log` and `proxy_ssl_key_log`: the secrets that one side writes are those of the other.

use anyhow::{Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use super::kit::{Authority, WAIT};
use super::openssl::s_client_with;

const SERVERS: &str = "
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    server {
        listen 127.0.0.1:%%PORT%%;
        ssl_key_log client.keys;
        proxy_ssl_key_log origin.keys;
        proxy_ssl_session_reuse off;
        location /12 { proxy_ssl_protocols TLSv1.2; proxy_pass https://127.0.0.1:%%PORT_BACK%%; }
        location /13 { proxy_pass https://127.0.0.1:%%PORT_BACK%%; }
    }
    server {
        listen 127.0.0.1:%%PORT_BACK%% ssl;
        ssl_key_log back.keys;
        return 200 ok;
    }
    server {
        listen 127.0.0.1:%%PORT_SILENT%% ssl;
        return 200 ok;
    }";

/// The lines of a log, in the format SSLKEYLOGFILE.
fn lines(server: &Proxy, file: &str) -> BTreeSet<String> {
    let text = server.read_file(file);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn start() -> Result<Proxy> {
    let [cert, key] = Authority::new("root")?.sign("back.example")?;
    Proxy::new(Kind::Millpond, SERVERS)
        .file("cert.pem", cert)
        .file("key.pem", key)
        .log_check(LogCheck::Off)
        .start()
}

/// OpenSSL writes down the same secrets of the same connections.
#[test]
fn clients_have_the_same_secrets() -> Result<()> {
    let server = start()?;
    let request = "GET / HTTP/1.0\r\n\r\n";
    for version in ["-tls1_2", "-tls1_3"] {
        for port in ["PORT_BACK", "PORT_SILENT"] {
            let file = format!("{version}{port}");
            let words = [version, "-keylogfile", &file];
            let said = s_client_with(&server, server.named_port(port), (&words, request))?;
            ensure!(said.contains("\r\n\r\nok"), "{said}");
        }
    }
    let both = [
        lines(&server, "-tls1_2PORT_BACK"),
        lines(&server, "-tls1_3PORT_BACK"),
    ];
    let labels = |lines: &BTreeSet<String>| -> BTreeSet<String> {
        let label = |line: &String| Some(line.split_once(' ')?.0.to_owned());
        lines.iter().filter_map(label).collect()
    };
    ensure!(labels(&both[0]).contains("CLIENT_RANDOM"), "{both:?}");
    ensure!(
        labels(&both[1]).contains("SERVER_TRAFFIC_SECRET_0"),
        "{both:?}"
    );
    // Nothing of the server whose lines do not name the file.
    let [mut all, new] = both;
    all.extend(new);
    assert_eq!(lines(&server, "back.keys"), all);
    Ok(())
}

#[test]
fn origins_have_the_same_secrets_and_only_the_owner_can_read_them() -> Result<()> {
    let server = start()?;
    let client = Client::new(server.port());
    for path in ["/12", "/13"] {
        assert_eq!(client.get(path)?.text(), "ok", "{path}");
    }
    let told = lines(&server, "origin.keys");
    assert_eq!(told, lines(&server, "back.keys"));
    assert!(told.len() > 4, "{told:?}");
    assert!(lines(&server, "client.keys").is_empty());
    for file in ["origin.keys", "back.keys", "client.keys"] {
        let mode = server.dir().join(file).metadata()?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    Ok(())
}

#[test]
fn a_log_of_secrets_is_opened_again_as_others_are() -> Result<()> {
    let server = start()?;
    let [new, old] = ["origin.keys", "old.keys"].map(|name| server.dir().join(name));
    std::fs::rename(&new, &old)?;
    server.signal(Signal::USR1)?;
    Deadline::after(WAIT).poll(|| new.exists().then_some(()));
    assert_eq!(Client::new(server.port()).get("/13")?.status, 200);
    assert!(lines(&server, "old.keys").is_empty());
    assert!(!lines(&server, "origin.keys").is_empty());
    Ok(())
}

/// A log that cannot be opened is told of at start.
#[test]
fn a_folder_that_is_missing_refuses_the_start() {
    let conf = "server { listen 127.0.0.1:%%PORT%%; ssl_key_log missing/file; }";
    let Err(failure) = Proxy::new(Kind::Millpond, conf).start() else {
        panic!("it starts");
    };
    let said = format!("{failure:#}");
    assert!(said.contains("missing/file\" failed (2:"), "{said}");
}
