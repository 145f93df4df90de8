//! `location`: which block's settings are in force for a path.
//!
//! nginx's order: an exact match ends the search; else the longest prefix is remembered; `^~` there
//! ends the search; else the regular expressions are tried in the order of the file, in nested
//! locations of the prefix first; else the prefix. A prefix that ends in a slash and passes to an
//! upstream redirects its slashless form.
//!
//! Invariants:
//! 1. `prefixes` is sorted by name, and `parent` is the longest other entry that is a proper
//!    prefix, so that the search is one binary search and a walk up.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::Location;
use crate::expression::{Captures, GaveUp, Regex};

/// The kind of a location, which says how its name is compared with paths.
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

/// The step after a prefix matched: to try regular expressions, or to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPrefix {
    /// Regular expressions are tried.
    TryRegex,
    /// `^~`: regular expressions are not tried.
    Stop,
}

/// The locations of one level.
#[derive(Default, Debug)]
pub struct LocationTree {
    exact: HashMap<Bytes, Arc<Location>>,
    prefixes: Vec<PrefixEntry>,
    regexes: Vec<(Arc<Regex>, Arc<Location>)>,
    named: HashMap<Bytes, Arc<Location>>,
    /// Slashless forms of names that are redirected to the names.
    slashed: HashMap<Bytes, Arc<Location>>,
}

#[derive(Debug)]
struct PrefixEntry {
    name: Bytes,
    location: Arc<Location>,
    after: AfterPrefix,
    parent: Option<usize>,
}

/// The result of the search.
#[derive(Debug)]
pub enum Found<'t> {
    /// No location: the settings of the level above.
    Nothing,
    /// The location that the request belongs to.
    Location(&'t Arc<Location>),
    /// The path is this location's name without its last slash: redirect to the name.
    AddSlash(&'t Arc<Location>),
}

/// The captures of the expressions that matched on the way, in order: the request's own from then
/// on.
pub type Captured = Vec<(Arc<Regex>, Captures)>;

/// The result of the search of one level.
enum Step<'t> {
    Nothing,
    /// A prefix: a regular expression of the level above may still win.
    Prefix(&'t Arc<Location>),
    /// The end of the search.
    End(&'t Arc<Location>),
    AddSlash(&'t Arc<Location>),
}

impl LocationTree {
    /// Builds the tree; `locations` in the order of the file.
    pub fn build(locations: Vec<Arc<Location>>) -> Self {
        let mut tree = LocationTree::default();
        for location in locations {
            tree.add(location);
        }
        tree.prefixes.sort_by(|a, b| a.name.cmp(&b.name));
        tree.link_parents();
        tree
    }

    fn add(&mut self, location: Arc<Location>) {
        let name = location.name.clone();
        let is_path = matches!(location.kind, LocationKind::Exact | LocationKind::Prefix(_));
        let slashless = name.slice(..name.len().saturating_sub(1));
        // No path is empty.
        if is_path && location.redirects_slashless && !slashless.is_empty() {
            self.slashed.insert(slashless, Arc::clone(&location));
        }
        match &location.kind {
            LocationKind::Exact => {
                self.exact.insert(name, location);
            }
            LocationKind::Prefix(after) => {
                let after = *after;
                self.prefixes.push(PrefixEntry {
                    name,
                    location,
                    after,
                    parent: None,
                });
            }
            LocationKind::Regex(regex) => {
                let regex = Arc::clone(regex);
                self.regexes.push((regex, location));
            }
            LocationKind::Named => {
                // nginx: of two with one name, the first.
                self.named.entry(name).or_insert(location);
            }
            LocationKind::Unnamed => {}
        }
    }

    fn link_parents(&mut self) {
        let mut open: Vec<usize> = Vec::new();
        for index in 0..self.prefixes.len() {
            // INVARIANT 1: sorted, so what is no prefix of this name is none of a later one.
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

    /// The location for a path at this level and below.
    pub fn find(&self, uri: &Bytes, captured: &mut Captured) -> Result<Found<'_>, GaveUp> {
        Ok(match self.search(uri, captured)? {
            Step::Nothing => Found::Nothing,
            Step::Prefix(location) | Step::End(location) => Found::Location(location),
            Step::AddSlash(location) => Found::AddSlash(location),
        })
    }

    fn search(&self, uri: &Bytes, captured: &mut Captured) -> Result<Step<'_>, GaveUp> {
        if let Some(location) = self.exact.get(uri) {
            return Ok(Step::End(location));
        }
        if let Some(location) = self.missing_slash(uri) {
            return Ok(Step::AddSlash(location));
        }
        let prefix = self.longest_prefix(uri);
        let mut best = Step::Nothing;
        if let Some(entry) = prefix {
            best = match entry.location.children.search(uri, captured)? {
                Step::Nothing => Step::Prefix(&entry.location),
                Step::Prefix(inner) => Step::Prefix(inner),
                end => return Ok(end),
            };
            // nginx: only the prefix of this very level keeps its expressions from being tried.
            if entry.after == AfterPrefix::Stop {
                return Ok(best);
            }
        }
        for (regex, location) in &self.regexes {
            if let Some(captures) = regex.captures(uri)? {
                captured.push((Arc::clone(regex), captures));
                return Ok(match location.children.search(uri, captured)? {
                    Step::Nothing => Step::End(location),
                    // nginx: inside of an expression's location nothing is redirected.
                    Step::Prefix(inner) | Step::End(inner) | Step::AddSlash(inner) => {
                        Step::End(inner)
                    }
                });
            }
        }
        Ok(best)
    }

    /// Shows all locations of this level and those inside of them.
    pub fn each<'t>(&'t self, see: &mut impl FnMut(&'t Arc<Location>)) {
        let prefixes = self.prefixes.iter().map(|entry| &entry.location);
        let regexes = self.regexes.iter().map(|(_, location)| location);
        let named = self.exact.values().chain(self.named.values());
        for location in prefixes.chain(regexes).chain(named) {
            see(location);
            location.children.each(see);
        }
    }

    /// A named location.
    pub fn named(&self, name: &[u8]) -> Option<&Arc<Location>> {
        self.named.get(name)
    }

    /// nginx: `location /dir/` with a proxying handler answers `/dir` with a redirect.
    fn missing_slash(&self, uri: &[u8]) -> Option<&Arc<Location>> {
        let location = self.slashed.get(uri)?;
        let is_taken = self
            .prefixes
            .binary_search_by(|entry| entry.name[..].cmp(uri))
            .is_ok();
        (!is_taken).then_some(location)
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
