//! `ssi`, `ssi_types`, `ssi_last_modified`, `ssi_silent_errors`, `ssi_value_length`,
//! `ssi_min_file_chunk`, `ssi_ignore_recycled_buffers`: server-side includes.
//!
//! A text goes through as it comes; commands in it (`parse.rs`) are taken out and run
//! (`command.rs`). What they include are subrequests, fetched at the same time and sent in order:
//!
//! ```text
//! source ─► Parser ─► Interpreter ─► queue: text, fragment, text, fragment … ─► client
//!                          │                        └────── read ahead ──────┘
//!                          └─ waits for a fragment, if its command says so
//! ```
//!
//! Invariants:
//! 1. The queue holds at most `MOST_PARTS` parts and about `QUEUE_BYTES` of text; a full queue
//!    stops the reading of the source.
//! 2. One poll does at most `MOST_STEPS` steps: a text that is all commands lets others work.
//! 3. A source that fails fails the page, behind all that came before.
//!
//! Sources: nginx ngx_http_ssi_filter_module.

mod command;
mod date;
mod evaluate;
mod memory;
mod parse;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use millpond_conf::ByteSize;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};

use super::fragment::{Fragment, KeptFragment};
use crate::request::Request;
use millpond_exchange::response::type_set::TypeSet;
use millpond_exchange::response::{DIGESTS, RangeRule, Response};
use millpond_exchange::settings::{Uses, level::Closing};

use crate::filter::settings::FilterSettings;
use command::{Interpreter, Outcome, Then};
use millpond_wire::header::{Fields, Known};
use parse::{Event, Parser};

pub use date::VARIABLES;

/// Parts that wait for their turn (arbitrary: several times what may run at once).
const MOST_PARTS: usize = 64;
/// Text that waits behind fragments (arbitrary: a few reads).
const QUEUE_BYTES: u64 = 64 * 1024;
/// Commands and pieces that one poll works off (arbitrary: a millisecond's worth).
const MOST_STEPS: u32 = 256;

/// Settings of texts with server-side includes.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SsiPolicy {
    /// Runs the commands in answers.
    ///
    /// # Differs from nginx
    ///
    /// Included requests do not get the client's Range and conditions. The local time zone is
    /// written as its distance from UTC.
    #[directive(
        name = "ssi",
        default = "off",
        contexts(http, server, location, if_location)
    )]
    pub enabled: bool,
    /// Shows nothing in the place of a command that failed.
    #[directive(name = "ssi_silent_errors", default = "off")]
    pub silent_errors: bool,
    /// The media types whose commands are run, beside text/html.
    #[directive(name = "ssi_types", default = "text/html", repeat)]
    pub types: Vec<TypeSet>,
    /// Keeps the answer's Last-Modified, and its ETag as a weak one.
    #[directive(name = "ssi_last_modified", default = "off")]
    pub last_modified: bool,
    /// The longest value of a parameter.
    #[directive(name = "ssi_value_length", default = "255")]
    pub value_length: ByteSize,
    /// The shortest part of a file that is sent from the file.
    ///
    /// # Differs from nginx
    ///
    /// A text is sent from where it was searched, in memory; the value is only checked.
    #[directive(name = "ssi_min_file_chunk", default = "1k")]
    pub min_file_chunk: ByteSize,
    /// Sends buffers that are used again at once.
    ///
    /// # Differs from nginx
    ///
    /// Nothing is held back; the value is only checked.
    #[directive(name = "ssi_ignore_recycled_buffers", default = "off")]
    pub ignore_recycled_buffers: bool,
}

/// Notes that texts may ask for any variable.
pub fn close(level: &mut Closing<'_>) {
    level.builder.of::<Uses>().ssi |= level.settings.of::<FilterSettings>().ssi.enabled;
}

/// Plan by which the commands of a body are run.
pub struct Plan {
    content_type: Option<Bytes>,
}

/// Decides whether an answer has commands, and changes its head.
pub fn run(req: &Request, response: &mut Response) -> Option<Plan> {
    let policy = &req.location.settings.of::<FilterSettings>().ssi;
    if !policy.enabled || response.changes.are_barred || response.length == Some(0) {
        return None;
    }
    if !TypeSet::any_fits(&policy.types, response) {
        return None;
    }
    response.length = None;
    response.parts.rule = RangeRule::Refused;
    response.fields.remove(Known::AcceptRanges);
    response.fields.remove_all(DIGESTS);
    if policy.last_modified {
        response.weaken_etag();
    } else {
        response.fields.remove(Known::LastModified);
        response.fields.remove(Known::ETag);
        response.last_modified = None;
    }
    Some(Plan {
        content_type: response.fields.get(Known::ContentType).cloned(),
    })
}

/// Runs the commands of a body while it is sent.
pub fn include(req: &mut Request, body: Body, plan: Plan) -> Body {
    // The copy is of the same page.
    req.page();
    let max_value = req
        .location
        .settings
        .of::<FilterSettings>()
        .ssi
        .value_length
        .as_usize();
    Body::stream(SsiBody {
        source: Source::Open(body),
        current: None,
        input: Bytes::new(),
        parser: Parser::new(max_value),
        interpreter: Interpreter::new(Box::new(req.fork()), plan.content_type),
        queue: VecDeque::new(),
        queued: 0,
        waits: Waits::No,
        trailers: None,
    })
}

enum Source {
    Open(Body),
    Failed(BodyError),
    Ended,
}

/// Events that the reading of the text waits for.
enum Waits {
    No,
    /// Until everything in the queue was handed out.
    ForQueue,
    /// For the text of a fragment, which becomes the value of a variable.
    ForValue(Box<KeptFragment>, Vec<u8>),
}

