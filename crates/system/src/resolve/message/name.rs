//! Names in messages: as text, passed over, and longer than DNS allows.
//!
//! RFC 1035 §2.3.4 ends a name at 255 bytes, as does the crate that reads messages. nginx asks for
//! longer ones and follows aliases to them, and so do we, up to [`NAME_MAX`].
//!
//! A name is labels (a length below 64, then as many bytes) up to an empty one, or to a pointer
//! (0xc0 and an offset of 14 bits) to more of it.
//!
//! Invariants:
//! 1. A pointer points in front of where reading began, so that reading ends.
//! 2. A decoder is never put behind the end of its message, where it would panic.

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, DecodeError};

use super::{NAME_MAX, Unfit, is_plain};

/// The bytes of a header, where the name of the question follows.
const HEADER_LEN: usize = 12;

/// Puts a name, whose labels are good ones, into a question for the root.
pub(super) fn insert(mut question: Vec<u8>, name: &str) -> Option<Vec<u8>> {
    let mut labels = Vec::with_capacity(name.len() + 1);
    for label in name.split('.') {
        labels.push(u8::try_from(label.len()).ok()?);
        labels.extend(label.as_bytes());
    }
    // The root's own empty label ends the name.
    question.get(HEADER_LEN)?;
    question.splice(HEADER_LEN..HEADER_LEN, labels);
    Some(question)
}

/// Reads a name as text.
pub(super) fn read(decoder: &mut BinDecoder<'_>) -> Result<String, Unfit> {
    let start = u16::try_from(decoder.index()).map_err(|_| Unfit::Short)?;
    match Name::read(decoder) {
        Ok(name) => text(name.iter()),
        Err(DecodeError::DomainNameTooLong(_)) => {
            *decoder = decoder.clone(start);
            let labels = labels(decoder.clone(start))?;
            skip(decoder)?;
            text(labels)
        }
        Err(why) => Err(why.into()),
    }
}

/// Passes over a name without looking where it points.
pub(super) fn skip(decoder: &mut BinDecoder<'_>) -> Result<(), Unfit> {
    loop {
        match decoder.pop()?.unverified() {
            0 => return Ok(()),
            pointer if pointer & 0xc0 != 0 => {
                decoder.pop()?;
                return Ok(());
            }
            len => decoder.read_slice(usize::from(len))?,
        };
    }
}

/// The labels of a name of any length up to [`NAME_MAX`].
fn labels(mut decoder: BinDecoder<'_>) -> Result<Vec<&[u8]>, Unfit> {
    let mut labels = Vec::new();
    let mut size = 0;
    let mut start = decoder.index();
    loop {
        let len = decoder.pop()?.unverified();
        if len == 0 {
            return Ok(labels);
        }
        if len & 0xc0 != 0 {
            let low = decoder.pop()?.unverified();
            let target = u16::from_be_bytes([len & 0x3f, low]);
            // INVARIANTS 1 and 2.
            if usize::from(target) >= start {
                return Err(Unfit::Name);
            }
            start = usize::from(target);
            decoder = decoder.clone(target);
            continue;
        }
        labels.push(decoder.read_slice(usize::from(len))?.unverified());
        size += usize::from(len) + 1;
        if size > NAME_MAX {
            return Err(Unfit::Name);
        }
    }
}

/// A name as text in lower case, without the dot at its end.
fn text<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Result<String, Unfit> {
    let mut name = String::new();
    for label in labels {
        if !label.iter().copied().all(is_plain) {
            return Err(Unfit::Name);
        }
        if !name.is_empty() {
            name.push('.');
        }
        let lower = label.iter().map(u8::to_ascii_lowercase);
        name.extend(lower.map(char::from));
    }
    Ok(name)
}
