//! Fields, compressed into blocks (RFC 7541 §6).
//!
//! ```text
//! value seen before ─► index      one of a name that repeats ─► literal, and into the table
//! a secret ─► literal that nobody may index      any other ─► literal
//! ```
//!
//! The fields that go into the table are chosen by `policy`. Each entry names the one before it
//! of the same name, so that a look-up tries a few entries and searches nothing.
//!
//! 1. What goes out is one field of the same name and value, in small letters, without line ends.
//! 2. The table is no larger than the peer allows, nor than its default size.
//! 3. Values that are secrets stand in no table (RFC 7541 §7.1.3).

use bytes::{BufMut, BytesMut};
use millpond_semantics::decimal::{Backwards, DIGITS};

use super::name::{Class, is_good_value};
use super::policy::{self, LISTS, PSEUDO_LIST, Policy, Seen, list_of};
use super::table::{self, Facts, Name, Table};
use super::{huffman, integer, static_table};
use crate::header::{Fields, Known, KnownSet};

/// Fields that are about an HTTP/1 connection (RFC 9113 §8.2.2).
pub(crate) const OF_CONNECTIONS: KnownSet = KnownSet::of(&[
    Known::Connection,
    Known::ProxyConnection,
    Known::KeepAlive,
    Known::TransferEncoding,
    Known::Upgrade,
]);

/// Entries of a name that a look-up tries (arbitrary: kinds of content on a page are few).
const TRIES: usize = 6;

/// The field to be written next.
#[derive(Clone, Copy)]
struct Field<'a> {
    list: usize,
    /// The index of its name in the static table, or zero.
    place: usize,
    name: &'a [u8],
    value: &'a [u8],
}

/// The result of a look-up in the dynamic table, by index.
enum Found {
    Field(usize),
    Name(usize),
    Nothing,
}

