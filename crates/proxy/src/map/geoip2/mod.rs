//! `geoip2`, `geoip2_proxy`, `geoip2_proxy_recursive`: facts about an address out of a database.
//!
//! ```text
//! geoip2 /var/lib/GeoIP/GeoLite2-City.mmdb {
//!     auto_reload 60m;
//!     $geoip2_country  default=XX source=$address country iso_code;
//!     $geoip2_region   subdivisions 0 names en;
//!     $geoip2_built    metadata build_epoch;
//! }
//! ```
//!
//! The language is that of ngx_http_geoip2_module. A variable is looked up when it is asked for,
//! once for a request.
//!
//! Invariants:
//! 1. An address that the database does not know, or that is none, has the default.
//!
//! Source: ngx_http_geoip2_module.

mod database;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::parse_duration;
use millpond_conf::{Statement, VarId, Word};
use millpond_system::network::{Network, Recursive, forwarded, parse_address};
use millpond_wire::header::Known;

use self::database::{Database, Fact};
use super::Lookup;
use crate::request::{Request, Value};
use crate::rewrite::variable_name;
use crate::var::{self, Definition};
use millpond_exchange::scope::block::Draft;
use millpond_exchange::scope::build::Builder;

/// A variable of a database.
#[derive(Debug)]
pub struct Geoip2 {
    database: Arc<Database>,
    subject: Subject,
    proxies: Shared,
}

/// The thing that a variable tells.
#[derive(Debug)]
enum Subject {
    /// A fact about the database.
    Metadata(Fact),
    /// A value of the record of an address.
    Record {
        /// The variable that the address comes from; the client's address if none is named.
        source: Option<VarId>,
        /// The names and places that lead to the value.
        path: Vec<String>,
        /// The value where there is none.
        default: Bytes,
    },
}

/// The proxies whose word for the client's address is taken: those of the whole block, which may
/// stand behind the databases.
type Shared = Arc<RwLock<Proxies>>;

#[derive(Debug, Default)]
struct Proxies {
    networks: Vec<Network>,
    is_recursive: bool,
}

/// Compiles the block and defines its variables.
pub(super) fn geoip2(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [file] = statement.args.as_slice() else {
        let message = "invalid number of arguments in \"geoip2\" directive";
        return builder.error(statement.span, message);
    };
    let lines = statement.body.as_deref().unwrap_or_default();
    let mut interval = None;
    for line in lines.iter().filter(|line| line.name.text == "auto_reload") {
        interval = read_interval(builder, line);
    }
    let path = builder.cx.conf_dir.join(&file.text);
    let database = match Database::open(&path, interval) {
        Ok(database) => Arc::new(database),
        Err(why) => {
            let message = format!("cannot use the database \"{}\": {why}", path.display());
            return builder.error(file.span, message);
        }
    };
    for line in lines.iter().filter(|line| line.name.text != "auto_reload") {
        define(builder, line, &database);
    }
}

fn read_interval(builder: &mut Builder, line: &Statement) -> Option<Duration> {
    let [word] = line.args.as_slice() else {
        builder.error(line.span, "invalid number of arguments for \"auto_reload\"");
        return None;
    };
    let interval = parse_duration(&word.text).filter(|it| !it.is_zero());
    if interval.is_none() {
        let message = format!("invalid interval for auto_reload \"{}\"", word.text);
        builder.error(word.span, message);
    }
    interval
}

/// Defines the variable of a line.
fn define(builder: &mut Builder, line: &Statement, database: &Arc<Database>) {
    let Some(id) = variable_name(builder, &line.name) else {
        return;
    };
    let subject = match line.args.split_first() {
        Some((first, rest)) if first.text == "metadata" => read_fact(builder, (line, rest)),
        _ => read_record(builder, line),
    };
    let Some(subject) = subject else {
        return;
    };
    let lookup = Arc::new(Lookup::Geoip2(Geoip2 {
        database: Arc::clone(database),
        subject,
        proxies: Arc::clone(builder.of::<Shared>()),
    }));
    var::define(builder, id, Definition::Lookup(lookup));
}

