//! `upstream`, and inside of it `server`, `zone`, `resolver` and the balancing methods.
//!
//! As in nginx the lines are read in their order: a method must stand before the servers whose
//! parameters it knows. `keepalive…` are read by [`KeepAliveLimits`].
//!
//! # Differs from nginx
//!
//! The state of every group is shared by all workers; `zone` says only that it is to be, and its
//! size is checked and not used. The `state` parameter and `slow_start` are refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond_conf::value::{Args, FromArgs, parse_duration};
use millpond_conf::{Contexts, Span, Statement, Word, code};
use millpond_system::network;
use millpond_system::resolve::Resolver;
use millpond_system::resolve::policy::NameServers;

use super::balance::Method;
use super::balance::least::{LeastTime, Unanswered, Until};
use super::group::{Group, NamedServer};
use super::keepalive::KeepAliveLimits;
use super::peer::{Availability, Peer, PeerSettings};
use super::queue::Queue;
use super::sticky::Sticky;
use crate::upstream::groups::Groups;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::location::LocationSettings;

/// Rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "upstream",
    contexts: Contexts::HTTP.union(Contexts::STREAM),
    syntax: "name { server address [weight=n] [max_fails=n] [fail_timeout=time] [max_conns=n] \
             [backup] [down] [drain] [route=name] [resolve] [service=name]; zone name [size]; \
             hash key [consistent]; ip_hash; least_conn; least_time header | last_byte \
             [inflight]; random [two [least_conn]]; sticky …; queue n [timeout=time]; \
             keepalive n; … }",
    is_block: true,
    pass: Pass::First,
    doc: "A group of servers among which requests are shared out.\n\n\
          With `queue n` up to so many requests wait, in the order in which they came, while the \
          servers that could be asked have as many connections as `max_conns` lets them; for 60 \
          seconds, or the time of `timeout`. More than that, and those whose time is over, get \
          502. Requests that have tried a server do not wait for another, and nobody waits for \
          servers that rest after failures. How many wait is in the API (`queue` of an upstream).",
    apply: upstream,
}];

/// Bytes that a zone must have at least (nginx: eight pages).
const ZONE_MIN: u64 = 8 * 4096;

/// The longest name of a route (nginx's number).
pub const ROUTE_MAX: usize = 32;

/// A group while its block is read.
struct Reading<'a, 'b> {
    /// True for a group of `stream`.
    is_of_sessions: bool,
    builder: &'a mut Builder,
    name: &'b str,
    peers: Vec<Peer>,
    named: Vec<NamedServer>,
    method: Option<Method>,
    keep_alive: KeepAliveLimits,
    queue: Option<Queue>,
    zone: Option<String>,
    sticky: Option<Sticky>,
    resolver: Option<Arc<Resolver>>,
    resolver_timeout: Option<Duration>,
}

/// Reads the block.
fn upstream(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(name) = statement.args.first() else {
        return;
    };
    let mut known = builder.of::<Groups>().upstreams.iter();
    if known.any(|group| group.name == name.text) {
        builder.error(name.span, format!("duplicate upstream \"{}\"", name.text));
        return;
    }
    let mut reading = Reading {
        is_of_sessions: draft.context == Contexts::STREAM,
        builder,
        name: &name.text,
        peers: Vec::new(),
        named: Vec::new(),
        method: None,
        keep_alive: KeepAliveLimits::default(),
        queue: None,
        zone: None,
        sticky: None,
        resolver: None,
        resolver_timeout: None,
    };
    for line in statement.body.as_deref().unwrap_or_default() {
        reading.line(line);
    }
    reading.finish(statement.span);
}

