//! Verdict about a stored head: the pure decision at the heart of the cache.
//!
//! ```text
//! none ─────────────────────────► Miss
//! now ≤ valid_until ────────────► Fresh
//! now > valid_until ────────────► Stale { while_updating, on_error }
//! ```
//!
//! An answer that was stored in the future is stale: the clock was set back, and its age is not
//! known.
//!
//! Under nginx's rules freshness was fixed when the answer was stored, from X-Accel-Expires,
//! Cache-Control, Expires or `proxy_cache_valid`. Under RFC 9111 the request has a say, and the
//! origin's prohibitions stand above the configuration's permissions.

use millpond_semantics::cache_control::CacheControl;
use millpond_semantics::reuse::{RequestRules, Reuse, Stored, reuse};

use crate::conformance::Rules;
use crate::head::StoredHead;
use crate::use_stale::{StaleCause, StalePolicy};

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The entry may be served.
    Fresh,
    /// The entry must be fetched or revalidated first, unless a rule lets it be served.
    Stale(StaleRules),
}

/// Uses that a stale entry may be put to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaleRules {
    /// The entry may be served while another request updates it.
    pub while_updating: bool,
    /// The entry may be served when the origin does not answer.
    pub on_error: bool,
    /// The entry may be served in place of an answer that says that the origin failed.
    pub on_status: bool,
    /// The entry may not be served, whatever the configuration allows.
    pub is_forbidden: bool,
    /// The entry is asked for by its validators, whatever the configuration says: a purge of it
    /// may be missing here, and a 304 says that there was none.
    pub is_unconfirmed: bool,
}

/// Decides what `head` is worth at `now` (seconds).
pub(crate) fn verdict(head: &StoredHead, now: i64, policy: &StalePolicy, rules: &Rules) -> Verdict {
    match rules {
        Rules::Nginx => by_nginx(head, now, policy),
        Rules::Rfc9111(asked) => by_rfc(head, now, policy, asked),
    }
}

/// True if a stored answer may be used as it is at `now` (seconds), for a request with these rules.
pub fn is_usable(head: &StoredHead, now: i64, policy: &StalePolicy, rules: &Rules) -> bool {
    verdict(head, now, policy, rules) == Verdict::Fresh
}

fn by_rfc(head: &StoredHead, now: i64, policy: &StalePolicy, asked: &RequestRules) -> Verdict {
    let age = head.age(now);
    let fresh_until = head.fresh_until(now);
    let left = fresh_until.saturating_sub(now).saturating_add(1);
    let stored = Stored {
        age,
        lifetime: age.saturating_add_signed(left),
        must_validate: head.bounds.must_validate,
        never_stale: head.bounds.never_stale,
        // Only a request that limits the age asks for it.
        is_immutable: asked.max_age.is_some() && is_immutable(head),
    };
    // A lifetime cannot be told below zero: what is left may be less than the age.
    let is_stale = left <= 0;
    let within = |seconds: u32| fresh_until.saturating_add(i64::from(seconds)) >= now;
    match reuse(&stored, asked) {
        Reuse::Serve => Verdict::Fresh,
        // RFC 9111 §5.2.1.4: the client itself wants it validated.
        Reuse::Validate if !is_stale || asked.no_cache => Verdict::Stale(StaleRules::FORBIDDEN),
        Reuse::Validate => Verdict::Stale(StaleRules {
            while_updating: (policy.allows(StaleCause::Updating) || within(head.stale_updating))
                && !asked.refuses_stale(age, age.saturating_sub(stored.lifetime)),
            // §4.2.4: a cache that is cut off from the origin may serve what is not forbidden.
            on_error: !head.bounds.states_on_error || within(head.stale_error),
            on_status: head.bounds.states_on_error && within(head.stale_error),
            is_forbidden: false,
            is_unconfirmed: false,
        }),
        Reuse::ValidateOnly => Verdict::Stale(StaleRules::FORBIDDEN),
    }
}

/// RFC 8246 §2.
fn is_immutable(head: &StoredHead) -> bool {
    let fields = head.fields();
    let control = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-control"));
    CacheControl::parse(control.map(|(_, value)| value)).immutable
}

