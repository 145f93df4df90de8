//! `proxy_cache_valid`: how long answers are fresh that do not say it themselves.
//!
//! 1. The first line that names the status decides; `any` names every status.
//! 2. A time without statuses is for 200, 301 and 302.
//! 3. `any` is not 425, whose meaning is the request's early data (RFC 8470 §5.2: "not cacheable by
//!    default").
//! 4. A time with variables is read when an answer is judged; a line whose time is empty then is as
//!    if it did not stand there.

use std::borrow::Cow;
use std::time::Duration;

use millpond_conf::Template;
use millpond_conf::value::{ArgError, Args, FromArgs, parse_duration};

/// Statuses of a time without statuses (nginx).
const USUAL: [u16; 3] = [200, 301, 302];

/// One line: statuses and their time.
#[derive(Clone, Debug)]
pub struct ValidTime {
    /// Statuses; `None` is `any`.
    pub statuses: Option<Vec<u16>>,
    /// Time for which the answers are fresh; zero means that they are not stored.
    pub time: LineTime,
    /// Time after that in which they may be served stale.
    pub stale: LineTime,
}

/// A time of a line.
#[derive(Clone, Debug)]
pub enum LineTime {
    /// The time of every answer.
    Fixed(Duration),
    /// The text of the time of each answer.
    Told(Template),
}

/// Times of an answer, by its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTimes {
    /// Time for which it is fresh; more than zero.
    pub(crate) time: Duration,
    /// Time after that in which it may be served stale.
    pub(crate) stale: Duration,
}

/// Too Early (RFC 8470 §5.2).
const TOO_EARLY: u16 = 425;

/// Times of freshness by status.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct ValidPolicy {
    /// Sets how long answers of these statuses are fresh; without statuses: 200, 301 and 302; `any`
    /// is every status but 425. Fields of the answer that say how long are stronger. With `stale`
    /// such answers may be served for this time longer: while they are updated, and when the
    /// upstream fails, as if they said stale-while-revalidate and stale-if-error.
    ///
    /// # Differs from nginx
    ///
    /// `any` is 425 as well there; a 425 is about the early data of one request (RFC 8470), and is
    /// stored only where it is named. `stale` is an extension, and so are variables in both times:
    /// they are read once the answer's head has come, so that `$upstream_http_…` and a `map` of it
    /// may say how long. A line whose time is empty then does not count, nor does one whose time
    /// cannot be read, which the error log tells.
    #[directive(name = "proxy_cache_valid", repeat)]
    pub times: Vec<ValidTime>,
}

impl FromArgs for ValidTime {
    const SYNTAX: &'static str = "[any | code …] time [stale=time]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let last = words.len() - 1;
        let (time_at, stale) = match args.after(last, "stale=") {
            Some(stale) if last > 0 => (last - 1, LineTime::of(stale?)?),
            Some(_) => return Err(ArgError::Count),
            None => (last, LineTime::Fixed(Duration::ZERO)),
        };
        let time = LineTime::of(args.word(time_at)?)?;
        let statuses = match words.get(..time_at).unwrap_or_default() {
            [] => Some(USUAL.to_vec()),
            // nginx: whatever stands beside it.
            codes if codes.iter().any(|code| code.text == "any") => None,
            codes => Some(
                codes
                    .iter()
                    .enumerate()
                    .map(|(at, code)| parse_status(at, &code.text))
                    .collect::<Result<_, _>>()?,
            ),
        };
        Ok(ValidTime {
            statuses,
            time,
            stale,
        })
    }
}

impl LineTime {
    fn of(text: Template) -> Result<LineTime, ArgError> {
        let Some(literal) = text.as_literal() else {
            return Ok(LineTime::Told(text));
        };
        let literal = String::from_utf8_lossy(literal);
        let invalid = || ArgError::other(format!("invalid time value \"{literal}\""));
        parse_duration(&literal)
            .map(LineTime::Fixed)
            .ok_or_else(invalid)
    }

    /// The time, once it is known.
    fn fixed(&self) -> Option<Duration> {
        match self {
            LineTime::Fixed(time) => Some(*time),
            LineTime::Told(_) => None,
        }
    }
}

fn parse_status(at: usize, text: &str) -> Result<u16, ArgError> {
    match text.parse() {
        Ok(status @ 100..=599) => Ok(status),
        _ => Err(ArgError::value(
            at,
            "it must be a status from 100 to 599, or any",
        )),
    }
}