/// The writer of a direction's blocks.
#[derive(Debug, Default)]
pub struct Encoder {
    table: Table,
    /// The number of the newest entry of each list; without memory before the first entry.
    newest: Vec<u32>,
    seen: Seen,
    /// The smallest and the last size that the peer was not told of.
    new_sizes: Option<(usize, usize)>,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Encoder {
    /// A writer whose table has the default size.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Obeys the size that a peer allows (RFC 9113 §6.5.2). INVARIANT 2.
    pub fn set_max_size(&mut self, max: usize) {
        let size = max.min(table::DEFAULT_SIZE);
        if size == self.table.max() {
            return;
        }
        self.table.resize(size);
        let least = self.new_sizes.map_or(size, |(least, _)| least.min(size));
        self.new_sizes = Some((least, size));
    }

    /// Begins a block: tells the sizes that are new (RFC 7541 §4.2).
    pub fn begin(&mut self, out: &mut BytesMut) {
        if let Some((least, last)) = self.new_sizes.take() {
            integer::write(out, 0x20, 5, least);
            if last != least {
                integer::write(out, 0x20, 5, last);
            }
        }
    }

    /// Writes `:status`.
    pub fn write_status(&mut self, out: &mut BytesMut, status: u16) {
        let index = static_table::status(status);
        if index > 0 {
            return integer::write(out, 0x80, 7, index);
        }
        let mut digits = Backwards::<DIGITS>::new();
        digits.prepend_number(u64::from(status));
        self.write_pseudo(out, (Class::Status, 8), digits.as_bytes());
    }

    /// Writes `:method`.
    pub fn write_method(&mut self, out: &mut BytesMut, method: &[u8]) {
        match method {
            b"GET" => integer::write(out, 0x80, 7, 2),
            b"POST" => integer::write(out, 0x80, 7, 3),
            method => self.write_pseudo(out, (Class::Method, 2), method),
        }
    }

    /// Writes `:scheme`.
    pub fn write_scheme(&mut self, out: &mut BytesMut, scheme: &[u8]) {
        match scheme {
            b"http" => integer::write(out, 0x80, 7, 6),
            b"https" => integer::write(out, 0x80, 7, 7),
            scheme => self.write_pseudo(out, (Class::Scheme, 6), scheme),
        }
    }

    /// Writes `:authority`.
    pub fn write_authority(&mut self, out: &mut BytesMut, authority: &[u8]) {
        self.write_pseudo(out, (Class::Authority, 1), authority);
    }

    /// Writes `:path`, which is another one in each request.
    pub fn write_path(&mut self, out: &mut BytesMut, path: &[u8]) {
        match path {
            b"/" => integer::write(out, 0x80, 7, 4),
            path => {
                integer::write(out, 0, 4, 4);
                write_text(out, path);
            }
        }
    }

    /// Writes a pseudo field whose values repeat.
    fn write_pseudo(&mut self, out: &mut BytesMut, (class, place): (Class, usize), value: &[u8]) {
        let field = Field {
            list: PSEUDO_LIST,
            place,
            // That of a row of the table.
            name: static_table::get(place).map_or(b"", |row| row.1.as_bytes()),
            value,
        };
        self.write_repeating(out, field, class);
    }

    /// Writes a field with a known name. `known` must not be `Other`.
    pub fn write_known(&mut self, out: &mut BytesMut, known: Known, value: &[u8]) {
        self.write(out, known, (known.lower().as_bytes(), value));
    }

    /// Writes a length.
    pub fn write_content_length(&mut self, out: &mut BytesMut, length: u64) {
        let mut digits = Backwards::<DIGITS>::new();
        digits.prepend_number(length);
        self.write_known(out, Known::ContentLength, digits.as_bytes());
    }

    /// Writes all fields in order, but for those that are about an HTTP/1 connection.
    pub fn write_fields(&mut self, out: &mut BytesMut, fields: &Fields) {
        for field in fields {
            match field.known {
                Known::Other => self.write_any(out, &field.name, &field.value),
                known if OF_CONNECTIONS.contains(known) => {}
                known => self.write_known(out, known, &field.value),
            }
        }
    }

    /// Writes a field with a name that is not known, in small letters; one without a name is left
    /// out. INVARIANT 1.
    pub fn write_any(&mut self, out: &mut BytesMut, name: &[u8], value: &[u8]) {
        if let Class::Field(Known::Other) = Class::of(name) {
            return self.write(out, Known::Other, (name, value));
        }
        let mut lower = std::mem::take(&mut self.name);
        policy::lower(name, &mut lower);
        if !lower.is_empty() {
            let known = Known::of(&lower);
            if !OF_CONNECTIONS.contains(known) {
                self.write(out, known, (&lower, value));
            }
        }
        self.name = lower;
    }

    #[inline]
    fn write(&mut self, out: &mut BytesMut, known: Known, (name, value): (&[u8], &[u8])) {
        if !is_good_value(value) {
            return self.write_mended(out, known, (name, value));
        }
        let field = Field {
            list: list_of(known, name),
            place: static_table::place(known, name),
            name,
            value,
        };
        match Policy::of(known) {
            Policy::Repeating => self.write_repeating(out, field, Class::Field(known)),
            Policy::Changing => self.write_literal(out, field, 0),
            Policy::Secret => self.write_literal(out, field, 0x10),
            Policy::Unknown => self.write_on_second_sight(out, field, known),
        }
    }

    /// Writes a value without what would end a line. INVARIANT 1.
    #[cold]
    fn write_mended(&mut self, out: &mut BytesMut, known: Known, (name, value): (&[u8], &[u8])) {
        let mut mended = std::mem::take(&mut self.value);
        policy::mend(value, &mut mended);
        self.write(out, known, (name, &mended));
        self.value = mended;
    }

    /// Writes a field by its index, or so that it has one from now on.
    fn write_repeating(&mut self, out: &mut BytesMut, field: Field<'_>, class: Class) {
        match self.find(field) {
            Found::Field(index) => integer::write(out, 0x80, 7, dynamic(index)),
            Found::Name(index) => {
                let place = if field.place == 0 {
                    dynamic(index)
                } else {
                    field.place
                };
                integer::write(out, 0x40, 6, place);
                write_text(out, field.value);
                self.insert(field, class);
            }
            Found::Nothing => {
                integer::write(out, 0x40, 6, field.place);
                if field.place == 0 {
                    write_text(out, field.name);
                }
                write_text(out, field.value);
                self.insert(field, class);
            }
        }
    }

    /// Writes a field, and lets it have an index when it comes for the second time.
    fn write_on_second_sight(&mut self, out: &mut BytesMut, field: Field<'_>, known: Known) {
        if self.seen.is_second(field.list, field.value) {
            self.write_repeating(out, field, Class::Field(known));
        } else {
            self.write_literal(out, field, 0);
        }
    }

    /// Writes a field that gets no index; `first` has the bits that say how it is to be treated.
    fn write_literal(&mut self, out: &mut BytesMut, field: Field<'_>, first: u8) {
        let place = match field.place {
            0 => match self.find(field) {
                Found::Field(index) | Found::Name(index) => dynamic(index),
                Found::Nothing => 0,
            },
            place => place,
        };
        integer::write(out, first, 4, place);
        if place == 0 {
            write_text(out, field.name);
        }
        write_text(out, field.value);
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
            // The lists of names that are not known have several.
            if !policy::is_mixed(field.list) || self.table.name(entry) == field.name {
                if self.table.value(entry) == field.value {
                    return Found::Field(index);
                }
                found = Found::Name(index);
            }
            number = entry.before;
        }
        found
    }

    fn insert(&mut self, field: Field<'_>, class: Class) {
        if self.newest.is_empty() {
            self.newest.resize(LISTS, 0);
        }
        let Some(newest) = self.newest.get_mut(field.list) else {
            return;
        };
        let facts = Facts {
            class,
            is_good: true,
            before: *newest,
        };
        let before = self.table.newest();
        self.table
            .insert(Name::Text(field.name), field.value, facts);
        // One that is larger than the table is not in it.
        if self.table.newest() != before {
            *newest = self.table.newest();
        }
    }
}

/// The index on the wire of an entry of the dynamic table.
fn dynamic(index: usize) -> usize {
    static_table::TABLE.len() + 1 + index
}

/// Writes a text: coded, if that is shorter.
#[inline]
fn write_text(out: &mut BytesMut, text: &[u8]) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::write(out, 0x80, 7, len);
        huffman::encode(text, len, out);
    } else {
        integer::write(out, 0, 7, text.len());
        out.put_slice(text);
    }
}
