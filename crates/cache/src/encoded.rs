//! Stored encodings: the body of an entry in a content coding, kept as a record of its own.
//!
//! The record stands under a key that is made of what it is an encoding of, its mark:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | | coding | the name of the coding, and a zero byte |
//! | 32 | dictionary | its SHA-256, only of a coding that has one (`dictionaries.rs`) |
//! | 16 | key | the entry's key in the store |
//! | 8 | created | when the entry was finished, milliseconds since the epoch, little-endian |
//! | 8 | length | of the entry's body |
//! | 8 | last_modified | as in the head |
//! | | etag | as the origin wrote it |
//!
//! Its head has the mark whole; the entry's text, tags and times, so that what is purged by any of
//! these is purged with its encodings; and the strong validator of the encoding, which is made of
//! its bytes.
//!
//! 1. An encoding is used only behind its entry, and only if its mark is that of the entry as it
//!    was found: one that was stored anew has none. Two entries of a key that were finished in the
//!    same millisecond, with the same length and validators, would share a mark, so that an
//!    encoding is kept only if its entry is older than that and still there.
//! 2. The fields of an answer are always those of the entry; of the encoding's head only the
//!    validator is used.
//! 3. An encoding counts for its site with its bytes, and is no entry: lists and counts pass over
//!    it.

use bytes::Bytes;
use millpond_semantics::accept_encoding::Coding;
use millpond_semantics::dictionary::{DictionaryCoding, Hash};
use millpond_store::{Chosen, Cold, Entry, Key, Look};

use crate::encoding::Outcome;
use crate::head::{FieldsWriter, StoredHead};
use crate::shared_head::SharedHead;
use crate::zone::{CacheZone, FoundEntry};

/// Parts of a body that its encoding is taken to be one of, before it is made (arbitrary: what
/// text saves).
const ABOUT_ONE_IN: u64 = 4;

/// A form that a body is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A content coding.
    Plain(Coding),
    /// A coding by a dictionary.
    By(DictionaryCoding, Hash),
    /// The body as it is, as a dictionary.
    Dictionary,
}

impl Form {
    /// The name of the coding.
    pub fn name(&self) -> &'static str {
        match self {
            Form::Plain(coding) => coding.name(),
            Form::By(coding, _) => coding.name(),
            Form::Dictionary => "dictionary",
        }
    }
}

/// Name of the encoding of an entry: its key in the store, and what it is an encoding of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodingKey {
    /// The key.
    pub key: Key,
    mark: Bytes,
}

/// An encoding that is to be made: its name, and that the store would take it.
#[derive(Debug)]
pub struct BegunEncoding {
    name: EncodingKey,
    chosen: Chosen,
}

impl BegunEncoding {
    /// Key of the encoding in the store.
    pub fn key(&self) -> Key {
        self.name.key
    }
}

/// An encoding that was found.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The record, whose body is the encoded one.
    pub entry: Entry,
    /// The strong validator.
    pub etag: Bytes,
}

/// Result of a look for an encoding.
#[derive(Debug)]
pub enum LookedForEncoding {
    /// The encoding is there.
    Found(Encoded),
    /// No encoding is there; one would be kept under this name.
    Missing(EncodingKey),
    /// The disk is being asked, or does not answer, or it is not known yet what is there.
    Unread(Option<Cold>),
}

impl CacheZone {
    /// Looks for the encoding of an entry as it was found.
    pub fn encoding_of(&self, found: &FoundEntry, form: &Form) -> LookedForEncoding {
        let mark = mark(found, form);
        let key = self.keys().of_part(&mark);
        let missing = || {
            LookedForEncoding::Missing(EncodingKey {
                key,
                mark: mark.clone(),
            })
        };
        match self.store.look_at(&key, self.store.now_s()) {
            Look::Found(entry) => match self.validator_of(&entry, (found, &mark)) {
                Some(etag) => LookedForEncoding::Found(Encoded { entry, etag }),
                None => missing(),
            },
            Look::Missing => missing(),
            Look::Cold(cold) => LookedForEncoding::Unread(Some(cold)),
            Look::Unknown(_) | Look::Stalled => LookedForEncoding::Unread(None),
        }
    }

    /// The validator of a record, if it is the encoding of this entry.
    fn validator_of(&self, entry: &Entry, (found, mark): (&FoundEntry, &[u8])) -> Option<Bytes> {
        let head = SharedHead::of(&self.store, entry)?;
        // INVARIANT 1.
        let is_its = head.encoding_of() == Some(mark) && head.key == found.head.key;
        is_its.then(|| head.field(b"etag")).flatten()
    }

