//! A request on a line: a place is found or waited for, and found again when what happened to the
//! line says nothing of the request.
//!
//! | what happened | asked again |
//! |---|---|
//! | the peer has not looked at it, since it goes away | up to `UNPROCESSED_MOST` times |
//! | the peer has refused it | once |
//! | the line died, and nothing was heard of it | once, on a line that was begun after that |
//!
//! 1. Nothing is asked again of which bytes are gone that nobody keeps.
//! 2. What may have been sent is asked again only if its method may be repeated, unless the peer
//!    says that it has not looked at it.

use std::rc::Rc;

use millpond_system::clock;
use millpond_wire::http2::Gone;

use super::super::broken::Broken;
use super::super::connect::Source;
use super::super::exchange::{Fetched, Try};
use super::carrier::Carrier;
use super::line::LineStream;
use super::lines::{self, Waited, Wanted};
use millpond_exchange::failure::UpstreamFailure;

/// Times that a request is asked again of a peer that goes away (arbitrary: each time on another
/// line).
const UNPROCESSED_MOST: u32 = 3;

/// The tries that a request has left on other lines.
struct Again {
    unprocessed: u32,
    refused: u32,
    died: u32,
}

impl Try<'_> {
    /// True if the request shares a connection with others.
    pub(in super::super) fn is_on_line(&self) -> bool {
        // Who has a certificate for each request wants it to be looked at.
        let by = self.prepared.encryption.as_ref();
        self.group.keep_alive.streams > 1
            && self.way(None).is_http2
            && by.is_none_or(|by| by.certificate.is_none())
    }

    /// Asks on a line.
    pub(in super::super) async fn ask_on_line(
        &mut self,
        source: Option<Source>,
    ) -> Result<Box<Fetched>, UpstreamFailure> {
        let mut left = Again {
            unprocessed: UNPROCESSED_MOST,
            refused: 1,
            died: 1,
        };
        let mut from = 0;
        loop {
            let stream = self.find_line(source, from).await?;
            let line = Rc::clone(stream.line());
            let carrier = Carrier::Shared(Box::new(stream));
            let broken = match self.talk_http2(carrier, clock::instant()).await {
                Ok(fetched) => return Ok(fetched),
                Err(broken) => broken,
            };
            if !self.may_ask_again(&broken, &mut left) {
                return Err(broken.failure);
            }
            if broken.untouched.is_none() {
                from = line.after();
            }
        }
    }

    fn may_ask_again(&self, broken: &Broken, left: &mut Again) -> bool {
        let (left, may) = match broken.untouched {
            Some(Gone::Unprocessed) => (&mut left.unprocessed, true),
            Some(_) => (&mut left.refused, true),
            None => (&mut left.died, broken.is_silent && self.may_retry_idle()),
        };
        let is_left = *left > 0;
        *left = left.saturating_sub(1);
        may && is_left
    }

    /// A place on a line that began with this number, or later.
    async fn find_line(
        &mut self,
        source: Option<Source>,
        from: u64,
    ) -> Result<LineStream, UpstreamFailure> {
        let now = clock::instant();
        let maker = self.maker(source);
        let wanted = Wanted {
            group: self.group,
            peer: self.peer,
            location: &maker.location,
            way: self.way(source),
            from,
        };
        let until = now + self.pass.connect.timeout;
        let (line, waited) = Box::pin(lines::find(&wanted, &maker, until)).await?;
        self.note_connected(match waited {
            Waited::No => self.started,
            Waited::Yes => clock::instant(),
        });
        let generation = Rc::clone(self.req.generation());
        Ok(LineStream::new(line, self.peer, &generation))
    }
}
