//! Signals: the kinds of records that a collector takes, each by a service of its own.
//!
//! | signal | service of gRPC | path of HTTP |
//! |---|---|---|
//! | traces | `trace.v1.TraceService` | `/v1/traces` |
//! | metrics | `metrics.v1.MetricsService` | `/v1/metrics` |
//! | logs | `logs.v1.LogsService` | `/v1/logs` |
//!
//! Their messages differ in the records alone.

use crate::endpoint::{Endpoint, Protocol};

/// A kind of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Lines of logs.
    Logs,
}

/// The end of the path that endpoints of HTTP have.
const OF_TRACES: &str = "/v1/traces";

impl Signal {
    /// All signals, in their order.
    pub const ALL: [Signal; 3] = [Signal::Traces, Signal::Metrics, Signal::Logs];

    /// The name of one of its records.
    pub(crate) fn record(self) -> &'static str {
        match self {
            Signal::Traces => "span",
            Signal::Metrics => "metric",
            Signal::Logs => "line",
        }
    }

    /// The service and the method in gRPC.
    pub(crate) fn grpc_path(self) -> &'static str {
        match self {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    fn http_path(self) -> &'static str {
        match self {
            Signal::Traces => OF_TRACES,
            Signal::Metrics => "/v1/metrics",
            Signal::Logs => "/v1/logs",
        }
    }

    /// The endpoint of this signal at the collector that takes spans at another one; none if the
    /// path of that does not say where the others are.
    #[must_use]
    pub fn endpoint(self, traces: &Endpoint) -> Option<Endpoint> {
        let mut endpoint = traces.clone();
        if let Protocol::Http(path) = &mut endpoint.protocol
            && self != Signal::Traces
        {
            let before = path.strip_suffix(OF_TRACES)?;
            *path = format!("{before}{}", self.http_path());
        }
        Some(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_take_each_signal_at_its_place() {
        for (traces, metrics) in [
            ("a:4317", Some("a:4317")),
            ("http://a/v1/traces", Some("http://a/v1/metrics")),
            (
                "https://a/otlp/v1/traces",
                Some("https://a/otlp/v1/metrics"),
            ),
            ("http://a/", None),
            ("http://a/v1/traces?x", None),
        ] {
            let traces = Endpoint::parse(traces).unwrap();
            let expected = metrics.map(|text| Endpoint::parse(text).unwrap());
            assert_eq!(Signal::Metrics.endpoint(&traces), expected);
            assert_eq!(Signal::Traces.endpoint(&traces), Some(traces));
        }
    }
}
