//! A certificate with its key, and what was stapled to it.
//!
//! 1. A staple may be replaced at any time, by any thread; a handshake has the one that was there
//!    when it chose the certificate.
//!
//! Whether key and certificate belong together is not looked at.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::scope;

/// A certificate with its key.
#[derive(Debug)]
pub struct Identity {
    key: Arc<dyn SigningKey>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Identity {
    /// An identity of a chain, its own certificate first, and the key of that.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> Self {
        let noted = Arc::new(NotedKey(Arc::clone(&key)));
        Self {
            key,
            current: RwLock::new(Arc::new(CertifiedKey::new(chain, noted))),
        }
    }

    /// Replaces the OCSP answer that is stapled; empty bytes staple nothing.
    pub fn set_staple(&self, answer: Vec<u8>) {
        let old = self.current();
        let new = CertifiedKey {
            cert: old.cert.clone(),
            key: Arc::clone(&old.key),
            ocsp: Some(answer).filter(|answer| !answer.is_empty()),
        };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
    }

    /// The certificates, its own first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current().cert.clone()
    }

    /// The kind of the key.
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }

    pub(crate) fn current(&self) -> Arc<CertifiedKey> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }
}

/// The identities of a connection of its own, as a handshake chooses from them.
pub(crate) fn certificates(identities: &[Arc<Identity>]) -> Arc<[Arc<CertifiedKey>]> {
    identities
        .iter()
        .map(|identity| identity.current())
        .collect()
}

/// The certificate that fits best, of those of the connection or else of its context: the one with
/// the lowest `rank`, the first of several; one without a rank does not fit.
pub(crate) fn choose(
    of_context: &[Arc<Identity>],
    rank: impl Fn(&CertifiedKey) -> Option<usize>,
    otherwise: Otherwise,
) -> Option<Arc<CertifiedKey>> {
    let own = scope::ask(|learned| learned.certificates.clone());
    let all = own.unwrap_or_else(|| certificates(of_context));
    let ranked = all.iter().filter_map(|it| Some((rank(it)?, it)));
    match (ranked.min_by_key(|(rank, _)| *rank), otherwise) {
        (None, Otherwise::First) => all.first().cloned(),
        (best, _) => best.map(|(_, certificate)| Arc::clone(certificate)),
    }
}

/// The choice where no certificate fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// The first one: the handshake says what is wrong.
    First,
    /// None is shown.
    None,
}

/// A key that notes the scheme it signs with.
#[derive(Debug)]
struct NotedKey(Arc<dyn SigningKey>);

impl SigningKey for NotedKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let signer = self.0.choose_scheme(offered)?;
        scope::edit(|learned| learned.sigalg = Some(signer.scheme()));
        Some(signer)
    }

    fn public_key(&self) -> Option<rustls::pki_types::SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}
