//! `proxy_pass`, `fastcgi_pass`, `scgi_pass`, `uwsgi_pass`, `memcached_pass`, `grpc_pass`: a
//! request is answered by an upstream, through the cache when there is one.
//!
//! Reads the directive in its forms (a group, an address, a Unix socket, with or without a URI,
//! with variables), works out where a request goes and with which URI, and starts the exchange.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use millpond_conf::{Contexts, OffOr, Scope, Span, Statement, Template, Word};
use millpond_system::address::Address;
use millpond_system::network;
use millpond_wire::http1::Method;
use millpond_wire::http2::ALPN;

use super::balance::Method as Balance;
use super::encryption::Encryption;
use super::group::Group;
use super::memcached;
use super::peer::{Peer, PeerSettings};
use super::redirect::PassPlace;
use super::tunnel;
use crate::content::ContentHandler;
use crate::request::Request;
use crate::tls::origins::Origin;
use crate::upstream::groups::Groups;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::record;
use crate::upstream::settings::UpstreamSettings;
use millpond_cache::method::CacheMethod;
use millpond_exchange::failure::{Failure, UpstreamFailure, UpstreamKind};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::level::{Closing, Level};
use millpond_semantics::proxy_status::ProxyError;

/// Rows of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: "proxy_pass",
        contexts: Contexts::LOCATION
            .union(Contexts::IF_LOCATION)
            .union(Contexts::LIMIT_EXCEPT),
        syntax: "URL",
        is_block: false,
        pass: Pass::First,
        doc: "The upstream that answers the requests of the location: http://host[:port][path], a \
              group's name for the host, or http://unix:socket:[path]. A path takes the place of \
              the location's name; with variables it is the whole target.",
        apply: pass,
    },
    application(
        "fastcgi_pass",
        "The FastCGI application that answers the requests of the location: host:port, \
         unix:socket or a group's name.",
    ),
    application(
        "scgi_pass",
        "The SCGI application that answers the requests of the location: host:port, unix:socket \
         or a group's name.",
    ),
    application(
        "uwsgi_pass",
        "The uwsgi application that answers the requests of the location: host:port, unix:socket \
         or a group's name, with or without uwsgi:// before it.",
    ),
    application(
        "grpc_pass",
        "The gRPC server that answers the requests of the location: host:port, unix:socket or a \
         group's name, with or without grpc:// before it, or with grpcs:// for TLS. It is asked in \
         HTTP/2; the bodies of request and answer go both ways at once, and trailers go on. \
         Clients of HTTP/1 are answered, too.\n\n\
         # Differs from nginx\n\nA peer that goes away in peace before it has looked at a request \
         on a kept connection is asked again on another one. To a client of HTTP/2, Content-Length \
         of an answer is left out.",
    ),
    application(
        "memcached_pass",
        "The memcached server that answers the requests of the location: host:port, unix:socket or \
         a group's name. It is asked for the value of the key in `$memcached_key`, which `set` or \
         another directive must define; what it does not have is a 404.\n\n\
         # Differs from nginx\n\nThe address may have variables.",
    ),
];

const fn application(name: &'static str, doc: &'static str) -> Row {
    Row {
        name,
        contexts: Contexts::LOCATION.union(Contexts::IF_LOCATION),
        syntax: "address",
        is_block: false,
        pass: Pass::First,
        doc,
        apply: pass,
    }
}

/// Target to which a location passes its requests.
#[derive(Debug)]
pub struct PassTarget {
    /// Protocol in which the target is spoken to.
    pub protocol: Protocol,
    to: To,
    /// Key that a memcached server is asked for.
    pub key: Option<Template>,
    /// The location's name, whose place a path takes.
    pub location_prefix: Bytes,
    /// Text that `proxy_redirect default` replaces, and its replacement; none when the URL has
    /// variables.
    default_redirect: Option<(Bytes, Bytes)>,
    /// The context of encrypted connections, where some may have to be.
    origin: OnceLock<Arc<Origin>>,
    /// The context of connections to others, to which redirects lead.
    foreign: OnceLock<Arc<Origin>>,
}

#[derive(Debug)]
enum To {
    Fixed(Resolved),
    Variable(Template),
    /// The upstream of a redirect, with the whole target.
    Redirect(Origins, Resolved),
}

