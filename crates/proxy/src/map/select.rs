//! `map`: a value for a value.
//!
//! ```text
//! map $http_host $name {
//!     hostnames;                  names may have wildcards
//!     volatile;                   computed at each use
//!     default        0;
//!     example.com    1;           in any case
//!     *.example.com  2;
//!     ~^(\w+)\.net$  $1;          in the order of the file, after all names; ~* for any case
//!     \default       3;           the string "default"
//! }
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Statement, Template, Word};

use super::Lookup;
use crate::request::Request;
use crate::rewrite::variable_name;
use crate::route::captures::RequestRegex as _;
use crate::var::{self, Definition};
use millpond_exchange::expression::{Case, Regex};
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::host_table::{BadPattern, HostTable};

/// A compiled `map`.
#[derive(Debug)]
pub struct Map {
    source: Template,
    keys: Keys,
    regexes: Vec<(Arc<Regex>, Chosen)>,
    default: Chosen,
    cached: Cached,
}

/// Keys that are no expressions, in lower case.
#[derive(Debug)]
enum Keys {
    Strings(HashMap<Bytes, Chosen>),
    Hosts(HostTable<Chosen>),
}

/// A value.
#[derive(Clone, Debug)]
enum Chosen {
    Text(Bytes),
    Template(Template),
}

/// The choice to keep the value for the rest of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cached {
    Yes,
    No,
}

/// The lines of a block while they are read.
struct Lines {
    map: Map,
    has_default: bool,
}

/// Compiles the block and defines its variable.
pub(super) fn map(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=2) {
        return;
    }
    let [source, name] = statement.args.as_slice() else {
        return;
    };
    let source = builder.template(source);
    let id = variable_name(builder, name);
    let (Some(source), Some(id)) = (source, id) else {
        return;
    };
    let body = statement.body.as_deref().unwrap_or_default();
    let has_hostnames = body.iter().any(|line| is_switch(line, "hostnames"));
    let keys = if has_hostnames {
        Keys::Hosts(HostTable::default())
    } else {
        Keys::Strings(HashMap::new())
    };
    let mut lines = Lines {
        map: Map {
            source,
            keys,
            regexes: Vec::new(),
            default: Chosen::Text(Bytes::new()),
            cached: Cached::Yes,
        },
        has_default: false,
    };
    for line in body {
        lines.add(builder, line);
    }
    let lookup = Arc::new(Lookup::Map(lines.map));
    var::define(builder, id, Definition::Lookup(lookup));
}

fn is_switch(line: &Statement, name: &str) -> bool {
    line.args.is_empty() && line.name.text == name
}

impl Lines {
    fn add(&mut self, builder: &mut Builder, line: &Statement) {
        if is_switch(line, "hostnames") {
            return;
        }
        if is_switch(line, "volatile") {
            self.map.cached = Cached::No;
            return;
        }
        let ([value], None) = (line.args.as_slice(), &line.body) else {
            builder.error(line.span, "invalid number of the map parameters");
            return;
        };
        let Some(template) = builder.template(value) else {
            return;
        };
        let value = match template.as_literal() {
            Some(text) => Chosen::Text(Bytes::copy_from_slice(text)),
            None => Chosen::Template(template),
        };
        self.add_key(builder, &line.name, value);
    }

    fn add_key(&mut self, builder: &mut Builder, key: &Word, value: Chosen) {
        let text = key.text.as_str();
        if text == "default" {
            if std::mem::replace(&mut self.has_default, true) {
                builder.error(key.span, "duplicate default map parameter");
            }
            self.map.default = value;
            return;
        }
        if let Some(source) = text.strip_prefix('~') {
            let (source, case) = match source.strip_prefix('*') {
                Some(source) => (source, Case::Insensitive),
                None => (source, Case::Sensitive),
            };
            if let Some(regex) = Regex::compile(builder, source, case, key.span) {
                self.map.regexes.push((regex, value));
            }
            return;
        }
        let text = text.strip_prefix('\\').unwrap_or(text);
        let added = match &mut self.map.keys {
            Keys::Hosts(hosts) => hosts.insert_pattern(text, value),
            Keys::Strings(strings) => {
                let name = Bytes::from(text.to_ascii_lowercase());
                match strings.insert(name, value) {
                    None => Ok(()),
                    Some(_) => Err(BadPattern::Conflict),
                }
            }
        };
        match added {
            Ok(()) => {}
            Err(BadPattern::Invalid) => {
                builder.error(key.span, format!("invalid hostname or wildcard \"{text}\""));
            }
            Err(BadPattern::Conflict) => {
                builder.error(key.span, format!("conflicting parameter \"{text}\""));
            }
        }
    }
}

impl Map {
    /// True when the value is computed at each use.
    pub(super) fn is_volatile(&self) -> bool {
        self.cached == Cached::No
    }

    /// The value for this request.
    pub(super) fn evaluate(&self, req: &mut Request) -> Bytes {
        let mut subject = req.eval(&self.source);
        if matches!(self.keys, Keys::Hosts(_)) && subject.last() == Some(&b'.') {
            subject.truncate(subject.len() - 1);
        }
        match self.choose(req, subject) {
            Chosen::Text(text) => text.clone(),
            Chosen::Template(template) => req.eval(template),
        }
    }

    fn choose(&self, req: &mut Request, subject: Bytes) -> &Chosen {
        let has_capitals = subject.iter().any(u8::is_ascii_uppercase);
        let found = if has_capitals {
            self.keys.get(&subject.to_ascii_lowercase())
        } else {
            self.keys.get(&subject)
        };
        if let Some(value) = found {
            return value;
        }
        if subject.is_empty() {
            return &self.default;
        }
        self.regexes
            .iter()
            .find(|(regex, _)| regex.capture_from(req, subject.clone()))
            .map_or(&self.default, |(_, value)| value)
    }
}

impl Keys {
    fn get(&self, subject: &[u8]) -> Option<&Chosen> {
        match self {
            Keys::Strings(strings) => strings.get(subject),
            Keys::Hosts(hosts) => hosts.find(subject),
        }
    }
}
