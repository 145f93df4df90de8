//! The two formats: Prometheus text 0.0.4 and OpenMetrics 1.0.
//!
//! | | Prometheus text | OpenMetrics |
//! |---|---|---|
//! | name of a counter's family | with `_total` | without |
//! | kind of an info | gauge | info, its family without `_info` |
//! | unit | none | of names that end in one |
//! | end | none | `# EOF` |
//!
//! Bounds are written as OpenMetrics wants them (`1.0`) in both, so that a server that changes from
//! one format to the other goes on with the same series. A family without samples is left out.

use std::fmt::Write as _;

use millpond_exchange::stats::times::{BOUNDS_US, Histogram};

use super::points::Points;
use super::{Kind, Metric};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Media type of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The one that a client prefers, by its Accept field.
    ///
    /// RFC 9110 §12.5.1. OpenMetrics is for those who name it, in a version that there is.
    pub fn accepted(accept: &[u8]) -> Format {
        let (mut open, mut plain) = (0, 0);
        for range in accept.split(|byte| *byte == b',') {
            let mut words = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = words.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut is_known) = (1000, true);
            for word in words {
                let (name, value) = parameter(word);
                match name.as_slice() {
                    b"q" => quality = thousandths(value),
                    b"version" => is_known = matches!(value, b"1.0.0" | b"1.0" | b"0.0.1"),
                    _ => {}
                }
            }
            match name.as_slice() {
                b"application/openmetrics-text" if is_known => open = quality.max(open),
                b"text/plain" | b"text/*" | b"*/*" => plain = quality.max(plain),
                _ => {}
            }
        }
        if open > 0 && open >= plain {
            Format::OpenMetrics
        } else {
            Format::Prometheus
        }
    }

    /// Ends a page.
    pub(super) fn end(self, page: &mut String) {
        if self == Format::OpenMetrics {
            page.push_str("# EOF\n");
        }
    }
}

fn parameter(word: &[u8]) -> (Vec<u8>, &[u8]) {
    let at = word.iter().position(|byte| *byte == b'=');
    let (name, value) = word.split_at(at.unwrap_or(word.len()));
    let value = value.strip_prefix(b"=").unwrap_or_default();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let value = value.strip_suffix(b"\"").unwrap_or(value);
    (name.trim_ascii().to_ascii_lowercase(), value)
}

/// A quality in thousandths; 0 for what is none.
fn thousandths(text: &[u8]) -> u32 {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let quality: f64 = text.parse().unwrap_or(0.0);
    // A number between 0 and 1000 fits.
    (quality.clamp(0.0, 1.0) * 1000.0) as u32
}

/// A value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    /// A count.
    Whole(u64),
    /// A measure.
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Number::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Number::Real(value)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Number::Whole(u64::from(value))
    }
}

/// The samples of one metric on their way to whoever wants them.
pub(crate) struct Samples<'a>(Form<'a>);

/// The form in which samples are wanted.
enum Form<'a> {
    Page(Page<'a>),
    Points(Points<'a>),
}

/// The lines of a metric in a page.
struct Page<'a> {
    page: &'a mut String,
    metric: &'a Metric,
    format: Format,
    has_head: bool,
}

impl<'a> Samples<'a> {
    /// Samples as lines of a page.
    pub(super) fn new(page: &'a mut String, metric: &'a Metric, format: Format) -> Self {
        Samples(Form::Page(Page {
            page,
            metric,
            format,
            has_head: false,
        }))
    }

    /// Samples as points for a collector.
    pub(super) fn of_points(points: Points<'a>) -> Self {
        Samples(Form::Points(points))
    }

    /// Adds a sample; the values of the labels are in the order of their names.
    pub(crate) fn add(&mut self, values: &[&str], number: impl Into<Number>) {
        match &mut self.0 {
            Form::Page(page) => page.add(values, number.into()),
            Form::Points(points) => points.add(values, number.into()),
        }
    }

    /// Adds the samples of a histogram.
    pub(crate) fn add_histogram(&mut self, values: &[&str], histogram: &Histogram) {
        match &mut self.0 {
            Form::Page(page) => page.add_histogram(values, histogram),
            Form::Points(points) => points.add_histogram(values, histogram),
        }
    }

    /// Adds the samples of a summary: how many times, and their sum in microseconds.
    pub(crate) fn add_summary(&mut self, values: &[&str], times: (u64, u64)) {
        match &mut self.0 {
            Form::Page(page) => page.add_summary(values, times),
            Form::Points(points) => points.add_summary(values, times),
        }
    }
}

