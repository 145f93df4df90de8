//! `otel_exporter`, and inside of it `endpoint` and the others; `otel_service_name`,
//! `otel_resource_attr`, `otel_metrics`, `otel_logs`: the collector that spans are sent to, and on
//! wish metrics and lines of the error log.
//!
//! | line | default |
//! |---|---|
//! | `endpoint` | none |
//! | `interval` | 5s |
//! | `batch_size` | 512 spans |
//! | `batch_count` | 4 batches for each worker |
//! | `trusted_certificate` | the bundle of the system |
//! | `header` | none |
//!
//! Reading starts nothing: the thread of an exporter begins with the first record, and ends when
//! the last request of its configuration has. Each signal has an exporter of its own, so that lines
//! and metrics never stand before spans.

use std::sync::Arc;
use std::time::Duration;

use millpond_conf::source::Span;
use millpond_conf::value::{Words as _, parse_duration, parse_offset};
use millpond_conf::{Contexts, OffOr, Statement};
use millpond_otlp::exporter::{Encryption, Way};
use millpond_otlp::{Endpoint, Exporter, Settings, Signal};
use millpond_system::log::error::Level;
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::{ClientContext, ClientSettings, Sni};

use crate::otel::policy::HasExporter;
use crate::tls::acme::issuer::verifier_of;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::lines::{self, Line};
use millpond_exchange::settings::declared::{Declared, Telemetry};
use millpond_exchange::settings::location::LocationSettings;

/// The rows of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: "otel_exporter",
        contexts: Contexts::HTTP,
        syntax: "{ endpoint address; interval time; batch_size number; batch_count number; \
                 trusted_certificate file; header name value; }",
        is_block: true,
        pass: Pass::First,
        doc: "The OpenTelemetry collector that spans, and with `otel_metrics` and `otel_logs` more \
              than these, are sent to by OTLP. `endpoint` is `host:port` \
              or `http://host:port` for gRPC, `https://host:port` for gRPC over TLS; the server's \
              certificate is judged by the authorities of `trusted_certificate`, or of the system. \
              Spans go when `batch_size` (512) of them have come together, or `interval` (5s) \
              after the first of them. As many as `batch_count` (4) batches may wait for each \
              worker; what is more is dropped and counted in \
              `millpond_otel_spans_dropped_total`. `header` adds a field to each request to the \
              collector, and may be repeated. A collector that does not answer costs no request \
              anything; the error log tells of it once a minute. At a reload and at the end of the \
              process, what is left is sent, for three seconds at most.\n\n\
              # Differs from nginx\n\n\
              An `endpoint` with a path, such as `http://localhost:4318/v1/traces`, is spoken to \
              by OTLP over HTTP; metrics and lines go to `/v1/metrics` and `/v1/logs` beside it. \
              One queue, of the size that those of nginx's workers have \
              together, serves all workers; it holds 32 MiB at most.",
        apply: exporter,
    },
    Row {
        name: "otel_service_name",
        contexts: Contexts::HTTP,
        syntax: "name",
        is_block: false,
        pass: Pass::First,
        doc: "The `service.name` of this server's spans.\n\n\
              # Differs from nginx\n\n\
              The default is `unknown_service:millpond`.",
        apply: service_name,
    },
    Row {
        name: "otel_resource_attr",
        contexts: Contexts::HTTP,
        syntax: "name value",
        is_block: false,
        pass: Pass::First,
        doc: "An attribute of the resource that all spans come from, which is this server.",
        apply: resource_attribute,
    },
    Row {
        name: "otel_metrics",
        contexts: Contexts::HTTP,
        syntax: "time | off",
        is_block: false,
        pass: Pass::First,
        doc: "Sends all metrics of `metrics` to the collector of `otel_exporter`, each so often (at \
              least once a second apart), and a last time when the process ends. Names and labels \
              are the same as there; counters are sums since the process began. \
              `millpond_otel_records_sent_total` and its like count what became of them.\n\n\
              # Differs from nginx\n\n\
              nginx's module knows spans only.",
        apply: metrics,
    },
    Row {
        name: "otel_logs",
        contexts: Contexts::HTTP,
        syntax: "level | off",
        is_block: false,
        pass: Pass::First,
        doc: "Sends the lines of the error log of a level and of more severe ones to the collector \
              of `otel_exporter`, whatever `error_log` says, with the facts of a request as \
              attributes: `millpond.client`, `millpond.server`, `millpond.request`, \
              `millpond.request_id`, `millpond.site`, `millpond.upstream` and the others that \
              `error_log journald:` has as fields.\n\n\
              # Differs from nginx\n\n\
              nginx's module knows spans only.",
        apply: logs,
    },
];

