//! The screen: a view drawn into a buffer of letters.
//!
//! ```text
//! who is asked, and whether it answers
//! panes
//! the pane that is chosen
//! keys, or the filter
//! ```
//!
//! 1. What fits is shown, however small the terminal is: columns that matter less go first.
//! 2. Names that clients chose do nothing to a terminal.
//! 3. Without colours nothing is lost: they only repeat what words say.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Row, Sparkline, Table, Widget};

use super::figures::{Figures, StatusFigures, ZoneFigures};
use super::view::{Direction, Mode, Motion, Pane, Sort, View};
use crate::cache::figures::{exact_size, percent, plain, size, time};
use crate::terminal::Role;

/// Width of the figures beside the curve.
const FACTS_WIDTH: u16 = 36;
/// The widest bar.
const BAR_MAX: u16 = 40;

const HELP: [(&str, &str); 9] = [
    ("1-4, Tab, arrows", "choose a pane"),
    ("Up, Down, PgUp, PgDn", "scroll; Home and End, too"),
    ("s", "sort sites by the next column"),
    ("r", "the other way round"),
    (
        "/",
        "show sites and fills whose name has a text in it; Esc shows all",
    ),
    ("p, Space", "pause, and go on"),
    ("?", "this help"),
    ("q, Ctrl-C", "end"),
    ("", "rates are of the time since the look before"),
];

/// Choice of a screen with colours or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    Plain,
    Colours,
}

impl Palette {
    fn style(self, role: Role) -> Style {
        let style = match role {
            Role::Title => return Style::new().add_modifier(Modifier::BOLD),
            Role::Faint => return Style::new().add_modifier(Modifier::DIM),
            Role::Good => Style::new().fg(Color::Green),
            Role::Doubtful => Style::new().fg(Color::Yellow),
            Role::Bad => Style::new().fg(Color::Red),
        };
        match self {
            Palette::Plain => Style::new(),
            Palette::Colours => style,
        }
    }

    fn span(self, role: Role, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(role))
    }
}

/// Draws a view.
pub(super) fn draw(view: &View, palette: Palette, area: Rect, buf: &mut Buffer) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, panes, body, foot] = area.layout(&Layout::vertical(rows));
    head_line(view, palette).render(head, buf);
    pane_line(view, palette).render(panes, buf);
    foot_line(view, palette).render(foot, buf);
    let screen = Screen {
        view,
        palette,
        area: body,
    };
    if view.mode == Mode::Help {
        return screen.help(buf);
    }
    let Some(figures) = &view.figures else {
        return screen.text("waiting for the first answer", buf);
    };
    match view.pane {
        Pane::Overview => screen.overview(figures, buf),
        Pane::Sites => screen.sites(buf),
        Pane::Zones => screen.zones(figures, buf),
        Pane::Fills => screen.fills(figures, buf),
    }
}

fn head_line(view: &View, palette: Palette) -> Line<'static> {
    let mut spans = vec![palette.span(Role::Title, "millpond")];
    if let Some(figures) = &view.figures {
        let pid = figures.pid.map(|pid| format!(", process {pid}"));
        let who = format!(" {}{}", plain(&figures.version), pid.unwrap_or_default());
        spans.push(Span::raw(who));
    }
    if view.motion == Motion::Paused {
        spans.push(palette.span(Role::Doubtful, "  paused"));
    }
    if let Some(why) = &view.lost {
        let text = format!("  no answer: {}", plain(why));
        spans.push(palette.span(Role::Bad, text));
    }
    Line::from(spans)
}

fn pane_line(view: &View, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    for (index, (name, pane)) in Pane::ALL.iter().enumerate() {
        let text = format!(" {} {name} ", index + 1);
        spans.push(if *pane == view.pane {
            Span::styled(text, Style::new().add_modifier(Modifier::REVERSED))
        } else {
            palette.span(Role::Faint, text)
        });
    }
    Line::from(spans)
}

fn foot_line(view: &View, palette: Palette) -> Line<'static> {
    if view.mode == Mode::Filter {
        return Line::from(format!("/{}_", plain(&view.filter)));
    }
    let mut text = "q end  ? help  Tab pane  p pause  / filter".to_string();
    if view.pane == Pane::Sites {
        let sort = Sort::ALL.iter().find(|(_, sort)| *sort == view.sort);
        let name = sort.map_or("", |(name, _)| name);
        let direction = match view.direction {
            Direction::Usual => "",
            Direction::Reverse => " reversed",
        };
        text.push_str(&format!("  s sort: {name}{direction}"));
    }
    if !view.filter.is_empty() {
        text = format!("filter: {}  {text}", plain(&view.filter));
    }
    Line::from(palette.span(Role::Faint, text))
}

