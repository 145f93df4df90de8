//! A connection of HTTP/2 that users share, and the streams of one of them.
//!
//! ```text
//! Lane: the connection of the moment ──► Open: a sender, and its Health
//!   ▲ users, each with a stream at a time       ▲ the driver, which reads and writes all frames
//! ```
//!
//! 1. A request is sent again only if its stream was opened on a connection that was there before,
//!    and only if that ended by I/O before the head, refused the stream (REFUSED_STREAM), or went
//!    away without an error below it (RFC 9113, sections 6.8 and 8.7). All else is a fault.
//! 2. What TLS finds wrong under the frames is told as that: `Watched` keeps it, since the library
//!    hands on the text of errors alone.
//! 3. A connection that ends wrongly while it has no stream is told once, by the journal.
//! 4. Whoever reads slowly holds its own stream back: the connection's window has room for the
//!    windows of all streams.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{Request, Response, Uri, Version};
use tokio::task::JoinHandle;

use super::ask::Ask;
use super::check::Reading;
use super::fault::Fault;
use super::head;
use super::journal::{Event, Journal};
use super::stream::{Opener, Watched};
use super::{FETCH_MAX, HEAD_MAX, Target};

/// Bytes of a body that a server may send before they are read (arbitrary, as browsers have it).
const WINDOW: u32 = 1 << 20;
/// The largest window that there is (RFC 9113, section 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// Times that a request is sent at most; a server that lets one request through for each
/// connection gets as many streams of it at once (arbitrary).
const ATTEMPTS_MAX: u32 = 100;
/// Time for which the end of a connection is waited for (arbitrary).
const ENDING: Duration = Duration::from_millis(500);

/// The connection of the moment, for all users that share one.
#[derive(Debug)]
pub(super) struct Lane {
    target: Arc<Target>,
    journal: Journal,
    opener: Opener,
    moment: RefCell<Rc<Place>>,
}

/// Place of one connection, which the first to need it opens.
type Place = tokio::sync::OnceCell<Open>;

/// An open connection.
#[derive(Debug)]
struct Open {
    sender: SendRequest<Bytes>,
    health: Rc<Health>,
    /// Reader and writer of its frames.
    driver: JoinHandle<()>,
}

/// State of a connection beside its streams.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// The error of TLS under it.
    wrong: OnceCell<rustls::Error>,
    /// Streams that are open.
    streams: Cell<usize>,
    /// Fault that it ended by.
    ended: RefCell<Option<Fault>>,
    /// True if a user was told of its fault.
    is_told: Cell<bool>,
}

/// Age of a connection when a stream is opened on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// Opened for this very stream.
    New,
    /// There before.
    Kept,
}

/// Reason why there is no answer.
#[derive(Debug)]
enum Failure {
    /// The connection ended, or takes no streams any more.
    Over(Fault),
    /// The stream was refused; the connection goes on.
    Refused(Fault),
    /// All else.
    Wrong(Fault),
}

impl Health {
    /// Keeps the error of TLS that the connection ends by.
    pub(super) fn note(&self, wrong: rustls::Error) {
        // The first one is the cause of all others.
        let _ = self.wrong.set(wrong);
    }

    /// The fault of an error; of I/O that is the end of the connection alone.
    fn fault(&self, error: &h2::Error) -> Fault {
        let fault = match (self.wrong.get(), error.get_io()) {
            (Some(wrong), _) => Fault::Tls(wrong.clone()),
            (None, Some(io)) => Fault::NoHead(std::io::Error::new(io.kind(), io.to_string())),
            (None, None) => Fault::Http2(error.to_string()),
        };
        if !matches!(fault, Fault::NoHead(_)) && !error.is_reset() {
            self.is_told.set(true);
        }
        fault
    }

    /// The reason for which a stream failed before its head.
    fn failure(&self, error: &h2::Error) -> Failure {
        let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        let is_away = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        let text = || Fault::Http2(error.to_string());
        match self.wrong.get() {
            None if error.is_remote() && is_refused => Failure::Refused(text()),
            None if error.is_remote() && is_away => Failure::Over(text()),
            None if error.is_io() => Failure::Over(self.fault(error)),
            _ => Failure::Wrong(self.fault(error)),
        }
    }