impl Reading<'_, '_> {
    fn line(&mut self, line: &Statement) {
        let name = line.name.text.as_str();
        if self.is_of_sessions
            && (matches!(name, "sticky" | "ip_hash" | "queue") || name.starts_with("keepalive"))
        {
            let message = format!("\"{name}\" directive is not allowed here");
            return self.builder.error(line.name.span, message);
        }
        let args: Vec<&str> = line.args.iter().map(|word| word.text.as_str()).collect();
        match (line.name.text.as_str(), args.as_slice()) {
            ("server", [_, ..]) => self.server(line),
            ("zone", [_] | [_, _]) => self.zone(line),
            ("sticky", [_, _, ..]) => self.sticky(line),
            ("hash", [_]) => self.hash(line, Method::Hash),
            ("hash", [_, "consistent"]) => self.hash(line, Method::ConsistentHash),
            ("ip_hash", []) => self.method(line, Method::IpHash),
            ("least_conn", []) => self.method(line, Method::LeastConn),
            ("random", []) => self.method(line, Method::Random),
            ("random", ["two"] | ["two", "least_conn"]) => self.method(line, Method::RandomTwo),
            ("queue", args) => self.queue(line.span, args),
            ("least_time", [_] | [_, _]) => self.least_time(line, &args),
            ("hash", [_, other]) | ("random", ["two", other] | [other] | [other, _]) => {
                let message = format!("invalid parameter \"{other}\"");
                self.builder.error(line.span, message);
            }
            ("resolver", [_, ..]) => self.resolver(line),
            ("resolver_timeout", [time]) => match parse_duration(time) {
                Some(time) => self.resolver_timeout = Some(time),
                None => {
                    let message =
                        format!("\"resolver_timeout\" directive invalid value \"{time}\"");
                    self.builder.error(line.span, message);
                }
            },
            (name, _) if name.starts_with("keepalive") => {
                if let Err(message) = self.keep_alive.apply(line) {
                    self.builder.error(line.span, message);
                }
            }
            (
                "server" | "zone" | "sticky" | "hash" | "ip_hash" | "least_conn" | "random"
                | "least_time" | "resolver" | "resolver_timeout",
                _,
            ) => {
                let message = format!(
                    "invalid number of arguments in \"{}\" directive",
                    line.name.text
                );
                self.builder.error(line.span, message);
            }
            _ => unclaimed(self.builder, line),
        }
    }

    fn method(&mut self, line: &Statement, method: Method) {
        if self.method.replace(method).is_some() {
            let diagnostics = &mut self.builder.cx.diagnostics;
            diagnostics.push_warning(line.span, "load balancing method redefined");
        }
    }

    fn hash(&mut self, line: &Statement, method: fn(millpond_conf::Template) -> Method) {
        let key = line
            .args
            .first()
            .and_then(|word| self.builder.template(word));
        if let Some(key) = key {
            self.method(line, method(key));
        }
    }

    fn least_time(&mut self, line: &Statement, args: &[&str]) {
        let until = match (args.first(), self.is_of_sessions) {
            (Some(&"header"), false) | (Some(&"first_byte"), true) => Until::Header,
            (Some(&"connect"), true) => Until::Connect,
            (Some(&"last_byte"), _) => Until::LastByte,
            (other, _) => {
                let value = other.copied().unwrap_or_default();
                return self
                    .builder
                    .error(line.span, format!("invalid value \"{value}\""));
            }
        };
        let unanswered = match args.get(1) {
            None => Unanswered::Ignored,
            Some(&"inflight") => Unanswered::Counted,
            Some(other) => {
                return self
                    .builder
                    .error(line.span, format!("invalid parameter \"{other}\""));
            }
        };
        self.method(line, Method::LeastTime(LeastTime { until, unanswered }));
    }

    fn queue(&mut self, span: Span, args: &[&str]) {
        let read = Queue::read(args).and_then(|queue| {
            let before = self.queue.replace(queue);
            let is_first = before.is_none();
            is_first
                .then_some(())
                .ok_or("\"queue\" directive is duplicate".to_owned())
        });
        if let Err(message) = read {
            self.builder.error(span, message);
        }
    }

