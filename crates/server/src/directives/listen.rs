//! `listen`, `server_name`: reading them, and joining the servers of all addresses into sockets.
//!
//! 1. Servers with the same address share a socket; the first, or the one that says so, is default.
//! 2. A wildcard address takes the connections of specific ones on the same port; the local address
//!    of a connection then chooses among their servers, as in nginx.
//! 3. Options that concern the socket stand once an address; a second, different line is an error.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::source::Span;
use millpond_conf::tree::{Statement, Word};
use millpond_conf::value::parse_duration;
use millpond_conf::{Contexts, ParseContext};
use millpond_exchange::expression::{Case, Regex};
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::code;
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::{Binding, Carries, Listen, ListenOptions};
use millpond_exchange::settings::names::{ServerName, ServerNames};
use millpond_proxy::var::request::hostname;
use millpond_system::address::Address;
use millpond_system::network;

/// Rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "listen",
        contexts: Contexts::SERVER,
        syntax: "address[:port] | port | unix:path [default_server] [ssl] [http2] [quic] [proxy_protocol] …",
        is_block: false,
        pass: Pass::First,
        doc: "An address that the server answers on. With `proxy_protocol`, there or on another \
              line for the address, its connections begin with a header of the PROXY protocol, \
              version 1 or 2. With `quic` it is an address of UDP, where clients speak HTTP/3; \
              the same address without it is another one.",
        apply: listen,
    },
    Row {
        name: "listen",
        contexts: Contexts::STREAM_SERVER,
        syntax: "address:port | port | unix:path [default_server] [ssl | udp] [proxy_protocol] …",
        is_block: false,
        pass: Pass::First,
        doc: "An address that the server takes sessions on. With `proxy_protocol` they begin with \
              a header of the PROXY protocol, version 1 or 2. With `udp` it is an address of UDP: \
              a session is what comes from one address and port of a client, and the packets of \
              its peer; the same address without it is another one. Each worker has a socket of \
              its own there, as `reuseport` says, and all packets of a client come to the same.",
        apply: listen_sessions,
    },
    Row {
        name: "server_name",
        contexts: Contexts::SERVER.union(Contexts::STREAM_SERVER),
        syntax: "name …",
        is_block: false,
        pass: Pass::First,
        doc: "Names of the server: exact, with a wildcard at one end, or a regular expression. \
              `$hostname` is the name of the machine.",
        apply: server_name,
    },
];

/// A `listen` as written.
#[derive(Clone, Debug)]
pub(crate) struct ListenArgs {
    address: Address,
    options: ListenOptions,
    has_options: bool,
    is_default: bool,
    has_proxy_protocol: bool,
    is_encrypted: bool,
    is_udp: bool,
    is_quic: bool,
    has_http2: bool,
    span: Span,
}

/// The directive that took the place of the parameter `http2`, and its line.
const HTTP2_ON: (&str, &str) = ("http2", "http2 on;");

impl ListenArgs {
    /// The end of a line that does not say by itself that its connections are encrypted.
    pub(super) fn end_of_plain(&self) -> Option<Span> {
        let end = Span {
            start: self.span.end,
            ..self.span
        };
        (!self.is_encrypted).then_some(end)
    }

    /// Encrypts its connections, as the parameter `ssl` does.
    pub(super) fn encrypt(&mut self) {
        self.is_encrypted |= !self.is_quic;
    }
}

/// Addresses that a server listens on.
#[derive(Default)]
pub(super) struct Listens(pub(super) Vec<ListenArgs>);

/// Names of a server.
#[derive(Default)]
pub(super) struct Names(pub(super) Vec<ServerName>);

fn listen(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if let Some(word) = statement.args.iter().find(|word| word.text == "udp") {
        return builder.error(word.span, "invalid parameter \"udp\"");
    }
    read_listen(builder, statement, draft);
}

/// Reads a line of `stream`, which has no usual port and knows nothing of HTTP.
fn listen_sessions(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    let Some((first, parameters)) = statement.args.split_first() else {
        return read_listen(builder, statement, draft);
    };
    let is_address = !first.text.starts_with("unix:");
    if is_address && matches!(split_host(&first.text), Ok((_, None))) {
        let message = format!("no port in \"{}\" of the \"listen\" directive", first.text);
        return builder.error(first.span, message);
    }
    for parameter in parameters {
        let message = match parameter.text.as_str() {
            name @ ("http2" | "quic" | "spdy" | "default") => {
                format!("the invalid \"{name}\" parameter")
            }
            _ => continue,
        };
        return builder.error(parameter.span, message);
    }
    if parameters.iter().any(|parameter| parameter.text == "udp") {
        if let Some(message) = beside_udp(parameters) {
            return builder.error(statement.span, message);
        }
        if !is_address {
            let message = "\"udp\" parameter is for addresses of the Internet";
            return builder.error(statement.span, message);
        }
    }
    read_listen(builder, statement, draft);
}

