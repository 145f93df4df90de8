//! AES (FIPS 197, SP 800-38A, SP 800-38D, RFC 3394) and RSA-OAEP (RFC 8017 §7.1).
//!
//! Keys of AES have 16, 24 or 32 bytes; the prelude says what is wrong with others.

use openssl::aes::{AesKey, unwrap_key, wrap_key};
use openssl::encrypt::{Decrypter, Encrypter};
use openssl::rsa::Padding;
use openssl::symm::{self, Cipher, Mode};

use super::key::{private, public};
use super::{Result, digest_of, told};

/// Bytes of a block of AES.
const BLOCK: usize = 16;

/// The mode in which AES is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aes {
    /// Blocks in a chain.
    Cbc,
    /// A counter of so many bits at the end of its block.
    Ctr(u32),
    /// With a tag of so many bytes.
    Gcm(usize),
    /// For keys.
    Kw,
}

/// The direction of a cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Encrypt,
    Decrypt,
}

impl Way {
    /// The direction that the prelude names.
    pub(crate) fn named(name: &str) -> Way {
        match name {
            "encrypt" => Way::Encrypt,
            _ => Way::Decrypt,
        }
    }

    fn mode(self) -> Mode {
        match self {
            Way::Encrypt => Mode::Encrypt,
            Way::Decrypt => Mode::Decrypt,
        }
    }
}

/// The parts of a call of AES beside its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed<'a> {
    pub(crate) key: &'a [u8],
    /// The initial vector, or the first counter.
    pub(crate) iv: &'a [u8],
    /// The bytes that are sealed, but not hidden.
    pub(crate) aad: &'a [u8],
}

/// Encrypts or decrypts by AES.
pub(crate) fn aes(mode: Aes, way: Way, parts: Sealed<'_>, data: &[u8]) -> Result<Vec<u8>> {
    match mode {
        Aes::Cbc => cbc(way, parts, data),
        Aes::Ctr(bits) => ctr(bits, parts, data),
        Aes::Gcm(tag) => gcm(tag, way, parts, data),
        Aes::Kw => kw(way, parts.key, data),
    }
}

/// One of three, by the length of the key.
fn by_length(key: &[u8], ciphers: [Cipher; 3]) -> Result<Cipher> {
    let [of_128, of_192, of_256] = ciphers;
    match key.len() {
        16 => Ok(of_128),
        24 => Ok(of_192),
        32 => Ok(of_256),
        _ => Err("AES invalid key length".to_string()),
    }
}

fn cbc(way: Way, parts: Sealed<'_>, data: &[u8]) -> Result<Vec<u8>> {
    let ciphers = [
        Cipher::aes_128_cbc(),
        Cipher::aes_192_cbc(),
        Cipher::aes_256_cbc(),
    ];
    let cipher = by_length(parts.key, ciphers)?;
    if parts.iv.len() != BLOCK {
        return Err("AES-CBC algorithm.iv must be 16 bytes long".to_string());
    }
    let done = match way {
        Way::Encrypt => symm::encrypt(cipher, parts.key, Some(parts.iv), data),
        Way::Decrypt => symm::decrypt(cipher, parts.key, Some(parts.iv), data),
    };
    done.map_err(told)
}

fn ctr(bits: u32, parts: Sealed<'_>, data: &[u8]) -> Result<Vec<u8>> {
    let ciphers = [
        Cipher::aes_128_ctr(),
        Cipher::aes_192_ctr(),
        Cipher::aes_256_ctr(),
    ];
    let cipher = by_length(parts.key, ciphers)?;
    let Ok(first) = <[u8; BLOCK]>::try_from(parts.iv).map(u128::from_be_bytes) else {
        return Err("AES-CTR algorithm.counter must be 16 bytes long".to_string());
    };
    if !(1..=128).contains(&bits) {
        return Err("AES-CTR algorithm.length must be between 1 and 128".to_string());
    }
    let mask = u128::MAX >> (128 - bits);
    // Blocks until the counter is at its end; one less than there are, so that it fits.
    let left = mask - (first & mask);
    let blocks = data.len().div_ceil(BLOCK) as u128;
    if blocks != 0 && blocks - 1 > mask {
        return Err("AES-CTR repeated counter".to_string());
    }
    let run = |counter: u128, data: &[u8]| {
        let iv = counter.to_be_bytes();
        symm::encrypt(cipher, parts.key, Some(&iv), data).map_err(told)
    };
    if blocks == 0 || blocks - 1 <= left {
        return run(first, data);
    }
    // The counter begins anew, and leaves the bits before it alone. `left` is below `blocks`.
    let (head, rest) = data.split_at((left as usize + 1) * BLOCK);
    let mut out = run(first, head)?;
    out.extend(run(first & !mask, rest)?);
    Ok(out)
}

