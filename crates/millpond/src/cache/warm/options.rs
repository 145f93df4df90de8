//! The command line of `millpond cache warm`.
//!
//! The defaults are gentle: fifty requests a second, four at a time, so that an origin that serves
//! users meanwhile hardly notices.

use std::path::PathBuf;
use std::time::Duration;

use millpond_conf::value::parse_duration;
use millpond_gauge::client::Trust;

use crate::cache::options::Format;
use crate::options::OptionError;

/// Requests a second, unless told: a pace that an origin hardly notices.
const RATE: u32 = 50;
/// Requests at a time, unless told.
const USERS: u32 = 4;
/// The longest that an answer may take, unless told: bodies may be large.
const LATE: Duration = Duration::from_secs(300);
/// The most requests at a time (arbitrary: more is a load test).
const USERS_MAX: u32 = 1000;

const NUMBER: &str = "write a number from 1 on";
const TIME: &str = "write a time such as 90s or 10m";
const FIELD: &str = "write a field such as 'Accept-Encoding: gzip'";
const NOTHING: &str = "a list is needed: a file, - for the standard input, or --sitemap URL";

/// The arguments.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// File with the URLs; `-` is the standard input.
    pub(super) list: Option<String>,
    pub(super) sitemaps: Vec<String>,
    /// Scheme of URLs that have none.
    pub(super) scheme: &'static str,
    /// Host and port that all connections lead to.
    pub(super) to: Option<String>,
    /// Requests a second, and at a time.
    pub(super) rate: u32,
    pub(super) users: u32,
    pub(super) late: Duration,
    pub(super) resume: Option<PathBuf>,
    /// Field lines of each request.
    pub(super) fields: Vec<String>,
    pub(super) trust: Trust,
    pub(super) format: Format,
}

/// Reads the words behind `warm`.
pub(super) fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, OptionError> {
    let mut options = Options {
        list: None,
        sitemaps: Vec::new(),
        scheme: "http",
        to: None,
        rate: RATE,
        users: USERS,
        late: LATE,
        resume: None,
        fields: Vec::new(),
        trust: Trust::System,
        format: Format::Text,
    };
    while let Some(word) = words.next() {
        options.apply(word, &mut words)?;
    }
    if options.list.is_none() && options.sitemaps.is_empty() {
        return Err(OptionError::Nothing(NOTHING));
    }
    Ok(options)
}

impl Options {
    fn apply(
        &mut self,
        option: String,
        words: &mut impl Iterator<Item = String>,
    ) -> Result<(), OptionError> {
        let mut value = || words.next().ok_or(OptionError::Missing(option.clone()));
        match option.as_str() {
            "--sitemap" => self.sitemaps.push(value()?),
            "--https" => self.scheme = "https",
            "--to" => self.to = Some(value()?),
            "--rate" => self.rate = number(&option, value()?, u32::MAX)?,
            "--users" => self.users = number(&option, value()?, USERS_MAX)?,
            "--late" => {
                let text = value()?;
                let time = parse_duration(&text).filter(|time| !time.is_zero());
                self.late = time.ok_or_else(|| wrong(&option, text, TIME))?;
            }
            "--resume" => self.resume = Some(PathBuf::from(value()?)),
            "-H" => {
                let text = value()?;
                let is_line = !text.contains(['\r', '\n']) && !text.starts_with([':', ' ']);
                if !is_line || !text.contains(':') {
                    return Err(wrong(&option, text, FIELD));
                }
                self.fields.push(text);
            }
            "--ca" => self.trust = Trust::File(PathBuf::from(value()?)),
            "--insecure" => self.trust = Trust::Anyone,
            "--json" => self.format = Format::Json,
            "-" => self.list = Some(option),
            _ if !option.starts_with('-') && self.list.is_none() => self.list = Some(option),
            _ => return Err(OptionError::Invalid(option)),
        }
        Ok(())
    }
}

fn number(option: &str, text: String, most: u32) -> Result<u32, OptionError> {
    let number = text.parse().ok().filter(|it| (1..=most).contains(it));
    number.ok_or_else(|| wrong(option, text, NUMBER))
}

fn wrong(option: &str, value: String, expected: &'static str) -> OptionError {
    OptionError::Value {
        option: option.to_owned(),
        value,
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, OptionError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_list_or_a_sitemap_is_needed() {
        assert!(read("").is_err());
        assert_eq!(read("urls").unwrap().list.as_deref(), Some("urls"));
        assert_eq!(read("-").unwrap().list.as_deref(), Some("-"));
        assert_eq!(read("--sitemap http://a/").unwrap().list, None);
        assert!(read("one two").is_err());
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for line in [
            "- --rate 0",
            "- --users 0",
            "- --users 1001",
            "- --late 0",
            "- --late soon",
            "- -H x",
            "- -H :x",
            "- --rate",
            "- --what",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
        let options = read("- --rate 7 --users 2 --late 1m --to a:80").unwrap();
        assert_eq!((options.rate, options.users), (7, 2));
        assert_eq!(options.late, Duration::from_secs(60));
    }
}
