//! The stored head: what the cache keeps of an answer besides its body.
//!
//! Layout, version 4; integers little-endian:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | 4 |
//! | 1 | 1 | bounds | 1: must be validated; 2: never served stale; 4: `stale_error` is the origin's word |
//! | | | | 8: the body is in slices |
//! | 2 | 2 | status | status code |
//! | 4 | 8 | stored_at | seconds since the epoch |
//! | 12 | 8 | valid_until | seconds; fresh while now is not later |
//! | 20 | 4 | stale_updating | seconds after `valid_until` (stale-while-revalidate) |
//! | 24 | 4 | stale_error | seconds after `valid_until` (stale-if-error) |
//! | 28 | 8 | last_modified | seconds; `i64::MIN` when there is none |
//! | 36 | 4 | variant_len | |
//! | 40 | 4 | key_len | |
//! | 44 | 4 | vary_len | |
//! | 48 | 2 | field_count | |
//! | 50 | 4 | initial_age | seconds that it was old at `stored_at` |
//! | 54 | 8 | seed | what the keys of its variants are made with; zero without Vary |
//! | 62 | 8 | serial | of the newest purge when its fill began |
//! | 70 | 4 | tags_len | |
//! | 74 | 16 | generation | of the slices; zero without slices |
//! | 90 | 8 | total | length of the whole body in slices; zero without slices |
//! | 98 | 8 | slice_size | bytes of a slice but the last; zero without slices |
//! | 106 | key_len | key | the cache key's text, against collisions and for people |
//! | … | vary_len | vary | names of the fields that select the variant |
//! | … | variant_len | variant | what the request said in those fields, whole; see `variant` |
//! | … | tags_len | tags | what it can be purged by, separated by spaces |
//! | … | | fields | for each: name length (2), value length (4), name, value |
//!
//! The first field may be `:status`, which is none of the answer's: its value is status and reason
//! as the origin wrote them, where they are not those that go out for the status anyway. No field
//! of an answer can have that name; that of a stored encoding has `:encoding-of` (`encoded.rs`).
//!
//! It is valid if and only if the version is 4, no other bound is set, what says of slices is zero
//! without them and their size is not zero with them, and all lengths end exactly at the end. An
//! invalid head is a miss. Written by [`StoredHead::encode`] when a fill begins and when an entry
//! is freshened; read at each look-up.

pub(crate) mod set;

use bytes::{BufMut, Bytes};
use millpond_store::{Class, Role};

use crate::tag;

const VERSION: u8 = 4;
const FIXED: usize = 106;
const IN_SLICES: u8 = 8;
/// The name of the pseudo field of status and reason.
const STATUS_TEXT: &[u8] = b":status";
/// The name of the pseudo field of a stored encoding.
const ENCODING_OF: &[u8] = b":encoding-of";

/// Seconds that two readings of one clock may differ by: each worker goes on from its last one for
/// a moment.
const CLOCKS_DIFFER: i64 = 2;

/// A stored answer's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHead {
    /// Status code.
    pub status: u16,
    /// Time when the answer was stored or last found unchanged, seconds since the epoch.
    pub stored_at: i64,
    /// Last second in which the answer is fresh, since the epoch.
    pub valid_until: i64,
    /// Number of seconds after that in which the answer may be served while it is updated.
    pub stale_updating: u32,
    /// Number of seconds after that in which the answer may be served when the origin fails.
    pub stale_error: u32,
    /// Age of the answer when it was stored, seconds.
    pub initial_age: u32,
    /// Restrictions on the use of the answer.
    pub bounds: Bounds,
    /// Last-Modified of the answer.
    pub last_modified: Option<i64>,
    /// Identity of the variant, by the values of the fields in the answer's Vary; empty without
    /// one.
    pub variant: Bytes,
    /// The cache key.
    pub key: Bytes,
    /// Names in the answer's Vary; empty without one.
    pub vary: Bytes,
    /// Tags that the entry can be purged by, separated by spaces.
    pub tags: Bytes,
    /// Seed that the keys of the variants are made with; zero without Vary.
    pub seed: u64,
    /// The serial of the newest purge when its fill began.
    pub serial: u64,
    /// Slices of the body, if it is not with the head.
    pub sliced: Option<SliceSet>,
    /// Number of fields.
    field_count: u16,
    /// The encoded fields.
    fields: Bytes,
}

