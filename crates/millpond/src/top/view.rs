//! View of what is known: the pane, the order, the filter, and what keys do to them.
//!
//! ```text
//! look ──┐
//! lost ──┼─► View::apply ──► Next::Show | Next::End
//! key  ──┘
//! ```
//!
//! 1. Nothing here reads a clock or a terminal: events come with all that is needed.
//! 2. While it is paused, figures stay as they are; looks go on, so rates are right afterwards.

use std::cmp::Ordering;
use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::figures::{Figures, Look, SiteFigures};

/// Looks of which the number of requests is kept, for a curve.
const HISTORY: usize = 240;
/// Lines that a page key goes on.
const PAGE: usize = 10;
/// Letters of a filter; names of sites are shorter.
const FILTER_MAX: usize = 100;

/// A part of the screen that fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Overview,
    Sites,
    Zones,
    Fills,
}

impl Pane {
    /// Panes with their names, in the order of their numbers.
    pub(super) const ALL: [(&'static str, Pane); 4] = [
        ("overview", Pane::Overview),
        ("sites", Pane::Sites),
        ("zones", Pane::Zones),
        ("fills", Pane::Fills),
    ];

    /// The pane of a name.
    pub(super) fn named(name: &str) -> Option<Pane> {
        let found = Pane::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, pane)| *pane)
    }

    /// The pane so many places further.
    fn turned(self, places: usize) -> Pane {
        let own = Pane::ALL.iter().position(|(_, pane)| *pane == self);
        let index = (own.unwrap_or(0) + places) % Pane::ALL.len();
        Pane::ALL.get(index).map_or(self, |(_, pane)| *pane)
    }
}

/// Order of the sites; the most first, names by the alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Requests,
    Hits,
    Bytes,
    Origin,
    Held,
    Site,
}

impl Sort {
    /// Orders with their names, in the order of their columns.
    pub(super) const ALL: [(&'static str, Sort); 6] = [
        ("requests", Sort::Requests),
        ("hits", Sort::Hits),
        ("bytes", Sort::Bytes),
        ("origin", Sort::Origin),
        ("held", Sort::Held),
        ("site", Sort::Site),
    ];

    /// The order of a name.
    pub(super) fn named(name: &str) -> Option<Sort> {
        let found = Sort::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, sort)| *sort)
    }

    fn next(self) -> Sort {
        let own = Sort::ALL.iter().position(|(_, sort)| *sort == self);
        let index = (own.unwrap_or(0) + 1) % Sort::ALL.len();
        Sort::ALL.get(index).map_or(self, |(_, sort)| *sort)
    }

    fn compare(self, one: &SiteFigures, other: &SiteFigures) -> Ordering {
        let rate = |site: &SiteFigures| site.answers.requests_per_s;
        let held = |site: &SiteFigures| site.held.map_or(0, |held| held.bytes);
        let by_name = || one.site.cmp(&other.site);
        let ordering = match self {
            Sort::Requests => rate(other).total_cmp(&rate(one)),
            Sort::Hits => {
                let hits = |site: &SiteFigures| site.hit_ratio.unwrap_or(-1.0);
                hits(other).total_cmp(&hits(one))
            }
            Sort::Bytes => {
                let bytes = |site: &SiteFigures| site.answers.bytes_per_s;
                bytes(other).total_cmp(&bytes(one))
            }
            Sort::Origin => {
                let asked = |site: &SiteFigures| site.origin.requests_per_s;
                asked(other).total_cmp(&asked(one))
            }
            Sort::Held => held(other).cmp(&held(one)),
            Sort::Site => by_name(),
        };
        // Where nothing happens, those come first that had the most in all.
        let in_all = || other.answers.requests.cmp(&one.answers.requests);
        ordering.then_with(in_all).then_with(by_name)
    }
}

/// Direction of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Usual,
    Reverse,
}

/// Meaning of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keys are commands.
    Commands,
    /// Keys are written into the filter.
    Filter,
    /// Keys are explained; any ends that.
    Help,
}

/// State of the figures: they change, or stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    Live,
    Paused,
}

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// The process answered.
    Look(Box<Look>),
    /// The look failed, and why.
    Lost(String),
    /// A key.
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The program is told to end.
    Ended,
}

/// Next step after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The screen is drawn anew.
    Show,
    /// The program ends.
    End,
}

