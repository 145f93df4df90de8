//! A request on its way through the phases: what was asked, where it was routed, what was learnt.
//!
//! One `Request` lives from the parsed head to the access log. It belongs to one task of one
//! worker; what it shares with others is behind `Rc`. A background request (a cache update that no
//! client waits for) is a clone made by [`Request::background`], whose client has no wire.
//!
//! Invariants:
//! 1. `uri` is normalized and unescaped; `args` is as the client (or a rewrite) wrote it.
//! 2. `location` is the server's own settings until the location is found.
//! 3. `values` has a slot for every variable of the configuration, or none while no value was kept.
//!    A value is borrowed only while it is copied.

pub mod page;
pub mod scratch;
pub mod state;

use std::any::Any;
use std::cell::{OnceCell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::VarId;
use millpond_semantics::accept_encoding::{Coding, quality};
use millpond_system::address::Address;
use millpond_system::clock::Instant;
use millpond_wire::header::{Fields, Known};
use millpond_wire::http1::Method;
use millpond_wire::http1::request::{self as request_head, RequestHead};
use millpond_wire::spare::Spares;

use self::page::{Kind, Role};
use self::state::{CompressedLens, ErrorState, LookupState, Notes, PathState};
use millpond_exchange::client::Came;
use millpond_exchange::client::Client;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::client::wire::Wire;
use millpond_exchange::expression::Captures;
use millpond_exchange::failure::Failure;
use millpond_exchange::provenance::Shares;
use millpond_exchange::settings::{Conf, Location, Server};
use millpond_exchange::trace::span::Scope;
use millpond_exchange::trace::{self, UpstreamTrace};
use millpond_exchange::worker::{Generation, LocalConf, Worker};

/// Result of the evaluation of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Evaluated: there is none ("-" in a log, empty in a string).
    NotFound,
    /// The value.
    Found(Bytes),
}

/// The values that variables were given; clones share them. A request and its subrequests have the
/// same.
#[derive(Clone, Debug, Default)]
pub struct Values(Option<Rc<[RefCell<Option<Value>>]>>);

impl Values {
    /// Makes room for as many variables as there are; without effect when there is room.
    pub fn reserve(&mut self, count: usize) {
        if self.0.is_none() {
            let slots = std::iter::repeat_with(RefCell::default).take(count);
            self.0 = Some(slots.collect());
        }
    }

    /// Gives a variable its value; lost where no room was made.
    pub fn set(&self, id: VarId, value: Value) {
        let slots = self.0.as_deref().unwrap_or_default();
        if let Some(slot) = slots.get(id.0 as usize) {
            slot.replace(Some(value));
        }
    }

    /// The value of a variable, if it was given one.
    pub fn find(&self, id: VarId) -> Option<Ref<'_, Value>> {
        let slot = self.0.as_deref()?.get(id.0 as usize)?;
        Ref::filter_map(slot.borrow(), Option::as_ref).ok()
    }

    /// Takes the value of a variable away.
    pub fn forget(&self, id: VarId) {
        let slots = self.0.as_deref().unwrap_or_default();
        if let Some(slot) = slots.get(id.0 as usize) {
            slot.replace(None);
        }
    }

    /// True if a variable has a value by now.
    pub fn are_any(&self) -> bool {
        let mut slots = self.0.as_deref().into_iter().flatten();
        slots.any(|slot| slot.borrow().is_some())
    }

    /// A copy that shares nothing.
    pub fn detach(&self) -> Self {
        let slots = self.0.as_deref();
        Values(slots.map(|slots| slots.iter().cloned().collect()))
    }
}

/// Facts of the answer for the access log and `$sent_*` variables.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Status code; 0 before an answer was chosen.
    pub status: u16,
    /// Fields as sent, framing included.
    pub fields: Fields,
    /// Trailer fields as sent.
    pub trailers: Fields,
    /// Length of the body as announced.
    pub length: Option<u64>,
    /// True when the body was chunked.
    pub is_chunked: bool,
    /// True once the answer was sent whole.
    pub is_complete: bool,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the body as sent, chunked framing included, as nginx counts them.
    pub body_bytes: u64,
    /// Shares of cache and origin in the bytes that were sent.
    pub shares: Shares,
    /// The time from the request's head to the answer's.
    pub first_byte: Duration,
    /// Instant when the answer was sent, or its client was gone.
    pub ended: Option<Instant>,
}

/// Place of the path and query that a request was made of.
#[derive(Clone, Debug, Default)]
pub enum Unparsed {
    /// There are none, or they were refused.
    #[default]
    None,
    /// In its head.
    Head,
    /// Here.
    Own(Bytes),
}

