//! Findings of sensors, and how they are told.
//!
//! A line of text has the state, what was found, and behind a bar the values for charts
//! (`name=value[unit];warning;critical`).

use std::process::ExitCode;

use serde::Serialize;

use super::range::Range;

/// State of what is watched, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Warning,
    Critical,
    Unknown,
}

impl State {
    /// The exit status of a plugin.
    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }

    fn word(self) -> &'static str {
        match self {
            State::Ok => "OK",
            State::Warning => "WARNING",
            State::Critical => "CRITICAL",
            State::Unknown => "UNKNOWN",
        }
    }
}

/// Use of a value: whether thresholds are about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Judged,
    Shown,
}

/// A value, for thresholds and charts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    name: String,
    value: f64,
    /// `%`, `s`, `B`, `c` for a counter, or none.
    unit: &'static str,
    usage: Use,
}

impl Value {
    pub(super) fn judged(name: &str, value: f64, unit: &'static str) -> Value {
        Value::new(name, value, (unit, Use::Judged))
    }

    pub(super) fn shown(name: &str, value: f64, unit: &'static str) -> Value {
        Value::new(name, value, (unit, Use::Shown))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn number(&self) -> f64 {
        self.value
    }

    pub(super) fn unit(&self) -> &'static str {
        self.unit
    }

    fn new(name: &str, value: f64, (unit, usage): (&'static str, Use)) -> Value {
        // Quotes and signs of equality would end a name.
        let clean = |c: char| if "'=|".contains(c) { '_' } else { c };
        Value {
            name: name.chars().map(clean).collect(),
            value,
            unit,
            usage,
        }
    }
}

/// A finding: a state, a text, and values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// The state, whatever the thresholds say.
    pub(super) state: State,
    pub(super) text: String,
    pub(super) values: Vec<Value>,
}

impl Finding {
    /// Something that is well unless a value is not.
    pub(super) fn new(text: String, values: Vec<Value>) -> Finding {
        Finding {
            state: State::Ok,
            text,
            values,
        }
    }

    /// The same with a state of its own.
    pub(super) fn in_state(self, state: State) -> Finding {
        Finding { state, ..self }
    }

    pub(super) fn unknown(why: &str) -> Finding {
        Finding::new(why.to_string(), Vec::new()).in_state(State::Unknown)
    }

    /// The finding under thresholds: the worst state counts.
    pub(super) fn judged(self, warning: Option<&Range>, critical: Option<&Range>) -> Judged {
        let passes = |range: Option<&Range>| {
            let judged = self.values.iter().filter(|it| it.usage == Use::Judged);
            range.is_some_and(|range| judged.clone().any(|value| !range.has(value.value)))
        };
        let by_values = if passes(critical) {
            State::Critical
        } else if passes(warning) {
            State::Warning
        } else {
            State::Ok
        };
        let text = |range: Option<&Range>| range.map(|it| it.text().to_string());
        Judged {
            state: self.state.max(by_values),
            warning: text(warning),
            critical: text(critical),
            finding: self,
        }
    }
}

/// A finding with its state.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) state: State,
    warning: Option<String>,
    critical: Option<String>,
    finding: Finding,
}

#[derive(Serialize)]
struct JsonValue<'a> {
    name: &'a str,
    value: f64,
    unit: &'a str,
    warning: Option<&'a str>,
    critical: Option<&'a str>,
}

#[derive(Serialize)]
struct Json<'a> {
    sensor: &'a str,
    state: State,
    text: &'a str,
    values: Vec<JsonValue<'a>>,
}

impl Judged {
    pub(super) fn values(&self) -> &[Value] {
        &self.finding.values
    }

    /// The line of a plugin.
    pub(super) fn line(&self, sensor: &str) -> String {
        // A bar or a new line would end the text.
        let text = self.finding.text.replace('|', "/").replace('\n', "; ");
        let mut out = format!("{} {}: {text}", sensor.to_uppercase(), self.state.word());
        for (index, value) in self.finding.values.iter().enumerate() {
            out.push_str(if index == 0 { " | " } else { " " });
            out.push_str(&self.charted(value));
        }
        out
    }

    fn charted(&self, value: &Value) -> String {
        let (warning, critical) = self.thresholds(value);
        let name = if value.name.contains(' ') {
            format!("'{}'", value.name)
        } else {
            value.name.clone()
        };
        let ranges = match (warning, critical) {
            (None, None) => String::new(),
            (warning, critical) => {
                format!(";{};{}", warning.unwrap_or(""), critical.unwrap_or(""))
            }
        };
        format!("{name}={}{}{ranges}", rounded(value.value), value.unit)
    }

    fn thresholds(&self, value: &Value) -> (Option<&str>, Option<&str>) {
        match value.usage {
            Use::Judged => (self.warning.as_deref(), self.critical.as_deref()),
            Use::Shown => (None, None),
        }
    }

    /// An object of one line.
    pub(super) fn json(&self, sensor: &str) -> String {
        let values = self.finding.values.iter().map(|value| {
            let (warning, critical) = self.thresholds(value);
            JsonValue {
                name: &value.name,
                value: value.value,
                unit: value.unit,
                warning,
                critical,
            }
        });
        let json = Json {
            sensor,
            state: self.state,
            text: &self.finding.text,
            values: values.collect(),
        };
        // Texts and numbers are always written.
        serde_json::to_string(&json).unwrap_or_default()
    }
}

/// A number with six digits behind the point at most.
fn rounded(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        let values = vec![
            Value::judged("hit ratio", 87.5, "%"),
            Value::shown("requests", 100.0, "c"),
        ];
        Finding::new("87.5 % | well".to_string(), values)
    }

    #[test]
    fn the_worst_state_counts() {
        let range = |text| Range::parse(text);
        for (own, warning, critical, expected) in [
            (State::Ok, "80:", "50:", State::Ok),
            (State::Ok, "90:", "50:", State::Warning),
            (State::Ok, "95:", "90:", State::Critical),
            (State::Critical, "80:", "50:", State::Critical),
            (State::Warning, "80:", "90:", State::Critical),
            (State::Unknown, "90:", "90:", State::Unknown),
        ] {
            let (warning, critical) = (range(warning), range(critical));
            let found = finding().in_state(own);
            let judged = found.judged(warning.as_ref(), critical.as_ref());
            assert_eq!(judged.state, expected, "{warning:?} {critical:?}");
        }
    }

    #[test]
    fn line_and_object_have_values_and_ranges() {
        let judged = finding().judged(Range::parse("90:").as_ref(), None);
        assert_eq!(
            judged.line("hit-ratio"),
            "HIT-RATIO WARNING: 87.5 % / well | 'hit ratio'=87.5%;90:; requests=100c"
        );
        assert_eq!(
            judged.json("hit-ratio"),
            "{\"sensor\":\"hit-ratio\",\"state\":\"warning\",\"text\":\"87.5 % | well\",\
             \"values\":[{\"name\":\"hit ratio\",\"value\":87.5,\"unit\":\"%\",\"warning\":\"90:\",\
             \"critical\":null},{\"name\":\"requests\",\"value\":100.0,\"unit\":\"c\",\
             \"warning\":null,\"critical\":null}]}"
        );
        assert_eq!(rounded(0.000_000_4), "0");
        assert_eq!(rounded(1200.0), "1200");
    }
}
