//! Blocks of fields, decompressed (RFC 9204 §4.5), and the table that they refer to, which the
//! peer's instructions change (§4.3).
//!
//! A block begins with a prefix, which says how many insertions it needs; it is read when they have
//! come. Each field is given to a [`Sink`] as it is found.
//!
//! 1. An entry is no larger than the table, and its texts are no longer than those of blocks. No
//!    longer either, but for Huffman's code, is the begin of an instruction that is not yet whole.
//! 2. Texts are as long, and all of them together, as [`Bounds`] allow; a text that is too long is
//!    refused by the length that it says, before memory is taken for it.

use super::integer::{self, BadInteger};
use super::static_table;
use crate::http2::hpack::decode::{Bounds, Decoded, Sink};
use crate::http2::hpack::huffman;
use crate::http2::hpack::name::{Class, is_good_value};
use crate::http2::hpack::table::{self, Facts, Name, Table};

/// The reason why a block cannot be read. The text is for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// The block ends within a field.
    #[error("header block with incorrect length")]
    Truncated,
    /// An integer is too large.
    #[error("header block with too long index or length value")]
    LongInteger,
    /// The insertions that it says it needs cannot be.
    #[error("header block with invalid prefix")]
    BadPrefix,
    /// There is no entry of an index.
    #[error("invalid qpack table index")]
    BadIndex,
    /// A text is no Huffman code.
    #[error("invalid encoded header field")]
    BadText,
    /// A name or a value is too long.
    #[error("too large header field")]
    LongText,
    /// All fields together are too long.
    #[error("too large header")]
    LongList,
}

impl BadBlock {
    /// True if the block can be read, but is longer than what is read: the fault of its message,
    /// not of the connection.
    #[must_use]
    pub fn is_long(self) -> bool {
        matches!(self, BadBlock::LongText | BadBlock::LongList)
    }
}

impl From<BadInteger> for BadBlock {
    fn from(bad: BadInteger) -> Self {
        match bad {
            BadInteger::Truncated => BadBlock::Truncated,
            BadInteger::TooLong => BadBlock::LongInteger,
        }
    }
}

/// The reason why instructions are not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadInstruction {
    /// Instructions that cannot be.
    Invalid,
    /// Instructions beyond what is borne.
    TooMany,
}

/// The begin of a block: what its indexes are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Insertions that must have come.
    pub required: u32,
    base: u64,
    /// Bytes of the prefix.
    len: usize,
}

/// Bytes that the code of a symbol has at most, for one byte (30 bits).
const CODED_MOST: usize = 4;
/// Bytes of texts that are kept from one block to the next (as in HPACK).
const SCRATCH: usize = 1024;

