//! Explanation of a request's fate, without a client and without an answer: for `millpond explain`.
//!
//! The request runs through the phases that route it ([`phase::route`]), on a connection that leads
//! nowhere. Then the settings of its location are asked, by the code that serves requests: where it
//! is passed, under which key it is looked up, and what would become of an answer.
//!
//! Invariants:
//! 1. Nothing is decided here that is not decided by the same function when a request is served.
//! 2. No connection is made and no cache is opened; files are only looked for, by `try_files` and
//!    conditions.
//!
//! What it does not do: limits let everything through, passwords are not checked, and error pages
//! are not followed. What gates say is told beside what becomes of a request that they let in.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_cache::conformance::Rules;
use millpond_cache::exchange::{Exchange, FetchEnd, Fetched};

use millpond_cache::step::{self, Given, Policies};
use millpond_cache::use_stale::StaleCause;
use millpond_cache::variant::RequestFields;
use millpond_cache::zone::CacheZone;
use millpond_conf::{Span, Template};
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::Conf;
use millpond_exchange::settings::listen::{Binding, Listen};
use millpond_exchange::settings::tree::{AfterPrefix, LocationKind};
use millpond_exchange::trace::{Attempt, UpstreamTrace};
use millpond_proxy::cache::content_key;
use millpond_proxy::cache::exchange::PassExchange;
use millpond_proxy::cache::no_vary_search::{self, Simplified};
use millpond_proxy::cache::ruling::RulingHook;
use millpond_proxy::cache::vary_as;
use millpond_proxy::content::{ContentHandler, Explained};
use millpond_proxy::downstream::serve::find_server;
use millpond_proxy::handler::access::{self, Foreseen};
use millpond_proxy::phase::{self, Phase};
use millpond_proxy::request::Request;
use millpond_proxy::site;
use millpond_proxy::tls::explain::{Shown, certificate};
use millpond_proxy::upstream::pass::{self, PassTarget};
use millpond_proxy::upstream::pass_settings::SettingsByProtocol as _;
use millpond_proxy::upstream::tunnel::Tunnels;
use millpond_proxy::upstream::{by_rfc, http};
use millpond_semantics::dictionary::Offer;
use millpond_semantics::no_vary_search::Variation;
use millpond_system::address::Address;
use millpond_wire::header::{Field, Fields, Known};
use millpond_wire::http1::Method;
use millpond_wire::http1::request::{Progress, RequestParser};
use serde::{Deserialize, Serialize};

pub use millpond_cache::ruling::Ruling;
pub use millpond_cache::step::{Kept, NotKept};

/// A request to be explained.
#[derive(Clone, Debug)]
pub struct Question {
    /// The port that it comes to.
    pub port: u16,
    /// Address of the client.
    pub client: IpAddr,
    /// The head, up to and with the empty line.
    pub head: Bytes,
}

impl Question {
    /// A request for a URL, with these fields; the error is for people.
    pub fn of_url(
        url: &str,
        method: &str,
        fields: &[(String, String)],
    ) -> Result<Question, String> {
        let url = Url::parse(url)?;
        let slash = if url.target.starts_with('?') { "/" } else { "" };
        let mut head = match method {
            // The host of the URL is the proxy and the end of the tunnel in one.
            "CONNECT" => format!("CONNECT {} HTTP/1.1\r\n", url.with_port()),
            _ => format!("{method} {slash}{} HTTP/1.1\r\n", url.target),
        };
        let has_host = fields
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"));
        if !has_host {
            head.push_str(&format!("Host: {}\r\n", url.authority));
        }
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Ok(Question {
            port: url.port,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            head: Bytes::from(head),
        })
    }

    /// Copy of the question, asked by a client with this address.
    pub fn from_client(self, client: IpAddr) -> Question {
        Question { client, ..self }
    }
}

/// Parts of a URL that matter here.
struct Url<'a> {
    authority: &'a str,
    port: u16,
    target: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Result<Url<'a>, String> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || text.is_empty() {
            return Err(format!(
                "\"{text}\" is no URL: spaces and other letters must be escaped"
            ));
        }
        let (rest, usual) = match text.split_once("://") {
            Some(("http", rest)) => (rest, 80),
            Some(("https", rest)) => (rest, 443),
            Some((scheme, _)) => {
                return Err(format!(
                    "\"{scheme}\" is not served; write http:// or https://"
                ));
            }
            None => (text, 80),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let port = match authority.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => {
                port.parse().map_err(|_| format!("\"{port}\" is no port"))?
            }
            _ => usual,
        };
        let target = if target.is_empty() { "/" } else { target };
        Ok(Url {
            authority,
            port,
            target,
        })
    }
}

