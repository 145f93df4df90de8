//! Parts of a page that subrequests answer: their bodies one behind the other, fetched at the same
//! time.
//!
//! ```text
//! Waiting ──room──► Answering ──head──► Sending ──end──► Ended
//!                                          ▲  └─ failed or empty, and there is a stub ─┐
//!                                          └───────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! 1. A fragment whose turn has not come holds at most `AHEAD_BYTES` and one piece of its body.
//! 2. A fragment that is dropped drops its exchange.
//! 3. A client that leaves ends the page while the page waits for anything.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::log::error::Level;
use millpond_wire::header::{Fields, Known};

use crate::cache::provenance;
use crate::log::request_error;
use crate::request::Request;
use crate::request::page::{Kind, Page, Running};
use crate::subrequest::{self, Answering, SubrequestPolicy};
use millpond_exchange::provenance::Provenance;
use millpond_exchange::response::{Response, Source};

/// Bytes that are read of a fragment before it is its turn (arbitrary: most fragments fit whole).
const AHEAD_BYTES: u64 = 32 * 1024;
/// Pieces that are read of a fragment before it is its turn.
const AHEAD_PIECES: usize = 16;

/// Text that stands in for a fragment that failed, or that has nothing.
pub(crate) struct Stub {
    /// The type of the page around it.
    pub content_type: Option<Bytes>,
    /// The text.
    pub text: Bytes,
}

/// A part of a page that another request answers.
pub(crate) struct Fragment {
    state: State,
    ahead: VecDeque<Piece>,
    ahead_bytes: u64,
    /// Failure behind the pieces that were read ahead.
    failed: Option<BodyError>,
    stub: Option<Stub>,
    /// Status of the answer; 0 before there is one.
    status: u16,
}

enum State {
    Waiting(Box<Request>),
    Answering(Answering, Running),
    Sending(Sending),
    Ended,
}

struct Sending {
    req: Box<Request>,
    body: Body,
    provenance: Provenance,
    running: Running,
}

impl Fragment {
    /// The fragment of a subrequest, which has not begun.
    pub(crate) fn new(req: Box<Request>, stub: Option<Stub>) -> Self {
        Fragment {
            state: State::Waiting(req),
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            failed: None,
            stub,
            status: 0,
        }
    }

