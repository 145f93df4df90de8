//! Signatures by RSA (RFC 8017 §8), on curves (FIPS 186-5), and Ed25519 (RFC 8032).
//!
//! A signature on a curve is its two numbers side by side, as Web Crypto has it, and not ASN.1.

use openssl::bn::BigNum;
use openssl::ecdsa::EcdsaSig;
use openssl::pkey::{PKey, Public};
use openssl::rsa::Padding;
use openssl::sign::{RsaPssSaltlen, Signer, Verifier};

use super::key::{curve, import, private, public};
use super::{Result, digest_of, key::Side, told};

/// The way of signing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
    /// RSA-PSS with a salt of so many bytes.
    Pss(u16),
    /// ECDSA.
    Curve,
    /// Ed25519.
    Edwards,
}

/// The longest salt: that of the longest key.
const MOST_SALT: u16 = 512;

/// The way of signing, by its name.
pub(crate) fn scheme(name: &str, salt: u32) -> Result<Scheme> {
    let fit = u16::try_from(salt).ok().filter(|salt| *salt <= MOST_SALT);
    match name {
        "RSASSA-PKCS1-v1_5" => Ok(Scheme::Pkcs1),
        "RSA-PSS" => Ok(Scheme::Pss(fit.ok_or("RSA-PSS salt is too long")?)),
        "ECDSA" => Ok(Scheme::Curve),
        "Ed25519" => Ok(Scheme::Edwards),
        _ => Err(format!("\"{name}\" signs nothing")),
    }
}

/// Signs data.
pub(crate) fn sign(scheme: Scheme, der: &[u8], digest: &str, data: &[u8]) -> Result<Vec<u8>> {
    let key = private(der)?;
    if scheme == Scheme::Edwards {
        let mut signer = Signer::new_without_digest(&key).map_err(told)?;
        return signer.sign_oneshot_to_vec(data).map_err(told);
    }
    let md = digest_of(digest)?;
    let mut signer = Signer::new(md, &key).map_err(told)?;
    match scheme {
        Scheme::Pkcs1 => signer.set_rsa_padding(Padding::PKCS1).map_err(told)?,
        Scheme::Pss(salt) => {
            let padding = signer.set_rsa_padding(Padding::PKCS1_PSS);
            padding.map_err(told)?;
            let salt = RsaPssSaltlen::custom(i32::from(salt));
            signer.set_rsa_pss_saltlen(salt).map_err(told)?;
            signer.set_rsa_mgf1_md(md).map_err(told)?;
        }
        Scheme::Curve | Scheme::Edwards => {}
    }
    let signature = signer.sign_oneshot_to_vec(data).map_err(told)?;
    if scheme != Scheme::Curve {
        return Ok(signature);
    }
    let (_, size) = curve(import(Side::Private, der)?.kind)?;
    let parts = EcdsaSig::from_der(&signature).map_err(told)?;
    let mut made = parts.r().to_vec_padded(size).map_err(told)?;
    made.extend(parts.s().to_vec_padded(size).map_err(told)?);
    Ok(made)
}

/// True if a signature is one of the data.
pub(crate) fn verify(
    scheme: Scheme,
    der: &[u8],
    digest: &str,
    (data, signature): (&[u8], &[u8]),
) -> Result<bool> {
    let key = public(der)?;
    if scheme == Scheme::Edwards {
        let mut verifier = Verifier::new_without_digest(&key).map_err(told)?;
        let is_right = verifier.verify_oneshot(signature, data);
        return Ok(is_right.unwrap_or_default());
    }
    let md = digest_of(digest)?;
    let mut verifier = Verifier::new(md, &key).map_err(told)?;
    match scheme {
        Scheme::Pkcs1 => verifier.set_rsa_padding(Padding::PKCS1).map_err(told)?,
        Scheme::Pss(salt) => {
            let padding = verifier.set_rsa_padding(Padding::PKCS1_PSS);
            padding.map_err(told)?;
            let salt = RsaPssSaltlen::custom(i32::from(salt));
            verifier.set_rsa_pss_saltlen(salt).map_err(told)?;
            verifier.set_rsa_mgf1_md(md).map_err(told)?;
        }
        Scheme::Curve | Scheme::Edwards => {}
    }
    let signature = match scheme {
        Scheme::Curve => match of_parts(&key, signature)? {
            Some(signature) => signature,
            None => return Ok(false),
        },
        _ => signature.to_vec(),
    };
    // OpenSSL calls a signature of a wrong form an error.
    let is_right = verifier.verify_oneshot(&signature, data);
    Ok(is_right.unwrap_or_default())
}

/// The ASN.1 of two numbers side by side; none for a wrong length.
fn of_parts(key: &PKey<Public>, signature: &[u8]) -> Result<Option<Vec<u8>>> {
    let der = key.public_key_to_der().map_err(told)?;
    let (_, size) = curve(import(Side::Public, &der)?.kind)?;
    let size = size as usize;
    if signature.len() != 2 * size {
        return Ok(None);
    }
    let (r, s) = signature.split_at(size);
    let (r, s) = (
        BigNum::from_slice(r).map_err(told)?,
        BigNum::from_slice(s).map_err(told)?,
    );
    let parts = EcdsaSig::from_private_components(r, s).map_err(told)?;
    parts.to_der().map(Some).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::super::key::make;
    use super::*;

    #[test]
    fn a_signature_is_of_its_data_and_its_key() {
        for (kind, scheme) in [
            ("RSA", Scheme::Pkcs1),
            ("RSA", Scheme::Pss(20)),
            ("P-256", Scheme::Curve),
            ("P-521", Scheme::Curve),
            ("Ed25519", Scheme::Edwards),
        ] {
            let [own, shown] = make(kind, 1024, &[1, 0, 1]).unwrap();
            let [_, stranger] = make(kind, 1024, &[1, 0, 1]).unwrap();
            let made = sign(scheme, &own.der, "sha256", b"data").unwrap();
            let is_right = |key: &[u8], data: &[u8], signature: &[u8]| {
                verify(scheme, key, "sha256", (data, signature)).unwrap()
            };
            assert!(is_right(&shown.der, b"data", &made), "{kind}");
            assert!(!is_right(&shown.der, b"date", &made), "{kind}");
            assert!(!is_right(&stranger.der, b"data", &made), "{kind}");
            assert!(!is_right(&shown.der, b"data", &made[1..]), "{kind}");
            assert!(!is_right(&shown.der, b"data", b""), "{kind}");
        }
    }

    #[test]
    fn a_key_of_another_kind_does_not_sign() {
        let [curve, _] = make("P-256", 0, &[]).unwrap();
        let [rsa, _] = make("RSA", 1024, &[1, 0, 1]).unwrap();
        let [agreeing, _] = make("X25519", 0, &[]).unwrap();
        for (scheme, key) in [
            (Scheme::Pkcs1, &curve),
            (Scheme::Pss(20), &curve),
            (Scheme::Curve, &rsa),
            (Scheme::Edwards, &agreeing),
            (Scheme::Pss(500), &rsa),
        ] {
            assert!(
                sign(scheme, &key.der, "sha256", b"data").is_err(),
                "{scheme:?}"
            );
        }
        assert!(super::super::signature::scheme("RSA-PSS", 513).is_err());
        assert!(sign(Scheme::Curve, &curve.der, "md5", b"data").is_err());
    }
}
