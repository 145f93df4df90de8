//! The body of an owner's answer that is not kept here: where it breaks off, the origin has the
//! rest.
//!
//! The owner may die or stand still in the middle. What is kept goes on in its fill
//! (`millpond_cache::fill::again`); this is the same for what only passes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use millpond_cache::exchange::FetchEnd;
use millpond_cache::fill::again::Again;
use millpond_cache::rule_counts::RuleCounts;
use millpond_cache::status::CacheStatus;
use millpond_system::body::{Body, BodyError, BodyStream, Piece};

use crate::cache::exchange::{Origin, PassExchange};
use crate::request::Request;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;

/// The right to ask the origin for the rest.
pub(in crate::cache) type Right = Box<Again<PassExchange<Box<Request>>>>;

/// A question for the rest, which gives the right back.
type Asking = Pin<Box<dyn Future<Output = (Right, Option<Origin>)>>>;

/// The right to ask for the rest of an owner's answer; none where it cannot be had, and for
/// answers of others.
pub(in crate::cache) fn right(
    req: &mut Request,
    target: &Arc<PassTarget>,
    (answer, label): (&Origin, CacheStatus),
    counts: &Arc<RuleCounts>,
) -> Option<Right> {
    if !answer.is_of_owner() || !req.location.settings.pass(target.protocol).range.resume {
        return None;
    }
    let exchange = PassExchange::new(req, Arc::clone(target));
    Again::of_answer(&exchange, answer, (counts, label)).map(Box::new)
}

/// A body whose rest may come from another answer.
pub(in crate::cache) struct Resumable {
    body: Body,
    /// Bytes that have come.
    at: u64,
    right: Option<Right>,
    asking: Option<(Asking, BodyError)>,
}

impl Resumable {
    /// The body of an answer, from its first byte on.
    pub(in crate::cache) fn new(body: Body, right: Right) -> Self {
        Resumable {
            body,
            at: 0,
            right: Some(right),
            asking: None,
        }
    }

    fn ask(&mut self, mut right: Right, error: BodyError) {
        let why = match error {
            BodyError::UpstreamTimedOut => FetchEnd::TimedOut,
            _ => FetchEnd::Truncated,
        };
        let at = self.at;
        let asking = Box::pin(async move {
            let rest = right.rest(at, why).await;
            (right, rest)
        });
        self.asking = Some((asking, error));
    }
}

impl BodyStream for Resumable {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        loop {
            if let Some((asking, _)) = &mut this.asking {
                let (right, rest) = ready!(asking.as_mut().poll(cx));
                let error = this.asking.take().map(|(_, error)| error);
                let Some(rest) = rest else {
                    return Poll::Ready(error.map(Err));
                };
                this.right = Some(right);
                this.body = rest.fetched.into_body();
            }
            let error = match ready!(this.body.poll_next(cx)) {
                Some(Ok(piece)) => {
                    this.at += piece.len();
                    return Poll::Ready(Some(Ok(piece)));
                }
                Some(Err(error)) => error,
                None => return Poll::Ready(None),
            };
            match this.right.take() {
                Some(right) => this.ask(right, error),
                None => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
