//! The figures of a report by name, for limits and tables.

use super::{Report, ServerUse, Times};
use crate::origin::Counts;

type TimesOf = fn(&Report) -> Option<&Times>;
type OfTimes = fn(&Times) -> f64;
type Plain = fn(&Report) -> Option<f64>;
/// Something with its name.
type Named<T> = (&'static str, T);

/// Times of a report that have figures, by the first part of their names.
const TIMES: &[Named<TimesOf>] = &[
    ("ttfb", |report| Some(&report.ttfb)),
    ("total", |report| Some(&report.total)),
    ("behind", |report| report.behind.as_ref()),
];

/// Their figures, by the second part.
const OF_TIMES: &[Named<OfTimes>] = &[
    ("p50", |times| times.p50 as f64),
    ("p90", |times| times.p90 as f64),
    ("p99", |times| times.p99 as f64),
    ("p99.9", |times| times.p999 as f64),
    ("max", |times| times.max as f64),
    ("mean", |times| times.mean),
];

/// All others.
const PLAIN: &[Named<Plain>] = &[
    ("requests", |report| Some(report.requests as f64)),
    ("rate", |report| Some(a_second(report, report.requests))),
    ("bytes", |report| Some(report.bytes as f64)),
    ("throughput", |report| Some(a_second(report, report.bytes))),
    ("faults", |report| Some(faults(report) as f64)),
    ("hit_ratio", |report| Some(report.hit_ratio())),
    ("origin.requests", |report| origin(report, |it| it.requests)),
    ("origin.bytes", |report| origin(report, |it| it.body_bytes)),
    ("server.cpu_us", |report| server(report, |it| it.cpu_us)),
    ("server.memory", |report| {
        server(report, |it| it.memory as f64)
    }),
    ("server.growth", |report| {
        server(report, |it| it.growth as f64)
    }),
    ("server.disk", |report| server(report, |it| it.disk as f64)),
    ("server.written", |report| {
        server(report, |it| it.written as f64)
    }),
];

/// A figure that reports may have.
#[derive(Clone, Copy)]
pub(super) enum Figure {
    /// A time, in microseconds.
    Time(TimesOf, OfTimes),
    /// A number, or bytes.
    Plain(Plain),
}

impl Figure {
    /// What it is in a report; none if the run has no such figure.
    pub(super) fn of(self, report: &Report) -> Option<f64> {
        match self {
            Self::Time(times, figure) => times(report).map(figure),
            Self::Plain(figure) => figure(report),
        }
    }
}

/// The figure of that name.
pub(super) fn find(name: &str) -> Option<Figure> {
    if let Some(figure) = named(PLAIN, name) {
        return Some(Figure::Plain(figure));
    }
    let (times, figure) = name.split_once('.')?;
    Some(Figure::Time(named(TIMES, times)?, named(OF_TIMES, figure)?))
}

/// All names, for a message.
pub(super) fn names() -> String {
    let of_times: Vec<&str> = OF_TIMES.iter().map(|(name, _)| *name).collect();
    let times = TIMES.iter().flat_map(|(times, _)| {
        of_times
            .iter()
            .map(move |figure| format!("{times}.{figure}"))
    });
    let plain = PLAIN.iter().map(|(name, _)| (*name).to_owned());
    times.chain(plain).collect::<Vec<_>>().join(", ")
}

fn named<T: Copy>(table: &[Named<T>], name: &str) -> Option<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, figure)| *figure)
}

fn a_second(report: &Report, count: u64) -> f64 {
    count as f64 / report.seconds.max(1e-9)
}

fn faults(report: &Report) -> u64 {
    report.faults.values().map(|faults| faults.count).sum()
}

fn origin(report: &Report, figure: fn(&Counts) -> u64) -> Option<f64> {
    report.origin.as_ref().map(|counts| figure(counts) as f64)
}

fn server(report: &Report, figure: fn(&ServerUse) -> f64) -> Option<f64> {
    report.server.as_ref().map(figure)
}
