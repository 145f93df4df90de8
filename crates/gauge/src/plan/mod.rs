//! A plan: one document in TOML with everything that a run or a comparison needs.
//!
//! ```toml
//! module = "coalesce"                # what users do
//! seed = 1                           # where chances begin
//! rounds = 3
//! limits = ["origin.requests > 10"]  # --fail-if
//! conf = """…"""                     # the configuration of both servers; or conf-file = "cache.conf"
//!
//! [servers]                          # commands, and where and in what they run
//! a = "nginx -c {conf} -p {dir}"
//! b = "millpond -c {conf} -p {dir}"
//!
//! [load]                             # --users, --time, --size, …
//! users = 10
//!
//! [origin]                           # --delay, --origin-rate, …
//! delay = "100ms"
//!
//! [put]                              # what {lines} stands for
//! lines = ""
//!
//! [notes]                            # texts for people and programs that read plans
//! [brief]                            # what is different in the short form: tables as above
//! [brief.load]
//! size = "1m"
//!
//! [[case]]                           # the same with some of it different; none: one case
//! name = "lock"
//! brief = true                       # part of the short form
//! [case.put]
//! lines = "proxy_cache_lock on;"
//! ```
//!
//! - `layer` – keys to flags
//!
//! 1. A key that is not known, a value that its flag would not take, and a table in the wrong
//!    place are refused, with their line; a plan is used whole or not at all.
//! 2. Of what is said twice the later counts: the plan, its short form, the case, the command
//!    line.

mod layer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml_edit::{Document, Item, Table};

use self::layer::Layer;

/// Place of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conf {
    /// The text stands in the plan.
    Text(String),
    /// The text is in a file.
    File(PathBuf),
}

/// A plan.
#[derive(Debug)]
pub struct Plan {
    whole: Layer,
    brief: Layer,
    cases: Vec<(String, IsBrief, Layer)>,
    notes: BTreeMap<String, String>,
}

type IsBrief = bool;

/// A case with all that holds for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name of the case; none where the plan has no cases.
    pub name: String,
    /// Module of the case: the actions of the users.
    pub module: Option<String>,
    /// The configuration.
    pub conf: Option<Conf>,
    /// Flags of the command line without their hyphens, and what stands behind them.
    pub flags: Vec<(String, Option<String>)>,
}

impl Plan {
    /// Reads one.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let dir = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, dir).map_err(|Mistake { at, text: said }| {
            let line = text.get(..at).unwrap_or(&text).matches('\n').count() + 1;
            anyhow::anyhow!("{name}:{line}: {said}")
        })
    }

    fn parse(text: &str, dir: &Path) -> Result<Self, Mistake> {
        let document = Document::parse(text).map_err(|error| Mistake {
            at: error.span().map_or(0, |span| span.start),
            text: error.message().to_owned(),
        })?;
        let mut plan = Self {
            whole: Layer::read(document.as_table(), dir, &["notes", "brief", "case"])?,
            brief: Layer::default(),
            cases: Vec::new(),
            notes: BTreeMap::new(),
        };
        let table = document.as_table();
        if let Some(brief) = inner(table, "brief")? {
            plan.brief = Layer::read(brief, dir, &[])?;
        }
        if let Some(notes) = inner(table, "notes")? {
            plan.notes = texts(notes)?;
        }
        if let Some(item) = table.get("case") {
            let Some(cases) = item.as_array_of_tables() else {
                return Err(Mistake::new(item.span(), "a case begins with [[case]]"));
            };
            let mut names = BTreeSet::new();
            for case in cases {
                let layer = Layer::read(case, dir, &["name", "brief"])?;
                let name = case.get("name").and_then(Item::as_str);
                let name = name.filter(|name| !name.is_empty() && names.insert(name.to_string()));
                let Some(name) = name else {
                    let text = "a case has a name of its own";
                    return Err(Mistake::new(case.span(), text));
                };
                let is_brief = match case.get("brief") {
                    None => false,
                    Some(item) => item
                        .as_bool()
                        .ok_or_else(|| Mistake::new(item.span(), "brief: wanted true or false"))?,
                };
                plan.cases.push((name.to_owned(), is_brief, layer));
            }
        }
        Ok(plan)
    }

    /// Note that people wrote beside the case.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.get(name).map(String::as_str)
    }

    /// True if there is a case of that name.
    pub fn has_case(&self, name: &str) -> bool {
        self.cases.iter().any(|(known, ..)| known == name)
    }

    /// Names of the cases; those of the short form alone, if that is wanted.
    pub fn names(&self, is_brief: bool) -> Vec<&str> {
        let cases = self.cases.iter();
        let chosen = cases.filter(|(_, has_brief, _)| *has_brief || !is_brief);
        chosen.map(|(name, ..)| name.as_str()).collect()
    }

    /// Cases of these names, or all if there are none.
    pub fn chosen(&self, names: &[String], is_brief: bool) -> Vec<Case> {
        let base = if is_brief {
            vec![&self.whole, &self.brief]
        } else {
            vec![&self.whole]
        };
        if self.cases.is_empty() {
            return vec![merged(String::new(), &base)];
        }
        let cases = self.cases.iter().filter(|(name, has_brief, _)| {
            (names.is_empty() || names.contains(name)) && (*has_brief || !is_brief)
        });
        cases
            .map(|(name, _, own)| {
                let layers: Vec<&Layer> = base.iter().copied().chain([own]).collect();
                merged(name.clone(), &layers)
            })
            .collect()
    }
}