/// The attribute with the name of the service.
const SERVICE: &str = "service.name";
/// Its value where the configuration says nothing (the specification: the name of the process).
const UNKNOWN_SERVICE: &str = "unknown_service:millpond";
/// The shortest time between two readings of all metrics: they take locks of zones.
const METRICS_MIN: Duration = Duration::from_secs(1);
/// Records of a batch and batches, at most, whatever is configured (arbitrary: bytes are the bound
/// long before).
const SIZE_MAX: u64 = 1 << 24;

/// The lines that were read.
#[derive(Default)]
struct Drafts {
    exporter: Option<Lines>,
    service: Option<String>,
    resource: Vec<(String, String)>,
    metrics: Option<(Span, OffOr<Duration>)>,
    logs: Option<(Span, OffOr<Level>)>,
}

/// The lines of the block.
#[derive(Clone, Default)]
struct Lines {
    endpoint: Option<Endpoint>,
    interval: Option<Duration>,
    batch_size: Option<u64>,
    batch_count: Option<u64>,
    trusted: Option<String>,
    headers: Vec<(String, String)>,
}

fn exporter(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let known = &mut builder.of::<HasExporter>().0;
    if known.replace(statement.span).is_some() {
        builder.error(
            statement.name.span,
            "\"otel_exporter\" directive is duplicate",
        );
        return;
    }
    let mut lines = Lines::default();
    let is_right = lines::read(builder, statement, "otel_exporter", |line| lines.obey(line));
    if lines.endpoint.is_none() && is_right {
        let message = "\"otel_exporter\" requires \"endpoint\"";
        builder.error(statement.span, message);
    }
    builder.of::<Drafts>().exporter = Some(lines);
}

impl Lines {
    fn obey(&mut self, line: &Line<'_>) -> Result<(), String> {
        let count = || line.word().map(number);
        match line.name {
            "endpoint" => {
                let endpoint = Endpoint::parse(line.word()?)?;
                line.keep(&mut self.endpoint, Some(endpoint))
            }
            "interval" => line.keep(&mut self.interval, parse_duration(line.word()?)),
            "batch_size" => line.keep(&mut self.batch_size, count()?),
            "batch_count" => line.keep(&mut self.batch_count, count()?),
            "trusted_certificate" => {
                let file = line.word()?.to_owned();
                line.keep(&mut self.trusted, Some(file))
            }
            "header" => match line.words.as_slice() {
                [name, value] => self.add_header(name, value).map_err(|why| line.wrong(why)),
                _ => Err(line.miscounted()),
            },
            _ => Err(line.unknown()),
        }
    }

    /// nginx: the names are those of gRPC's, which has small letters only.
    fn add_header(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        let name = name.to_ascii_lowercase();
        let is_name_byte =
            |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err("has invalid header name");
        }
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err("has invalid header value");
        }
        self.headers.push((name, value.to_owned()));
        Ok(())
    }

    /// The way to the collector, with the settings of the http block.
    fn way(&self, builder: &mut Builder, http: &LocationSettings) -> Result<Option<Way>, String> {
        // One that is missing was told.
        let Some(endpoint) = self.endpoint.clone() else {
            return Ok(None);
        };
        let encryption = match (endpoint.is_encrypted, &self.trusted) {
            (true, trusted) => {
                let verifier = Arc::new(verifier_of(builder, trusted.as_deref())?);
                let mut settings = ClientSettings::new(Arc::new(OriginVerifier::unverified()));
                settings.sni = Sni::On;
                let context = ClientContext::new(&settings).map_err(|why| why.to_string())?;
                Some(Encryption { context, verifier })
            }
            (false, Some(trusted)) => {
                // nginx: the file is read whether or not it is of use.
                verifier_of(builder, Some(trusted))?;
                None
            }
            (false, None) => None,
        };
        Ok(Some(Way {
            endpoint,
            encryption,
            names: http.resolver.clone(),
        }))
    }

    fn batch_size(&self) -> u64 {
        self.batch_size.unwrap_or(512).min(SIZE_MAX)
    }
}

fn number(word: &str) -> Option<u64> {
    parse_offset(word).filter(|number| *number > 0)
}

fn service_name(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let name = statement.args.first().map(|word| word.text.clone());
    let known = std::mem::replace(&mut builder.of::<Drafts>().service, name);
    if known.is_some() {
        let message = "\"otel_service_name\" directive is duplicate";
        builder.error(statement.name.span, message);
    }
}

