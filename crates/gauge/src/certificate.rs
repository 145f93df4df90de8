//! Certificates of the gauge's own making: for its origin, and for servers that it compares.
//!
//! A certificate signs itself and names the loopback interface, so it is of use to nobody else. It
//! lives as long as the run.

use anyhow::{Context, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// Names that a certificate is for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// The certificate in PEM.
    pub(crate) pem: String,
    /// The key in PEM.
    pub(crate) key_pem: String,
    /// The certificate in DER.
    pub(crate) der: Vec<u8>,
    /// The key in DER (PKCS #8).
    pub(crate) key_der: Vec<u8>,
}

impl Certificate {
    /// Makes one with a new key (ECDSA with P-256).
    pub(crate) fn make() -> Result<Self> {
        let made = generate_simple_self_signed(NAMES.map(str::to_owned).to_vec());
        let CertifiedKey { cert, signing_key } = made.context("cannot make a certificate")?;
        Ok(Self {
            pem: cert.pem(),
            key_pem: signing_key.serialize_pem(),
            der: cert.der().to_vec(),
            key_der: signing_key.serialize_der(),
        })
    }
}
