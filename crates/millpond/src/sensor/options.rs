//! The command line of `millpond sensor`.
//!
//! `-w` and `-c` are those of plugins, so the configuration is named by `--conf`.

use std::path::PathBuf;
use std::time::Duration;

use millpond_conf::value::parse_duration;

use super::range::Range;
use crate::options::{OfProcess, OptionError};

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sensor {
    Process,
    Health,
    Reload,
    HitRatio,
    OriginErrors,
    Latency,
    Peer,
    Zone,
    Disk,
    Space,
    Scrub,
    Certificate,
    Dns,
    Clock,
    Log,
}

impl Sensor {
    const ALL: [(&'static str, Sensor); 15] = [
        ("process", Sensor::Process),
        ("health", Sensor::Health),
        ("reload", Sensor::Reload),
        ("hit-ratio", Sensor::HitRatio),
        ("origin-errors", Sensor::OriginErrors),
        ("latency", Sensor::Latency),
        ("peer", Sensor::Peer),
        ("zone", Sensor::Zone),
        ("disk", Sensor::Disk),
        ("space", Sensor::Space),
        ("scrub", Sensor::Scrub),
        ("certificate", Sensor::Certificate),
        ("dns", Sensor::Dns),
        ("clock", Sensor::Clock),
        ("log", Sensor::Log),
    ];

    pub(super) fn name(self) -> &'static str {
        let found = Sensor::ALL.iter().find(|(_, sensor)| *sensor == self);
        found.map_or("", |(name, _)| name)
    }

    fn named(word: &str) -> Option<Sensor> {
        let found = Sensor::ALL.iter().find(|(name, _)| *name == word);
        found.map(|(_, sensor)| *sensor)
    }
}

/// The longest that anything may take where nothing is said: monitors give up at ten seconds.
const LATE: Duration = Duration::from_secs(8);

/// The arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) sensor: Sensor,
    pub(super) process: OfProcess,
    pub(super) socket: Option<PathBuf>,
    pub(super) warning: Option<Range>,
    pub(super) critical: Option<Range>,
    pub(super) json: bool,
    /// The longest time that an answer may take.
    pub(super) late: Duration,
    /// The time over which is counted; since the start of the process without it.
    pub(super) over: Option<Duration>,
    pub(super) url: Option<String>,
    /// Fields of the request, as lines.
    pub(super) fields: Vec<String>,
    /// True if certificates are not verified.
    pub(super) insecure: bool,
    /// File of authorities, in place of the system's.
    pub(super) authorities: Option<PathBuf>,
    pub(super) zone: Option<String>,
    pub(super) upstream: Option<String>,
    /// Names to be looked up.
    pub(super) names: Vec<String>,
    /// The time server.
    pub(super) server: Option<String>,
    /// The log.
    pub(super) file: Option<PathBuf>,
    /// Pattern of lines.
    pub(super) pattern: Option<String>,
    /// URL that findings are sent to.
    pub(super) push: Option<String>,
    /// Fields of that, as lines.
    pub(super) push_fields: Vec<String>,
}

/// Reads the words behind `sensor`.
pub(super) fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, OptionError> {
    let name = words.next().unwrap_or_default();
    let sensor = Sensor::named(&name).ok_or(OptionError::Nothing("a sensor must be named"))?;
    let mut options = Options {
        sensor,
        process: OfProcess::default(),
        socket: None,
        warning: None,
        critical: None,
        json: false,
        late: LATE,
        over: None,
        url: None,
        fields: Vec::new(),
        insecure: false,
        authorities: None,
        zone: None,
        upstream: None,
        names: Vec::new(),
        server: None,
        file: None,
        pattern: None,
        push: None,
        push_fields: Vec::new(),
    };
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or(OptionError::Missing(option.clone()));
        options.apply(&option, &mut value)?;
    }
    options.check()?;
    Ok(options)
}

/// A value of an option.
type NextValue<'a> = &'a mut dyn FnMut() -> Result<String, OptionError>;

