//! Fields, compressed into blocks (RFC 9204 §4.5), and the instructions that change the peer's
//! table (§4.3).
//!
//! ```text
//! a row, or an acknowledged entry ─► index      one of a name that repeats ─► literal, inserted
//! a secret ─► literal that nobody may index     any other ─► literal
//! ```
//!
//! A field that repeats is inserted when it comes first, and stands as its index in blocks once the
//! peer has told that it has the entry: no block waits. Which fields repeat is said by HPACK's
//! `policy`.
//!
//! 1. What goes out is one field of the same name and value, in small letters, without line ends.
//! 2. The table is no larger than the peer allows, nor than `TABLE_MOST`.
//! 3. An entry goes only if its insertion was acknowledged and so were all blocks that refer to it
//!    (§2.1.1).
//! 4. Values that are secrets stand in no table (§7.1.3).

use std::collections::VecDeque;

use bytes::{BufMut, BytesMut};
use millpond_semantics::decimal::{Backwards, DIGITS};

use super::integer::{self, BadInteger};
use super::static_table;
use crate::header::{Fields, Known};
use crate::http2::hpack::encode::OF_CONNECTIONS;
use crate::http2::hpack::huffman;
use crate::http2::hpack::name::{Class, is_good_value};
use crate::http2::hpack::policy::{self, LISTS, PSEUDO_LIST, Policy, Seen, list_of};
use crate::http2::hpack::table::{Facts, Name, OVERHEAD, Table};
use crate::http3::frame::write_integer;
use crate::http3::limits::{ENCODER_LEN_MOST, SECTIONS_MOST};

/// Most bytes of the table (as in HPACK).
const TABLE_MOST: u64 = 4096;
/// Entries of a name that a look-up tries (as in HPACK).
const TRIES: usize = 6;
/// Most bytes of an instruction of the peer: an integer of 62 bits.
const INSTRUCTION_MOST: usize = 10;

/// The reason why what the peer tells of its table cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAcknowledgement {
    /// An acknowledgement of what was not sent.
    Invalid,
    /// An acknowledgement of more than is borne.
    TooMany,
}

/// The field to be written next.
#[derive(Clone, Copy)]
struct Field<'a> {
    list: usize,
    /// The first row of its name.
    row: Option<u8>,
    name: &'a [u8],
    value: &'a [u8],
}

/// The result of a look-up in the dynamic table, by number.
enum Found {
    Field(u32),
    Name(u32),
    Nothing,
}

/// A block that refers to the table and was not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Section {
    stream: u64,
    /// The oldest entry that it refers to.
    lowest: u32,
    /// Insertions that it needs.
    required: u32,
}

/// References of the block that is written.
#[derive(Clone, Copy, Debug, Default)]
struct References {
    /// True if it may refer to the table.
    are_allowed: bool,
    /// The oldest one; zero if there is none.
    lowest: u32,
    /// The newest one.
    highest: u32,
}