    fn sticky(&mut self, line: &Statement) {
        if self.sticky.is_some() {
            return self
                .builder
                .error(line.span, "\"sticky\" directive is duplicate");
        }
        let read = Sticky::read(self.builder, line).and_then(|sticky| {
            let mut others = self.builder.of::<Groups>().upstreams.iter();
            let user = others.find(|group| {
                let theirs = group.sticky.as_ref().and_then(Sticky::zone);
                theirs.is_some() && theirs == sticky.zone()
            });
            match (user, sticky.zone()) {
                (Some(user), Some(zone)) => Err(format!(
                    "sticky zone \"{zone}\" is already used in upstream \"{}\"",
                    user.name
                )),
                _ => Ok(sticky),
            }
        });
        match read {
            Ok(sticky) => self.sticky = Some(sticky),
            Err(message) => self.builder.error(line.span, message),
        }
    }

    fn zone(&mut self, line: &Statement) {
        let name = line
            .args
            .first()
            .map(|word| word.text.clone())
            .unwrap_or_default();
        if name.is_empty() {
            return self.builder.error(line.span, "invalid zone name \"\"");
        }
        let mut told = None;
        if let Some(size) = line.args.get(1) {
            let Some(bytes) = millpond_conf::value::parse_offset(&size.text) else {
                return self
                    .builder
                    .error(size.span, format!("invalid zone size \"{}\"", size.text));
            };
            if bytes < ZONE_MIN {
                return self
                    .builder
                    .error(size.span, format!("zone \"{name}\" is too small"));
            }
            told = Some(bytes);
        }
        if let Err(message) = self.builder.cx.shared.name(&name, "upstream") {
            return self.builder.error(line.span, message);
        }
        let zones = &mut self.builder.of::<Zones>().0;
        zones.push((name.clone(), told, line.span));
        self.zone = Some(name);
    }

    fn resolver(&mut self, line: &Statement) {
        if self.resolver.is_some() {
            return self
                .builder
                .error(line.span, "\"resolver\" directive is duplicate");
        }
        let mut args = Args {
            name: &line.name,
            words: &line.args,
            body: None,
            cx: &mut self.builder.cx,
        };
        match NameServers::from_args(&mut args) {
            Ok(servers) => self.resolver = Some(servers.0),
            Err(error) => error.report(line, NameServers::SYNTAX, &mut self.builder.cx),
        }
    }

    fn server(&mut self, line: &Statement) {
        let allows_backup = self.method.as_ref().is_none_or(Method::allows_backup);
        match Line::read(line, allows_backup) {
            Ok(Line {
                named: Some(server),
                ..
            }) => self.named.push(server),
            Ok(Line {
                settings,
                addresses,
                ..
            }) => {
                let peer = |address| Peer::new(address, settings.clone(), None);
                self.peers.extend(addresses.into_iter().map(peer));
            }
            Err((word, message)) => self.builder.error(word.span, message),
        }
    }

    fn finish(self, span: Span) {
        let builder = self.builder;
        let name = self.name;
        if self.peers.is_empty() && self.named.is_empty() && !builder.cx.diagnostics.has_errors() {
            builder.error(span, format!("no servers in upstream \"{name}\""));
        }
        if !self.named.is_empty() && self.zone.is_none() {
            let message = format!(
                "resolving names at run time requires upstream \"{name}\" to be in shared memory"
            );
            builder.error(span, message);
        }
        // A peer of a name knows the name by its place in `named`.
        let mut group = Group::new(
            name.to_string(),
            self.peers,
            self.method.unwrap_or_default(),
        );
        group.keep_alive = self.keep_alive;
        group.sticky = self.sticky;
        group.queue = self.queue;
        group.zone = self.zone;
        group.named = self.named;
        let group = Arc::new(group);
        builder.of::<Groups>().upstreams.push(Arc::clone(&group));
        builder.of::<Vec<Resolving>>().push(Resolving {
            group,
            span,
            resolver: self.resolver,
            timeout: self.resolver_timeout,
        });
    }
}