/// Verdicts of limits on a request, and the places in limits that it holds until it ends.
#[derive(Debug, Default)]
pub struct LimitState {
    /// `$limit_req_status`; also tells that the request was limited already.
    pub req_status: Option<&'static str>,
    /// `$limit_conn_status`; the same.
    pub conn_status: Option<&'static str>,
    /// Guards that give its places back.
    pub held: Vec<Box<dyn Any>>,
}

impl LimitState {
    /// Copy of the verdicts for a request that is made for this one.
    fn statuses(&self) -> Self {
        LimitState {
            req_status: self.req_status,
            conn_status: self.conn_status,
            held: Vec::new(),
        }
    }
}

/// A request.
pub struct Request {
    /// The configuration that was in force when the connection was accepted.
    pub conf: Rc<LocalConf>,
    /// Client that the request comes from.
    pub client: Rc<Client>,
    /// The head as it came.
    pub head: Rc<RequestHead>,
    /// Method now (error pages turn POST into GET).
    pub method: Method,
    /// Normalized path now.
    pub uri: Bytes,
    /// Query string now, without `?`.
    pub args: Bytes,
    /// Place of [`Request::unparsed_uri`].
    pub unparsed: Unparsed,
    /// Host of the request (lower case, no port); empty when there was none.
    pub host: Bytes,
    /// Port the client named in the Host field or the absolute target.
    pub host_port: Option<u16>,
    /// The body, read or not.
    pub body: RequestBody,
    /// The virtual server.
    pub server: Arc<Server>,
    /// The settings in force.
    pub location: Arc<Location>,
    /// True inside the server: internal locations are open to it.
    pub is_internal: bool,
    /// True when an `if` block names an upstream, and one that holds after it names none.
    pub pass_is_lost: bool,
    /// Coding and lengths of the compressed answer, when it is compressed.
    pub compressed: Option<(Coding, Rc<CompressedLens>)>,
    /// Fields that the answer gets whoever makes it: Location of a redirect, WWW-Authenticate of a
    /// refusal.
    pub answer_fields: Fields,
    /// Fate of its path on the way here.
    pub path: PathState,
    /// The error that is being answered.
    pub error: ErrorState,
    /// Captures of the last match.
    pub captures: Captures,
    /// Values of variables: set by `set`, captures and caches of maps.
    pub values: Values,
    /// State of the evaluation that is going on.
    pub lookup: LookupState,
    /// Verdicts of limits on the request, and the places in limits that it holds.
    pub limits: LimitState,
    /// Exchanges with upstreams made for this request.
    pub upstream: Rc<RefCell<UpstreamTrace>>,
    /// Rate limit of the answer set by `$limit_rate` or X-Accel-Limit-Rate, bytes a second.
    pub limit_rate: Option<u64>,
    /// Instant when the request's first byte was seen.
    pub started: Instant,
    /// Instant when the request's head was there.
    pub head_at: Instant,
    /// Wall time of `started`: microseconds.
    pub started_us: i64,
    /// True once something was waited for since then.
    pub has_waited: bool,
    /// Facts of the answer.
    pub sent: Sent,
    /// True for a request that no client waits for.
    pub is_background: bool,
    /// `$request_id`, made on first use.
    pub request_id: OnceCell<Bytes>,
    /// The range of the slice being fetched, for `$slice_range`.
    pub slice_range: Option<Bytes>,
    /// Notes of filters.
    pub notes: Notes,
    /// Role of the request among those that one answer takes; none for a request alone.
    pub role: Option<Box<Role>>,
    /// Place of the request in a trace, once it has one.
    pub tracing: OnceCell<Scope>,
}

thread_local! {
    /// Places of requests that have ended.
    static SPARES: Spares<Place> = const { Spares::new() };
}

/// Place in which a client's request stands until it has ended, and another one after it.
pub type Place = Box<Option<Request>>;

/// A place without a request.
pub fn take_place() -> Place {
    SPARES.with(Spares::take).unwrap_or_default()
}

/// Ends the request, and keeps its place for the next one.
pub fn give_back(mut place: Place) {
    let ended = Option::as_ref(&place);
    let parts = ended.map(|req| (Rc::clone(&req.head), Rc::clone(&req.upstream)));
    *place = None;
    if let Some((head, trace)) = parts {
        request_head::give_back(head);
        trace::give_back(trace);
    }
    SPARES.with(|it| it.keep(place));
}