/// Layers over one another.
fn merged(name: String, layers: &[&Layer]) -> Case {
    let mut case = Case {
        name,
        module: None,
        conf: None,
        flags: Vec::new(),
    };
    for layer in layers {
        case.module = layer.module.clone().or(case.module);
        case.conf = layer.conf.clone().or(case.conf);
        case.flags.extend(layer.flags.iter().cloned());
    }
    case
}

/// A table in a table.
fn inner<'a>(table: &'a Table, name: &str) -> Result<Option<&'a Table>, Mistake> {
    let Some(item) = table.get(name) else {
        return Ok(None);
    };
    let wrong = || Mistake::new(item.span(), format!("{name} is a table: [{name}]"));
    item.as_table().map(Some).ok_or_else(wrong)
}

/// A table of texts.
fn texts(table: &Table) -> Result<BTreeMap<String, String>, Mistake> {
    let mut texts = BTreeMap::new();
    for (name, item) in table {
        let Some(text) = item.as_str() else {
            return Err(Mistake::new(item.span(), format!("{name}: wanted a text")));
        };
        texts.insert(name.to_owned(), text.to_owned());
    }
    Ok(texts)
}

/// Mistake in a plan, and its place.
#[derive(Debug)]
struct Mistake {
    at: usize,
    text: String,
}

impl Mistake {
    fn new(span: Option<std::ops::Range<usize>>, text: impl Into<String>) -> Self {
        Self {
            at: span.map_or(0, |span| span.start),
            text: text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
module = "coalesce"
rounds = 3
limits = ["origin.requests > 10", "faults > 0"]
conf = "listen {port};"

[servers]
a = "nginx"

[load]
users = 10
time = "2s"

[origin]
ranges = false
rate = "1m"

[put]
lines = ""

[brief.load]
time = "1s"

[notes]
title = "A title"

[[case]]
name = "off"

[[case]]
name = "on"
brief = true
conf-file = "lock.conf"
[case.put]
lines = "proxy_cache_lock on;"
"#;

    fn parsed(text: &str) -> Plan {
        Plan::parse(text, Path::new("plans")).expect("a plan")
    }

    fn values(case: &Case, flag: &str) -> Vec<String> {
        let of_flag = case.flags.iter().filter(|(name, _)| name == flag);
        of_flag
            .map(|(_, value)| value.clone().unwrap_or_default())
            .collect()
    }

    #[test]
    fn a_case_has_what_stands_in_the_plan_and_then_its_own() {
        let plan = parsed(PLAN);
        assert_eq!(plan.note("title"), Some("A title"));
        assert_eq!(plan.names(false), ["off", "on"]);
        let cases = plan.chosen(&[], false);
        assert_eq!(cases[0].conf, Some(Conf::Text("listen {port};".to_owned())));
        assert_eq!(
            cases[1].conf,
            Some(Conf::File(Path::new("plans/lock.conf").to_owned()))
        );
        assert_eq!(cases[1].module.as_deref(), Some("coalesce"));
        let on = &cases[1];
        assert_eq!(values(on, "fail-if").len(), 2);
        assert_eq!(values(on, "no-ranges"), [""]);
        assert_eq!(values(on, "origin-rate"), ["1m"]);
        assert_eq!(values(on, "put"), ["lines=", "lines=proxy_cache_lock on;"]);
        assert_eq!(values(on, "time"), ["2s"]);
    }

    #[test]
    fn the_short_form_has_its_own_cases_and_values() {
        let cases = parsed(PLAN).chosen(&[], true);
        assert_eq!(cases.len(), 1);
        assert_eq!(values(&cases[0], "time"), ["2s", "1s"]);
    }

    #[test]
    fn what_is_not_known_or_not_right_is_refused_at_its_place() {
        for (text, place, said) in [
            ("speed = 3\n", "speed", "no such key"),
            ("[load]\nuser = 3\n", "user =", "no such key"),
            ("[loads]\nusers = 3\n", "loads", "no such key"),
            ("[load]\nusers = \"many\"\n", "\"many\"", "invalid value"),
            ("[load]\nusers = { a = 1 }\n", "{ a", "wanted a text"),
            ("module = \"smoke\"\n", "\"smoke\"", "invalid value"),
            ("limits = [\"speed > 1\"]\n", "\"speed", "no such figure"),
            ("[origin]\nranges = 3\n", "3\n", "wanted true or false"),
            ("[[case]]\nbrief = true\n", "[[case]]", "a name of its own"),
            ("[[case]]\nname = \"a\"\n[case.lod]\n", "lod", "no such key"),
            ("[notes]\ntitle = 3\n", "3\n", "wanted a text"),
            ("rounds = \n", "\n", ""),
        ] {
            let mistake = Plan::parse(text, Path::new(".")).expect_err(text);
            let at = text.find(place).expect("the place");
            assert!(mistake.text.contains(said), "{text}: {}", mistake.text);
            assert!(
                text[..mistake.at].lines().count() == text[..at].lines().count()
                    || mistake.at == at,
                "{text}: {mistake:?}, wanted {at}"
            );
        }
    }
}