/// A group whose resolver is known when the http block was read.
#[derive(Debug)]
pub struct Resolving {
    group: Arc<Group>,
    span: Span,
    resolver: Option<Arc<Resolver>>,
    timeout: Option<Duration>,
}

/// Gives the groups their resolvers: their own, else the one of the http block.
pub fn settle(builder: &mut Builder, settings: &LocationSettings) {
    let policy = &settings.resolver;
    for resolving in builder.take::<Vec<Resolving>>() {
        let outer = policy.servers.as_ref().map(|servers| &servers.0);
        let timeout = resolving.timeout.unwrap_or(policy.timeout);
        match resolving.resolver.as_ref().or(outer) {
            Some(resolver) => {
                // Set here and nowhere else, so that it was not set before.
                let _ = resolving
                    .group
                    .resolver
                    .set((Arc::clone(resolver), timeout));
            }
            None if resolving.group.named.is_empty() => {}
            None => {
                let name = &resolving.group.name;
                let message = format!(
                    "no resolver defined to resolve names at run time in upstream \"{name}\""
                );
                builder.error(resolving.span, message);
            }
        }
    }
}

/// Zones of groups, with their sizes if they are told, and places.
#[derive(Default)]
struct Zones(Vec<(String, Option<u64>, Span)>);

/// Refuses zones of groups without a size, or with two.
pub fn check_zones(builder: &mut Builder, _settings: &LocationSettings) {
    let Zones(zones) = builder.take();
    let mut declared = HashMap::new();
    for (name, size, _) in &zones {
        if let Some(size) = size {
            declared.entry(name.as_str()).or_insert(*size);
        }
    }
    for (name, size, span) in &zones {
        let message = match (size, declared.get(name.as_str())) {
            (Some(size), Some(declared)) if size != declared => format!(
                "the size {size} of shared memory zone \"{name}\" conflicts with already \
                 declared size {declared}"
            ),
            (None, None) => format!("zero size shared memory zone \"{name}\""),
            _ => continue,
        };
        builder.error(*span, message);
    }
}

/// A line that a group does not have: refused by name, or a mistake.
fn unclaimed(builder: &mut Builder, line: &Statement) {
    let name = &line.name.text;
    let tables = builder.tables;
    if (tables.knows)(name) {
        let message = format!("\"{name}\" directive is not allowed here");
        return builder.coded(line.name.span, code::MISPLACED_DIRECTIVE, message);
    }
    let diagnostics = &mut builder.cx.diagnostics;
    match (tables.refusal)(name) {
        Some(reason) => {
            let message = format!("directive \"{name}\" is not supported");
            let error = diagnostics.push_error(line.name.span, message);
            error.code(code::UNSUPPORTED_DIRECTIVE).help(reason);
            error.replace(line.span, "");
        }
        None => {
            let error =
                diagnostics.push_error(line.name.span, format!("unknown directive \"{name}\""));
            error.code(code::UNKNOWN_DIRECTIVE);
            if let Some(help) = (tables.foreign)(name) {
                let is_fair = name == "fair";
                error.help(help);
                error.replace(line.span, if is_fair { "least_conn" } else { "" });
            } else if line.args.is_empty() {
                let server = format!("server {name}");
                error.help(format!("a server of the group is written \"{server};\""));
                // A word that is a directive elsewhere is hardly a host.
                if name.contains(['.', ':']) {
                    error.replace(line.span, server);
                }
            }
        }
    }
}

/// A `server` line.
struct Line {
    settings: PeerSettings,
    addresses: Vec<millpond_system::address::Address>,
    named: Option<NamedServer>,
}

/// Message about a wrong line, with the word that is wrong.
type Mistake = (Word, String);

