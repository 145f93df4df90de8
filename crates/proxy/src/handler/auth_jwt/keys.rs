//! Sets of keys (RFC 7517 §5), and the verification of signatures by them.
//!
//! A key says by its kind (`kty`) what it can verify: a secret is asked only about HMAC, a public
//! key only about its own algorithms. So nothing that is public can be taken for a secret.
//!
//! Invariants:
//! 1. Kind of key and algorithm of token belong together, whatever the token says.
//! 2. Keys that are for something else (`use`, `key_ops`, `alg`), or of unknown kinds, are passed
//!    over (RFC 7517 §5).

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::{Map, Value};

use super::json;
use super::token::{self, Algorithm, Token};

/// The most keys of a set (arbitrary: authorities have a handful).
const MAX_KEYS: usize = 256;

/// A set of keys.
#[derive(Debug)]
pub struct KeySet(Vec<Key>);

#[derive(Debug)]
struct Key {
    name: Option<String>,
    algorithm: Option<Algorithm>,
    material: Material,
}

enum Material {
    Secret(Vec<u8>),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point, uncompressed, and the algorithm of its curve.
    Point(Algorithm, Vec<u8>),
    Ed25519(Vec<u8>),
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Material::Secret(_) => "secret",
            Material::Rsa { .. } => "RSA",
            Material::Point(..) => "EC",
            Material::Ed25519(_) => "Ed25519",
        })
    }
}

impl KeySet {
    /// Reads a set; the error is for the log.
    ///
    /// # Errors
    /// The text is none, has too many keys, or none that could verify anything.
    pub fn parse(text: &[u8]) -> Result<KeySet, String> {
        let members = json::object(text).ok_or("it is no JSON object with single members")?;
        let keys = members
            .get("keys")
            .and_then(Value::as_array)
            .ok_or("it has no array \"keys\"")?;
        if keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let usable: Vec<Key> = keys
            .iter()
            .filter_map(Value::as_object)
            .filter_map(Key::read)
            .collect();
        if usable.is_empty() {
            return Err("it has no key that verifies signatures".to_string());
        }
        Ok(KeySet(usable))
    }

    /// True if one of the keys has signed the token.
    pub fn verifies(&self, token: &Token) -> bool {
        self.0.iter().any(|key| key.verifies(token))
    }
}

impl Key {
    /// The key of a record; none for one that is not for signatures.
    fn read(record: &Map<String, Value>) -> Option<Key> {
        let text = |name: &str| record.get(name).and_then(Value::as_str);
        let bytes = |name: &str| {
            let bytes = token::decode(text(name)?.as_bytes()).ok()?;
            Some(bytes).filter(|bytes| !bytes.is_empty())
        };
        // INVARIANT 2.
        if record.contains_key("use") && text("use") != Some("sig") {
            return None;
        }
        let verifies = |all: &Vec<Value>| all.iter().any(|it| it.as_str() == Some("verify"));
        if let Some(all) = record.get("key_ops")
            && !all.as_array().is_some_and(verifies)
        {
            return None;
        }
        let algorithm = match record.get("alg") {
            None => None,
            Some(name) => Some(name.as_str().and_then(Algorithm::of)?),
        };
        let material = match (text("kty")?, text("crv")) {
            ("oct", _) => Material::Secret(bytes("k")?),
            ("RSA", _) => Material::Rsa {
                modulus: without_zeros(bytes("n")?),
                exponent: without_zeros(bytes("e")?),
            },
            ("EC", Some("P-256")) => point(Algorithm::Es256, 32, [bytes("x")?, bytes("y")?])?,
            ("EC", Some("P-384")) => point(Algorithm::Es384, 48, [bytes("x")?, bytes("y")?])?,
            ("EC", Some("P-521")) => point(Algorithm::Es512, 66, [bytes("x")?, bytes("y")?])?,
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x")?),
            _ => return None,
        };
        Some(Key {
            name: text("kid").map(str::to_string),
            algorithm,
            material,
        })
    }

    fn verifies(&self, token: &Token) -> bool {
        let is_named = match (&self.name, token.key_name()) {
            (Some(own), Some(wanted)) => own == wanted,
            _ => true,
        };
        let is_meant = self.algorithm.is_none_or(|own| own == token.algorithm);
        is_named && is_meant && self.has_signed(token)
    }

    /// INVARIANT 1: a pair that is not here verifies nothing.
    fn has_signed(&self, token: &Token) -> bool {
        let (text, signature) = (&token.signed, &token.signature);
        match (&self.material, token.algorithm) {
            (Material::Secret(secret), algorithm) => hmac_of(algorithm).is_some_and(|hash| {
                hmac::verify(&hmac::Key::new(hash, secret), text, signature).is_ok()
            }),
            (Material::Rsa { modulus, exponent }, algorithm) => {
                rsa_of(algorithm).is_some_and(|parameters| {
                    let (n, e) = (modulus.as_slice(), exponent.as_slice());
                    let key = RsaPublicKeyComponents { n, e };
                    key.verify(parameters, text, signature).is_ok()
                })
            }
            (Material::Point(own, point), algorithm) if *own == algorithm => {
                let by = match algorithm {
                    Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
                    Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
                    _ => &ECDSA_P521_SHA512_FIXED,
                };
                let key = UnparsedPublicKey::new(by, point);
                key.verify(text, signature).is_ok()
            }
            (Material::Ed25519(public), Algorithm::EdDsa) => {
                let key = UnparsedPublicKey::new(&ED25519, public);
                key.verify(text, signature).is_ok()
            }
            (Material::Point(..) | Material::Ed25519(_), _) => false,
        }
    }
}

fn hmac_of(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::Hs256 => Some(hmac::HMAC_SHA256),
        Algorithm::Hs384 => Some(hmac::HMAC_SHA384),
        Algorithm::Hs512 => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

/// Keys of less than 2048 bits verify nothing (RFC 7518 §3.3).
fn rsa_of(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        _ => None,
    }
}

/// A point of a curve whose numbers have so many bytes (RFC 7518 §6.2.1.2).
fn point(algorithm: Algorithm, size: usize, numbers: [Vec<u8>; 2]) -> Option<Material> {
    let is_right = numbers.iter().all(|number| number.len() == size);
    let mut point = vec![4];
    point.extend(numbers.concat());
    is_right.then_some(Material::Point(algorithm, point))
}

fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}

#[cfg(test)]
mod tests;