/// A body that is kept in slices, each a record of its own in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSet {
    /// The name of this version of the body; no other has had it.
    pub generation: [u8; 16],
    /// Length of the whole body, in bytes.
    pub total: u64,
    /// Bytes of a slice; the last may have fewer. At least one.
    pub size: u64,
}

/// Uses of a stored answer that the origin forbids; nothing under nginx's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The answer is never served without validation.
    pub must_validate: bool,
    /// The answer is never served stale.
    pub never_stale: bool,
    /// The origin itself said for how long it may be served when it fails.
    pub states_on_error: bool,
}

impl Bounds {
    fn bits(self) -> u8 {
        u8::from(self.must_validate)
            | u8::from(self.never_stale) << 1
            | u8::from(self.states_on_error) << 2
    }

    fn from_bits(bits: u8) -> Option<Bounds> {
        (bits < 8).then_some(Bounds {
            must_validate: bits & 1 != 0,
            never_stale: bits & 2 != 0,
            states_on_error: bits & 4 != 0,
        })
    }
}

/// The fields of a head while it is made.
#[derive(Debug, Default)]
pub struct FieldsWriter {
    count: u16,
    buf: Vec<u8>,
}

/// Bytes that the fields of most answers take (arbitrary).
const USUAL_FIELDS: usize = 1024;

impl FieldsWriter {
    /// The fields of an answer whose status and reason are written in a way of their own.
    pub fn with_status_text(text: Option<&[u8]>) -> Self {
        let mut fields = FieldsWriter {
            count: 0,
            buf: Vec::with_capacity(USUAL_FIELDS),
        };
        if let Some(text) = text {
            fields.push(STATUS_TEXT, text);
        }
        fields
    }

    /// The fields of a stored encoding, whose origin has this mark.
    pub(crate) fn of_encoding(mark: &[u8]) -> Self {
        let mut fields = FieldsWriter::default();
        fields.push(ENCODING_OF, mark);
        fields
    }

    /// Adds a field. What passes the format's lengths (64 KiB names, 4 GiB values, 65,535 fields)
    /// is left out: no parser of ours lets such a field in.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u32::try_from(value.len()))
        else {
            return;
        };
        let Some(count) = self.count.checked_add(1) else {
            return;
        };
        self.count = count;
        self.buf.put_u16_le(name_len);
        self.buf.put_u32_le(value_len);
        self.buf.put_slice(name);
        self.buf.put_slice(value);
    }
}

impl StoredHead {
    /// A head with these fields; the caller fills in the rest.
    pub fn new(status: u16, fields: FieldsWriter) -> Self {
        StoredHead {
            status,
            stored_at: 0,
            valid_until: 0,
            stale_updating: 0,
            stale_error: 0,
            initial_age: 0,
            bounds: Bounds::default(),
            last_modified: None,
            variant: Bytes::new(),
            key: Bytes::new(),
            vary: Bytes::new(),
            tags: Bytes::new(),
            seed: 0,
            serial: 0,
            sliced: None,
            field_count: fields.count,
            fields: Bytes::from(fields.buf),
        }
    }

    /// Head like this one with other fields.
    pub fn with_fields(&self, fields: FieldsWriter) -> Self {
        StoredHead {
            field_count: fields.count,
            fields: Bytes::from(fields.buf),
            ..self.clone()
        }
    }

    /// Age of the answer at `now`, seconds (RFC 9111 §4.2.3).
    pub fn age(&self, now: i64) -> u64 {
        let kept = u64::try_from(now.saturating_sub(self.stored_at)).unwrap_or(0);
        u64::from(self.initial_age).saturating_add(kept)
    }

    /// The last second in which the answer is fresh, as far as that is known at `now`: an answer
    /// that was stored in the future, by a clock that was set back since, has an age that nobody
    /// knows, and is stale.
    pub fn fresh_until(&self, now: i64) -> i64 {
        if self.stored_at > now.saturating_add(CLOCKS_DIFFER) {
            return i64::MIN;
        }
        self.valid_until
    }

