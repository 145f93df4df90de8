//! `server_name`: which virtual server answers for a host.
//!
//! nginx's order: the exact name, the longest wildcard that begins with `*.`, the longest that ends
//! with `.*`, the first matching regular expression, else the default server of the address.

use std::sync::Arc;

use bytes::Bytes;

use super::Server;
use super::host_table::HostTable;
use crate::expression::{GaveUp, Regex};

/// One argument of `server_name`.
#[derive(Clone, Debug)]
pub enum ServerName {
    /// `example.com`, or the empty name.
    Exact(Bytes),
    /// `*.example.com`: any name under the domain. The text is kept from the dot on.
    Under(Bytes),
    /// `.example.com`: the name itself and any under it.
    SelfAndUnder(Bytes),
    /// `www.example.*`: the text up to and with the last dot.
    Before(Bytes),
    /// `~regex`.
    Regex(Arc<Regex>),
}

impl ServerName {
    /// The name as `$server_name` shows it.
    pub fn text(&self) -> Bytes {
        match self {
            ServerName::Exact(text) => text.clone(),
            ServerName::SelfAndUnder(text) => text.slice(1..),
            ServerName::Under(text) => Bytes::from([b"*", &text[..]].concat()),
            ServerName::Before(text) => Bytes::from([&text[..], b"*"].concat()),
            ServerName::Regex(regex) => Bytes::from(format!("~{}", regex.source())),
        }
    }

    /// True if a host, in lower case, has this name.
    pub fn matches(&self, host: &[u8]) -> Result<bool, GaveUp> {
        // nginx: the first of the labels may be empty.
        let is_under = |name: &[u8]| host.ends_with(name);
        Ok(match self {
            ServerName::Exact(name) => host == name,
            ServerName::Under(name) => is_under(name),
            ServerName::SelfAndUnder(name) => is_under(name) || name.get(1..) == Some(host),
            ServerName::Before(name) => host.len() > name.len() && host.starts_with(name),
            ServerName::Regex(regex) => regex.is_match(host)?,
        })
    }
}

/// The servers of one address, by name.
#[derive(Debug)]
pub struct ServerNames {
    default: Arc<Server>,
    hosts: HostTable<Arc<Server>>,
    regexes: Vec<(Arc<Regex>, Arc<Server>)>,
    /// True if a name may lead elsewhere than to the default server.
    has_others: bool,
    /// Servers with names, in the order of the file.
    servers: Vec<Arc<Server>>,
}

impl ServerNames {
    /// A table with only the default server.
    pub fn new(default: Arc<Server>) -> Self {
        ServerNames {
            default,
            hosts: HostTable::default(),
            regexes: Vec::new(),
            has_others: false,
            servers: Vec::new(),
        }
    }

    /// The servers: the default one, and all that have a name here.
    pub fn servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        std::iter::once(&self.default).chain(&self.servers)
    }

    /// The server for hosts that no name matches.
    pub fn default_server(&self) -> &Arc<Server> {
        &self.default
    }

    /// Adds a server's name; returns false when another server of the address has it.
    pub fn add(&mut self, name: &ServerName, server: &Arc<Server>) -> bool {
        // A regular expression sets captures, wherever it leads.
        self.has_others |=
            matches!(name, ServerName::Regex(_)) || !Arc::ptr_eq(server, &self.default);
        let server = Arc::clone(server);
        let last = self.servers.last();
        if !last.is_some_and(|last| Arc::ptr_eq(last, &server)) {
            self.servers.push(Arc::clone(&server));
        }
        match name {
            ServerName::Exact(text) => self.hosts.insert_exact(text, server),
            ServerName::Under(text) => self.hosts.insert_under(text, server),
            ServerName::Before(text) => self.hosts.insert_before(text, server),
            ServerName::SelfAndUnder(text) => {
                let is_new = self
                    .hosts
                    .insert_exact(&text.slice(1..), Arc::clone(&server));
                self.hosts.insert_under(text, server) && is_new
            }
            ServerName::Regex(regex) => {
                self.regexes.push((Arc::clone(regex), server));
                true
            }
        }
    }

    /// The server for a host in lower case, before there is a request.
    pub fn of_host(&self, host: &[u8]) -> Option<&Arc<Server>> {
        if host.is_empty() {
            return None;
        }
        let by_name = || self.hosts.find(host);
        let by_regex = || {
            let mut regexes = self.regexes.iter();
            let found = regexes.find(|(regex, _)| regex.is_match(host).unwrap_or(false));
            found.map(|(_, server)| server)
        };
        by_name().or_else(by_regex)
    }

    /// The way in which a host finds its server.
    pub fn search(&self, host: &[u8]) -> Search<'_> {
        if !self.has_others {
            return Search::Found(&self.default);
        }
        if let Some(server) = self.hosts.find(host) {
            return Search::Found(server);
        }
        if host.is_empty() {
            return Search::Found(&self.default);
        }
        Search::Expressions(&self.regexes)
    }
}

/// The server of a host, or what has to be asked for it.
pub enum Search<'t> {
    /// The server.
    Found(&'t Arc<Server>),
    /// The server of the first expression that matches, else the default one.
    Expressions(&'t [(Arc<Regex>, Arc<Server>)]),
}
