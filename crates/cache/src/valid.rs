//! `proxy_cache_valid`: how long answers are fresh that do not say it themselves.
//!
//! 1. The first line that names the status decides; `any` names every status.
//! 2. A time without statuses is for 200, 301 and 302.
//! 3. `any` is not 425, whose meaning is the request's early data (RFC 8470 §5.2: "not cacheable by
//!    default").

use std::time::Duration;

use millpond_conf::value::{ArgError, Args, FromArgs, parse_duration};

/// Statuses of a time without statuses (nginx).
const USUAL: [u16; 3] = [200, 301, 302];

/// One line: statuses and their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidTime {
    /// Statuses; `None` is `any`.
    pub statuses: Option<Vec<u16>>,
    /// Time for which the answers are fresh; zero means that they are not stored.
    pub time: Duration,
    /// Time after that in which they may be served stale.
    pub stale: Duration,
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
    /// stored only where it is named. `stale` is an extension.
    #[directive(name = "proxy_cache_valid", repeat)]
    pub times: Vec<ValidTime>,
}

impl FromArgs for ValidTime {
    const SYNTAX: &'static str = "[any | code …] time [stale=time]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let (words, stale) = match args.at_least(1)? {
            [words @ .., last] if last.text.starts_with("stale=") => {
                (words, last.text.get("stale=".len()..).unwrap_or_default())
            }
            words => (words, "0"),
        };
        let Some((time, codes)) = words.split_last() else {
            return Err(ArgError::Count);
        };
        let duration = |text: &str| {
            parse_duration(text)
                .ok_or_else(|| ArgError::other(format!("invalid time value \"{text}\"")))
        };
        let (time, stale) = (duration(&time.text)?, duration(stale)?);
        let statuses = match codes {
            [] => Some(USUAL.to_vec()),
            [any] if any.text == "any" => None,
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
    /// The time for a status; `None` when none is configured or it is zero.
    pub fn time_for(&self, status: u16) -> Option<Duration> {
        self.line_for(status).map(|line| line.time)
    }

    /// The line for a status; `None` when there is none, or its time is zero.
    pub(crate) fn line_for(&self, status: u16) -> Option<&ValidTime> {
        let line = self.times.iter().find(|line| match &line.statuses {
            // INVARIANT 3.
            None => status != TOO_EARLY,
            Some(statuses) => statuses.contains(&status),
        })?;
        (!line.time.is_zero()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_has_the_status_counts() {
        let seconds = Duration::from_secs;
        let policy = ValidPolicy {
            times: vec![
                ValidTime {
                    statuses: Some(vec![200, 302]),
                    time: seconds(10),
                    stale: Duration::ZERO,
                },
                ValidTime {
                    statuses: Some(vec![404]),
                    time: seconds(0),
                    stale: Duration::ZERO,
                },
                ValidTime {
                    statuses: None,
                    time: seconds(1),
                    stale: Duration::ZERO,
                },
            ],
        };
        assert_eq!(policy.time_for(200), Some(seconds(10)));
        assert_eq!(policy.time_for(404), None);
        assert_eq!(policy.time_for(500), Some(seconds(1)));
        assert_eq!(policy.time_for(425), None);
        assert_eq!(ValidPolicy { times: vec![] }.time_for(200), None);
    }

    #[test]
    fn too_early_is_kept_only_where_it_is_named() {
        let line = |statuses| ValidTime {
            statuses,
            time: Duration::from_secs(5),
            stale: Duration::ZERO,
        };
        let any = ValidPolicy {
            times: vec![line(None)],
        };
        assert_eq!(any.time_for(425), None);
        let named = ValidPolicy {
            times: vec![line(None), line(Some(vec![425]))],
        };
        assert_eq!(named.time_for(425), Some(Duration::from_secs(5)));
    }
}
