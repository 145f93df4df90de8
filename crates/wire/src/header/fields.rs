//! An ordered list of fields that can be changed, part of which other lists may share.
//!
//! Answers from the cache begin with the same fields each time. They are shared, with the bytes
//! that they are written as, until a list changes one of them; what a list adds is its own.
//!
//! 1. The shared fields stand before a list's own ones.
//! 2. A list whose shared fields are changed has copied them first. To remove those of a known name
//!    is no change: they are only hidden.
//! 3. Only known names are hidden.
//!
//! The memory of a list that ended is that of the next one.

use std::any::Any;
use std::cell::Cell;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Field, Known, KnownSet, is_underscored};

/// Fields that several lists begin with, and in the same memory what their owner wants to know
/// with them.
#[derive(Debug)]
pub struct SharedFields<T: ?Sized = dyn Any + Send + Sync> {
    list: Box<[Field]>,
    present: KnownSet,
    lines: Box<[u8]>,
    /// The offset in `lines` at which the line of each field ends.
    ends: Box<[usize]>,
    /// A value that the owner of the fields keeps beside them.
    pub with: T,
}

impl<T> SharedFields<T> {
    /// Shares the fields; `write` writes the line of one, with its end.
    #[must_use]
    pub fn new(fields: Fields, with: T, mut write: impl FnMut(&mut BytesMut, &Field)) -> Self {
        let list: Box<[Field]> = fields.into_iter().collect();
        let mut present = KnownSet::default();
        let mut lines = BytesMut::new();
        let write_line = |field: &Field| {
            present.insert(field.known);
            write(&mut lines, field);
            lines.len()
        };
        let ends = list.iter().map(write_line).collect();
        SharedFields {
            list,
            present,
            lines: lines[..].into(),
            ends,
            with,
        }
    }

    /// Bytes of memory that the fields take, without values and names.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.list) + size_of_val(&*self.ends) + self.lines.len()
    }
}

impl<T: ?Sized> SharedFields<T> {
    /// Gives out the lines of fields whose names are not hidden, neighbours as one.
    fn visible_lines(&self, hidden: KnownSet, mut take_lines: impl FnMut(&[u8])) {
        let mut take = |from: usize, to: usize| {
            if from < to {
                take_lines(self.lines.get(from..to).unwrap_or_default());
            }
        };
        let (mut start, mut after) = (0, 0);
        for (field, end) in self.list.iter().zip(&self.ends) {
            if hidden.contains(field.known) {
                take(start, after);
                start = *end;
            }
            after = *end;
        }
        take(start, after);
    }
}

/// Most fields of a list whose memory is used again (arbitrary: more than most answers add).
const SPARE_FIELDS: usize = 16;

thread_local! {
    /// The memory of the list that ended last.
    static SPARE: Cell<Option<Box<List>>> = const { Cell::new(None) };
}

#[derive(Clone, Debug, Default)]
struct List(Vec<Field>);

/// The fields of one list: no memory while there are none, and then that of a list that ended.
#[derive(Clone, Debug, Default)]
struct Own(
    // Boxed, since most lists stay empty and every request has several.
    Option<Box<List>>,
);

impl Own {
    fn list(&mut self) -> &mut Vec<Field> {
        let list = self
            .0
            .get_or_insert_with(|| SPARE.take().unwrap_or_default());
        &mut list.0
    }
}

impl Deref for Own {
    type Target = [Field];

    fn deref(&self) -> &[Field] {
        self.0.as_deref().map_or(&[], |list| &list.0)
    }
}

impl Drop for Own {
    // Most are empty.
    #[inline]
    fn drop(&mut self) {
        if let Some(list) = self.0.take() {
            give_back(list);
        }
    }
}

/// Keeps the memory of a list for the next one.
#[inline(never)]
fn give_back(mut list: Box<List>) {
    list.0.clear();
    if list.0.capacity() <= SPARE_FIELDS {
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| spare.set(Some(list)));
    }
}

/// An ordered list of fields that can be changed.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    shared: Option<Arc<SharedFields>>,
    /// Names of shared fields that were removed.
    hidden: KnownSet,
    own: Own,
}

/// The fields of a list, in order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    shared: slice::Iter<'a, Field>,
    hidden: KnownSet,
    own: slice::Iter<'a, Field>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Field;

    fn next(&mut self) -> Option<&'a Field> {
        let hidden = self.hidden;
        let shared = self.shared.find(|field| !hidden.contains(field.known));
        shared.or_else(|| self.own.next())
    }
}