impl Url<'_> {
    /// Host and port, that of the scheme as well.
    fn with_port(&self) -> String {
        let end = format!(":{}", self.port);
        if self.authority.ends_with(&end) {
            return self.authority.to_string();
        }
        format!("{}{end}", self.authority)
    }
}

/// One thing that happens to the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Text that tells what happens.
    pub text: String,
    /// The block whose directives do it.
    pub span: Span,
}

/// Explanation of a request's fate.
#[derive(Debug)]
pub struct Explanation {
    /// The address that it comes to.
    pub listen: String,
    /// The certificate of the handshake, where the address is encrypted.
    pub certificate: Option<Shown>,
    /// Place of the server in the configuration.
    pub server: Span,
    /// The reason why it is this one.
    pub server_reason: String,
    /// Place of the location in the configuration; the server's own place where there is none.
    pub location: Span,
    /// The reason why it is this one.
    pub location_reason: String,
    /// Events on the way, in order.
    pub events: Vec<Event>,
    /// Verdicts of the location's gates on the request.
    pub gates: Foreseen,
    /// End of the request, if the gates let it in.
    pub end: End,
}

/// End of a request.
#[derive(Debug)]
pub enum End {
    /// The request is answered with this status; a redirect has a target.
    Answered(u16, Option<String>),
    /// Files, or what stands for a folder, answer this path.
    Files(String),
    /// The server itself answers, by this directive.
    Itself(&'static str),
    /// The request purges entries of this zone.
    Purges(String),
    /// An upstream answers.
    Passed(Box<Passed>),
}

/// Way in which a request is passed on.
#[derive(Debug)]
pub struct Passed {
    /// The address and path that are asked; or why there is none.
    pub to: Result<String, String>,
    /// The number of the upstream's redirects that are followed; none where the client follows
    /// them.
    pub redirects: Option<u32>,
    /// Part of the cache in the request; or why it does not.
    pub cache: Result<Caching, String>,
}

/// A value of the configuration, and what it is for a request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ValueInForce {
    /// Text of the value as it is written.
    pub text: String,
    /// Value for the request; a value that is neither empty nor `0` decides.
    pub value: String,
}

impl fmt::Display for ValueInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{} is empty", self.text)
        } else {
            write!(f, "{} is \"{}\"", self.text, self.value)
        }
    }
}

/// Rules by which a request is looked up and stored.
#[derive(Debug)]
pub struct Caching {
    /// The zone.
    pub zone: String,
    /// The key.
    pub key: String,
    /// Kind of the request if its content is a part of the key, which it is told without.
    pub by_content: Option<content_key::Kind>,
    /// Bytes of the cache key.
    pub key_bytes: Bytes,
    /// True if origins may say which arguments of the query count
    /// (`proxy_cache_no_vary_search`).
    pub obeys_no_vary_search: bool,
    /// The site that the request belongs to.
    pub site: String,
    /// True if the look-up is skipped (`proxy_cache_bypass`).
    pub is_bypassed: bool,
    /// True if answers are not stored (`proxy_no_cache`), as far as the request decides it.
    pub is_not_stored: bool,
    /// Values of the `proxy_cache_bypass` in force.
    pub bypass: Vec<ValueInForce>,
    /// Values of the `proxy_no_cache` in force.
    pub no_cache: Vec<ValueInForce>,
    /// Number of requests for the key before an answer is stored.
    pub min_uses: u32,
    /// True if the node of the fleet that owns the key is asked in place of the origin.
    pub asks_owner: bool,
    policies: Arc<Policies>,
    rules: Rules,
    is_authorized: bool,
    target: Arc<PassTarget>,
    asker: Asker,
}

/// The request, for code of the configuration that rules of answers.
struct Asker(RefCell<Request>);

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asker")
    }
}

