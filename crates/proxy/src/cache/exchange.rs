//! The origin as the cache's machines see it: a request of this server to its upstream.
//!
//! Implements [`Exchange`] for a client's request and for one in the background, which owns a copy
//! of the request and outlives the client.
//!
//! 1. Dropping an exchange gives its connection up; a body that was not read is never reused.

use std::borrow::BorrowMut;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::bypass::BypassPolicy;
use millpond_cache::exchange::{
    self as origin, Exchange, FetchEnd, FetchFailure, Outcome, Purpose,
};
use millpond_cache::extent::Extents;
use millpond_cache::reason::Note;
use millpond_cache::ruling::Ruling;
use millpond_cache::slice::SliceSize;
use millpond_cache::status::CacheStatus;
use millpond_cache::tag::TagWriter;
use millpond_cache::targeted::EachField;
use millpond_cache::use_stale::StaleCause;
use millpond_conf::Template;
use millpond_conf::value::parse_duration;
use millpond_system::body::{BodyError, BodyStream, Piece};
use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_wire::header::Known;
use millpond_wire::http1::{Method, encode};

use super::no_vary_search::{self, MadeBy};
use super::peers::ask::{self as peers, Answered, Given};
use super::peers::part;
use super::ruling::RulingHook;
use super::tier::{self, CopyTags, Missing};
use super::{groups, purge, vary_as, zones};
use crate::content::error_pages;
use crate::log::request_error;
use crate::otel::{self, fill::FillSpan};
use crate::request::Request;
use crate::site;
use crate::upstream::ask::Ask;
use crate::upstream::exchange::{self, Fetched};
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::settings::UpstreamSettings;
use crate::upstream::{buffer, by_rfc};
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::client::http1::behind;
use millpond_exchange::failure::{Failure, UpstreamFailure, UpstreamKind};
use millpond_exchange::protocol::Protocol;

/// A request and where it is passed.
pub struct PassExchange<R> {
    req: R,
    target: Arc<PassTarget>,
    /// That it updates what a client was served, and what it starts does, too.
    behind: Option<Rc<behind::Task>>,
}

impl<R: BorrowMut<Request>> PassExchange<R> {
    /// The exchange of a request.
    pub fn new(req: R, target: Arc<PassTarget>) -> Self {
        PassExchange {
            req,
            target,
            behind: None,
        }
    }

    /// The request.
    pub fn request(&mut self) -> &mut Request {
        self.req.borrow_mut()
    }

    /// The request, and where it is passed.
    pub fn parts(&mut self) -> (&mut Request, &Arc<PassTarget>) {
        (self.req.borrow_mut(), &self.target)
    }

    /// nginx: other protocols have no method but what their parameters say.
    fn converts_head(&self) -> bool {
        let settings = &self.req.borrow().location.settings;
        self.target.protocol == Protocol::Http
            && settings.of::<UpstreamSettings>().proxy.method.convert_head
    }

    /// True if the request goes on as HEAD under the RFC's rules: an answer to HEAD has no body,
    /// and so is none to GET.
    pub fn is_head_by_rfc(&self) -> bool {
        let req = self.req.borrow();
        req.is_head() && !self.converts_head() && by_rfc::is_on(req, &self.target)
    }

    fn holds_fields_back(&self) -> bool {
        by_rfc::holds_fields_back(self.req.borrow(), &self.target)
    }

    /// True if the configuration has the look-up skipped.
    fn is_bypassed(&mut self) -> bool {
        self.any_true(|policy| &policy.bypass)
    }

    fn any_true(&mut self, choose: fn(&BypassPolicy) -> &Option<Vec<Template>>) -> bool {
        let req = self.req.borrow_mut();
        let protocol = self.target.protocol;
        if choose(&req.location.settings.pass(protocol).bypass).is_none() {
            return false;
        }
        let location = Arc::clone(&req.location);
        let templates = choose(&location.settings.pass(protocol).bypass);
        templates
            .iter()
            .flatten()
            .any(|template| req.is_true(template))
    }