    /// The name of the site that it belongs to; empty if it has none.
    pub fn site(&self) -> Bytes {
        let name = tag::site(&self.tags);
        name.map(|name| self.tags.slice_ref(name))
            .unwrap_or_default()
    }

    /// The bytes to store.
    pub fn encode(&self) -> Bytes {
        let named = self.key.len() + self.vary.len() + self.variant.len() + self.tags.len();
        let len = FIXED + named + self.fields.len();
        let slices = self.sliced.unwrap_or(SliceSet {
            generation: [0; 16],
            total: 0,
            size: 0,
        });
        let mut out = Vec::with_capacity(len);
        out.put_u8(VERSION);
        out.put_u8(self.bounds.bits() | if self.sliced.is_some() { IN_SLICES } else { 0 });
        out.put_u16_le(self.status);
        out.put_i64_le(self.stored_at);
        out.put_i64_le(self.valid_until);
        out.put_u32_le(self.stale_updating);
        out.put_u32_le(self.stale_error);
        out.put_i64_le(self.last_modified.unwrap_or(i64::MIN));
        out.put_u32_le(self.variant.len() as u32);
        out.put_u32_le(self.key.len() as u32);
        out.put_u32_le(self.vary.len() as u32);
        out.put_u16_le(self.field_count);
        out.put_u32_le(self.initial_age);
        out.put_u64_le(self.seed);
        out.put_u64_le(self.serial);
        out.put_u32_le(self.tags.len() as u32);
        out.put_slice(&slices.generation);
        out.put_u64_le(slices.total);
        out.put_u64_le(slices.size);
        out.put_slice(&self.key);
        out.put_slice(&self.vary);
        out.put_slice(&self.variant);
        out.put_slice(&self.tags);
        out.put_slice(&self.fields);
        Bytes::from(out)
    }

    /// Reads stored bytes; `None` when they are not a head of this version.
    pub fn decode(bytes: &Bytes) -> Option<StoredHead> {
        let (fixed, [key_end, vary_end, variant_end, tags_end]) = ends(bytes)?;
        let head = StoredHead {
            status: u16::from_le_bytes([fixed[2], fixed[3]]),
            stored_at: le_i64(fixed, 4),
            valid_until: le_i64(fixed, 12),
            stale_updating: le_u32(fixed, 20),
            stale_error: le_u32(fixed, 24),
            initial_age: le_u32(fixed, 50),
            bounds: Bounds::from_bits(fixed[1] & !IN_SLICES)?,
            last_modified: Some(le_i64(fixed, 28)).filter(|time| *time != i64::MIN),
            variant: bytes.slice(vary_end..variant_end),
            key: bytes.slice(FIXED..key_end),
            vary: bytes.slice(key_end..vary_end),
            tags: bytes.slice(variant_end..tags_end),
            seed: le_u64(fixed, 54),
            serial: le_u64(fixed, 62),
            sliced: slices(fixed)?,
            field_count: u16::from_le_bytes([fixed[48], fixed[49]]),
            fields: bytes.slice(tags_end..),
        };
        head.is_well_formed().then_some(head)
    }

    /// The fields, names and values, in the order of the answer.
    pub fn fields(&self) -> StoredFields<'_> {
        let mut fields = self.all_fields();
        if self.pseudo_field().is_some() {
            fields.next();
        }
        fields
    }

    /// Status and reason as the origin wrote them, if they are not the usual ones.
    pub fn status_text(&self) -> Option<Bytes> {
        let (name, text) = self.pseudo_field()?;
        (name == STATUS_TEXT).then(|| self.share(text))
    }

    /// Mark of what it is an encoding of, if it is the head of one.
    pub(crate) fn encoding_of(&self) -> Option<&[u8]> {
        let (name, mark) = self.pseudo_field()?;
        (name == ENCODING_OF).then_some(mark)
    }

    fn pseudo_field(&self) -> Option<(&[u8], &[u8])> {
        let first = self.all_fields().next()?;
        first.0.starts_with(b":").then_some(first)
    }

    /// The fields and the pseudo field.
    fn all_fields(&self) -> StoredFields<'_> {
        StoredFields {
            bytes: &self.fields[..],
            at: 0,
            left: self.field_count,
        }
    }

    /// Number of fields, the pseudo field counted.
    pub fn field_count(&self) -> usize {
        usize::from(self.field_count)
    }

    /// Length of the encoded fields; no shorter than as lines of a message.
    pub(crate) fn fields_len(&self) -> usize {
        self.fields.len()
    }

    /// The first value of a field, by its name in any case.
    pub fn field(&self, name: &[u8]) -> Option<Bytes> {
        self.fields()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| self.share(value))
    }

    /// A name or value that [`Self::fields`] gave, sharing the bytes of the head.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.fields.slice_ref(part)
    }

    fn is_well_formed(&self) -> bool {
        let mut fields = self.all_fields();
        let count = fields.by_ref().count();
        count == usize::from(self.field_count) && fields.at == self.fields.len()
    }
}

