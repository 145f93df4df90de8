//! Keys: of accounts, which sign requests, and of certificates.
//!
//! | word | key | requests are signed by |
//! |---|---|---|
//! | `ecdsa`, `ecdsa:256` | P-256 | ES256 |
//! | `ecdsa:384` | P-384 | ES384 |
//! | `ecdsa:521` | P-521 | ES512 |
//! | `rsa`, `rsa:2048`, `rsa:3072`, `rsa:4096` | RSA | RS256 |
//!
//! Texts of keys are wiped when they are dropped.

use std::fmt;

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, PKeyRef, Private};
use openssl::rsa::Rsa;
use openssl::sign::Signer;
use zeroize::Zeroizing;

use crate::base64url;

/// The kind of a key that is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyKind {
    /// P-256.
    #[default]
    P256,
    /// P-384.
    P384,
    /// P-521.
    P521,
    /// RSA of so many bits.
    Rsa(u32),
}

impl KeyKind {
    /// Reads a word; none for one that names no algorithm, and so may be a file.
    pub fn parse(word: &str) -> Option<Result<Self, &'static str>> {
        let (algorithm, size) = match word.split_once(':') {
            Some((algorithm, size)) => (algorithm, Some(size)),
            None => (word, None),
        };
        Some(match (algorithm, size) {
            ("ecdsa", None | Some("256")) => Ok(KeyKind::P256),
            ("ecdsa", Some("384")) => Ok(KeyKind::P384),
            ("ecdsa", Some("521")) => Ok(KeyKind::P521),
            ("ecdsa", Some(_)) => Err("unsupported curve"),
            ("rsa", None | Some("2048")) => Ok(KeyKind::Rsa(2048)),
            ("rsa", Some("3072")) => Ok(KeyKind::Rsa(3072)),
            ("rsa", Some("4096")) => Ok(KeyKind::Rsa(4096)),
            ("rsa", Some(_)) => Err("unsupported key size"),
            _ => return None,
        })
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::P256 => f.write_str("ecdsa:256"),
            KeyKind::P384 => f.write_str("ecdsa:384"),
            KeyKind::P521 => f.write_str("ecdsa:521"),
            KeyKind::Rsa(bits) => write!(f, "rsa:{bits}"),
        }
    }
}

/// The reason for which a text is no key that can sign requests.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// OpenSSL reads no key in it.
    #[error("it has no private key ({0})")]
    Unreadable(#[from] ErrorStack),
    /// The algorithm is none of those that are signed by.
    #[error("its algorithm is none of ecdsa:256, ecdsa:384, ecdsa:521, rsa")]
    Unsupported,
}

/// A private key.
#[derive(Clone)]
pub struct Key {
    key: PKey<Private>,
    form: Form,
}

/// The way in which a key signs, and its public half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A curve: its name, the algorithm, and the bytes of a coordinate.
    Ec(&'static str, &'static str, i32),
    Rsa,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = &self.form;
        f.debug_struct("Key")
            .field("form", form)
            .finish_non_exhaustive()
    }
}

impl Key {
    /// Makes a key.
    pub fn generate(kind: KeyKind) -> Result<Self, KeyError> {
        let curve = match kind {
            KeyKind::P256 => Nid::X9_62_PRIME256V1,
            KeyKind::P384 => Nid::SECP384R1,
            KeyKind::P521 => Nid::SECP521R1,
            KeyKind::Rsa(bits) => return Key::with_form(PKey::from_rsa(Rsa::generate(bits)?)?),
        };
        let group = EcGroup::from_curve_name(curve)?;
        Key::with_form(PKey::from_ec_key(EcKey::generate(&group)?)?)
    }

