//! `js_filter`: a function through which the bytes of a session go.
//!
//! ```text
//! client ──read──► function ──► what waits for the peer ──write──► peer
//! client ◄──write── what waits for the client ◄── function ◄──read── peer
//!                        ▲
//!                        └── operations: what an asynchronous function sends later
//! ```
//!
//! Invariants:
//! 1. A direction is read when nothing of it waits, and little of the other one.
//! 2. The end of a session ends its operations.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use millpond_proxy::request::Request;
use millpond_script::{Errand, Part, Reply, Side};

use super::Talk;
use crate::relay::{End, Relay, Seen};
use crate::status::Ended;

/// Pieces and operations that a session goes through before others have their turn (arbitrary).
const MOST_EVENTS: usize = 16;

/// A function that runs for a session.
pub(crate) struct Filter {
    talk: Talk,
    /// Pieces and ends of operations so far.
    events: usize,
}

/// Something that a filter has waited for.
enum Event {
    /// A side has sent something, or nothing more comes.
    Seen(Seen),
    /// An operation has ended.
    Ended((u32, Reply)),
}

impl Filter {
    /// Calls the function, which says what it waits for.
    pub(crate) fn begin(req: &mut Request, function: &str) -> Result<Filter, Ended> {
        let mut filter = Filter {
            talk: Talk::begin(req)?,
            events: 0,
        };
        filter.talk.call(req, (function, Errand::Filter))?;
        Ok(filter)
    }

    /// Passes the bytes of a session through the function, to the end of its relay. `first` was
    /// read of the client before; `note` is told at each look how far the relay has come.
    pub(crate) async fn run(
        &mut self,
        req: &mut Request,
        (relay, first): (&mut Relay<'_>, Bytes),
        mut note: impl FnMut(&mut Request, &Relay<'_>),
    ) -> Result<End, Ended> {
        if !first.is_empty() {
            self.see(req, (Side::Client, first, false))?;
        }
        loop {
            self.pass_on(relay);
            self.talk.running.begin(req, &mut self.talk.out);
            let event = poll_fn(|cx| {
                let polled = self.poll(cx, relay);
                note(req, relay);
                polled
            });
            match event.await {
                Event::Seen(Seen::Over(end)) => return Ok(end),
                Event::Seen(Seen::Bytes(side, bytes)) => self.see(req, (side, bytes, false))?,
                Event::Seen(Seen::Last(side)) => self.see(req, (side, Bytes::new(), true))?,
                Event::Ended(ended) => self.talk.resume(req, ended)?,
            }
            self.events = self.events.wrapping_add(1);
            if self.events.is_multiple_of(MOST_EVENTS) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The text that a client gets in place of one; there is no peer.
    pub(crate) fn text(mut self, req: &mut Request, text: Bytes) -> Result<BytesMut, Ended> {
        self.see(req, (Side::Peer, text, true))?;
        let [_, to_client] = &mut self.talk.out.session.sent;
        Ok(std::mem::take(to_client))
    }

    /// The next event; neither pieces nor operations have to wait for all of the others.
    fn poll(&mut self, cx: &mut Context<'_>, relay: &mut Relay<'_>) -> Poll<Event> {
        if self.events.is_multiple_of(2)
            && let Poll::Ready(ended) = self.talk.running.poll(cx)
        {
            return Poll::Ready(Event::Ended(ended));
        }
        match relay.poll_seen(cx) {
            Poll::Ready(seen) => Poll::Ready(Event::Seen(seen)),
            Poll::Pending => self.talk.running.poll(cx).map(Event::Ended),
        }
    }

    /// Gives a piece to the function that waits for it, or passes it on.
    fn see(
        &mut self,
        req: &mut Request,
        (side, data, is_last): (Side, Bytes, bool),
    ) -> Result<(), Ended> {
        let Some(form) = self.talk.out.session.listens[side as usize] else {
            self.talk.out.session.sent[side as usize].extend_from_slice(&data);
            return Ok(());
        };
        let part = Part {
            data,
            is_last,
            form,
        };
        self.talk.call(req, ("", Errand::Event(side, part)))
    }

    /// Gives the relay what was sent.
    fn pass_on(&mut self, relay: &mut Relay<'_>) {
        let [to_peer, to_client] = &mut self.talk.out.session.sent;
        relay.forth.put_last(std::mem::take(to_peer));
        relay.back.put_last(std::mem::take(to_client));
    }
}