    /// Asks the origin. (An `async fn` has room for its arguments twice.)
    #[expect(clippy::manual_async_fn, reason = "the future has room for `ask` once")]
    fn fetch_as(&mut self, mut ask: Ask) -> impl Future<Output = Result<Origin, Failed>> {
        async move {
            if self.req.borrow().location.settings.slice.size != SliceSize::Off {
                let req = self.req.borrow_mut();
                req.slice_range = if ask.is_for_cache {
                    ask.range.clone()
                } else {
                    clients_range(req)
                };
            }
            if ask.if_none_match.is_some() || ask.if_modified_since.is_some() {
                let mut trace = RefCell::borrow_mut(&self.req.borrow().upstream);
                trace.validators = (ask.if_modified_since.clone(), ask.if_none_match.clone());
            }
            let req = self.req.borrow_mut();
            let why = ask.is_for_cache.then(|| ask.why(req.is_background));
            let fill = otel::fill::begin(req, why);
            // A hit fetches nothing, so its future has no room for that.
            if ask.if_range.is_some() && ask.extent.is_some() && self.is_bypassed() {
                // The rest of what was asked of the origin.
                ask.extent = None;
            }
            let fetch = Box::pin(fetch(self.req.borrow_mut(), &self.target, &ask));
            let fetched = fetch.await;
            otel::fill::leave(self.req.borrow_mut());
            match fetched {
                Ok(Given {
                    fetched,
                    fresh_left,
                    is_left_to_owner,
                    stored_at,
                }) => {
                    fill.iter()
                        .for_each(|fill| fill.answered(fetched.head.status));
                    let (req, protocol) = (self.req.borrow_mut(), self.target.protocol);
                    // nginx: an error is intercepted before it is asked how it is to be read.
                    let policy = &req.location.settings.pass(protocol).answer;
                    let is_intercepted = policy.intercept_errors
                        && error_pages::stands_for(req, fetched.head.status);
                    let is_unbuffered = !is_intercepted
                        && !buffer::is_buffered(req, protocol, &fetched.head.fields);
                    let rate = buffer::limit_rate(req, protocol);
                    Ok(Origin {
                        fetched,
                        fresh_left,
                        is_left_to_owner,
                        stored_at,
                        is_unbuffered,
                        pace: rate.map(buffer::Pace::new).map(Box::new),
                        fill,
                    })
                }
                Err(failure) => {
                    fill.into_iter().for_each(|fill| fill.failed(&failure));
                    // Nobody answers a client with it, so that nobody else says why.
                    if self.req.borrow().is_background {
                        request_error::failure(self.req.borrow(), &failure);
                    }
                    Err(Failed(failure))
                }
            }
        }
    }
}

/// Asks the owner of the key, where that is another node, or else the second tier, or the origin.
async fn fetch(req: &mut Request, target: &PassTarget, ask: &Ask) -> Result<Given, Failure> {
    let answered = if peers::is_due(req, target, ask) {
        Box::pin(peers::ask(req, target, ask)).await
    } else {
        Answered::Unasked
    };
    match answered {
        Answered::Given(given) => return Ok(*given),
        Answered::Unasked if req.notes.get::<Missing>().is_some() => {
            if let Some(given) = Box::pin(tier::ask(req, target, ask)).await {
                return Ok(given);
            }
        }
        Answered::Unasked | Answered::Failed => {}
    }
    let fetched = exchange::fetch(req, target, ask).await?;
    Ok(Given {
        fetched,
        fresh_left: None,
        is_left_to_owner: false,
        stored_at: None,
    })
}

impl<'a> PassExchange<&'a mut Request> {
    /// Gives the request back.
    pub fn into_request(self) -> &'a mut Request {
        self.req
    }
}

/// Value of `$slice_range` for a request that is passed as it is: configurations for nginx make the
/// Range field of it.
pub(super) fn clients_range(req: &Request) -> Option<Bytes> {
    req.field(Known::Range).map(Bytes::copy_from_slice)
}

/// A note of a request: the ruling about the answer that came last, once that was asked for.
struct Ruled(Option<Ruling>);

/// A failure as the machines know it.
pub struct Failed(pub Failure);

impl FetchFailure for Failed {
    fn cause(&self) -> Option<StaleCause> {
        match &self.0 {
            Failure::Upstream(failure) => Some(match failure.kind {
                UpstreamKind::Error | UpstreamKind::NoLive | UpstreamKind::NoSocket => {
                    StaleCause::Error
                }
                UpstreamKind::Timeout => StaleCause::Timeout,
                UpstreamKind::InvalidHeader => StaleCause::InvalidHeader,
            }),
            _ => None,
        }
    }

    fn status(&self) -> u16 {
        self.0.status()
    }

    fn shared(status: u16) -> Self {
        Failed(Failure::Status(status))
    }

    fn unvalidated(self) -> Self {
        match self.0 {
            Failure::Upstream(failure) => Failed(Failure::Upstream(UpstreamFailure {
                kind: UpstreamKind::Timeout,
                ..failure
            })),
            other => Failed(other),
        }
    }
}

impl<R: BorrowMut<Request>> Exchange for PassExchange<R> {
    type Fetched = Origin;
    type Failure = Failed;
    type Background = PassExchange<Box<Request>>;

    fn now(&self) -> i64 {
        self.req.borrow().now_s()
    }

    fn is_background(&self) -> bool {
        self.req.borrow().is_background
    }

    fn field(&self, name: &[u8]) -> Vec<&[u8]> {
        self.req.borrow().head.find_all(name).collect()
    }

