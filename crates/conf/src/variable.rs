//! Variables: the names that templates use, interned, with every place of use.
//!
//! Templates are compiled while the configuration is read, when not all variables are known yet
//! (`set` and `map` may come later). So a name gets a [`VarId`] at its first use, and whoever knows
//! all variables goes over [`VariableUses::uses`] at the end and reports the unknown ones.
//!
//! Names are lower-cased, as nginx does: `$HOST` and `$host` are one variable.

use std::collections::{HashMap, HashSet};

use crate::source::Span;

/// The id of a variable's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VarId(pub u32);

/// The names that are used, and where.
#[derive(Clone, Default, Debug)]
pub struct VariableUses {
    ids: HashMap<Box<str>, VarId>,
    names: Vec<Box<str>>,
    uses: Vec<(VarId, Span)>,
    /// Names that lines give values to, for each request.
    stored: HashSet<VarId>,
    /// The judge of names, in lower case, that have their meaning by themselves.
    is_fixed: Option<fn(&str) -> bool>,
}

impl VariableUses {
    /// No names.
    pub fn new() -> VariableUses {
        VariableUses::default()
    }

    /// Makes names known that have their meaning by themselves.
    pub fn fix(&mut self, is_fixed: fn(&str) -> bool) {
        self.is_fixed = Some(is_fixed);
    }

    /// True if a name, in lower case, has its meaning by itself, so that nothing may define it.
    pub fn is_fixed(&self, name: &str) -> bool {
        self.is_fixed.is_some_and(|is_fixed| is_fixed(name))
    }

    /// The id of a name that is used at the span; the use is kept.
    pub fn intern(&mut self, name: &str, span: Span) -> VarId {
        let name = name.to_ascii_lowercase().into_boxed_str();
        let id = match self.ids.get(&name) {
            Some(id) => *id,
            None => {
                let id = VarId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
                self.names.push(name.clone());
                self.ids.insert(name, id);
                id
            }
        };
        self.uses.push((id, span));
        id
    }

    /// The id of a name that a line gives values to, as named groups do; the use is kept.
    pub fn store(&mut self, name: &str, span: Span) -> VarId {
        let id = self.intern(name, span);
        self.stored.insert(id);
        id
    }

    /// True if a line gives values to a name.
    pub fn is_stored(&self, id: VarId) -> bool {
        self.stored.contains(&id)
    }

    /// The names that lines give values to.
    pub fn stored(&self) -> impl Iterator<Item = VarId> + '_ {
        self.stored.iter().copied()
    }

    /// The name with this id, in lower case; empty for an id of another table.
    pub fn name(&self, id: VarId) -> &str {
        self.names.get(id.0 as usize).map_or("", |name| name)
    }

    /// The id of a name that is used somewhere.
    pub fn lookup(&self, name: &str) -> Option<VarId> {
        self.ids.get(name.to_ascii_lowercase().as_str()).copied()
    }

    /// Every use, in the order of reading.
    pub fn uses(&self) -> impl Iterator<Item = (VarId, Span)> + '_ {
        self.uses.iter().copied()
    }

    /// Number of different names that are used; ids are below it.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if no variable is used.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_whatever_their_case() {
        let mut uses = VariableUses::new();
        let host = uses.intern("Host", Span::NONE);
        assert_eq!(uses.intern("hOST", Span::NONE), host);
        assert_ne!(uses.intern("uri", Span::NONE), host);
        assert_eq!((uses.name(host), uses.len()), ("host", 2));
        assert_eq!(uses.lookup("HOST"), Some(host));
        assert_eq!(uses.uses().count(), 3);
        assert!(!uses.is_stored(host));
        assert_eq!(uses.store("HOST", Span::NONE), host);
        assert!(uses.is_stored(host) && uses.stored().eq([host]));
    }
}
