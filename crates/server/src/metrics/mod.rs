//! Metrics: what monitoring is told of the process, one record for each metric.
//!
//! ```text
//! Facts (all counters, read once) ─► record by record ─┬─► text.rs ─► the whole page
//!                                                     └─► points.rs ─► a collector
//! ```
//!
//! - `own` – the metrics under Millpond's own names
//! - `plus`, `vts` – under the names of nginx-prometheus-exporter and nginx-module-vts, for
//!   dashboards that were made for them
//! - `facts` – reading the counters; `process` – what the kernel knows of the process
//! - `text` – the two formats of pages; `points` – that of OTLP
//!
//! Invariants:
//! 1. The number of series is bounded: by what the configuration names, and by the number of sites
//!    that are asked for; what is above that is summed under one name.
//! 2. No two samples of a page have the same name and labels.
//!
//! `docs/metrics.md` is written from the records.

pub(crate) mod facts;
mod fleet;
mod own;
mod plus;
pub(crate) mod points;
mod process;
pub(crate) mod text;
mod tier;
mod vts;

use facts::Facts;
use text::{Format, Samples};

/// Kind of number that a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number only grows, but for restarts.
    Counter,
    /// The number goes up and down.
    Gauge,
    /// Counts of times by their length.
    Histogram,
    /// A count of times and their sum.
    Summary,
    /// Always 1; the labels say it.
    Info,
}

impl Kind {
    /// Name of the kind in documents.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
            Kind::Info => "info",
        }
    }
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// The name of its samples; for histograms and summaries without the endings of theirs.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// The names of its labels, in the order of the values.
    pub labels: &'static [&'static str],
    /// Meaning of the metric, in a sentence.
    pub doc: &'static str,
    /// Adds its samples.
    pub(crate) read: fn(&Facts, &mut Samples<'_>),
}

/// A line of a table of metrics.
const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    (doc, read): (&'static str, fn(&Facts, &mut Samples<'_>)),
) -> Metric {
    Metric {
        name,
        kind,
        labels,
        doc,
        read,
    }
}

/// Scheme that the names of metrics follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Our own.
    #[default]
    Millpond,
    /// Names of nginx-prometheus-exporter for NGINX Plus.
    NginxPlus,
    /// Names of nginx-module-vts.
    Vts,
}

impl Names {
    /// By the word of the configuration.
    pub fn find(word: &str) -> Option<Names> {
        match word {
            "millpond" => Some(Names::Millpond),
            "nginxplus" => Some(Names::NginxPlus),
            "vts" => Some(Names::Vts),
            _ => None,
        }
    }

    /// Metrics of this scheme.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Names::Millpond => own::METRICS,
            Names::NginxPlus => plus::METRICS,
            Names::Vts => vts::METRICS,
        }
    }
}

/// Sites that have lines of their own where the configuration does not say how many (arbitrary:
/// some twenty lines each, which a small Prometheus takes).
pub(crate) const SITES_DEFAULT: usize = 500;

/// Writes the page.
pub fn render(facts: &Facts, names: Names, format: Format) -> String {
    let mut page = String::new();
    for metric in names.metrics() {
        let mut samples = Samples::new(&mut page, metric, format);
        (metric.read)(facts, &mut samples);
    }
    format.end(&mut page);
    page
}

#[cfg(test)]
mod tests;