    /// Writes the fault that the connection ended by down, if nobody was told and nobody will be.
    fn settle(&self, journal: &Journal) {
        if self.streams.get() > 0 || self.is_told.get() {
            return;
        }
        if let Some(fault) = self.ended.borrow_mut().take() {
            journal.add(Event::Ended(fault));
        }
    }
}

/// An open stream, as its connection counts it.
#[derive(Debug)]
struct Flight {
    health: Rc<Health>,
    journal: Journal,
}

impl Flight {
    fn new(health: &Rc<Health>, journal: &Journal) -> Self {
        health.streams.set(health.streams.get() + 1);
        Self {
            health: Rc::clone(health),
            journal: journal.clone(),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let left = self.health.streams.get().saturating_sub(1);
        self.health.streams.set(left);
        self.health.settle(&self.journal);
    }
}

impl Lane {
    /// No connection yet.
    pub(super) fn new(target: Arc<Target>, journal: Journal) -> Self {
        Self {
            opener: Opener::new(&target, journal.clone()),
            target,
            journal,
            moment: RefCell::default(),
        }
    }

    async fn open(&self) -> Result<Open, Fault> {
        let health = Rc::new(Health::default());
        let stream = Watched::new(self.opener.open().await?, Rc::clone(&health));
        let streams = u32::try_from(self.target.streams).unwrap_or(u32::MAX);
        let made = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW.saturating_mul(streams).min(WINDOW_MAX))
            .max_header_list_size(HEAD_MAX as u32)
            .handshake(stream)
            .await;
        let (sender, connection) = made.map_err(|error| health.fault(&error))?;
        let (theirs, journal) = (Rc::clone(&health), self.journal.clone());
        let driver = tokio::task::spawn_local(async move {
            let Err(error) = connection.await else {
                return;
            };
            let is_told = theirs.is_told.get();
            let fault = theirs.fault(&error);
            theirs.is_told.set(is_told);
            // An end by I/O is none of a fault while nobody waits for an answer.
            if !matches!(fault, Fault::NoHead(_)) {
                theirs.ended.replace(Some(fault));
                theirs.settle(&journal);
            }
        });
        Ok(Open {
            sender,
            health,
            driver,
        })
    }
}

/// One user of a shared connection.
#[derive(Debug)]
pub(super) struct Http2 {
    lane: Rc<Lane>,
    /// The connection that was used last.
    used: Weak<Place>,
}

impl Http2 {
    /// A user of the connection of a lane.
    pub(super) fn new(lane: Rc<Lane>) -> Self {
        Self {
            lane,
            used: Weak::new(),
        }
    }

    /// Uses the connection no longer, nor does anybody for a new stream; streams that are open end
    /// in their time.
    pub(super) fn hang_up(&mut self) {
        let mut moment = self.lane.moment.borrow_mut();
        if self.used.as_ptr() == Rc::as_ptr(&moment) {
            *moment = Rc::default();
        }
        self.used = Weak::new();
    }

    /// Ends the connection, if nobody else uses it, and waits until it has.
    pub(super) async fn end(&mut self) {
        let place = self.used.upgrade();
        self.hang_up();
        if Rc::strong_count(&self.lane) > 1 {
            return;
        }
        let open = place.and_then(Rc::into_inner).and_then(Place::into_inner);
        if let Some(Open { sender, driver, .. }) = open {
            drop(sender);
            // A server that does not let go is left.
            let _ = tokio::time::timeout(ENDING, driver).await;
        }
    }

