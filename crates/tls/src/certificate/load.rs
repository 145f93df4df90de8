//! Certificates, keys and lists of revocations out of texts.
//!
//! ```text
//! text ─► blocks (`pem`) ─► OpenSSL's readers ─► DER ─► rustls
//! ```
//!
//! The readers are OpenSSL's, so that what is taken and what is said about the rest is what nginx
//! takes and says. Bytes come in; opening files is the caller's.
//!
//! 1. Nothing is ever asked for on a terminal: a key that needs a password and has none is refused.
//! 2. A key that is kept in memory is wiped when it is dropped.

use std::fmt;

use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509Crl};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use super::failure::Failure;
use super::password::Password;
use super::pem::{Block, Blocks};

const READ_TRUSTED: &str = "PEM_read_bio_X509_AUX() failed";
const READ_CERTIFICATE: &str = "PEM_read_bio_X509() failed";
const READ_REVOCATIONS: &str = "PEM_read_bio_X509_CRL() failed";
const READ_KEY: &str = "PEM_read_bio_PrivateKey() failed";
const READ_STORE: &str = "OSSL_STORE_load() failed";
/// The call that gives a key to a server, in its errors.
const USE_KEY: &str = "SSL_CTX_use_PrivateKey";

/// Labels of a certificate, and the one that may come first, with rules of trust behind it.
const CERTIFICATE: &[&[u8]] = &[b"CERTIFICATE", b"X509 CERTIFICATE"];
const TRUSTED: &[u8] = b"TRUSTED CERTIFICATE";

/// A private key.
pub struct Key {
    key: PKey<Private>,
    /// A password was needed: such keys are read again at each reload, as in nginx.
    pub is_encrypted: bool,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.key.id())
            .field("is_encrypted", &self.is_encrypted)
            .finish_non_exhaustive()
    }
}

/// The certificate of a server or client, and those that it sends with it.
pub fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let mut blocks = Blocks::new(text);
    let first = blocks
        .find(|block| block.label == TRUSTED || CERTIFICATE.contains(&block.label))
        .ok_or_else(|| Failure::no_block(READ_TRUSTED, "TRUSTED CERTIFICATE"))?;
    let mut chain = vec![certificate(&first, READ_TRUSTED)?];
    for block in blocks.filter(|block| CERTIFICATE.contains(&block.label)) {
        chain.push(certificate(&block, READ_CERTIFICATE)?);
    }
    Ok(chain)
}

/// The certificates of authorities: each may have rules of trust behind it, which are cut off.
pub fn authorities(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let authorities: Vec<_> = Blocks::new(text)
        .filter(|block| block.label == TRUSTED || CERTIFICATE.contains(&block.label))
        .map(|block| certificate(&block, READ_TRUSTED))
        .collect::<Result<_, _>>()?;
    if authorities.is_empty() {
        Err(Failure::no_block(READ_TRUSTED, "TRUSTED CERTIFICATE"))
    } else {
        Ok(authorities)
    }
}

/// The number of lists of revoked certificates in a text, each of which can be read.
pub fn revocations(text: &[u8]) -> Result<usize, Failure> {
    let mut count = 0;
    for block in Blocks::new(text).filter(|block| block.label == b"X509 CRL") {
        X509Crl::from_pem(&block.relabelled("X509 CRL"))
            .map_err(|stack| Failure::openssl(READ_REVOCATIONS, &stack))?;
        count += 1;
    }
    match count {
        0 => Err(Failure::no_block(READ_REVOCATIONS, "X509 CRL")),
        count => Ok(count),
    }
}

/// The first private key of a text; passwords are tried in their order.
pub fn key(text: &[u8], passwords: &[Password]) -> Result<Key, Failure> {
    let none = [Zeroizing::new(Vec::new())];
    let passwords = if passwords.is_empty() {
        &none
    } else {
        passwords
    };
    let mut failure = Failure::plain(READ_KEY);
    for password in passwords {
        // The binding takes no password with a NUL in it, and no file can have one that works.
        if password.contains(&0) {
            continue;
        }
        match PKey::private_key_from_pem_passphrase(text, password) {
            Ok(key) => {
                let is_encrypted = Blocks::new(text).any(|block| is_encrypted(&block));
                return Ok(Key { key, is_encrypted });
            }
            Err(stack) => failure = Failure::openssl(READ_KEY, &stack),
        }
    }
    Err(failure)
}

/// The key of a store's file: PEM, or DER in any of the forms of a key.
pub fn stored_key(bytes: &[u8], passwords: &[Password]) -> Result<Key, Failure> {
    if let Ok(key) = key(bytes, passwords) {
        return Ok(key);
    }
    let plain = PKey::private_key_from_der(bytes).ok();
    let tried = passwords.iter().filter(|password| !password.contains(&0));
    let decrypted = || {
        let mut keys =
            tried.map(|password| PKey::private_key_from_pkcs8_passphrase(bytes, password));
        keys.find_map(Result::ok)
    };
    let is_encrypted = plain.is_none();
    match plain.or_else(decrypted) {
        Some(key) => Ok(Key { key, is_encrypted }),
        None => Err(Failure::plain(READ_STORE)),
    }
}

/// A chain and its key for rustls, if they belong together and the key can sign.
///
/// The failure is written with [`Failure::of_key`].
pub fn certified(chain: Vec<CertificateDer<'static>>, key: &Key) -> Result<CertifiedKey, Failure> {
    let of_openssl = |stack| Failure::openssl(USE_KEY, &stack);
    let leaf = chain.first().ok_or_else(|| Failure::plain(USE_KEY))?;
    let public = X509::from_der(leaf)
        .and_then(|leaf| leaf.public_key())
        .map_err(of_openssl)?;
    if public.id() != key.key.id() {
        let cause = "error:05800073:x509 certificate routines::key type mismatch";
        return Err(Failure::because(USE_KEY, cause));
    }
    if !public.public_eq(&key.key) {
        let cause = "error:05800074:x509 certificate routines::key values mismatch";
        return Err(Failure::because(USE_KEY, cause));
    }
    let secret = key
        .key
        .private_key_to_pkcs8()
        .map(|der| PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)))
        .map_err(of_openssl)?;
    match any_supported_type(&secret) {
        Ok(signing) => Ok(CertifiedKey::new(chain, signing)),
        Err(error) => Err(Failure::because(USE_KEY, error.to_string())),
    }
}

/// The certificate of a block, without what stands behind it.
fn certificate(block: &Block<'_>, step: &'static str) -> Result<CertificateDer<'static>, Failure> {
    X509::from_pem(&block.relabelled("CERTIFICATE"))
        .and_then(|certificate| certificate.to_der())
        .map(CertificateDer::from)
        .map_err(|stack| Failure::openssl(step, &stack))
}

/// A block that is a key and needs a password.
fn is_encrypted(block: &Block<'_>) -> bool {
    let says_so = || {
        let mut lines = block.body.split(|byte| *byte == b'\n');
        lines.any(|line| line.starts_with(b"Proc-Type: 4,ENCRYPTED"))
    };
    block.label == b"ENCRYPTED PRIVATE KEY" || (block.label.ends_with(b" PRIVATE KEY") && says_so())
}
