//! The picture of the arrows, `docs/images/architecture.svg`: crates, and the layers of those that
//! have layers.
//!
//! ```text
//! crates: a row for each height above the ground, an arrow for each that no other brings along
//! layers: a box for each, top first; what runs back stands at the right, as an arc with its number
//! ```
//!
//! A layer may import whatever stands below it, so those arrows are not drawn. Nothing of a picture
//! depends on the time, so that it is compared byte by byte with what is checked in.

use super::table::{Code, Layers};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The picture, from the workspace's root.
pub(crate) const PATH: &str = "docs/images/architecture.svg";

const WIDTH: usize = 980;
const MARGIN: usize = 24;
/// A crate's box.
const CRATE: (usize, usize) = (124, 40);
/// From one row of crates to the next.
const ROW: usize = 92;
/// A layer's box; the rest of the width is for arcs.
const LAYER_WIDTH: usize = 640;
const LAYER_GAP: usize = 14;
const LINE: usize = 17;
/// Letters of a line in a layer's box: at 7.1 pixels each in the font below.
const LETTERS: usize = 74;
/// From one arc to the next that begins or ends at the same layer.
const STEP: usize = 12;

const STYLE: &str = "\
text { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2933; }
.title { font-weight: bold; font-size: 15px; }
.name { font-weight: bold; }
.box { fill: #eef4fb; stroke: #5b7fa6; stroke-width: 1.2; }
.layer { fill: #f6f8f4; stroke: #7d9270; stroke-width: 1.2; }
.arrow { fill: none; stroke: #5b7fa6; stroke-width: 1.4; marker-end: url(#head); }
.back { fill: none; stroke: #b5482f; stroke-width: 1.2; marker-end: url(#back); }
.number { fill: #b5482f; font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
";

/// Draws the crates and the layers.
pub(crate) fn draw(code: &Code, layered: &BTreeMap<String, Layers>) -> String {
    let mut picture = Picture {
        body: String::new(),
        y: MARGIN,
    };
    picture.crates(&code.crates);
    for (name, layers) in layered {
        if let Some(krate) = code.modules.get(name) {
            let back = between_layers(layers, layers.back(krate).map(|(arrow, _)| arrow));
            picture.layers(name, layers, &back);
        }
    }
    picture.finish()
}

/// The numbers of arrows that run back, from layer to layer; layers are counted from the ground.
type Back = BTreeMap<(usize, usize), usize>;

fn between_layers<'a>(layers: &Layers, back: impl Iterator<Item = &'a (String, String)>) -> Back {
    let layer_of = |module: &str| {
        let mut layers = layers.layers.iter();
        layers.position(|(_, modules)| modules.iter().any(|of| of == module))
    };
    let mut numbers = Back::new();
    for (from, to) in back {
        if let (Some(from), Some(to)) = (layer_of(from), layer_of(to)) {
            *numbers.entry((from, to)).or_default() += 1;
        }
    }
    numbers
}

/// A picture that grows downwards.
struct Picture {
    body: String,
    y: usize,
}

/// Appends a line of markup; writing to a string cannot fail.
macro_rules! line {
    ($picture:expr, $($part:tt)*) => {
        let _ = writeln!($picture.body, $($part)*);
    };
}

impl Picture {
    fn title(&mut self, text: &str) {
        self.y += LINE;
        line!(
            self,
            r#"<text class="title" x="{MARGIN}" y="{}">{text}</text>"#,
            self.y
        );
        self.y += LINE;
    }

    fn crates(&mut self, crates: &BTreeMap<String, BTreeSet<String>>) {
        self.title("Crates: each uses those that its arrows point to, and what those use");
        let heights = heights(crates);
        let top = heights.values().max().copied().unwrap_or(0);
        let mut places = BTreeMap::<&String, (usize, usize)>::new();
        for height in 0..=top {
            let row: Vec<&String> = heights
                .iter()
                .filter(|(_, of)| **of == height)
                .map(|(name, _)| name)
                .collect();
            let y = self.y + (top - height) * ROW;
            for (name, x) in spread(&row, crates, &places) {
                places.insert(name, (x, y));
            }
        }
        for (name, imports) in crates {
            for import in direct(name, imports, crates) {
                if let (Some(from), Some(to)) = (places.get(name), places.get(import)) {
                    self.arrow(*from, *to);
                }
            }
        }
        for (name, (x, y)) in &places {
            self.boxed("box", (*x, *y), CRATE);
            let (x, y) = (x + CRATE.0 / 2, y + CRATE.1 / 2 + 5);
            line!(
                self,
                r#"<text class="name" x="{x}" y="{y}" text-anchor="middle">{name}</text>"#
            );
        }
        self.y += top * ROW + CRATE.1 + MARGIN;
    }

    fn arrow(&mut self, from: (usize, usize), to: (usize, usize)) {
        let (x, y) = (from.0 + CRATE.0 / 2, from.1 + CRATE.1);
        let (to_x, to_y) = (to.0 + CRATE.0 / 2, to.1 - 4);
        let middle = (y + to_y) / 2;
        line!(
            self,
            r#"<path class="arrow" d="M{x} {y} C{x} {middle} {to_x} {middle} {to_x} {to_y}"/>"#
        );
    }

    fn boxed(&mut self, class: &str, place: (usize, usize), size: (usize, usize)) {
        let ((x, y), (width, height)) = (place, size);
        line!(
            self,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>"#
        );
    }

    fn layers(&mut self, name: &str, layers: &Layers, back: &Back) {
        let count: usize = back.values().sum();
        self.title(&format!(
            "{name}: a layer uses those below it; {count} imports among modules run back"
        ));
        let mut middles = vec![0; layers.layers.len()];
        for (index, (layer, modules)) in layers.layers.iter().enumerate().rev() {
            let lines = wrapped(modules);
            let height = LINE * (lines.len() + 1) + 10;
            self.boxed("layer", (MARGIN, self.y), (LAYER_WIDTH, height));
            let x = MARGIN + 10;
            let within = back.get(&(index, index)).map_or(String::new(), |count| {
                format!(r#" <tspan class="number">({count} within)</tspan>"#)
            });
            let y = self.y + LINE;
            line!(
                self,
                r#"<text class="name" x="{x}" y="{y}">{layer}{within}</text>"#
            );
            for (number, text) in lines.iter().enumerate() {
                let y = self.y + LINE * (number + 2);
                line!(self, r#"<text x="{x}" y="{y}">{text}</text>"#);
            }
            if let Some(middle) = middles.get_mut(index) {
                *middle = self.y + height / 2;
            }
            self.y += height + LAYER_GAP;
        }
        let across = back.iter().filter(|((from, to), _)| from != to);
        self.arcs(&middles, across.map(|(arc, count)| (*arc, *count)));
        self.y += MARGIN;
    }

    /// Draws arcs at the right of the layers, whose middles are at these heights.
    fn arcs(&mut self, middles: &[usize], arcs: impl Iterator<Item = ((usize, usize), usize)>) {
        let mut arcs: Vec<_> = arcs.collect();
        arcs.sort_by_key(|((from, to), _)| (to - from, *from));
        let x = MARGIN + LAYER_WIDTH;
        let room = WIDTH - MARGIN - x;
        // Arcs that end at one layer end beside each other.
        let mut ends = vec![0_usize; middles.len()];
        let count = arcs.len().max(1);
        for (rank, ((from, to), number)) in arcs.into_iter().enumerate() {
            let mut end = |layer: usize| {
                let middle = middles.get(layer).copied().unwrap_or(0);
                let taken = ends
                    .get_mut(layer)
                    .map(|taken| std::mem::replace(taken, *taken + 1));
                beside(middle, taken.unwrap_or(0))
            };
            let (start, stop) = (end(from), end(to));
            let far = x + 24 + (room - 48) * (rank + 1) / count;
            line!(
                self,
                r#"<path class="back" d="M{x} {start} C{far} {start} {far} {stop} {} {stop}"/>"#,
                x + 6
            );
            // A curve like this comes as far as three quarters of the way to its corners.
            let (tip, middle) = (x + (far - x) * 3 / 4, (start + stop) / 2 + 4);
            line!(
                self,
                r#"<text class="number" x="{tip}" y="{middle}">{number}</text>"#
            );
        }
    }

    fn finish(self) -> String {
        let height = self.y;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">
<!-- Drawn from the code by `cargo xtask docs`. -->
<style>
{STYLE}</style>
<defs>
<marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#5b7fa6"/></marker>
<marker id="back" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#b5482f"/></marker>
</defs>
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
{}</svg>
"##,
            self.body
        )
    }
}

/// Steps to both sides of a middle: 0, 1 above, 1 below, 2 above.
fn beside(middle: usize, taken: usize) -> usize {
    let away = taken.div_ceil(2) * STEP / 2;
    if taken % 2 == 1 {
        middle - away
    } else {
        middle + away
    }
}

/// Names in lines that fit into a box.
fn wrapped(names: &[String]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for name in names {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(name),
            Some(line) if line.len() + 1 + name.len() <= LETTERS => {
                line.push(' ');
                line.push_str(name);
            }
            _ => lines.push(name.clone()),
        }
    }
    lines
}

/// The crates of a row from left to right with their places: those that use none share the width,
/// others stand above the middle of what they use, as far as there is room.
fn spread<'a>(
    row: &[&'a String],
    crates: &BTreeMap<String, BTreeSet<String>>,
    below: &BTreeMap<&String, (usize, usize)>,
) -> Vec<(&'a String, usize)> {
    let room = (WIDTH - 2 * MARGIN) / row.len().max(1);
    let wish = |(index, name): (usize, &&'a String)| {
        let used: Vec<usize> = crates
            .get(*name)
            .into_iter()
            .flat_map(|imports| direct(name, imports, crates))
            .filter_map(|import| below.get(import).map(|(x, _)| *x))
            .collect();
        let alone = MARGIN + room * index + room.saturating_sub(CRATE.0) / 2;
        let middle = used.iter().sum::<usize>().checked_div(used.len());
        (*name, middle.unwrap_or(alone))
    };
    let mut wishes: Vec<(&String, usize)> = row.iter().enumerate().map(wish).collect();
    wishes.sort_by_key(|(_, x)| *x);
    let mut free = 0;
    for (_, x) in &mut wishes {
        *x = free.max(*x);
        free = *x + CRATE.0 + LAYER_GAP;
    }
    wishes
}

/// The number of crates below each, on the longest way down.
fn heights(crates: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, usize> {
    let mut heights: BTreeMap<String, usize> =
        crates.keys().map(|name| (name.clone(), 0)).collect();
    // Cargo lets no crates depend on each other in a circle, so as many rounds are enough.
    for _ in crates {
        for (name, imports) in crates {
            let below = imports
                .iter()
                .filter_map(|import| heights.get(import))
                .max();
            let height = below.map_or(0, |below| below + 1);
            heights.insert(name.clone(), height);
        }
    }
    heights
}

/// The dependencies of a crate that no other of its dependencies brings along.
fn direct<'a>(
    name: &str,
    imports: &'a BTreeSet<String>,
    crates: &BTreeMap<String, BTreeSet<String>>,
) -> impl Iterator<Item = &'a String> {
    let mut brought = BTreeSet::new();
    let mut left: Vec<&String> = crates.get(name).into_iter().flatten().collect();
    while let Some(import) = left.pop() {
        for below in crates.get(import).into_iter().flatten() {
            if brought.insert(below.clone()) {
                left.push(below);
            }
        }
    }
    imports
        .iter()
        .filter(move |import| !brought.contains(*import))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrows::table::Table;

    fn crates(text: &str) -> BTreeMap<String, BTreeSet<String>> {
        Table::parse(text).unwrap().crates
    }

    #[test]
    fn crates_stand_above_what_they_use_and_point_to_what_nothing_else_brings() {
        let crates = crates("crate a: b c\ncrate b: c\ncrate c:\ncrate d:");
        let heights: Vec<usize> = heights(&crates).into_values().collect();
        assert_eq!(heights, [2, 1, 0, 0]);
        let direct: Vec<&String> = direct("a", &crates["a"], &crates).collect();
        assert_eq!(direct, ["b"]);
    }

    #[test]
    fn crates_stand_above_the_middle_of_what_they_use_and_never_on_each_other() {
        let crates = crates("crate a: c d\ncrate b: c d\ncrate c:\ncrate d:");
        let (a, b, c, d) = (
            "a".to_owned(),
            "b".to_owned(),
            "c".to_owned(),
            "d".to_owned(),
        );
        let ground = spread(&[&c, &d], &crates, &BTreeMap::new());
        let below = ground.iter().map(|(name, x)| (*name, (*x, 0))).collect();
        let row = spread(&[&a, &b], &crates, &below);
        assert_eq!(row[0].1, (ground[0].1 + ground[1].1) / 2);
        assert_eq!(row[1].1, row[0].1 + CRATE.0 + LAYER_GAP);
    }

    #[test]
    fn arrows_that_run_back_are_numbered_from_layer_to_layer() {
        let text = "modules of a\nlayer low: b c\nlayer high: d\nb -> c\nb -> d\nc -> d\n";
        let table = Table::parse(text).unwrap();
        let layers = &table.layered["a"];
        let back = between_layers(layers, layers.back.keys());
        assert_eq!(back, BTreeMap::from([((0, 0), 1), ((0, 1), 2)]));
    }

    #[test]
    fn names_are_broken_into_lines_and_ends_spread_from_the_middle() {
        let names: Vec<String> = (0..30).map(|number| format!("name{number:03}")).collect();
        let lines = wrapped(&names);
        assert!(lines.iter().all(|line| line.len() <= LETTERS));
        assert_eq!(lines.join(" "), names.join(" "));
        let ends: Vec<usize> = (0..4).map(|taken| beside(100, taken)).collect();
        assert_eq!(ends, [100, 94, 106, 88]);
    }
}
