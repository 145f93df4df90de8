//! Blocks of fields, decompressed (RFC 7541 §3 and §6).
//!
//! A block is read as a whole; each field is given to a [`Sink`] as it is found.
//!
//! 1. A block is read to its end whatever the sink makes of its fields, so that both ends' tables
//!    stay alike.
//! 2. Texts are as long, and all of them together, as [`Bounds`] allow; a text that is too long is
//!    refused by the length that it says, before memory is taken for it.

use super::huffman;
use super::integer::{self, BadInteger};
use super::name::{Class, is_good_value};
use super::static_table;
use super::table::{self, Facts, Name, Table};

/// Bounds of a block's texts.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most bytes of a name or a value, as it stands in the block.
    pub text: usize,
    /// Most bytes of all names and values together.
    pub list: usize,
}

/// The reason why a block cannot be read. The text is for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// The block ends within a field.
    #[error("header block with incorrect length")]
    Truncated,
    /// An integer has too many bytes.
    #[error("header block with too long index or length value")]
    LongInteger,
    /// There is no entry of an index.
    #[error("invalid hpack table index")]
    BadIndex,
    /// A text is no Huffman code.
    #[error("invalid encoded header field")]
    BadText,
    /// A new size is beyond what was agreed on, or stands behind a field.
    #[error("invalid table size update")]
    BadSizeUpdate,
    /// A field without a name.
    #[error("zero header name length")]
    NoName,
    /// A name or a value is too long.
    #[error("too large header field")]
    LongText,
    /// All fields together are too long.
    #[error("too large header")]
    LongList,
}

impl From<BadInteger> for BadBlock {
    fn from(bad: BadInteger) -> Self {
        match bad {
            BadInteger::Truncated => BadBlock::Truncated,
            BadInteger::TooLong => BadBlock::LongInteger,
        }
    }
}

/// A field of a block.
#[derive(Clone, Copy, Debug)]
pub struct Decoded<'a> {
    /// The kind of the field.
    pub class: Class,
    /// The name as it came.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// True if the value may stand in a field.
    pub is_good: bool,
}

/// The taker of a block's fields.
pub trait Sink {
    /// Takes the next field.
    fn take(&mut self, field: Decoded<'_>);
}

impl<F: FnMut(Decoded<'_>)> Sink for F {
    fn take(&mut self, field: Decoded<'_>) {
        self(field);
    }
}

/// Bytes of texts that are kept from one block to the next (arbitrary: most URIs fit).
const SCRATCH: usize = 1024;

/// The reader of a direction's blocks.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The size that peers may use.
    most: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A reader whose table has the default size, which is what peers may use.
    #[must_use]
    pub fn new() -> Self {
        Self::with_size(table::DEFAULT_SIZE)
    }