fn gcm(tag: usize, way: Way, parts: Sealed<'_>, data: &[u8]) -> Result<Vec<u8>> {
    let ciphers = [
        Cipher::aes_128_gcm(),
        Cipher::aes_192_gcm(),
        Cipher::aes_256_gcm(),
    ];
    let cipher = by_length(parts.key, ciphers)?;
    if !(4..=BLOCK).contains(&tag) {
        return Err("AES-GCM invalid tagLength".to_string());
    }
    if parts.iv.is_empty() {
        return Err("AES-GCM algorithm.iv is empty".to_string());
    }
    match way {
        Way::Encrypt => {
            let mut made = vec![0; tag];
            let sealed = symm::encrypt_aead(
                cipher,
                parts.key,
                Some(parts.iv),
                parts.aad,
                data,
                &mut made,
            );
            let mut out = sealed.map_err(told)?;
            out.extend(made);
            Ok(out)
        }
        Way::Decrypt => {
            let end = data.len().checked_sub(tag);
            let parted = end.and_then(|end| data.split_at_checked(end));
            let (data, tag) = parted.ok_or("AES-GCM data is too short")?;
            let opened =
                symm::decrypt_aead(cipher, parts.key, Some(parts.iv), parts.aad, data, tag);
            opened.map_err(|_| "the data is not what was sealed".to_string())
        }
    }
}

fn kw(way: Way, key: &[u8], data: &[u8]) -> Result<Vec<u8>> {
    if !data.len().is_multiple_of(8) {
        return Err("AES-KW data must be a multiple of 8 bytes".to_string());
    }
    let bad = "AES-KW Invalid key length".to_string();
    match way {
        Way::Encrypt if data.len() < 16 => Err("AES-KW data must be at least 16 bytes".to_string()),
        Way::Encrypt => {
            let key = AesKey::new_encrypt(key).map_err(|_| bad)?;
            let mut out = vec![0; data.len() + 8];
            let length = wrap_key(&key, None, &mut out, data);
            out.truncate(length.map_err(|_| "AES-KW failed".to_string())?);
            Ok(out)
        }
        Way::Decrypt if data.len() < 24 => Err("AES-KW data must be at least 24 bytes".to_string()),
        Way::Decrypt => {
            let key = AesKey::new_decrypt(key).map_err(|_| bad)?;
            let mut out = vec![0; data.len() - 8];
            let length = unwrap_key(&key, None, &mut out, data);
            out.truncate(length.map_err(|_| "the data is not what was wrapped".to_string())?);
            Ok(out)
        }
    }
}

