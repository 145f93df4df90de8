//! The form of OTLP: all metrics as points for a collector (`telemetry.rs` sends them).
//!
//! Names and labels are those of the page. An info is a gauge that is always 1.

use bytes::Bytes;
use millpond_exchange::stats::times::{BOUNDS_US, Histogram};
use millpond_otlp::metric::{Labels, Metric as Record, Number as Value, Shape};

use super::facts::Facts;
use super::text::{Number, Samples, seconds};
use super::{Kind, Metric, Names};

/// The points of one metric.
pub(super) struct Points<'a> {
    labels: &'static [&'static str],
    record: &'a mut Record,
}

impl Points<'_> {
    pub(super) fn add(&mut self, values: &[&str], number: Number) {
        let number = match number {
            Number::Whole(count) => Value::Whole(count),
            Number::Real(measure) => Value::Real(measure),
        };
        self.with(values, |record, labels| record.add(labels, number));
    }

    pub(super) fn add_histogram(&mut self, values: &[&str], histogram: &Histogram) {
        let bounds = BOUNDS_US.map(seconds);
        let sum = seconds(histogram.sum_us);
        self.with(values, |record, labels| {
            record.add_buckets(labels, (&bounds, &histogram.buckets), sum);
        });
    }

    pub(super) fn add_summary(&mut self, values: &[&str], (count, sum_us): (u64, u64)) {
        let sum = (count, seconds(sum_us));
        self.with(values, |record, labels| record.add_sum(labels, sum));
    }

    fn with(&mut self, values: &[&str], add: impl FnOnce(&mut Record, Labels<'_>)) {
        let own = self.labels.iter().copied().zip(values.iter().copied());
        let labels: Vec<(&str, &str)> = own.collect();
        add(self.record, &labels);
    }
}

/// All metrics that have points at a time, in microseconds since 1970, encoded.
pub(crate) fn records(facts: &Facts, now_us: i64) -> Vec<Bytes> {
    let started_us = facts.process.started.map(|seconds| (seconds * 1e6) as i64);
    let times = (started_us.unwrap_or(now_us), now_us);
    let metrics = Names::Millpond.metrics().iter();
    metrics
        .filter_map(|metric| record_of(metric, facts, times))
        .collect()
}

fn record_of(metric: &Metric, facts: &Facts, times: (i64, i64)) -> Option<Bytes> {
    let shape = match metric.kind {
        Kind::Counter => Shape::Sum,
        Kind::Gauge | Kind::Info => Shape::Gauge,
        Kind::Histogram => Shape::Histogram,
        Kind::Summary => Shape::Summary,
    };
    let family = metric.name.trim_end_matches("_total");
    let unit = match family.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    };
    let mut record = Record::new(shape, [metric.name, metric.doc, unit], times);
    let points = Points {
        labels: metric.labels,
        record: &mut record,
    };
    (metric.read)(facts, &mut Samples::of_points(points));
    record.finish()
}
