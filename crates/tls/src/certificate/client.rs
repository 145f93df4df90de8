//! `ssl_verify_client`: certificates of clients in a handshake.
//!
//! A handshake is never refused for its chain: nginx answers the request with a page. So the
//! verifier asks for a certificate, names the authorities, and has the signature checked, which
//! shows that the client has the key. The verdict is a function of the chain, and of time
//! ([`ClientVerifier::verdict`]): whoever has the connection asks for it once, after the handshake,
//! and again when a session is resumed, since rustls keeps the chain with the session.

use std::sync::Arc;

use openssl::x509::X509;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::signature::Schemes;
use super::trust::Trust;
use super::verdict::Verdict;

/// The verifier of clients of one server.
#[derive(Debug)]
pub struct ClientVerifier {
    trust: Arc<Trust>,
    subjects: Vec<DistinguishedName>,
    schemes: Schemes,
}

impl ClientVerifier {
    /// A verifier by what is trusted; the authorities (`ssl_client_certificate`) are named to
    /// clients, each once.
    pub fn new(trust: Arc<Trust>, authorities: &[CertificateDer<'_>]) -> Self {
        let mut subjects: Vec<DistinguishedName> = Vec::new();
        for authority in authorities {
            let subject = X509::from_der(authority)
                .and_then(|authority| authority.subject_name().to_der())
                .map(DistinguishedName::from);
            if let Ok(subject) = subject
                && !subjects
                    .iter()
                    .any(|known| known.as_ref() == subject.as_ref())
            {
                subjects.push(subject);
            }
        }
        Self {
            trust,
            subjects,
            schemes: Schemes::all(),
        }
    }

    /// The verdict on what a client sent (`peer_certificates` of its connection).
    pub fn verdict(&self, chain: Option<&[CertificateDer<'_>]>) -> Verdict {
        self.trust.judge(chain.unwrap_or_default())
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        readable(end_entity, intermediates)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.schemes.check_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.schemes.check_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.0.supported_schemes()
    }
}

/// Refuses bytes that are no certificates.
pub(crate) fn readable(
    leaf: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
) -> Result<(), Error> {
    let mut all = std::iter::once(leaf).chain(others);
    if all.all(|certificate| X509::from_der(certificate).is_ok()) {
        Ok(())
    } else {
        Err(CertificateError::BadEncoding.into())
    }
}