impl Options {
    fn apply(&mut self, option: &str, value: NextValue<'_>) -> Result<(), OptionError> {
        match option {
            "-w" | "--warning" => self.warning = Some(range(option, value()?)?),
            "-c" | "--critical" => self.critical = Some(range(option, value()?)?),
            "-t" | "--timeout" => self.late = time(option, value()?)?,
            "--json" => self.json = true,
            "--conf" => self.process.file = Some(value()?),
            "--socket" => self.socket = Some(value()?.into()),
            "--push" => self.push = Some(value()?),
            "--push-header" => self.push_fields.push(value()?),
            "--insecure" => self.insecure = true,
            "--ca" => self.authorities = Some(value()?.into()),
            _ if self.apply_own(option, value)? => {}
            _ if self.process.apply(option, value)? => {}
            other => return Err(OptionError::Invalid(other.to_string())),
        }
        Ok(())
    }

    /// Takes an option that only some sensors have; false for any other.
    fn apply_own(&mut self, option: &str, value: NextValue<'_>) -> Result<bool, OptionError> {
        use Sensor::{Clock, Disk, Dns, HitRatio, Latency, Log, OriginErrors, Peer, Scrub, Space};
        match (option, self.sensor) {
            ("--over", HitRatio | OriginErrors | Log) => self.over = Some(time(option, value()?)?),
            ("--url", Latency | Clock) => self.url = Some(value()?),
            ("-H", Latency | Clock) => self.fields.push(value()?),
            ("--zone", Sensor::Zone | Disk | Space | Scrub) => self.zone = Some(value()?),
            ("--upstream", Peer) => self.upstream = Some(value()?),
            ("--name", Dns) => self.names.push(value()?),
            ("--server", Clock) => self.server = Some(value()?),
            ("--file", Log) => self.file = Some(value()?.into()),
            ("--pattern", Log) => {
                let text = value()?;
                let is_pattern = regex::bytes::Regex::new(&text).is_ok();
                let wrong = OptionError::Value {
                    option: option.to_string(),
                    value: text.clone(),
                    expected: "a regular expression",
                };
                self.pattern = Some(is_pattern.then_some(text).ok_or(wrong)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks that there is what a sensor cannot do without.
    fn check(&self) -> Result<(), OptionError> {
        let missing = match self.sensor {
            Sensor::Latency if self.url.is_none() => "\"latency\" needs --url",
            Sensor::Clock if self.url.is_none() && self.server.is_none() => {
                "\"clock\" needs --server or --url"
            }
            Sensor::Log if self.file.is_none() || self.pattern.is_none() => {
                "\"log\" needs --file and --pattern"
            }
            _ => return Ok(()),
        };
        Err(OptionError::Nothing(missing))
    }
}

fn range(option: &str, value: String) -> Result<Range, OptionError> {
    Range::parse(&value).ok_or_else(|| OptionError::Value {
        option: option.to_string(),
        value,
        expected: "a range such as 10, 10:, ~:10, 10:20 or @10:20",
    })
}

fn time(option: &str, value: String) -> Result<Duration, OptionError> {
    let found = parse_duration(&value).filter(|time| !time.is_zero());
    found.ok_or_else(|| OptionError::Value {
        option: option.to_string(),
        value,
        expected: "a time such as 10s",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options, String> {
        let words = text.split_whitespace().map(str::to_string);
        parse(words).map_err(|error| error.to_string())
    }

    #[test]
    fn options_belong_to_their_sensors() {
        let options = parsed("hit-ratio -w 80: -c 50: --over 10s --json --conf x.conf").unwrap();
        assert_eq!(options.warning, Range::parse("80:"));
        assert_eq!(options.over, Some(Duration::from_secs(10)));
        assert_eq!(options.process.file.as_deref(), Some("x.conf"));
        for (text, message) in [
            ("", "a sensor must be named"),
            ("temperature", "a sensor must be named"),
            ("latency", "\"latency\" needs --url"),
            ("clock", "\"clock\" needs --server or --url"),
            ("log --file x", "\"log\" needs --file and --pattern"),
            ("disk --over 10s", "invalid option: \"--over\""),
            ("dns --upstream x", "invalid option: \"--upstream\""),
            ("disk -w", "option \"-w\" requires a value"),
        ] {
            assert_eq!(parsed(text).unwrap_err(), message, "{text}");
        }
        assert!(
            parsed("log --file x --pattern (")
                .unwrap_err()
                .contains("regular")
        );
        assert!(parsed("disk -w 1:x").unwrap_err().contains("a range"));
    }

    #[test]
    fn every_sensor_has_its_name() {
        for (name, sensor) in Sensor::ALL {
            assert_eq!((sensor.name(), Sensor::named(name)), (name, Some(sensor)));
        }
    }
}
