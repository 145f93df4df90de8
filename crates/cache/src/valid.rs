//! `proxy_cache_valid`: how long answers are fresh that do not say it themselves.
//!
//! 1. The first line that names the status decides; `any` names every status.
//! 2. A time without statuses is for 200, 301 and 302.

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
}

/// Times of freshness by status.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct ValidPolicy {
    /// Sets how long answers of these statuses are fresh; without statuses: 200, 301 and 302; `any`
    /// is every status. Fields of the answer that say how long are stronger.
    #[directive(name = "proxy_cache_valid", repeat)]
    pub times: Vec<ValidTime>,
}

impl FromArgs for ValidTime {
    const SYNTAX: &'static str = "[any | code …] time";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let Some((time, codes)) = words.split_last() else {
            return Err(ArgError::Count);
        };
        let time = parse_duration(&time.text)
            .ok_or_else(|| ArgError::other(format!("invalid time value \"{}\"", time.text)))?;
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
        Ok(ValidTime { statuses, time })
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
        let line = self.times.iter().find(|line| match &line.statuses {
            None => true,
            Some(statuses) => statuses.contains(&status),
        })?;
        (!line.time.is_zero()).then_some(line.time)
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
                },
                ValidTime {
                    statuses: Some(vec![404]),
                    time: seconds(0),
                },
                ValidTime {
                    statuses: None,
                    time: seconds(1),
                },
            ],
        };
        assert_eq!(policy.time_for(200), Some(seconds(10)));
        assert_eq!(policy.time_for(404), None);
        assert_eq!(policy.time_for(500), Some(seconds(1)));
        assert_eq!(ValidPolicy { times: vec![] }.time_for(200), None);
    }
}