impl Caching {
    /// The look-up by what a zone remembers of the path's No-Vary-Search; none if it was not said.
    pub fn simplified(&self, zone: &Arc<CacheZone>) -> Option<Simplified> {
        let mut req = self.asker.0.borrow_mut();
        let look = || no_vary_search::simplified(&mut req, &self.target, zone);
        self.obeys_no_vary_search.then(look).flatten()
    }

    /// Meaning of an answer's No-Vary-Search for the query of the request; none if it says nothing
    /// that is obeyed.
    pub fn said_of_query(&self, fields: &[(String, String)]) -> Option<String> {
        let lines = fields
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("no-vary-search"))
            .map(|(_, value)| value.as_bytes());
        let said = Variation::parse(lines).filter(|_| self.obeys_no_vary_search)?;
        let mut query = Vec::new();
        said.simplify(&self.asker.0.borrow().args, &mut query);
        Some(query_in_words(&said, &query))
    }

    /// Values of the request in the fields that a Vary names.
    pub fn variant(&self, vary: &[u8]) -> Bytes {
        let asker = self.asker.0.borrow();
        let fields = RequestFields {
            lookup: &|name| vary_as::values(&asker, name),
            spelling: self.rules.spelling(),
        };
        fields.variant(vary)
    }

    /// True if a stale entry is served while somebody updates it (`use_stale updating`).
    pub fn serves_while_updating(&self) -> bool {
        self.policies.stale.allows(StaleCause::Updating)
    }

    /// True if an update is made behind the answer.
    pub fn updates_behind(&self) -> bool {
        self.policies.revalidate.in_background || self.rules.is_rfc()
    }

    /// True if a time of freshness is told by variables.
    pub fn has_told_times(&self) -> bool {
        self.policies.valid.has_told()
    }

    /// Fields that take the place of Cache-Control and Expires, the strongest first.
    pub fn targeted(&self) -> impl Iterator<Item = &str> {
        self.policies.targeted.in_force(self.rules.conformance())
    }

    /// Judges whether an answer with this status and these fields is stored at a time.
    pub fn judge(
        &self,
        status: u16,
        fields: &[(String, String)],
        now: i64,
    ) -> Result<Kept, NotKept> {
        let fields = fields.to_vec();
        let given = Given {
            policies: &self.policies,
            rules: &self.rules,
            // There is no answer whose variables would tell more.
            valid: Cow::Borrowed(&self.policies.valid),
            is_authorized: self.is_authorized,
        };
        let answer = SupposedAnswer { status, fields };
        let ruling = self.ruling(status, &answer.fields);
        step::judge(&given, &answer, (now, ruling.as_ref()))
    }

    /// True if an answer with this status and these fields is not stored by a value of the
    /// `proxy_no_cache` in force, which the answer may decide (`$upstream_http_NAME`).
    pub fn excludes(&self, status: u16, fields: &[(String, String)]) -> bool {
        if self.is_not_stored {
            return true;
        }
        let mut req = self.asker.0.borrow_mut();
        *req.upstream.borrow_mut() = UpstreamTrace {
            attempts: vec![Attempt {
                status,
                ..Attempt::default()
            }],
            fields: Some(Rc::new(fields_of(fields))),
            ..UpstreamTrace::default()
        };
        let location = Arc::clone(&req.location);
        let bypass = &location.settings.pass(self.target.protocol).bypass;
        let mut values = bypass.no_cache.iter().flatten();
        values.any(|value| req.is_true(value))
    }

    /// The ruling of the configuration's own code about an answer (`js_cache_verdict`).
    pub fn ruling(&self, status: u16, fields: &[(String, String)]) -> Option<Ruling> {
        let mut req = self.asker.0.borrow_mut();
        let hook = req.location.parts.get::<RulingHook>().copied()?;
        let each_field = |each: &mut dyn FnMut(&[u8], &[u8])| {
            for (name, value) in fields {
                each(name.as_bytes(), value.as_bytes());
            }
        };
        (hook.0)(&mut req, status, &each_field)
    }
}

