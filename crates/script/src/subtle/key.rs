//! Keys of RSA and of curves, and the forms in which they come and go.
//!
//! A kind is told by a name: `RSA`, the name of a curve (`P-256`), `Ed25519`, `X25519`.

use openssl::bn::{BigNum, BigNumContext};
use openssl::derive::Deriver;
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private, Public};
use openssl::rsa::Rsa;

use super::{Result, told};

/// The longest key of RSA, bits: what one takes costs milliseconds.
const MOST_BITS: u32 = 4096;
/// The longest key of RSA that is made, bits: longer ones take seconds.
const MOST_MADE: u32 = 2048;
/// The shortest key of RSA that is made, bits.
const LEAST_MADE: u32 = 512;

/// The side of a pair of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Private,
    Public,
}

impl Side {
    /// The side that the prelude names.
    pub(crate) fn named(name: &str) -> Side {
        match name {
            "private" => Side::Private,
            _ => Side::Public,
        }
    }
}

/// A key that was read or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The name of the kind.
    pub(crate) kind: &'static str,
    /// The bits of a key of RSA; 0 of others.
    pub(crate) bits: u32,
    /// The public exponent of a key of RSA.
    pub(crate) exponent: Vec<u8>,
    /// The key itself.
    pub(crate) der: Vec<u8>,
}

/// A private key.
pub(crate) fn private(der: &[u8]) -> Result<PKey<Private>> {
    let key = PKey::private_key_from_pkcs8(der).map_err(told)?;
    kind_of(&key)?;
    Ok(key)
}

/// A public key.
pub(crate) fn public(der: &[u8]) -> Result<PKey<Public>> {
    let key = PKey::public_key_from_der(der).map_err(told)?;
    kind_of(&key)?;
    Ok(key)
}

/// The kind of a key, and the bits of one of RSA.
fn kind_of<T: HasPublic>(key: &PKeyRef<T>) -> Result<(&'static str, u32)> {
    match key.id() {
        Id::RSA if key.bits() <= MOST_BITS => Ok(("RSA", key.bits())),
        Id::RSA => Err(format!("a key of RSA has at most {MOST_BITS} bits")),
        Id::EC => {
            let curve = key.ec_key().map_err(told)?.group().curve_name();
            let mut known = CURVES.iter().filter(|(_, nid, _)| Some(*nid) == curve);
            let (name, ..) = known.next().ok_or("the curve of the key is not known")?;
            Ok((name, 0))
        }
        Id::ED25519 => Ok(("Ed25519", 0)),
        Id::X25519 => Ok(("X25519", 0)),
        _ => Err("the kind of the key is not known".to_string()),
    }
}

/// Curves: the name, the number, and the bytes of a coordinate.
const CURVES: [(&str, Nid, i32); 3] = [
    ("P-256", Nid::X9_62_PRIME256V1, 32),
    ("P-384", Nid::SECP384R1, 48),
    ("P-521", Nid::SECP521R1, 66),
];

/// The curve of a name, and the bytes of a coordinate.
pub(super) fn curve(name: &str) -> Result<(EcGroup, i32)> {
    let mut known = CURVES.iter().filter(|(known, ..)| *known == name);
    let (_, nid, size) = known.next().ok_or("the curve is not known")?;
    let group = EcGroup::from_curve_name(*nid).map_err(told)?;
    Ok((group, *size))
}

/// A key that comes as PKCS #8 or as SubjectPublicKeyInfo.
pub(crate) fn import(side: Side, der: &[u8]) -> Result<Known> {
    match side {
        Side::Private => known_private(&private(der)?),
        Side::Public => known_public(&public(der)?),
    }
}

fn known_private(key: &PKey<Private>) -> Result<Known> {
    let der = key.private_key_to_pkcs8().map_err(told)?;
    known(key, der)
}

fn known_public(key: &PKey<Public>) -> Result<Known> {
    let der = key.public_key_to_der().map_err(told)?;
    known(key, der)
}

