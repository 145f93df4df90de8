//! `config` inside of `fleet`: configuration that nodes take from their fleet in steps.
//!
//! It is read twice: before a configuration is built, because the bundle of the fleet is a part of
//! it, and with the block.

use std::time::Duration;

use millpond_conf::value::parse_duration;
use millpond_fleet::config::Steps;

/// The shortest time for which canaries are watched: figures are told every two seconds.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// The longest one (arbitrary).
const WATCH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The line `config on`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLine {
    /// Folder that the node keeps configuration in.
    pub folder: String,
    /// File of public keys.
    pub trusted_key: String,
    /// Steps of orders that are made with it.
    pub steps: Steps,
}

impl ConfigLine {
    /// Reads the words behind `config`; none for `off`.
    pub fn read(words: &[&str]) -> Result<Option<ConfigLine>, String> {
        let parameters = match words {
            ["on", parameters @ ..] => parameters,
            ["off"] => return Ok(None),
            _ => return Err("\"config\" of \"fleet\" must be \"on\" or \"off\"".to_owned()),
        };
        let (mut folder, mut trusted_key) = (None, None);
        let mut steps = Steps::default();
        let mut seen = Vec::new();
        for word in parameters {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let wrong = || format!("invalid parameter \"{word}\" in \"config\"");
            if value.is_empty() || seen.contains(&name) {
                return Err(wrong());
            }
            seen.push(name);
            match name {
                "folder" => folder = Some(value.to_owned()),
                "trusted_key" => trusted_key = Some(value.to_owned()),
                "canary" => steps.canary = percent(value).filter(|it| *it > 0).ok_or_else(wrong)?,
                "more_errors" => steps.more_errors = percent(value).ok_or_else(wrong)?,
                "fewer_hits" => steps.fewer_hits = percent(value).ok_or_else(wrong)?,
                "watch" => {
                    let time = parse_duration(value);
                    let is_possible = |time: &Duration| (WATCH_MIN..=WATCH_MAX).contains(time);
                    steps.watch = time.filter(is_possible).ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        match (folder, trusted_key) {
            (Some(folder), Some(trusted_key)) => Ok(Some(ConfigLine {
                folder,
                trusted_key,
                steps,
            })),
            (None, _) => Err("\"config on\" requires \"folder=\"".to_owned()),
            (_, None) => Err("\"config on\" requires \"trusted_key=\"".to_owned()),
        }
    }
}

/// A percentage with a digit behind the point at most, as thousandths.
pub fn percent(text: &str) -> Option<u16> {
    let number = text.strip_suffix('%')?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || tenths.len() != 1 || !digits(whole) || !digits(tenths) {
        return None;
    }
    let (whole, tenths) = (whole.parse::<u16>().ok()?, tenths.parse::<u16>().ok()?);
    let thousandths = whole.checked_mul(10)?.checked_add(tenths)?;
    Some(thousandths).filter(|it| *it <= 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_say_or_a_mistake() {
        let read = |text: &str| ConfigLine::read(&text.split(' ').collect::<Vec<_>>());
        let line = "on folder=f trusted_key=k canary=5% watch=10m more_errors=0.5% fewer_hits=100%";
        let found = read(line).unwrap().unwrap();
        assert_eq!(
            (found.folder.as_str(), found.trusted_key.as_str()),
            ("f", "k")
        );
        let steps = Steps {
            canary: 50,
            watch: Duration::from_secs(600),
            more_errors: 5,
            fewer_hits: 1000,
        };
        assert_eq!(found.steps, steps);
        assert_eq!(read("off"), Ok(None));
        for text in [
            "",
            "on",
            "yes",
            "off folder=f",
            "on folder=f",
            "on trusted_key=k",
            "on folder= trusted_key=k",
            "on folder=f trusted_key=k folder=g",
            "on folder=f trusted_key=k canary=0%",
            "on folder=f trusted_key=k canary=5",
            "on folder=f trusted_key=k canary=100.1%",
            "on folder=f trusted_key=k canary=5.25%",
            "on folder=f trusted_key=k watch=0",
            "on folder=f trusted_key=k watch=8d",
            "on folder=f trusted_key=k x=1",
            "on folder=f trusted_key=k key=1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