struct Screen<'a> {
    view: &'a View,
    palette: Palette,
    area: Rect,
}

impl Screen<'_> {
    fn text(&self, text: &str, buf: &mut Buffer) {
        Paragraph::new(text.to_string()).render(self.area, buf);
    }

    fn help(&self, buf: &mut Buffer) {
        let line = |(keys, what): &(&str, &str)| {
            let keys = self.palette.span(Role::Title, format!("{keys:<21}"));
            Line::from(vec![keys, Span::raw(what.to_string())])
        };
        let lines: Vec<Line<'_>> = HELP.iter().map(line).collect();
        Paragraph::new(lines).render(self.area, buf);
    }

    fn overview(&self, figures: &Figures, buf: &mut Buffer) {
        let used = figures.statuses.iter().filter(|it| it.flow.requests > 0);
        let used: Vec<&StatusFigures> = used.collect();
        let height = u16::try_from(used.len()).unwrap_or(0).max(1);
        let answered = self.answered(figures);
        let lines = u16::try_from(answered.len()).unwrap_or(0);
        let rows = [
            Constraint::Length(7),
            Constraint::Length(lines + 1),
            Constraint::Length(height + 2),
            Constraint::Min(0),
        ];
        let [top, classes, middle, bottom] = self.area.layout(&Layout::vertical(rows));
        Paragraph::new(answered).render(classes, buf);
        let columns = [Constraint::Length(FACTS_WIDTH), Constraint::Min(0)];
        let [facts, curve] = top.layout(&Layout::horizontal(columns));
        Paragraph::new(self.facts(figures)).render(facts, buf);
        self.curve(curve, buf);
        self.statuses(figures, &used).render(middle, buf);
        let width = bottom.width;
        let zones = figures.zones.iter().map(|zone| self.zone_line(zone, width));
        let zones: Vec<Line<'_>> = zones.collect();
        Paragraph::new(zones).render(bottom, buf);
    }

    fn facts(&self, figures: &Figures) -> Vec<Line<'static>> {
        let fact = |label: &str, value: String, more: String| {
            Line::from(vec![
                self.palette.span(Role::Faint, format!("{label:<13}")),
                self.palette.span(Role::Title, format!("{value:>8}")),
                self.palette.span(Role::Faint, more),
            ])
        };
        let in_all = figures
            .hit_ratio_in_all
            .map(|ratio| format!("  {} in all", part(ratio)));
        let ratio = figures.hit_ratio.map_or("-".to_string(), part);
        let fills = figures.fills.as_ref().map(|fills| fills.len().to_string());
        let per_s = || "/s".to_string();
        let (answers, origin) = (&figures.answers, &figures.origin);
        vec![
            fact("requests", rate(answers.requests_per_s), per_s()),
            fact("hit ratio", ratio, in_all.unwrap_or_default()),
            fact("to clients", bytes_rate(answers.bytes_per_s), per_s()),
            fact("from origins", bytes_rate(origin.bytes_per_s), per_s()),
            fact("asked of them", rate(origin.requests_per_s), per_s()),
            fact(
                "fills running",
                fills.unwrap_or("-".to_string()),
                String::new(),
            ),
        ]
    }

    /// Classes of status, and whether origins fail.
    fn answered(&self, figures: &Figures) -> Vec<Line<'static>> {
        let mut spans = vec![
            self.palette
                .span(Role::Faint, format!("{:<13}", "answered")),
        ];
        for class in &figures.classes {
            let is_bad = class.class == "5xx" && class.per_s > 0.0;
            let role = if is_bad { Role::Bad } else { Role::Title };
            spans.push(
                self.palette
                    .span(role, format!("{:>7} ", rate(class.per_s))),
            );
            spans.push(self.palette.span(Role::Faint, format!("{}/s", class.class)));
        }
        let mut lines = vec![Line::from(spans)];
        let ends = figures.exchanges;
        if let Some(ends) = ends.filter(|it| it.failed_per_s + it.refused_per_s > 0.0) {
            let all = ends.answered_per_s + ends.refused_per_s + ends.failed_per_s;
            let text = format!(
                "ORIGINS FAIL {}/s without an answer, {}/s answered 5xx, of {}/s",
                rate(ends.failed_per_s),
                rate(ends.refused_per_s),
                rate(all)
            );
            lines.push(Line::from(self.palette.span(Role::Bad, text)));
        }
        lines
    }

    fn curve(&self, area: Rect, buf: &mut Buffer) {
        let rows = [Constraint::Length(1), Constraint::Length(5)];
        let [title, area] = area.layout(&Layout::vertical(rows));
        let width = usize::from(area.width);
        let newest: Vec<u64> = self
            .view
            .history
            .iter()
            .rev()
            .take(width)
            .copied()
            .collect();
        let most = newest.iter().max().copied().unwrap_or(0);
        let text = format!("requests/s, at most {}", rate(most as f64));
        Line::from(self.palette.span(Role::Faint, text)).render(title, buf);
        Sparkline::default()
            .data(&newest)
            .direction(RenderDirection::RightToLeft)
            .style(self.palette.style(Role::Good))
            .render(area, buf);
    }

    fn statuses(&self, figures: &Figures, used: &[&StatusFigures]) -> Table<'static> {
        let rows = used.iter().map(|it| {
            let share = if figures.answers.requests_per_s > 0.0 {
                part(it.flow.requests_per_s / figures.answers.requests_per_s)
            } else {
                percent(it.flow.requests, figures.answers.requests)
            };
            let name = match it.status.as_str() {
                "-" => "no cache".to_string(),
                status => plain(status),
            };
            Row::new([
                name,
                right(rate(it.flow.requests_per_s), 9),
                right(share, 7),
                right(bytes_rate(it.flow.bytes_per_s), 8),
                right(it.flow.requests.to_string(), 12),
            ])
        });
        let widths = [12, 9, 7, 8, 12].map(Constraint::Length);
        let heading = ["STATUS", "    REQ/S", "  SHARE", " BYTES/S", "     ANSWERS"];
        Table::new(rows, widths).header(Row::new(heading).style(self.palette.style(Role::Title)))
    }

    /// A zone in one line.
    fn zone_line(&self, zone: &ZoneFigures, width: u16) -> Line<'static> {
        let mut spans = vec![
            self.palette
                .span(Role::Title, format!("{:<12} ", plain(&zone.name))),
        ];
        let bar_width = width.saturating_sub(68).min(BAR_MAX);
        if let Some(max) = zone.max_size.filter(|_| bar_width >= 5) {
            spans.push(self.bar(zone.bytes, max, bar_width));
            spans.push(Span::raw(" "));
        }
        let live = format!(", {} live", exact_size(zone.live_bytes));
        spans.push(Span::raw(of_max(zone.bytes, zone.max_size) + &live));
        let broken = zone.disks.iter().filter(|disk| disk.state == "failed");
        match broken.count() {
            0 => {}
            count => {
                let text = format!("  {count} of {} disks failed", zone.disks.len());
                spans.push(self.palette.span(Role::Bad, text));
            }
        }
        Line::from(spans)
    }

    fn bar(&self, bytes: u64, max: u64, width: u16) -> Span<'static> {
        let full = u128::from(bytes.min(max)) * u128::from(width) / u128::from(max.max(1));
        // At most `width`.
        let full = usize::try_from(full).unwrap_or(0);
        let empty = usize::from(width).saturating_sub(full);
        let text = format!("{}{}", "█".repeat(full), "░".repeat(empty));
        self.palette.span(Role::Good, text)
    }

    fn sites(&self, buf: &mut Buffer) {
        let Some(sites) = self.view.sites() else {
            return self.text("this process counts no sites", buf);
        };
        if sites.is_empty() {
            return self.text("no such site", buf);
        }
        let width = self.area.width;
        // INVARIANT 1.
        let (has_held, has_all) = (width >= 72, width >= 84);
        let heading = [
            "SITE",
            "    REQ/S",
            "  HITS",
            " BYTES/S",
            " ORIGIN/S",
            "   HELD",
            "  REQUESTS",
        ];
        let name = width.saturating_sub(9 + 6 + 8 + 9 + 4);
        let name = name.saturating_sub(if has_held { 8 } else { 0 });
        let name = name.saturating_sub(if has_all { 11 } else { 0 }).min(48);
        let mut widths = vec![name, 9, 6, 8, 9];
        widths.extend(has_held.then_some(7));
        widths.extend(has_all.then_some(10));
        let rows = sites.iter().skip(self.view.scrolled).map(|site| {
            let held = site.held.map_or("-".to_string(), |held| size(held.bytes));
            let cells = [
                plain(&site.site),
                right(rate(site.answers.requests_per_s), 9),
                right(site.hit_ratio.map_or("-".to_string(), part), 6),
                right(bytes_rate(site.answers.bytes_per_s), 8),
                right(rate(site.origin.requests_per_s), 9),
                right(held, 7),
                right(site.answers.requests.to_string(), 10),
            ];
            Row::new(cells.into_iter().take(widths.len()))
        });
        let heading = Row::new(heading.into_iter().take(widths.len()));
        let lengths = widths.iter().copied().map(Constraint::Length);
        Table::new(rows, lengths)
            .header(heading.style(self.palette.style(Role::Title)))
            .render(self.area, buf);
    }

    fn zones(&self, figures: &Figures, buf: &mut Buffer) {
        let mut lines = Vec::new();
        for zone in &figures.zones {
            lines.push(self.zone_line(zone, self.area.width));
            let mut line = |text: String| lines.push(Line::from(format!("  {text}")));
            line(format!(
                "{} records, memory {}",
                zone.records,
                of_max(zone.memory_bytes, Some(zone.memory_limit)),
            ));
            let queued = match zone.queued_bytes {
                0 => String::new(),
                bytes => format!(", {} wait", size(bytes)),
            };
            line(format!(
                "written {}/s{queued}, removed {}/s",
                bytes_rate(zone.written_per_s),
                rate(zone.removed_per_s),
            ));
            if zone.troubles > 0 {
                let text = format!("  {} not stored, lost, corrupt or in error", zone.troubles);
                lines.push(Line::from(self.palette.span(Role::Doubtful, text)));
            }
            for disk in &zone.disks {
                let (role, why) = match disk.state.as_str() {
                    "live" => (Role::Good, String::new()),
                    "failed" => (Role::Bad, format!(": {}", plain(&disk.why))),
                    _ => (Role::Doubtful, String::new()),
                };
                let state = format!("{}{why}", plain(&disk.state));
                let held = of_max(disk.bytes, disk.max_size);
                lines.push(Line::from(vec![
                    Span::raw(format!("  disk {} {held} ", plain(&disk.path))),
                    self.palette.span(role, state),
                ]));
            }
        }
        if lines.is_empty() {
            return self.text("this process has no zones", buf);
        }
        let scrolled = self.view.scrolled.min(lines.len().saturating_sub(1));
        let lines: Vec<Line<'_>> = lines.into_iter().skip(scrolled).collect();
        Paragraph::new(lines).render(self.area, buf);
    }

    fn fills(&self, figures: &Figures, buf: &mut Buffer) {
        let Some(fills) = &figures.fills else {
            return self.text("this process does not tell which fills run", buf);
        };
        let mut fills: Vec<_> = fills
            .iter()
            .filter(|it| self.view.is_wanted(&it.key))
            .collect();
        if fills.is_empty() {
            return self.text("no fill runs", buf);
        }
        fills.sort_by(|one, other| (one.since, &one.key).cmp(&(other.since, &other.key)));
        let now = figures.time_ms.div_euclid(1000);
        let rows = fills.into_iter().skip(self.view.scrolled).map(|fill| {
            let length = fill.length.map_or("-".to_string(), size);
            Row::new([
                right(size(fill.received), 6),
                right(length, 6),
                right(time(now.saturating_sub(fill.since)), 5),
                right(
                    time(i64::try_from(fill.idle_ms / 1000).unwrap_or(i64::MAX)),
                    5,
                ),
                right(fill.followers.to_string(), 5),
                right(fill.status.map_or("-".to_string(), |it| it.to_string()), 3),
                plain(&fill.key),
            ])
        });
        let widths = [6, 6, 5, 5, 5, 3].map(Constraint::Length).into_iter();
        let widths = widths.chain([Constraint::Min(10)]);
        let heading = ["   GOT", "    OF", "  AGE", " IDLE", " WAIT", "ST.", "KEY"];
        Table::new(rows, widths)
            .header(Row::new(heading).style(self.palette.style(Role::Title)))
            .render(self.area, buf);
    }
}