/// The reader of the peer's blocks.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The size that the peer was allowed.
    most: usize,
    /// The longest text of an entry.
    longest: usize,
    /// The begin of an instruction.
    partial: Vec<u8>,
    /// Insertions that the peer was told of.
    told: u32,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// A reader whose table may have a size that the peer is told.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let mut table = Table::default();
        // RFC 9204 §3.2.3: until the peer says another one.
        table.resize(0);
        Decoder {
            table,
            most,
            longest: most,
            partial: Vec::new(),
            told: 0,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// A reader that bears no longer texts in its table: those that are longer than what is read of
    /// a block are of no use to anybody (§7.4).
    #[must_use]
    pub fn with_longest(self, longest: usize) -> Self {
        Decoder { longest, ..self }
    }

    /// Insertions that have come.
    #[must_use]
    pub fn insertions(&self) -> u32 {
        self.table.newest()
    }

    /// Insertions that the peer is to be told of; it is told with that.
    pub fn take_increment(&mut self) -> u32 {
        let increment = self.insertions() - self.told;
        self.told = self.insertions();
        increment
    }

    /// True if there are insertions that the peer is to be told of.
    #[must_use]
    pub fn has_increment(&self) -> bool {
        self.insertions() > self.told
    }

    /// Notes that the peer is told that a block was read, and with that of the insertions that it
    /// needed (§4.4.1).
    pub fn note_acknowledged(&mut self, prefix: &Prefix) {
        self.told = self.told.max(prefix.required);
    }

    /// True if the peer is to be told of blocks that are not read.
    #[must_use]
    pub fn has_table(&self) -> bool {
        self.most > 0
    }

    /// Obeys instructions that have come on the encoder stream; each is paid for before.
    ///
    /// # Errors
    /// See [`BadInstruction`]: the connection must end.
    pub fn obey(&mut self, bytes: &[u8], pay: impl FnMut() -> bool) -> Result<(), BadInstruction> {
        self.obey_until(bytes, None, pay).map(drop)
    }

    /// Obeys them up to an insertion that a block waits for, which a later instruction may evict.
    /// Returns true if that has come: the rest is kept for the next call.
    ///
    /// # Errors
    /// See [`BadInstruction`]: the connection must end.
    pub fn obey_until(
        &mut self,
        bytes: &[u8],
        awaited: Option<u32>,
        mut pay: impl FnMut() -> bool,
    ) -> Result<bool, BadInstruction> {
        if self.partial.is_empty() {
            let read = self.obey_whole(bytes, awaited, &mut pay)?;
            self.partial
                .extend_from_slice(bytes.get(read..).unwrap_or_default());
        } else {
            let mut joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(bytes);
            let read = self.obey_whole(&joined, awaited, &mut pay)?;
            joined.drain(..read);
            if !joined.is_empty() {
                self.partial = joined;
            }
        }
        Ok(self.has_come(awaited))
    }

    fn has_come(&self, awaited: Option<u32>) -> bool {
        awaited.is_some_and(|count| self.insertions() >= count)
    }

    /// Obeys the instructions that are there as a whole, up to an insertion; returns the bytes that
    /// they have.
    fn obey_whole(
        &mut self,
        bytes: &[u8],
        awaited: Option<u32>,
        pay: &mut impl FnMut() -> bool,
    ) -> Result<usize, BadInstruction> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.has_come(awaited) {
            let before = rest;
            match self.obey_one(&mut rest) {
                Ok(()) if pay() => {}
                Ok(()) => return Err(BadInstruction::TooMany),
                Err(Stop::NeedMore) => return Ok(bytes.len() - before.len()),
                Err(Stop::Invalid) => return Err(BadInstruction::Invalid),
            }
        }
        Ok(bytes.len() - rest.len())
    }

    fn obey_one(&mut self, rest: &mut &[u8]) -> Result<(), Stop> {
        let most = self.table.max().min(self.longest);
        match rest.first().copied().unwrap_or_default() {
            first @ 0x80.. => {
                let index = integer::read(rest, 6)?;
                let value = read_entry_text(rest, 7, most, &mut self.value)?;
                let (class, name) = if first & 0x40 != 0 {
                    let (class, name, _) = static_table::get(index).ok_or(Stop::Invalid)?;
                    (*class, Name::Text(name.as_bytes()))
                } else {
                    let index = usize::try_from(index).map_err(|_| Stop::Invalid)?;
                    let entry = self.table.get(index).ok_or(Stop::Invalid)?;
                    (entry.class, Name::Of(index))
                };
                insert(&mut self.table, class, name, value)
            }
            0x40.. => {
                let name = read_entry_text(rest, 5, most, &mut self.name)?;
                let value = read_entry_text(rest, 7, most, &mut self.value)?;
                insert(&mut self.table, Class::of(name), Name::Text(name), value)
            }
            0x20.. => {
                let number = integer::read(rest, 5)?;
                let size = usize::try_from(number).map_err(|_| Stop::Invalid)?;
                // RFC 9204 §4.3.1.
                if size > self.most {
                    return Err(Stop::Invalid);
                }
                self.table.resize(size);
                Ok(())
            }
            _ => self.duplicate(rest),
        }
    }

    /// RFC 9204 §4.3.4.
    fn duplicate(&mut self, rest: &mut &[u8]) -> Result<(), Stop> {
        let number = integer::read(rest, 5)?;
        let index = usize::try_from(number).map_err(|_| Stop::Invalid)?;
        let entry = self.table.get(index).ok_or(Stop::Invalid)?;
        let class = entry.class;
        self.value.clear();
        self.value.extend_from_slice(self.table.value(entry));
        insert(&mut self.table, class, Name::Of(index), &self.value)
    }

    /// Reads the begin of a block (§4.5.1).
    ///
    /// # Errors
    /// See [`BadBlock`]: the connection must end.
    pub fn prefix(&self, block: &[u8]) -> Result<Prefix, BadBlock> {
        let mut rest = block;
        let coded = integer::read(&mut rest, 8)?;
        let is_negative = rest.first().is_some_and(|first| first & 0x80 != 0);
        let delta = integer::read(&mut rest, 7)?;
        let required = self.required(coded).ok_or(BadBlock::BadPrefix)?;
        let base = if is_negative {
            required.checked_sub(delta + 1).ok_or(BadBlock::BadPrefix)?
        } else {
            required + delta
        };
        Ok(Prefix {
            required: u32::try_from(required).map_err(|_| BadBlock::BadPrefix)?,
            base,
            len: block.len() - rest.len(),
        })
    }

    /// The insertions that a block needs (§4.5.1.1).
    fn required(&self, coded: u64) -> Option<u64> {
        if coded == 0 {
            return Some(0);
        }
        let entries = (self.most / table::OVERHEAD) as u64;
        let range = 2 * entries;
        if coded > range {
            return None;
        }
        let largest = u64::from(self.insertions()) + entries;
        let required = largest / range * range + coded - 1;
        if required <= largest {
            return (required > 0).then_some(required);
        }
        required.checked_sub(range).filter(|required| *required > 0)
    }

    /// Reads a block whose insertions have all come.
    ///
    /// # Errors
    /// See [`BadBlock`]: the connection must end, unless it [is long](BadBlock::is_long).
    pub fn decode(
        &mut self,
        block: &[u8],
        (prefix, bounds): (&Prefix, Bounds),
        sink: &mut impl Sink,
    ) -> Result<(), BadBlock> {
        let mut reader = BlockReader {
            table: &self.table,
            prefix,
            left: bounds,
            name: &mut self.name,
            value: &mut self.value,
        };
        let outcome = reader.read(block.get(prefix.len..).unwrap_or_default(), sink);
        for text in [&mut self.name, &mut self.value] {
            text.clear();
            if text.capacity() > SCRATCH {
                text.shrink_to(SCRATCH);
            }
        }
        outcome
    }
}

