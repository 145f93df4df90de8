//! Requests: the incremental parser and the head that it makes.
//!
//! ```text
//!            empty lines        "GET /a HTTP/1.1"             "Host: b" …            ""
//! start ──────(dropped)──────► line ─────────────► fields ───(one span each)──► Done(head)
//!                               │ HTTP/0.9 ──► Done  │
//!                               └──────── Refuse(why, with what was read so far) ◄┘
//! ```
//!
//! A [`RequestHead`] owns the bytes of the head, cut from the connection's buffer without a copy,
//! and the places of its parts in them. The first sixteen fields need no allocation.
//!
//! Reading is bounded as `client_header_buffer_size` and `large_client_header_buffers` bound it:
//! the first buffer takes lines while they fit; each line that does not fit the buffer in use goes
//! to the begin of a new one of `line` bytes; all those together are at most `total` bytes.
//! The buffers are only counted, never made. Pipelined requests each start with a fresh count.
//!
//! A line that has come whole and is as most lines are is read with one look at each byte; all
//! others are first looked for, then taken apart, with the same result.
//!
//! 1. No two fields of a name that must be unique pass (Host, Content-Length, …).
//! 2. A head's length and framing have one reading: see [`RequestHead::framing`].
//! 3. A present Host field, and the host of an absolute URI, is well-formed.
//! 4. Control bytes and DEL are nowhere in the request line; NUL, CR and LF in no value.
//! 5. A whole line that is too long is refused like a part of it that is already too long.
//!
//! Stricter than nginx: a second CR before LF is refused. What it does not do: decode the path,
//! merge fields, choose a server.
//!
//! Sources: RFC 9112 §2, §3, §5, §6, §9.3; nginx's request line grammar.

use std::rc::Rc;

use bytes::{Buf, BytesMut};

use super::Version;
use super::line::{self, BadLine, LineScanner};
use crate::head::place::Extent;
use crate::head::request::Parts;
use crate::header::Known;

mod target;

pub use crate::head::{
    Connect, FieldRef, Framing, InvalidNames, Limits, Reading, Refusal, Refused, RequestHead,
    Underscores, give_back,
};

use crate::head::builder::new_draft;
use target::UsualLine;

/// The result of one call of the parser.
#[derive(Debug)]
pub enum Progress {
    /// The head is not complete.
    NeedMore,
    /// The head; its bytes were taken from the buffer.
    Done(Rc<RequestHead>),
    /// No request; all bytes were taken from the buffer. The connection cannot go on.
    Refuse(Refused),
}

/// An account of the buffers' space that is used.
#[derive(Debug, Default)]
struct Budget {
    /// Bytes left in the buffer in use; `None` before the first line.
    room: Option<usize>,
    /// Bytes of the further buffers that were taken into use.
    spent: usize,
}

impl Budget {
    /// Takes a line of `len` bytes into account; false if it does not fit.
    fn take(&mut self, len: usize, limits: &Limits) -> bool {
        let room = self.room.unwrap_or(limits.first);
        if len <= room {
            self.room = Some(room - len);
            return true;
        }
        if !self.fits(len, limits) {
            return false;
        }
        self.spent += limits.line;
        self.room = Some(limits.line - len);
        true
    }

    /// True if a line of `len` bytes would fit.
    fn fits(&self, len: usize, limits: &Limits) -> bool {
        len <= self.room.unwrap_or(limits.first)
            || (len <= limits.line && self.spent.saturating_add(limits.line) <= limits.total)
    }
}

/// The parser's position in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Line,
    Fields,
}

/// The effect of a line: the head goes on, or ends with it.
enum Step {
    More,
    End,
}

/// Reads one request after another from a connection's buffer.
#[derive(Debug, Default)]
pub struct RequestParser {
    stage: Stage,
    scanner: LineScanner,
    budget: Budget,
    /// The head as far as it was read, without its bytes. Made where it will stay: it is long, and
    /// a parser that waits for a request does without.
    draft: Option<Rc<RequestHead>>,
}