impl Fields {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            shared: None,
            hidden: KnownSet::of(&[]),
            own: Own(None),
        }
    }

    /// An empty list with room for `count` fields.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        let mut fields = Self::new();
        fields.own.list().reserve(count);
        fields
    }

    /// A list that begins with these, but for some of known names.
    #[must_use]
    pub fn beginning_with(shared: Arc<SharedFields>, hidden: KnownSet) -> Self {
        Self {
            shared: Some(shared),
            hidden,
            own: Own::default(),
        }
    }

    /// Shows a hidden field again if it has this value; says whether it does.
    pub fn show_again(&mut self, known: Known, value: &[u8]) -> bool {
        let shared = self
            .shared
            .as_deref()
            .map_or(&[][..], |shared| &shared.list);
        let is_other = |field: &Field| field.known == known && field.value != value;
        let is_hidden = self.hidden.contains(known) && !shared.iter().any(is_other);
        if is_hidden {
            self.hidden.remove(known);
        }
        is_hidden
    }

    /// Gives out the lines of the fields that it shares, several at once where it can, and then the
    /// fields that are its own.
    pub(crate) fn parts(&self, mut take_lines: impl FnMut(&[u8])) -> &[Field] {
        if let Some(shared) = &self.shared {
            if self.hidden.and(shared.present).is_empty() {
                take_lines(&shared.lines);
            } else {
                shared.visible_lines(self.hidden, take_lines);
            }
        }
        &self.own
    }

    /// Bytes of the lines that the list shares, at most.
    #[must_use]
    pub fn shared_len(&self) -> usize {
        let shared = self.shared.as_deref();
        shared.map_or(0, |shared| shared.lines.len())
    }

    /// Adds a field at the end.
    pub fn push(&mut self, field: Field) {
        self.own.list().push(field);
    }

    /// Adds a field with a known name at the end.
    pub fn push_known(&mut self, known: Known, value: impl Into<Bytes>) {
        self.push(Field::known(known, value.into()));
    }

    /// Makes one field of this name with this value: the first of that name takes the value, the
    /// others go; if there is none, it is added at the end.
    pub fn set(&mut self, known: Known, value: impl Into<Bytes>) {
        let mut value = Some(value.into());
        if self.shows(known) {
            self.all_own();
        }
        if self.own.iter().any(|field| field.known == known) {
            self.own.list().retain_mut(|field| {
                if field.known != known {
                    return true;
                }
                match value.take() {
                    Some(value) => {
                        field.value = value;
                        true
                    }
                    None => false,
                }
            });
        }
        if let Some(value) = value {
            self.push_known(known, value);
        }
    }

    /// Removes all fields of this name; says how many there were.
    pub fn remove(&mut self, known: Known) -> usize {
        // INVARIANT 3: `Other` is many names.
        if known == Known::Other {
            self.all_own();
        }
        let mut count = 0;
        if self.shows(known) {
            count = self.iter().filter(|field| field.known == known).count();
            count -= self.own.iter().filter(|field| field.known == known).count();
            self.hidden.insert(known);
        }
        count + self.drop_where(|field| field.known == known)
    }

    /// Removes all fields of these names.
    pub fn remove_all(&mut self, names: KnownSet) {
        // INVARIANT 3: `Other` is many names.
        if names.contains(Known::Other) {
            self.all_own();
        }
        if let Some(shared) = &self.shared {
            self.hidden = self.hidden.or(names.and(shared.present));
        }
        self.drop_where(|field| names.contains(field.known));
    }

    /// Removes all fields of this name, in any case; says how many there were.
    pub fn remove_name(&mut self, name: &[u8]) -> usize {
        self.all_own();
        self.drop_where(|field| field.name.eq_ignore_ascii_case(name))
    }

    /// Keeps the fields for which `keep` says so.
    pub fn retain(&mut self, keep: impl FnMut(&Field) -> bool) {
        self.all_own().retain(keep);
    }

    /// Keeps fields as [`Self::retain`] does, with a `keep` that may change the fields' values.
    pub fn retain_mut(&mut self, keep: impl FnMut(&mut Field) -> bool) {
        self.all_own().retain_mut(keep);
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The first value of this name.
    #[must_use]
    pub fn get(&self, known: Known) -> Option<&Bytes> {
        let is_it = |field: &&Field| field.known == known;
        let found = match &self.shared {
            Some(shared) if self.shows(known) => shared.list.iter().find(is_it),
            _ => None,
        };
        let found = found.or_else(|| self.own.iter().find(is_it));
        found.map(|field| &field.value)
    }

    /// All values of this name, in order.
    pub fn get_all(&self, known: Known) -> impl Iterator<Item = &Bytes> {
        let shared: &[Field] = match &self.shared {
            Some(shared) if self.shows(known) => &shared.list,
            _ => &[],
        };
        shared
            .iter()
            .chain(&*self.own)
            .filter(move |field| field.known == known)
            .map(|field| &field.value)
    }

    /// True if there is a field of this name.
    #[must_use]
    pub fn contains(&self, known: Known) -> bool {
        self.get(known).is_some()
    }

    /// True if there is a field of one of these names.
    #[must_use]
    pub fn has_any(&self, names: KnownSet) -> bool {
        let shared = self.shared.as_deref();
        let shared = shared.map_or(KnownSet::default(), |shared| shared.present);
        !shared.and(names).less(self.hidden).is_empty()
            || self.own.iter().any(|field| names.contains(field.known))
    }

    /// The first value of this name, in any case.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Bytes> {
        self.find_all(name).next()
    }

    /// All values of this name, in any case, in order.
    pub fn find_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a Bytes> {
        self.iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| &field.value)
    }

    /// The first value whose name, in small letters and with `_` for `-`, is `name`: how the
    /// names of variables such as `$sent_http_x_real_ip` are looked up.
    #[must_use]
    pub fn find_underscored(&self, name: &[u8]) -> Option<&Bytes> {
        self.find_all_underscored(name).next()
    }

    /// All values that [`Self::find_underscored`] would find, in order.
    pub fn find_all_underscored<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a Bytes> {
        self.iter()
            .filter(move |field| is_underscored(&field.name, name))
            .map(|field| &field.value)
    }

    /// The fields in order.
    pub fn iter(&self) -> Iter<'_> {
        let shared = self.shared.as_deref();
        Iter {
            shared: shared.map_or(&[][..], |shared| &shared.list).iter(),
            hidden: self.hidden,
            own: self.own.iter(),
        }
    }

    /// The fields in order, to be changed; whoever changes a name must keep `known` right.
    pub fn iter_mut(&mut self) -> slice::IterMut<'_, Field> {
        self.all_own().iter_mut()
    }

    /// The count of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// True if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn drop_where(&mut self, is_dropped: impl Fn(&Field) -> bool) -> usize {
        let before = self.own.len();
        if before > 0 {
            self.own.list().retain(|field| !is_dropped(field));
        }
        before - self.own.len()
    }

    /// True if there are shared fields of this name that were not removed.
    fn shows(&self, known: Known) -> bool {
        let shared = self.shared.as_deref();
        shared.is_some_and(|shared| shared.present.contains(known)) && !self.hidden.contains(known)
    }

    /// INVARIANT 2, for who may change any.
    fn all_own(&mut self) -> &mut Vec<Field> {
        if self.shared.is_some() {
            // With room for one more.
            let mut all = Vec::with_capacity(self.len() + 1);
            all.extend(self.iter().cloned());
            *self = Self::new();
            self.own = Own(Some(Box::new(List(all))));
        }
        self.own.list()
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Fields {}

impl Extend<Field> for Fields {
    fn extend<I: IntoIterator<Item = Field>>(&mut self, fields: I) {
        self.own.list().extend(fields);
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        let mut list = Self::new();
        list.extend(fields);
        list
    }
}

impl IntoIterator for Fields {
    type Item = Field;
    type IntoIter = std::vec::IntoIter<Field>;

    fn into_iter(mut self) -> Self::IntoIter {
        std::mem::take(self.all_own()).into_iter()
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a Field;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &'static str, value: &'static str) -> Field {
        Field::new(Bytes::from_static(name.as_bytes()), value.into())
    }

    fn write(out: &mut BytesMut, field: &Field) {
        for part in [&field.name, ": ".as_bytes(), &field.value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }

    fn written(list: &Fields) -> BytesMut {
        let mut out = BytesMut::new();
        let own = list.parts(|lines| out.extend_from_slice(lines));
        own.iter().for_each(|field| write(&mut out, field));
        out
    }

    /// A list that shares two fields and has one of its own, and the same without sharing.
    fn both() -> [Fields; 2] {
        let base: Fields = [field("ETag", "x"), field("X-A", "1")]
            .into_iter()
            .collect();
        let shared = Arc::new(SharedFields::new(base.clone(), (), write));
        let none = KnownSet::default();
        [Fields::beginning_with(shared, none), base].map(|mut list| {
            list.push(field("Via", "v"));
            list
        })
    }

    #[test]
    fn what_is_hidden_is_shown_again_as_it_was() {
        let base: Fields = [field("ETag", "x"), field("Age", "1")]
            .into_iter()
            .collect();
        let shared = Arc::new(SharedFields::new(base.clone(), (), write));
        let mut list = Fields::beginning_with(shared, KnownSet::of(&[Known::Age]));
        assert_eq!((list.get(Known::Age), list.len()), (None, 1));
        assert_eq!(written(&list), "ETag: x\r\n");
        assert!(!list.show_again(Known::Age, b"2"));
        assert!(!list.show_again(Known::ETag, b"x"), "it is not hidden");
        assert!(list.show_again(Known::Age, b"1"));
        assert_eq!(list, base);
        assert_eq!(written(&list), "ETag: x\r\nAge: 1\r\n");
    }

    #[test]
    fn lines_between_hidden_ones_are_given_out_together() {
        let names = [
            Known::ETag,
            Known::Age,
            Known::Via,
            Known::Vary,
            Known::Date,
        ];
        let base: Fields = names
            .iter()
            .map(|known| Field::known(*known, Bytes::from_static(b"x")))
            .collect();
        let shared: Arc<SharedFields> = Arc::new(SharedFields::new(base, (), write));
        for hidden in 0..1 << names.len() {
            let is_hidden = |index: usize| hidden & (1 << index) != 0;
            let mut list = Fields::beginning_with(shared.clone(), KnownSet::default());
            let mut set = KnownSet::default();
            for (index, known) in names.iter().enumerate().filter(|(it, _)| is_hidden(*it)) {
                match index % 2 {
                    0 => set.insert(*known),
                    _ => assert_eq!(list.remove(*known), 1),
                }
            }
            list.remove_all(set);
            let plain: Fields = list.iter().cloned().collect();
            assert_eq!(written(&list), written(&plain), "{hidden:b}");
            let mut pieces = 0;
            let _ = list.parts(|_| pieces += 1);
            let begins = |at: &usize| !is_hidden(*at) && (*at == 0 || is_hidden(*at - 1));
            let expected = (0..names.len()).filter(begins).count();
            assert_eq!(pieces, expected, "{hidden:b}");
        }
    }

    type Change = fn(&mut Fields) -> usize;

    /// Changes of a list, and whether it shares fields afterwards.
    const CHANGES: [(&str, Change, bool); 14] = [
        ("nothing", |_| 0, true),
        (
            "another",
            |list| {
                list.set(Known::Age, "3");
                0
            },
            true,
        ),
        (
            "its own",
            |list| {
                list.set(Known::Via, "w");
                0
            },
            true,
        ),
        ("its own gone", |list| list.remove(Known::Via), true),
        ("none of that name", |list| list.remove(Known::Server), true),
        (
            "a shared one",
            |list| {
                list.set(Known::ETag, "y");
                0
            },
            false,
        ),
        ("a shared one gone", |list| list.remove(Known::ETag), true),
        (
            "a shared one gone twice",
            |list| list.remove(Known::ETag) + list.remove(Known::ETag),
            true,
        ),
        (
            "a shared one gone and come again",
            |list| {
                list.remove(Known::ETag);
                list.set(Known::ETag, "y");
                list.push_known(Known::ETag, "z");
                list.remove(Known::ETag)
            },
            true,
        ),
        (
            "all of unknown names",
            |list| list.remove(Known::Other),
            false,
        ),
        (
            "all of two names",
            |list| {
                list.remove_all(KnownSet::of(&[Known::ETag, Known::Via, Known::Age]));
                list.push_known(Known::ETag, "z");
                0
            },
            true,
        ),
        (
            "all of unknown names and another",
            |list| {
                list.remove_all(KnownSet::of(&[Known::Other, Known::Via]));
                0
            },
            false,
        ),
        ("by name", |list| list.remove_name(b"x-a"), false),
        (
            "by rule",
            |list| {
                list.retain(|field| field.name != "X-A");
                0
            },
            false,
        ),
    ];

    #[test]
    fn a_list_is_the_same_whether_or_not_it_shares() {
        for (what, change, still_shares) in CHANGES {
            let [mut sharing, mut plain] = both();
            assert_eq!(change(&mut sharing), change(&mut plain), "{what}");
            assert_eq!(sharing, plain, "{what}");
            assert_eq!(sharing.len(), plain.len(), "{what}");
            assert_eq!(sharing.get(Known::ETag), plain.get(Known::ETag), "{what}");
            assert_eq!(sharing.find(b"X-a"), plain.find(b"X-a"), "{what}");
            assert_eq!(sharing.shared.is_some(), still_shares, "{what}");
            assert_eq!(written(&sharing), written(&plain), "{what}");
            assert_eq!(sharing.is_empty(), plain.is_empty(), "{what}");
            for known in [Known::ETag, Known::Via, Known::Age, Known::Server] {
                let names = KnownSet::of(&[known, Known::Date]);
                assert_eq!(sharing.has_any(names), plain.contains(known), "{what}");
                assert_eq!(plain.has_any(names), plain.contains(known), "{what}");
            }
            let (one, other): (Vec<_>, Vec<_>) =
                (sharing.into_iter().collect(), plain.into_iter().collect());
            assert_eq!(one, other, "{what}");
        }
    }
}