    fn selecting(&self, name: &[u8]) -> Vec<&[u8]> {
        vary_as::values(self.req.borrow(), name)
    }

    fn must_bypass(&mut self) -> bool {
        // Who asks for slices has not bypassed them.
        self.holds_fields_back() || !part::is_of_body(self.req.borrow()) && self.is_bypassed()
    }

    fn must_be_stored(&mut self) -> bool {
        let req = self.req.borrow_mut();
        if req.location.settings.cached_only.values.is_none() {
            return false;
        }
        let location = Arc::clone(&req.location);
        let mut values = location.settings.cached_only.values.iter().flatten();
        values.any(|value| req.is_true(value))
    }

    fn must_not_store(&mut self) -> bool {
        self.is_head_by_rfc()
            || self.holds_fields_back()
            || self.any_true(|policy| &policy.no_cache)
    }

    fn has_content(&self) -> bool {
        let req = self.req.borrow();
        matches!(req.method, Method::Get | Method::Head) && !matches!(req.body, RequestBody::None)
    }

    fn extents(&self) -> Option<Extents> {
        let location = &self.req.borrow().location;
        let cache = zones::of_location(location, self.target.protocol)?;
        cache.peers.as_ref()?.extents
    }

    fn ruling(&mut self, status: u16, each_field: EachField<'_>) -> Option<Ruling> {
        let hook = self
            .req
            .borrow()
            .location
            .parts
            .get::<RulingHook>()
            .copied()?;
        let req = self.req.borrow_mut();
        if let Some(Ruled(ruling)) = req.notes.get() {
            return ruling.clone();
        }
        let ruling = (hook.0)(req, status, each_field);
        req.notes.put(Ruled(ruling.clone()));
        ruling
    }

    fn tags(&mut self, each_field: EachField<'_>, ruled: &[Bytes]) -> Bytes {
        let protocol = self.target.protocol;
        let req = self.req.borrow_mut();
        if let Some(CopyTags(tags)) = req.notes.get() {
            return tags.clone();
        }
        let mut tags = TagWriter::new(&purge::host(req), &site::of(req));
        if req.location.settings.pass(protocol).tag.tags.is_some() {
            let location = Arc::clone(&req.location);
            let templates = location.settings.pass(protocol).tag.tags.iter().flatten();
            for template in templates {
                tags.push_all(&req.eval(template));
            }
        }
        ruled.iter().for_each(|ruled| tags.push_all(ruled));
        groups::tag(req, protocol, (each_field, &mut tags));
        tags.finish()
    }

    fn takes_key(&mut self, status: u16, each_field: EachField<'_>) -> bool {
        let req = self.req.borrow();
        // A note of another location's key says nothing about this one.
        if !no_vary_search::is_due(req, self.target.protocol) {
            return true;
        }
        let made_by: Option<&MadeBy> = req.notes.get();
        made_by.is_none_or(|made_by| made_by.takes(status, each_field))
    }

    fn time_of(&mut self, text: &Template) -> Option<Duration> {
        let req = self.req.borrow_mut();
        let told = req.eval(text);
        let time = std::str::from_utf8(&told).ok().and_then(parse_duration);
        if time.is_none() && !told.is_empty() {
            let told = String::from_utf8_lossy(&told);
            let said = format_args!("proxy_cache_valid: \"{told}\" is no time");
            request_error::write(req, Level::Error, said);
        }
        time
    }

    fn may_ask_again(&self) -> bool {
        let req = self.req.borrow();
        let is_get = req.method == Method::Get || (req.is_head() && self.converts_head());
        is_get && matches!(req.body, RequestBody::None)
    }

    fn note_broken(&self, at: u64, why: FetchEnd) {
        let what = match why {
            FetchEnd::Truncated => "broke off",
            FetchEnd::TimedOut => "was silent for too long",
        };
        let message =
            format_args!("upstream {what} after {at} bytes of the body, asking for the rest");
        request_error::write(self.req.borrow(), Level::Warn, message);
    }

    fn label(&mut self, status: CacheStatus) {
        let trace = &self.req.borrow().upstream;
        RefCell::borrow_mut(trace).cache_status = Some(status.as_str());
    }

    fn note(&mut self, note: Note) {
        let trace = &self.req.borrow().upstream;
        RefCell::borrow_mut(trace).account.note(note);
    }

    fn fetch(&mut self, ask: origin::Ask) -> impl Future<Output = Result<Origin, Failed>> {
        let req = self.req.borrow_mut();
        req.notes.remove::<Ruled>();
        req.notes.remove::<CopyTags>();
        req.notes.remove::<Missing>();
        if let Some(text) = ask.missing.filter(|_| tier::is_used(&req.conf)) {
            // Not a part of what is asked, for which each walk has room.
            req.notes.put(Missing(text));
        }
        let ask = Ask {
            is_for_cache: ask.purpose == Purpose::Fill,
            is_get_for_head: self.converts_head(),
            if_none_match: ask.if_none_match,
            if_modified_since: ask.if_modified_since,
            range: ask.range,
            if_range: ask.if_range,
            extent: ask.extent,
            peer: None,
            hop: None,
            label: ask.label,
        };
        self.fetch_as(ask)
    }