impl RequestParser {
    /// A parser at the begin of a request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if nothing of a request has been seen, empty lines apart: the connection is idle.
    #[must_use]
    pub(crate) fn is_idle(&self, buf: &[u8]) -> bool {
        self.stage == Stage::Line && buf.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// Goes on with what is in `buf`: all bytes of this request that were not consumed.
    ///
    /// After `Done` and `Refuse` the parser is at the begin of the next request. `limits` must be
    /// the same for all calls for one request.
    pub fn parse(&mut self, buf: &mut BytesMut, limits: &Limits) -> Progress {
        if self.stage == Stage::Line {
            skip_empty_lines(buf);
            // Most of what is no HTTP at all shows in its first byte (a TLS handshake on a
            // clear-text port) and should not wait for a line end.
            if buf
                .first()
                .is_some_and(|first| !target::is_method_byte(*first))
            {
                return Progress::Refuse(self.refuse(buf, Refusal::InvalidMethod));
            }
        }
        match self.handle_lines(buf, limits) {
            Ok(Step::More) => Progress::NeedMore,
            Ok(Step::End) => Progress::Done(self.take_head(buf)),
            Err(why) => Progress::Refuse(self.refuse(buf, why)),
        }
    }

    /// Ends a request whose rest does not come: what was read of it, for the logs; none when
    /// nothing was.
    pub fn give_up(&mut self, buf: &mut BytesMut) -> Option<Rc<RequestHead>> {
        if self.is_idle(buf) {
            return None;
        }
        // Why does not matter: the head is what is wanted.
        Some(self.refuse(buf, Refusal::InvalidRequest).head)
    }

    /// Takes all whole lines, up to the end of the head.
    fn handle_lines(&mut self, buf: &[u8], limits: &Limits) -> Result<Step, Refusal> {
        let mut draft = self.draft.take().unwrap_or_else(new_draft);
        // Nobody else has it, so nothing is copied.
        let parts = &mut Rc::make_mut(&mut draft).parts;
        let mut step = self.handle_usual_lines(buf, limits, parts);
        while let Ok(Step::More) = step
            && let Some(range) = self.scanner.next_line(buf)
        {
            step = self.handle_line(buf, range, (limits, parts));
        }
        self.draft = Some(draft);
        if let Ok(Step::More) = step {
            self.check_unfinished(buf, limits)?;
        }
        step
    }

    /// Takes lines while they are as usual, up to one that is not, or to the end of the head.
    fn handle_usual_lines(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        parts: &mut Parts,
    ) -> Result<Step, Refusal> {
        let Some(mut start) = self.scanner.untouched() else {
            return Ok(Step::More);
        };
        if self.stage == Stage::Line {
            let Some(line) = UsualLine::read(buf) else {
                return Ok(Step::More);
            };
            self.take_usual(line.len, limits)?;
            line.place(parts).ok_or(Refusal::UriTooLong)?;
            self.stage = Stage::Fields;
            start = line.len;
        }
        loop {
            let rest = buf.get(start..).unwrap_or_default();
            if rest.starts_with(b"\r\n") {
                self.take_usual(2, limits)?;
                return Ok(Step::End);
            }
            let Some(field) = line::read_usual_field(rest) else {
                return Ok(Step::More);
            };
            self.take_usual(field.len, limits)?;
            parts.add_field(rest, (start, &field.line, field.known), limits)?;
            start += field.len;
        }
    }

    /// Takes a line of `len` bytes whose end was found.
    fn take_usual(&mut self, len: usize, limits: &Limits) -> Result<(), Refusal> {
        self.scanner.take(len);
        if self.budget.take(len, limits) {
            Ok(())
        } else {
            Err(self.too_long())
        }
    }

    /// Takes one whole line.
    fn handle_line(
        &mut self,
        buf: &[u8],
        range: std::ops::Range<usize>,
        (limits, parts): (&Limits, &mut Parts),
    ) -> Result<Step, Refusal> {
        let start = range.start;
        let whole = buf.get(range).unwrap_or_default();
        if !self.budget.take(whole.len(), limits) {
            return Err(self.too_long());
        }
        let line = line::without_end(whole);
        match self.stage {
            Stage::Line => {
                target::parse_request_line(line, parts)?;
                self.stage = Stage::Fields;
                Ok(match parts.version {
                    Version::Http09 => Step::End,
                    _ => Step::More,
                })
            }
            Stage::Fields if line.is_empty() => Ok(Step::End),
            Stage::Fields => {
                let parsed =
                    line::parse_field_line(line).map_err(|BadLine| Refusal::InvalidField)?;
                let known = Known::of(line.get(..parsed.name_len).unwrap_or_default());
                parts.add_field(line, (start, &parsed, known), limits)?;
                Ok(Step::More)
            }
        }
    }

    /// Refuses early what no further byte can make good.
    fn check_unfinished(&self, buf: &[u8], limits: &Limits) -> Result<(), Refusal> {
        let rest = buf.get(self.scanner.taken()..).unwrap_or_default();
        // At least the LF is to come.
        if !rest.is_empty() && !self.budget.fits(rest.len() + 1, limits) {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn too_long(&self) -> Refusal {
        match self.stage {
            Stage::Line => Refusal::UriTooLong,
            Stage::Fields => Refusal::HeaderTooLarge,
        }
    }

    /// Cuts the head from the buffer and goes to the begin.
    fn take_head(&mut self, buf: &mut BytesMut) -> Rc<RequestHead> {
        // A buffer that is taken whole is not shared first.
        let bytes = if buf.len() == self.scanner.taken() {
            std::mem::take(buf)
        } else {
            buf.split_to(self.scanner.taken())
        };
        let mut head = self.restart();
        Rc::make_mut(&mut head).buf = bytes.freeze();
        head
    }

    /// Cuts all bytes from the buffer and goes to the begin.
    fn refuse(&mut self, buf: &mut BytesMut, why: Refusal) -> Refused {
        let stage = self.stage;
        let mut head = self.restart();
        let read = Rc::make_mut(&mut head);
        read.buf = buf.split().freeze();
        if stage == Stage::Line {
            let end = memchr::memchr2(b'\r', b'\n', &read.buf).unwrap_or(read.buf.len());
            // nginx: of a line that cannot be read nothing is known but the line.
            if why != Refusal::InvalidHostInLine {
                let version = read.parts.version;
                read.parts.clear();
                read.parts.version = version;
            }
            // An answer to HEAD has no body, also when the line was too long to be read.
            read.parts.method = target::method_of(&read.buf);
            read.parts.line = Extent {
                start: 0,
                end: u32::try_from(end).unwrap_or(u32::MAX),
            };
        }
        Refused { why, head }
    }

    /// Goes to the begin of the next request; gives out what was read of this one.
    fn restart(&mut self) -> Rc<RequestHead> {
        std::mem::take(self).draft.unwrap_or_default()
    }
}

/// Drops the CR and LF before a request line (RFC 9112 §2.2).
fn skip_empty_lines(buf: &mut BytesMut) {
    let count = buf
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    if count > 0 {
        buf.advance(count);
    }
}

#[cfg(test)]
mod tests;
