//! Answers on a stream of a connection that carries several at once.
//!
//! Pieces go out as there is room for them: a stream whose client is slow holds one piece and
//! leaves the rest with its source. Files are read into memory, by threads of their disks where
//! they must be waited for. An answer whose body is in memory is given to its stream whole, if
//! there is room for it, and nothing is left but to wait until it is sent.
//!
//! Invariants:
//! 1. A body of known length that ends early, or any error of the body, resets the stream, so that
//!    the client sees the failure.
//! 2. Nothing is read of what is here, memory or files, before there is room for it: a window that
//!    never opens costs no memory. An upstream is not held up before the first piece, and the end
//!    of a body of unknown length needs no room.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millpond_system::body::{Body, BodyError, Piece};
use millpond_system::clock;
use millpond_system::timer::Timer;

use crate::cache::loaded;
use millpond_exchange::client::Client;
use millpond_exchange::client::send::{
    AnswerHead, BodyKind, Outgoing, SendError, SentBytes, rate_allowance,
};
use millpond_exchange::client::wire::{Broken, Stream};
use millpond_exchange::failure::ClientGone;

/// An answer whose head is on its way.
pub(crate) struct Unsent {
    head_len: u64,
    body: BodyKind,
}

/// Begins an answer.
pub(crate) fn begin(stream: &Rc<dyn Stream>, head: &AnswerHead<'_>, frame_len: usize) -> Unsent {
    Unsent {
        head_len: stream.begin(head, frame_len),
        body: head.body,
    }
}

/// Gives the stream all of an answer, if its body is in memory and there is room for it; the bytes
/// that it takes.
pub(crate) fn give(stream: &dyn Stream, unsent: &Unsent, body: &mut Body) -> Option<SentBytes> {
    let length = match unsent.body {
        BodyKind::None => 0,
        BodyKind::Length(length) => length,
        BodyKind::Unknown => return None,
    };
    if length > 0 {
        let Body::One(Piece::Memory(bytes)) = body else {
            return None;
        };
        let len = usize::try_from(length)
            .ok()
            .filter(|len| *len <= bytes.len())?;
        // INVARIANT 2. Where there is no room it is asked for again, by who waits for it.
        match stream.poll_room(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(room)) if room >= len => stream.push(bytes.split_to(len)),
            _ => return None,
        }
    }
    stream.end(None);
    Some(SentBytes {
        head: unsent.head_len,
        body: length,
    })
}

/// Waits until all of an answer is sent that was given to its stream.
pub(crate) async fn sent(stream: &dyn Stream, timeout: Duration) -> Result<(), SendError> {
    let outcome = all_sent(stream, timeout).await;
    if let Err(gone) = &outcome {
        break_off(stream, gone);
    }
    Ok(outcome?)
}

/// Sends the body; `sent` is kept up to date, so that it is right after an error too.
pub(crate) async fn send(
    client: &Client,
    stream: &dyn Stream,
    unsent: Unsent,
    answer: Outgoing<'_>,
    sent: &mut SentBytes,
) -> Result<(), SendError> {
    sent.head = unsent.head_len;
    let outcome = send_body(client, stream, unsent.body, answer, sent).await;
    // INVARIANT 1.
    match &outcome {
        Ok(()) => {}
        Err(SendError::Client(gone)) => break_off(stream, gone),
        Err(SendError::Body(_)) => stream.reset(Broken::Failed),
    }
    outcome
}

fn break_off(stream: &dyn Stream, gone: &ClientGone) {
    let why = match gone {
        ClientGone::TimedOut => Broken::SlowAnswer,
        _ => Broken::Failed,
    };
    stream.reset(why);
}

async fn send_body(
    client: &Client,
    stream: &dyn Stream,
    kind: BodyKind,
    answer: Outgoing<'_>,
    sent: &mut SentBytes,
) -> Result<(), SendError> {
    let limits = answer.limits;
    let timer = Timer::new();
    let started = (limits.rate > 0).then(clock::instant);
    let mut missing = match kind {
        BodyKind::None => 0,
        BodyKind::Length(length) => length,
        BodyKind::Unknown => u64::MAX,
    };
    let wait_for_room = async || {
        let has_room = std::future::poll_fn(|cx| stream.poll_room(cx));
        match timer.guard_for(limits.timeout, has_room).await {
            Ok(room) => room.map(|room| room as u64),
            Err(_) => Err(ClientGone::TimedOut),
        }
    };
    let mut body = loaded::read(std::mem::take(answer.body), limits.timeout);
    while missing > 0 {
        if let Some(backlog) = &answer.backlog {
            backlog.set(0);
        }
        // INVARIANT 2.
        let mut room = match (kind, &answer.backlog) {
            (BodyKind::Length(_), None) => wait_for_room().await?,
            _ => 0,
        };
        let mut piece = match body.next().await {
            Some(Ok(mut piece)) => piece.split_to(missing),
            Some(Err(error)) => return Err(error.into()),
            None if kind == BodyKind::Unknown => break,
            None => return Err(BodyError::UpstreamTruncated.into()),
        };
        missing -= piece.len();
        while !piece.is_empty() {
            let allowance = match started {
                Some(started) => rate_allowance(client, limits, started, sent).await?,
                None => u64::MAX,
            };
            if room == 0 {
                room = wait_for_room().await?;
            }
            let mut part = piece.split_to(allowance.min(room));
            room = 0;
            sent.body += part.len();
            // It is in memory: nothing is read here.
            stream.push(part.take_memory()?);
        }
    }
    let trailers = match kind {
        BodyKind::Unknown => (answer.trailers)(body.take_trailers()),
        BodyKind::None | BodyKind::Length(_) => None,
    };
    stream.end(trailers.as_ref());
    Ok(all_sent(stream, limits.timeout).await?)
}

/// Waits until the connection has taken all of an answer. Nearly always it does so as soon as it
/// has its turn: no timer is set before that.
async fn all_sent(stream: &dyn Stream, timeout: Duration) -> Result<(), ClientGone> {
    let mut has_had_turn = false;
    let at_next_turn = std::future::poll_fn(|cx| match stream.poll_sent(cx) {
        Poll::Pending if !std::mem::replace(&mut has_had_turn, true) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        sent => Poll::Ready(sent),
    });
    if let Poll::Ready(outcome) = at_next_turn.await {
        return outcome;
    }
    Box::pin(async {
        let sent = std::future::poll_fn(|cx| stream.poll_sent(cx));
        let outcome = Timer::new().guard_for(timeout, sent).await;
        outcome.unwrap_or(Err(ClientGone::TimedOut))
    })
    .await
}

pub(crate) mod tunnel;
