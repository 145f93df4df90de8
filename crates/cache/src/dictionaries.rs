//! Dictionaries of compression (RFC 9842) that a zone keeps: bodies that clients have, and that
//! others are encoded by.
//!
//! A dictionary is a record beside its entry, as an encoding is (`encoded.rs`), under a key that is
//! made of its mark: the word `dictionary`, a zero byte, the SHA-256 of the body, and the origin
//! that it came from. Its head has Use-As-Dictionary as the origin wrote it, and the path that the
//! pattern counts from. So it is found by what a client says of it, outlives a restart and the
//! version of its resource that it was, and leaves as all else does: for space, for want of use, by
//! the purges of its entry's tags and times.
//!
//! 1. A dictionary is found by requests of its own origin alone.
//! 2. Of an entry there are encodings by `DICTIONARIES_MAX` dictionaries at a time, as far as is
//!    remembered; for a further one those by the first leave.

use bytes::Bytes;
use millpond_semantics::dictionary::{DictionaryCoding, Hash, Offer};
use millpond_store::{Cold, Entry, Key, Look, NotStored};

use crate::encoded::{Form, mark};
use crate::head::{FieldsWriter, StoredHead};
use crate::purge::Judged;
use crate::shared_head::SharedHead;
use crate::zone::{CacheZone, FoundEntry};

/// Dictionaries that an entry has encodings by (arbitrary: so many versions back).
const DICTIONARIES_MAX: usize = 8;
/// Seconds after which a dictionary is looked at again, to be kept once more if it has left
/// (arbitrary).
const AGAIN: i64 = 600;
/// The field that makes an answer a dictionary.
const FIELD: &[u8] = b"use-as-dictionary";
/// The field of a record with the path that its pattern counts from.
const PATH: &[u8] = b"dictionary-path";

/// A dictionary that was found.
#[derive(Clone, Debug)]
pub struct KeptDictionary {
    /// SHA-256 of its bytes.
    pub hash: Hash,
    /// The record, whose body it is.
    pub entry: Entry,
    /// The URLs that it is for.
    pub offer: Offer,
}

/// Result of a look for a dictionary.
#[derive(Debug)]
pub enum LookedForDictionary {
    /// The dictionary is there.
    Found(KeptDictionary),
    /// None is there.
    Missing,
    /// The disk is being asked, or does not answer.
    Unread(Option<Cold>),
}

impl CacheZone {
    /// True if the dictionary that an entry is has to be looked at; notes that it is.
    pub fn begin_dictionary(&self, found: &FoundEntry, now: i64) -> bool {
        let key = self.keys().of_part(&mark(found, &Form::Dictionary));
        let is_due = self
            .dictionaries
            .looked_at
            .find(&key)
            .is_none_or(|until| until <= now);
        if is_due {
            self.dictionaries
                .looked_at
                .note(key, |_| now.saturating_add(AGAIN));
        }
        is_due
    }

    /// Keeps the body of an entry as a dictionary; true if it was not there yet.
    pub fn keep_dictionary(
        &self,
        found: &FoundEntry,
        (origin, path): (&[u8], &[u8]),
        (hash, body): (Hash, Bytes),
    ) -> Result<bool, NotStored> {
        let name = name_of(&hash, origin);
        let key = self.keys().of_part(&name);
        if self.store.find(&key).is_some() {
            return Ok(false);
        }
        let mut fields = FieldsWriter::of_encoding(&name);
        fields.push(PATH, path);
        lines(&found.head).for_each(|line| fields.push(FIELD, &line));
        let mut writer = self.store.begin(key, Some(body.len() as u64))?;
        writer.set_head(found.head.with_fields(fields).encode());
        writer.append(body)?;
        writer.finish().map(|_| true)
    }

    /// Looks for the dictionary of an origin with a hash.
    pub fn dictionary(&self, hash: Hash, origin: &[u8]) -> LookedForDictionary {
        let name = name_of(&hash, origin);
        match self
            .store
            .look_at(&self.keys().of_part(&name), self.store.now_s())
        {
            Look::Found(entry) => match self.offer_of(&entry, (&name, origin)) {
                Some(offer) => LookedForDictionary::Found(KeptDictionary { hash, entry, offer }),
                None => LookedForDictionary::Missing,
            },
            Look::Missing => LookedForDictionary::Missing,
            Look::Cold(cold) => LookedForDictionary::Unread(Some(cold)),
            Look::Unknown(_) | Look::Stalled => LookedForDictionary::Unread(None),
        }
    }

    fn offer_of(&self, entry: &Entry, (name, origin): (&[u8], &[u8])) -> Option<Offer> {
        let head = SharedHead::of(&self.store, entry)?;
        // INVARIANT 1.
        let is_its = head.encoding_of() == Some(name);
        if !is_its || self.purges.judge(&head.subject()) == Judged::Gone {
            return None;
        }
        let said: Vec<Bytes> = lines(&head).collect();
        let path = head.field(PATH)?;
        Offer::parse(said.iter().map(Bytes::as_ref), (origin, &path))
    }

    /// Notes that encodings of an entry by a dictionary are made; those by one that is too many
    /// leave.
    pub fn note_dictionary(&self, found: &FoundEntry, hash: Hash) {
        let mut left = None;
        self.dictionaries.used.note(found.key, |used| {
            let mut used = used.unwrap_or_default();
            if !used.contains(&hash) {
                used.push(hash);
            }
            // INVARIANT 2.
            if used.len() > DICTIONARIES_MAX {
                left = Some(used.remove(0));
            }
            used
        });
        for coding in [DictionaryCoding::Brotli, DictionaryCoding::Zstd] {
            if let Some(hash) = left {
                let key: Key = self.keys().of_part(&mark(found, &Form::By(coding, hash)));
                self.store.remove(&key);
            }
        }
    }
}

/// The lines of Use-As-Dictionary.
pub fn lines(head: &StoredHead) -> impl Iterator<Item = Bytes> {
    head.fields()
        .filter(|(name, _)| name.eq_ignore_ascii_case(FIELD))
        .map(|(_, value)| head.share(value))
}

fn name_of(hash: &Hash, origin: &[u8]) -> Vec<u8> {
    [b"dictionary\0", &hash[..], origin].concat()
}
