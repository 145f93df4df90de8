//! The times at which a certificate is ordered, and an authority asked for advice about it.
//!
//! An authority that gives advice (RFC 9773) says when; any moment within its window will do. One
//! that does not is asked for a new certificate after two thirds of its lifetime, or after half of
//! it if that is ten days or less, give or take a fiftieth. What fails is tried again after one,
//! ten and a hundred minutes, and then once a day; after what the authority says, if that is later.
//!
//! Times are seconds since 1970, and are given from outside. The rules are those of nginx's module.

use std::ops::Range;

/// Seconds of a day.
const DAY: i64 = 86_400;
/// Pauses after failures, in seconds; the last one stays.
const PAUSES: [i64; 4] = [60, 600, 6000, DAY];
/// Bounds of the time between two questions for advice, and that time if nothing is said of it.
const ADVICE: Range<i64> = 60..DAY;
const ADVICE_USUAL: i64 = DAY / 2;

/// The longest rest after a renewal, in seconds (arbitrary: no advice is that urgent twice).
const REST_MAX: i64 = 3600;

/// Times of one certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// The time at which it is to be ordered; in the past if there is none.
    order: i64,
    /// The end of the pause after orders that failed.
    pause: i64,
    fails: usize,
    /// The time of the next question for advice; none where nobody gives any.
    advice: Option<i64>,
    advice_fails: usize,
}

/// A random number below 2^64.
pub(crate) type Random = u64;

/// The thing that is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// An order.
    Order,
    /// A question for advice.
    Advice,
    /// Nothing before this time.
    Nothing(i64),
}

impl Timing {
    /// Nothing is there: it is ordered at once.
    pub(crate) const NOTHING: Timing = Timing {
        order: i64::MIN,
        pause: i64::MIN,
        fails: 0,
        advice: None,
        advice_fails: 0,
    };

    /// A certificate is there; advice about it is asked for at once.
    pub(crate) fn held(valid: &Range<i64>, random: Random) -> Timing {
        Timing {
            order: within(&window(valid), random),
            advice: Some(i64::MIN),
            ..Timing::NOTHING
        }
    }

    /// Bounds the haste of renewals: an authority may advise to renew what it has just renewed.
    pub(crate) fn rest(&mut self, valid: &Range<i64>) {
        let lifetime = valid.end.saturating_sub(valid.start).max(0);
        self.pause = valid.start.saturating_add((lifetime / 20).min(REST_MAX));
    }

    /// The thing that is to be done now.
    pub(crate) fn due(&self, now: i64) -> Due {
        let order = self.order.max(self.pause);
        match self.advice {
            // A renewal that is due by the old advice goes before new advice.
            _ if order <= now => Due::Order,
            Some(advice) if advice <= now => Due::Advice,
            Some(advice) => Due::Nothing(order.min(advice)),
            None => Due::Nothing(order),
        }
    }

    /// The time of the next order, as far as it is known.
    pub(crate) fn next_order(&self) -> i64 {
        self.order.max(self.pause)
    }

    /// Notes that an order failed; `until` is the authority's word on when to come again.
    pub(crate) fn order_failed(&mut self, now: i64, until: Option<i64>, random: Random) {
        self.pause = later(now, self.fails, random).max(until.unwrap_or(i64::MIN));
        self.fails += 1;
    }

    /// Forgets failures, since what they came of may have been mended; what the authority has said
    /// cannot be.
    pub(crate) fn forget_failures(&mut self, now: i64, until: Option<i64>) {
        if self.fails > 0 {
            self.fails = 0;
            self.pause = until.unwrap_or(now);
        }
    }

    /// Notes advice, with the time until which it holds, in seconds from now.
    pub(crate) fn advised(
        &mut self,
        now: i64,
        (window, holds): (&Range<i64>, Option<i64>),
        random: Random,
    ) {
        self.order = within(window, random);
        let holds = holds.unwrap_or(ADVICE_USUAL);
        self.advice = Some(now + holds.clamp(ADVICE.start, ADVICE.end));
        self.advice_fails = 0;
    }

    /// Notes that there was no advice to be had.
    pub(crate) fn advice_failed(&mut self, now: i64, random: Random) {
        self.advice = Some(later(now, self.advice_fails, random));
        self.advice_fails += 1;
    }

    /// Notes that nobody gives advice.
    pub(crate) fn no_advice(&mut self) {
        self.advice = None;
    }
}

/// The window in which a certificate is renewed without advice.
fn window(valid: &Range<i64>) -> Range<i64> {
    let lifetime = valid.end.saturating_sub(valid.start).max(0);
    // Let's Encrypt's guide for integrators: short ones are renewed at half of their lifetime.
    let middle = if lifetime > 10 * DAY {
        lifetime / 3 * 2
    } else {
        lifetime / 2
    };
    let around = lifetime / 50;
    valid.start.saturating_add(middle - around)..valid.start.saturating_add(middle + around)
}