/// State of what is shown.
#[derive(Debug)]
pub(super) struct View {
    pub(super) pane: Pane,
    pub(super) sort: Sort,
    pub(super) direction: Direction,
    pub(super) mode: Mode,
    pub(super) motion: Motion,
    /// Part that a name must have for its site or fill to be shown.
    pub(super) filter: String,
    /// Lines of a long pane that are above the screen.
    pub(super) scrolled: usize,
    /// None before the first answer.
    pub(super) figures: Option<Figures>,
    /// The reason why there is no answer now.
    pub(super) lost: Option<String>,
    /// Requests in a second at each look, the newest last.
    pub(super) history: VecDeque<u64>,
    last: Option<Box<Look>>,
}

impl View {
    /// A view that knows nothing yet.
    pub(super) fn new(pane: Pane, sort: Sort) -> View {
        View {
            pane,
            sort,
            direction: Direction::Usual,
            mode: Mode::Commands,
            motion: Motion::Live,
            filter: String::new(),
            scrolled: 0,
            figures: None,
            lost: None,
            history: VecDeque::new(),
            last: None,
        }
    }

    /// Something happened.
    pub(super) fn apply(&mut self, event: Event) -> Next {
        match event {
            Event::Look(look) => self.take(look),
            Event::Lost(why) => self.lost = Some(why),
            Event::Key(key) => return self.press(key),
            Event::Resized => {}
            Event::Ended => return Next::End,
        }
        Next::Show
    }

    fn take(&mut self, look: Box<Look>) {
        let figures = Figures::of(&look, self.last.as_deref());
        self.last = Some(look);
        self.lost = None;
        if figures.seconds.is_some() {
            if self.history.len() >= HISTORY {
                self.history.pop_front();
            }
            let rate = figures.answers.requests_per_s.round();
            self.history.push_back(rate as u64);
        }
        // INVARIANT 2.
        if self.motion == Motion::Live {
            self.figures = Some(figures);
        }
    }

