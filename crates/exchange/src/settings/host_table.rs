//! Values by host name, with a wildcard at either end: for `server_name`, `map` with `hostnames`,
//! `valid_referers`.
//!
//! The order is nginx's: the exact name, the longest `*.example.com`, the longest `www.example.*`.
//! Names are kept and looked up in lower case; folding is the caller's.
//!
//! Invariants:
//! 1. A pattern is in the table once; the first value stays.
//! 2. A wildcard in front stands for one label or more, of which the first may be empty (nginx:
//!    `.example.com` is under `*.example.com`); one at the end stands for one byte or more.

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// Values by host name.
#[derive(Clone, Debug)]
pub struct HostTable<T> {
    exact: HashMap<Bytes, T>,
    /// `.example.com`: from the dot on.
    under: HashMap<Bytes, T>,
    /// `www.example.`: up to and with the last dot.
    before: HashMap<Bytes, T>,
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        HostTable {
            exact: HashMap::new(),
            under: HashMap::new(),
            before: HashMap::new(),
        }
    }
}

/// The reason why a pattern is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPattern {
    /// The pattern is no host name with at most one wildcard at one end.
    Invalid,
    /// The pattern is in the table already.
    Conflict,
}

impl<T> HostTable<T> {
    /// Adds `example.com`, `*.example.com`, `.example.com` or `www.example.*`.
    pub fn insert_pattern(&mut self, pattern: &str, value: T) -> Result<(), BadPattern>
    where
        T: Clone,
    {
        let pattern = pattern.to_ascii_lowercase();
        let is_new = if let Some(rest) = pattern.strip_prefix('*') {
            let name = wildcard_rest(rest, rest.starts_with('.'))?;
            self.insert_under(&name, value)
        } else if let Some(rest) = pattern.strip_suffix('*') {
            let name = wildcard_rest(rest, rest.ends_with('.'))?;
            self.insert_before(&name, value)
        } else if let Some(rest) = pattern.strip_prefix('.') {
            let name = wildcard_rest(&pattern, !rest.is_empty())?;
            let is_new = self.insert_exact(&name.slice(1..), value.clone());
            self.insert_under(&name, value) && is_new
        } else if pattern.contains('*') || pattern.contains("..") {
            return Err(BadPattern::Invalid);
        } else {
            self.insert_exact(&Bytes::from(pattern), value)
        };
        if is_new {
            Ok(())
        } else {
            Err(BadPattern::Conflict)
        }
    }

    /// Adds a name; false if it is there already.
    pub(crate) fn insert_exact(&mut self, name: &Bytes, value: T) -> bool {
        insert_first(&mut self.exact, name, value)
    }

    /// Adds all names that end with `name`, which begins with a dot; false if it is there already.
    pub(crate) fn insert_under(&mut self, name: &Bytes, value: T) -> bool {
        insert_first(&mut self.under, name, value)
    }

    /// Adds all names that begin with `name`, which ends with a dot; false if it is there already.
    pub(crate) fn insert_before(&mut self, name: &Bytes, value: T) -> bool {
        insert_first(&mut self.before, name, value)
    }

    /// The value for a host.
    pub fn find(&self, host: &[u8]) -> Option<&T> {
        self.exact
            .get(host)
            .or_else(|| self.find_under(host))
            .or_else(|| self.find_before(host))
    }

    fn find_under(&self, host: &[u8]) -> Option<&T> {
        if self.under.is_empty() {
            return None;
        }
        // The first dot leaves the longest name.
        memchr::memchr_iter(b'.', host).find_map(|dot| self.under.get(host.get(dot..)?))
    }

    fn find_before(&self, host: &[u8]) -> Option<&T> {
        if self.before.is_empty() {
            return None;
        }
        memchr::memrchr_iter(b'.', host)
            .filter(|dot| *dot > 0)
            .find_map(|dot| self.before.get(host.get(..=dot)?))
    }
}

fn wildcard_rest(rest: &str, has_dot: bool) -> Result<Bytes, BadPattern> {
    if !has_dot || rest.len() < 2 || rest.contains('*') || rest.contains("..") {
        return Err(BadPattern::Invalid);
    }
    Ok(Bytes::copy_from_slice(rest.as_bytes()))
}

fn insert_first<T>(table: &mut HashMap<Bytes, T>, name: &Bytes, value: T) -> bool {
    match table.entry(name.clone()) {
        Entry::Occupied(_) => false,
        Entry::Vacant(slot) => {
            slot.insert(value);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(patterns: &[&'static str]) -> HostTable<&'static str> {
        let mut table = HostTable::default();
        for pattern in patterns {
            assert_eq!(table.insert_pattern(pattern, *pattern), Ok(()), "{pattern}");
        }
        table
    }

    #[test]
    fn exact_names_win_over_the_longest_wildcard() {
        let table = table(&[
            "a.example.com",
            "*.example.com",
            "*.b.example.com",
            ".example.org",
            "www.example.*",
            "www.*",
        ]);
        for (host, found) in [
            ("a.example.com", Some("a.example.com")),
            ("x.example.com", Some("*.example.com")),
            ("x.y.example.com", Some("*.example.com")),
            ("x.b.example.com", Some("*.b.example.com")),
            ("b.example.com", Some("*.example.com")),
            ("example.com", None),
            (".example.com", Some("*.example.com")),
            (".example.net", None),
            ("example.org", Some(".example.org")),
            ("x.example.org", Some(".example.org")),
            ("www.example.net", Some("www.example.*")),
            ("www.example.co.uk", Some("www.example.*")),
            ("www.other", Some("www.*")),
            ("www", None),
            ("", None),
        ] {
            assert_eq!(table.find(host.as_bytes()).copied(), found, "{host}");
        }
    }

    #[test]
    fn wildcards_stand_at_one_end_beside_a_dot() {
        let mut table = HostTable::default();
        for pattern in [
            "*", "*.", "a*", "*a", "a.*.b", ".*", ".", "a..b", "*.a..b", "*.*",
        ] {
            assert_eq!(
                table.insert_pattern(pattern, 1),
                Err(BadPattern::Invalid),
                "{pattern}"
            );
        }
        assert_eq!(table.insert_pattern(".a", 1), Ok(()));
        for pattern in ["a", "*.a", ".a"] {
            assert_eq!(
                table.insert_pattern(pattern, 1),
                Err(BadPattern::Conflict),
                "{pattern}"
            );
        }
    }
}
