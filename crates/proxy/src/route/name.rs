//! `server_name`: which virtual server answers for a host.
//!
//! nginx's order: the exact name, the longest wildcard that begins with `*.`, the longest that ends
//! with `.*`, the first matching regular expression, else the default server of the address.

use std::sync::Arc;

use bytes::Bytes;

use super::host_table::HostTable;
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

impl ServerName {
    /// Whether a host, in lower case, has this name.
    pub fn matches(&self, host: &[u8]) -> bool {
        let is_under = |name: &[u8]| host.len() > name.len() && host.ends_with(name);
        match self {
            ServerName::Exact(name) => host == name,
            ServerName::Under(name) => is_under(name),
            ServerName::SelfAndUnder(name) => is_under(name) || name.get(1..) == Some(host),
            ServerName::Before(name) => host.len() > name.len() && host.starts_with(name),
            ServerName::Regex(regex) => regex.is_match(host),
        }
    }
}

/// The servers of one address, by name.
#[derive(Debug)]
pub struct ServerNames {
    default: Arc<Server>,
    hosts: HostTable<Arc<Server>>,
    regexes: Vec<(Arc<Regex>, Arc<Server>)>,
    /// Whether a name may lead elsewhere than to the default server.
    has_others: bool,
}

impl ServerNames {
    /// A table with only the default server.
    pub fn new(default: Arc<Server>) -> Self {
        ServerNames {
            default,
            hosts: HostTable::default(),
            regexes: Vec::new(),
            has_others: false,
        }
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

    /// The server for the request's host; a regular expression sets its captures.
    pub fn find(&self, req: &mut Request) -> &Arc<Server> {
        if !self.has_others {
            return &self.default;
        }
        if let Some(server) = self.hosts.find(&req.host) {
            return server;
        }
        if req.host.is_empty() || self.regexes.is_empty() {
            return &self.default;
        }
        let host = req.host.clone();
        for (regex, server) in &self.regexes {
            if regex.capture_from(req, host.clone()) {
                return server;
            }
        }
        &self.default
    }
}
