//! `server_name`: which virtual server answers for a host.
//!
//! nginx's order: the exact name, the longest wildcard that begins with `*.`, the longest that ends with `.*`, the
//! first matching regular expression, else the default server of the address.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::regex::Regex;
use crate::request::Request;
use crate::scope::Server;

/// One argument of `server_name`.
#[derive(Clone, Debug)]
pub enum ServerName {
    /// `example.com`, or the empty name.
    Exact(Bytes),
    /// `*.example.com`: any name under it. The text is kept from the dot on.
    Under(Bytes),
    /// `.example.com`: the name itself and any under it.
    SelfAndUnder(Bytes),
    /// `www.example.*`: the text up to and with the last dot.
    Before(Bytes),
    /// `~regex`.
    Regex(Arc<Regex>),
}

/// The servers of one address, by name.
#[derive(Debug)]
pub struct ServerNames {
    default: Arc<Server>,
    exact: HashMap<Bytes, Arc<Server>>,
    under: HashMap<Bytes, Arc<Server>>,
    before: HashMap<Bytes, Arc<Server>>,
    regexes: Vec<(Arc<Regex>, Arc<Server>)>,
}

impl ServerNames {
    /// A table with only the default server.
    pub fn new(default: Arc<Server>) -> Self {
        ServerNames {
            default,
            exact: HashMap::new(),
            under: HashMap::new(),
            before: HashMap::new(),
            regexes: Vec::new(),
        }
    }

    /// The server for hosts that no name matches.
    pub fn default_server(&self) -> &Arc<Server> {
        &self.default
    }

    /// Adds a server's name; returns false when another server of the address has it.
    pub fn add(&mut self, name: &ServerName, server: &Arc<Server>) -> bool {
        let server = Arc::clone(server);
        match name {
            ServerName::Exact(text) => insert_first(&mut self.exact, text, server),
            ServerName::Under(text) => insert_first(&mut self.under, text, server),
            ServerName::Before(text) => insert_first(&mut self.before, text, server),
            ServerName::SelfAndUnder(text) => {
                let bare = text.slice(1..);
                let is_new = insert_first(&mut self.exact, &bare, Arc::clone(&server));
                insert_first(&mut self.under, text, server) && is_new
            }
            ServerName::Regex(regex) => {
                self.regexes.push((Arc::clone(regex), server));
                true
            }
        }
    }

    /// The server for the request's host; a regular expression sets its captures.
    pub fn find(&self, req: &mut Request) -> Arc<Server> {
        let host = req.host.clone();
        if let Some(server) = self.exact.get(&host) {
            return Arc::clone(server);
        }
        if host.is_empty() {
            return Arc::clone(&self.default);
        }
        let found = self.find_under(&host).or_else(|| self.find_before(&host));
        if let Some(server) = found {
            return Arc::clone(server);
        }
        for (regex, server) in &self.regexes {
            if regex.capture_from(req, host.clone()) {
                return Arc::clone(server);
            }
        }
        Arc::clone(&self.default)
    }

    fn find_under(&self, host: &Bytes) -> Option<&Arc<Server>> {
        if self.under.is_empty() {
            return None;
        }
        dots(host).find_map(|dot| self.under.get(host.get(dot..)?))
    }

    fn find_before(&self, host: &Bytes) -> Option<&Arc<Server>> {
        if self.before.is_empty() {
            return None;
        }
        let ends: Vec<usize> = dots(host).collect();
        ends.into_iter()
            .rev()
            .find_map(|dot| self.before.get(host.get(..=dot)?))
    }
}

fn insert_first(
    table: &mut HashMap<Bytes, Arc<Server>>,
    name: &Bytes,
    server: Arc<Server>,
) -> bool {
    match table.entry(name.clone()) {
        std::collections::hash_map::Entry::Occupied(_) => false,
        std::collections::hash_map::Entry::Vacant(slot) => {
            slot.insert(server);
            true
        }
    }
}

/// Positions of dots that have a label before them.
fn dots(host: &[u8]) -> impl Iterator<Item = usize> + '_ {
    host.iter()
        .enumerate()
        .filter(|(at, byte)| **byte == b'.' && *at > 0)
        .map(|(at, _)| at)
}