/// The writer of a connection's blocks.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Entries that a table may have that is as large as the peer allows (§4.5.1.1).
    max_entries: u64,
    /// The number of the newest entry of each list; without memory before the first entry.
    newest: Vec<u32>,
    seen: Seen,
    /// Insertions that the peer has told that it has.
    known: u32,
    sections: VecDeque<Section>,
    /// The begin of what the peer tells.
    partial: Vec<u8>,
    instructions: BytesMut,
    references: References,
    fields: BytesMut,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// A writer without a table, until the peer allows one.
    #[must_use]
    pub fn new() -> Self {
        let mut table = Table::default();
        table.resize(0);
        Encoder {
            table,
            max_entries: 0,
            newest: Vec::new(),
            seen: Seen::default(),
            known: 0,
            sections: VecDeque::new(),
            partial: Vec::new(),
            instructions: BytesMut::new(),
            references: References::default(),
            fields: BytesMut::new(),
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Obeys the size that the peer allows, which it tells once. INVARIANT 2.
    pub fn set_max_size(&mut self, max: u64) {
        self.max_entries = max / OVERHEAD as u64;
        let size = max.min(TABLE_MOST);
        if size > 0 {
            self.table.resize(size as usize);
            integer::write(&mut self.instructions, 0x20, 5, size);
        }
    }

    /// Takes the instructions for the peer's table that are to be written on the encoder stream.
    pub fn take_instructions(&mut self) -> BytesMut {
        self.instructions.split()
    }

    /// True if there are instructions to be taken.
    #[must_use]
    pub fn has_instructions(&self) -> bool {
        !self.instructions.is_empty()
    }

    /// Begins a block.
    pub fn begin(&mut self) {
        self.references = References {
            are_allowed: self.sections.len() < SECTIONS_MOST,
            ..References::default()
        };
        self.fields.clear();
    }

    /// The two integers of the prefix.
    fn encoded_prefix(&self) -> [u64; 2] {
        let References { highest, .. } = self.references;
        if highest == 0 {
            return [0, 0];
        }
        // §4.5.1.1; the base is what the peer is known to have, so all references are before it.
        let required = u64::from(highest) % (2 * self.max_entries).max(1) + 1;
        [required, u64::from(self.known - highest)]
    }

    /// Ends a block of a stream: writes it as a HEADERS frame; returns its bytes without the
    /// frame's head.
    pub fn end(&mut self, stream: u64, out: &mut BytesMut) -> usize {
        let [required, delta] = self.encoded_prefix();
        let mut prefix = BytesMut::with_capacity(2 * INSTRUCTION_MOST);
        integer::write(&mut prefix, 0, 8, required);
        integer::write(&mut prefix, 0, 7, delta);
        let len = prefix.len() + self.fields.len();
        out.put_u8(1);
        write_integer(out, len as u64);
        out.put_slice(&prefix);
        out.put_slice(&self.fields);
        let References {
            lowest, highest, ..
        } = self.references;
        if highest > 0 {
            self.sections.push_back(Section {
                stream,
                lowest,
                required: highest,
            });
        }
        len
    }

    /// Reads what the peer tells on the decoder stream (§4.4); each word is paid for before.
    ///
    /// # Errors
    /// See [`BadAcknowledgement`]: the connection must end.
    pub fn heed(
        &mut self,
        bytes: &[u8],
        mut pay: impl FnMut() -> bool,
    ) -> Result<(), BadAcknowledgement> {
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let mut rest = &joined[..];
        while let Some(first) = rest.first().copied() {
            let prefix = if first & 0x80 != 0 { 7 } else { 6 };
            let value = match integer::read(&mut rest, prefix) {
                Ok(value) => value,
                Err(BadInteger::Truncated) => break,
                Err(BadInteger::TooLong) => return Err(BadAcknowledgement::Invalid),
            };
            if !pay() {
                return Err(BadAcknowledgement::TooMany);
            }
            match first {
                0x80.. => self.acknowledge(value)?,
                0x40.. => self.sections.retain(|section| section.stream != value),
                _ => self.count_known(value)?,
            }
        }
        // No more than one integer.
        self.partial = rest.to_vec();
        Ok(())
    }

    /// §4.4.1: the oldest block of a stream was read.
    fn acknowledge(&mut self, stream: u64) -> Result<(), BadAcknowledgement> {
        let at = self.sections.iter().position(|it| it.stream == stream);
        let section = at
            .and_then(|at| self.sections.remove(at))
            .ok_or(BadAcknowledgement::Invalid)?;
        self.known = self.known.max(section.required);
        Ok(())
    }

    /// §4.4.3.
    fn count_known(&mut self, increment: u64) -> Result<(), BadAcknowledgement> {
        let left = self.table.newest() - self.known;
        if increment == 0 || increment > u64::from(left) {
            return Err(BadAcknowledgement::Invalid);
        }
        // No more than what is left.
        self.known += increment as u32;
        Ok(())
    }

    /// Writes `:status`.
    pub fn write_status(&mut self, status: u16) {
        if let Some(row) = static_table::status(status) {
            return self.write_row(row);
        }
        let mut digits = Backwards::<DIGITS>::new();
        digits.prepend_number(u64::from(status));
        let field = Field {
            list: PSEUDO_LIST,
            row: Some(static_table::STATUS),
            name: b":status",
            value: digits.as_bytes(),
        };
        self.write_repeating(field, Class::Status);
    }

    /// Writes a pseudo field of a request.
    pub fn write_pseudo(&mut self, class: Class, name: &[u8], value: &[u8]) {
        let row = static_table::TABLE.iter().position(|row| row.0 == class);
        let field = Field {
            list: PSEUDO_LIST,
            // There are 99.
            row: row.map(|row| row as u8),
            name,
            value,
        };
        match class {
            // Another one in each request.
            Class::Path => self.write_literal(field, Indexing::Allowed),
            _ => self.write_repeating(field, class),
        }
    }

    /// Writes a field with a known name. `known` must not be `Other`.
    pub fn write_known(&mut self, known: Known, value: &[u8]) {
        self.write(known, (known.lower().as_bytes(), value));
    }

    /// Writes a length.
    pub fn write_content_length(&mut self, length: u64) {
        let mut digits = Backwards::<DIGITS>::new();
        digits.prepend_number(length);
        self.write_known(Known::ContentLength, digits.as_bytes());
    }

    /// Writes all fields in order, but for those that are about an HTTP/1 connection.
    pub fn write_fields(&mut self, fields: &Fields) {
        for field in fields {
            match field.known {
                Known::Other => self.write_any(&field.name, &field.value),
                known if OF_CONNECTIONS.contains(known) => {}
                known => self.write_known(known, &field.value),
            }
        }
    }

    /// Writes a field with a name that is not known, in small letters; one without a name is left
    /// out. INVARIANT 1.
    pub fn write_any(&mut self, name: &[u8], value: &[u8]) {
        if let Class::Field(Known::Other) = Class::of(name) {
            return self.write(Known::Other, (name, value));
        }
        let mut lower = std::mem::take(&mut self.name);
        policy::lower(name, &mut lower);
        if !lower.is_empty() {
            let known = Known::of(&lower);
            if !OF_CONNECTIONS.contains(known) {
                self.write(known, (&lower, value));
            }
        }
        self.name = lower;
    }

    #[inline]
    fn write(&mut self, known: Known, (name, value): (&[u8], &[u8])) {
        if !is_good_value(value) {
            return self.write_mended(known, (name, value));
        }
        let field = Field {
            list: list_of(known, name),
            row: static_table::place(known, name),
            name,
            value,
        };
        match Policy::of(known) {
            Policy::Repeating => self.write_repeating(field, Class::Field(known)),
            Policy::Changing => self.write_literal(field, Indexing::Allowed),
            Policy::Secret => self.write_literal(field, Indexing::Forbidden),
            Policy::Unknown if self.seen.is_second(field.list, value) => {
                self.write_repeating(field, Class::Field(known));
            }
            Policy::Unknown => self.write_literal(field, Indexing::Allowed),
        }
    }

    /// Writes a value without what would end a line. INVARIANT 1.
    #[cold]
    fn write_mended(&mut self, known: Known, (name, value): (&[u8], &[u8])) {
        let mut mended = std::mem::take(&mut self.value);
        policy::mend(value, &mut mended);
        self.write(known, (name, &mended));
        self.value = mended;
    }

    fn write_row(&mut self, row: u8) {
        integer::write(&mut self.fields, 0xc0, 6, u64::from(row));
    }

    /// Writes a field by its index, or inserts it, so that it has one when the peer has told so.
    fn write_repeating(&mut self, field: Field<'_>, class: Class) {
        if let Some(row) = field
            .row
            .and_then(|row| static_table::find(row, field.value))
        {
            return self.write_row(row);
        }
        let found = self.find(field);
        match found {
            Found::Field(number) if self.refer(number) => {
                let index = u64::from(self.known - number);
                integer::write(&mut self.fields, 0x80, 6, index);
            }
            // It is there, or on its way.
            Found::Field(_) => self.write_named(field, Indexing::Allowed, &found),
            Found::Name(_) | Found::Nothing => {
                self.write_named(field, Indexing::Allowed, &found);
                self.insert(field, class, &found);
            }
        }
    }

    /// Writes a field that is not inserted.
    fn write_literal(&mut self, field: Field<'_>, indexing: Indexing) {
        if indexing == Indexing::Allowed
            && let Some(row) = field
                .row
                .and_then(|row| static_table::find(row, field.value))
        {
            return self.write_row(row);
        }
        let found = match field.row {
            Some(_) => Found::Nothing,
            None => self.find(field),
        };
        self.write_named(field, indexing, &found);
    }

    /// Writes a literal, whose name stands in a table if it can.
    fn write_named(&mut self, field: Field<'_>, indexing: Indexing, found: &Found) {
        let is_forbidden = u8::from(indexing == Indexing::Forbidden);
        let number = match found {
            Found::Field(number) | Found::Name(number) => *number,
            Found::Nothing => 0,
        };
        if let Some(row) = field.row {
            integer::write(
                &mut self.fields,
                0x50 | is_forbidden << 5,
                4,
                u64::from(row),
            );
        } else if number > 0 && self.refer(number) {
            let index = u64::from(self.known - number);
            integer::write(&mut self.fields, 0x40 | is_forbidden << 5, 4, index);
        } else {
            write_text(&mut self.fields, 0x20 | is_forbidden << 4, 3, field.name);
        }
        write_text(&mut self.fields, 0, 7, field.value);
    }

    /// Notes that the block refers to an entry; false if it may not.
    fn refer(&mut self, number: u32) -> bool {
        let references = &mut self.references;
        if number > self.known || !references.are_allowed {
            return false;
        }
        references.highest = references.highest.max(number);
        references.lowest = match references.lowest {
            0 => number,
            lowest => lowest.min(number),
        };
        true
    }

    /// Looks a field up among the entries of its list.
    fn find(&self, field: Field<'_>) -> Found {
        let mut number = self.newest.get(field.list).copied().unwrap_or_default();
        let mut found = Found::Nothing;
        for _ in 0..TRIES {
            let Some(index) = self.table.index_of(number) else {
                break;
            };
            let Some(entry) = self.table.get(index) else {
                break;
            };
            if !policy::is_mixed(field.list) || self.table.name(entry) == field.name {
                if self.table.value(entry) == field.value {
                    return Found::Field(number);
                }
                found = Found::Name(number);
            }
            number = entry.before;
        }
        found
    }

    /// The oldest entry that must stay. INVARIANT 3.
    fn first_kept(&self) -> u32 {
        let own = Some(self.references.lowest).filter(|lowest| *lowest > 0);
        let sections = self.sections.iter().map(|section| section.lowest);
        let referred = sections.chain(own).min().unwrap_or(u32::MAX);
        referred.min(self.known.saturating_add(1))
    }

    /// Inserts a field, if there is room for it.
    fn insert(&mut self, field: Field<'_>, class: Class, found: &Found) {
        let len = field.name.len() + field.value.len();
        let is_countable = self.table.newest() < u32::MAX;
        if self.instructions.len() > ENCODER_LEN_MOST || !is_countable {
            return;
        }
        // All goes, or it is too large: only what may all go.
        let next = self.table.newest() + 1;
        let fits = len + OVERHEAD <= self.table.max();
        if !fits || self.table.oldest_beside(len).unwrap_or(next) > self.first_kept() {
            return;
        }
        if self.newest.is_empty() {
            self.newest.resize(LISTS, 0);
        }
        let out = &mut self.instructions;
        match (field.row, found) {
            (Some(row), _) => integer::write(out, 0xc0, 6, u64::from(row)),
            (None, Found::Name(number)) => {
                let index = u64::from(self.table.newest() - number);
                integer::write(out, 0x80, 6, index);
            }
            (None, _) => write_text(out, 0x40, 5, field.name),
        }
        write_text(out, 0, 7, field.value);
        if let Some(newest) = self.newest.get_mut(field.list) {
            let facts = Facts {
                class,
                is_good: true,
                before: *newest,
            };
            self.table
                .insert(Name::Text(field.name), field.value, facts);
            *newest = self.table.newest();
        }
    }
}

/// The choice to let others who write the field again put it into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indexing {
    Allowed,
    Forbidden,
}

/// Writes a text, coded if that is shorter, behind the bits of `first` that are not its length's
/// prefix and the bit before that.
#[inline]
fn write_text(out: &mut BytesMut, first: u8, prefix: u32, text: &[u8]) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::write(out, first | 1 << prefix, prefix, len as u64);
        huffman::encode(text, len, out);
    } else {
        integer::write(out, first, prefix, text.len() as u64);
        out.put_slice(text);
    }
}
