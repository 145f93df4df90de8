//! A report as one page of HTML, charts included: nothing is loaded from elsewhere.
//!
//! Charts are SVG. First and last byte by percentile have a curve for each report (the axis is
//! stretched towards 100 %, times are logarithmic), and so have requests second by second; what the
//! origin sent is a bar for each report.

use std::fmt::Write as _;

use super::{Report, bytes, table};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const MARGIN: f64 = 56.0;
/// Height of a bar and what is below it.
const BAR: f64 = 30.0;
/// Width of the text that stands right of bars.
const BAR_TEXT: f64 = 160.0;
const COLOURS: [&str; 6] = ["#0a7", "#d33", "#36c", "#b80", "#80a", "#555"];

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
svg line { stroke: currentColor; opacity: .2; } pre { overflow-x: auto; }
.facts { border-collapse: collapse; }
.facts th { text-align: left; font-weight: 500; opacity: .7; white-space: nowrap; }
.facts th, .facts td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
.facts td { overflow-wrap: anywhere; }
.name { white-space: nowrap; }
.key { display: inline-block; width: 1em; height: .3em; margin: 0 .4em .2em 1em; }
";

/// Facts that a reader must know about a page's figures.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Description of what was done, in words.
    pub what: String,
    /// Facts with their names: when, with which versions, on what machine, with which parameters.
    pub facts: Vec<(String, String)>,
    /// Summary of all reports together; may be empty.
    pub summary: String,
}

/// One page about reports with their names; what they are about comes first.
pub fn page(about: &About, reports: &[(String, Report)]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut out, about, reports);
    out
}

/// Writes the facts that the figures are about.
fn write_head(out: &mut String, about: &About) -> std::fmt::Result {
    let title = escaped(&about.what);
    write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style><h1>{title}</h1>"
    )?;
    write!(out, "<table class=facts>")?;
    for (name, fact) in &about.facts {
        let (name, fact) = (escaped(name), escaped(fact));
        write!(out, "<tr><th scope=row>{name}</th><td>{fact}</td></tr>")?;
    }
    write!(out, "</table>")?;
    if !about.summary.is_empty() {
        write!(
            out,
            "<h2>In short</h2><pre>{}</pre>",
            escaped(&about.summary)
        )?;
    }
    Ok(())
}

fn write_page(out: &mut String, about: &About, reports: &[(String, Report)]) -> std::fmt::Result {
    write_head(out, about)?;
    write!(out, "<p>Lines and bars have these colours: ")?;
    for (index, (name, _)) in reports.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        write!(
            out,
            "<span class=name><span class=key style=\"background:{colour}\"></span>{}</span> ",
            escaped(name)
        )?;
    }
    type Pick = fn(&Report) -> &[(f64, u64)];
    let curves: [(&str, &str, Pick); 2] = [
        (
            "Time to the first byte",
            "from the request to the first byte of its answer",
            |report| &report.ttfb.curve,
        ),
        (
            "Time to the last byte",
            "from the request to the last byte of its answer",
            |report| &report.total.curve,
        ),
    ];
    for (heading, from, pick) in curves {
        write!(
            out,
            "<h2>{heading}</h2><p>Up: time {from}; each line is ten times the one below. Across: \
             part of the requests that were answered within it. Lower is better; what is far right \
             happens seldom.</p>"
        )?;
        let curves: Vec<_> = reports.iter().map(|(_, report)| pick(report)).collect();
        percentiles(out, &curves)?;
    }
    write!(
        out,
        "<h2>Requests a second</h2><p>Up: answers that ended in each second. Across: seconds since \
         the load began. Higher is better, unless the load has a rate.</p>"
    )?;
    timeline(out, reports)?;
    if reports.iter().any(|(_, report)| report.origin.is_some()) {
        write!(
            out,
            "<h2>Bytes from the origin</h2><p>Bytes of bodies that the origin sent, and how often it \
             was asked: what the cache did not save. Shorter is better.</p>"
        )?;
        from_origin(out, reports)?;
    }
    for (name, report) in reports {
        write!(
            out,
            "<h2>{}</h2><pre>{}</pre>",
            escaped(name),
            escaped(&table(report))
        )?;
    }
    writeln!(out, "</html>")
}