    fn background(&self) -> Self::Background {
        let req = Box::new(self.req.borrow().background());
        PassExchange {
            req,
            target: Arc::clone(&self.target),
            behind: None,
        }
    }

    fn updater(&self) -> Self::Background {
        let task = self.req.borrow().client.begin_behind();
        let mut updater = self.background();
        otel::begin_update(&mut updater.req);
        updater.behind = task.map(Rc::new);
        updater
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        // The task belongs to the generation: a graceful shutdown waits for it. It is not ended
        // with the generation's connections, since clients of the next one may be reading along.
        let guards = (self.req.borrow().generation().enter(), self.behind.clone());
        tokio::task::spawn_local(async move {
            task.await;
            drop(guards);
        });
    }
}

/// An answer of the origin.
pub struct Origin {
    /// The answer.
    pub fetched: Box<Fetched>,
    /// Seconds for which it is fresh yet, where another node has stored it.
    fresh_left: Option<i64>,
    /// True if another node keeps it, and this one does not yet.
    is_left_to_owner: bool,
    /// Time when it was stored, if it is a copy of the second tier.
    stored_at: Option<i64>,
    /// True if the answer may not be read ahead of the client, and so not be stored.
    is_unbuffered: bool,
    /// Pace at which the answer is read into the cache.
    pace: Option<Box<buffer::Pace>>,
    /// The span of the fill, where it is recorded.
    fill: Option<Box<FillSpan>>,
}

impl origin::Fetched for Origin {
    fn came_at(&self) -> Option<i64> {
        Some(self.came_at_s())
    }

    fn delay(&self) -> u64 {
        self.fetched.body.delay().as_secs()
    }

    fn status(&self) -> u16 {
        self.fetched.head.status
    }

    fn status_text(&self) -> Option<&[u8]> {
        let head = &self.fetched.head;
        let is_kept = !encode::is_usual(head.status, &head.status_line);
        is_kept.then_some(&head.status_line)
    }

    fn length(&self) -> Option<u64> {
        self.fetched.length
    }

    fn is_delimited(&self) -> bool {
        self.fetched.body.is_delimited()
    }

    fn is_unbuffered(&self) -> bool {
        self.is_unbuffered
    }

    fn fresh_left(&self) -> Option<i64> {
        self.fresh_left
    }

    fn is_left_to_owner(&self) -> bool {
        self.is_left_to_owner
    }

    fn each_field(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for field in self.fetched.head.fields.iter() {
            each(&field.name, &field.value);
        }
    }

    fn note_outcome(&self, outcome: &Outcome) {
        self.fetched.body.note_outcome(outcome);
        if let Some(fill) = &self.fill {
            fill.ended(outcome);
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, FetchEnd>> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn next_ready(&mut self) -> Option<Option<Result<Bytes, FetchEnd>>> {
        // Whoever waits later registers a waker of its own.
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }
}

impl Origin {
    /// Time at which the origin was last read from, or at which a copy was stored, seconds since
    /// 1970.
    pub fn came_at_s(&self) -> i64 {
        if let Some(stored_at) = self.stored_at {
            return stored_at;
        }
        clock::wall_us(self.fetched.body.read_at()).div_euclid(1_000_000)
    }

    /// True for the answer of another node that keeps it, and of which there is no copy here.
    pub(super) fn is_of_owner(&self) -> bool {
        self.is_left_to_owner
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FetchEnd>>> {
        let Origin {
            fetched,
            pace,
            fill,
            ..
        } = self;
        fill.iter_mut().for_each(|fill| fill.stores());
        let mut body = Pin::new(&mut fetched.body);
        let next = match pace {
            None => body.as_mut().poll_next(cx),
            Some(pace) => pace.poll_next(cx, |cx| body.as_mut().poll_next(cx)),
        };
        next.map(|next| {
            next.map(|piece| match piece {
                Ok(Piece::Memory(bytes)) => Ok(bytes),
                // An upstream's body is read into memory; a file would be a fault of ours.
                Ok(Piece::File(_)) => Err(FetchEnd::Truncated),
                Err(BodyError::UpstreamTimedOut) => Err(FetchEnd::TimedOut),
                Err(error) => {
                    // Those who read along are told no more than that it was cut.
                    if let BodyError::Broken(why) = error {
                        body.tell_fault(&why);
                    }
                    Err(FetchEnd::Truncated)
                }
            })
        })
    }
}
