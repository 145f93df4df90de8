//! Digests that scripts ask for: `crypto.createHash`, `crypto.createHmac`.
//!
//! They are made in one piece of what a script has gathered; its memory has a bound.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

/// The digest of bytes; none for an algorithm that is not known.
pub(crate) fn digest(algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
    Some(match algorithm {
        "md5" => Md5::digest(data).to_vec(),
        "sha1" => Sha1::digest(data).to_vec(),
        "sha256" => Sha256::digest(data).to_vec(),
        "sha384" => Sha384::digest(data).to_vec(),
        "sha512" => Sha512::digest(data).to_vec(),
        _ => return None,
    })
}

/// The keyed digest of bytes; none for an algorithm that is not known.
pub(crate) fn keyed(algorithm: &str, key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        "md5" => mac::<Hmac<Md5>>(key, data),
        "sha1" => mac::<Hmac<Sha1>>(key, data),
        "sha256" => mac::<Hmac<Sha256>>(key, data),
        "sha384" => mac::<Hmac<Sha384>>(key, data),
        "sha512" => mac::<Hmac<Sha512>>(key, data),
        _ => None,
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    mac.update(data);
    Some(mac.finalize().into_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_algorithms() {
        let md5 = digest("md5", b"").unwrap();
        assert_eq!(hex(&md5), "d41d8cd98f00b204e9800998ecf8427e");
        let sha1 = keyed(
            "sha1",
            b"key",
            b"The quick brown fox jumps over the lazy dog",
        )
        .unwrap();
        assert_eq!(hex(&sha1), "de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9");
        assert_eq!(digest("sha3", b""), None);
        assert_eq!(keyed("sha3", b"", b""), None);
    }
}
