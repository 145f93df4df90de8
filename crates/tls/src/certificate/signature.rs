//! Signatures of handshakes, checked by the key of a certificate whatever else is in it.
//!
//! rustls reads the certificate again to check a signature, with a reader that refuses version 1
//! and other things that OpenSSL takes. Here the key is cut out of the certificate and the
//! signature is checked by rustls's own algorithms. For TLS 1.3 that is a function of rustls
//! (raw keys of RFC 7250); for TLS 1.2 the algorithms of a scheme are tried until one fits the key,
//! as rustls does.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};

use super::der::{self, BIT_STRING, Reader, SEQUENCE};

/// The answer of a check.
pub(crate) type Checked = Result<HandshakeSignatureValid, Error>;

/// The schemes that a side takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schemes(pub WebPkiSupportedAlgorithms);

impl Schemes {
    /// Those of aws-lc-rs.
    pub(crate) fn all() -> Self {
        Self(rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms)
    }

    /// Checks a signature of TLS 1.3.
    pub(crate) fn check_tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Checked {
        let key = der::public_key(certificate).ok_or(CertificateError::BadEncoding)?;
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.0)
    }

    /// Checks a signature of TLS 1.2.
    pub(crate) fn check_tls12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Checked {
        let key = der::public_key(certificate).ok_or(CertificateError::BadEncoding)?;
        let (kind, bits) = key_parts(&key).ok_or(CertificateError::BadEncoding)?;
        let (_, algorithms) = self
            .0
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signed.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        // A scheme of TLS 1.2 names no curve: the key does.
        let fitting = algorithms
            .iter()
            .find(|algorithm| algorithm.public_key_alg_id().as_ref() == kind)
            .ok_or(CertificateError::BadSignature)?;
        match fitting.verify_signature(bits, message, signed.signature()) {
            Ok(()) => Ok(HandshakeSignatureValid::assertion()),
            Err(_) => Err(CertificateError::BadSignature.into()),
        }
    }
}

/// The algorithm of a public key, and its bits.
fn key_parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Reader(Reader(key).expect(SEQUENCE)?.body);
    let kind = fields.expect(SEQUENCE)?;
    let bits = fields.expect(BIT_STRING)?;
    match bits.body.split_first()? {
        (0, bits) => Some((kind.body, bits)),
        _ => None,
    }
}