/// The mistake of what stands beside `udp`, in nginx's words.
fn beside_udp(parameters: &[Word]) -> Option<String> {
    const OF_CONNECTIONS: [&str; 7] = [
        "fastopen",
        "backlog",
        "accept_filter",
        "deferred",
        "ssl",
        "so_keepalive",
        "proxy_protocol",
    ];
    let has = |name: &&&str| {
        let is_it = |word: &Word| word.text.split('=').next() == Some(**name);
        parameters.iter().any(is_it)
    };
    let name = OF_CONNECTIONS.iter().find(has)?;
    Some(format!("\"{name}\" parameter is incompatible with \"udp\""))
}

fn read_listen(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    let Some((first, parameters)) = statement.args.split_first() else {
        builder.error(
            statement.span,
            "invalid number of arguments in \"listen\" directive",
        );
        return;
    };
    let addresses = match parse_addresses(&first.text) {
        Ok(addresses) => addresses,
        Err(message) => {
            builder.error(
                first.span,
                format!(
                    "{message} in \"{}\" of the \"listen\" directive",
                    first.text
                ),
            );
            return;
        }
    };
    let mut args = ListenArgs {
        address: Address::Unix(Default::default()),
        options: ListenOptions::default(),
        has_options: false,
        is_default: false,
        has_proxy_protocol: false,
        is_encrypted: false,
        is_udp: false,
        is_quic: false,
        has_http2: false,
        span: statement.span,
    };
    for parameter in parameters {
        let diagnostics = &mut builder.cx.diagnostics;
        if let Err(message) = apply_parameter(&mut args, parameter) {
            let error = diagnostics.push_error(parameter.span, message);
            if parameter.text == "spdy" {
                error.replace_and_add(parameter.span, "", HTTP2_ON);
            }
        }
        if parameter.text == "http2" {
            let message = "the \"listen ... http2\" directive is deprecated, use the \"http2\" \
                           directive instead";
            let warning = diagnostics.push_warning(parameter.span, message);
            warning.replace_and_add(parameter.span, "", HTTP2_ON);
        }
    }
    if let Err(message) = check_quic(&args, &addresses, parameters) {
        builder.error(statement.span, message);
        return;
    }
    for address in addresses {
        draft.of::<Listens>().0.push(ListenArgs {
            address,
            ..args.clone()
        });
    }
}

/// Checks what stands beside `quic`, in nginx's words.
fn check_quic(args: &ListenArgs, addresses: &[Address], parameters: &[Word]) -> Result<(), String> {
    if !args.is_quic {
        return Ok(());
    }
    let has = |name: &str| parameters.iter().any(|word| word.text == name);
    let other = ["ssl", "http2", "proxy_protocol"]
        .into_iter()
        .find(|name| has(name));
    match other {
        Some("ssl") => return Err("\"ssl\" parameter is incompatible with \"quic\"".into()),
        Some("http2") => return Err("\"http2\" parameter is incompatible with \"quic\"".into()),
        Some(_) => {
            return Err("\"proxy_protocol\" parameter is incompatible with \"quic\"".into());
        }
        None => {}
    }
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    if addresses.iter().any(is_unix) {
        return Err("\"quic\" parameter is for addresses of the Internet".into());
    }
    Ok(())
}

fn apply_parameter(args: &mut ListenArgs, parameter: &Word) -> Result<(), String> {
    let text = parameter.text.as_str();
    let (name, value) = text
        .split_once('=')
        .map_or((text, None), |(n, v)| (n, Some(v)));
    let invalid = || format!("invalid parameter \"{text}\"");
    let size = |value: Option<&str>| {
        value
            .and_then(millpond_conf::value::parse_offset)
            .map(|size| size as usize)
            .ok_or_else(|| format!("invalid {name} \"{text}\""))
    };
    let switch = |value: Option<&str>| match value {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        _ => Err(invalid()),
    };
    if value.is_none() && apply_flag(args, name) {
        return Ok(());
    }
    match (name, value) {
        ("bind", None) => {}
        ("reuseport", None) => args.options.reuse_port = true,
        ("backlog", Some(value)) => {
            args.options.backlog = value
                .parse()
                .map_err(|_| format!("invalid backlog \"{value}\""))?;
        }
        ("rcvbuf", value) => args.options.rcvbuf = Some(size(value)?),
        ("sndbuf", value) => args.options.sndbuf = Some(size(value)?),
        ("ipv6only", value) => args.options.ipv6_only = switch(value)?,
        ("so_keepalive", Some(value)) => {
            args.options.keepalive = keep_alive(value)
                .ok_or_else(|| format!("invalid so_keepalive value: \"{value}\""))?;
        }
        // Hints to a kernel; answers are the same without them.
        ("deferred", None) | ("fastopen" | "setfib" | "accept_filter", Some(_)) => {}
        ("spdy", None) => {
            return Err(String::from(
                "the \"spdy\" parameter of \"listen\" is not supported",
            ));
        }
        _ => return Err(invalid()),
    }
    args.has_options = true;
    Ok(())
}