/// The side of the first origin that a redirect leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origins {
    Own,
    Foreign,
}

/// An upstream and what of the target is fixed.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The peers.
    pub group: Arc<Group>,
    /// The authority as written, without a default port: the Host field of requests.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The path of the URL; `None` when it has none.
    pub path: Option<Bytes>,
    /// True if connections to the peers are encrypted.
    pub is_encrypted: bool,
}

/// A URL taken apart.
struct Url<'a> {
    authority: Cow<'a, str>,
    path: Option<&'a str>,
    is_encrypted: bool,
}

impl Url<'_> {
    /// The port of hosts that name none.
    fn usual_port(&self) -> u16 {
        if self.is_encrypted { 443 } else { 80 }
    }
}

/// Takes an address apart as its protocol writes it.
fn split_address(protocol: Protocol, text: &str) -> Result<Url<'_>, String> {
    if protocol == Protocol::Http {
        return split_url(text);
    }
    let (authority, is_encrypted) = split_scheme(protocol, text);
    if protocol == Protocol::Tunnel && tunnel::is_socket_by_chance(authority) {
        return Err("the path of a Unix socket must be absolute".to_string());
    }
    if authority.is_empty() {
        return Err("no host in upstream".to_string());
    }
    Ok(Url {
        authority: Cow::Borrowed(authority),
        path: None,
        is_encrypted,
    })
}

/// The rest behind the scheme of a protocol that can be encrypted, if it is written, and whether it
/// is that of encrypted connections.
fn split_scheme(protocol: Protocol, text: &str) -> (&str, bool) {
    let Some(encrypted) = protocol.encrypted_scheme() else {
        return (text, false);
    };
    let behind = |scheme: &str| {
        let rest = match protocol {
            // nginx compares these as they are written.
            Protocol::Uwsgi => text.strip_prefix(scheme),
            _ => after(text, scheme),
        };
        rest?.strip_prefix("://")
    };
    match (behind(protocol.scheme()), behind(encrypted)) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => (text, false),
    }
}

/// The rest behind a scheme.
fn after<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (begin, rest) = url.split_at_checked(scheme.len())?;
    begin.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn split_url(url: &str) -> Result<Url<'_>, String> {
    let (rest, is_encrypted) = match (after(url, "http://"), after(url, "https://")) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => return Err("invalid URL prefix".to_string()),
    };
    if let Some(socket) = rest.strip_prefix("unix:") {
        let (path, uri) = match socket.split_once(':') {
            Some((path, uri)) => (path, (!uri.is_empty()).then_some(uri)),
            None => (socket, None),
        };
        return Ok(Url {
            authority: Cow::Owned(format!("unix:{path}")),
            path: uri,
            is_encrypted,
        });
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() {
        return Err("no host in upstream".to_string());
    }
    Ok(Url {
        authority: Cow::Borrowed(authority),
        path: (!path.is_empty()).then_some(path),
        is_encrypted,
    })
}

fn pass(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    let name = statement.name.text.as_str();
    let protocol = Protocol::of_directive(name).unwrap_or(Protocol::Http);
    let [url] = statement.args.as_slice() else {
        let message = format!("invalid number of arguments in \"{name}\" directive");
        return builder.error(statement.span, message);
    };
    pass_to(builder, (statement, protocol), url, draft);
}

/// Protocols in which a block passes its requests; the last one counts.
#[derive(Default)]
struct Passes(Vec<Protocol>);

