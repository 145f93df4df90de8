//! A metric with its points, encoded as it is told.
//!
//! | message | field | number |
//! |---|---|---|
//! | `Metric` | `name`, `description`, `unit` | 1, 2, 3 |
//! | | `gauge`, `sum`, `histogram`, `summary` | 5, 7, 9, 11 |
//! | each of these | `data_points` | 1 |
//! | `Sum` | `aggregation_temporality`, `is_monotonic` | 2, 3 |
//! | `Histogram` | `aggregation_temporality` | 2 |
//! | any point | `start_time_unix_nano`, `time_unix_nano` | 2, 3 |
//! | `NumberDataPoint` | `as_double`, `as_int`, `attributes` | 4, 6, 7 |
//! | `HistogramDataPoint` | `count`, `sum`, `bucket_counts`, `explicit_bounds`, `attributes` | 4, 5, 6, 7, 9 |
//! | `SummaryDataPoint` | `count`, `sum`, `attributes` | 4, 5, 7 |
//!
//! Counts are those since the process began (cumulative).

use bytes::Bytes;

use crate::attribute::{self, Value};
use crate::protobuf::{put_bytes, put_fixed64, put_message, put_text, put_varint};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// The shape of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number that goes up and down.
    Gauge,
    /// A number that only grows.
    Sum,
    /// Counts of values by their size.
    Histogram,
    /// A count of values and their sum.
    Summary,
}

impl Shape {
    fn field(self) -> u32 {
        match self {
            Shape::Gauge => 5,
            Shape::Sum => 7,
            Shape::Histogram => 9,
            Shape::Summary => 11,
        }
    }
}

/// The number of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A measure.
    Real(f64),
}

/// Names and values that tell a point from the others of its metric.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A metric that is written.
#[derive(Debug)]
pub struct Metric {
    shape: Shape,
    head: Vec<u8>,
    points: Vec<u8>,
    /// The start of the process and the time of all points, in nanoseconds since 1970.
    times: (u64, u64),
}

impl Metric {
    /// A metric without points, by its name, its meaning and its unit (by UCUM; empty for none),
    /// of a process that began at a time, now, in microseconds since 1970.
    #[must_use]
    pub fn new(shape: Shape, words: [&str; 3], (start_us, now_us): (i64, i64)) -> Self {
        let mut head = Vec::new();
        for (field, word) in (1..).zip(words) {
            if !word.is_empty() {
                put_text(&mut head, field, word.as_bytes());
            }
        }
        let nanos = |us: i64| u64::try_from(us).unwrap_or(0).saturating_mul(1000);
        Metric {
            shape,
            head,
            points: Vec::new(),
            times: (nanos(start_us), nanos(now_us)),
        }
    }

    /// Adds a point with a number, to a gauge or a sum.
    pub fn add(&mut self, labels: Labels<'_>, number: Number) {
        self.point((7, labels), |out| match number {
            Number::Whole(count) => put_fixed64(out, 6, count),
            Number::Real(measure) => put_fixed64(out, 4, measure.to_bits()),
        });
    }

    /// Adds a point with counts between bounds to a histogram: one more than there are bounds, the
    /// last for what is above them.
    pub fn add_buckets(
        &mut self,
        labels: Labels<'_>,
        (bounds, counts): (&[f64], &[u64]),
        sum: f64,
    ) {
        self.point((9, labels), |out| {
            put_fixed64(out, 4, counts.iter().sum());
            put_fixed64(out, 5, sum.to_bits());
            let packed = |numbers: &mut dyn Iterator<Item = u64>| -> Vec<u8> {
                numbers.flat_map(u64::to_le_bytes).collect()
            };
            put_bytes(out, 6, &packed(&mut counts.iter().copied()));
            put_bytes(
                out,
                7,
                &packed(&mut bounds.iter().map(|bound| bound.to_bits())),
            );
        });
    }

    /// Adds a point with a count and a sum to a summary.
    pub fn add_sum(&mut self, labels: Labels<'_>, (count, sum): (u64, f64)) {
        self.point((7, labels), |out| {
            put_fixed64(out, 4, count);
            put_fixed64(out, 5, sum.to_bits());
        });
    }

    fn point(&mut self, (field, labels): (u32, Labels<'_>), value: impl FnOnce(&mut Vec<u8>)) {
        let (start, now) = self.times;
        put_message(&mut self.points, 1, |out| {
            put_fixed64(out, 2, start);
            put_fixed64(out, 3, now);
            value(out);
            for (name, text) in labels {
                attribute::put(out, field, (name, Value::Text(text.as_bytes())));
            }
        });
    }

    /// The bytes of the metric; none if it has no point.
    #[must_use]
    pub fn finish(self) -> Option<Bytes> {
        if self.points.is_empty() {
            return None;
        }
        let mut out = self.head;
        let (shape, points) = (self.shape, self.points);
        put_message(&mut out, shape.field(), |out| {
            out.extend_from_slice(&points);
            if matches!(shape, Shape::Sum | Shape::Histogram) {
                put_varint(out, 2, CUMULATIVE);
            }
            if shape == Shape::Sum {
                put_varint(out, 3, 1);
            }
        });
        Some(Bytes::from(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{Reader, Value as Read};

    fn inner(bytes: &[u8], wanted: u64) -> Vec<u8> {
        let mut fields = Reader(bytes).filter(|(number, _)| *number == wanted);
        match fields.next() {
            Some((_, Read::Bytes(found))) => found.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn points_have_times_numbers_and_labels() {
        let mut metric = Metric::new(Shape::Sum, ["a_total", "All.", ""], (1, 2));
        metric.add(&[("zone", "z")], Number::Whole(7));
        let bytes = metric.finish().unwrap();
        assert_eq!(inner(&bytes, 1), b"a_total");
        let sum = inner(&bytes, 7);
        let flags: Vec<_> = Reader(&sum).skip(1).collect();
        assert_eq!(flags, [(2, Read::Number(2)), (3, Read::Number(1))]);
        let point = inner(&sum, 1);
        let numbers: Vec<_> = Reader(&point).take(3).collect();
        let expected = [(2, 1000), (3, 2000), (6, 7)];
        assert_eq!(
            numbers,
            expected.map(|(field, it)| (field, Read::Number(it)))
        );
        assert_eq!(inner(&inner(&point, 7), 1), b"zone");
    }

    #[test]
    fn histograms_have_one_count_more_than_bounds() {
        let mut metric = Metric::new(Shape::Histogram, ["a_seconds", "", "s"], (0, 0));
        metric.add_buckets(&[], (&[0.5], &[2, 1]), 3.5);
        let point = inner(&inner(&metric.finish().unwrap(), 9), 1);
        let numbers: Vec<_> = Reader(&point).skip(2).take(2).collect();
        let expected = [(4, 3), (5, 3.5_f64.to_bits())];
        assert_eq!(
            numbers,
            expected.map(|(field, it)| (field, Read::Number(it)))
        );
        assert_eq!(
            inner(&point, 6),
            [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(inner(&point, 7), 0.5_f64.to_le_bytes());
    }

    #[test]
    fn metrics_without_points_are_none() {
        assert!(
            Metric::new(Shape::Gauge, ["a", "", ""], (0, 0))
                .finish()
                .is_none()
        );
    }
}
