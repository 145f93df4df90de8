//! `ssl_ocsp`: clients whose certificate an authority has taken back, as nginx treats them.
//!
//! Answers are made by `openssl ocsp`, and given out by an origin in the place of a responder.

use anyhow::{Result, ensure};
use millpond_testkit::{Answer, Kind, LogCheck, Origin, Proxy};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::kit::{Authority, client_config, encrypted, says};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name asked.a.example;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_verify_client on;
        ssl_client_certificate ca.pem;
        ssl_ocsp on;
        ssl_ocsp_responder http://%%ORIGIN%%/status;
        add_header X-Verify $ssl_client_verify always;
        return 200 ok;
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name kept.a.example;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_verify_client on;
        ssl_client_certificate ca.pem;
        ssl_ocsp leaf;
        ssl_ocsp_responder http://%%ORIGIN%%/status;
        ssl_ocsp_cache shared:statuses:1m;
        add_header X-Verify $ssl_client_verify always;
        return 200 ok;
    }";

/// The number of the client's certificate, as the authority's list has it.
const NUMBER: u8 = 0x1f;

/// The authority's answers about the client's certificate.
struct Answers<'d> {
    dir: &'d Path,
}

impl Answers<'_> {
    /// The answer with a line of the authority's list.
    fn of(&self, line: &str) -> Result<Vec<u8>> {
        fs::write(self.dir.join("index"), format!("{line}\n"))?;
        self.openssl(&["-issuer", "ca.pem", "-cert", "own.pem", "-reqout", "asked"])?;
        let signer = ["-CA", "ca.pem", "-rsigner", "ca.pem", "-rkey", "ca.key"];
        let files = ["-reqin", "asked", "-respout", "answer", "-ndays", "1"];
        self.openssl(&[&["-index", "index"], &signer[..], &files[..]].concat())?;
        Ok(fs::read(self.dir.join("answer"))?)
    }

    fn openssl(&self, words: &[&str]) -> Result<()> {
        let done = Command::new("openssl")
            .arg("ocsp")
            .args(words)
            .current_dir(self.dir)
            .stdout(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(done.status.success(), "openssl ocsp {words:?}: {said}");
        Ok(())
    }
}

#[test]
fn clients_are_refused_whose_authority_says_so_or_nothing() -> Result<()> {
    let own_end = "330101000000Z";
    let good = format!("V\t{own_end}\t\t{NUMBER:02X}\tunknown\t/CN=client");
    let revoked = format!("R\t{own_end}\t260101000000Z\t{NUMBER:02X}\tunknown\t/CN=client");
    let of_another = format!("V\t{own_end}\t\t77\tunknown\t/CN=client");
    for kind in [Kind::Nginx, Kind::Millpond] {
        let authority = Authority::new("root")?;
        let own = authority.sign_numbered("client", NUMBER)?;
        let [certificate, key] = authority.sign("*.a.example")?;
        let origin = Origin::start()?;
        let server = Proxy::new(kind, CONF)
            .origin(&origin)
            .file("ca.pem", &authority.pem)
            .file("ca.key", authority.key_pem())
            .file("own.pem", &own[0])
            .file("cert.pem", certificate)
            .file("key.pem", key)
            .log_check(LogCheck::Off)
            .start()?;
        let answers = Answers { dir: server.dir() };
        let says_of = |line: &str| -> Result<()> {
            let answer = Answer::new(200).body(answers.of(line)?);
            origin.route("/status*", answer);
            Ok(())
        };
        let met = |name: &str| -> Result<(String, String)> {
            let config = client_config(&authority, Some(&own))?;
            let mut stream = encrypted(&config, server.port(), name)?;
            let request = format!("GET / HTTP/1.0\r\nHost: {name}\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut head = String::new();
            stream.read_to_string(&mut head)?;
            let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let verify = head
                .lines()
                .find_map(|line| line.strip_prefix("X-Verify: "));
            Ok((status, verify.unwrap_or_default().to_owned()))
        };
        let expect = |name: &str, status: &str, verify: &str| -> Result<()> {
            assert_eq!(
                met(name)?,
                (status.to_owned(), verify.to_owned()),
                "{kind:?}"
            );
            Ok(())
        };
        says_of(&good)?;
        expect("asked.a.example", "200", "SUCCESS")?;
        expect("kept.a.example", "200", "SUCCESS")?;
        says_of(&revoked)?;
        expect("asked.a.example", "400", "FAILED:certificate revoked")?;
        // It is known already, and not asked for.
        let asked = origin.requests().len();
        expect("kept.a.example", "200", "SUCCESS")?;
        assert_eq!(origin.requests().len(), asked, "{kind:?}");
        says_of(&of_another)?;
        expect(
            "asked.a.example",
            "400",
            "FAILED:certificate status unknown",
        )?;
        origin.route("/status*", Answer::new(500));
        let failed = "FAILED:certificate status request failed";
        expect("asked.a.example", "400", failed)?;
        origin.route("/status*", Answer::new(200).body(&b"no answer"[..]));
        expect("asked.a.example", "400", failed)?;
        says(&server, "while requesting certificate status")?;
    }
    Ok(())
}
