//! Content of a body: computed from path, generation and offset.
//!
//! ```text
//! word i of a body = mix(seed(path, generation) + i · STEP)          eight bytes, little-endian
//! ```
//!
//! The mixing can be undone, so eight bytes that are wrong can be asked where they come from: of
//! which generation, or at which other offset, they would be right. That names the fault: bytes of
//! another version, bytes that are shifted, bytes of another resource, or bytes of nowhere.
//!
//! 1. Any range of a body can be made without what stands before it.
//! 2. Bodies of two generations, or of two paths, agree in no word but by chance (2^-64).
//!
//! The mixing is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
//! Number Generators, 2014).

/// Difference of two neighbouring words before they are mixed: 2^64 over the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// The number that undoes a multiplication by [`STEP`] (modulo 2^64).
const STEP_BACK: u64 = inverse(STEP);
const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
const MIX_BACK: [u64; 2] = [inverse(MIX[0]), inverse(MIX[1])];
/// Bytes of a word.
const WORD: usize = 8;
/// Generations before and after the right one that wrong bytes are tried for (arbitrary).
const NEAR: u64 = 64;

/// One version of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
    path: u64,
    generation: u64,
    len: u64,
}

impl Content {
    /// The version `generation` of what stands at `path`, `len` bytes long.
    pub fn new(path: &str, generation: u64, len: u64) -> Self {
        let path = path.bytes().fold(STEP, |hash, byte| {
            mix(hash.wrapping_add(u64::from(byte)).wrapping_mul(STEP))
        });
        Self {
            seed: seed(path, generation),
            path,
            generation,
            len,
        }
    }

    /// Length of the body.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Generation of the body.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes the bytes from `offset` on; the length of the body does not matter.
    pub fn write(&self, offset: u64, out: &mut [u8]) {
        let mut word = offset / WORD as u64;
        let skip = (offset % WORD as u64) as usize;
        let (head, rest) = out.split_at_mut(if skip == 0 {
            0
        } else {
            (WORD - skip).min(out.len())
        });
        if !head.is_empty() {
            let bytes = self.word(word).to_le_bytes();
            head.copy_from_slice(&bytes[skip..skip + head.len()]);
            word += 1;
        }
        let mut words = rest.chunks_exact_mut(WORD);
        for out in &mut words {
            out.copy_from_slice(&self.word(word).to_le_bytes());
            word += 1;
        }
        let tail = words.into_remainder();
        let bytes = self.word(word).to_le_bytes();
        tail.copy_from_slice(&bytes[..tail.len()]);
    }

    /// Compares bytes that stand at `offset`; the first that is wrong is told.
    pub fn check(&self, offset: u64, got: &[u8]) -> Result<(), Wrong> {
        let mut right = [0; 4096];
        for (index, piece) in got.chunks(right.len()).enumerate() {
            let start = offset + (index * right.len()) as u64;
            let right = &mut right[..piece.len()];
            self.write(start, right);
            if right == piece {
                continue;
            }
            let differs = |(right, got): (&u8, &u8)| right != got;
            let first = right.iter().zip(piece).position(differs).unwrap_or(0);
            let rest = &got[index * 4096 + first..];
            let at = start + first as u64;
            return Err(Wrong {
                at,
                whence: self.whence(at, rest),
            });
        }
        Ok(())
    }

    /// Place at which the bytes found at `at` would be right.
    fn whence(&self, at: u64, got: &[u8]) -> Whence {
        if got.iter().take(64).all(|byte| *byte == 0) {
            return Whence::Zeros;
        }
        // The same word stands at any of eight distances from the first wrong byte.
        for skip in 0..WORD {
            let Some(bytes) = got.get(skip..skip + WORD) else {
                break;
            };
            let word = u64::from_le_bytes(std::array::from_fn(|index| bytes[index]));
            let here = at + skip as u64;
            if let Some(whence) = self.whence_word(here, word) {
                return whence;
            }
        }
        Whence::Nowhere
    }

    fn whence_word(&self, here: u64, word: u64) -> Option<Whence> {
        let unmixed = unmix(word);
        let first = self.generation.saturating_sub(NEAR);
        for generation in first..=self.generation.saturating_add(NEAR) {
            let distance = unmixed.wrapping_sub(seed(self.path, generation));
            let index = distance.wrapping_mul(STEP_BACK);
            let Some(offset) = index.checked_mul(WORD as u64) else {
                continue;
            };
            if offset < self.len.max(1 << 20) {
                return Some(match (generation == self.generation, offset == here) {
                    (false, true) => Whence::Generation(generation),
                    (false, false) => Whence::GenerationShifted(generation, offset),
                    (true, false) => Whence::Offset(offset, here),
                    // It is right again: what was wrong is shorter than a word.
                    (true, true) => Whence::Nowhere,
                });
            }
        }
        None
    }

    fn word(&self, index: u64) -> u64 {
        mix(self.seed.wrapping_add(index.wrapping_mul(STEP)))
    }
}

