//! The dynamic table of HPACK (RFC 7541 §2.3.2, §4): fields that came lately, the newest first.
//!
//! ```text
//! entries   oldest ─────────────────► newest       index 0 is the newest
//! texts     [gone …][name value][name value] …     each entry's name, and its value behind it
//! ```
//!
//! Texts stand one behind the other; those that are gone are cut off when they are as many as the
//! table may hold, so that an entry costs two copies at most and no allocation.
//!
//! 1. The sum of the entries' sizes is no more than the table's size, at all times.
//! 2. An entry that is larger than the table empties it, and is no error (§4.4).

use std::collections::VecDeque;
use std::ops::Range;

use super::name::Class;

/// The size of a table unless others were agreed on (RFC 9113 §6.5.2).
pub(crate) const DEFAULT_SIZE: usize = 4096;
/// Bytes that an entry counts besides its texts (RFC 7541 §4.1).
pub(crate) const OVERHEAD: usize = 32;

/// The facts of an entry besides its texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    start: u32,
    name_len: u32,
    value_len: u32,
    /// The number of the entry before it that a writer looks at next; zero for none.
    pub(crate) before: u32,
    /// The class of the name.
    pub(crate) class: Class,
    /// True if the value may stand in a field.
    pub(crate) is_good: bool,
}

impl Entry {
    fn size(&self) -> usize {
        (self.name_len + self.value_len) as usize + OVERHEAD
    }

    fn end(&self) -> usize {
        (self.start + self.name_len + self.value_len) as usize
    }

    fn name(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.name_len as usize
    }

    fn value(&self) -> Range<usize> {
        self.name().end..self.end()
    }
}

/// The name of an entry to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'a> {
    /// A text.
    Text(&'a [u8]),
    /// The name of an entry.
    Of(usize),
}

/// The rest of an entry to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) class: Class,
    pub(crate) is_good: bool,
    pub(crate) before: u32,
}

/// A dynamic table.
#[derive(Debug)]
pub(crate) struct Table {
    entries: VecDeque<Entry>,
    texts: Vec<u8>,
    size: usize,
    max: usize,
    /// The number of the newest entry; the first one ever has number one.
    newest: u32,
}

impl Default for Table {
    fn default() -> Self {
        Table {
            entries: VecDeque::new(),
            texts: Vec::new(),
            size: 0,
            max: DEFAULT_SIZE,
            newest: 0,
        }
    }
}

impl Table {
    /// The most that the entries may count.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// The number of the newest entry.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    /// The index of the entry of a number, if it is still there.
    #[inline]
    pub(crate) fn index_of(&self, number: u32) -> Option<usize> {
        let index = self.newest.checked_sub(number)? as usize;
        (number > 0 && index < self.entries.len()).then_some(index)
    }

    /// The number of the oldest entry that would be left if one of so many bytes of texts came;
    /// none if all would go, or it is larger than the table.
    pub(crate) fn oldest_beside(&self, len: usize) -> Option<u32> {
        let room = self.max.checked_sub(len + OVERHEAD)?;
        let mut left = self.size;
        let first = self.newest - self.entries.len() as u32 + 1;
        for (entry, number) in self.entries.iter().zip(first..) {
            if left <= room {
                return Some(number);
            }
            left -= entry.size();
        }
        None
    }