    /// Begins, and reads what comes before it is its turn.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        while self.failed.is_none()
            && !matches!(self.state, State::Ended)
            && self.ahead_bytes < AHEAD_BYTES
            && self.ahead.len() < AHEAD_PIECES
        {
            match self.poll_source(cx) {
                Poll::Pending | Poll::Ready(None) => return,
                Poll::Ready(Some(Ok(piece))) => {
                    if matches!(piece, Piece::Memory(_)) {
                        self.ahead_bytes += piece.len();
                    }
                    self.ahead.push_back(piece);
                }
                Poll::Ready(Some(Err(error))) => self.failed = Some(error),
            }
        }
    }

    /// The next piece, when it is its turn.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(piece) = self.ahead.pop_front() {
            return Poll::Ready(Some(Ok(piece)));
        }
        self.ahead_bytes = 0;
        if let Some(error) = self.failed.take() {
            self.state = State::Ended;
            return Poll::Ready(Some(Err(error)));
        }
        self.poll_source(cx)
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        // Each round goes one state further; the stub is taken only once.
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Waiting(mut req) => {
                    let Some(running) = req.page().enter() else {
                        self.state = State::Waiting(req);
                        return Poll::Pending;
                    };
                    self.state = State::Answering(subrequest::answer(req), running);
                }
                State::Answering(mut answering, running) => match answering.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.state = State::Answering(answering, running);
                        return Poll::Pending;
                    }
                    Poll::Ready((req, response)) => match begin(req, *response, running) {
                        Ok(sending) => {
                            self.status = sending.req.sent.status;
                            self.state = State::Sending(sending);
                        }
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    },
                },
                State::Sending(mut sending) => {
                    let polled = sending.body.poll_next(cx);
                    if let Poll::Ready(Some(Ok(piece))) = &polled {
                        sending.req.sent.body_bytes += piece.len();
                    }
                    match polled {
                        Poll::Ready(None) if sending.req.sent.body_bytes > 0 => {
                            sending.finish();
                            return Poll::Ready(None);
                        }
                        Poll::Ready(None) => match self.stub.take() {
                            Some(stub) => self.state = State::Sending(sending.replace(stub)),
                            None => {
                                sending.finish();
                                return Poll::Ready(None);
                            }
                        },
                        Poll::Ready(Some(Err(error))) => {
                            sending.finish();
                            return Poll::Ready(Some(Err(error)));
                        }
                        polled => {
                            self.state = State::Sending(sending);
                            return polled;
                        }
                    }
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

/// The body of a subrequest's answer, as the filters of its location leave it.
fn begin(
    mut req: Box<Request>,
    mut response: Response,
    running: Running,
) -> Result<Sending, BodyError> {
    req.sent.status = response.status;
    // nginx: what closes a connection without an answer does so from within a page, too.
    if response.source == Source::Own && matches!(response.status, 408 | 444 | 499) {
        return Err(BodyError::Subrequest(format!(
            "a subrequest ended with status {}",
            response.status
        )));
    }
    provenance::of_part(&mut req, &mut response);
    super::run_part(&mut req, &mut response);
    req.sent.length = response.length;
    if is_kept(&req) {
        check_length(&req, response.length.unwrap_or(0))?;
    }
    Ok(Sending {
        req,
        body: response.body,
        provenance: response.provenance,
        running,
    })
}

fn is_kept(req: &Request) -> bool {
    req.role
        .as_ref()
        .is_some_and(|role| role.kind == Kind::Kept)
}

fn check_length(req: &Request, length: u64) -> Result<(), BodyError> {
    let most = req.location.settings.of::<SubrequestPolicy>().buffer_size.0;
    if length <= most {
        return Ok(());
    }
    let message = format_args!("too big subrequest response: {length}");
    request_error::write(req, Level::Error, message);
    Err(BodyError::Subrequest(format!(
        "an answer of more than {most} bytes does not fit into \"subrequest_output_buffer_size\""
    )))
}

impl Sending {
    fn finish(&mut self) {
        let sent = &mut self.req.sent;
        sent.shares = self.provenance.shares(sent.body_bytes);
        subrequest::finish(&mut self.req);
    }

    fn replace(mut self, stub: Stub) -> Self {
        let mut response = Response {
            status: 200,
            length: Some(stub.text.len() as u64),
            body: Body::from(stub.text),
            ..Response::default()
        };
        if let Some(content_type) = stub.content_type {
            response.fields.set(Known::ContentType, content_type);
        }
        provenance::of_part(&mut self.req, &mut response);
        super::run_part(&mut self.req, &mut response);
        Sending {
            req: self.req,
            body: response.body,
            provenance: response.provenance,
            running: self.running,
        }
    }
}

/// A fragment whose text becomes a value.
pub(crate) struct KeptFragment {
    fragment: Fragment,
    text: Vec<u8>,
}

impl KeptFragment {
    /// The fragment of a subrequest, which has not begun.
    pub(crate) fn new(req: Box<Request>) -> Self {
        KeptFragment {
            fragment: Fragment::new(req, None),
            text: Vec::new(),
        }
    }

    /// Waits for the end; gives the text, or `None` for that of a failure.
    pub(crate) fn poll_text(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            let mut piece = match ready!(self.fragment.poll_next(cx)) {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None if self.fragment.status >= 300 => return Poll::Ready(Ok(None)),
                None => {
                    let text = std::mem::take(&mut self.text);
                    return Poll::Ready(Ok(Some(Bytes::from(text))));
                }
            };
            if let State::Sending(sending) = &self.fragment.state {
                let length = self.text.len() as u64 + piece.len();
                if let Err(error) = check_length(&sending.req, length) {
                    return Poll::Ready(Err(error));
                }
            }
            while !piece.is_empty() {
                match piece.take_memory() {
                    Ok(bytes) => self.text.extend_from_slice(&bytes),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
    }
}

/// The body of a page: what the client gets of a main request and its subrequests.
pub(crate) struct PageBody {
    body: Body,
    page: Rc<Page>,
    /// Ends when the client leaves.
    left: Pin<Box<dyn Future<Output = ()>>>,
}

impl PageBody {
    /// The page of a request, for its client.
    pub(crate) fn of(req: &mut Request, body: Body) -> Body {
        let client = Rc::clone(&req.client);
        Body::stream(PageBody {
            body,
            page: req.page(),
            left: Box::pin(async move { client.left().await }),
        })
    }
}

impl BodyStream for PageBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        let polled = this.page.now(|| this.body.poll_next(cx));
        if polled.is_pending() {
            // INVARIANT 3.
            ready!(this.left.as_mut().poll(cx));
            return Poll::Ready(Some(Err(BodyError::ClientLeft)));
        }
        polled
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.body.take_trailers()
    }
}

/// A first piece, or a failure, that was waited for, and the rest.
pub(crate) struct Begun {
    first: Option<Result<Piece, BodyError>>,
    rest: Body,
}

impl Begun {
    /// The body that begins with `first`.
    pub(crate) fn new(first: Result<Piece, BodyError>, rest: Body) -> Self {
        Begun {
            first: Some(first),
            rest,
        }
    }
}

impl BodyStream for Begun {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.rest.poll_next(cx),
        }
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.rest.take_trailers()
    }
}