/// Iterates over the fields of a head.
#[derive(Debug)]
pub struct StoredFields<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u16,
}

impl<'a> Iterator for StoredFields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        if self.left == 0 {
            return None;
        }
        let lens: &[u8; 6] = self
            .bytes
            .get(self.at..self.at.checked_add(6)?)?
            .try_into()
            .ok()?;
        let name_len = usize::from(u16::from_le_bytes([lens[0], lens[1]]));
        let value_len = u32::from_le_bytes([lens[2], lens[3], lens[4], lens[5]]) as usize;
        let name_at = self.at + 6;
        let value_at = name_at.checked_add(name_len)?;
        let end = value_at.checked_add(value_len)?;
        let field = (
            self.bytes.get(name_at..value_at)?,
            self.bytes.get(value_at..end)?,
        );
        self.left -= 1;
        self.at = end;
        Some(field)
    }
}

/// Site and role of an entry, by its head: that of an answer, of an encoding of it, or of a slice.
pub fn classify(head: &[u8]) -> Class<'_> {
    if let Some(site) = set::site(head) {
        let role = Role::Slice;
        return Class { site, role };
    }
    let Some((fixed, [_, _, variant, tags])) = ends(head) else {
        return Class::default();
    };
    let mut fields = StoredFields {
        bytes: head.get(tags..).unwrap_or_default(),
        at: 0,
        left: u16::from_le_bytes([fixed[48], fixed[49]]),
    };
    let is_encoding = matches!(fields.next(), Some((ENCODING_OF, _)));
    Class {
        site: head
            .get(variant..tags)
            .and_then(tag::site)
            .unwrap_or_default(),
        role: if is_encoding {
            Role::Slice
        } else {
            Role::Entry
        },
    }
}

/// The fixed part of a head, and where key, Vary, variant and tags end, within the head.
fn ends(head: &[u8]) -> Option<(&[u8; FIXED], [usize; 4])> {
    let fixed: &[u8; FIXED] = head.get(..FIXED)?.try_into().ok()?;
    if fixed[0] != VERSION {
        return None;
    }
    let key = FIXED.checked_add(le_u32(fixed, 40) as usize)?;
    let vary = key.checked_add(le_u32(fixed, 44) as usize)?;
    let variant = vary.checked_add(le_u32(fixed, 36) as usize)?;
    let tags = variant.checked_add(le_u32(fixed, 70) as usize)?;
    (tags <= head.len()).then_some((fixed, [key, vary, variant, tags]))
}

