//! The table of arrows, `xtask/arrows.txt`: who may import whom.
//!
//! ```text
//! crate conf: conf-derive        a crate, and those of ours that it depends on
//!
//! modules of conf                a crate whose modules have layers
//! layer text: source lex parse   from ground to top, modules in order within a layer, too
//! layer values: value include
//! parse -> value                 an arrow that runs against the order
//! ```
//!
//! A module may import what stands before it. An arrow that runs the other way has a line, sorted,
//! and says behind a `#` why it is there.
//!
//! 1. What the code has and the table has not is a finding; so is what the table has and the code
//!    has not. So lines only go.
//! 2. A crate without layers has no circle among its modules.

use super::read::{Crate, Place};
use crate::tidy::Finding;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// The table's place in the workspace.
pub(crate) const PATH: &str = "xtask/arrows.txt";

/// Lines that the table begins with.
const HEAD: &str = "\
# Who may import whom, below crates/. A crate depends on those behind its colon. The modules of a
# crate stand in layers from ground to top, and may import what stands before them; an arrow that
# runs against this order has a line. Lines only go: `cargo xtask tidy` refuses an arrow that has no
# line, and a line that has no arrow. `cargo xtask tidy --arrows` writes this table as the code is,
# unless it gets longer; `cargo xtask tidy --arrows CRATE` names where each arrow of a crate stands.
";

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The crates that each crate depends on.
    pub(crate) crates: BTreeMap<String, BTreeSet<String>>,
    /// The crates whose modules have layers.
    pub(crate) layered: BTreeMap<String, Layers>,
}

/// One crate's layers, and the arrows that run against them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers {
    /// Name and modules of each, from ground to top.
    pub(crate) layers: Vec<(String, Vec<String>)>,
    /// From which module to which, and why.
    pub(crate) back: BTreeMap<(String, String), String>,
}

impl Table {
    /// Reads the table.
    pub(crate) fn parse(text: &str) -> Result<Table> {
        let mut table = Table::default();
        let mut krate = String::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("{PATH}:{}: {what}", index + 1);
            if let Some((name, imports)) = named("crate ", line) {
                table.crates.insert(name, imports.into_iter().collect());
            } else if let Some(name) = line.strip_prefix("modules of ") {
                krate = name.trim().to_owned();
                table.layered.insert(krate.clone(), Layers::default());
            } else if let Some(layers) = table.layered.get_mut(&krate) {
                if let Some(layer) = named("layer ", line) {
                    layers.layers.push(layer);
                } else if let Some((arrow, why)) = arrow(line) {
                    layers.back.insert(arrow, why);
                } else {
                    bail!(wrong("neither a layer nor an arrow"));
                }
            } else {
                bail!(wrong("a line before `modules of CRATE`"));
            }
        }
        Ok(table)
    }

    /// The table as the code is: the layers of this one with what is new put where the fewest
    /// arrows run back, and the arrows that there are.
    pub(crate) fn renewed(&self, code: &Code) -> Table {
        let mut layered = BTreeMap::new();
        for (name, krate) in &code.modules {
            let mut layers = self.layered.get(name).cloned().unwrap_or_default();
            if layers.layers.is_empty() && !has_circle(krate) {
                continue;
            }
            layers.renew(krate);
            layered.insert(name.clone(), layers);
        }
        Table {
            crates: code.crates.clone(),
            layered,
        }
    }

    /// The number of arrows that run against the layers.
    pub(crate) fn back_count(&self) -> usize {
        self.layered.values().map(|layers| layers.back.len()).sum()
    }

    /// Finds the differences between the table and the code.
    pub(crate) fn check(&self, code: &Code, findings: &mut Vec<Finding>) {
        let of_table = |message| finding(&(PathBuf::from(PATH), 1), message);
        for name in self
            .crates
            .keys()
            .chain(code.crates.keys())
            .collect::<BTreeSet<_>>()
        {
            let (may, does) = (self.crates.get(name), code.crates.get(name));
            if may != does {
                let message = format!("crate {name} depends on {}: {}", list(does), list(may));
                findings.push(of_table(message + " in the table"));
            }
        }
        for name in self
            .layered
            .keys()
            .filter(|name| !code.modules.contains_key(*name))
        {
            findings.push(of_table(format!("there is no crate {name}")));
        }
        for (name, krate) in &code.modules {
            match self.layered.get(name) {
                Some(layers) => layers.check(name, krate, findings),
                None if has_circle(krate) => {
                    let message = "imports among its modules form a circle: give it layers";
                    findings.push(of_table(format!("crate {name}: {message}")));
                }
                None => {}
            }
        }
    }
}