fn by_nginx(head: &StoredHead, now: i64, policy: &StalePolicy) -> Verdict {
    // nginx: an entry is stale once its time is over, to the second.
    let fresh_until = head.fresh_until(now);
    if now <= fresh_until {
        return Verdict::Fresh;
    }
    let within = |seconds: u32| fresh_until.saturating_add(i64::from(seconds)) >= now;
    Verdict::Stale(StaleRules {
        // RFC 5861 §3: stale-while-revalidate.
        while_updating: policy.allows(StaleCause::Updating) || within(head.stale_updating),
        // RFC 5861 §4: stale-if-error.
        on_error: within(head.stale_error),
        // nginx: stale-if-error is for missing answers; statuses must be configured.
        on_status: false,
        is_forbidden: false,
        is_unconfirmed: false,
    })
}

impl StaleRules {
    /// True when a failure of this cause may be answered with the stale entry.
    pub(crate) fn covers(&self, cause: Option<StaleCause>, policy: &StalePolicy) -> bool {
        let is_allowed = self.on_error || cause.is_some_and(|cause| policy.allows(cause));
        is_allowed && !self.is_forbidden
    }

    /// True when an answer with this status may be replaced by the stale entry.
    pub(crate) fn covers_status(&self, status: u16, policy: &StalePolicy) -> bool {
        // RFC 5861 §4: these statuses are errors.
        let is_error = matches!(status, 500 | 502 | 503 | 504);
        let is_configured = StaleCause::of_status(status).is_some_and(|cause| policy.allows(cause));
        (is_configured || (is_error && self.on_status)) && !self.is_forbidden
    }

    const FORBIDDEN: StaleRules = StaleRules {
        while_updating: false,
        on_error: false,
        on_status: false,
        is_forbidden: true,
        is_unconfirmed: false,
    };

    /// Rules of an entry that a purge may be about which is not known here yet.
    pub(crate) const UNCONFIRMED: StaleRules = StaleRules {
        is_unconfirmed: true,
        ..StaleRules::FORBIDDEN
    };
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
                on_status: false,
                is_forbidden: false,
                is_unconfirmed: false,
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
            assert_eq!(
                verdict(&head, now, &policy, &Rules::Nginx),
                expected,
                "{now}"
            );
        }
    }

    /// RFC 9111 §5.2.1: a reload of a stale entry asks the origin, as that of a fresh one does.
    #[test]
    fn who_refuses_stale_answers_waits_for_the_origin_and_has_them_when_that_fails() {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        (head.stored_at, head.valid_until) = (100, 109);
        (head.stale_updating, head.stale_error) = (60, 60);
        let policy = StalePolicy {
            causes: Flags::empty(),
        };
        for (control, waits) in [
            ("max-age=0", true),
            ("max-age=600", true),
            ("min-fresh=1", true),
            ("max-stale=0", true),
            ("max-stale=4", true),
            ("max-age=14, max-stale=600", true),
            ("max-age=15, max-stale", false),
            ("no-transform", false),
            ("", false),
        ] {
            let asked = RequestRules::parse(&[control.as_bytes()], &[]);
            let Verdict::Stale(rules) = verdict(&head, 115, &policy, &Rules::Rfc9111(asked)) else {
                assert!(control.ends_with("max-stale"), "{control}");
                continue;
            };
            assert_eq!(!rules.while_updating, waits, "{control}");
            assert!(rules.on_error, "{control}");
        }
    }

    /// RFC 9111 §4.2: freshness ends; a clock that was set back does not make it longer.
    #[test]
    fn what_was_stored_in_the_future_is_stale() {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.stored_at = 10_000;
        head.valid_until = 10_100;
        head.stale_updating = 50;
        let policy = StalePolicy {
            causes: Flags::empty(),
        };
        for rules in [Rules::Nginx, Rules::Rfc9111(RequestRules::default())] {
            for (now, is_fresh) in [
                (9_000, false),
                (9_997, false),
                (9_999, true),
                (10_100, true),
            ] {
                let verdict = verdict(&head, now, &policy, &rules);
                assert_eq!(verdict == Verdict::Fresh, is_fresh, "{now}");
                if let Verdict::Stale(rules) = verdict {
                    assert!(!rules.while_updating);
                }
            }
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
        let Verdict::Stale(rules) = verdict(&head, 200, &policy, &Rules::Nginx) else {
            panic!("fresh")
        };
        assert!(rules.while_updating);
        assert!(rules.covers(Some(StaleCause::Http500), &policy));
        assert!(!rules.covers(Some(StaleCause::Http404), &policy));
        assert!(!rules.covers(None, &policy));
    }
}