/// Bytes that are not what they must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("wrong byte at {at}: {whence}")]
pub struct Wrong {
    /// Offset in the body of the first one.
    pub at: u64,
    /// Origin of the wrong bytes.
    pub whence: Whence,
}

/// Origin of wrong bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The bytes are right in another version, at the same place.
    Generation(u64),
    /// The bytes stand elsewhere in another version: version and offset.
    GenerationShifted(u64, u64),
    /// The bytes stand elsewhere in this version: where, and where they were found.
    Offset(u64, u64),
    /// Nothing but zeros: bytes that were never written.
    Zeros,
    /// The bytes are in no version of this path near the right place.
    Nowhere,
}

impl Whence {
    /// The kind, as a word for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Generation(_) | Self::GenerationShifted(..) => "mixed",
            Self::Offset(..) => "shifted",
            Self::Zeros => "zeros",
            Self::Nowhere => "wrong",
        }
    }
}

impl std::fmt::Display for Whence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Generation(generation) => write!(f, "it belongs to generation {generation}"),
            Self::GenerationShifted(generation, offset) => {
                write!(f, "it belongs to generation {generation}, offset {offset}")
            }
            Self::Offset(offset, here) => {
                write!(f, "what stands at {here} belongs to offset {offset}")
            }
            Self::Zeros => write!(f, "nothing but zeros from there on"),
            Self::Nowhere => write!(f, "it belongs to no version of this resource"),
        }
    }
}

fn seed(path: u64, generation: u64) -> u64 {
    mix(path ^ mix(generation.wrapping_add(STEP)))
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(MIX[0]);
    let word = (word ^ (word >> 27)).wrapping_mul(MIX[1]);
    word ^ (word >> 31)
}

/// Value that was mixed into `word`.
fn unmix(word: u64) -> u64 {
    let word = (word ^ (word >> 31) ^ (word >> 62)).wrapping_mul(MIX_BACK[1]);
    let word = (word ^ (word >> 27) ^ (word >> 54)).wrapping_mul(MIX_BACK[0]);
    word ^ (word >> 30) ^ (word >> 60)
}

/// The number whose product with an odd one is 1 modulo 2^64, by Newton's iteration: each round
/// doubles the bits that are right, of which an odd number has three to begin with.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut round = 0;
    while round < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(content: &Content) -> Vec<u8> {
        let mut body = vec![0; content.len() as usize];
        content.write(0, &mut body);
        body
    }

    #[test]
    fn every_range_is_a_piece_of_the_whole() {
        let content = Content::new("/a", 3, 100);
        let whole = body(&content);
        for start in 0..100 {
            for end in start..100 {
                let mut piece = vec![0; end - start];
                content.write(start as u64, &mut piece);
                assert_eq!(piece, whole[start..end], "{start} to {end}");
                assert_eq!(content.check(start as u64, &piece), Ok(()));
            }
        }
    }

    #[test]
    fn mixing_can_be_undone() {
        for word in [0, 1, u64::MAX, STEP, 0x0123_4567_89ab_cdef] {
            assert_eq!(unmix(mix(word)), word);
        }
    }

    #[test]
    fn a_fault_is_named_by_where_its_bytes_come_from() {
        let content = Content::new("/a", 3, 100_000);
        let right = body(&content);
        let newer = body(&Content::new("/a", 4, 100_000));
        let other = body(&Content::new("/b", 3, 100_000));
        let spliced = |from: usize, bytes: &[u8]| {
            let mut spliced = right.clone();
            spliced.splice(from..from + bytes.len(), bytes.iter().copied());
            spliced
        };
        let mut flipped = right.clone();
        flipped[77_777] ^= 1;
        let mut lost = right.clone();
        lost.remove(5000);
        for (name, got, at, kind) in [
            (
                "newer from the middle",
                spliced(50_001, &newer[50_001..]),
                50_001,
                "mixed",
            ),
            (
                "another resource",
                spliced(8192, &other[8192..9000]),
                8192,
                "wrong",
            ),
            ("one bit", flipped, 77_777, "wrong"),
            ("one byte lost", lost, 5000, "shifted"),
            (
                "a block twice",
                spliced(4096, &right[..4096]),
                4096,
                "shifted",
            ),
            ("a hole", spliced(4096, &[0; 4096]), 4096, "zeros"),
        ] {
            let wrong = content.check(0, &got).expect_err(name);
            // The first bytes of a splice are the right ones by chance, one time in 256.
            assert!(wrong.at >= at && wrong.at < at + 3, "{name}: {wrong}");
            assert_eq!(wrong.whence.kind(), kind, "{name}: {wrong}");
        }
        let shifted = content.check(0, &right[3..]).expect_err("shifted");
        assert_eq!(
            shifted.to_string(),
            "wrong byte at 0: what stands at 5 belongs to offset 8"
        );
    }
}
