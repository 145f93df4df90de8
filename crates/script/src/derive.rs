//! Keys that are made of secrets: HKDF (RFC 5869), PBKDF2 (RFC 8018 §5.2).
//!
//! Each is as long as it is asked for, within the bounds of a call; the time of a script is looked
//! at between the rounds of PBKDF2, which are what makes it slow.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use crate::files::Bounds;
use crate::hash;

/// Rounds between two looks at the time.
const STEP: u32 = 256;

/// Bytes by HKDF; the error is for the script.
pub(crate) fn hkdf(
    algorithm: &str,
    key: &[u8],
    (salt, info): (&[u8], &[u8]),
    length: usize,
) -> Result<Vec<u8>, String> {
    let keyed = |key: &[u8], data: &[u8]| {
        let made = hash::keyed(algorithm, key, data);
        made.ok_or_else(|| format!("unknown hash name: \"{algorithm}\""))
    };
    let secret = keyed(salt, key)?;
    if length > 255 * secret.len() {
        return Err("HKDF length is too large".to_string());
    }
    let mut made: Vec<u8> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    for number in 1..=255_u8 {
        if made.len() >= length {
            break;
        }
        last = keyed(&secret, &[&last[..], info, &[number]].concat())?;
        made.extend(&last);
    }
    made.truncate(length);
    Ok(made)
}

/// The work of PBKDF2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch<'a> {
    pub(crate) password: &'a [u8],
    pub(crate) salt: &'a [u8],
    pub(crate) rounds: u32,
    /// The bytes that are made.
    pub(crate) length: usize,
}

/// Bytes by PBKDF2; the error is for the script.
pub(crate) fn pbkdf2(
    algorithm: &str,
    work: Stretch<'_>,
    bounds: &Bounds<'_>,
) -> Result<Vec<u8>, String> {
    if work.length > bounds.bytes {
        return Err("PBKDF2 length is too large".to_string());
    }
    match algorithm {
        "sha1" => stretched::<Hmac<Sha1>>(work, bounds),
        "sha256" => stretched::<Hmac<Sha256>>(work, bounds),
        "sha384" => stretched::<Hmac<Sha384>>(work, bounds),
        "sha512" => stretched::<Hmac<Sha512>>(work, bounds),
        _ => Err(format!("unknown hash name: \"{algorithm}\"")),
    }
}

fn stretched<M: Mac + KeyInit + Clone>(
    work: Stretch<'_>,
    bounds: &Bounds<'_>,
) -> Result<Vec<u8>, String> {
    let late = || "the time of the script is over".to_string();
    if work.rounds == 0 {
        return Err("PBKDF2 algorithm.iterations must be greater than 0".to_string());
    }
    let Ok(keyed) = <M as KeyInit>::new_from_slice(work.password) else {
        return Err("PBKDF2 failed".to_string());
    };
    let of = |data: &[&[u8]]| {
        let mut mac = keyed.clone();
        data.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes()
    };
    let mut made: Vec<u8> = Vec::new();
    for block in 1..=u32::MAX {
        if made.len() >= work.length {
            break;
        }
        let mut last = of(&[work.salt, &block.to_be_bytes()]);
        let mut sum = last.clone();
        for round in 1..work.rounds {
            if round % STEP == 0 && (bounds.is_late)() {
                return Err(late());
            }
            last = of(&[&last]);
            sum.iter_mut()
                .zip(&last)
                .for_each(|(sum, byte)| *sum ^= byte);
        }
        if (bounds.is_late)() {
            return Err(late());
        }
        made.extend_from_slice(&sum);
    }
    made.truncate(work.length);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    const BOUNDS: Bounds<'_> = Bounds {
        bytes: 1000,
        is_late: &|| false,
    };

    #[test]
    fn bytes_are_those_of_the_rfcs() {
        // RFC 5869 A.1.
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let salt: Vec<u8> = (0..=12).collect();
        let made = hkdf("sha256", &[0x0b; 22], (&salt, &info), 42).unwrap();
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf\
                        34007208d5b887185865";
        assert_eq!(hex(&made), expected);
        // RFC 6070.
        let work = Stretch {
            password: b"password",
            salt: b"salt",
            rounds: 4096,
            length: 20,
        };
        let made = pbkdf2("sha1", work, &BOUNDS).unwrap();
        assert_eq!(hex(&made), "4b007901b765489abead49d926f721d065a429c1");
        let long = Stretch {
            password: b"passwordPASSWORDpassword",
            salt: b"saltSALTsaltSALTsaltSALTsaltSALTsalt",
            length: 25,
            ..work
        };
        let made = pbkdf2("sha1", long, &BOUNDS).unwrap();
        assert_eq!(
            hex(&made),
            "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038"
        );
    }

    #[test]
    fn what_is_too_much_is_told() {
        let late = Bounds {
            is_late: &|| true,
            ..BOUNDS
        };
        let work = Stretch {
            password: b"x",
            salt: b"salt",
            rounds: 1,
            length: 20,
        };
        let endless = Stretch {
            rounds: u32::MAX,
            ..work
        };
        let why = pbkdf2("sha1", endless, &late).unwrap_err();
        assert!(why.contains("time"), "{why}");
        assert!(
            pbkdf2(
                "sha1",
                Stretch {
                    length: 1001,
                    ..work
                },
                &BOUNDS
            )
            .is_err()
        );
        assert!(pbkdf2("sha1", Stretch { rounds: 0, ..work }, &BOUNDS).is_err());
        assert!(pbkdf2("sha3", work, &BOUNDS).is_err());
        assert!(hkdf("sha1", b"x", (b"", b""), 255 * 20 + 1).is_err());
        assert_eq!(
            hkdf("sha1", b"x", (b"", b""), 255 * 20).unwrap().len(),
            5100
        );
    }
}