fn right(text: String, width: usize) -> String {
    format!("{text:>width$}")
}

/// A part of one in percent.
fn part(ratio: f64) -> String {
    format!("{:.1}%", ratio * 100.0)
}

/// Things in a second: `0`, `0.5`, `12`, `1234`, `120K`.
fn rate(per_s: f64) -> String {
    match per_s {
        0.0 => "0".to_string(),
        ..9.95 => format!("{per_s:.1}"),
        ..99_999.5 => format!("{per_s:.0}"),
        ..9_999_500.0 => format!("{:.0}K", per_s / 1e3),
        _ => format!("{:.0}M", per_s / 1e6),
    }
}

/// Bytes in a second; no process sends more than a number can say.
fn bytes_rate(per_s: f64) -> String {
    size(per_s.round() as u64)
}

fn of_max(bytes: u64, max: Option<u64>) -> String {
    match max {
        Some(max) => {
            let (bytes_text, max_text) = (exact_size(bytes), exact_size(max));
            format!("{bytes_text} of {max_text} {}", percent(bytes, max))
        }
        None => exact_size(bytes),
    }
}

/// A buffer as lines of text.
pub(super) fn text(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let mut line = String::new();
        for x in buf.area.left()..buf.area.right() {
            line.push_str(buf.cell((x, y)).map_or(" ", |cell| cell.symbol()));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::view::Event;
    use super::super::view::tests::{press, seen};
    use super::*;

    fn shown(view: &View, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let drawn = terminal.draw(|frame| {
            let area = frame.area();
            draw(view, Palette::Plain, area, frame.buffer_mut());
        });
        drawn.unwrap();
        text(terminal.backend().buffer())
    }

    fn has_all(screen: &str, words: &[&str]) {
        for word in words {
            assert!(screen.contains(word), "{word} is missing:\n{screen}");
        }
    }

    #[test]
    fn every_pane_says_what_it_is_for_on_narrow_and_wide_terminals() {
        for width in [60, 80, 132] {
            let mut view = seen();
            let overview = shown(&view, (width, 24));
            has_all(
                &overview,
                &["millpond 0.1.0, process 7", "hit ratio", "90.0%", "STATUS"],
            );
            has_all(
                &overview,
                &[
                    "HIT ",
                    "no cache",
                    "pond ",
                    "2.79G of 9.31G",
                    "1 of 2 disks",
                ],
            );
            press(&mut view, &[KeyCode::Tab]);
            let sites = shown(&view, (width, 24));
            has_all(
                &sites,
                &[
                    "SITE",
                    "REQ/S",
                    "ORIGIN/S",
                    "shop",
                    "wiki",
                    "s sort: requests",
                ],
            );
            assert_eq!(sites.contains("4.0K"), width >= 72, "{sites}");
            press(&mut view, &[KeyCode::Tab]);
            let zones = shown(&view, (width, 24));
            has_all(
                &zones,
                &[
                    "1200 records",
                    "disk /b",
                    "failed: EIO",
                    "disk /a",
                    "live",
                    "lake",
                ],
            );
            press(&mut view, &[KeyCode::Tab]);
            let fills = shown(&view, (width, 24));
            has_all(
                &fills,
                &["KEY", "shop/video\\u{1b}.mp4", "1.9M", "7.6M", "10s"],
            );
            press(&mut view, &[KeyCode::Char('?')]);
            has_all(&shown(&view, (width, 24)), &["Ctrl-C", "choose a pane"]);
        }
    }

    #[test]
    fn no_terminal_is_too_small() {
        for pane in ['1', '2', '3', '4', '?'] {
            let mut view = seen();
            press(&mut view, &[KeyCode::Char(pane)]);
            for size in [(1, 1), (10, 3), (40, 8), (59, 12), (300, 100)] {
                shown(&view, size);
            }
        }
        let empty = View::new(Pane::Overview, Sort::Requests);
        has_all(&shown(&empty, (80, 10)), &["waiting for the first answer"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut view = seen();
        view.apply(Event::Lost("nobody listens".to_string()));
        press(&mut view, &[KeyCode::Char('p')]);
        let screen = shown(&view, (80, 24));
        has_all(&screen, &["no answer: nobody listens", "paused", "90.0%"]);
        press(
            &mut view,
            &[KeyCode::Char('2'), KeyCode::Char('/'), KeyCode::Char('x')],
        );
        has_all(&shown(&view, (80, 24)), &["no such site", "/x_"]);
    }

    #[test]
    fn scrolling_leaves_the_heading() {
        let mut view = seen();
        press(&mut view, &[KeyCode::Char('2'), KeyCode::Down]);
        let screen = shown(&view, (80, 24));
        has_all(&screen, &["SITE", "wiki"]);
        assert!(!screen.contains("shop"), "{screen}");
    }

    #[test]
    fn rates_are_short() {
        for (per_s, expected) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (9.9, "9.9"),
            (9.96, "10"),
            (12_345.0, "12345"),
            (120_000.0, "120K"),
            (12e6, "12M"),
        ] {
            assert_eq!(rate(per_s), expected, "{per_s}");
        }
    }
}
