//! Requests of sensors: one of HTTP/1.0 on a connection of its own, encrypted if the URL says so.
//!
//! 1. An exchange takes no longer than it may, and no more than `MOST` bytes are read.
//!
//! Does not follow redirects, and knows no proxies.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use millpond_system::clock;
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::options::Options;
use crate::url::{Scheme, Url};

/// The most that is read of an answer (arbitrary: more than any page).
const MOST: u64 = 64 << 20;
/// The longest chain of certificates (OpenSSL's default).
const DEPTH: u32 = 100;
/// Places of the bundle of authorities: Debian's, Fedora's, SUSE's, and that of Alpine and BSD.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) target: Url<'a>,
    /// Fields, as lines.
    pub(super) fields: &'a [String],
    /// Body of a POST; without one it is a GET.
    pub(super) body: Option<&'a [u8]>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Head and body.
    bytes: Vec<u8>,
}

impl Answer {
    fn read(bytes: Vec<u8>) -> Result<Answer> {
        let start = bytes.get(..12).context("the connection was closed")?;
        let head = std::str::from_utf8(start)
            .ok()
            .filter(|head| head.starts_with("HTTP/1."))
            .context("it does not speak HTTP")?;
        let status = head
            .get(9..12)
            .and_then(|digits| digits.parse().ok())
            .context("the answer has no status")?;
        Ok(Answer { status, bytes })
    }

    /// Length of head and body.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn head_len(&self) -> usize {
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n");
        end.map_or(self.bytes.len(), |end| end + 4)
    }

    pub(super) fn body(&self) -> &[u8] {
        self.bytes.get(self.head_len()..).unwrap_or_default()
    }

    /// The first value of a field, by its name in small letters.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let head = self.bytes.get(..self.head_len()).unwrap_or_default();
        String::from_utf8_lossy(head).lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            let is_it = known.eq_ignore_ascii_case(name);
            is_it.then(|| value.trim().to_string())
        })
    }
}

/// Asks, and reads the answer to its end.
pub(super) fn exchange(request: &Request<'_>, options: &Options) -> Result<Answer> {
    let target = &request.target;
    let socket = connect(&target.address(), options.late)?;
    let text = head(request);
    let bytes = [text.as_bytes(), request.body.unwrap_or_default()].concat();
    match target.scheme {
        Scheme::Http => converse(socket, &bytes, options.late),
        Scheme::Https => converse(
            encrypt(target.host(), socket, options)?,
            &bytes,
            options.late,
        ),
    }
}

fn connect(address: &str, late: Duration) -> Result<TcpStream> {
    let mut failure = None;
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    for address in addresses {
        match TcpStream::connect_timeout(&address, late) {
            Ok(stream) => {
                stream.set_read_timeout(Some(late))?;
                stream.set_write_timeout(Some(late))?;
                return Ok(stream);
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(failure) => Err(failure.into()),
        None => bail!("the host has no address"),
    }
}

fn head(request: &Request<'_>) -> String {
    let method = request.body.map_or("GET", |_| "POST");
    let mut text = format!("{method} {} HTTP/1.0\r\n", request.target.path);
    let has_host = |line: &String| line.to_ascii_lowercase().starts_with("host:");
    if !request.fields.iter().any(has_host) {
        text.push_str(&format!("Host: {}\r\n", request.target.authority));
    }
    for line in request.fields {
        text.push_str(&format!("{line}\r\n"));
    }
    if let Some(body) = request.body {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text
}

fn converse(mut stream: impl Read + Write, bytes: &[u8], late: Duration) -> Result<Answer> {
    let until = clock::instant() + late;
    stream.write_all(bytes)?;
    stream.flush()?;
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        // INVARIANT 1: each read may take its time, and all of them together no more.
        ensure!(clock::instant() < until, "it takes longer than {late:?}");
        ensure!(
            (answer.len() as u64) < MOST,
            "it is longer than {MOST} bytes"
        );
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Servers that close without a last word.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error.into()),
        }
    }
    Answer::read(answer)
}

fn encrypt(
    host: &str,
    socket: TcpStream,
    options: &Options,
) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let provider: CryptoProvider = provider::default_provider();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier(options)?))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).context("the host is no name")?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    Ok(StreamOwned::new(connection, socket))
}

/// Judge of the server's certificate.
fn verifier(options: &Options) -> Result<OriginVerifier> {
    if options.insecure {
        return Ok(OriginVerifier::unverified());
    }
    let bundle = match &options.authorities {
        Some(path) => std::fs::read(path).with_context(|| path.display().to_string())?,
        None => {
            let mut found = BUNDLES.iter().filter_map(|path| std::fs::read(path).ok());
            found
                .next()
                .context("there is no bundle of authorities; name one by --ca")?
        }
    };
    let rules = Rules {
        peer: Peer::Origin,
        depth: DEPTH,
        time: None,
    };
    let anchors = Anchors {
        authorities: &[&bundle],
        ..Anchors::default()
    };
    let trust = Trust::new(anchors, rules).map_err(|_| anyhow::anyhow!("no certificates"))?;
    Ok(OriginVerifier::new(Arc::new(trust)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let text = "HTTP/1.1 503 x\r\ndate: now \r\n\r\nbody";
        let answer = Answer::read(text.into()).unwrap();
        assert_eq!((answer.status, answer.body()), (503, &b"body"[..]));
        assert_eq!(answer.field("Date").as_deref(), Some("now"));
        assert_eq!(answer.field("body"), None);
        for text in ["", "HTTP/1.1", "SSH-2.0-OpenSSH_9", "HTTP/1.1 abc def"] {
            assert!(Answer::read(text.into()).is_err(), "{text}");
        }
    }
}
