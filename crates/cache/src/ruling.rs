//! Rulings about answers by the operator's own code: a script, which sees their heads.
//!
//! 1. A ruling stands above the answer's fields and the configuration, and below what an answer may
//!    never be stored for: that it redirects inside the server, is not final, or is for its request
//!    alone.
//! 2. One that keeps an answer out keeps it out, whatever else it says.

use std::time::Duration;

use bytes::Bytes;
use millpond_semantics::vary::Vary;

/// The ruling; what it does not say is left to the fields and the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// True if the answer is not stored.
    pub keeps_out: bool,
    /// The time for which the answer is fresh.
    pub fresh: Option<Duration>,
    /// The time after that in which it may be served stale: while it is updated, and when the
    /// origin fails.
    pub stale: Option<Duration>,
    /// Tags that it can be purged by, besides those of the configuration; each may be several.
    pub tags: Vec<Bytes>,
    /// The fields of requests that its variants differ in, as a Vary names them.
    pub vary: Option<Bytes>,
}

impl Ruling {
    /// A ruling that keeps an answer out.
    pub fn out() -> Ruling {
        Ruling {
            keeps_out: true,
            ..Ruling::default()
        }
    }

    /// True if nothing of the answer would be served.
    pub(crate) fn forbids(&self) -> bool {
        let is_none = |time: Option<Duration>| time.is_none_or(|it| it.as_secs() == 0);
        let is_fresh_never = self.fresh.is_some_and(|it| it.as_secs() == 0);
        self.keeps_out || (is_fresh_never && is_none(self.stale))
    }

    /// The names of the fields that variants differ in; none if there would be too many.
    pub(crate) fn names(&self) -> Option<Option<Bytes>> {
        let vary = self.vary.as_ref()?;
        Some(match Vary::parse([&vary[..]]) {
            Vary::None => Some(Bytes::new()),
            Vary::Names(names) => Some(Bytes::copy_from_slice(&names)),
            Vary::Any | Vary::TooLong => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_nobody_would_be_served_is_kept_out() {
        let told = |fresh, stale| Ruling {
            fresh: Some(Duration::from_secs(fresh)),
            stale: Some(Duration::from_secs(stale)),
            ..Ruling::default()
        };
        assert!(Ruling::out().forbids());
        assert!(told(0, 0).forbids());
        assert!(!told(0, 1).forbids() && !told(1, 0).forbids());
        assert!(!Ruling::default().forbids());
    }

    #[test]
    fn names_of_variants_are_those_of_a_vary() {
        let names = |vary: &'static str| {
            let vary = Some(Bytes::from_static(vary.as_bytes()));
            Ruling {
                vary,
                ..Ruling::default()
            }
            .names()
        };
        let read = names("Accept-Language, X-Device").unwrap().unwrap();
        assert_eq!(read, "Accept-Language, X-Device");
        assert_eq!(names(""), Some(Some(Bytes::new())));
        assert_eq!(names("*"), Some(None));
        assert_eq!(Ruling::default().names(), None);
    }
}
