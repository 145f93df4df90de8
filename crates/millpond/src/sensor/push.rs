//! `--push URL`: findings for a database of time series, by OTLP over HTTP, as JSON.
//!
//! | metric | value | attributes |
//! |---|---|---|
//! | `millpond.sensor.state` | 0 to 3, as the exit status | `sensor` |
//! | `millpond.sensor.NAME.percent`, `.seconds`, `.bytes`, `.count`, `.number` | a value of the sensor NAME | `value` |
//!
//! All are gauges. The resource is the service `millpond` on this host. What is not taken, in whole
//! or in part, is an error.
//!
//! Sources: the specification of OTLP 1.x (OTLP/HTTP, JSON of Protocol Buffers: integers of 64 bits
//! are texts).

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use millpond_system::clock;
use serde_json::{Value as Json, json};

use super::finding::Judged;
use super::http::{Request, exchange};
use super::options::Options;
use crate::url::Url;

/// Path of metrics, where the URL has none.
const PATH: &str = "/v1/metrics";

/// Sends a finding.
pub(super) fn push(judged: &Judged, url: &str, options: &Options) -> Result<()> {
    let mut target = Url::parse(url)?;
    if target.path == "/" {
        target.path = PATH;
    }
    let body = message(options.sensor.name(), judged, clock::now_us()).to_string();
    let mut fields = vec!["Content-Type: application/json".to_string()];
    fields.extend(options.push_fields.iter().cloned());
    let request = Request {
        target,
        fields: &fields,
        body: Some(body.as_bytes()),
    };
    let answer = exchange(&request, options)?;
    let text = String::from_utf8_lossy(answer.body());
    let said = text.trim();
    let is_taken = (200..300).contains(&answer.status);
    ensure!(is_taken, "it answers with {}: {said}", answer.status);
    ensure!(!is_refused_in_part(said), "it took a part: {said}");
    Ok(())
}

/// OTLP: an answer with `rejectedDataPoints` has taken less than it got.
fn is_refused_in_part(said: &str) -> bool {
    let Ok(said) = serde_json::from_str::<Json>(said) else {
        return false;
    };
    let count = &said["partialSuccess"]["rejectedDataPoints"];
    let text = count.as_str().map(str::to_string);
    text.unwrap_or_else(|| count.to_string())
        .parse()
        .is_ok_and(|count: u64| count > 0)
}

fn message(sensor: &str, judged: &Judged, now_us: i64) -> Json {
    let nanos = format!("{now_us}000");
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let point = |attribute: Json, value: f64| json!({"attributes": [attribute], "timeUnixNano": nanos, "asDouble": value});
    let mut metrics = vec![json!({
        "name": "millpond.sensor.state",
        "description": "0: ok, 1: warning, 2: critical, 3: unknown",
        "unit": "1",
        "gauge": {"dataPoints": [point(text("sensor", sensor), f64::from(judged.state as u8))]},
    })];
    let mut by_unit: BTreeMap<&str, Vec<Json>> = BTreeMap::new();
    for value in judged.values() {
        let point = point(text("value", value.name()), value.number());
        by_unit.entry(value.unit()).or_default().push(point);
    }
    let name = sensor.replace('-', "_");
    metrics.extend(by_unit.into_iter().map(|(unit, points)| {
        let (suffix, unit) = suffix_and_unit(unit);
        json!({
            "name": format!("millpond.sensor.{name}.{suffix}"),
            "unit": unit,
            "gauge": {"dataPoints": points},
        })
    }));
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let version = env!("CARGO_PKG_VERSION");
    json!({"resourceMetrics": [{
        "resource": {"attributes": [
            text("service.name", "millpond"),
            text("service.version", version),
            text("host.name", &host),
        ]},
        "scopeMetrics": [{
            "scope": {"name": "millpond.sensor", "version": version},
            "metrics": metrics,
        }],
    }]})
}

/// The end of a metric's name, and the unit by UCUM.
fn suffix_and_unit(unit: &str) -> (&'static str, &'static str) {
    match unit {
        "%" => ("percent", "%"),
        "s" => ("seconds", "s"),
        "B" => ("bytes", "By"),
        "c" => ("count", "1"),
        _ => ("number", "1"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Finding, Value};
    use super::*;

    #[test]
    fn values_are_gauges_by_unit() {
        let values = vec![
            Value::judged("hit_ratio", 87.5, "%"),
            Value::shown("requests", 3.0, "c"),
        ];
        let judged = Finding::new(String::new(), values).judged(None, None);
        let message = message("hit-ratio", &judged, 5);
        let metrics = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        assert_eq!(metrics[0]["gauge"]["dataPoints"][0]["asDouble"], 0.0);
        assert_eq!(metrics[1]["name"], "millpond.sensor.hit_ratio.percent");
        let point = &metrics[1]["gauge"]["dataPoints"][0];
        assert_eq!(point["asDouble"], 87.5);
        assert_eq!(point["timeUnixNano"], "5000");
        assert_eq!(point["attributes"][0]["value"]["stringValue"], "hit_ratio");
        assert_eq!(metrics[2]["name"], "millpond.sensor.hit_ratio.count");
    }

    #[test]
    fn part_that_is_refused_is_seen() {
        for (said, expected) in [
            ("", false),
            ("{}", false),
            ("{\"partialSuccess\":{\"rejectedDataPoints\":\"2\"}}", true),
            ("{\"partialSuccess\":{\"rejectedDataPoints\":2}}", true),
            ("{\"partialSuccess\":{\"rejectedDataPoints\":\"0\"}}", false),
        ] {
            assert_eq!(is_refused_in_part(said), expected, "{said}");
        }
    }
}