fn known<T: HasPublic>(key: &PKeyRef<T>, der: Vec<u8>) -> Result<Known> {
    let (kind, bits) = kind_of(key)?;
    let exponent = match kind {
        "RSA" => key.rsa().map_err(told)?.e().to_vec(),
        _ => Vec::new(),
    };
    Ok(Known {
        kind,
        bits,
        exponent,
        der,
    })
}

/// A new pair: the private key and the public one.
pub(crate) fn make(kind: &str, bits: u32, exponent: &[u8]) -> Result<[Known; 2]> {
    let pair = match kind {
        "RSA" => {
            if !(LEAST_MADE..=MOST_MADE).contains(&bits) {
                return Err(format!(
                    "\"modulusLength\" must be from {LEAST_MADE} to {MOST_MADE}"
                ));
            }
            let exponent = BigNum::from_slice(exponent).map_err(told)?;
            // Others are never found, or take their time.
            if ![3, 65537].iter().any(|known| exponent == number(*known)) {
                return Err("\"publicExponent\" must be 3 or 65537".to_string());
            }
            let rsa = Rsa::generate_with_e(bits, &exponent).map_err(told)?;
            PKey::from_rsa(rsa)
        }
        "Ed25519" => PKey::generate_ed25519(),
        "X25519" => PKey::generate_x25519(),
        name => {
            let (group, _) = curve(name)?;
            let key = EcKey::generate(&group).map_err(told)?;
            PKey::from_ec_key(key)
        }
    };
    let made = pair.map_err(told)?;
    let der = made.public_key_to_der().map_err(told)?;
    Ok([known_private(&made)?, import(Side::Public, &der)?])
}

fn number(value: u32) -> BigNum {
    BigNum::from_u32(value).unwrap_or_else(|_| unreachable!("memory for a word"))
}

/// The numbers of a key, as JWK names them (RFC 7518 §6, RFC 8037 §2).
pub(crate) fn numbers(side: Side, der: &[u8]) -> Result<Vec<(&'static str, Vec<u8>)>> {
    match side {
        Side::Public => {
            let key = public(der)?;
            public_numbers(&key)
        }
        Side::Private => {
            let key = private(der)?;
            let mut made = public_numbers(&key)?;
            match kind_of(&key)?.0 {
                "RSA" => {
                    let rsa = key.rsa().map_err(told)?;
                    let parts = [rsa.p(), rsa.q(), rsa.dmp1(), rsa.dmq1(), rsa.iqmp()];
                    made.push(("d", rsa.d().to_vec()));
                    for (name, part) in ["p", "q", "dp", "dq", "qi"].into_iter().zip(parts) {
                        made.push((name, part.ok_or("the key has no primes")?.to_vec()));
                    }
                }
                "Ed25519" | "X25519" => made.push(("d", key.raw_private_key().map_err(told)?)),
                name => {
                    let (_, size) = curve(name)?;
                    let key = key.ec_key().map_err(told)?;
                    let number = key.private_key().to_vec_padded(size).map_err(told)?;
                    made.push(("d", number));
                }
            }
            Ok(made)
        }
    }
}

fn public_numbers<T: HasPublic>(key: &PKeyRef<T>) -> Result<Vec<(&'static str, Vec<u8>)>> {
    match kind_of(key)?.0 {
        "RSA" => {
            let rsa = key.rsa().map_err(told)?;
            Ok(vec![("n", rsa.n().to_vec()), ("e", rsa.e().to_vec())])
        }
        "Ed25519" | "X25519" => Ok(vec![("x", key.raw_public_key().map_err(told)?)]),
        name => {
            let (group, size) = curve(name)?;
            let key = key.ec_key().map_err(told)?;
            let [mut x, mut y] = [BigNum::new().map_err(told)?, BigNum::new().map_err(told)?];
            let mut cx = BigNumContext::new().map_err(told)?;
            let point = key.public_key();
            let found = point.affine_coordinates(&group, &mut x, &mut y, &mut cx);
            found.map_err(told)?;
            let padded = |number: &BigNum| number.to_vec_padded(size).map_err(told);
            Ok(vec![("x", padded(&x)?), ("y", padded(&y)?)])
        }
    }
}

