//! The figures of a report by name, for limits and tables.

use super::{Report, ServerUse, Times, bytes, time};
use crate::module::{FETCHED, SENT_AHEAD};
use crate::origin::Counts;

type TimesOf = fn(&Report) -> Option<&Times>;
type OfTimes = fn(&Times) -> f64;
type Plain = fn(&Report) -> Option<f64>;
/// Value with its name.
type Named<T> = (&'static str, T);

/// Times of a report that have figures, by the first part of their names.
const TIMES: &[Named<TimesOf>] = &[
    ("ttfb", |report| Some(&report.ttfb)),
    ("total", |report| Some(&report.total)),
    ("behind", |report| report.behind.as_ref()),
    ("cold", |report| report.phases.get("cold")),
    ("again", |report| report.phases.get("again")),
    ("filled", |report| report.phases.get("filled")),
    ("suffix", |report| report.phases.get("suffix")),
    ("first", |report| report.phases.get("first")),
    ("then", |report| report.phases.get("then")),
    ("handshake", |report| report.phases.get("handshake")),
    ("resumption", |report| report.phases.get("resumption")),
];

/// Figures of times, by the second part of their names.
const OF_TIMES: &[Named<OfTimes>] = &[
    ("min", |times| times.min as f64),
    ("p50", |times| times.p50 as f64),
    ("p90", |times| times.p90 as f64),
    ("p95", |times| times.p95 as f64),
    ("p99", |times| times.p99 as f64),
    ("p99.9", |times| times.p999 as f64),
    ("max", |times| times.max as f64),
    ("mean", |times| times.mean),
];

/// Unit that a plain figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Bytes,
    BytesASecond,
    Share,
    Micros,
}

/// All others.
const PLAIN: &[Named<(Unit, Plain)>] = &[
    (
        "requests",
        (Unit::Count, |report| Some(report.requests as f64)),
    ),
    (
        "rate",
        (Unit::Count, |report| {
            Some(a_second(report, report.requests))
        }),
    ),
    ("bytes", (Unit::Bytes, |report| Some(report.bytes as f64))),
    (
        "throughput",
        (Unit::BytesASecond, |report| {
            Some(a_second(report, report.bytes))
        }),
    ),
    (
        "faults",
        (Unit::Count, |report| Some(faults(report) as f64)),
    ),
    (
        "hit_ratio",
        (Unit::Share, |report| Some(report.hit_ratio())),
    ),
    (
        "connections",
        (Unit::Count, |report| Some(report.connections.opened as f64)),
    ),
    (
        "handshakes.full",
        (Unit::Count, |report| Some(report.connections.full as f64)),
    ),
    (
        "handshakes.resumed",
        (Unit::Count, |report| {
            Some(report.connections.resumed as f64)
        }),
    ),
    (
        "repeated",
        (Unit::Count, |report| {
            Some(report.connections.repeated as f64)
        }),
    ),
    ("fetched", (Unit::Bytes, |report| amount(report, FETCHED))),
    (
        "sent_ahead",
        (Unit::Bytes, |report| amount(report, SENT_AHEAD)),
    ),
    (
        "origin.requests",
        (Unit::Count, |report| origin(report, |it| it.requests)),
    ),
    (
        "origin.bytes",
        (Unit::Bytes, |report| origin(report, |it| it.body_bytes)),
    ),
    (
        "origin.most_asked",
        (Unit::Count, |report| origin(report, |it| it.most_asked)),
    ),
    (
        "origin.most_at_once",
        (Unit::Count, |report| origin(report, |it| it.most_at_once)),
    ),
    (
        "origin.connections",
        (Unit::Count, |report| origin(report, |it| it.connections)),
    ),
    (
        "server.cpu_us",
        (Unit::Micros, |report| server(report, |it| it.cpu_us)),
    ),
    (
        "server.calls",
        (Unit::Count, |report| server(report, |it| it.calls)),
    ),
    (
        "server.memory",
        (Unit::Bytes, |report| server(report, |it| it.memory as f64)),
    ),
    (
        "server.growth",
        (Unit::Bytes, |report| server(report, |it| it.growth as f64)),
    ),
    (
        "server.disk",
        (Unit::Bytes, |report| server(report, |it| it.disk as f64)),
    ),
    (
        "server.written",
        (Unit::Bytes, |report| server(report, |it| it.written as f64)),
    ),
];

/// A figure that reports may have.
#[derive(Clone, Copy)]
pub(super) enum Figure {
    /// A time, in microseconds.
    Time(TimesOf, OfTimes),
    /// Something else.
    Plain(Unit, Plain),
}

impl Figure {
    /// Value of the figure in a report; none if the run has no such figure.
    pub(super) fn of(self, report: &Report) -> Option<f64> {
        match self {
            Self::Time(times, figure) => times(report).map(figure),
            Self::Plain(_, figure) => figure(report),
        }
    }

    /// Amount of the figure as people read it.
    pub(super) fn show(self, amount: f64) -> String {
        match self {
            Self::Time(..) | Self::Plain(Unit::Micros, _) => time(amount),
            Self::Plain(Unit::Count, _) if amount.fract() == 0.0 => format!("{amount:.0}"),
            Self::Plain(Unit::Count, _) => format!("{amount:.1}"),
            Self::Plain(Unit::Bytes, _) => bytes(amount),
            Self::Plain(Unit::BytesASecond, _) => format!("{}/s", bytes(amount)),
            Self::Plain(Unit::Share, _) => format!("{:.1} %", amount * 100.0),
        }
    }
}

/// The figure of that name.
pub(super) fn find(name: &str) -> Option<Figure> {
    if let Some((unit, figure)) = named(PLAIN, name) {
        return Some(Figure::Plain(unit, figure));
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

fn amount(report: &Report, name: &str) -> Option<f64> {
    report.amounts.get(name).map(|amount| *amount as f64)
}

fn origin(report: &Report, figure: fn(&Counts) -> u64) -> Option<f64> {
    report.origin.as_ref().map(|counts| figure(counts) as f64)
}

fn server(report: &Report, figure: fn(&ServerUse) -> f64) -> Option<f64> {
    report.server.as_ref().map(figure)
}