/// Applies a parameter that belongs to the address, not to its socket; false for any other.
fn apply_flag(args: &mut ListenArgs, name: &str) -> bool {
    match name {
        "default_server" | "default" => args.is_default = true,
        "proxy_protocol" => args.has_proxy_protocol = true,
        "ssl" => args.is_encrypted = true,
        "http2" => args.has_http2 = true,
        "udp" => args.is_udp = true,
        // QUIC is always encrypted.
        "quic" => {
            args.is_udp = true;
            args.is_quic = true;
            args.is_encrypted = true;
        }
        _ => return false,
    }
    true
}

/// `on`, `off`, or how long a connection is idle before the first probe, the time between probes
/// and their number, with colons between them: each may be left out or 0, but not all of them.
fn keep_alive(text: &str) -> Option<bool> {
    match text {
        "on" => return Some(true),
        "off" => return Some(false),
        _ => {}
    }
    let mut parts = text.splitn(3, ':');
    let mut seconds = || match parts.next().unwrap_or_default() {
        "" => Some(0),
        time => parse_duration(time)
            .filter(|_| !time.ends_with("ms"))
            .map(|it| it.as_secs()),
    };
    let (idle, interval) = (seconds()?, seconds()?);
    let count: u32 = match parts.next().unwrap_or_default() {
        "" => 0,
        count => count.parse().ok()?,
    };
    (idle > 0 || interval > 0 || count > 0).then_some(true)
}

/// The addresses of the first argument: one, several of a name, or a range of ports.
fn parse_addresses(text: &str) -> Result<Vec<Address>, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path {
            "" => Err("no path".to_string()),
            path => Ok(vec![Address::Unix(path.into())]),
        };
    }
    let (host, ports) = split_host(text)?;
    let ports = parse_ports(ports)?;
    let hosts: Vec<IpAddr> = match host {
        None | Some("*") => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        Some("[::]") => vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
        Some(host) => resolve(host)?,
    };
    let mut addresses = Vec::new();
    for port in ports {
        for host in &hosts {
            addresses.push(Address::Inet(SocketAddr::new(*host, port)));
        }
    }
    Ok(addresses)
}

fn split_host(text: &str) -> Result<(Option<&str>, Option<&str>), String> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or("invalid address")?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((Some(host), Some(port))),
            None if rest.is_empty() => Ok((Some(host), None)),
            None => Err("invalid address".to_string()),
        };
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((Some(host), Some(port))),
        None if text.bytes().next().is_some_and(|b| b.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_digit() || b == b'-') =>
        {
            Ok((None, Some(text)))
        }
        None => Ok((Some(text), None)),
    }
}

fn parse_ports(text: Option<&str>) -> Result<Vec<u16>, String> {
    let Some(text) = text else {
        return Ok(vec![80]);
    };
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err("invalid port".to_string()),
    };
    match text.split_once('-') {
        None => Ok(vec![port(text)?]),
        Some((first, last)) => {
            let (first, last) = (port(first)?, port(last)?);
            if first > last {
                return Err("invalid port range".to_string());
            }
            Ok((first..=last).collect())
        }
    }
}

fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse() {
        return Ok(vec![ip]);
    }
    let found = network::look_up(bare, 0).map_err(|_| "host not found".to_string())?;
    let mut ips: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    let mut seen = HashSet::new();
    ips.retain(|ip| seen.insert(*ip));
    Ok(ips)
}

