//! The object that says what a copy is.
//!
//! Integers little-endian:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `mptier`, 0, version (1) |
//! | 8 | 1 | kind | 1: an entry, 2: a key whose entries are variants |
//! | 9 | 7 | reserved | 0 |
//! | 16 | 16 | log | log of the fleet, mixed with the zone's name |
//! | 32 | 8 | sequence | position in it up to which no purge was about the entry |
//! | 40 | 8 | at | time of that position, by the log's clock, milliseconds since 1970 |
//! | 48 | 8 | seed | of a key with variants: what their names are made with |
//! | 56 | 8 | total | bytes of the body |
//! | 64 | 16 | generation | version of the body |
//! | 80 | 4 | slices | how many checksums follow |
//! | 84 | 4 | length | of the stored head |
//! | 88 | 16 each | checksums | of the slices (XXH3) |
//! | then | | stored head | as the cache stores it (`millpond_cache::head`) |
//! | then | 16 | checksum | of all before it (XXH3) |
//!
//! It is valid if all of that fits together: lengths fill it, the number of slices is that of the
//! body, and the generation is that of validator and checksums. What is not valid was never there.
//! The head of a key with variants has the stored head of the entry that it was written with, whose
//! Vary counts, and no body.

use bytes::{BufMut, Bytes, BytesMut};
use millpond_cache::head::StoredHead;
use millpond_cache::purge::position::Position;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::place::{Generation, SLICE};

const MAGIC: [u8; 8] = *b"mptier\0\x01";
const FIXED: usize = 88;
const SUM: usize = 16;
/// The largest head: fields of answers have limits far below, and a body of this many slices has
/// 200 gigabytes.
pub const HEAD_MAX: u64 = 1 << 20;
/// The most slices of a body.
pub const SLICES_MAX: usize = 50_000;

/// Checksum of a slice.
pub type Sum = [u8; SUM];

/// The checksum of bytes.
pub fn sum(bytes: &[u8]) -> Sum {
    xxh3_128(bytes).to_le_bytes()
}

/// True for bytes that nobody has written so. Those of another version are not damaged.
pub fn is_damaged(bytes: &[u8]) -> bool {
    let (same, version) = MAGIC.split_at(MAGIC.len() - 1);
    let is_other = bytes.starts_with(same) && bytes.get(same.len()..MAGIC.len()) != Some(version);
    let is_whole = || {
        let (content, own) = bytes.split_last_chunk::<SUM>()?;
        (sum(content) == *own).then_some(())
    };
    !is_other && is_whole().is_none()
}

/// Number of slices of a body.
pub fn slice_count(total: u64) -> usize {
    usize::try_from(total.div_ceil(SLICE)).unwrap_or(usize::MAX)
}

/// Bytes of a slice of a body.
pub fn slice_len(total: u64, number: usize) -> u64 {
    let start = (number as u64).saturating_mul(SLICE);
    total.saturating_sub(start).min(SLICE)
}

/// Things that a name can stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An entry.
    Entry(Body),
    /// A key whose entries are variants, with their seed.
    Variants(u64),
}

/// The body of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Number of bytes.
    pub total: u64,
    /// Version.
    pub generation: Generation,
    /// Checksums of the slices.
    pub sums: Vec<Sum>,
}

impl Body {
    /// The body of an entry with this head and these checksums.
    pub fn of(head: &StoredHead, total: u64, sums: Vec<Sum>) -> Body {
        let mut name = Xxh3::new();
        for field in [&b"etag"[..], b"last-modified", b"content-encoding"] {
            let value = head.field(field).unwrap_or_default();
            name.update(&(value.len() as u64).to_le_bytes());
            name.update(&value);
        }
        name.update(&total.to_le_bytes());
        sums.iter().for_each(|sum| name.update(sum));
        Body {
            total,
            generation: name.digest128().to_le_bytes(),
            sums,
        }
    }
}

/// The head of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierHead {
    /// Position up to which no purge was about the entry.
    pub position: Position,
    /// The thing that the name stands for.
    pub kind: Kind,
    /// The head of the entry.
    pub stored: StoredHead,
}

impl TierHead {
    /// The bytes of the object.
    pub fn encode(&self) -> Bytes {
        let stored = self.stored.encode();
        let none = Body {
            total: 0,
            generation: [0; 16],
            sums: Vec::new(),
        };
        let (kind, seed, body) = match &self.kind {
            Kind::Entry(body) => (1, 0, body),
            Kind::Variants(seed) => (2, *seed, &none),
        };
        let mut out = BytesMut::with_capacity(FIXED + stored.len() + SUM);
        out.put_slice(&MAGIC);
        out.put_u8(kind);
        out.put_bytes(0, 7);
        out.put_slice(&self.position.log);
        out.put_u64_le(self.position.sequence);
        out.put_u64_le(self.position.at_ms);
        out.put_u64_le(seed);
        out.put_u64_le(body.total);
        out.put_slice(&body.generation);
        // Both are bounded: by `SLICES_MAX`, and by the limits of fields.
        out.put_u32_le(u32::try_from(body.sums.len()).unwrap_or(u32::MAX));
        out.put_u32_le(u32::try_from(stored.len()).unwrap_or(u32::MAX));
        body.sums.iter().for_each(|sum| out.put_slice(sum));
        out.put_slice(&stored);
        let own = sum(&out);
        out.put_slice(&own);
        out.freeze()
    }