/// Encrypts or decrypts by RSA-OAEP with a digest and a label.
pub(crate) fn oaep(
    way: Way,
    der: &[u8],
    (digest, label): (&str, &[u8]),
    data: &[u8],
) -> Result<Vec<u8>> {
    let digest = digest_of(digest)?;
    match way.mode() {
        Mode::Encrypt => {
            let key = public(der)?;
            let mut state = Encrypter::new(&key).map_err(told)?;
            state.set_rsa_padding(Padding::PKCS1_OAEP).map_err(told)?;
            state.set_rsa_oaep_md(digest).map_err(told)?;
            state.set_rsa_mgf1_md(digest).map_err(told)?;
            if !label.is_empty() {
                state.set_rsa_oaep_label(label).map_err(told)?;
            }
            let mut out = vec![0; state.encrypt_len(data).map_err(told)?];
            let length = state.encrypt(data, &mut out).map_err(told)?;
            out.truncate(length);
            Ok(out)
        }
        Mode::Decrypt => {
            let key = private(der)?;
            let mut state = Decrypter::new(&key).map_err(told)?;
            state.set_rsa_padding(Padding::PKCS1_OAEP).map_err(told)?;
            state.set_rsa_oaep_md(digest).map_err(told)?;
            state.set_rsa_mgf1_md(digest).map_err(told)?;
            if !label.is_empty() {
                state.set_rsa_oaep_label(label).map_err(told)?;
            }
            let mut out = vec![0; state.decrypt_len(data).map_err(told)?];
            let length = state.decrypt(data, &mut out).map_err(told)?;
            out.truncate(length);
            Ok(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits = text.as_bytes().chunks(2);
        digits
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn keys_are_wrapped_as_the_rfc_shows() {
        // RFC 3394 §4.1.
        let key = hex("000102030405060708090A0B0C0D0E0F");
        let data = hex("00112233445566778899AABBCCDDEEFF");
        let parts = Sealed {
            key: &key,
            iv: &[],
            aad: &[],
        };
        let wrapped = aes(Aes::Kw, Way::Encrypt, parts, &data).unwrap();
        let expected = hex("1FA68B0A8112B447AEF34BD8FB5A7B829D3E862371D2CFE5");
        assert_eq!(wrapped, expected);
        assert_eq!(aes(Aes::Kw, Way::Decrypt, parts, &wrapped).unwrap(), data);
        assert!(aes(Aes::Kw, Way::Decrypt, parts, &[0; 24]).is_err());
        assert!(aes(Aes::Kw, Way::Encrypt, parts, &[0; 8]).is_err());
    }

    #[test]
    fn a_counter_that_begins_anew_leaves_the_bits_before_it_alone() {
        let key = [7; 16];
        let zeros = [0; 48];
        let run = |bits, iv: [u8; 16], data: &[u8]| {
            let parts = Sealed {
                key: &key,
                iv: &iv,
                aad: &[],
            };
            aes(Aes::Ctr(bits), Way::Encrypt, parts, data)
        };
        let mut last = [1; 16];
        last[15] = 0xff;
        let mut first = [1; 16];
        first[15] = 0;
        // Eight bits: 255, then 0 and 1.
        let whole = run(8, last, &zeros).unwrap();
        assert_eq!(whole[..16], run(8, last, &zeros[..16]).unwrap());
        assert_eq!(whole[16..], run(8, first, &zeros[..32]).unwrap());
        // Nine bits go on to the byte before.
        assert_ne!(whole, run(9, last, &zeros).unwrap());
        assert!(run(1, last, &zeros).unwrap_err().contains("repeated"));
        assert_eq!(run(8, last, &[]).unwrap(), b"");
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let parts = Sealed {
            key: &[1; 32],
            iv: &[2; 12],
            aad: b"seen",
        };
        for tag in [4, 12, 16] {
            let mode = Aes::Gcm(tag);
            let mut sealed = aes(mode, Way::Encrypt, parts, b"text").unwrap();
            assert_eq!(sealed.len(), 4 + tag);
            assert_eq!(aes(mode, Way::Decrypt, parts, &sealed).unwrap(), b"text");
            sealed[0] ^= 1;
            assert!(aes(mode, Way::Decrypt, parts, &sealed).is_err());
        }
        for (mode, key, iv) in [
            (Aes::Gcm(16), &[1; 15][..], &[2; 12][..]),
            (Aes::Gcm(16), &[1; 16], &[]),
            (Aes::Gcm(17), &[1; 16], &[2; 12]),
            (Aes::Cbc, &[1; 16], &[2; 12]),
            (Aes::Ctr(0), &[1; 16], &[2; 16]),
            (Aes::Ctr(129), &[1; 16], &[2; 16]),
        ] {
            let parts = Sealed { key, iv, aad: &[] };
            assert!(aes(mode, Way::Encrypt, parts, b"text").is_err(), "{mode:?}");
            assert!(aes(mode, Way::Decrypt, parts, b"text").is_err(), "{mode:?}");
        }
    }
}