/// The key of numbers, as JWK names them.
pub(crate) fn of_numbers(kind: &str, numbers: &[(String, Vec<u8>)]) -> Result<(Side, Known)> {
    let get = |name: &str| -> Result<&[u8]> {
        let mut found = numbers.iter().filter(|(known, _)| known == name);
        let (_, bytes) = found
            .next()
            .ok_or_else(|| format!("JWK has no \"{name}\""))?;
        if bytes.len() > MOST_BITS as usize / 8 {
            return Err(format!("JWK key too long: {} > 512", bytes.len()));
        }
        Ok(bytes)
    };
    let big = |name: &str| BigNum::from_slice(get(name)?).map_err(told);
    let is_private = numbers.iter().any(|(name, _)| name == "d");
    match kind {
        "RSA" if is_private => {
            let rsa = Rsa::from_private_components(
                big("n")?,
                big("e")?,
                big("d")?,
                big("p")?,
                big("q")?,
                big("dp")?,
                big("dq")?,
                big("qi")?,
            );
            let key = PKey::from_rsa(rsa.map_err(told)?).map_err(told)?;
            Ok((Side::Private, known_private(&key)?))
        }
        "RSA" => {
            let rsa = Rsa::from_public_components(big("n")?, big("e")?).map_err(told)?;
            let key = PKey::from_rsa(rsa).map_err(told)?;
            Ok((Side::Public, known_public(&key)?))
        }
        "Ed25519" | "X25519" => {
            let id = if kind == "X25519" {
                Id::X25519
            } else {
                Id::ED25519
            };
            if is_private {
                let key = PKey::private_key_from_raw_bytes(get("d")?, id).map_err(told)?;
                if key.raw_public_key().map_err(told)? != get("x")? {
                    return Err("Invalid JWK OKP x".to_string());
                }
                return Ok((Side::Private, known_private(&key)?));
            }
            let key = PKey::public_key_from_raw_bytes(get("x")?, id).map_err(told)?;
            Ok((Side::Public, known_public(&key)?))
        }
        name => {
            let (group, _) = curve(name)?;
            let (x, y) = (big("x")?, big("y")?);
            let point = EcKey::from_public_key_affine_coordinates(&group, &x, &y).map_err(told)?;
            if !is_private {
                let key = PKey::from_ec_key(point).map_err(told)?;
                return Ok((Side::Public, known_public(&key)?));
            }
            let number = big("d")?;
            let pair = EcKey::from_private_components(&group, &number, point.public_key())
                .map_err(told)?;
            pair.check_key().map_err(told)?;
            let key = PKey::from_ec_key(pair).map_err(told)?;
            Ok((Side::Private, known_private(&key)?))
        }
    }
}

/// A public key that comes as a point of a curve.
pub(crate) fn of_point(kind: &str, bytes: &[u8]) -> Result<Known> {
    let id = match kind {
        "Ed25519" => Some(Id::ED25519),
        "X25519" => Some(Id::X25519),
        _ => None,
    };
    if let Some(id) = id {
        let key = PKey::public_key_from_raw_bytes(bytes, id).map_err(told)?;
        return known_public(&key);
    }
    let (group, _) = curve(kind)?;
    let mut cx = BigNumContext::new().map_err(told)?;
    let point = EcPoint::from_bytes(&group, bytes, &mut cx).map_err(told)?;
    let key = EcKey::from_public_key(&group, &point).map_err(told)?;
    key.check_key().map_err(told)?;
    known_public(&PKey::from_ec_key(key).map_err(told)?)
}