    /// Reads an object; none if it is not valid.
    pub fn decode(bytes: &Bytes) -> Option<TierHead> {
        let (content, own) = bytes.split_last_chunk::<SUM>()?;
        if sum(content) != *own {
            return None;
        }
        let fixed: &[u8; FIXED] = content.first_chunk()?;
        if fixed[..8] != MAGIC || fixed[9..16] != [0; 7] {
            return None;
        }
        let (count, len) = (word32(fixed, 80) as usize, word32(fixed, 84) as usize);
        let sums_end = count.checked_mul(SUM)?.checked_add(FIXED)?;
        let end = sums_end.checked_add(len)?;
        if end != content.len() || count > SLICES_MAX {
            return None;
        }
        let stored = StoredHead::decode(&bytes.slice(sums_end..end))?;
        let (sums, rest) = content.get(FIXED..sums_end)?.as_chunks::<SUM>();
        let total = word(fixed, 56);
        let kind = match fixed[8] {
            1 if rest.is_empty() && slice_count(total) == count => {
                let body = Body::of(&stored, total, sums.to_vec());
                (body.generation == fixed[64..80]).then_some(Kind::Entry(body))?
            }
            2 if count == 0 && total == 0 => Kind::Variants(word(fixed, 48)),
            _ => return None,
        };
        let mut log = [0; 16];
        log.copy_from_slice(&fixed[16..32]);
        Some(TierHead {
            position: Position {
                log,
                sequence: word(fixed, 32),
                at_ms: word(fixed, 40),
            },
            kind,
            stored,
        })
    }
}

/// `at` is within the fixed part by the table above.
fn word(fixed: &[u8; FIXED], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&fixed[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn word32(fixed: &[u8; FIXED], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&fixed[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use millpond_cache::head::FieldsWriter;

    use super::*;

    fn stored(etag: &[u8]) -> StoredHead {
        let mut fields = FieldsWriter::default();
        fields.push(b"ETag", etag);
        let mut head = StoredHead::new(200, fields);
        head.key = Bytes::from_static(b"http://h/a");
        head.vary = Bytes::from_static(b"Accept");
        head.valid_until = 77;
        head
    }

    fn head(kind: Kind) -> TierHead {
        TierHead {
            position: Position {
                log: [9; 16],
                sequence: 5,
                at_ms: 6,
            },
            kind,
            stored: stored(b"\"1\""),
        }
    }

    fn heads() -> [TierHead; 3] {
        let body = |total, sums| head(Kind::Entry(Body::of(&stored(b"\"1\""), total, sums)));
        [
            head(Kind::Variants(u64::MAX - 1)),
            body(SLICE + 1, vec![sum(b"a"), sum(b"b")]),
            body(0, Vec::new()),
        ]
    }

    #[test]
    fn heads_read_back_as_they_were_written_and_cut_or_changed_they_do_not() {
        for head in heads() {
            let bytes = head.encode();
            assert_eq!(TierHead::decode(&bytes), Some(head));
            for at in 0..bytes.len() {
                assert_eq!(TierHead::decode(&bytes.slice(..at)), None, "{at}");
                let mut changed = bytes.to_vec();
                changed[at] ^= 1;
                assert_eq!(is_damaged(&changed), at != 7, "{at}");
                assert_eq!(TierHead::decode(&Bytes::from(changed)), None, "{at}");
            }
            assert!(!is_damaged(&bytes));
        }
    }

    /// Bytes with a right checksum that do not fit together are none either.
    #[test]
    fn heads_that_contradict_themselves_are_none() {
        for (at, byte) in [(7, 2), (8, 3), (9, 1), (56, 0), (64, 9), (80, 1), (84, 1)] {
            let bytes = heads()[1].encode();
            let mut changed = bytes.slice(..bytes.len() - SUM).to_vec();
            changed[at] = byte;
            let own = sum(&changed);
            changed.extend_from_slice(&own);
            assert_eq!(TierHead::decode(&Bytes::from(changed)), None, "{at}");
        }
    }

    #[test]
    fn bodies_that_differ_in_bytes_or_validator_have_generations_of_their_own() {
        let of = |etag: &[u8], total, byte: &[u8]| {
            Body::of(&stored(etag), total, vec![sum(byte)]).generation
        };
        let one = of(b"\"1\"", 1, b"a");
        assert_eq!(one, of(b"\"1\"", 1, b"a"));
        for other in [
            of(b"\"2\"", 1, b"a"),
            of(b"\"1\"", 2, b"a"),
            of(b"\"1\"", 1, b"b"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn slices_of_a_body_are_as_long_as_it_is() {
        for (total, lens) in [
            (0, vec![]),
            (1, vec![1]),
            (SLICE, vec![SLICE]),
            (SLICE + 1, vec![SLICE, 1]),
        ] {
            let found: Vec<u64> = (0..slice_count(total))
                .map(|it| slice_len(total, it))
                .collect();
            assert_eq!(found, lens);
        }
    }
}