/// Makes a block pass its requests to a target.
pub(super) fn pass_to(
    builder: &mut Builder,
    (statement, protocol): (&Statement, Protocol),
    url: &Word,
    draft: &mut Draft,
) {
    let name = statement.name.text.as_str();
    // nginx: each module refuses a second line of its own, and the last of several modules answers.
    let Passes(earlier) = draft.of();
    if earlier.contains(&protocol) {
        return builder.error(statement.span, format!("\"{name}\" directive is duplicate"));
    }
    earlier.push(protocol);
    let template = match Template::parse(&url.text, url.span, &mut builder.cx.variables) {
        Ok(template) => template,
        Err(error) => return builder.error(url.span, error.to_string()),
    };
    let to = if template.as_literal().is_some() {
        match fixed(builder, protocol, (&url.text, url.span), draft) {
            Some(resolved) => To::Fixed(resolved),
            None => return,
        }
    } else {
        To::Variable(template)
    };
    let location_prefix = Bytes::from(draft.name.clone().into_bytes());
    let default_redirect = match &to {
        // Redirects of applications are passed on as they are.
        _ if protocol != Protocol::Http => None,
        To::Fixed(Resolved { path: Some(_), .. }) => {
            Some((Bytes::from(url.text.clone()), location_prefix.clone()))
        }
        // nginx: without a path of its own the address stands for the root.
        To::Fixed(_) => Some((
            Bytes::from(format!("{}/", url.text)),
            Bytes::from_static(b"/"),
        )),
        To::Variable(_) | To::Redirect(..) => None,
    };
    // nginx: the variable must be defined where it is used.
    let key = (protocol == Protocol::Memcached)
        .then(|| Template::parse(memcached::KEY, url.span, &mut builder.cx.variables));
    let target = PassTarget {
        protocol,
        to,
        key: key.and_then(Result::ok),
        location_prefix,
        default_redirect,
        origin: OnceLock::new(),
        foreign: OnceLock::new(),
    };
    if protocol == Protocol::Http {
        draft.put(PassPlace(statement.span));
    }
    draft.put(target.into_handler());
}

fn fixed(
    builder: &mut Builder,
    protocol: Protocol,
    (url, span): (&str, Span),
    draft: &Draft,
) -> Option<Resolved> {
    let parts = match split_address(protocol, url) {
        Ok(parts) => parts,
        Err(message) => {
            builder.error(span, message);
            return None;
        }
    };
    if parts.path.is_some() && !draft.allows_pass_path() {
        builder.error(
            span,
            "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside named location, \
             or inside \"if\" statement, or inside \"limit_except\" block",
        );
        return None;
    }
    let groups = builder.of::<Groups>();
    let resolved =
        check_port(protocol, &parts.authority, groups).and_then(|()| resolve(&parts, groups));
    match resolved {
        Ok((group, host, port)) => {
            share(&group, groups);
            let path = parts.path.map(|path| absolute_path(path.as_bytes()));
            Some(Resolved {
                group,
                host: Arc::from(host),
                port,
                path,
                is_encrypted: parts.is_encrypted,
            })
        }
        Err(why) => {
            builder.error(span, format!("{why} in upstream \"{}\"", parts.authority));
            None
        }
    }
}

/// nginx: a URL whose path begins with `?` gets the slash that is missing.
fn absolute_path(path: &[u8]) -> Bytes {
    if path.starts_with(b"?") {
        return Bytes::from([b"/", path].concat());
    }
    Bytes::copy_from_slice(path)
}

/// The path at the end of an address, of which `text` is what can be read: its bytes need not be
/// UTF-8, those before it must.
fn path_of<'a>(address: &'a [u8], text: &str, path: &str) -> Result<&'a [u8], String> {
    let at = text.len().saturating_sub(path.len());
    match address.split_at_checked(at) {
        Some((before, path)) if text.as_bytes().starts_with(before) => Ok(path),
        _ => Err("invalid host".to_string()),
    }
}

/// A key of an application's cache has no default: nginx warns, and keeps one answer for all.
pub fn close(level: &mut Closing<'_>) {
    let Some(target) = level.draft.get().and_then(PassTarget::of) else {
        return;
    };
    let protocol = target.protocol;
    let OffOr::On(zone) = &level.settings.pass(protocol).zone.zone else {
        return;
    };
    let prefix = protocol.prefix();
    let name = format!("{prefix}_cache_key");
    let mut raws = level
        .levels
        .iter()
        .filter_map(Level::raw::<UpstreamSettings>);
    let is_set = raws.any(|raw| UpstreamSettings::span_of(raw, &name).is_some());
    if protocol != Protocol::Http && !is_set {
        let message = format!("no \"{name}\" for \"{prefix}_cache\"");
        level.builder.error(zone.span, message);
    }
}