    /// True if no other entry of the key can be finished in the same millisecond any more: before,
    /// no encoding of it is made.
    pub fn is_settled(&self, entry: &Entry) -> bool {
        u64::from(self.store.now_s()) > entry.created_ms() / 1000
    }

    /// True if the entry stands under its key still; another head does not matter.
    fn is_there(&self, entry: &Entry) -> bool {
        match self.store.look_at(entry.key(), self.store.now_s()) {
            Look::Found(now) => (now.created_ms(), now.len()) == (entry.created_ms(), entry.len()),
            _ => false,
        }
    }

    /// Begins to make an encoding, if it may be made now and the store would take it. A choice
    /// obliges to call [`Encodings::end`](crate::encoding::Encodings::end).
    pub fn begin_encoding(
        &self,
        found: &FoundEntry,
        name: EncodingKey,
        now: i64,
    ) -> Option<BegunEncoding> {
        if !self.is_settled(&found.entry) || !self.encodings.begin(&name.key, now) {
            return None;
        }
        let chosen = self
            .store
            .choose(name.key, found.entry.len() / ABOUT_ONE_IN);
        if chosen.is_err() {
            self.encodings.end(&name.key, Outcome::NotChosen, now);
        }
        let chosen = chosen.ok()?;
        Some(BegunEncoding { name, chosen })
    }

    /// Keeps an encoding of an entry as it was found, unless that was replaced meanwhile.
    pub fn keep_encoding(
        &self,
        found: &FoundEntry,
        BegunEncoding { name, chosen }: BegunEncoding,
        (form, body): (&Form, Bytes),
    ) -> Outcome {
        if !self.is_settled(&found.entry) || !self.is_there(&found.entry) {
            return Outcome::NotStored;
        }
        let hash = self.keys().of_part(&body);
        let head = head_for(found, &name, (form, &hash));
        let len = body.len() as u64;
        let kept = self.store.begin_chosen(chosen, len).and_then(|mut writer| {
            writer.set_head(head.encode());
            writer.append(body)?;
            writer.finish()
        });
        match kept {
            Ok(_) => {
                self.encodings.note_made(found.entry.len(), len);
                Outcome::Made
            }
            Err(_) => Outcome::NotStored,
        }
    }
}

/// The mark of an encoding.
pub(crate) fn mark(found: &FoundEntry, form: &Form) -> Bytes {
    let etag = found.head.field(b"etag").unwrap_or_default();
    let modified = found.head.last_modified.unwrap_or(i64::MIN);
    let mut mark = Vec::with_capacity(48 + etag.len());
    mark.extend_from_slice(form.name().as_bytes());
    mark.push(0);
    if let Form::By(_, hash) = form {
        mark.extend_from_slice(hash);
    }
    mark.extend_from_slice(&found.key.0);
    mark.extend_from_slice(&found.entry.created_ms().to_le_bytes());
    mark.extend_from_slice(&found.entry.len().to_le_bytes());
    mark.extend_from_slice(&modified.to_le_bytes());
    mark.extend_from_slice(&etag);
    Bytes::from(mark)
}

fn head_for(found: &FoundEntry, name: &EncodingKey, (form, hash): (&Form, &Key)) -> StoredHead {
    let mut fields = FieldsWriter::of_encoding(&name.mark);
    fields.push(b"ETag", &validator(&found.head, form, hash));
    fields.push(b"Content-Encoding", form.name().as_bytes());
    found.head.with_fields(fields)
}

/// A strong validator that no other bytes have: the entry's own, the coding, and a hash.
fn validator(head: &StoredHead, form: &Form, hash: &Key) -> Vec<u8> {
    let etag = head.field(b"etag").unwrap_or_default();
    let quoted = etag.strip_prefix(b"W/").unwrap_or(&etag);
    let opaque = quoted
        .strip_prefix(b"\"")
        .and_then(|it| it.strip_suffix(b"\""));
    let mut own = vec![b'"'];
    if let Some(opaque) = opaque.filter(|opaque| !opaque.is_empty()) {
        own.extend_from_slice(opaque);
        own.push(b'-');
    }
    own.extend_from_slice(format!("{}-{hash}\"", form.name()).as_bytes());
    own
}
