//! What a stored head is worth now: the pure decision at the heart of the cache.
//!
//! ```text
//! none ─────────────────────────► Miss
//! now ≤ valid_until ────────────► Fresh
//! now > valid_until ────────────► Stale { while_updating, on_error }
//! ```
//!
//! It follows nginx: freshness was fixed when the answer was stored, from X-Accel-Expires,
//! Cache-Control, Expires or `proxy_cache_valid`.

use crate::head::StoredHead;
use crate::use_stale::{StaleCause, StalePolicy};

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// May be served.
    Fresh,
    /// Must be fetched or revalidated first, unless a rule lets it be served.
    Stale(StaleRules),
}

/// What a stale entry may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleRules {
    /// It may be served while another request updates it.
    pub while_updating: bool,
    /// Its own fields allow it to be served when the origin fails.
    pub on_error: bool,
}

/// Decides what `head` is worth at `now` (seconds).
pub fn verdict(head: &StoredHead, now: i64, policy: &StalePolicy) -> Verdict {
    // nginx: an entry is stale once its time is over, to the second.
    if now <= head.valid_until {
        return Verdict::Fresh;
    }
    let within = |seconds: u32| head.valid_until.saturating_add(i64::from(seconds)) >= now;
    Verdict::Stale(StaleRules {
        // RFC 5861 §3: stale-while-revalidate.
        while_updating: policy.allows(StaleCause::Updating) || within(head.stale_updating),
        // RFC 5861 §4: stale-if-error.
        on_error: within(head.stale_error),
    })
}

impl StaleRules {
    /// True when a failure of this cause may be answered with the stale entry.
    pub fn covers(&self, cause: Option<StaleCause>, policy: &StalePolicy) -> bool {
        self.on_error || cause.is_some_and(|cause| policy.allows(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::FieldsWriter;
    use millpond_conf::Flags;

    #[test]
    fn the_last_valid_second_is_fresh_and_the_windows_follow() {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.valid_until = 100;
        head.stale_updating = 10;
        head.stale_error = 20;
        let policy = StalePolicy {
            causes: Flags::empty(),
        };
        let stale = |while_updating, on_error| {
            Verdict::Stale(StaleRules {
                while_updating,
                on_error,
            })
        };
        let cases = [
            (100, Verdict::Fresh),
            (101, stale(true, true)),
            (110, stale(true, true)),
            (111, stale(false, true)),
            (120, stale(false, true)),
            (121, stale(false, false)),
        ];
        for (now, expected) in cases {
            assert_eq!(verdict(&head, now, &policy), expected, "{now}");
        }
    }

    #[test]
    fn the_configuration_allows_what_the_fields_do_not() {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.valid_until = 100;
        let causes = [StaleCause::Updating, StaleCause::Http500]
            .into_iter()
            .collect();
        let policy = StalePolicy { causes };
        let Verdict::Stale(rules) = verdict(&head, 200, &policy) else {
            panic!("fresh")
        };
        assert!(rules.while_updating);
        assert!(rules.covers(Some(StaleCause::Http500), &policy));
        assert!(!rules.covers(Some(StaleCause::Http404), &policy));
        assert!(!rules.covers(None, &policy));
    }
}