/// Keeps the group of a host for the next location that passes to it.
fn share(group: &Arc<Group>, groups: &mut Groups) {
    let mut known = groups.upstreams.iter().chain(&groups.implicit);
    if !known.any(|other| Arc::ptr_eq(other, group)) {
        groups.implicit.push(Arc::clone(group));
    }
}

/// The group of a name.
fn find<'a>(groups: &'a [Arc<Group>], name: &str) -> Option<&'a Arc<Group>> {
    groups
        .iter()
        .find(|group| group.name.eq_ignore_ascii_case(name))
}

/// Applications have no usual port.
fn check_port(protocol: Protocol, authority: &str, groups: &Groups) -> Result<(), String> {
    match protocol {
        Protocol::Http => Ok(()),
        _ => must_have_port(authority, groups),
    }
}

fn must_have_port(authority: &str, groups: &Groups) -> Result<(), String> {
    let has_port = authority.starts_with("unix:")
        || find(&groups.upstreams, authority).is_some()
        || network::split_port(authority, 0)?.1 != 0;
    has_port.then_some(()).ok_or_else(|| "no port".to_string())
}

/// The address of a peer without a scheme, as `stream` writes it.
fn bare(authority: &str) -> Url<'_> {
    Url {
        authority: Cow::Borrowed(authority),
        path: None,
        is_encrypted: false,
    }
}

/// The group that sessions are passed to: a groups one, or that of a host with its port.
pub fn group_of(authority: &str, groups: &mut Groups) -> Result<Arc<Group>, String> {
    must_have_port(authority, groups)?;
    let (group, ..) = resolve(&bare(authority), groups)?;
    share(&group, groups);
    Ok(group)
}

/// The group that a session is passed to by the value of a variable, its name resolved.
pub async fn group_for(req: &Request, authority: &str) -> Result<Arc<Group>, Failure> {
    let groups = req.conf.parts.of::<Groups>();
    let found = must_have_port(authority, groups).and_then(|()| known(&bare(authority), groups));
    match found {
        Ok((Some(group), _)) => Ok(group),
        Ok((None, host)) => Ok(Arc::new(passing(req, &host).await?)),
        Err(why) => Err(Failure::Internal(format!(
            "{why} in upstream \"{authority}\""
        ))),
    }
}

/// A host as a URL names it.
#[derive(Clone, Debug)]
pub struct Host {
    /// The Host field of requests.
    field: String,
    /// The host without its port.
    name: String,
    port: u16,
}

impl Host {
    fn of(url: &Url<'_>) -> Result<Host, String> {
        let (authority, usual) = (&*url.authority, url.usual_port());
        if authority.starts_with("unix:") {
            return Ok(Host {
                field: "localhost".to_string(),
                name: authority.to_string(),
                port: usual,
            });
        }
        let (name, port) = network::split_port(authority, usual)?;
        let field = if port == usual { name } else { authority };
        Ok(Host {
            field: field.to_string(),
            name: name.to_string(),
            port,
        })
    }

    /// The name of the group that is made for it.
    ///
    /// nginx: a host with the usual port is the same with and without it.
    fn group_name(&self) -> String {
        if self.name.starts_with("unix:") {
            self.name.clone()
        } else {
            format!("{}:{}", self.name, self.port)
        }
    }
}

/// The group of a name: a groups one, or one that another location passes to.
fn known(url: &Url<'_>, groups: &Groups) -> Result<(Option<Arc<Group>>, Host), String> {
    let authority = &*url.authority;
    if let Some(group) = find(&groups.upstreams, authority) {
        let host = Host {
            field: authority.to_string(),
            name: authority.to_string(),
            port: url.usual_port(),
        };
        return Ok((Some(Arc::clone(group)), host));
    }
    let host = Host::of(url)?;
    let group = find(&groups.implicit, &host.group_name());
    Ok((group.cloned(), host))
}

/// The known group of a name, or one of the addresses of a host.
fn resolve(url: &Url<'_>, groups: &Groups) -> Result<(Arc<Group>, String, u16), String> {
    let (group, host) = known(url, groups)?;
    if let Some(group) = group {
        return Ok((group, host.field, host.port));
    }
    let settings = PeerSettings::new(&url.authority);
    let addresses = network::resolve(&url.authority, url.usual_port())?.into_iter();
    let peer = |address| Peer::new(address, settings.clone(), None);
    let peers = addresses.map(peer).collect();
    let mut group = Group::new(host.group_name(), peers, Balance::RoundRobin);
    group.is_implicit = true;
    Ok((Arc::new(group), host.field, host.port))
}