/// The crates and modules of the workspace, as the code has them.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// The crates that each crate depends on.
    pub(crate) crates: BTreeMap<String, BTreeSet<String>>,
    /// The modules of each crate.
    pub(crate) modules: BTreeMap<String, Crate>,
}

impl Layers {
    /// The modules, from ground to top.
    pub(crate) fn order(&self) -> impl Iterator<Item = &String> {
        self.layers.iter().flat_map(|(_, modules)| modules)
    }

    /// The arrows of a crate that run against the order, with the places where they stand.
    pub(crate) fn back<'a>(
        &self,
        krate: &'a Crate,
    ) -> impl Iterator<Item = (&'a (String, String), &'a Vec<Place>)> {
        let positions: BTreeMap<String, usize> = self.order().cloned().zip(0..).collect();
        let arrows = krate.arrows.iter();
        arrows.filter(move |((from, to), _)| positions.get(from) < positions.get(to))
    }

    fn check(&self, name: &str, krate: &Crate, findings: &mut Vec<Finding>) {
        let mut push = |place: &Place, message: String| findings.push(finding(place, message));
        let of_table = (PathBuf::from(PATH), 1);
        let order: Vec<&String> = self.order().collect();
        for module in krate.modules.keys() {
            let count = order.iter().filter(|placed| **placed == module).count();
            if count != 1 {
                push(
                    &of_table,
                    format!("{name}: module {module} is in {count} layers, not in one"),
                );
            }
        }
        for module in order
            .iter()
            .filter(|module| !krate.modules.contains_key(**module))
        {
            push(&of_table, format!("{name}: there is no module {module}"));
        }
        let back: BTreeMap<_, _> = self.back(krate).collect();
        for ((from, to), places) in &back {
            if !self.back.contains_key(&(from.clone(), to.clone())) {
                let message =
                    format!("{from} of {name} may not import {to}, which stands above it");
                places.iter().for_each(|place| push(place, message.clone()));
            }
        }
        for (from, to) in self.back.keys().filter(|arrow| !back.contains_key(arrow)) {
            push(
                &of_table,
                format!("{name}: `{from} -> {to}` is needed no more: remove the line"),
            );
        }
        let silent = self.back.iter().filter(|(_, why)| why.is_empty());
        for ((from, to), _) in silent {
            let message = format!("{name}: `{from} -> {to}` has no reason behind a `#`");
            push(&of_table, message);
        }
    }

    fn renew(&mut self, krate: &Crate) {
        for (_, modules) in &mut self.layers {
            modules.retain(|module| krate.modules.contains_key(module));
        }
        self.layers.retain(|(_, modules)| !modules.is_empty());
        for module in krate.modules.keys() {
            if !self.order().any(|placed| placed == module) {
                self.place(module, krate);
            }
        }
        let back = self.back(krate).map(|(arrow, _)| {
            let why = self.back.get(arrow).cloned();
            (arrow.clone(), why.unwrap_or_default())
        });
        self.back = back.collect();
    }

    /// Puts a module where the fewest arrows run back, as low as that is so.
    fn place(&mut self, module: &str, krate: &Crate) {
        if self.layers.is_empty() {
            self.layers.push(("all".to_owned(), Vec::new()));
        }
        let places = self
            .layers
            .iter()
            .enumerate()
            .flat_map(|(layer, (_, modules))| (0..=modules.len()).map(move |at| (layer, at)));
        let with = |(layer, position): (usize, usize)| {
            let mut layers = self.layers.clone();
            if let Some((_, modules)) = layers.get_mut(layer) {
                modules.insert(position, module.to_owned());
            }
            Layers {
                layers,
                back: BTreeMap::new(),
            }
        };
        let best = places
            .map(with)
            .min_by_key(|layers| layers.back(krate).count());
        if let Some(best) = best {
            self.layers = best.layers;
        }
    }
}

/// True if imports among the modules of a crate form a circle.
fn has_circle(krate: &Crate) -> bool {
    let mut left: BTreeSet<&String> = krate.modules.keys().collect();
    loop {
        let imports = |module: &str, left: &BTreeSet<&String>| {
            let arrows = krate.arrows.keys();
            arrows
                .clone()
                .any(|(from, to)| from == module && left.contains(to))
        };
        let ground = left.iter().find(|module| !imports(module, &left)).copied();
        match ground {
            Some(module) => left.remove(module),
            None => return !left.is_empty(),
        };
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for (name, imports) in &self.crates {
            let imports = imports
                .iter()
                .map(|name| format!(" {name}"))
                .collect::<String>();
            writeln!(f, "crate {name}:{imports}")?;
        }
        for (name, layers) in &self.layered {
            writeln!(f, "\nmodules of {name}")?;
            for (layer, modules) in &layers.layers {
                writeln!(f, "layer {layer}: {}", modules.join(" "))?;
            }
            for ((from, to), why) in &layers.back {
                let why = if why.is_empty() {
                    String::new()
                } else {
                    format!("  # {why}")
                };
                writeln!(f, "{from} -> {to}{why}")?;
            }
        }
        Ok(())
    }
}