    fn press(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Show;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c')) {
            return Next::End;
        }
        match self.mode {
            Mode::Help => {
                self.mode = Mode::Commands;
                Next::Show
            }
            Mode::Filter => {
                self.write(key.code);
                Next::Show
            }
            Mode::Commands => self.command(key.code),
        }
    }

    fn write(&mut self, code: KeyCode) {
        self.scrolled = 0;
        match code {
            KeyCode::Enter => self.mode = Mode::Commands,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Commands;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(letter);
            }
            _ => {}
        }
    }

    fn command(&mut self, code: KeyCode) -> Next {
        match code {
            KeyCode::Char('q') => return Next::End,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('p' | ' ') => self.motion = self.other_motion(),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => {
                self.direction = match self.direction {
                    Direction::Usual => Direction::Reverse,
                    Direction::Reverse => Direction::Usual,
                };
            }
            KeyCode::Tab | KeyCode::Right => self.turn_to(self.pane.turned(1)),
            KeyCode::BackTab | KeyCode::Left => self.turn_to(self.pane.turned(Pane::ALL.len() - 1)),
            KeyCode::Char(digit @ '1'..='4') => {
                let index = digit.to_digit(10).unwrap_or(1).saturating_sub(1);
                self.turn_to(Pane::Overview.turned(index as usize));
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll_to(self.scrolled.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.scroll_to(self.scrolled.saturating_sub(1)),
            KeyCode::PageDown => self.scroll_to(self.scrolled.saturating_add(PAGE)),
            KeyCode::PageUp => self.scroll_to(self.scrolled.saturating_sub(PAGE)),
            KeyCode::Home => self.scroll_to(0),
            KeyCode::End => self.scroll_to(usize::MAX),
            _ => {}
        }
        Next::Show
    }

    fn other_motion(&self) -> Motion {
        match self.motion {
            Motion::Live => Motion::Paused,
            Motion::Paused => Motion::Live,
        }
    }

    fn turn_to(&mut self, pane: Pane) {
        self.pane = pane;
        self.scrolled = 0;
    }

    fn scroll_to(&mut self, line: usize) {
        let last = match self.pane {
            Pane::Overview => 0,
            Pane::Sites => self.sites().map_or(0, |sites| sites.len()),
            Pane::Fills => self.fill_count(),
            Pane::Zones => {
                let zones = self.figures.iter().flat_map(|figures| &figures.zones);
                zones.map(|zone| zone.disks.len() + 5).sum()
            }
        };
        self.scrolled = line.min(last.saturating_sub(1));
    }

    fn fill_count(&self) -> usize {
        let fills = self.figures.as_ref().and_then(|it| it.fills.as_ref());
        fills.map_or(0, Vec::len)
    }

    /// True if a name is shown.
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The sites that are shown, in order; none if nobody counts them.
    pub(super) fn sites(&self) -> Option<Vec<&SiteFigures>> {
        let sites = self.figures.as_ref()?.sites.as_ref()?;
        let wanted = sites.iter().filter(|site| self.is_wanted(&site.site));
        let mut sites: Vec<&SiteFigures> = wanted.collect();
        sites.sort_by(|one, other| match self.direction {
            Direction::Usual => self.sort.compare(one, other),
            Direction::Reverse => self.sort.compare(other, one),
        });
        Some(sites)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::figures::tests::look;
    use super::*;

    /// Presses keys; what came of the last.
    pub(in super::super) fn press(view: &mut View, keys: &[KeyCode]) -> Next {
        let mut next = Next::Show;
        for key in keys {
            next = view.apply(Event::Key(KeyEvent::from(*key)));
        }
        next
    }

    /// A view that has seen two looks.
    pub(in super::super) fn seen() -> View {
        let mut view = View::new(Pane::Overview, Sort::Requests);
        view.apply(Event::Look(Box::new(look(7, 0, 100))));
        view.apply(Event::Look(Box::new(look(7, 2, 300))));
        view
    }

    fn names(view: &View) -> Vec<&str> {
        let sites = view.sites().unwrap();
        sites.into_iter().map(|it| it.site.as_str()).collect()
    }

    #[test]
    fn sites_are_sorted_turned_round_and_filtered() {
        let mut view = seen();
        assert_eq!(names(&view), ["shop", "wiki", "blog"]);
        press(&mut view, &[KeyCode::Char('r')]);
        assert_eq!(names(&view), ["blog", "wiki", "shop"]);
        press(&mut view, &[KeyCode::Char('r')]);
        view.sort = Sort::Site;
        assert_eq!(names(&view), ["blog", "shop", "wiki"]);
        let keys = ['/', 'O', 'q'].map(KeyCode::Char);
        assert_eq!(press(&mut view, &keys), Next::Show);
        press(&mut view, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(names(&view), ["blog", "shop"]);
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(names(&view).len(), 3);
    }

    #[test]
    fn keys_turn_panes_scroll_and_end() {
        let mut view = seen();
        press(&mut view, &[KeyCode::Tab]);
        assert_eq!(view.pane, Pane::Sites);
        press(&mut view, &[KeyCode::PageDown]);
        assert_eq!(view.scrolled, 2);
        press(&mut view, &[KeyCode::Up]);
        assert_eq!(view.scrolled, 1);
        press(&mut view, &[KeyCode::Left, KeyCode::BackTab]);
        assert_eq!((view.pane, view.scrolled), (Pane::Fills, 0));
        press(&mut view, &[KeyCode::Char('3')]);
        assert_eq!(view.pane, Pane::Zones);
        press(&mut view, &[KeyCode::Char('?')]);
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Next::Show);
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Next::End);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.apply(Event::Key(control)), Next::End);
        assert_eq!(view.apply(Event::Ended), Next::End);
        let mut sort = Sort::Requests;
        for _ in Sort::ALL {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Requests);
    }

    #[test]
    fn a_pause_and_a_restart_leave_what_was_there() {
        let mut view = seen();
        press(&mut view, &[KeyCode::Char('p')]);
        let shown = view.figures.clone().unwrap().answers.requests;
        view.apply(Event::Look(Box::new(look(7, 4, 900))));
        assert_eq!(view.figures.clone().unwrap().answers.requests, shown);
        press(&mut view, &[KeyCode::Char('p')]);
        view.apply(Event::Lost("nobody listens".to_string()));
        assert!(view.figures.is_some() && view.lost.is_some());
        view.apply(Event::Look(Box::new(look(8, 5, 1))));
        let figures = view.figures.clone().unwrap();
        assert_eq!((figures.pid, figures.seconds), (Some(8), None));
        assert!(view.lost.is_none());
        assert_eq!(view.history.len(), 2);
    }
}