impl Request {
    /// Starts the request of a head. The caller routes it before it runs phases.
    // Inlined, so that it is made where it will stand.
    #[inline(always)]
    pub fn new(conf: Rc<LocalConf>, client: Rc<Client>, came: Came, server: Arc<Server>) -> Self {
        let location = Arc::clone(&server.location);
        Request {
            method: came.head.method(),
            started: came.started,
            head_at: came.at,
            started_us: millpond_system::clock::wall_us(came.at),
            conf,
            client,
            head: came.head,
            uri: Bytes::new(),
            args: Bytes::new(),
            unparsed: Unparsed::None,
            host: Bytes::new(),
            host_port: None,
            body: RequestBody::none(),
            server,
            location,
            is_internal: false,
            pass_is_lost: false,
            compressed: None,
            answer_fields: Fields::new(),
            path: PathState::default(),
            error: ErrorState::default(),
            captures: Captures::default(),
            values: Values::default(),
            lookup: LookupState::default(),
            limits: LimitState::default(),
            upstream: trace::begin(),
            limit_rate: None,
            has_waited: false,
            sent: Sent::default(),
            is_background: false,
            request_id: OnceCell::new(),
            slice_range: None,
            notes: Notes::default(),
            role: None,
            tracing: OnceCell::new(),
        }
    }

    /// The request of a head that nobody has sent, from and to these addresses: to be asked what
    /// would become of it.
    pub fn imagined(
        conf: &Arc<Conf>,
        head: Rc<RequestHead>,
        addresses: [Address; 2],
        server: Arc<Server>,
    ) -> Self {
        let now = millpond_system::clock::instant();
        let came = Came {
            head,
            started: now,
            at: now,
            is_pipelined: false,
        };
        let worker = Rc::new(Worker::new(0, Arc::default()));
        let generation = Generation::new(worker, Arc::clone(conf));
        let connection = Connection::new(generation, 1, addresses, now);
        let client = Client::next(Rc::new(connection), Wire::None, &came);
        let conf = LocalConf::new(Arc::clone(conf));
        Request::new(conf, Rc::new(client), came, server)
    }

    /// A request without a head, of a connection on which none has come: to evaluate what has to be
    /// known before that.
    pub fn before_any(connection: Rc<Connection>, server: Arc<Server>) -> Self {
        let generation = &connection.generation;
        let conf = match &generation.stream {
            Some(stream) if server.session.is_some() => Rc::clone(stream),
            _ => Rc::clone(&generation.conf),
        };
        Request::without_head(conf, connection, server)
    }

    /// A request without a head, under a configuration that need not be the connection's: what
    /// stands for a session of `stream`.
    pub fn without_head(
        conf: Rc<LocalConf>,
        connection: Rc<Connection>,
        server: Arc<Server>,
    ) -> Self {
        let now = millpond_system::clock::instant();
        let came = Came {
            head: Rc::default(),
            started: now,
            at: now,
            is_pipelined: false,
        };
        let client = Client::next(connection, Wire::None, &came);
        Request::new(conf, Rc::new(client), came, server)
    }

    /// The worker and configuration that serve it.
    pub fn generation(&self) -> &Rc<Generation> {
        &self.client.connection.generation
    }