    /// Asks, and reads and checks the answer.
    pub(super) async fn exchange(&mut self, ask: &Ask, reading: &mut Reading) -> Result<(), Fault> {
        let mut request = self.request(&ask.method, ask.resource.path())?;
        if let Some(range) = ask.want.field() {
            let range = range.try_into().map_err(unsayable)?;
            request.headers_mut().insert(http::header::RANGE, range);
        }
        let (response, flight) = self.send_and_wait(&request).await?;
        reading.handle_begin();
        let (parts, mut body) = response.into_parts();
        let head = head::of_stream(&parts, ask.kind(), &self.lane.target.status_field)?;
        reading.handle_head(head, ask)?;
        while let Some(bytes) = body.data().await {
            let bytes = bytes.map_err(|error| match flight.health.fault(&error) {
                Fault::NoHead(_) => reading.truncated(),
                Fault::Http2(text) => {
                    Fault::Http2(format!("{text}, after {} bytes", reading.body_bytes))
                }
                fault => fault,
            })?;
            reading.handle_bytes(&bytes).await?;
            release(&mut body, &bytes)?;
        }
        reading.handle_end(ask)
    }

    /// Asks, and reads an answer whole; status and body.
    pub(super) async fn fetch(
        &mut self,
        method: &str,
        path: &str,
    ) -> Result<(u16, Vec<u8>), Fault> {
        let request = self.request(method, path)?;
        let (response, flight) = self.send_and_wait(&request).await?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut out = Vec::new();
        while let Some(bytes) = body.data().await {
            let bytes = bytes.map_err(|error| flight.health.fault(&error))?;
            out.extend_from_slice(&bytes);
            release(&mut body, &bytes)?;
            if out.len() > FETCH_MAX {
                let wanted = FETCH_MAX as u64;
                return Err(Fault::TooLong { wanted });
            }
        }
        Ok((status, out))
    }

    fn request(&self, method: &str, path: &str) -> Result<Request<()>, Fault> {
        let target = &self.lane.target;
        let scheme = match target.tls {
            Some(_) => "https",
            None => "http",
        };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(&*target.host)
            .path_and_query(path);
        Request::builder()
            .method(method)
            .uri(uri.build().map_err(unsayable)?)
            .version(Version::HTTP_2)
            .body(())
            .map_err(unsayable)
    }

    /// Sends the request, on one connection after the other if it may, and waits for the head.
    async fn send_and_wait(
        &mut self,
        request: &Request<()>,
    ) -> Result<(Response<RecvStream>, Flight), Fault> {
        let mut attempts = 1;
        loop {
            let (failure, age) = match self.attempt(request).await? {
                (Ok(answer), _) => return Ok(answer),
                (Err(failure), age) => (failure, age),
            };
            let is_last = age == Age::New || attempts >= ATTEMPTS_MAX;
            match failure {
                Failure::Wrong(fault) => return Err(fault),
                Failure::Over(fault) | Failure::Refused(fault) if is_last => return Err(fault),
                Failure::Over(_) => self.hang_up(),
                Failure::Refused(_) => {}
            }
            // INVARIANT 1.
            self.lane.journal.add(Event::Repeated);
            attempts += 1;
        }
    }

    async fn attempt(&mut self, request: &Request<()>) -> Result<(Tried, Age), Fault> {
        let place = Rc::clone(&self.lane.moment.borrow());
        self.used = Rc::downgrade(&place);
        let mut age = Age::Kept;
        let open = place
            .get_or_try_init(|| {
                age = Age::New;
                self.lane.open()
            })
            .await?;
        let flight = Flight::new(&open.health, &self.lane.journal);
        let answered = async {
            let mut sender = open.sender.clone().ready().await?;
            let (answer, _) = sender.send_request(request.clone(), true)?;
            answer.await
        };
        Ok(match answered.await {
            Ok(response) => (Ok((response, flight)), age),
            Err(error) => (Err(open.health.failure(&error)), age),
        })
    }
}

/// Result of an attempt.
type Tried = Result<(Response<RecvStream>, Flight), Failure>;

/// Lets the server send as many bytes more as were read.
fn release(body: &mut RecvStream, bytes: &Bytes) -> Result<(), Fault> {
    let released = body.flow_control().release_capacity(bytes.len());
    released.map_err(|error| Fault::Http2(error.to_string()))
}

/// The fault of a request that HTTP/2 has no form for.
fn unsayable(error: impl std::fmt::Display) -> Fault {
    Fault::Http2(format!("the request cannot be sent: {error}"))
}
