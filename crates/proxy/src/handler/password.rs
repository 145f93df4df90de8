//! Passwords as files of users keep them.
//!
//! | begin | how |
//! |---|---|
//! | `{PLAIN}` | as it is |
//! | `{SHA}` | Base64 of SHA-1 |
//! | `{SSHA}` | Base64 of SHA-1 of password and salt, followed by the salt |
//! | `$apr1$salt$` | Apache's MD5: a thousand rounds |
//! | `$1$salt$` | the MD5 of `crypt`, from which that one was made |
//! | `$2a$`, `$2b$`, `$2x$`, `$2y$` | bcrypt |
//! | `$5$`, `$6$` | SHA-256 and SHA-512 of `crypt` |
//! | `$y$` | yescrypt, what `mkpasswd` makes |
//! | anything else | DES of `crypt` |
//!
//! Invariants:
//! 1. A hash that cannot be read fits no password.
//! 2. Hashes are compared in a time that does not depend on where they differ.

mod des;

use md5::Md5;
use sha_crypt::{PasswordVerifier, ShaCrypt};
use sha1::{Digest, Sha1};
use yescrypt::Yescrypt;

use millpond_wire::base64;

/// Digits of the encoding that `crypt` uses.
const CRYPT_DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The begins of the hashes of the MD5 crypt, its own and Apache's.
const MD5_MAGICS: [&[u8]; 2] = [b"$1$", b"$apr1$"];

/// The longest salt of the MD5 crypt that counts.
const MAX_MD5_SALT: usize = 8;

/// Digits of the 32 bytes behind the last `$` of a yescrypt hash.
const YESCRYPT_DIGITS: usize = 43;

/// Bytes of a SHA-1 digest.
const SHA1_LEN: usize = 20;

/// True if the password is the one of the hash.
pub(crate) fn is_right(password: &[u8], hash: &[u8]) -> bool {
    if let Some(plain) = hash.strip_prefix(b"{PLAIN}") {
        return is_equal(plain, password);
    }
    if let Some(encoded) = hash.strip_prefix(b"{SHA}") {
        return is_sha(password, encoded, 0..=0);
    }
    if let Some(encoded) = hash.strip_prefix(b"{SSHA}") {
        return is_sha(password, encoded, 0..=usize::MAX);
    }
    for magic in MD5_MAGICS {
        if let Some(rest) = hash.strip_prefix(magic) {
            return is_md5(password, magic, rest);
        }
    }
    match str::from_utf8(hash) {
        Ok(hash) => is_crypt(password, hash),
        Err(_) => false,
    }
}

/// True if the password is the one of a hash of `crypt` that is not one of MD5.
fn is_crypt(password: &[u8], hash: &str) -> bool {
    match hash.split('$').nth(1) {
        Some("2a" | "2b" | "2x" | "2y") => bcrypt::verify(password, hash).unwrap_or(false),
        Some("5" | "6") => ShaCrypt::default().verify_password(password, hash).is_ok(),
        Some("y") => {
            let digits = hash.rsplit('$').next().map_or(0, str::len);
            // One that is cut would fit more than its password.
            digits == YESCRYPT_DIGITS && Yescrypt::default().verify_password(password, hash).is_ok()
        }
        Some(_) => false,
        None => {
            let own = des::crypt(password, hash.as_bytes());
            own.is_some_and(|own| is_equal(&own, hash.as_bytes()))
        }
    }
}

/// True if the password is the one of a hash of the MD5 crypt, without its begin.
fn is_md5(password: &[u8], magic: &[u8], rest: &[u8]) -> bool {
    let mut parts = rest.splitn(2, |byte| *byte == b'$');
    let (Some(salt), Some(digest)) = (parts.next(), parts.next()) else {
        return false;
    };
    let salt = salt.get(..MAX_MD5_SALT).unwrap_or(salt);
    is_equal(&md5_crypt(password, magic, salt), digest)
}

fn is_sha(password: &[u8], encoded: &[u8], salt_len: std::ops::RangeInclusive<usize>) -> bool {
    let Some(decoded) = base64::decode(encoded) else {
        return false;
    };
    let Some((digest, salt)) = decoded.split_at_checked(SHA1_LEN) else {
        return false;
    };
    let own = Sha1::new()
        .chain_update(password)
        .chain_update(salt)
        .finalize();
    salt_len.contains(&salt.len()) && is_equal(&own, digest)
}