impl Page<'_> {
    fn add(&mut self, values: &[&str], number: Number) {
        self.head();
        self.line("", values, None, number);
    }

    fn add_histogram(&mut self, values: &[&str], histogram: &Histogram) {
        self.head();
        let mut count = 0;
        for (place, bucket) in histogram.buckets.iter().enumerate() {
            count += bucket;
            let bound = match BOUNDS_US.get(place) {
                Some(bound) => format!("{:?}", seconds(*bound)),
                None => "+Inf".to_string(),
            };
            self.line("_bucket", values, Some(&bound), count.into());
        }
        self.add_sum(values, (count, histogram.sum_us));
    }

    fn add_summary(&mut self, values: &[&str], times: (u64, u64)) {
        self.head();
        self.add_sum(values, times);
    }

    fn add_sum(&mut self, values: &[&str], (count, sum_us): (u64, u64)) {
        self.line("_sum", values, None, seconds(sum_us).into());
        self.line("_count", values, None, count.into());
    }

    fn head(&mut self) {
        if std::mem::replace(&mut self.has_head, true) {
            return;
        }
        let Metric {
            name, kind, doc, ..
        } = self.metric;
        let is_open = self.format == Format::OpenMetrics;
        let family = match kind {
            Kind::Counter if is_open => name.strip_suffix("_total"),
            Kind::Info if is_open => name.strip_suffix("_info"),
            _ => None,
        };
        let family = family.unwrap_or(name);
        let kind = match kind {
            Kind::Info if !is_open => Kind::Gauge,
            kind => *kind,
        };
        // Writing into a String never fails.
        let _ = writeln!(self.page, "# TYPE {family} {}", kind.name());
        let units = ["seconds", "bytes"];
        let has_unit = |unit: &&str| {
            family
                .strip_suffix(unit)
                .is_some_and(|it| it.ends_with('_'))
        };
        if let Some(unit) = units.into_iter().find(|unit| is_open && has_unit(unit)) {
            let _ = writeln!(self.page, "# UNIT {family} {unit}");
        }
        let _ = writeln!(self.page, "# HELP {family} {doc}");
    }

    fn line(&mut self, ending: &str, values: &[&str], bound: Option<&str>, number: Number) {
        let Metric { name, labels, .. } = self.metric;
        debug_assert_eq!(labels.len(), values.len(), "{name}");
        self.page.push_str(name);
        self.page.push_str(ending);
        let own = labels.iter().copied().zip(values.iter().copied());
        let mut before = '{';
        for (label, value) in own.chain(bound.map(|bound| ("le", bound))) {
            self.page.push(before);
            self.page.push_str(label);
            self.page.push_str("=\"");
            push_escaped(self.page, value);
            self.page.push('"');
            before = ',';
        }
        if before == ',' {
            self.page.push('}');
        }
        // Writing into a String never fails.
        let _ = match number {
            Number::Whole(number) => writeln!(self.page, " {number}"),
            Number::Real(number) => writeln!(self.page, " {number}"),
        };
    }
}

/// Microseconds as seconds.
pub(super) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Both formats escape the same three characters.
fn push_escaped(page: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            character => page.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/html, */*", Format::Prometheus),
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; q=1", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            (
                "application/openmetrics-text;version=2.0.0",
                Format::Prometheus,
            ),
            (
                "application/openmetrics-text;version=\"1.0.0\"",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text;q=0.2,text/plain;q=0.3",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=x,*/*", Format::Prometheus),
            (";;=,,;q", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept.as_bytes()), expected, "{accept}");
        }
    }

    fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str]) -> Metric {
        Metric {
            name,
            kind,
            labels,
            doc: "Some words.",
            read: |_, _| {},
        }
    }

    fn written(metric: &Metric, format: Format, add: impl FnOnce(&mut Samples<'_>)) -> String {
        let mut page = String::new();
        add(&mut Samples::new(&mut page, metric, format));
        format.end(&mut page);
        page
    }

    #[test]
    fn families_are_named_as_each_format_wants_them() {
        let counter = metric("a_bytes_total", Kind::Counter, &["x"]);
        let add = |samples: &mut Samples<'_>| samples.add(&["a\"\\\nb"], 5);
        assert_eq!(
            written(&counter, Format::Prometheus, add),
            "# TYPE a_bytes_total counter\n# HELP a_bytes_total Some words.\n\
             a_bytes_total{x=\"a\\\"\\\\\\nb\"} 5\n"
        );
        assert_eq!(
            written(&counter, Format::OpenMetrics, add),
            "# TYPE a_bytes counter\n# UNIT a_bytes bytes\n# HELP a_bytes Some words.\n\
             a_bytes_total{x=\"a\\\"\\\\\\nb\"} 5\n# EOF\n"
        );
        let info = metric("b_info", Kind::Info, &[]);
        assert_eq!(
            written(&info, Format::OpenMetrics, |samples| samples.add(&[], true)),
            "# TYPE b info\n# HELP b Some words.\nb_info 1\n# EOF\n"
        );
        assert_eq!(written(&info, Format::Prometheus, |_| {}), "");
    }

    #[test]
    fn buckets_are_sums_up_to_their_bound() {
        let metric = metric("t_seconds", Kind::Histogram, &["s"]);
        let mut histogram = Histogram::default();
        histogram.buckets[0] = 2;
        histogram.buckets[12] = 3;
        histogram.buckets[18] = 1;
        histogram.sum_us = 1_500_000;
        let page = written(&metric, Format::Prometheus, |samples| {
            samples.add_histogram(&["x"], &histogram);
        });
        for line in [
            "t_seconds_bucket{s=\"x\",le=\"0.0001\"} 2",
            "t_seconds_bucket{s=\"x\",le=\"0.5\"} 2",
            "t_seconds_bucket{s=\"x\",le=\"1.0\"} 5",
            "t_seconds_bucket{s=\"x\",le=\"60.0\"} 5",
            "t_seconds_bucket{s=\"x\",le=\"+Inf\"} 6",
            "t_seconds_sum{s=\"x\"} 1.5",
            "t_seconds_count{s=\"x\"} 6",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
    }
}
