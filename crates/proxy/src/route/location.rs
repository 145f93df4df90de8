//! `location`: which block's settings are in force for a path.
//!
//! nginx's order: an exact match ends the search; else the longest prefix is remembered; `^~` there ends the search;
//! else the regular expressions are tried in the order of the file, in nested locations of the prefix first; else
//! the prefix. A prefix that ends in a slash and passes to an upstream redirects its slashless form.
//!
//! Invariants:
//! 1. `prefixes` is sorted by name, and `parent` is the longest other entry that is a proper prefix, so that the search
//!    is one binary search and a walk up.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::regex::Regex;
use crate::request::Request;
use crate::scope::Location;

/// What a location's name is compared with.
#[derive(Clone, Debug)]
pub enum LocationKind {
    /// `location = /path`.
    Exact,
    /// `location /path` or `location ^~ /path`.
    Prefix(AfterPrefix),
    /// `location ~ regex` or `~*`.
    Regex(Arc<Regex>),
    /// `location @name`.
    Named,
    /// The server's own settings, an `if` block, `limit_except`.
    Unnamed,
}

/// Whether regular expressions are tried after a prefix matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPrefix {
    /// They are.
    TryRegex,
    /// `^~`: they are not.
    Stop,
}

/// The locations of one level.
#[derive(Default, Debug)]
pub struct LocationTree {
    exact: HashMap<Bytes, Arc<Location>>,
    prefixes: Vec<PrefixEntry>,
    regexes: Vec<(Arc<Regex>, Arc<Location>)>,
    named: HashMap<Bytes, Arc<Location>>,
}

#[derive(Debug)]
struct PrefixEntry {
    name: Bytes,
    location: Arc<Location>,
    after: AfterPrefix,
    parent: Option<usize>,
}

/// What the search found.
#[derive(Debug)]
pub enum Found {
    /// No location: the settings of the level above.
    Nothing,
    /// This one.
    Location(Arc<Location>),
    /// The slash is missing: redirect to this path.
    AddSlash(Bytes),
}

impl LocationTree {
    /// Builds the tree; `locations` in the order of the file.
    pub fn build(locations: Vec<Arc<Location>>) -> Self {
        let mut tree = LocationTree::default();
        for location in locations {
            let name = location.name.clone();
            match &location.kind {
                LocationKind::Exact => {
                    tree.exact.insert(name, location);
                }
                LocationKind::Prefix(after) => {
                    let after = *after;
                    tree.prefixes.push(PrefixEntry {
                        name,
                        location,
                        after,
                        parent: None,
                    });
                }
                LocationKind::Regex(regex) => {
                    tree.regexes
                        .push((Arc::clone(regex), Arc::clone(&location)));
                }
                LocationKind::Named => {
                    tree.named.insert(name, location);
                }
                LocationKind::Unnamed => {}
            }
        }
        tree.prefixes.sort_by(|a, b| a.name.cmp(&b.name));
        tree.link_parents();
        tree
    }

    fn link_parents(&mut self) {
        let mut open: Vec<usize> = Vec::new();
        for index in 0..self.prefixes.len() {
            let name = self.prefixes[index].name.clone();
            while open
                .last()
                .is_some_and(|top| !name.starts_with(&self.prefixes[*top].name))
            {
                open.pop();
            }
            self.prefixes[index].parent = open.last().copied();
            open.push(index);
        }
    }

    /// The location for `req.uri` at this level and below; sets the captures of a regular expression.
    pub fn find(&self, req: &mut Request) -> Found {
        if let Some(location) = self.exact.get(&req.uri) {
            return Found::Location(Arc::clone(location));
        }
        if let Some(slashed) = self.missing_slash(req) {
            return Found::AddSlash(slashed);
        }
        let prefix = self.longest_prefix(&req.uri);
        let mut best = prefix.map(|entry| Arc::clone(&entry.location));
        if let Some(entry) = prefix {
            match entry.location.children.find(req) {
                Found::Nothing => {}
                // nginx: a nested regular expression or exact name ends the search.
                Found::Location(inner) => {
                    let is_prefix = matches!(inner.kind, LocationKind::Prefix(_));
                    let stops = matches!(inner.kind, LocationKind::Prefix(AfterPrefix::Stop));
                    if !is_prefix || stops {
                        return Found::Location(inner);
                    }
                    best = Some(inner);
                }
                slash @ Found::AddSlash(_) => return slash,
            }
            if entry.after == AfterPrefix::Stop {
                return best.map_or(Found::Nothing, Found::Location);
            }
        }
        for (regex, location) in &self.regexes {
            if regex.capture(req) {
                return match location.children.find(req) {
                    Found::Nothing => Found::Location(Arc::clone(location)),
                    inner => inner,
                };
            }
        }
        best.map_or(Found::Nothing, Found::Location)
    }

    /// A named location.
    pub fn named(&self, name: &[u8]) -> Option<&Arc<Location>> {
        self.named.get(name)
    }

    /// nginx: `location /dir/` with a proxying handler answers `/dir` with a redirect.
    fn missing_slash(&self, req: &Request) -> Option<Bytes> {
        if req.uri.last() == Some(&b'/') || req.uri.is_empty() {
            return None;
        }
        let wanted = [&req.uri[..], b"/"].concat();
        let index = self
            .prefixes
            .binary_search_by(|entry| entry.name[..].cmp(&wanted))
            .ok();
        let slashed = match index {
            Some(index) => &self.prefixes[index].location,
            None => self.exact.get(&wanted[..])?,
        };
        let is_taken = self
            .prefixes
            .binary_search_by(|e| e.name.cmp(&req.uri))
            .is_ok();
        (slashed.redirects_slashless() && !is_taken).then(|| Bytes::from(wanted))
    }

    fn longest_prefix(&self, uri: &[u8]) -> Option<&PrefixEntry> {
        let search = self.prefixes.binary_search_by(|entry| {
            let order = entry.name[..].cmp(uri);
            if order == Ordering::Equal {
                Ordering::Less
            } else {
                order
            }
        });
        // Every entry before the insertion point sorts at or before the path.
        let (Ok(end) | Err(end)) = search;
        let mut index = end.checked_sub(1);
        while let Some(at) = index {
            let entry = self.prefixes.get(at)?;
            if uri.starts_with(&entry.name) {
                return Some(entry);
            }
            index = entry.parent;
        }
        None
    }
}