enum Part {
    Text(Bytes),
    Fragment(Box<Fragment>),
}

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Made,
    Blocked,
    Ended,
}

/// A text whose commands are run.
struct SsiBody {
    source: Source,
    /// Rest of the last piece.
    current: Option<Piece>,
    /// Bytes to be searched.
    input: Bytes,
    parser: Parser,
    interpreter: Interpreter,
    queue: VecDeque<Part>,
    /// Bytes of text in the queue.
    queued: u64,
    waits: Waits,
    trailers: Option<Fields>,
}

impl BodyStream for SsiBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        // INVARIANT 2.
        for _ in 0..MOST_STEPS {
            let step = this.read_on(cx);
            let had_parts = !this.queue.is_empty();
            match this.poll_front(cx) {
                Poll::Ready(Some(next)) => return Poll::Ready(Some(next)),
                _ if step == Step::Made => {}
                // The wait has ended: nobody else says that there is room now.
                Poll::Ready(None) if had_parts => {}
                Poll::Ready(None) if step == Step::Ended => {
                    return match std::mem::replace(&mut this.source, Source::Ended) {
                        Source::Failed(error) => Poll::Ready(Some(Err(error))),
                        Source::Open(_) | Source::Ended => Poll::Ready(None),
                    };
                }
                Poll::Pending | Poll::Ready(None) => {
                    this.poll_ahead(cx);
                    return Poll::Pending;
                }
            }
        }
        this.poll_ahead(cx);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        self.trailers.take()
    }
}

impl SsiBody {
    /// The next piece of what is in front of the queue; `None` when it is empty.
    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            match self.queue.front_mut() {
                None => return Poll::Ready(None),
                Some(Part::Text(text)) => {
                    let text = std::mem::take(text);
                    self.queue.pop_front();
                    self.queued -= text.len() as u64;
                    return Poll::Ready(Some(Ok(Piece::Memory(text))));
                }
                Some(Part::Fragment(fragment)) => match fragment.poll_next(cx) {
                    Poll::Ready(None) => {
                        self.queue.pop_front();
                    }
                    next => return next,
                },
            }
        }
    }

    /// Reads ahead what is behind the front of the queue.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        let queue = &mut self.queue;
        self.interpreter.page.ahead(|| {
            for part in queue.iter_mut().skip(1) {
                if let Part::Fragment(fragment) = part {
                    fragment.poll_ahead(cx);
                }
            }
        });
    }

    /// Goes one step on in the text, if nothing is waited for and the queue has room.
    fn read_on(&mut self, cx: &mut Context<'_>) -> Step {
        match &mut self.waits {
            Waits::ForQueue if !self.queue.is_empty() => return Step::Blocked,
            Waits::ForQueue | Waits::No => self.waits = Waits::No,
            Waits::ForValue(fragment, name) => match fragment.poll_text(cx) {
                Poll::Pending => return Step::Blocked,
                Poll::Ready(Ok(text)) => {
                    if let Some(text) = text {
                        // A text that does not fit was logged; the variable keeps its value.
                        let _ = self.interpreter.set_variable(name, text);
                    }
                    self.waits = Waits::No;
                }
                Poll::Ready(Err(error)) => {
                    self.waits = Waits::No;
                    self.fail(error);
                }
            },
        }
        // INVARIANT 1.
        if self.queue.len() >= MOST_PARTS || self.queued >= QUEUE_BYTES {
            return Step::Blocked;
        }
        match self.parser.next(&mut self.input) {
            Event::Text(text) => {
                if let Some(text) = self.interpreter.text(text) {
                    self.push_text(text);
                }
            }
            Event::Command(command) => {
                let outcome = self.interpreter.run(command);
                self.put(outcome);
            }
            Event::Fault(message) => self.interpreter.log(&message),
            Event::Broken => self.push_text(self.interpreter.error_text()),
            Event::NeedMore => return self.poll_input(cx),
        }
        Step::Made
    }

    fn put(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Text(text) => self.push_text(text),
            Outcome::Include(fragment, then) => {
                self.queue.push_back(Part::Fragment(fragment));
                if then == Then::Wait {
                    self.waits = Waits::ForQueue;
                }
            }
            Outcome::Keep(fragment, name) => self.waits = Waits::ForValue(fragment, name),
        }
    }

    fn push_text(&mut self, text: Bytes) {
        if !text.is_empty() {
            self.queued += text.len() as u64;
            self.queue.push_back(Part::Text(text));
        }
    }

    /// Gets more of the text.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Step {
        if let Some(piece) = &mut self.current {
            let input = piece.take_memory();
            if piece.is_empty() {
                self.current = None;
            }
            match input {
                Ok(input) => self.input = input,
                Err(error) => self.fail(error),
            }
            return Step::Made;
        }
        let Source::Open(body) = &mut self.source else {
            return Step::Ended;
        };
        match body.poll_next(cx) {
            Poll::Pending => return Step::Blocked,
            Poll::Ready(Some(Ok(piece))) => self.current = Some(piece),
            Poll::Ready(Some(Err(error))) => self.fail(error),
            Poll::Ready(None) => {
                self.trailers = super::trailers_of_changed(body.take_trailers());
                self.source = Source::Ended;
                let held = self.parser.finish();
                if let Some(text) = self.interpreter.text(held) {
                    self.push_text(text);
                }
            }
        }
        Step::Made
    }

    /// INVARIANT 3: nothing more is read.
    fn fail(&mut self, error: BodyError) {
        self.source = Source::Failed(error);
        self.current = None;
        self.input = Bytes::new();
    }
}
