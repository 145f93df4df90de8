//! An ordered list of fields that can be changed, part of which other lists may share.
//!
//! Answers from the cache begin with the same fields each time. They are shared, with the bytes
//! that they are written as, until a list changes one of them; what a list adds is its own.
//!
//! 1. The shared fields stand before a list's own ones.
//! 2. A list whose shared fields are changed has copied them first.

use std::iter::Chain;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;

use super::{Field, Known, KnownSet, is_underscored};

/// Fields that several lists begin with.
#[derive(Debug)]
pub struct SharedFields {
    list: Box<[Field]>,
    present: KnownSet,
    lines: Box<[u8]>,
}

impl SharedFields {
    /// These fields; `lines` is what they are written as, line ends included.
    #[must_use]
    pub fn new(fields: Fields, lines: &[u8]) -> Self {
        let list: Box<[Field]> = fields.into_iter().collect();
        let mut present = KnownSet::default();
        for field in &list {
            present.insert(field.known);
        }
        SharedFields {
            list,
            present,
            lines: lines.into(),
        }
    }

    /// What they are written as.
    #[must_use]
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Bytes of memory that they take, without values and names.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.list) + self.lines.len()
    }

    fn of_name(&self, known: Known) -> &[Field] {
        match self.present.contains(known) {
            true => &self.list,
            false => &[],
        }
    }
}

/// An ordered list of fields that can be changed.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    shared: Option<Arc<SharedFields>>,
    own: Vec<Field>,
}

/// The fields of a list, in order.
pub(super) type Iter<'a> = Chain<slice::Iter<'a, Field>, slice::Iter<'a, Field>>;

impl Fields {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            shared: None,
            own: Vec::new(),
        }
    }

    /// An empty list with room for `count` fields.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self {
            shared: None,
            own: Vec::with_capacity(count),
        }
    }

    /// A list that begins with these.
    #[must_use]
    pub fn beginning_with(shared: Arc<SharedFields>) -> Self {
        Self {
            shared: Some(shared),
            own: Vec::new(),
        }
    }

    /// The fields that it begins with and has not changed, and those that follow.
    #[must_use]
    pub fn parts(&self) -> (Option<&SharedFields>, &[Field]) {
        (self.shared.as_deref(), &self.own)
    }

    /// Adds a field at the end.
    pub fn push(&mut self, field: Field) {
        self.own.push(field);
    }

    /// Adds a field with a known name at the end.
    pub fn push_known(&mut self, known: Known, value: impl Into<Bytes>) {
        self.own.push(Field::known(known, value.into()));
    }

    /// Makes one field of this name with this value: the first of that name takes the value, the
    /// others go; if there is none, it is added at the end.
    pub fn set(&mut self, known: Known, value: impl Into<Bytes>) {
        let mut value = Some(value.into());
        self.unshare(known);
        self.own.retain_mut(|field| {
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
        if let Some(value) = value {
            self.push_known(known, value);
        }
    }

    /// Removes all fields of this name; says how many there were.
    pub fn remove(&mut self, known: Known) -> usize {
        self.unshare(known);
        self.drop_where(|field| field.known == known)
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

    /// As [`Self::retain`], for a `keep` that may change the fields' values.
    pub fn retain_mut(&mut self, keep: impl FnMut(&mut Field) -> bool) {
        self.all_own().retain_mut(keep);
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.shared = None;
        self.own.clear();
    }

    /// The first value of this name.
    #[must_use]
    pub fn get(&self, known: Known) -> Option<&Bytes> {
        self.get_all(known).next()
    }

    /// All values of this name, in order.
    pub fn get_all(&self, known: Known) -> impl Iterator<Item = &Bytes> {
        let shared = self.shared.as_deref();
        let shared = shared.map_or(&[][..], |shared| shared.of_name(known));
        shared
            .iter()
            .chain(&self.own)
            .filter(move |field| field.known == known)
            .map(|field| &field.value)
    }

    /// Whether there is a field of this name.
    #[must_use]
    pub fn contains(&self, known: Known) -> bool {
        self.get(known).is_some()
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
        let shared = shared.map_or(&[][..], |shared| &shared.list);
        shared.iter().chain(&self.own)
    }

    /// The fields in order, to be changed; whoever changes a name must keep `known` right.
    pub fn iter_mut(&mut self) -> slice::IterMut<'_, Field> {
        self.all_own().iter_mut()
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let shared = self.shared.as_deref();
        shared.map_or(0, |shared| shared.list.len()) + self.own.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn drop_where(&mut self, is_dropped: impl Fn(&Field) -> bool) -> usize {
        let before = self.own.len();
        self.own.retain(|field| !is_dropped(field));
        before - self.own.len()
    }

    /// INVARIANT 2, for who changes fields of one name.
    fn unshare(&mut self, known: Known) {
        let shared = self.shared.as_deref();
        if shared.is_some_and(|shared| shared.present.contains(known)) {
            self.all_own();
        }
    }

    /// INVARIANT 2, for who may change any.
    fn all_own(&mut self) -> &mut Vec<Field> {
        if let Some(shared) = self.shared.take() {
            let mut all = Vec::with_capacity(shared.list.len() + self.own.len() + 1);
            all.extend_from_slice(&shared.list);
            all.append(&mut self.own);
            self.own = all;
        }
        &mut self.own
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
        self.own.extend(fields);
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        Self {
            shared: None,
            own: fields.into_iter().collect(),
        }
    }
}

impl IntoIterator for Fields {
    type Item = Field;
    type IntoIter = std::vec::IntoIter<Field>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.all_own();
        self.own.into_iter()
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

    /// A list that shares two fields and has one of its own, and the same without sharing.
    fn both() -> [Fields; 2] {
        let base: Fields = [field("ETag", "x"), field("X-A", "1")]
            .into_iter()
            .collect();
        let shared = Arc::new(SharedFields::new(base.clone(), b"ETag: x\r\nX-A: 1\r\n"));
        [Fields::beginning_with(shared), base].map(|mut list| {
            list.push(field("Via", "v"));
            list
        })
    }

    #[test]
    fn a_list_is_the_same_whether_or_not_it_shares() {
        type Change = fn(&mut Fields) -> usize;
        let changes: [(&str, Change, bool); 9] = [
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
            ("a shared one gone", |list| list.remove(Known::ETag), false),
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
        for (what, change, still_shares) in changes {
            let [mut sharing, mut plain] = both();
            assert_eq!(change(&mut sharing), change(&mut plain), "{what}");
            assert_eq!(sharing, plain, "{what}");
            assert_eq!(sharing.len(), plain.len(), "{what}");
            assert_eq!(sharing.get(Known::ETag), plain.get(Known::ETag), "{what}");
            assert_eq!(sharing.find(b"X-a"), plain.find(b"X-a"), "{what}");
            assert_eq!(sharing.parts().0.is_some(), still_shares, "{what}");
            let (one, other): (Vec<_>, Vec<_>) =
                (sharing.into_iter().collect(), plain.into_iter().collect());
            assert_eq!(one, other, "{what}");
        }
    }
}
