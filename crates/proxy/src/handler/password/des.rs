//! The oldest of the hashes of `crypt`: a block of zeros, encrypted 25 times with DES under the
//! password, where twelve bits of salt say which outputs of the expansion change places.
//!
//! Nobody should make such hashes any more (eight bytes of the password count, with seven bits
//! each), but files of users have them. No library that is kept up offers them, since the salt
//! changes the cipher.
//!
//! Source: FIPS 46-3 for the tables, counted from zero here, and crypt(3).

use super::CRYPT_DIGITS;

/// Blocks are encrypted so often.
const TIMES: usize = 25;
/// Bytes of a hash: the salt's two and eleven for 64 bits.
pub(super) const LEN: usize = 13;
const SALT: usize = 2;

/// A bit in each byte.
type Bits<const N: usize> = [u8; N];

const IP: [u8; 64] = [
    57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61, 53, 45, 37, 29, 21, 13, 5, 63,
    55, 47, 39, 31, 23, 15, 7, 56, 48, 40, 32, 24, 16, 8, 0, 58, 50, 42, 34, 26, 18, 10, 2, 60, 52,
    44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6,
];
const FP: [u8; 64] = [
    39, 7, 47, 15, 55, 23, 63, 31, 38, 6, 46, 14, 54, 22, 62, 30, 37, 5, 45, 13, 53, 21, 61, 29,
    36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27, 34, 2, 42, 10, 50, 18, 58, 26,
    33, 1, 41, 9, 49, 17, 57, 25, 32, 0, 40, 8, 48, 16, 56, 24,
];
const E: [u8; 48] = [
    31, 0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10, 11, 12, 11, 12, 13, 14, 15, 16, 15, 16, 17,
    18, 19, 20, 19, 20, 21, 22, 23, 24, 23, 24, 25, 26, 27, 28, 27, 28, 29, 30, 31, 0,
];
const P: [u8; 32] = [
    15, 6, 19, 20, 28, 11, 27, 16, 0, 14, 22, 25, 4, 17, 30, 9, 1, 7, 23, 13, 31, 26, 2, 8, 18, 12,
    29, 5, 21, 10, 3, 24,
];
const PC1: [u8; 56] = [
    56, 48, 40, 32, 24, 16, 8, 0, 57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59,
    51, 43, 35, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 60, 52, 44, 36, 28,
    20, 12, 4, 27, 19, 11, 3,
];
const PC2: [u8; 48] = [
    13, 16, 10, 23, 0, 4, 2, 27, 14, 5, 20, 9, 22, 18, 11, 3, 25, 7, 15, 6, 26, 19, 12, 1, 40, 51,
    30, 36, 46, 54, 29, 39, 50, 44, 32, 47, 43, 48, 38, 55, 33, 52, 45, 41, 49, 35, 28, 31,
];
const SHIFTS: [usize; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];
const S: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12,
        11, 9, 5, 3, 8, 4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9,
        1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1,
        10, 6, 9, 11, 5, 0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15,
        4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5,
        14, 12, 11, 15, 1, 13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6,
        9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2,
        12, 1, 10, 14, 9, 10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1,
        13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15,
        10, 3, 9, 8, 6, 4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14,
        2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13,
        14, 0, 11, 3, 8, 9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5,
        15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5,
        12, 2, 15, 8, 6, 1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4,
        10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6,
        11, 0, 14, 9, 2, 7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10,
        8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];

/// The hash of a password with the salt that begins `hash`; none if that is no salt.
pub(super) fn crypt(password: &[u8], hash: &[u8]) -> Option<[u8; LEN]> {
    let salt: [u8; SALT] = *hash.first_chunk()?;
    let expansion = salted(salt)?;
    let keys = keys(password);
    let mut block = [0; 64];
    for _ in 0..TIMES {
        block = encrypt(&block, &keys, &expansion);
    }
    let mut text = [0; LEN];
    let (begin, digits) = text.split_at_mut(SALT);
    begin.copy_from_slice(&salt);
    for (digit, six) in digits.iter_mut().zip(block.chunks(6)) {
        // The last has four bits, and zeros behind them.
        let value = six
            .iter()
            .fold(0_usize, |value, bit| value << 1 | usize::from(*bit));
        let value = value << (6 - six.len());
        // In bounds: six bits.
        *digit = CRYPT_DIGITS[value & 0x3f];
    }
    Some(text)
}