/// The reason why an instruction was not obeyed.
enum Stop {
    NeedMore,
    Invalid,
}

impl From<BadInteger> for Stop {
    fn from(bad: BadInteger) -> Self {
        match bad {
            BadInteger::Truncated => Stop::NeedMore,
            BadInteger::TooLong => Stop::Invalid,
        }
    }
}

/// Adds an entry, which is no larger than the table (§3.2.2).
fn insert(table: &mut Table, class: Class, name: Name<'_>, value: &[u8]) -> Result<(), Stop> {
    let name_len = match name {
        Name::Text(text) => text.len(),
        Name::Of(index) => table.get(index).map_or(0, |entry| table.name(entry).len()),
    };
    let is_countable = table.newest() < u32::MAX;
    if name_len + value.len() + table::OVERHEAD > table.max() || !is_countable {
        return Err(Stop::Invalid);
    }
    let facts = Facts {
        class,
        is_good: is_good_value(value),
        before: 0,
    };
    table.insert(name, value, facts);
    Ok(())
}

/// Reads a text of an entry, whose length has a prefix of so many bits. INVARIANT 1.
fn read_entry_text<'a, 'b: 'a>(
    rest: &mut &'b [u8],
    prefix: u32,
    most: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], Stop> {
    let is_coded = rest.first().is_some_and(|first| first >> prefix & 1 != 0);
    let number = integer::read(rest, prefix)?;
    let len = usize::try_from(number).map_err(|_| Stop::Invalid)?;
    if len > if is_coded { most * CODED_MOST } else { most } {
        return Err(Stop::Invalid);
    }
    let (text, after) = rest.split_at_checked(len).ok_or(Stop::NeedMore)?;
    *rest = after;
    if !is_coded {
        return Ok(text);
    }
    scratch.clear();
    huffman::decode(text, scratch).map_err(|_| Stop::Invalid)?;
    if scratch.len() > most {
        return Err(Stop::Invalid);
    }
    Ok(scratch)
}

/// The reader of one block.
struct BlockReader<'a> {
    table: &'a Table,
    prefix: &'a Prefix,
    left: Bounds,
    name: &'a mut Vec<u8>,
    value: &'a mut Vec<u8>,
}