fn server_name(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if statement.args.is_empty() {
        builder.error(
            statement.span,
            "invalid number of arguments in \"server_name\" directive",
        );
    }
    for word in &statement.args {
        let text = match word.text.as_str() {
            "$hostname" => &String::from_utf8_lossy(hostname()),
            text => text,
        };
        let name = if let Some(source) = text.strip_prefix('~') {
            if source.is_empty() {
                builder.error(word.span, format!("empty regex in server name \"{text}\""));
                continue;
            }
            match Regex::compile(builder, source, Case::Insensitive, word.span) {
                Some(regex) => ServerName::Regex(regex),
                None => continue,
            }
        } else {
            match parse_name(text) {
                Some(name) => name,
                None => {
                    builder.error(word.span, format!("server name \"{text}\" is invalid"));
                    continue;
                }
            }
        };
        draft.of::<Names>().0.push(name);
    }
}

fn parse_name(text: &str) -> Option<ServerName> {
    let lower = text.to_ascii_lowercase();
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let name = if let Some(rest) = lower.strip_prefix('*') {
        if !rest.starts_with('.') || rest.contains('*') || rest.len() < 2 {
            return None;
        }
        ServerName::Under(bytes(rest))
    } else if let Some(start) = lower.strip_suffix('*') {
        if !start.ends_with('.') || start.contains('*') || start.len() < 2 {
            return None;
        }
        ServerName::Before(bytes(start))
    } else if lower.contains('*') {
        return None;
    } else if lower.starts_with('.') {
        if lower.len() < 2 {
            return None;
        }
        ServerName::SelfAndUnder(bytes(&lower))
    } else {
        ServerName::Exact(bytes(&lower))
    };
    Some(name)
}

/// Joins the servers of all addresses.
pub(crate) fn bindings(
    cx: &mut ParseContext,
    servers: &[(Arc<Server>, Vec<ListenArgs>)],
    carries: Carries,
) -> Vec<Binding> {
    let mut groups = Groups::default();
    for (server, listens) in servers {
        if listens.is_empty() && carries == Carries::Sessions {
            let message = "no \"listen\" is defined for the server";
            cx.diagnostics.push_error(server.span, message);
        } else if listens.is_empty() {
            // nginx: a server without `listen` answers on port 80 (root) or 8000.
            let port = if rustix::process::geteuid().is_root() {
                80
            } else {
                8000
            };
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
            join(
                cx,
                &mut groups,
                server,
                &ListenArgs {
                    address: Address::Inet(address),
                    options: ListenOptions::default(),
                    has_options: false,
                    is_default: false,
                    has_proxy_protocol: false,
                    is_encrypted: false,
                    is_udp: false,
                    is_quic: false,
                    has_http2: false,
                    span: server.span,
                },
            );
        }
        let mut seen = HashSet::new();
        for args in listens {
            if !seen.insert((args.address.clone(), args.is_udp)) {
                let message = format!("a duplicate listen {}", args.address);
                cx.diagnostics.push_error(args.span, message);
                continue;
            }
            join(cx, &mut groups, server, args);
        }
    }
    let listens = groups
        .all
        .into_iter()
        .map(|group| group.into_listen(cx))
        .collect();
    bind_wildcards(listens, carries)
}

/// The servers of one address, while they are joined.
struct Group {
    address: Address,
    is_udp: bool,
    is_quic: bool,
    options: ListenOptions,
    default: Arc<Server>,
    has_default: bool,
    has_options: bool,
    has_proxy_protocol: bool,
    is_encrypted: bool,
    has_http2: bool,
    servers: Vec<Arc<Server>>,
}

/// Groups in the order of the file, found by their addresses: a range of ports makes thousands.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    by_address: HashMap<(Address, bool), usize>,
}

fn join(cx: &mut ParseContext, groups: &mut Groups, server: &Arc<Server>, args: &ListenArgs) {
    let key = (args.address.clone(), args.is_udp);
    let known = groups.by_address.get(&key);
    let Some(group) = known.and_then(|index| groups.all.get_mut(*index)) else {
        groups.by_address.insert(key, groups.all.len());
        groups.all.push(Group {
            address: args.address.clone(),
            is_udp: args.is_udp,
            is_quic: args.is_quic,
            options: args.options.clone(),
            default: Arc::clone(server),
            has_default: args.is_default,
            has_options: args.has_options,
            has_proxy_protocol: args.has_proxy_protocol,
            is_encrypted: args.is_encrypted,
            has_http2: args.has_http2,
            servers: vec![Arc::clone(server)],
        });
        return;
    };
    if args.is_default {
        if std::mem::replace(&mut group.has_default, true) {
            let message = format!("a duplicate default server for {}", args.address);
            cx.diagnostics.push_error(args.span, message);
        }
        group.default = Arc::clone(server);
    }
    if args.has_options {
        if std::mem::replace(&mut group.has_options, true) && group.options != args.options {
            let message = format!("duplicate listen options for {}", args.address);
            cx.diagnostics.push_error(args.span, message);
        }
        group.options = args.options.clone();
    }
    // nginx: one line that has it is enough.
    group.has_proxy_protocol |= args.has_proxy_protocol;
    group.is_encrypted |= args.is_encrypted;
    group.has_http2 |= args.has_http2;
    group.servers.push(Arc::clone(server));
}

