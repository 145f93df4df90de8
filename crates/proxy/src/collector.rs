//! `otel_exporter`, and inside of it `endpoint` and the others; `otel_service_name`,
//! `otel_resource_attr`: the collector that spans are sent to.
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
//! Reading starts nothing: the exporter's thread begins with the first span, and ends when the last
//! request of its configuration has.

use std::sync::Arc;
use std::time::Duration;

use millpond_conf::value::{parse_duration, parse_offset};
use millpond_conf::{Contexts, Statement};
use millpond_otlp::exporter::{Encryption, Way};
use millpond_otlp::{Endpoint, Exporter, Settings};
use millpond_tls::certificate::origin::OriginVerifier;
use millpond_tls::{ClientContext, ClientSettings, Sni};

use crate::otel::policy::HasExporter;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::settings::declared::Declared;
use crate::settings::location::LocationSettings;
use crate::tls::acme::issuer::verifier_of;

/// The rows of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: "otel_exporter",
        contexts: Contexts::HTTP,
        syntax: "{ endpoint address; interval time; batch_size number; batch_count number; \
                 trusted_certificate file; header name value; }",
        is_block: true,
        pass: Pass::First,
        doc: "The OpenTelemetry collector that spans are sent to by OTLP. `endpoint` is `host:port` \
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
              by OTLP over HTTP. One queue, of the size that those of nginx's workers have \
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
];

/// The attribute with the name of the service.
const SERVICE: &str = "service.name";
/// Its value where the configuration says nothing (the specification: the name of the process).
const UNKNOWN_SERVICE: &str = "unknown_service:millpond";
/// Spans of a batch and batches, at most, whatever is configured (arbitrary: bytes are the bound
/// long before).
const SIZE_MAX: u64 = 1 << 24;

/// The lines that were read.
#[derive(Default)]
struct Drafts {
    exporter: Option<Lines>,
    service: Option<String>,
    resource: Vec<(String, String)>,
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
    let body = statement.body.as_deref().unwrap_or_default();
    let mut is_right = true;
    for line in body {
        if let Err(message) = lines.obey(line) {
            is_right = false;
            builder.error(line.span, message);
        }
    }
    if lines.endpoint.is_none() && is_right {
        let message = "\"otel_exporter\" requires \"endpoint\"";
        builder.error(statement.span, message);
    }
    builder.of::<Drafts>().exporter = Some(lines);
}

impl Lines {
    fn obey(&mut self, line: &Statement) -> Result<(), String> {
        let name = line.name.text.as_str();
        if line.body.is_some() {
            return Err(format!("directive \"{name}\" is not terminated by \";\""));
        }
        let args: Vec<&str> = line.args.iter().map(|word| word.text.as_str()).collect();
        let done = match (name, args.as_slice()) {
            ("endpoint", [word]) => {
                let endpoint = Endpoint::parse(word)?;
                set(&mut self.endpoint, Some(endpoint))
            }
            ("interval", [word]) => set(&mut self.interval, parse_duration(word)),
            ("batch_size", [word]) => set(&mut self.batch_size, number(word)),
            ("batch_count", [word]) => set(&mut self.batch_count, number(word)),
            ("trusted_certificate", [word]) => set(&mut self.trusted, Some((*word).to_owned())),
            ("header", [name, value]) => self.add_header(name, value),
            _ if LINES.contains(&name) => {
                return Err(format!(
                    "invalid number of arguments in \"{name}\" directive of \"otel_exporter\""
                ));
            }
            _ => {
                return Err(format!("unknown directive \"{name}\" in \"otel_exporter\""));
            }
        };
        done.map_err(|why| format!("\"{name}\" directive of \"otel_exporter\" {why}"))
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

/// The lines that take a fixed number of arguments.
const LINES: [&str; 6] = [
    "endpoint",
    "interval",
    "batch_size",
    "batch_count",
    "trusted_certificate",
    "header",
];

/// Keeps a value that was not there.
fn set<T>(place: &mut Option<T>, value: Option<T>) -> Result<(), &'static str> {
    if place.is_some() {
        return Err("is duplicate");
    }
    *place = Some(value.ok_or("invalid value")?);
    Ok(())
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

/// Makes the exporter, at the end of the http block.
pub fn settle(builder: &mut Builder, http: &LocationSettings) {
    let drafts: Drafts = builder.take();
    let Some(lines) = drafts.exporter else {
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
            builder.error(
                span.unwrap_or(millpond_conf::Span::NONE),
                format!("otel_exporter: {why}"),
            );
            return;
        }
    };
    builder.of::<Declared>().otel = Some(Arc::new(Exporter::new(Settings {
        way,
        headers: lines.headers.clone(),
        interval: lines.interval.unwrap_or(Duration::from_secs(5)),
        batch_size: lines.batch_size() as usize,
        batch_count: lines.batch_count.unwrap_or(4).min(SIZE_MAX) as usize,
        resource,
    })));
}
