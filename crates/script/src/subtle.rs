//! `crypto.subtle` of scripts, below the language: ciphers, signatures and keys, by OpenSSL.
//!
//! A secret key is its bytes, a public one its SubjectPublicKeyInfo, a private one its PKCS #8; the
//! prelude keeps them, and each call reads them anew. No call can be interrupted, so that what one
//! may cost is bounded by the length of keys.
//!
//! Invariant: what was read as a key has a kind that is known here, and a length within the bounds.

pub(crate) mod cipher;
pub(crate) mod key;
pub(crate) mod signature;

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;

/// The words about what has failed, for the script.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The words about a failure of OpenSSL.
pub(crate) fn told(error: ErrorStack) -> String {
    let first = error.errors().first();
    match first.and_then(|error| error.reason()) {
        Some(reason) => reason.to_string(),
        None => "operation failed".to_string(),
    }
}

/// The digest of a name.
pub(crate) fn digest_of(name: &str) -> Result<MessageDigest> {
    match name {
        "sha1" => Ok(MessageDigest::sha1()),
        "sha256" => Ok(MessageDigest::sha256()),
        "sha384" => Ok(MessageDigest::sha384()),
        "sha512" => Ok(MessageDigest::sha512()),
        _ => Err(format!("unknown hash name: \"{name}\"")),
    }
}