/// The point of a public key.
pub(crate) fn point(der: &[u8]) -> Result<Vec<u8>> {
    let key = public(der)?;
    match kind_of(&key)?.0 {
        "RSA" => Err("a key of RSA is no point".to_string()),
        "Ed25519" | "X25519" => key.raw_public_key().map_err(told),
        name => {
            let (group, _) = curve(name)?;
            let mut cx = BigNumContext::new().map_err(told)?;
            let key = key.ec_key().map_err(told)?;
            let form = PointConversionForm::UNCOMPRESSED;
            let bytes = key.public_key().to_bytes(&group, form, &mut cx);
            bytes.map_err(told)
        }
    }
}

/// The secret that two keys agree on.
pub(crate) fn agree(own: &[u8], other: &[u8]) -> Result<Vec<u8>> {
    let (own, other) = (private(own)?, public(other)?);
    if kind_of(&own)?.0 != kind_of(&other)?.0 {
        return Err("ECDH keys must use the same curve".to_string());
    }
    let mut deriver = Deriver::new(&own).map_err(told)?;
    deriver.set_peer(&other).map_err(told)?;
    deriver.derive_to_vec().map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_each_form() {
        for kind in ["RSA", "P-256", "P-384", "P-521", "Ed25519", "X25519"] {
            let [own, shown] = make(kind, 1024, &[1, 0, 1]).unwrap();
            assert_eq!(own.kind, kind);
            assert_eq!(import(Side::Private, &own.der).unwrap(), own, "{kind}");
            assert_eq!(import(Side::Public, &shown.der).unwrap(), shown, "{kind}");
            for (side, key) in [(Side::Private, &own), (Side::Public, &shown)] {
                let parts: Vec<_> = numbers(side, &key.der)
                    .unwrap()
                    .into_iter()
                    .map(|(name, bytes)| (name.to_string(), bytes))
                    .collect();
                let (again, read) = of_numbers(kind, &parts).unwrap();
                assert_eq!((again, &read), (side, key), "{kind}");
                for place in 0..parts.len() {
                    let mut less = parts.clone();
                    less.remove(place);
                    // Without "d" it is a public key.
                    let read = of_numbers(kind, &less);
                    assert!(read.is_err() || read.unwrap().0 == Side::Public, "{kind}");
                }
            }
            if kind != "RSA" {
                let point = point(&shown.der).unwrap();
                assert_eq!(of_point(kind, &point).unwrap(), shown, "{kind}");
            }
        }
    }

    #[test]
    fn two_sides_agree_on_one_secret() {
        for kind in ["P-256", "X25519"] {
            let [[a, for_a], [b, for_b]] = [(); 2].map(|()| make(kind, 0, &[]).unwrap());
            let secret = agree(&a.der, &for_b.der).unwrap();
            assert_eq!(secret, agree(&b.der, &for_a.der).unwrap());
            assert_eq!(secret.len(), 32);
            let [_, other] = make("P-384", 0, &[]).unwrap();
            assert!(agree(&a.der, &other.der).is_err());
        }
    }

    #[test]
    fn bytes_that_are_no_key_are_told() {
        let [own, shown] = make("P-256", 0, &[]).unwrap();
        for der in [&b""[..], b"\x30\x00", &own.der[..20], &[0x30; 100]] {
            assert!(import(Side::Private, der).is_err());
            assert!(import(Side::Public, der).is_err());
            assert!(of_point("P-256", der).is_err());
        }
        assert!(import(Side::Private, &shown.der).is_err());
        assert!(import(Side::Public, &own.der).is_err());
        assert!(make("RSA", 8192, &[1, 0, 1]).is_err());
        assert!(make("RSA", 1024, &[2]).is_err());
        assert!(make("P-1", 0, &[]).is_err());
        // The point is on no curve.
        let bad = [vec![4], vec![1; 64]].concat();
        assert!(of_point("P-256", &bad).is_err());
    }
}
