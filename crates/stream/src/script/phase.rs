//! `js_access`, `js_preread`: functions that decide whether a session goes on.
//!
//! ```text
//! function ─► waits for nothing ────────────────────────────────────────────► its decision
//!    └──────► first bytes: the function that waits for them ─┐                     ▲
//!    └──────► operations (timers, fetch) ────────────────────┴─ until none is left ┘
//! ```
//!
//! Before the phase of first bytes there are none: a function that waits for them then is called
//! once, with nothing.
//!
//! Invariant: first bytes are looked at and stay where they are; there are at most
//! `preread_buffer_size`.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use millpond_exchange::client::carrier::Carrier;
use millpond_exchange::worker::Member;
use millpond_proxy::downstream::proxy_protocol;
use millpond_proxy::log::request_error;
use millpond_proxy::request::Request;
use millpond_proxy::script::Scripts;
use millpond_script::{Errand, Form, Part, Reply, Side};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;

use super::Talk;
use crate::settings::{MOST_BUFFER, SessionPolicy};
use crate::status::{BAD_REQUEST, Ended, OK, OUR_FAULT};

/// nginx's codes for the end of a phase.
const NEXT_PHASE: i32 = 0;
const DECLINED: i32 = -5;

/// A decision by which a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The rest of the phase is left out.
    Allowed,
    /// The rest of the phase decides.
    Declined,
}

/// The client whose first bytes a function may wait for.
pub(crate) struct Source<'a> {
    pub(crate) carrier: &'a Carrier,
    pub(crate) member: &'a Member,
    pub(crate) policy: &'a SessionPolicy,
}

/// Asks `js_access`, where there is one.
pub(crate) async fn access(req: &mut Request) -> Result<Word, Ended> {
    let location = Arc::clone(&req.location);
    let scripts: Option<&Scripts> = location.parts.get();
    match scripts.and_then(|scripts| scripts.access.as_ref()) {
        Some(function) => Box::pin(ask(req, &function.0, None)).await,
        None => Ok(Word::Declined),
    }
}

/// Asks a function, and waits until it has decided.
pub(crate) async fn ask(
    req: &mut Request,
    function: &str,
    source: Option<&Source<'_>>,
) -> Result<Word, Ended> {
    let mut asked = Asked {
        talk: Talk::begin(req)?,
        deadline: None,
    };
    asked.talk.call(req, (function, Errand::Session))?;
    // nginx: the function is called once before there are bytes.
    let mut has_news = true;
    loop {
        let listens = asked.talk.out.session.listens[Side::Client as usize];
        if let Some(form) = listens.filter(|_| has_news) {
            has_news = false;
            let part = first_bytes(req, source, form);
            asked
                .talk
                .call(req, ("", Errand::Event(Side::Client, part)))?;
            continue;
        }
        let source = source.filter(|_| listens.is_some());
        asked.talk.running.begin(req, &mut asked.talk.out);
        if asked.talk.running.is_empty() && source.is_none() {
            return decided(req, (function, asked.talk.out.session.decided));
        }
        match asked.next(req, source).await? {
            Event::Ended(ended) => {
                asked.talk.resume(req, ended)?;
                // nginx: the bytes that are there are told again.
                has_news = source.is_some_and(|it| !it.carrier.inbox.borrow().is_empty());
            }
            Event::More => has_news = true,
        }
    }
}

/// Something that a function has waited for.
enum Event {
    /// An operation has ended.
    Ended((u32, Reply)),
    /// There are more bytes.
    More,
}

/// A function that was asked.
struct Asked {
    talk: Talk,
    /// The end of the time for first bytes, once they were waited for.
    deadline: Option<Instant>,
}

impl Asked {
    /// Waits for the end of an operation, and for bytes if the function does.
    async fn next(&mut self, req: &Request, source: Option<&Source<'_>>) -> Result<Event, Ended> {
        let Some(source) = source else {
            let ended = std::future::poll_fn(|cx| self.talk.running.poll(cx)).await;
            return Ok(Event::Ended(ended));
        };
        let timeout = source.policy.preread_timeout;
        let deadline = *self
            .deadline
            .get_or_insert_with(|| clock::instant() + timeout);
        let left = deadline.saturating_duration_since(clock::instant());
        let count = source.carrier.inbox.borrow().len();
        let most = source.policy.preread_size.0.min(MOST_BUFFER) as usize;
        if count >= most {
            let message = format_args!("preread buffer full while prereading client data");
            request_error::write(req, Level::Error, message);
            return Err(BAD_REQUEST);
        }
        let mut more = pin!(proxy_protocol::more(
            source.carrier,
            source.member,
            most - count
        ));
        let running = &mut self.talk.running;
        let waits = std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = running.poll(cx) {
                return Poll::Ready(Ok(Event::Ended(ended)));
            }
            let told = |read: io::Result<usize>| match read {
                Ok(1..) => Ok(Event::More),
                // nginx: a client that leaves has had its session.
                _ => Err(OK),
            };
            more.as_mut().poll(cx).map(told)
        });
        let waited = source.carrier.timer.guard_for(left, waits).await;
        waited.unwrap_or(Err(OK))
    }
}

/// The bytes that a client has sent so far.
fn first_bytes(req: &Request, source: Option<&Source<'_>>, form: Form) -> Part {
    let data = source.map_or_else(Bytes::new, |source| {
        let inbox = source.carrier.inbox.borrow();
        req.client.request_bytes.set(inbox.len() as u64);
        Bytes::copy_from_slice(&inbox)
    });
    Part {
        data,
        is_last: false,
        form,
    }
}

/// The fate of a session by what its function has decided.
fn decided(req: &Request, (function, code): (&str, Option<i32>)) -> Result<Word, Ended> {
    if code.is_none() {
        let message = format_args!("js function \"{function}\" has decided nothing");
        request_error::write(req, Level::Error, message);
    }
    word_of(code)
}

/// The meaning of nginx's code for the end of a phase.
fn word_of(code: Option<i32>) -> Result<Word, Ended> {
    match code {
        Some(NEXT_PHASE) => Ok(Word::Allowed),
        Some(DECLINED) => Ok(Word::Declined),
        Some(code) => Err(u16::try_from(code).unwrap_or(OUR_FAULT)),
        // nginx: who decides nothing has failed.
        None => Err(OUR_FAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_nginx_say_how_a_session_goes_on() {
        for (code, fate) in [
            (Some(0), Ok(Word::Allowed)),
            (Some(-5), Ok(Word::Declined)),
            (Some(403), Err(403)),
            (Some(200), Err(200)),
            (Some(-1), Err(OUR_FAULT)),
            (None, Err(OUR_FAULT)),
        ] {
            assert_eq!(word_of(code), fate, "{code:?}");
        }
    }
}
