//! TLS of an origin, with a certificate of its own making.
//!
//! Sessions can be resumed, as with most servers.

use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::certificate::Certificate;

/// Protocols that an origin speaks, the one that it likes most first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Answers handshakes.
pub(super) fn acceptor() -> Result<TlsAcceptor> {
    let Certificate { der, key_der, .. } = Certificate::make()?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key_der));
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(der)], key)
        .context("the origin's certificate")?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(TlsAcceptor::from(Arc::new(config)))
}