fn read_fact(builder: &mut Builder, (line, words): (&Statement, &[Word])) -> Option<Subject> {
    let fact = match words {
        [word] => match word.text.as_str() {
            "build_epoch" => Some(Fact::BuildEpoch),
            "last_check" => Some(Fact::LastCheck),
            "last_change" => Some(Fact::LastChange),
            _ => None,
        },
        _ => None,
    };
    if fact.is_none() {
        let message = "\"metadata\" is of \"build_epoch\", \"last_check\" or \"last_change\"";
        builder.error(line.span, message);
    }
    fact.map(Subject::Metadata)
}

fn read_record(builder: &mut Builder, line: &Statement) -> Option<Subject> {
    let (mut source, mut default) = (None, Bytes::new());
    let mut words = line.args.iter().peekable();
    while let Some(word) = words.peek() {
        if let Some(text) = word.text.strip_prefix("default=") {
            default = Bytes::copy_from_slice(text.as_bytes());
        } else if let Some(text) = word.text.strip_prefix("source=") {
            let Some(name) = text.strip_prefix('$').filter(|name| !name.is_empty()) else {
                let message = format!("invalid variable name \"{text}\" of \"source\"");
                builder.error(word.span, message);
                return None;
            };
            source = Some(builder.cx.variables.intern(name, word.span));
        } else {
            break;
        }
        words.next();
    }
    let path: Vec<String> = words.map(|word| word.text.clone()).collect();
    if path.is_empty() {
        builder.error(line.span, "no path to a value of the database");
        return None;
    }
    Some(Subject::Record {
        source,
        path,
        default,
    })
}

/// Adds a network of proxies.
pub(super) fn proxy(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [word] = statement.args.as_slice() else {
        let message = "invalid number of arguments in \"geoip2_proxy\" directive";
        return builder.error(statement.span, message);
    };
    match Network::parse(&word.text) {
        Some((network, _)) => change(builder, |proxies| proxies.networks.push(network)),
        None => builder.error(word.span, format!("invalid network \"{}\"", word.text)),
    }
}

/// Says whether addresses of proxies are passed over.
pub(super) fn recursive(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let word = match statement.args.as_slice() {
        [word] => word.text.as_str(),
        _ => "",
    };
    match word {
        "on" => change(builder, |proxies| proxies.is_recursive = true),
        "off" => change(builder, |proxies| proxies.is_recursive = false),
        _ => builder.error(
            statement.span,
            "\"geoip2_proxy_recursive\" must be \"on\" or \"off\"",
        ),
    }
}

fn change(builder: &mut Builder, change: impl FnOnce(&mut Proxies)) {
    let shared = builder.of::<Shared>();
    change(&mut shared.write().unwrap_or_else(PoisonError::into_inner));
}

impl Geoip2 {
    /// The value for this request.
    pub(super) fn evaluate(&self, req: &mut Request) -> Bytes {
        let (source, path, default) = match &self.subject {
            Subject::Metadata(fact) => return self.database.fact(*fact).into(),
            Subject::Record {
                source,
                path,
                default,
            } => (source, path, default),
        };
        let ip = self.address(req, *source);
        let found = ip.and_then(|ip| self.database.find(ip, path));
        found.map_or_else(|| default.clone(), Bytes::from)
    }

    fn address(&self, req: &mut Request, source: Option<VarId>) -> Option<IpAddr> {
        let address = match source {
            None => req.client.remote.borrow().clone(),
            Some(id) => match req.variable(id) {
                Value::Found(text) => parse_address(&text)?,
                Value::NotFound => return None,
            },
        };
        let proxies = self.proxies.read().unwrap_or_else(PoisonError::into_inner);
        // nginx's module: an address that a variable names is nobody's but its own.
        if source.is_some() || proxies.networks.is_empty() || !req.head.has(Known::XForwardedFor) {
            return address.ip().map(|ip| ip.to_canonical());
        }
        let lists: Vec<&[u8]> = req.head.get_all(Known::XForwardedFor).collect();
        let recursive = if proxies.is_recursive {
            Recursive::Yes
        } else {
            Recursive::No
        };
        let found = forwarded(&address, lists.into_iter(), &proxies.networks, recursive);
        let ip = found.unwrap_or(address).ip()?;
        Some(ip.to_canonical())
    }
}