impl Caching {
    /// Meaning of an answer's Use-As-Dictionary; none if it has none, or none are kept here.
    pub fn said_of_dictionary(&self, fields: &[(String, String)]) -> Option<&'static str> {
        let req = self.asker.0.borrow();
        let settings = req.location.settings.pass(self.target.protocol);
        let lines: Vec<&[u8]> = fields
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("use-as-dictionary"))
            .map(|(_, value)| value.as_bytes())
            .collect();
        if lines.is_empty() || !settings.encodings.keeps_dictionaries() {
            return None;
        }
        let origin = [b"http://", &req.host[..]].concat();
        Some(match Offer::parse(lines, (&origin, req.unparsed_uri())) {
            Some(offer) if offer.is_for(req.unparsed_uri()) => "yes, for its own URL, too",
            Some(_) => "yes, for other URLs than its own",
            None => "no: its Use-As-Dictionary is malformed, or its match is none that is known",
        })
    }
}

fn fields_of(fields: &[(String, String)]) -> Fields {
    let mut all = Fields::new();
    for (name, value) in fields {
        let (name, value) = (name.clone().into_bytes(), value.clone().into_bytes());
        all.push(Field::new(name.into(), value.into()));
    }
    all
}

/// Meaning of an origin's word for a query.
pub(crate) fn query_in_words(said: &Variation, query: &[u8]) -> String {
    format!("\"{}\" is looked up: {said} (No-Vary-Search)", text(query))
}

/// Meaning of what a script says of an answer.
pub(crate) fn ruling_in_words(ruling: &Ruling) -> String {
    let seconds = |time: &Duration| time.as_secs();
    let parts = [
        ruling.keeps_out.then(|| "not to be stored".to_string()),
        ruling
            .fresh
            .as_ref()
            .map(|it| format!("fresh for {} s", seconds(it))),
        ruling
            .stale
            .as_ref()
            .map(|it| format!("stale for {} s more", seconds(it))),
        (!ruling.tags.is_empty()).then(|| format!("tags {}", text(&ruling.tags.join(&b' ')))),
        ruling
            .vary
            .as_ref()
            .map(|it| format!("varies by {}", text(it))),
    ];
    let told: Vec<String> = parts.into_iter().flatten().collect();
    if told.is_empty() {
        "nothing of its own (js_cache_verdict)".to_string()
    } else {
        format!("{} (js_cache_verdict)", told.join(", "))
    }
}

/// An answer that nobody has given.
struct SupposedAnswer {
    status: u16,
    fields: Vec<(String, String)>,
}