/// `at` is within the fixed part by the table above.
fn le_u32(fixed: &[u8; FIXED], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&fixed[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn le_u64(fixed: &[u8; FIXED], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&fixed[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn le_i64(fixed: &[u8; FIXED], at: usize) -> i64 {
    le_u64(fixed, at).cast_signed()
}

/// Slices in a fixed part; `None` when what it says is contradictory.
fn slices(fixed: &[u8; FIXED]) -> Option<Option<SliceSet>> {
    let mut generation = [0; 16];
    generation.copy_from_slice(&fixed[74..90]);
    let (total, size) = (le_u64(fixed, 90), le_u64(fixed, 98));
    if fixed[1] & IN_SLICES == 0 {
        return fixed[74..106].iter().all(|byte| *byte == 0).then_some(None);
    }
    (size > 0).then_some(Some(SliceSet {
        generation,
        total,
        size,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> StoredHead {
        let mut fields = FieldsWriter::default();
        fields.push(b"Content-Type", b"text/plain");
        fields.push(b"X-Empty", b"");
        let mut head = StoredHead::new(200, fields);
        head.stored_at = 1_700_000_000;
        head.valid_until = -5;
        head.stale_error = 60;
        head.initial_age = 3;
        head.bounds.never_stale = true;
        head.last_modified = Some(12);
        head.variant = Bytes::from_static(b"accept: a");
        head.key = Bytes::from_static(b"http://a/b");
        head.vary = Bytes::from_static(b"Accept");
        head.tags = Bytes::from_static(b"shop sale");
        head.seed = 5;
        head.serial = 6;
        head.sliced = Some(SliceSet {
            generation: [9; 16],
            total: 100,
            size: 10,
        });
        head
    }

    #[test]
    fn a_head_reads_back_as_it_was_written() {
        let head = example();
        let read = StoredHead::decode(&head.encode()).unwrap();
        assert_eq!(read, head);
        let whole = StoredHead {
            sliced: None,
            ..head.clone()
        };
        assert_eq!(StoredHead::decode(&whole.encode()), Some(whole));
        let fields: Vec<_> = read.fields().collect();
        assert_eq!(fields.len(), 2);
        assert_eq!(
            read.field(b"content-type").as_deref(),
            Some(&b"text/plain"[..])
        );
        assert_eq!(read.field(b"X-Empty").as_deref(), Some(&b""[..]));
        assert_eq!(read.field(b"absent"), None);
    }

    #[test]
    fn the_text_of_a_status_is_no_field() {
        for text in [None, Some(&b"404 Nope"[..]), Some(b"")] {
            let mut fields = FieldsWriter::with_status_text(text);
            fields.push(b"Status", b"a");
            let head = StoredHead::new(404, fields);
            let read = StoredHead::decode(&head.encode()).unwrap();
            assert_eq!(read.status_text().as_deref(), text);
            let fields: Vec<_> = read.fields().collect();
            assert_eq!(fields, [(&b"Status"[..], &b"a"[..])]);
            assert_eq!(read.field(STATUS_TEXT), None);
        }
    }

    #[test]
    fn heads_say_whose_their_entries_are() {
        let mut head = example();
        let named = |site, role| Class { site, role };
        assert_eq!(classify(&head.encode()), named(b"", Role::Entry));
        assert_eq!(head.site(), "");
        let mut tags = tag::TagWriter::new(b"host", b"Shop.example");
        tags.push_all(b"a b");
        head.tags = tags.finish();
        let whole = named(b"shop.example", Role::Entry);
        assert_eq!(classify(&head.encode()), whole);
        assert_eq!(head.site(), "shop.example");
        let set = head.sliced.unwrap();
        let slice = set.record_head((&millpond_store::Key([1; 16]), &head.site()), 3);
        assert_eq!(classify(&slice), named(b"shop.example", Role::Slice));
        for len in 0..FIXED {
            assert_eq!(
                classify(&head.encode()[..len]),
                Class::default(),
                "cut to {len}"
            );
        }
    }

    #[test]
    fn damaged_heads_are_refused() {
        let good = example().encode();
        for len in 0..good.len() {
            assert!(
                StoredHead::decode(&good.slice(..len)).is_none(),
                "cut to {len}"
            );
        }
        let mut long = good.to_vec();
        long.push(0);
        assert!(StoredHead::decode(&Bytes::from(long)).is_none());
        let mut version = good.to_vec();
        version[0] = 9;
        assert!(StoredHead::decode(&Bytes::from(version)).is_none());
        let mut bounds = good.to_vec();
        bounds[1] = 16;
        assert!(StoredHead::decode(&Bytes::from(bounds)).is_none());
        let mut no_size = good.to_vec();
        no_size[98] = 0;
        assert!(StoredHead::decode(&Bytes::from(no_size)).is_none());
        let mut lengths = good.to_vec();
        lengths[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(StoredHead::decode(&Bytes::from(lengths)).is_none());
    }
}
