//! Places in the bytes of a head: of its parts, and of its fields.
//!
//! 1. A [`Span`] points into the bytes that its field stands in; it stays right while they grow.
//!
//! It does not judge: whoever reads a head says what may stand in it.

use std::ops::Range;

use bytes::Bytes;

use crate::header::{Field, Known};

/// A range of bytes of the head. Short, since a head carries several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Extent {
    pub(crate) fn of<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        buf.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// True if there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// The place of a field in the bytes of a head. Sixteen bytes, since every request carries an array
/// of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    name_start: u32,
    value_start: u32,
    value_len: u32,
    name_len: u16,
    pub(crate) known: Known,
    /// True if the name is known to be spelled as usual.
    is_usual: bool,
}

const _: () = assert!(size_of::<Span>() == 16);

impl Span {
    /// Places a parsed line that begins at `start`; `None` if it is beyond what a span holds
    /// (a head of 4 GiB, a name of 64 KiB).
    pub(crate) fn new(start: usize, line: &FieldLine, known: Known) -> Option<Self> {
        Some(Self {
            name_start: u32::try_from(start).ok()?,
            value_start: u32::try_from(start.checked_add(line.value.start)?).ok()?,
            value_len: u32::try_from(line.value.len()).ok()?,
            name_len: u16::try_from(line.name_len).ok()?,
            known,
            is_usual: false,
        })
    }

    /// Places a field whose name and value stand one behind the other: the offsets of both, and of
    /// the end. `None` as for [`Span::new`].
    #[inline]
    pub(crate) fn between(
        (name_start, value_start, end): (usize, usize, usize),
        known: Known,
    ) -> Option<Self> {
        Some(Self {
            name_start: u32::try_from(name_start).ok()?,
            value_start: u32::try_from(value_start).ok()?,
            value_len: u32::try_from(end - value_start).ok()?,
            name_len: u16::try_from(value_start - name_start).ok()?,
            known,
            is_usual: false,
        })
    }

    /// Places a field by its parts. `None` for a name of 64 KiB.
    pub(crate) fn of(name: Extent, value: Extent, known: Known) -> Option<Self> {
        Some(Self {
            name_start: name.start,
            value_start: value.start,
            value_len: value.end - value.start,
            name_len: u16::try_from(name.end - name.start).ok()?,
            known,
            is_usual: false,
        })
    }

    /// The same place of a name that is known to be spelled as usual.
    pub(crate) fn spelled_as_usual(self) -> Self {
        Self {
            is_usual: true,
            ..self
        }
    }

    /// The name in `buf`.
    pub(crate) fn name<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        let start = self.name_start as usize;
        buf.get(start..start + usize::from(self.name_len))
            .unwrap_or_default()
    }

    /// The value in `buf`.
    pub(crate) fn value<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        let start = self.value_start as usize;
        buf.get(start..start + self.value_len as usize)
            .unwrap_or_default()
    }

    /// The field as an owned one that shares `buf`.
    #[inline]
    pub(crate) fn to_field(self, buf: &Bytes) -> Field {
        let canonical = self.known.canonical().as_bytes();
        Field {
            known: self.known,
            name: if self.is_usual || self.name(buf) == canonical {
                Bytes::from_static(canonical)
            } else {
                buf.slice_ref(self.name(buf))
            },
            value: self.shared_value(buf),
        }
    }

    fn shared_value(&self, buf: &Bytes) -> Bytes {
        let start = self.value_start as usize;
        let end = start + self.value_len as usize;
        if end <= buf.len() {
            buf.slice(start..end)
        } else {
            Bytes::new()
        }
    }
}

/// The kind of characters that a name is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// Letters, digits and hyphens.
    Plain,
    /// The name has underscores besides.
    Underscored,
    /// The name has other bytes besides.
    Odd,
}

/// A field line: the name is its first `name_len` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldLine {
    pub(crate) name_len: usize,
    pub(crate) kind: NameKind,
    pub(crate) value: Range<usize>,
}

impl FieldLine {
    /// The line as it stands in `text`, its value without tabs and spaces around it.
    pub(crate) fn trimmed(&self, text: &[u8]) -> FieldLine {
        let value = text.get(self.value.clone()).unwrap_or_default();
        let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
        let first = value.iter().position(is_text).unwrap_or(value.len());
        let after = value
            .iter()
            .rposition(is_text)
            .map_or(first, |last| last + 1);
        FieldLine {
            value: self.value.start + first..self.value.start + after,
            ..self.clone()
        }
    }
}