impl Line {
    fn read(line: &Statement, allows_backup: bool) -> Result<Line, Mistake> {
        let Some((address, parameters)) = line.args.split_first() else {
            let message = "invalid number of arguments in \"server\" directive".to_string();
            return Err((line.name.clone(), message));
        };
        let mut settings = PeerSettings::new(&address.text);
        let mut resolves = false;
        let mut service = None;
        for word in parameters {
            let at_word = |message| (word.clone(), message);
            match word.text.as_str() {
                "resolve" => resolves = true,
                "backup" if !allows_backup => {
                    let message = "balancing method does not support parameter \"backup\"";
                    return Err(at_word(message.to_string()));
                }
                text => match text.strip_prefix("service=") {
                    Some("") => return Err(at_word("service is empty".to_string())),
                    Some(name) => service = Some(name.to_string()),
                    None => apply_parameter(&mut settings, text).map_err(at_word)?,
                },
            }
        }
        let named = if resolves {
            named(&address.text, &settings, service.as_deref())
        } else if service.is_some() {
            Err(format!(
                "service upstream \"{}\" requires \"resolve\" parameter",
                address.text
            ))
        } else {
            Ok(None)
        };
        let named = named.map_err(|message| (address.clone(), message))?;
        let addresses = match &named {
            Some(_) => Vec::new(),
            None => network::resolve(&address.text, 80).map_err(|why| {
                let message = format!("{why} in upstream \"{}\"", address.text);
                (address.clone(), message)
            })?,
        };
        Ok(Line {
            settings,
            addresses,
            named,
        })
    }
}

/// A server whose name is resolved while the program runs; none for an address, which is not.
fn named(
    address: &str,
    settings: &PeerSettings,
    service: Option<&str>,
) -> Result<Option<NamedServer>, String> {
    let in_upstream = |why: String| format!("{why} in upstream \"{address}\"");
    let is_socket = address.starts_with("unix:");
    let (host, port) = network::split_port(address, 80).map_err(in_upstream)?;
    if host.is_empty() {
        return Err(in_upstream("no host".to_string()));
    }
    let is_address = is_socket || network::ip_of(host).is_some();
    match service {
        Some(_) if is_address => {
            return Err(format!(
                "service upstream \"{address}\" requires domain name"
            ));
        }
        Some(_) if host.len() != address.len() => {
            return Err(format!("service upstream \"{address}\" may not have port"));
        }
        _ => {}
    }
    Ok((!is_address).then(|| NamedServer {
        host: host.to_string(),
        service: service.map(str::to_string),
        port,
        settings: settings.clone(),
        valid_until: Mutex::default(),
    }))
}

fn apply_parameter(settings: &mut PeerSettings, text: &str) -> Result<(), String> {
    let invalid = || format!("invalid parameter \"{text}\"");
    match text.split_once('=') {
        None => match text {
            "backup" => settings.is_backup = true,
            "down" => settings.availability = Availability::Down,
            "drain" => settings.availability = Availability::Draining,
            _ => return Err(invalid()),
        },
        Some(("weight", value)) => {
            let weight = value.parse().ok().filter(|weight| *weight > 0);
            settings.weight = weight.ok_or_else(invalid)?;
        }
        Some(("max_fails", value)) => settings.max_fails = value.parse().map_err(|_| invalid())?,
        Some(("max_conns", value)) => settings.max_conns = value.parse().map_err(|_| invalid())?,
        Some(("fail_timeout", value)) => {
            settings.fail_timeout = parse_duration(value).ok_or_else(invalid)?;
        }
        Some(("route", "")) => return Err("route is empty".to_string()),
        Some(("route", value)) if value.len() > ROUTE_MAX => {
            return Err(format!("route is longer than {ROUTE_MAX}"));
        }
        Some(("route", value)) => settings.route = Arc::from(value),
        Some(("slow_start" | "id", _)) => {
            return Err(format!(
                "the parameter \"{text}\" of \"server\" is not supported"
            ));
        }
        Some(_) => return Err(invalid()),
    }
    Ok(())
}