/// Times by percentile, one curve for each.
fn percentiles(out: &mut String, curves: &[&[(f64, u64)]]) -> std::fmt::Result {
    let times = || {
        curves
            .iter()
            .flat_map(|curve| curve.iter().map(|(_, micros)| *micros))
    };
    let log = |micros: u64| (micros.max(1) as f64).log10();
    let low = log(times().min().unwrap_or(1)).floor();
    let high = log(times().max().unwrap_or(10)).ceil().max(low + 1.0);
    let x = |quantile: f64| {
        // As many nines as there are: 0, 90, 99, 99.9, 99.99 % stand at equal distances.
        let nines = -(1.0 - quantile).max(1e-4).log10();
        MARGIN + nines / 4.0 * (WIDTH - 2.0 * MARGIN)
    };
    let y = |micros: f64| {
        let part = (micros - low) / (high - low);
        HEIGHT - MARGIN / 2.0 - part * (HEIGHT - MARGIN)
    };
    begin(out)?;
    for (nines, text) in ["0", "90 %", "99 %", "99.9 %", "99.99 %"]
        .iter()
        .enumerate()
    {
        let at = x(1.0 - 0.1_f64.powi(nines as i32));
        write!(
            out,
            "<line x1={at:.1} x2={at:.1} y1=0 y2={0:.1} /><text x={at:.1} y={1:.1} \
             text-anchor=middle>{text}</text>",
            HEIGHT - MARGIN / 2.0,
            HEIGHT - 8.0
        )?;
    }
    let mut power = low;
    while power <= high {
        let (at, text) = (y(power), super::time(10_f64.powf(power)));
        write!(
            out,
            "<line x1={MARGIN} x2={0:.1} y1={at:.1} y2={at:.1} /><text x=0 y={1:.1}>{text}</text>",
            WIDTH - MARGIN,
            at + 4.0
        )?;
        power += 1.0;
    }
    axes(out, "time", "part of the requests")?;
    for (index, curve) in curves.iter().enumerate() {
        let points = curve
            .iter()
            .map(|(quantile, micros)| (x(*quantile), y(log(*micros))));
        line(out, index, points)?;
    }
    write!(out, "</svg>")
}

/// Requests in each second, one curve for each report.
fn timeline(out: &mut String, reports: &[(String, Report)]) -> std::fmt::Result {
    let seconds = || reports.iter().flat_map(|(_, report)| &report.timeline);
    let most = seconds()
        .map(|second| second.requests)
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let longest = reports
        .iter()
        .map(|(_, report)| report.timeline.len())
        .max();
    let longest = longest.unwrap_or(1).max(2) as f64 - 1.0;
    let x = |second: usize| MARGIN + second as f64 / longest * (WIDTH - 2.0 * MARGIN);
    let y = |count: f64| HEIGHT - MARGIN / 2.0 - count / most * (HEIGHT - MARGIN);
    begin(out)?;
    for part in [0.0, 0.5, 1.0] {
        let (at, count) = (y(part * most), part * most);
        write!(
            out,
            "<line x1={MARGIN} x2={0:.1} y1={at:.1} y2={at:.1} /><text x=0 y={1:.1}>{count:.0}</text>",
            WIDTH - MARGIN,
            at + 4.0
        )?;
    }
    for part in [0.0, 0.5, 1.0] {
        write!(
            out,
            "<text x={:.1} y={:.1} text-anchor=middle>{:.0} s</text>",
            MARGIN + part * (WIDTH - 2.0 * MARGIN),
            HEIGHT - 8.0,
            part * longest
        )?;
    }
    axes(out, "requests a second", "seconds since the load began")?;
    for (index, (_, report)) in reports.iter().enumerate() {
        let seconds = report.timeline.iter().enumerate();
        let mut points: Vec<(f64, f64)> = seconds
            .map(|(at, second)| (x(at), y(second.requests as f64)))
            .collect();
        // A single second is a line, too.
        if let [(at, height)] = points[..] {
            points.push((at + 8.0, height));
        }
        line(out, index, points.into_iter())?;
    }
    write!(out, "</svg>")
}

/// Draws the bytes of bodies that the origin sent and the number of requests to it, one bar for
/// each report.
fn from_origin(out: &mut String, reports: &[(String, Report)]) -> std::fmt::Result {
    let counts = || {
        reports
            .iter()
            .map(|(_, report)| report.origin.unwrap_or_default())
    };
    let most = counts().map(|it| it.body_bytes).max().unwrap_or(0).max(1) as f64;
    let height = BAR * reports.len() as f64;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=img>")?;
    for (index, sent) in counts().enumerate() {
        let (top, colour) = (BAR * index as f64, COLOURS[index % COLOURS.len()]);
        let width = sent.body_bytes as f64 / most * (WIDTH - BAR_TEXT);
        write!(
            out,
            "<rect x=0 y={top:.1} width={width:.1} height={:.1} fill=\"{colour}\" />\
             <text x={:.1} y={:.1}>{}, {} requests</text>",
            BAR - 8.0,
            width + 6.0,
            top + BAR / 2.0,
            bytes(sent.body_bytes as f64),
            sent.requests
        )?;
    }
    write!(out, "</svg>")
}

/// Draws the names of the axes, upwards and across.
fn axes(out: &mut String, up: &str, across: &str) -> std::fmt::Result {
    write!(
        out,
        "<text x=0 y=12>↑ {up}</text>\
         <text x={0:.1} y={1:.1} text-anchor=end>{across} →</text>",
        WIDTH - 4.0,
        HEIGHT - MARGIN / 2.0 - 6.0
    )
}

fn begin(out: &mut String) -> std::fmt::Result {
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img>")
}

fn line(
    out: &mut String,
    index: usize,
    points: impl Iterator<Item = (f64, f64)>,
) -> std::fmt::Result {
    let colour = COLOURS[index % COLOURS.len()];
    write!(
        out,
        "<polyline fill=none stroke-width=2 stroke=\"{colour}\" points=\""
    )?;
    for (x, y) in points {
        write!(out, "{x:.1},{y:.1} ")?;
    }
    write!(out, "\" />")
}

/// Text that means nothing in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
