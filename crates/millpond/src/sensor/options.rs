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
    Zone,
    Disk,
    Certificate,
}

impl Sensor {
    const ALL: [(&'static str, Sensor); 9] = [
        ("process", Sensor::Process),
        ("health", Sensor::Health),
        ("reload", Sensor::Reload),
        ("hit-ratio", Sensor::HitRatio),
        ("origin-errors", Sensor::OriginErrors),
        ("latency", Sensor::Latency),
        ("zone", Sensor::Zone),
        ("disk", Sensor::Disk),
        ("certificate", Sensor::Certificate),
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

/// The arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) sensor: Sensor,
    pub(super) process: OfProcess,
    pub(super) socket: Option<PathBuf>,
    pub(super) warning: Option<Range>,
    pub(super) critical: Option<Range>,
    pub(super) json: bool,
    /// The time over which is counted; since the start of the process without it.
    pub(super) over: Option<Duration>,
    pub(super) url: Option<String>,
    /// Fields of the request, as lines.
    pub(super) fields: Vec<String>,
    pub(super) zone: Option<String>,
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
        over: None,
        url: None,
        fields: Vec::new(),
        zone: None,
    };
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or(OptionError::Missing(option.clone()));
        options.apply(&option, &mut value)?;
    }
    if sensor == Sensor::Latency && options.url.is_none() {
        return Err(OptionError::Nothing("\"latency\" needs --url"));
    }
    Ok(options)
}

impl Options {
    fn apply(
        &mut self,
        option: &str,
        value: &mut dyn FnMut() -> Result<String, OptionError>,
    ) -> Result<(), OptionError> {
        let counts = matches!(self.sensor, Sensor::HitRatio | Sensor::OriginErrors);
        let has_zones = matches!(self.sensor, Sensor::Zone | Sensor::Disk);
        match option {
            "-w" | "--warning" => self.warning = Some(range(option, value()?)?),
            "-c" | "--critical" => self.critical = Some(range(option, value()?)?),
            "--json" => self.json = true,
            "--conf" => self.process.file = Some(value()?),
            "--socket" => self.socket = Some(value()?.into()),
            "--over" if counts => self.over = Some(time(option, value()?)?),
            "--url" if self.sensor == Sensor::Latency => self.url = Some(value()?),
            "-H" if self.sensor == Sensor::Latency => self.fields.push(value()?),
            "--zone" if has_zones => self.zone = Some(value()?),
            _ if self.process.apply(option, value)? => {}
            other => return Err(OptionError::Invalid(other.to_string())),
        }
        Ok(())
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
            ("disk --over 10s", "invalid option: \"--over\""),
            ("disk -w", "option \"-w\" requires a value"),
        ] {
            assert_eq!(parsed(text).unwrap_err(), message, "{text}");
        }
        assert!(parsed("disk -w 1:x").unwrap_err().contains("a range"));
    }

    #[test]
    fn every_sensor_has_its_name() {
        for (name, sensor) in Sensor::ALL {
            assert_eq!((sensor.name(), Sensor::named(name)), (name, Some(sensor)));
        }
    }
}