/// A moment of a window.
fn within(window: &Range<i64>, random: Random) -> i64 {
    let len = u64::try_from(window.end.saturating_sub(window.start)).unwrap_or(0);
    let at = random.checked_rem(len).unwrap_or(0);
    window.start.saturating_add_unsigned(at)
}

/// The end of a pause after so many failures before this one, give or take a fiftieth.
fn later(now: i64, fails: usize, random: Random) -> i64 {
    let pause = PAUSES.get(fails).copied().unwrap_or(DAY);
    let around = pause / 50;
    now + within(&(pause - around..pause + around), random)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn without_advice_it_is_renewed_after_a_part_of_its_lifetime() {
        for (days, expected) in [(90, 60), (12, 8), (10, 5), (6, 3)] {
            let valid = NOW..NOW + days * DAY;
            let around = days * DAY / 50;
            for random in [0, 7, u64::MAX] {
                let mut timing = Timing::held(&valid, random);
                timing.no_advice();
                let Due::Nothing(at) = timing.due(NOW) else {
                    panic!("{timing:?}");
                };
                let wanted = NOW + expected * DAY;
                assert!((wanted - around..=wanted + around).contains(&at), "{days}");
                assert_eq!(timing.due(at), Due::Order);
            }
        }
    }

    #[test]
    fn nothing_is_ordered_at_once_and_failures_make_pauses() {
        let mut timing = Timing::NOTHING;
        let mut now = NOW;
        assert_eq!(timing.due(now), Due::Order);
        for pause in [60, 600, 6000, DAY, DAY] {
            timing.order_failed(now, None, 1);
            let Due::Nothing(at) = timing.due(now) else {
                panic!("{timing:?}");
            };
            let around = pause / 50;
            assert!((pause - around..=pause + around).contains(&(at - now)));
            now = at;
            assert_eq!(timing.due(now), Due::Order);
        }
    }

    #[test]
    fn the_word_of_the_authority_is_obeyed() {
        let mut timing = Timing::NOTHING;
        timing.order_failed(NOW, Some(NOW + 3600), 1);
        assert_eq!(timing.due(NOW), Due::Nothing(NOW + 3600));
        timing.forget_failures(NOW + 1, Some(NOW + 3600));
        assert_eq!(timing.due(NOW + 1), Due::Nothing(NOW + 3600));
        timing.order_failed(NOW, Some(NOW + 1), 1);
        let Due::Nothing(at) = timing.due(NOW) else {
            panic!("{timing:?}");
        };
        assert!(at > NOW + 50, "a pause is never shorter than it would be");
        timing.forget_failures(NOW + 2, None);
        assert_eq!(timing.due(NOW + 2), Due::Order);
    }

    #[test]
    fn advice_moves_the_renewal() {
        let valid = NOW..NOW + 90 * DAY;
        let mut timing = Timing::held(&valid, 3);
        assert_eq!(timing.due(NOW), Due::Advice);
        let window = NOW + 40 * DAY..NOW + 41 * DAY;
        timing.advised(NOW, (&window, None), 3);
        assert_eq!(timing.due(NOW), Due::Nothing(NOW + ADVICE_USUAL));
        assert!(window.contains(&timing.next_order()));
        let past = NOW - DAY..NOW;
        timing.advised(NOW, (&past, Some(3600)), 3);
        assert_eq!(timing.due(NOW), Due::Order);
        // Renewals that fail make pauses, whatever the advice.
        timing.order_failed(NOW, None, 1);
        timing.advised(NOW, (&past, Some(3600)), 3);
        assert!(matches!(timing.due(NOW), Due::Nothing(at) if at > NOW + 50));
    }

    #[test]
    fn renewals_that_are_advised_at_once_take_a_rest() {
        for (lifetime, rest) in [(90 * DAY, 3600), (20, 1), (0, 0)] {
            let valid = NOW..NOW + lifetime;
            let mut timing = Timing::held(&valid, 0);
            timing.rest(&valid);
            timing.advised(NOW, (&(NOW - 2..NOW - 1), None), 0);
            let expected = if rest == 0 {
                Due::Order
            } else {
                Due::Nothing(NOW + rest)
            };
            assert_eq!(timing.due(NOW), expected);
            assert_eq!(timing.due(NOW + rest), Due::Order);
        }
    }

    #[test]
    fn the_time_between_two_questions_has_bounds() {
        let window = NOW + 40 * DAY..NOW + 41 * DAY;
        for (said, expected) in [(Some(1), 60), (Some(21_600), 21_600), (Some(i64::MAX), DAY)] {
            let mut timing = Timing::held(&(NOW..NOW + 90 * DAY), 0);
            timing.advised(NOW, (&window, said), 0);
            assert_eq!(timing.due(NOW), Due::Nothing(NOW + expected));
        }
        let mut timing = Timing::held(&(NOW..NOW + 90 * DAY), 0);
        timing.advice_failed(NOW, 0);
        assert!(matches!(timing.due(NOW), Due::Nothing(at) if at < NOW + 62));
    }
}