/// A group of the addresses that a host has now, for one request.
async fn passing(req: &Request, host: &Host) -> Result<Group, Failure> {
    let addresses = addresses(req, (&host.name, host.port)).await?;
    Ok(Group::passing(host.group_name(), addresses))
}

/// The addresses that a host has now.
pub(super) async fn addresses(
    req: &Request,
    (name, port): (&str, u16),
) -> Result<Vec<Address>, Failure> {
    if is_address(name) {
        return network::resolve(name, port)
            .map_err(|why| Failure::Internal(format!("{why} in upstream \"{name}\"")));
    }
    let policy = &req.location.settings.resolver;
    let Some(servers) = &policy.servers else {
        return Err(unresolved(format!("no resolver defined to resolve {name}")));
    };
    let found = servers.0.addresses(name, policy.timeout).await;
    let found = found.map_err(|why| unresolved(format!("{name} could not be resolved ({why})")))?;
    let address = |ip| Address::Inet(SocketAddr::new(ip, port));
    Ok(found.ips.into_iter().map(address).collect())
}

fn is_address(name: &str) -> bool {
    name.starts_with("unix:") || network::ip_of(name).is_some()
}

fn unresolved(message: String) -> Failure {
    let failure = UpstreamFailure::new(UpstreamKind::NoLive, message);
    Failure::Upstream(failure.told_as(ProxyError::Dns))
}

impl PassTarget {
    /// The target of a handler that passes.
    #[inline]
    pub fn of(handler: &ContentHandler) -> Option<&Arc<PassTarget>> {
        match handler {
            ContentHandler::Pass(target) => target.downcast_ref(),
            ContentHandler::Own(_) => None,
        }
    }

    /// The handler that passes to this target; of a shared one, so that a request takes a share in
    /// it as its own type.
    pub(crate) fn into_handler(self) -> ContentHandler {
        ContentHandler::Pass(Arc::new(Arc::new(self)))
    }

    /// The target of requests to a node of the fleet.
    pub(crate) fn of_peer(resolved: Resolved) -> PassTarget {
        PassTarget {
            protocol: Protocol::Http,
            to: To::Fixed(resolved),
            key: None,
            location_prefix: Bytes::new(),
            default_redirect: None,
            origin: OnceLock::new(),
            foreign: OnceLock::new(),
        }
    }

    /// True when the URL has variables.
    pub fn has_variables(&self) -> bool {
        matches!(self.to, To::Variable(_) | To::Redirect(..))
    }

    /// The fixed upstream, for `$proxy_host` before a request was passed.
    pub fn fixed(&self) -> Option<&Resolved> {
        match &self.to {
            To::Fixed(resolved) | To::Redirect(_, resolved) => Some(resolved),
            To::Variable(_) => None,
        }
    }

    /// True if connections may have to be encrypted.
    pub fn may_encrypt(&self) -> bool {
        match &self.to {
            To::Fixed(resolved) | To::Redirect(_, resolved) => resolved.is_encrypted,
            To::Variable(_) => self.protocol.encrypted_scheme().is_some(),
        }
    }

    /// Sets the context of its encrypted connections.
    pub fn set_origin(&self, origin: Arc<Origin>) {
        // The first one stays: a target belongs to one location.
        let _ = self.origin.set(origin);
    }

    /// Sets the context of encrypted connections to origins that redirects lead to.
    pub fn set_foreign(&self, origin: Arc<Origin>) {
        // The first one stays, as above.
        let _ = self.foreign.set(origin);
    }

    /// The target of a redirect within the same origin.
    pub(super) fn within(&self, resolved: Resolved) -> PassTarget {
        self.redirected(To::Redirect(Origins::Own, resolved))
    }

    /// The target of a redirect to another origin.
    pub(super) fn foreign(&self, resolved: Resolved) -> PassTarget {
        self.redirected(To::Redirect(Origins::Foreign, resolved))
    }