impl Fetched for SupposedAnswer {
    fn status(&self) -> u16 {
        self.status
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn each_field(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in &self.fields {
            each(name.as_bytes(), value.as_bytes());
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, FetchEnd>> {
        None
    }

    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>> {
        Some(None)
    }
}

/// Explains a request; the error is for people. It must run on an event loop.
pub fn explain(conf: impl Into<Arc<Conf>>, question: &Question) -> Result<Explanation, String> {
    let conf = conf.into();
    let (listen, local) = find_listen(&conf, question.port)?;
    let mut req = request(&conf, &listen, local, question)?;
    find_server(&mut req, &listen).map_err(|(status, why)| format!("{why} ({status})"))?;
    let server_reason = server_reason(&req, &listen);
    let certificate = certificate(&listen, &String::from_utf8_lossy(&req.host));
    let mut events = Vec::new();
    let mut path = req.uri.clone();
    let routed = phase::route(&mut req, &mut |phase, req| {
        note_event(&mut events, &mut path, phase, req);
    });
    let gates = access::foresee(&mut req);
    let end = match routed {
        Ok(Some(response)) => End::Answered(response.status, None),
        Ok(None) => end(&mut req),
        Err(failure) => answered(&mut req, &failure),
    };
    Ok(Explanation {
        listen: listen.address.to_string(),
        certificate,
        server: req.server.span,
        server_reason,
        location: if req.location.is_server_level() {
            req.server.span
        } else {
            req.location.span
        },
        location_reason: location_reason(&req),
        gates,
        events,
        end,
    })
}

/// The listen that a client on this machine would come to by a port; the error is for people.
pub(crate) fn listen_of(conf: &Conf, port: u16) -> Result<Arc<Listen>, String> {
    find_listen(conf, port).map(|(listen, _)| listen)
}

/// The listen for a port: of the loopback address, as a client on this machine would connect.
fn find_listen(conf: &Conf, port: u16) -> Result<(Arc<Listen>, Address), String> {
    let local = Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let has_port = |binding: &&Arc<Binding>| {
        binding
            .listens
            .iter()
            .any(|listen| listen.address.port() == port)
    };
    let mut bindings = conf.bindings.iter().filter(has_port);
    let of_tcp = bindings.clone().find(|binding| !binding.is_udp);
    let binding = of_tcp.or_else(|| bindings.next());
    let found = binding.and_then(|binding| {
        let of_port = binding
            .listens
            .iter()
            .find(|listen| listen.address.port() == port);
        let exact = binding
            .listens
            .iter()
            .find(|listen| listen.address == local);
        exact.or(of_port)
    });
    match found {
        Some(listen) => Ok((Arc::clone(listen), local)),
        None => {
            let listens = conf.bindings.iter().flat_map(|binding| &binding.listens);
            let all: Vec<String> = listens.map(|listen| listen.address.to_string()).collect();
            Err(format!(
                "no server listens on port {port}; there is: {}",
                all.join(", ")
            ))
        }
    }
}

/// The request of a head on a connection that leads nowhere.
fn request(
    conf: &Arc<Conf>,
    listen: &Listen,
    local: Address,
    question: &Question,
) -> Result<Request, String> {
    let server = Arc::clone(listen.names.default_server());
    let mut buffer = BytesMut::from(&question.head[..]);
    let bounds = server.settings.head.limits(conf.reading);
    let head = match RequestParser::new().parse(&mut buffer, &bounds) {
        Progress::Done(head) => head,
        Progress::Refuse(refused) => {
            return Err(format!(
                "the request is answered with {}: {}",
                refused.status(),
                refused.why
            ));
        }
        Progress::NeedMore => return Err("the request has no end".to_string()),
    };
    let peer = Address::Inet(SocketAddr::new(question.client, 0));
    Ok(Request::imagined(conf, head, [peer, local], server))
}

fn server_reason(req: &Request, listen: &Listen) -> String {
    let host = text(&req.host);
    let names = &req.server.names;
    let matched = names
        .iter()
        .find(|name| !req.host.is_empty() && name.matches(&req.host) == Ok(true));
    match matched {
        Some(name) => {
            format!("server_name {} matches \"{host}\"", text(&name.text()))
        }
        None if Arc::ptr_eq(&req.server, listen.names.default_server()) => {
            format!(
                "no name matches \"{host}\": it is the default server of {}",
                listen.address
            )
        }
        None => "it has no name, as the request has no host".to_string(),
    }
}

fn location_reason(req: &Request) -> String {
    let location = &req.location;
    let name = text(&location.name);
    match &location.kind {
        _ if location.is_server_level() => {
            "no location matches: the server's own settings".to_string()
        }
        LocationKind::Exact => format!("\"= {name}\" is exactly the path"),
        LocationKind::Prefix(AfterPrefix::TryRegex) => {
            format!("\"{name}\" is the longest prefix of the path, and no expression matches it")
        }
        LocationKind::Prefix(AfterPrefix::Stop) => {
            format!("\"^~ {name}\" is the longest prefix of the path; expressions are not tried")
        }
        LocationKind::Regex(regex) => {
            format!(
                "the expression \"{}\" is the first that matches the path",
                regex.source()
            )
        }
        LocationKind::Named => format!("the request was sent on to \"{name}\""),
        LocationKind::Unnamed if location.is_limit => {
            let method = text(req.head.method_bytes());
            format!(
                "\"limit_except\" of the location does not name {method}: its block is in force"
            )
        }
        LocationKind::Unnamed => "a block inside the location has taken its place".to_string(),
    }
}

fn note_event(events: &mut Vec<Event>, path: &mut Bytes, phase: Phase, req: &Request) {
    if req.uri == *path {
        return;
    }
    let what = match phase {
        Phase::Precontent => "goes on as",
        _ => "is rewritten to",
    };
    let span = match phase {
        Phase::ServerRewrite => req.server.span,
        _ => req.location.span,
    };
    let old = text(path);
    let text = format!("{old} {what} {}", text(&req.uri));
    events.push(Event { text, span });
    *path = req.uri.clone();
}

fn answered(req: &mut Request, failure: &Failure) -> End {
    let target = req.answer_fields.get(Known::Location);
    End::Answered(failure.status(), target.map(|target| text(target)))
}

fn end(req: &mut Request) -> End {
    let handler = req.location.parts.get::<ContentHandler>().cloned();
    let has_tunnels = req.server.parts.get::<Tunnels>().is_some();
    if req.method == Method::Connect && !has_tunnels {
        return End::Answered(405, None);
    }
    if let Some(target) = handler.as_ref().and_then(PassTarget::of) {
        if target.protocol == Protocol::Tunnel && req.method != Method::Connect {
            return End::Answered(405, None);
        }
        return End::Passed(Box::new(passed(req, target)));
    }
    let Some(ContentHandler::Own(handler)) = handler else {
        return End::Files(text(&req.uri));
    };
    match handler.explain() {
        Explained::Itself(directive) => End::Itself(directive),
        Explained::Purges(zone) => End::Purges(zone),
        Explained::Files => End::Files(text(&req.uri)),
    }
}

fn passed(req: &mut Request, target: &Arc<PassTarget>) -> Passed {
    pass::note_host(req, target);
    let to = target
        .locate(req)
        .map_err(|failure| failure.to_string())
        .map(|(resolved, _)| {
            let mut uri = Vec::new();
            if target.protocol.has_heads_of_http() {
                http::write_uri(req, target, &resolved, &mut uri);
            }
            format!("{}{}", resolved.host, text(&uri))
        });
    let follow = millpond_proxy::upstream::redirect_follow::most(req, target.protocol);
    Passed {
        to,
        redirects: follow,
        cache: caching(req, target),
    }
}

fn caching(req: &mut Request, target: &Arc<PassTarget>) -> Result<Caching, String> {
    let location = Arc::clone(&req.location);
    let prefix = target.protocol.prefix();
    if target.protocol == Protocol::Memcached {
        return Err("what a memcached server has is not stored again".to_string());
    }
    if target.protocol == Protocol::Tunnel {
        return Err("what goes through a tunnel is not looked at".to_string());
    }
    let Some(cache) = millpond_proxy::cache::zones::of_location(&location, target.protocol) else {
        return Err(format!("{prefix}_cache is off here"));
    };
    let by_content = content_key::kind(req, target.protocol);
    if by_content.is_none() && !pass::may_cache(req, target.protocol) {
        return Err(format!("{prefix}_cache_methods does not name the method"));
    }
    let zone = text(&req.eval(&cache.zone));
    if zone.is_empty() || zone == "off" {
        return Err(format!("the value of {prefix}_cache is \"{zone}\""));
    }
    if !req
        .conf
        .declared
        .zones
        .iter()
        .any(|known| known.name == zone)
    {
        return Err(format!(
            "there is no zone \"{zone}\": the request fails with 500"
        ));
    }
    let key =
        millpond_proxy::cache::pass::key(req, target).map_err(|failure| failure.to_string())?;
    let settings = &location.settings.pass(target.protocol).bypass;
    let bypass = values(req, settings.bypass.as_deref());
    let no_cache = values(req, settings.no_cache.as_deref());
    let site = site::of(req);
    vary_as::note(req, target);
    let mut exchange = PassExchange::new(&mut *req, Arc::clone(target));
    let is_bypassed = exchange.must_bypass();
    let is_not_stored = exchange.must_not_store();
    Ok(Caching {
        asker: Asker(RefCell::new(req.background())),
        zone,
        key: text(&key),
        by_content,
        key_bytes: key,
        obeys_no_vary_search: no_vary_search::is_due(req, target.protocol),
        site: text(&site),
        target: Arc::clone(target),
        is_bypassed,
        bypass,
        no_cache,
        is_not_stored,
        min_uses: cache.policies.admission.min_uses,
        asks_owner: cache.peers.is_some(),
        policies: Arc::clone(&cache.policies),
        rules: by_rfc::rules(req, target),
        is_authorized: req.field(Known::Authorization).is_some(),
    })
}

/// Values for a request, with their texts.
fn values(req: &mut Request, templates: Option<&[Template]>) -> Vec<ValueInForce> {
    let templates = templates.unwrap_or_default().iter();
    let value = |template: &Template| ValueInForce {
        text: template.source.to_string(),
        value: text(&req.eval(template)),
    };
    templates.map(value).collect()
}

/// Bytes of a request for people.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