fn resource_attribute(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=2) {
        return;
    }
    if let [name, value] = statement.args.as_slice() {
        let resource = &mut builder.of::<Drafts>().resource;
        put(resource, &name.text, &value.text);
    }
}

/// Sets an attribute; the last word counts.
fn put(resource: &mut Vec<(String, String)>, name: &str, value: &str) {
    resource.retain(|(known, _)| known != name);
    resource.push((name.to_owned(), value.to_owned()));
}

fn metrics(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let read = |word: &str| parse_duration(word).filter(|time| *time >= METRICS_MIN);
    let Some(metrics) = off_or(builder, statement, read) else {
        return;
    };
    if builder.of::<Drafts>().metrics.replace(metrics).is_some() {
        refuse_twice(builder, statement);
    }
}

fn logs(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let Some(logs) = off_or(builder, statement, Level::parse) else {
        return;
    };
    if builder.of::<Drafts>().logs.replace(logs).is_some() {
        refuse_twice(builder, statement);
    }
}

/// The place and the value of a line with one word; a mistake is reported.
fn off_or<T>(
    builder: &mut Builder,
    statement: &Statement,
    read: impl FnOnce(&str) -> Option<T>,
) -> Option<(Span, OffOr<T>)> {
    if !builder.has_arguments(statement, 1..=1) {
        return None;
    }
    let word = statement.args.first()?;
    let value = match word.text.as_str() {
        "off" => Some(OffOr::Off),
        text => read(text).map(OffOr::On),
    };
    if value.is_none() {
        let name = &statement.name.text;
        let message = format!("invalid value \"{}\" in \"{name}\" directive", word.text);
        builder.error(word.span, message);
    }
    value.map(|value| (statement.span, value))
}

fn refuse_twice(builder: &mut Builder, statement: &Statement) {
    let message = format!("\"{}\" directive is duplicate", statement.name.text);
    builder.error(statement.name.span, message);
}

/// Makes the exporters, at the end of the http block.
pub fn settle(builder: &mut Builder, http: &LocationSettings) {
    let drafts: Drafts = builder.take();
    let metrics = wanted(drafts.metrics);
    let logs = wanted(drafts.logs);
    let Some(lines) = drafts.exporter else {
        let first = metrics.map(|(span, _)| span).or(logs.map(|(span, _)| span));
        if let Some(span) = first {
            builder.error(span, "\"otel_exporter\" block is missing");
        }
        return;
    };
    let mut resource = drafts.resource;
    match &drafts.service {
        Some(name) => put(&mut resource, SERVICE, name),
        None if resource.iter().any(|(name, _)| name == SERVICE) => {}
        None => put(&mut resource, SERVICE, UNKNOWN_SERVICE),
    }
    let way = match lines.way(builder, http) {
        Ok(Some(way)) => way,
        Ok(None) => return,
        Err(why) => {
            let span = builder.of::<HasExporter>().0;
            builder.error(span.unwrap_or(Span::NONE), format!("otel_exporter: {why}"));
            return;
        }
    };
    let settings = |signal, way| Settings {
        signal,
        way,
        headers: lines.headers.clone(),
        interval: lines.interval.unwrap_or(Duration::from_secs(5)),
        batch_size: lines.batch_size() as usize,
        batch_count: lines.batch_count.unwrap_or(4).min(SIZE_MAX) as usize,
        resource: resource.clone(),
    };
    let mut beside = |signal: Signal, span| {
        let endpoint = signal.endpoint(&way.endpoint);
        if endpoint.is_none() {
            let message = "the path of \"endpoint\" must end in \"/v1/traces\", so that others \
                           beside it are known";
            builder.error(span, message);
        }
        let way = Way {
            endpoint: endpoint?,
            ..way.clone()
        };
        Some(Arc::new(Exporter::new(settings(signal, way))))
    };
    let telemetry = Telemetry {
        metrics: metrics.and_then(|(span, time)| Some((beside(Signal::Metrics, span)?, time))),
        logs: logs.and_then(|(span, level)| Some((beside(Signal::Logs, span)?, level))),
    };
    let declared = builder.of::<Declared>();
    declared.telemetry = telemetry;
    declared.otel = Some(Arc::new(Exporter::new(settings(Signal::Traces, way))));
}

/// The place and the value of a line, unless that is `off`.
fn wanted<T>(line: Option<(Span, OffOr<T>)>) -> Option<(Span, T)> {
    match line {
        Some((span, OffOr::On(value))) => Some((span, value)),
        _ => None,
    }
}