/// The MD5 crypt of Poul-Henning Kamp, or Apache's variant of it, without the begin.
fn md5_crypt(password: &[u8], magic: &[u8], salt: &[u8]) -> Vec<u8> {
    let inner = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut first = Md5::new()
        .chain_update(password)
        .chain_update(magic)
        .chain_update(salt);
    let mut left = password.len();
    while left > 0 {
        let len = left.min(inner.len());
        first.update(inner.get(..len).unwrap_or_default());
        left -= len;
    }
    // One byte for each bit of the length: zero for a one, else the password's first.
    let mut bits = password.len();
    while bits > 0 {
        match bits & 1 {
            1 => first.update([0]),
            _ => first.update(password.get(..1).unwrap_or_default()),
        }
        bits >>= 1;
    }
    let mut digest = first.finalize();
    for round in 0..1000 {
        digest = md5_round(round, &digest, password, salt);
    }
    encode(&digest)
}

fn md5_round(round: u32, digest: &[u8], password: &[u8], salt: &[u8]) -> sha1::digest::Output<Md5> {
    let is_odd = round % 2 == 1;
    let mut next = Md5::new();
    next.update(if is_odd { password } else { digest });
    if !round.is_multiple_of(3) {
        next.update(salt);
    }
    if !round.is_multiple_of(7) {
        next.update(password);
    }
    next.update(if is_odd { digest } else { password });
    next.finalize()
}

/// The digest with its bytes in the order of the MD5 crypt, six bits for a digit, the lowest first.
fn encode(digest: &[u8]) -> Vec<u8> {
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let byte = |index: usize| u32::from(digest.get(index).copied().unwrap_or(0));
    let mut text = Vec::with_capacity(22);
    for [high, middle, low] in ORDER {
        push_digits(
            &mut text,
            byte(high) << 16 | byte(middle) << 8 | byte(low),
            4,
        );
    }
    push_digits(&mut text, byte(11), 2);
    text
}

fn push_digits(text: &mut Vec<u8>, mut bits: u32, count: usize) {
    for _ in 0..count {
        // In bounds: six bits.
        text.push(CRYPT_DIGITS[(bits & 0x3f) as usize]);
        bits >>= 6;
    }
}

/// INVARIANT 2.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::is_right;

    #[test]
    fn each_kind_of_hash_fits_its_password_only() {
        for hash in [
            "{PLAIN}password",
            "$2y$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu",
            "$2a$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu",
            "$5$salt$Gcm6FsVtF/Qa77ZKD.iwsJlCVPY0XSMgLJL0Hnww/c1",
            "$6$rounds=1500$saltsalt$RKGIwKB7JeE6Onh.uQzWtvoUi4OYCEbkh0dvb8uJwlKvreHSTv12LoteJIaOqUzvf\
             ta0Ini2E7KI5RBAKMMsE0",
            "$y$j9T$abcd$3TxK0kx/JYCEwv0PvcSzJrF40nSxBRGFKIuxe.YiwgD",
            "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
            "{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0",
            "$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.",
            "$1$salt$qJH7.N4xYta3aEG/dfqo/0",
            "sa3tHJ3/KuYvI",
        ] {
            assert!(is_right(b"password", hash.as_bytes()), "{hash}");
            assert!(!is_right(b"123", hash.as_bytes()), "{hash}");
            assert!(!is_right(b"", hash.as_bytes()), "{hash}");
        }
    }

    #[test]
    fn broken_hashes_fit_nothing() {
        for hash in [
            "",
            "$1$",
            "$apr1$",
            "$apr1$salt",
            "{SHA}_____Mm5Pz8GgiULbPgzG37mj9g=",
            "{SHA}Zm9vCg==",
            "{SSHA}Zm9vCg==",
            "{SSHA}_____wQadOA1e+/f+T+H3eCQQhRzYWx0",
            "$2y$",
            "$2y$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2aw",
            "$5$",
            "$5$salt$",
            "$6$",
            "$6$rounds=0$salt$",
            "$6$rounds=99999999999$salt$RKGI",
            "$y$",
            "$y$j9T$abcd$",
            "$y$j9T$abcd$3T",
            "$7$",
            "sa",
            "sa3tHJ3/KuYv",
            "sa3tHJ3/KuYvII",
            "*",
            "!",
        ] {
            for password in ["", "1", "password"] {
                assert!(!is_right(password.as_bytes(), hash.as_bytes()), "{hash}");
            }
        }
    }
}
