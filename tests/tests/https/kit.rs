//! Certificates, and pairs of servers that speak HTTPS with each other.

use anyhow::{Context, Result};
use millpond_testkit::{Deadline, Kind, LogCheck, Origin, Proxy};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::time::Duration;

/// The longest wait for something that must come.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// An authority, and the certificates that it signs.
pub(crate) struct Authority {
    /// Its certificate.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// An authority of a name.
    pub(crate) fn new(name: &str) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority {
            pem,
            issuer: Issuer::new(params, key),
        })
    }

    /// A certificate for a name, and its key.
    pub(crate) fn sign(&self, name: &str) -> Result<[String; 2]> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok([certificate.pem(), key.serialize_pem()])
    }
}

/// A server with encrypted addresses, and one that asks it: both of these lines.
pub(crate) fn pair(
    kinds: [Kind; 2],
    [front, back]: [&str; 2],
    origin: &Origin,
) -> Result<[Proxy; 2]> {
    let authority = Authority::new("root")?;
    let others = Authority::new("others")?;
    let [cert, key] = authority.sign("back.example")?;
    let [client_cert, client_key] = authority.sign("client")?;
    let [strange_cert, strange_key] = others.sign("stranger")?;
    let start = |kind, conf: &str, port: &str| {
        Proxy::new(kind, conf)
            .origin(origin)
            .value("BACK", port)
            .file("ca.pem", &authority.pem)
            .file("others.pem", &others.pem)
            .file("cert.pem", &cert)
            .file("key.pem", &key)
            .file("client.pem", &client_cert)
            .file("client.key", &client_key)
            .file("stranger.pem", &strange_cert)
            .file("stranger.key", &strange_key)
            .log_check(LogCheck::Off)
            .start()
    };
    let back = start(kinds[1], back, "0")?;
    let front = start(kinds[0], front, &back.port().to_string())?;
    Ok([front, back])
}

/// Waits until a server's log has a text.
pub(crate) fn says(proxy: &Proxy, text: &str) -> Result<()> {
    let is_there = || proxy.error_log().contains(text).then_some(());
    let found = Deadline::after(WAIT).poll(is_there);
    found.with_context(|| format!("nobody says {text}: {}", proxy.error_log()))
}