    fn redirected(&self, to: To) -> PassTarget {
        PassTarget {
            protocol: self.protocol,
            to,
            key: None,
            location_prefix: Bytes::new(),
            default_redirect: None,
            origin: self.origin.clone(),
            foreign: self.foreign.clone(),
        }
    }

    /// The encryption of a request's connection to an upstream, if it is to be encrypted.
    pub fn encryption(
        &self,
        req: &mut Request,
        resolved: &Resolved,
    ) -> Result<Option<Box<Encryption>>, Failure> {
        if !resolved.is_encrypted {
            return Ok(None);
        }
        let is_foreign = matches!(self.to, To::Redirect(Origins::Foreign, _));
        let origin = if is_foreign {
            self.foreign.get()
        } else {
            self.origin.get()
        };
        let Some(origin) = origin else {
            let why = "no context for an encrypted connection";
            return Err(Failure::Internal(why.to_string()));
        };
        let by_lines = if is_foreign {
            Encryption::to(origin, &resolved.host)
        } else {
            Encryption::of(req, (origin, self.protocol), &resolved.host)?
        };
        let settings = &req.location.settings;
        let protocol = (record::of(self.protocol).is_in_streams)(settings).then_some(ALPN);
        Ok(Some(Box::new(Encryption {
            protocol,
            ..by_lines
        })))
    }

    /// Text that `proxy_redirect default` replaces, and its replacement.
    pub fn default_redirect(&self) -> Option<&(Bytes, Bytes)> {
        self.default_redirect.as_ref()
    }

    /// The upstream for a request, its name resolved.
    pub async fn resolve(&self, req: &mut Request) -> Result<Resolved, Failure> {
        let (mut resolved, unknown) = self.locate(req)?;
        // nginx: the name is known to all that is evaluated for the request to the peer.
        note_resolved(req, &resolved);
        if let Some(host) = unknown {
            resolved.group = Arc::new(passing(req, &host).await?);
        }
        Ok(resolved)
    }

    /// The upstream for a request; the group has no peers as long as its host is not resolved.
    pub fn locate(&self, req: &mut Request) -> Result<(Resolved, Option<Host>), Failure> {
        let template = match &self.to {
            To::Fixed(resolved) | To::Redirect(_, resolved) => return Ok((resolved.clone(), None)),
            To::Variable(template) => template,
        };
        let address = req.eval(template);
        let url = String::from_utf8_lossy(&address);
        let wrong = |why: String| Failure::Internal(format!("{why} in \"{url}\""));
        let parts = split_address(self.protocol, &url).map_err(wrong)?;
        let path = parts.path.map(|path| path_of(&address, &url, path));
        let path = path.transpose().map_err(wrong)?;
        let groups = req.conf.parts.of::<Groups>();
        let found = check_port(self.protocol, &parts.authority, groups)
            .and_then(|()| known(&parts, groups));
        let (group, host) = found.map_err(|why| {
            Failure::Internal(format!("{why} in upstream \"{}\"", parts.authority))
        })?;
        let is_unknown = group.is_none();
        let group =
            group.unwrap_or_else(|| Arc::new(Group::passing(host.group_name(), Vec::new())));
        let resolved = Resolved {
            group,
            host: Arc::from(host.field.as_str()),
            port: host.port,
            path: path.map(absolute_path),
            is_encrypted: parts.is_encrypted,
        };
        Ok((resolved, is_unknown.then_some(host)))
    }
}

/// `$proxy_host` is known before the first exchange: the cache key needs it.
pub fn note_host(req: &Request, target: &PassTarget) {
    if let Some(resolved) = target.fixed() {
        note_resolved(req, resolved);
    }
}

pub(super) fn note_resolved(req: &Request, resolved: &Resolved) {
    let mut trace = req.upstream.borrow_mut();
    trace.host = Some(Arc::clone(&resolved.host));
    trace.port = resolved.port;
}

/// True if the method is one whose answers are stored.
pub fn may_cache(req: &Request, protocol: Protocol) -> bool {
    let methods = &req.location.settings.pass(protocol).method;
    match req.method {
        Method::Get => methods.allows(CacheMethod::Get),
        Method::Head => methods.allows(CacheMethod::Head),
        Method::Post => methods.allows(CacheMethod::Post),
        _ => false,
    }
}