    /// The worker that serves it.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.generation().worker
    }

    /// Fails the request, once, if an expression gave up since this was last asked: what it would
    /// have decided is not known. To be asked before anything is made of what was evaluated.
    pub fn heed_expressions(&self) -> Result<(), Failure> {
        if self.lookup.expression_gave_up.replace(false) {
            // The reason is logged already.
            Err(Failure::Status(500))
        } else {
            Ok(())
        }
    }

    /// A copy that runs without a client: its answer goes to the cache only.
    pub fn background(&self) -> Request {
        let now = millpond_system::clock::instant();
        Request {
            client: self.client.detached(),
            is_internal: true,
            values: self.values.detach(),
            upstream: Rc::new(RefCell::new(UpstreamTrace {
                zone: self.upstream.borrow().zone,
                ..UpstreamTrace::default()
            })),
            started: now,
            head_at: now,
            started_us: millpond_system::clock::wall_us(now),
            has_waited: true,
            is_background: true,
            role: None,
            ..self.fork()
        }
    }

    /// A copy that evaluates variables while the request itself is being answered; both share the
    /// values of variables.
    pub fn fork(&self) -> Request {
        Request {
            conf: Rc::clone(&self.conf),
            client: Rc::clone(&self.client),
            head: Rc::clone(&self.head),
            method: self.method,
            uri: self.uri.clone(),
            args: self.args.clone(),
            unparsed: self.unparsed.clone(),
            host: self.host.clone(),
            host_port: self.host_port,
            body: self.body.share(),
            server: Arc::clone(&self.server),
            location: Arc::clone(&self.location),
            is_internal: self.is_internal,
            pass_is_lost: false,
            compressed: None,
            answer_fields: Fields::new(),
            path: self.path.of_fork(),
            error: self.error,
            captures: self.captures.clone(),
            values: self.values.clone(),
            lookup: LookupState::default(),
            limits: self.limits.statuses(),
            upstream: Rc::clone(&self.upstream),
            limit_rate: self.limit_rate,
            started: self.started,
            head_at: self.head_at,
            started_us: self.started_us,
            has_waited: true,
            sent: Sent::default(),
            is_background: self.is_background,
            request_id: self.request_id.clone(),
            slice_range: self.slice_range.clone(),
            notes: self.notes.clone(),
            role: self.role.clone(),
            tracing: self.tracing.clone(),
        }
    }

    /// Path and query as the client wrote them; origin-form.
    pub fn unparsed_uri(&self) -> &[u8] {
        match &self.unparsed {
            Unparsed::None => &[],
            Unparsed::Head => self.head.uri(),
            Unparsed::Own(raw) => raw,
        }
    }

    /// The host of the request, in small letters; the server's name where it has none.
    pub(crate) fn host_or_name(&self) -> &Bytes {
        if self.host.is_empty() {
            &self.server.name
        } else {
            &self.host
        }
    }

    /// Query now; `None` where `$args` does not exist.
    pub fn query(&self) -> Option<Bytes> {
        self.path.has_query.then(|| self.args.clone())
    }

    /// Gives the request another query.
    pub fn set_query(&mut self, query: Option<Bytes>) {
        self.path.has_query = query.is_some();
        self.args = query.unwrap_or_default();
    }

    /// Wall time in seconds; that of its head as long as nothing was waited for.
    pub fn now_s(&self) -> i64 {
        if self.has_waited {
            millpond_system::clock::now_ms().div_euclid(1000)
        } else {
            self.started_us.div_euclid(1_000_000)
        }
    }

    /// True for a request that this server made for a part of another one's answer.
    pub fn is_subrequest(&self) -> bool {
        self.role
            .as_ref()
            .is_some_and(|role| role.kind != Kind::Main)
    }

    /// True for the request that the client waits for: the body on the connection is its own.
    pub fn is_clients_own(&self) -> bool {
        !self.is_background && !self.is_subrequest()
    }

    /// Waits, unless there is a client and it leaves meanwhile.
    pub async fn pause(&self, duration: Duration) -> Result<(), Failure> {
        if self.is_background {
            millpond_system::clock::pause(duration).await;
            return Ok(());
        }
        let waited = self.client.pause(duration).await;
        waited.map_err(|_| Failure::Status(499))
    }

    /// True when something else stands ready in the place of an error's page.
    pub fn needs_no_page(&self) -> bool {
        self.role
            .as_ref()
            .is_some_and(|role| role.kind == Kind::Replaceable)
    }

    /// The client's value of a field.
    pub fn field(&self, known: Known) -> Option<&[u8]> {
        self.head.get(known)
    }

    /// The quality that the client gives a content coding, in thousandths.
    pub fn coding_quality(&self, coding: Coding) -> u16 {
        self.quality_of(coding.name())
    }

    /// The same of a coding by its name.
    pub fn quality_of(&self, coding: &str) -> u16 {
        let lines = self.head.get_all(Known::AcceptEncoding);
        let qualities = lines.map(|line| quality(line, coding.as_bytes()));
        qualities.max().unwrap_or(0)
    }

    /// True for HEAD: the answer has no body. A background request is a GET to its origin.
    pub fn is_head(&self) -> bool {
        self.method == Method::Head
    }

    /// True for QUERY (RFC 10008): GET with a content.
    pub fn is_query(&self) -> bool {
        self.method == Method::Other && self.head.method_bytes() == b"QUERY"
    }

    /// Sets a variable of the `set` kind, or caches an evaluation.
    pub fn set_value(&mut self, id: VarId, value: Value) {
        self.values.reserve(self.conf.variable_count);
        self.values.set(id, value);
    }

    /// Text of a capture group; empty when it took no part.
    pub fn capture(&self, group: u8) -> &[u8] {
        let span = self.captures.groups.get(group as usize).copied().flatten();
        match span {
            Some((start, end)) => self
                .captures
                .subject
                .get(start as usize..end as usize)
                .unwrap_or_default(),
            None => &[],
        }
    }
}