/// A line `PREFIX NAME: WORD…`.
fn named(prefix: &str, line: &str) -> Option<(String, Vec<String>)> {
    let (name, words) = line.strip_prefix(prefix)?.split_once(':')?;
    let words = words.split_whitespace().map(str::to_owned).collect();
    Some((name.trim().to_owned(), words))
}

/// A line `FROM -> TO  # WHY`.
fn arrow(line: &str) -> Option<((String, String), String)> {
    let (arrow, why) = line.split_once('#').unwrap_or((line, ""));
    let (from, to) = arrow.split_once("->")?;
    let arrow = (from.trim().to_owned(), to.trim().to_owned());
    Some((arrow, why.trim().to_owned()))
}

fn list(names: Option<&BTreeSet<String>>) -> String {
    match names {
        None => "no crate".to_owned(),
        Some(names) if names.is_empty() => "nothing".to_owned(),
        Some(names) => names.iter().cloned().collect::<Vec<_>>().join(" "),
    }
}

/// A finding of this rule.
pub(crate) fn finding(place: &Place, message: String) -> Finding {
    Finding {
        rule: "arrow",
        path: place.0.clone(),
        line: place.1,
        item: "arrow".to_owned(),
        measure: 1,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate `a` whose modules are named, with arrows as `from>to`.
    fn code(modules: &str, arrows: &str) -> Code {
        let modules = modules.split_whitespace();
        let arrows = arrows
            .split_whitespace()
            .map(|arrow| arrow.split_once('>').unwrap());
        let krate = Crate {
            modules: modules.map(|module| (module.to_owned(), 1)).collect(),
            arrows: arrows
                .map(|(from, to)| {
                    let place = (PathBuf::from("crates/a/src").join(from), 7);
                    ((from.to_owned(), to.to_owned()), vec![place])
                })
                .collect(),
        };
        Code {
            crates: BTreeMap::from([("a".to_owned(), BTreeSet::new())]),
            modules: BTreeMap::from([("a".to_owned(), krate)]),
        }
    }

    fn messages(table: &str, code: &Code) -> Vec<String> {
        let mut findings = Vec::new();
        Table::parse(table).unwrap().check(code, &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn the_table_and_the_code_agree_or_it_is_said_where_not() {
        let table = "crate a:\nmodules of a\nlayer low: b c\nlayer high: d\n";
        let with_line = format!("{table}b -> d # because\n");
        for (table, code, expected) in [
            (table, code("b c d", "c>b d>b d>c"), ""),
            (
                table,
                code("b c d", "b>c"),
                "crates/a/src/b:7: arrow: b of a may not import c",
            ),
            (&with_line, code("b c d", "b>d"), ""),
            (
                &with_line,
                code("b c d", "d>b"),
                "`b -> d` is needed no more",
            ),
            (table, code("b c d e", ""), "module e is in 0 layers"),
            (table, code("b c", ""), "there is no module d"),
            ("crate a:", code("b c", "b>c"), ""),
            ("crate a:", code("b c d", "b>c c>d d>b"), "form a circle"),
            (
                "crate a: f",
                code("b", ""),
                "crate a depends on nothing: f in the table",
            ),
            (
                "",
                code("b", ""),
                "crate a depends on nothing: no crate in the table",
            ),
        ] {
            let found = messages(table, &code);
            assert_eq!(found.is_empty(), expected.is_empty(), "{table}: {found:?}");
            assert!(
                found.iter().all(|message| message.contains(expected)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn lines_that_say_nothing_are_errors() {
        for text in ["b -> c", "modules of a\nb", "layer b: c", "x"] {
            assert!(Table::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_renewed_table_reads_back_keeps_reasons_and_places_what_is_new_where_it_fits() {
        let table = "modules of a\nlayer low: b gone\nlayer high: d\nb -> d  # why\nb -> gone\n";
        let code = code("b c d", "b>d c>b d>c");
        let renewed = Table::parse(table).unwrap().renewed(&code);
        let layers = &renewed.layered["a"];
        assert_eq!(layers.order().collect::<Vec<_>>(), ["b", "c", "d"]);
        let text = renewed.to_string();
        assert!(text.ends_with("layer high: d\nb -> d  # why\n"), "{text}");
        assert_eq!(Table::parse(&text).unwrap(), renewed);
        assert!(messages(&text, &code).is_empty());
    }
}
