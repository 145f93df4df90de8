//! The rest of a body that broke off, asked of the origin as a range of the same version.
//!
//! Invariants:
//! 1. Bytes of two answers are put together only if both have the same strong validator, and the
//!    second has just the range that is missing (RFC 9110 §15.3.7.3).
//! 2. An origin that breaks off again is asked as long as it gets on: `TRIES` times without `STEP`
//!    bytes in between end it.

use std::sync::Arc;

use crate::exchange::{Ask, Exchange, FetchEnd, Fetched as _, Purpose, field};
use crate::head::StoredHead;
use crate::rule_counts::{Rule, RuleCounts};
use crate::slice::Trust;
use crate::slice::answer::{Asked, Judged, judge};
use crate::slice::version::Validator;
use crate::status::CacheStatus;
use crate::window::NARROW_BYTES;

use super::{can_resume, has_ranges};

/// Requests for the rest of a body that bring less than `STEP` bytes each (arbitrary).
const TRIES: u32 = 3;
/// Bytes after which the tries are counted anew (arbitrary).
const STEP: u64 = 1 << 20;

/// The right to ask for the rest of a body.
pub struct Again<B> {
    exchange: B,
    counts: Arc<RuleCounts>,
    validator: Validator,
    total: u64,
    label: CacheStatus,
    tries: u32,
    /// Bytes that were there when the tries were counted anew.
    counted_from: u64,
}

impl<B: Exchange> Again<B> {
    /// The right to ask for the rest of a body that is stored with this head, for a request that
    /// may be asked more than once; none where the rest cannot be had, or is too little to ask for.
    pub fn of_head<X: Exchange<Background = B>>(
        x: &X,
        (head, length): (&StoredHead, Option<u64>),
        (counts, label): (&Arc<RuleCounts>, CacheStatus),
    ) -> Option<Self> {
        if !x.may_ask_again() || !can_resume(head, length) {
            return None;
        }
        let validator = Validator::of_head(head, Trust::Validated)?;
        Again::new(x, (validator, length), (counts, label))
    }

    /// The same right for an answer that only passes.
    pub fn of_answer<X: Exchange<Background = B>>(
        x: &X,
        answer: &B::Fetched,
        (counts, label): (&Arc<RuleCounts>, CacheStatus),
    ) -> Option<Self> {
        let ranges = field(answer, b"accept-ranges");
        if !x.may_ask_again() || answer.status() != 200 || !has_ranges(ranges.as_deref()) {
            return None;
        }
        let validator = Validator::of(answer, Trust::Validated)?;
        Again::new(x, (validator, answer.length()), (counts, label))
    }

    fn new<X: Exchange<Background = B>>(
        x: &X,
        (validator, length): (Validator, Option<u64>),
        (counts, label): (&Arc<RuleCounts>, CacheStatus),
    ) -> Option<Self> {
        Some(Again {
            total: length.filter(|total| *total > NARROW_BYTES)?,
            validator,
            exchange: x.background(),
            counts: Arc::clone(counts),
            label,
            tries: 0,
            counted_from: 0,
        })
    }

    /// The answer with all that is missing after `at` bytes; none if there is no such answer.
    pub async fn rest(&mut self, at: u64, why: FetchEnd) -> Option<B::Fetched> {
        if at >= self.total {
            return None;
        }
        if at.saturating_sub(self.counted_from) >= STEP {
            (self.tries, self.counted_from) = (0, at);
        }
        while self.tries < TRIES {
            self.tries += 1;
            self.exchange.note_broken(at, why);
            let asked = Asked::From {
                start: at,
                end: self.total,
            };
            let ask = Ask {
                purpose: Purpose::Fill,
                range: Some(asked.field()),
                if_range: self.validator.if_range(),
                label: Some(self.label),
                ..Ask::default()
            };
            // An origin that gives no answer may give one to the next request.
            let Ok(fetched) = self.exchange.fetch(ask).await else {
                continue;
            };
            // INVARIANT 1.
            let rest = Judged::Range {
                start: at,
                end: self.total,
                total: self.total,
            };
            // No slices: any end is one of a byte.
            let is_rest = judge(&fetched, &asked, 1) == rest && self.validator.names(&fetched);
            if is_rest {
                self.counts.note(Rule::Resumed);
            }
            return is_rest.then_some(fetched);
        }
        None
    }
}