    /// A reader whose table has a size that peers were told.
    #[must_use]
    pub fn with_size(size: usize) -> Self {
        let mut table = Table::default();
        table.resize(size);
        Decoder {
            table,
            most: size,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Reads a block.
    ///
    /// # Errors
    /// See [`BadBlock`]. The table is in no known state then: the connection must end.
    pub fn decode(
        &mut self,
        block: &[u8],
        bounds: Bounds,
        sink: &mut impl Sink,
    ) -> Result<(), BadBlock> {
        let outcome = self.decode_fields(block, bounds, sink);
        for text in [&mut self.name, &mut self.value] {
            text.clear();
            if text.capacity() > SCRATCH {
                text.shrink_to(SCRATCH);
            }
        }
        outcome
    }

    fn decode_fields(
        &mut self,
        block: &[u8],
        bounds: Bounds,
        sink: &mut impl Sink,
    ) -> Result<(), BadBlock> {
        let mut rest = self.decode_updates(block)?;
        let mut left = bounds;
        while let Some(first) = rest.first() {
            let len = match first {
                0x80.. => {
                    let index = integer::read(&mut rest, 7)?;
                    give_indexed(&self.table, index, left, sink)?
                }
                0x40.. => self.give_literal(&mut rest, Indexing::Yes, left, sink)?,
                // RFC 7541 §4.2: only at the begin of a block.
                0x20.. => return Err(BadBlock::BadSizeUpdate),
                _ => self.give_literal(&mut rest, Indexing::No, left, sink)?,
            };
            // A field is no longer than what was left.
            left.list -= len;
        }
        Ok(())
    }

    /// Obeys the new sizes at the begin of a block.
    fn decode_updates<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], BadBlock> {
        let mut rest = block;
        while let Some(0x20..0x40) = rest.first() {
            let size = integer::read(&mut rest, 5)?;
            // RFC 7541 §6.3: no more than the setting.
            if size > self.most {
                return Err(BadBlock::BadSizeUpdate);
            }
            self.table.resize(size);
        }
        Ok(rest)
    }

    /// Gives out a field whose value, and name unless there is an index, stands in the block;
    /// returns its length.
    fn give_literal(
        &mut self,
        rest: &mut &[u8],
        indexing: Indexing,
        left: Bounds,
        sink: &mut impl Sink,
    ) -> Result<usize, BadBlock> {
        let index = integer::read(rest, indexing.prefix())?;
        let own = if index == 0 {
            Some(read_name(rest, left.text, &mut self.name)?)
        } else {
            None
        };
        let value = read_text(rest, left.text, &mut self.value)?;
        let mut field = match own {
            Some(name) => Decoded {
                class: Class::of(name),
                name,
                value,
                is_good: false,
            },
            None => entry(&self.table, index).ok_or(BadBlock::BadIndex)?,
        };
        (field.value, field.is_good) = (value, is_good_value(value));
        let len = give(field, left, sink)?;
        if indexing == Indexing::Yes {
            let facts = Facts {
                class: field.class,
                is_good: field.is_good,
                before: 0,
            };
            let name = match (own, static_table::get(index)) {
                (Some(name), _) => Name::Text(name),
                (None, Some((_, name, _))) => Name::Text(name.as_bytes()),
                (None, None) => Name::Of(index - FIRST_DYNAMIC),
            };
            self.table.insert(name, value, facts);
        }
        Ok(len)
    }
}

/// The index of the first entry of the dynamic table.
const FIRST_DYNAMIC: usize = static_table::TABLE.len() + 1;

/// The choice to keep a field in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indexing {
    Yes,
    No,
}

impl Indexing {
    /// Bits of the prefix of the name's index.
    fn prefix(self) -> u32 {
        match self {
            Indexing::Yes => 6,
            Indexing::No => 4,
        }
    }
}

/// Gives out the field of an index; returns its length.
#[inline]
fn give_indexed(
    table: &Table,
    index: usize,
    left: Bounds,
    sink: &mut impl Sink,
) -> Result<usize, BadBlock> {
    give(entry(table, index).ok_or(BadBlock::BadIndex)?, left, sink)
}

/// Gives out a field; returns its length. INVARIANT 2.
#[inline]
fn give(field: Decoded<'_>, left: Bounds, sink: &mut impl Sink) -> Result<usize, BadBlock> {
    let len = field.name.len() + field.value.len();
    if len > left.list {
        return Err(BadBlock::LongList);
    }
    sink.take(field);
    Ok(len)
}

/// The field of an index.
#[inline]
fn entry(table: &Table, index: usize) -> Option<Decoded<'_>> {
    if let Some((class, name, value)) = static_table::get(index) {
        return Some(Decoded {
            class: *class,
            name: name.as_bytes(),
            value: value.as_bytes(),
            is_good: true,
        });
    }
    let entry = table.get(index.checked_sub(FIRST_DYNAMIC)?)?;
    Some(Decoded {
        class: entry.class,
        name: table.name(entry),
        value: table.value(entry),
        is_good: entry.is_good,
    })
}

/// Reads the name that `rest` begins with, and takes it away.
fn read_name<'a, 'b: 'a>(
    rest: &mut &'b [u8],
    most: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], BadBlock> {
    match read_text(rest, most, scratch)? {
        // nginx: this breaks the connection, while other bad names are the message's fault.
        [] => Err(BadBlock::NoName),
        name => Ok(name),
    }
}

/// Reads the text that `rest` begins with, and takes it away; one that is coded is decoded into
/// `scratch`.
fn read_text<'a, 'b: 'a>(
    rest: &mut &'b [u8],
    most: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], BadBlock> {
    let is_coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer::read(rest, 7)?;
    // INVARIANT 2.
    if len > most {
        return Err(BadBlock::LongText);
    }
    let (text, after) = rest.split_at_checked(len).ok_or(BadBlock::Truncated)?;
    *rest = after;
    if !is_coded {
        return Ok(text);
    }
    scratch.clear();
    huffman::decode(text, scratch).map_err(|_| BadBlock::BadText)?;
    Ok(scratch)
}