impl Group {
    fn into_listen(self, cx: &mut ParseContext) -> Listen {
        let mut names = ServerNames::new(Arc::clone(&self.default));
        for server in &self.servers {
            let empty = [ServerName::Exact(Bytes::new())];
            let all = if server.names.is_empty() {
                &empty[..]
            } else {
                &server.names[..]
            };
            for name in all {
                if !names.add(name, server) {
                    let text = name.text();
                    let text = String::from_utf8_lossy(&text).into_owned();
                    let message = format!(
                        "conflicting server name \"{text}\" on {}, ignored",
                        self.address
                    );
                    let warning = cx.diagnostics.push_warning(server.span, message);
                    warning.code(code::CONFLICTING_NAME);
                }
            }
        }
        Listen {
            address: self.address,
            options: self.options,
            has_proxy_protocol: self.has_proxy_protocol,
            is_encrypted: self.is_encrypted,
            is_udp: self.is_udp,
            is_quic: self.is_quic,
            has_http2: self.has_http2,
            names,
        }
    }
}

/// One socket for each address, but one only for a wildcard and the addresses of its port.
fn bind_wildcards(listens: Vec<Listen>, carries: Carries) -> Vec<Binding> {
    let listens: Vec<Arc<Listen>> = listens.into_iter().map(Arc::new).collect();
    let family =
        |listen: &Listen, address: &SocketAddr| (address.port(), address.is_ipv4(), listen.is_udp);
    let mut wildcards = HashMap::new();
    for listen in &listens {
        if let Address::Inet(wild) = &listen.address
            && wild.ip().is_unspecified()
        {
            wildcards.entry(family(listen, wild)).or_insert(listen);
        }
    }
    let mut bindings: Vec<Binding> = Vec::new();
    let mut by_address: HashMap<(&Address, bool), usize> = HashMap::new();
    for listen in &listens {
        let wildcard = match &listen.address {
            Address::Inet(own) => wildcards.get(&family(listen, own)).copied(),
            Address::Unix(_) => None,
        };
        let socket = wildcard.unwrap_or(listen);
        let key = (&socket.address, socket.is_udp);
        let known = by_address.get(&key);
        match known.and_then(|index| bindings.get_mut(*index)) {
            Some(binding) => binding.listens.push(Arc::clone(listen)),
            None => {
                by_address.insert(key, bindings.len());
                bindings.push(Binding {
                    bound: socket.address.clone(),
                    is_udp: socket.is_udp,
                    options: socket.options.clone(),
                    carries,
                    listens: vec![Arc::clone(listen)],
                });
            }
        }
    }
    bindings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_takes_addresses_ports_and_ranges() {
        let cases = [
            ("80", vec!["0.0.0.0:80"]),
            ("*:81", vec!["0.0.0.0:81"]),
            ("127.0.0.1", vec!["127.0.0.1:80"]),
            ("127.0.0.1:8080", vec!["127.0.0.1:8080"]),
            ("[::1]:8080", vec!["[::1]:8080"]),
            ("[::]:90", vec!["[::]:90"]),
            (
                "127.0.0.1:80-82",
                vec!["127.0.0.1:80", "127.0.0.1:81", "127.0.0.1:82"],
            ),
            ("unix:/run/x", vec!["unix:/run/x"]),
        ];
        for (text, expected) in cases {
            let found: Vec<String> = parse_addresses(text)
                .unwrap()
                .iter()
                .map(Address::to_string)
                .collect();
            assert_eq!(found, expected, "{text}");
        }
        for text in [
            "unix:",
            "127.0.0.1:0",
            "127.0.0.1:x",
            "[::1",
            "127.0.0.1:9-8",
            ":::",
        ] {
            assert!(parse_addresses(text).is_err(), "{text}");
        }
    }

    #[test]
    fn server_names_take_one_wildcard_at_one_end() {
        for text in ["*", "*.", "a.*.b", "a*", "*a", "*.*", "."] {
            assert!(parse_name(text).is_none(), "{text}");
        }
        for text in ["", "a", "A.b", "*.a", ".a", "a.*"] {
            assert!(parse_name(text).is_some(), "{text}");
        }
    }
}
