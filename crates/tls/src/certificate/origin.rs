//! `proxy_ssl_verify`: certificates of origins in a handshake.
//!
//! With it on, a chain that OpenSSL refuses ends the handshake, with the words of nginx's log, and
//! so does a certificate that is not for the name of the session. Without it, the signature alone
//! is checked, as in nginx.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use super::client::readable;
use super::host;
use super::signature::Schemes;
use super::trust::Trust;
use super::verdict::{Fault, Verdict};

/// The verifier of origins.
#[derive(Debug)]
pub struct OriginVerifier {
    trust: Option<Arc<Trust>>,
    schemes: Schemes,
}

/// The reason for which an origin is refused, in the words of nginx's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginRefused {
    /// Its chain is not good.
    #[error("upstream SSL certificate verify error: {0}")]
    Chain(Fault),
    /// Its certificate is for other names.
    #[error("upstream SSL certificate does not match \"{0}\"")]
    Name(String),
}

/// The reason for which the verifier ended a handshake, if it was the one that did.
pub fn refusal(error: &Error) -> Option<&OriginRefused> {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(error))) => {
            error.downcast_ref()
        }
        _ => None,
    }
}

impl OriginVerifier {
    /// A verifier that judges chains and names.
    pub fn new(trust: Arc<Trust>) -> Self {
        Self {
            trust: Some(trust),
            schemes: Schemes::all(),
        }
    }

    /// A verifier that takes any certificate whose key the origin has.
    pub fn unverified() -> Self {
        Self {
            trust: None,
            schemes: Schemes::all(),
        }
    }

    /// Judges a chain, the origin's own certificate first, and the name that it is asked for.
    pub fn check(&self, chain: &[CertificateDer<'_>], name: &str) -> Result<(), OriginRefused> {
        let Some(trust) = &self.trust else {
            return Ok(());
        };
        if let Verdict::Failed(fault) = trust.judge(chain) {
            return Err(OriginRefused::Chain(fault));
        }
        match chain.first() {
            Some(leaf) if host::is_good_for(leaf, name) => Ok(()),
            _ => Err(OriginRefused::Name(name.to_owned())),
        }
    }
}

impl ServerCertVerifier for OriginVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        readable(end_entity, intermediates)?;
        let chain: Vec<_> = std::iter::once(end_entity)
            .chain(intermediates)
            .cloned()
            .collect();
        self.check(&chain, &server_name.to_str())
            .map_err(|refused| CertificateError::Other(OtherError(Arc::new(refused))))?;
        Ok(ServerCertVerified::assertion())
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