impl BlockReader<'_> {
    fn read(&mut self, block: &[u8], sink: &mut impl Sink) -> Result<(), BadBlock> {
        let mut rest = block;
        while let Some(first) = rest.first().copied() {
            let len = match first {
                // §4.5.2: the index of a field.
                0xc0.. => self.give_row(integer::read(&mut rest, 6)?, sink)?,
                0x80.. => {
                    let index = integer::read(&mut rest, 6)?;
                    self.give_entry(self.relative(index)?, sink)?
                }
                // §4.5.4: the index of a name.
                0x40.. => {
                    let index = integer::read(&mut rest, 4)?;
                    let named = if first & 0x10 != 0 {
                        Named::Row(index)
                    } else {
                        Named::Entry(self.relative(index)?)
                    };
                    self.give_value(named, &mut rest, sink)?
                }
                // §4.5.6: a name.
                0x20.. => self.give_literal(&mut rest, sink)?,
                // §4.5.3: the index of a field behind the base.
                0x10.. => {
                    let index = integer::read(&mut rest, 4)?;
                    self.give_entry(self.behind_base(index)?, sink)?
                }
                // §4.5.5: the index of a name behind the base.
                _ => {
                    let index = integer::read(&mut rest, 3)?;
                    let named = Named::Entry(self.behind_base(index)?);
                    self.give_value(named, &mut rest, sink)?
                }
            };
            // A field is no longer than what was left.
            self.left.list -= len;
        }
        Ok(())
    }

    /// The number of the entry of an index before the base (§3.2.5).
    fn relative(&self, index: u64) -> Result<u32, BadBlock> {
        let number = self.prefix.base.checked_sub(index);
        self.allowed(number.ok_or(BadBlock::BadIndex)?)
    }

    /// The number of the entry of an index behind the base (§3.2.6).
    fn behind_base(&self, index: u64) -> Result<u32, BadBlock> {
        self.allowed(self.prefix.base + index + 1)
    }

    /// RFC 9204 §2.2.3: no entry beyond those that the prefix says.
    fn allowed(&self, number: u64) -> Result<u32, BadBlock> {
        if number > u64::from(self.prefix.required) {
            return Err(BadBlock::BadIndex);
        }
        u32::try_from(number).map_err(|_| BadBlock::BadIndex)
    }

    fn row(index: u64) -> Result<Decoded<'static>, BadBlock> {
        let (class, name, value) = static_table::get(index).ok_or(BadBlock::BadIndex)?;
        Ok(Decoded {
            class: *class,
            name: name.as_bytes(),
            value: value.as_bytes(),
            is_good: true,
        })
    }

    fn entry(&self, number: u32) -> Result<Decoded<'_>, BadBlock> {
        let index = self.table.index_of(number).ok_or(BadBlock::BadIndex)?;
        let entry = self.table.get(index).ok_or(BadBlock::BadIndex)?;
        Ok(Decoded {
            class: entry.class,
            name: self.table.name(entry),
            value: self.table.value(entry),
            is_good: entry.is_good,
        })
    }

    fn give_row(&self, index: u64, sink: &mut impl Sink) -> Result<usize, BadBlock> {
        give(Self::row(index)?, self.left, sink)
    }

    fn give_entry(&self, number: u32, sink: &mut impl Sink) -> Result<usize, BadBlock> {
        give(self.entry(number)?, self.left, sink)
    }

    /// Gives out a field whose value stands in the block.
    fn give_value(
        &mut self,
        named: Named,
        rest: &mut &[u8],
        sink: &mut impl Sink,
    ) -> Result<usize, BadBlock> {
        let mut scratch = std::mem::take(self.value);
        let value = read_text(rest, 7, self.left.text, &mut scratch)?;
        let mut field = match named {
            Named::Row(index) => Self::row(index)?,
            Named::Entry(number) => self.entry(number)?,
        };
        (field.value, field.is_good) = (value, is_good_value(value));
        let given = give(field, self.left, sink);
        *self.value = scratch;
        given
    }

    /// Gives out a field whose name and value stand in the block.
    fn give_literal(&mut self, rest: &mut &[u8], sink: &mut impl Sink) -> Result<usize, BadBlock> {
        let name = read_text(rest, 3, self.left.text, self.name)?;
        let value = read_text(rest, 7, self.left.text, self.value)?;
        let field = Decoded {
            class: Class::of(name),
            name,
            value,
            is_good: is_good_value(value),
        };
        give(field, self.left, sink)
    }
}

/// The place of a field's name.
#[derive(Clone, Copy)]
enum Named {
    /// The index of a row of the static table.
    Row(u64),
    /// The number of an entry.
    Entry(u32),
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

/// Reads the text that `rest` begins with, whose length has a prefix of so many bits, and takes it
/// away; one that is coded is decoded into `scratch`.
fn read_text<'a, 'b: 'a>(
    rest: &mut &'b [u8],
    prefix: u32,
    most: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], BadBlock> {
    let is_coded = rest.first().is_some_and(|first| first >> prefix & 1 != 0);
    let number = integer::read(rest, prefix)?;
    let len = usize::try_from(number).map_err(|_| BadBlock::LongInteger)?;
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