impl ValidPolicy {
    /// True if a time is told by variables.
    pub fn has_told(&self) -> bool {
        let is_told = |time: &LineTime| matches!(time, LineTime::Told(_));
        let mut lines = self.times.iter();
        lines.any(|line| is_told(&line.time) || is_told(&line.stale))
    }

    /// The policy of one answer: with the times that its variables tell.
    pub(crate) fn told(
        &self,
        tell: &mut dyn FnMut(&Template) -> Option<Duration>,
    ) -> Cow<'_, Self> {
        if !self.has_told() {
            return Cow::Borrowed(self);
        }
        let mut tell = |time: &LineTime| match time {
            LineTime::Fixed(time) => Some(*time),
            LineTime::Told(text) => tell(text),
        };
        // INVARIANT 4.
        let lines = self.times.iter().filter_map(|line| {
            Some(ValidTime {
                statuses: line.statuses.clone(),
                time: LineTime::Fixed(tell(&line.time)?),
                stale: LineTime::Fixed(tell(&line.stale).unwrap_or_default()),
            })
        });
        Cow::Owned(ValidPolicy {
            times: lines.collect(),
        })
    }

    /// The times for a status; `None` when there are none, or the first is zero or not known yet.
    pub(crate) fn times_for(&self, status: u16) -> Option<LineTimes> {
        let line = self.times.iter().find(|line| match &line.statuses {
            // INVARIANT 3.
            None => status != TOO_EARLY,
            Some(statuses) => statuses.contains(&status),
        })?;
        let time = line.time.fixed().filter(|time| !time.is_zero())?;
        let stale = line.stale.fixed().unwrap_or_default();
        Some(LineTimes { time, stale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(statuses: Option<&[u16]>, time: LineTime) -> ValidTime {
        ValidTime {
            statuses: statuses.map(<[u16]>::to_vec),
            time,
            stale: LineTime::Fixed(Duration::ZERO),
        }
    }

    fn fixed(statuses: Option<&[u16]>, seconds: u64) -> ValidTime {
        line(statuses, LineTime::Fixed(Duration::from_secs(seconds)))
    }

    fn seconds_for(policy: &ValidPolicy, status: u16) -> Option<u64> {
        policy.times_for(status).map(|line| line.time.as_secs())
    }

    #[test]
    fn the_first_line_that_has_the_status_counts() {
        let policy = ValidPolicy {
            times: vec![
                fixed(Some(&[200, 302]), 10),
                fixed(Some(&[404]), 0),
                fixed(None, 1),
            ],
        };
        assert_eq!(seconds_for(&policy, 200), Some(10));
        assert_eq!(seconds_for(&policy, 404), None);
        assert_eq!(seconds_for(&policy, 500), Some(1));
        assert_eq!(seconds_for(&policy, 425), None);
        assert_eq!(seconds_for(&ValidPolicy { times: vec![] }, 200), None);
    }

    #[test]
    fn too_early_is_kept_only_where_it_is_named() {
        let any = ValidPolicy {
            times: vec![fixed(None, 5)],
        };
        assert_eq!(seconds_for(&any, 425), None);
        let named = ValidPolicy {
            times: vec![fixed(None, 5), fixed(Some(&[425]), 5)],
        };
        assert_eq!(seconds_for(&named, 425), Some(5));
    }

    #[test]
    fn a_line_whose_time_is_not_told_does_not_stand_there() {
        let told = |text| LineTime::Told(Template::literal(text));
        let policy = ValidPolicy {
            times: vec![line(Some(&[200]), told("$ttl")), fixed(None, 7)],
        };
        assert_eq!(seconds_for(&policy, 200), None, "nobody has told it");
        for (time, expected) in [(Some(3), Some(3)), (Some(0), None), (None, Some(7))] {
            let told = policy.told(&mut |_| time.map(Duration::from_secs));
            assert_eq!(seconds_for(&told, 200), expected, "{time:?}");
            assert_eq!(seconds_for(&told, 404), Some(7));
        }
        let plain = ValidPolicy {
            times: vec![fixed(None, 7)],
        };
        let told = plain.told(&mut |_| panic!("there is nothing to be told"));
        assert!(matches!(told, Cow::Borrowed(_)));
    }
}