    /// Reads a key in PEM.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        // An empty password: nobody is asked for one.
        Key::with_form(PKey::private_key_from_pem_passphrase(text, b"")?)
    }

    fn with_form(key: PKey<Private>) -> Result<Self, KeyError> {
        let form = form(&key)?;
        Ok(Key { key, form })
    }

    /// The key in PEM.
    pub fn to_pem(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        Ok(Zeroizing::new(self.key.private_key_to_pem_pkcs8()?))
    }

    pub(crate) fn openssl(&self) -> &PKeyRef<Private> {
        &self.key
    }

    /// The algorithm that it signs requests by (RFC 7518 §3.1).
    pub(crate) fn algorithm(&self) -> &'static str {
        match self.form {
            Form::Ec(_, algorithm, _) => algorithm,
            Form::Rsa => "RS256",
        }
    }

    /// The public half, with its members in the order of RFC 7638 §3.2 and no spaces.
    pub(crate) fn public(&self) -> Result<String, ErrorStack> {
        let Form::Ec(name, _, len) = self.form else {
            let rsa = self.key.rsa()?;
            let e = base64url::encode(&rsa.e().to_vec());
            let n = base64url::encode(&rsa.n().to_vec());
            return Ok(format!(r#"{{"e":"{e}","kty":"RSA","n":"{n}"}}"#));
        };
        let key = self.key.ec_key()?;
        let (mut x, mut y) = (BigNum::new()?, BigNum::new()?);
        let mut cx = BigNumContext::new()?;
        key.public_key()
            .affine_coordinates(key.group(), &mut x, &mut y, &mut cx)?;
        let x = base64url::encode(&x.to_vec_padded(len)?);
        let y = base64url::encode(&y.to_vec_padded(len)?);
        Ok(format!(
            r#"{{"crv":"{name}","kty":"EC","x":"{x}","y":"{y}"}}"#
        ))
    }

    /// The digest of the public half (RFC 7638).
    pub fn thumbprint(&self) -> Result<String, ErrorStack> {
        let public = self.public()?;
        Ok(base64url::encode(&openssl::sha::sha256(public.as_bytes())))
    }

    /// Signs; a signature of a curve is its two numbers, one behind the other (RFC 7518 §3.4).
    pub(crate) fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, ErrorStack> {
        let digest = match self.algorithm() {
            "ES384" => MessageDigest::sha384(),
            "ES512" => MessageDigest::sha512(),
            _ => MessageDigest::sha256(),
        };
        let signature = Signer::new(digest, &self.key)?.sign_oneshot_to_vec(bytes)?;
        let Form::Ec(_, _, len) = self.form else {
            return Ok(signature);
        };
        let signature = EcdsaSig::from_der(&signature)?;
        let numbers = [
            signature.r().to_vec_padded(len)?,
            signature.s().to_vec_padded(len)?,
        ];
        Ok(numbers.concat())
    }
}

fn form(key: &PKeyRef<Private>) -> Result<Form, KeyError> {
    match key.id() {
        Id::RSA => Ok(Form::Rsa),
        Id::EC => match key.ec_key()?.group().curve_name() {
            Some(Nid::X9_62_PRIME256V1) => Ok(Form::Ec("P-256", "ES256", 32)),
            Some(Nid::SECP384R1) => Ok(Form::Ec("P-384", "ES384", 48)),
            Some(Nid::SECP521R1) => Ok(Form::Ec("P-521", "ES512", 66)),
            _ => Err(KeyError::Unsupported),
        },
        _ => Err(KeyError::Unsupported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_kinds_or_files() {
        for (word, kind) in [
            ("ecdsa", Some(Ok(KeyKind::P256))),
            ("ecdsa:384", Some(Ok(KeyKind::P384))),
            ("ecdsa:521", Some(Ok(KeyKind::P521))),
            ("ecdsa:234", Some(Err("unsupported curve"))),
            ("rsa", Some(Ok(KeyKind::Rsa(2048)))),
            ("rsa:4096", Some(Ok(KeyKind::Rsa(4096)))),
            ("rsa:1024", Some(Err("unsupported key size"))),
            ("/etc/account.key", None),
            ("file:ecdsa", None),
        ] {
            assert_eq!(KeyKind::parse(word), kind, "{word}");
        }
    }

    #[test]
    fn keys_come_back_from_their_text() {
        for kind in [
            KeyKind::P256,
            KeyKind::P384,
            KeyKind::P521,
            KeyKind::Rsa(2048),
        ] {
            let key = Key::generate(kind).unwrap();
            let again = Key::from_pem(&key.to_pem().unwrap()).unwrap();
            assert_eq!(key.public().unwrap(), again.public().unwrap(), "{kind}");
            assert_eq!(key.algorithm(), again.algorithm());
        }
        assert!(Key::from_pem(b"no key").is_err());
    }

    #[test]
    fn signatures_of_curves_are_two_numbers() {
        for (kind, len) in [
            (KeyKind::P256, 64),
            (KeyKind::P384, 96),
            (KeyKind::P521, 132),
        ] {
            let key = Key::generate(kind).unwrap();
            assert_eq!(key.sign(b"bytes").unwrap().len(), len, "{kind}");
        }
    }

    /// RFC 7638 §3.1: the key there has a public half only, whose digest is what is shown here.
    #[test]
    fn the_public_half_is_in_the_order_of_the_digest() {
        let public = Key::generate(KeyKind::P256).unwrap().public().unwrap();
        let places = ["\"crv\"", "\"kty\"", "\"x\"", "\"y\""].map(|name| public.find(name));
        assert!(places.is_sorted() && places[0].is_some(), "{public}");
        assert!(!public.contains(' '));
    }
}
