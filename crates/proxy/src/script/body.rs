//! `js_body_filter`: a function that changes the body of an answer as it comes.
//!
//! ```text
//! a piece ─► function ─► what it gave to sendBuffer()   …   the end ─► function ─► the rest
//! ```
//!
//! 1. Of a body one piece is held, and what the function made of it.
//! 2. The answer has no length, and no ranges: nobody knows how long it becomes.
//! 3. A function that fails breaks the answer off, so that nobody takes a part for the whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millpond_conf::{ArgError, Args, FromArgs};
use millpond_exchange::response::Response;
use millpond_script::{Fault, Form, Part};
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_wire::header::Fields;

use super::host::Out;
use super::session::Session;
use super::{FunctionName, Scripts, tell};
use crate::cache::loaded::loaded;
use crate::request::Request;

/// The function, and the type of what it gets.
#[derive(Clone, Debug)]
pub struct BodyFilter {
    pub(super) function: FunctionName,
    form: Form,
}

impl FromArgs for BodyFilter {
    const SYNTAX: &'static str = "module.function [buffer_type=string | buffer]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (function, form) = match args.words {
            [function] => (function, Form::Text),
            [function, form] => match form.text.as_str() {
                "buffer_type=string" => (function, Form::Text),
                "buffer_type=buffer" => (function, Form::Buffer),
                other => {
                    let message = format!("invalid parameter \"{other}\"");
                    return Err(ArgError::value(1, message));
                }
            },
            _ => return Err(ArgError::Count),
        };
        let named = FunctionName::read(&function.text);
        Ok(BodyFilter {
            function: named.map_err(|message| ArgError::value(0, message))?,
            form,
        })
    }
}

/// Puts the function between an answer's body and its client.
pub(super) fn apply(req: &mut Request, response: &mut Response) {
    let is_empty = req.is_head() || matches!(response.status, 100..=199 | 204 | 304);
    if is_empty {
        return;
    }
    response.body_changes();
    let body = std::mem::take(&mut response.body);
    response.body = Body::stream(ScriptBody {
        inner: loaded(body, req.location.settings.send.timeout),
        seen: (response.status, response.fields.clone()),
        req: Box::new(req.fork()),
        state: State::Asks,
    });
}

/// The state of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The function is asked about each piece.
    Asks,
    /// The rest passes as it is.
    Passes,
    /// The end was there.
    Ended,
}

/// A body that a function changes.
struct ScriptBody {
    inner: Body,
    /// Status and fields of the answer.
    seen: (u16, Fields),
    req: Box<Request>,
    state: State,
}

impl ScriptBody {
    /// The bytes that the function makes of a piece, or of the end.
    fn changed(&mut self, piece: Option<Bytes>) -> Result<Bytes, BodyError> {
        let is_last = piece.is_none();
        let data = piece.unwrap_or_default();
        let location = Arc::clone(&self.req.location);
        let scripts: Option<&Scripts> = location.parts.get();
        let Some((scripts, filter)) = scripts.and_then(|it| Some((it, it.body_filter.as_ref()?)))
        else {
            return Ok(data);
        };
        let part = Part {
            data,
            is_last,
            form: filter.form,
        };
        let mut out = Out::of_body(self.seen.0, self.seen.1.clone());
        let done = self.run(scripts, &mut out, (&filter.function.0, part));
        if let Err(fault) = done {
            tell(&self.req, &fault);
            // INVARIANT 3.
            return Err(BodyError::Broken("js_body_filter failed".to_string()));
        }
        if out.is_done {
            self.state = State::Passes;
        }
        Ok(out.body.freeze())
    }

    fn run(&mut self, scripts: &Scripts, out: &mut Out, call: (&str, Part)) -> Result<(), Fault> {
        let mut session = Session::begin(&mut self.req, scripts)?;
        session.piece(&mut self.req, out, call)
    }

    fn piece(&mut self, mut piece: Piece) -> Result<Bytes, BodyError> {
        let mut made = bytes::BytesMut::new();
        while !piece.is_empty() {
            let data = piece.take_memory()?;
            if self.state == State::Passes {
                made.extend_from_slice(&data);
            } else {
                made.extend_from_slice(&self.changed(Some(data))?);
            }
        }
        Ok(made.freeze())
    }
}

impl BodyStream for ScriptBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            if self.state == State::Ended {
                return Poll::Ready(None);
            }
            let made = match ready!(self.inner.poll_next(cx)) {
                Some(Ok(piece)) => self.piece(piece),
                Some(Err(error)) => Err(error),
                None => {
                    let asks = self.state == State::Asks;
                    let rest = if asks {
                        self.changed(None)
                    } else {
                        Ok(Bytes::new())
                    };
                    self.state = State::Ended;
                    rest
                }
            };
            match made {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Piece::Memory(bytes)))),
                Err(error) => {
                    self.state = State::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}