/// The expansion with those outputs exchanged that the bits of the salt say.
fn salted(salt: [u8; SALT]) -> Option<[u8; 48]> {
    let mut expansion = E;
    for (number, digit) in salt.into_iter().enumerate() {
        let bits = CRYPT_DIGITS.iter().position(|it| *it == digit)?;
        for bit in (0..6).filter(|bit| bits >> bit & 1 == 1) {
            expansion.swap(6 * number + bit, 6 * number + bit + 24);
        }
    }
    Some(expansion)
}

/// The bits of a source that a table names.
fn pick<const N: usize>(from: &[u8], table: &[u8; N]) -> Bits<N> {
    // In bounds: each table is used with as many bits as it has positions for.
    table.map(|position| from[usize::from(position)])
}

/// The keys of all rounds.
fn keys(password: &[u8]) -> [Bits<48>; 16] {
    let mut key = [0; 64];
    for (bits, byte) in key.chunks_mut(8).zip(password) {
        for (at, bit) in bits.iter_mut().take(7).enumerate() {
            *bit = byte >> (6 - at) & 1;
        }
    }
    let mut halves = pick(&key, &PC1);
    SHIFTS.map(|shift| {
        let (left, right) = halves.split_at_mut(28);
        left.rotate_left(shift);
        right.rotate_left(shift);
        pick(&halves, &PC2)
    })
}

fn encrypt(block: &Bits<64>, keys: &[Bits<48>; 16], expansion: &[u8; 48]) -> Bits<64> {
    let mixed = pick(block, &IP);
    let (left, right) = mixed.split_at(32);
    let (mut left, mut right) = (left.to_vec(), right.to_vec());
    for key in keys {
        let f = substituted(&right, key, expansion);
        let next = left.iter().zip(f).map(|(bit, f)| bit ^ f).collect();
        left = std::mem::replace(&mut right, next);
    }
    pick(&[right, left].concat(), &FP)
}

/// The bits that a round adds to a half.
fn substituted(half: &[u8], key: &Bits<48>, expansion: &[u8; 48]) -> Bits<32> {
    let expanded = pick(half, expansion);
    let mut out = [0; 32];
    let sixes = expanded.chunks(6).zip(key.chunks(6));
    for ((four, (bits, key)), table) in out.chunks_mut(4).zip(sixes).zip(&S) {
        let at = |bit: usize| usize::from(bits[bit] ^ key[bit]);
        let row = at(0) << 1 | at(5);
        let column = at(1) << 3 | at(2) << 2 | at(3) << 1 | at(4);
        // In bounds: six bits.
        let value = table[row << 4 | column];
        for (place, bit) in four.iter_mut().enumerate() {
            *bit = value >> (3 - place) & 1;
        }
    }
    pick(&out, &P)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From crypt(3) of libxcrypt 4.4.
    #[test]
    fn hashes_are_those_of_crypt() {
        for (password, expected) in [
            (b"password".as_slice(), "FfMaQxphlRE7g"),
            (b"".as_slice(), "E6npaD93TqV0."),
            (b"a".as_slice(), "THJ3gaNRHFYXE"),
            (b"12345678".as_slice(), "8ii9NeW18drLQ"),
            (b"123456789".as_slice(), ".3LPW7BzD9.KQ"),
            (b"sch\xc3\xb6n".as_slice(), "mtAnNzZbFAl3c"),
            (b"~~~~~~~~".as_slice(), "WstHET9ksJ7BA"),
            (b"Tr0ub4dor".as_slice(), "GO40eQ4qQaVNk"),
            (b"\x7f\x01".as_slice(), "/1kg3ODvVR9a6"),
            (b"the eighth counts".as_slice(), "KTYcyTX7EIvYE"),
        ] {
            let own = crypt(password, expected.as_bytes()).expect("a salt");
            assert_eq!(own, expected.as_bytes(), "{password:?}");
        }
    }

    #[test]
    fn what_is_no_salt_gives_no_hash() {
        for hash in ["", "a", "!a", "a:", "*0", "\u{e4}"] {
            assert!(crypt(b"password", hash.as_bytes()).is_none(), "{hash}");
        }
    }
}