    /// The entry of an index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(self.entries.len().checked_sub(index + 1)?)
    }

    /// The name of an entry.
    #[inline]
    pub(crate) fn name(&self, entry: &Entry) -> &[u8] {
        self.texts.get(entry.name()).unwrap_or_default()
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, entry: &Entry) -> &[u8] {
        self.texts.get(entry.value()).unwrap_or_default()
    }

    /// Sets the most that the entries may count, and evicts what is too much (§4.3).
    pub(crate) fn resize(&mut self, max: usize) {
        self.max = max;
        self.evict_down_to(max);
        self.cut_texts();
    }

    /// Adds an entry, and evicts as many as must go for it (§4.4).
    pub(crate) fn insert(&mut self, name: Name<'_>, value: &[u8], facts: Facts) {
        let name_len = match name {
            Name::Text(text) => text.len(),
            Name::Of(index) => self.get(index).map_or(0, |entry| entry.name_len as usize),
        };
        let size = name_len + value.len() + OVERHEAD;
        // INVARIANT 2.
        if size > self.max {
            self.evict_down_to(0);
            return self.cut_texts();
        }
        let start = self.texts.len();
        // The entry whose name is taken may be one that goes: the text is copied first.
        match name {
            Name::Text(text) => self.texts.extend_from_slice(text),
            Name::Of(index) => {
                let from = self.get(index).map_or(0..0, Entry::name);
                self.texts.extend_from_within(from);
            }
        }
        self.texts.extend_from_slice(value);
        self.evict_down_to(self.max - size);
        self.size += size;
        self.newest = self.newest.wrapping_add(1);
        self.entries.push_back(Entry {
            // A table is no larger than what a setting says, and texts twice as long at most.
            start: start as u32,
            name_len: name_len as u32,
            value_len: value.len() as u32,
            before: facts.before,
            class: facts.class,
            is_good: facts.is_good,
        });
        self.cut_texts();
    }

    /// INVARIANT 1.
    fn evict_down_to(&mut self, most: usize) {
        while self.size > most
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.size();
        }
    }

    /// Cuts off the texts of entries that are gone, once they are as long as the table.
    fn cut_texts(&mut self) {
        let Some(oldest) = self.entries.front() else {
            return self.texts.clear();
        };
        let gone = oldest.start;
        if gone as usize > self.max {
            self.texts.drain(..gone as usize);
            for entry in &mut self.entries {
                entry.start -= gone;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        class: Class::Odd,
        is_good: true,
        before: 0,
    };

    fn texts(table: &Table) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (0..table.entries.len())
            .map(|index| {
                let entry = table.get(index).unwrap();
                (text(table.name(entry)), text(table.value(entry)))
            })
            .collect()
    }

    /// RFC 7541 §4.1 and §4.4.
    #[test]
    fn entries_count_their_texts_and_32_bytes() {
        let mut table = Table::default();
        table.resize(2 * (OVERHEAD + 2));
        for name in [b"a", b"b", b"c"] {
            table.insert(Name::Text(name), b"1", FACTS);
        }
        assert_eq!(texts(&table), [("c", "1"), ("b", "1")].map(own));
        table.resize(OVERHEAD + 2);
        assert_eq!(texts(&table), [("c", "1")].map(own));
    }

    fn own((name, value): (&str, &str)) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    /// RFC 7541 §4.4: an entry larger than the table empties it; a name may be that of an entry
    /// which goes for the new one.
    #[test]
    fn a_name_of_an_entry_that_goes_is_kept_and_what_is_too_large_empties() {
        let mut table = Table::default();
        table.resize(OVERHEAD + 6);
        table.insert(Name::Text(b"name"), b"1", FACTS);
        table.insert(Name::Of(0), b"2", FACTS);
        assert_eq!(texts(&table), [("name", "2")].map(own));
        table.insert(Name::Of(0), b"three", FACTS);
        assert_eq!(texts(&table), []);
    }

    #[test]
    fn texts_stay_right_and_few_whatever_comes_and_goes() {
        let mut table = Table::default();
        table.resize(500);
        for number in 0..5000_usize {
            let value = "v".repeat(number % 120);
            table.insert(
                Name::Text(number.to_string().as_bytes()),
                value.as_bytes(),
                FACTS,
            );
            let kept = texts(&table);
            for (index, (name, value)) in kept.iter().enumerate() {
                let of = number - index;
                assert_eq!((name.as_str(), value.len()), (&*of.to_string(), of % 120));
            }
            let size: usize = kept.iter().map(|(a, b)| a.len() + b.len() + OVERHEAD).sum();
            assert!(size <= 500 && size == table.size);
            assert!(table.texts.len() <= 3 * 500, "{}", table.texts.len());
            assert_eq!(table.index_of(table.newest()), Some(0));
        }
        assert_eq!(table.index_of(0), None);
        assert_eq!(table.index_of(1), None);
    }
}
