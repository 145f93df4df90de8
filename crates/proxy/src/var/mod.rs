//! Variables: one record each, found by name when the configuration is read, evaluated by number.
//!
//! A name is interned while templates are parsed ([`VarId`]); [`VariableTable::build`] then says
//! what each number means: a built-in record, a record of a prefix family (`$http_*`), a map, or a
//! value that `set` and captures write. A name that means nothing is an error where it was used.
//!
//! Invariants:
//! 1. Evaluation never fails: it appends to a buffer and returns true, or finds nothing and returns
//!    false.
//! 2. The record of a built-in variable does not change the request.

pub mod absent;
pub mod connection;
mod evaluate;
pub mod number;
pub mod otel;
pub mod request;
pub mod response;
pub mod upstream;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::VarId;
use millpond_system::log::error::Level;
use millpond_wire::header::Known;

use crate::log::request_error;
use crate::request::{Request, Value};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::parts::{Part, Place};

/// The depth to which variables may use one another; deeper is a cycle (nginx: 100, but its frames
/// are small).
const MAX_LOOKUP_DEPTH: u8 = 40;

/// A built-in variable.
#[derive(Debug)]
pub struct Variable {
    /// Name, without `$`.
    pub name: &'static str,
    /// The variable's description, for the manual.
    pub doc: &'static str,
    /// Appends the value; false when there is none.
    pub write: fn(&Request, &mut Vec<u8>) -> bool,
}

/// A built-in variable whose value is one of a few words.
#[derive(Debug)]
pub struct WordVariable {
    /// Name, without `$`.
    pub name: &'static str,
    /// The variable's description, for the manual.
    pub doc: &'static str,
    /// The value, if there is one.
    pub word: fn(&Request) -> Option<&'static str>,
}

/// A built-in variable whose value is made from other variables, such as a path under `root`.
#[derive(Debug)]
pub struct ComposedVariable {
    /// Name, without `$`.
    pub name: &'static str,
    /// The variable's description, for the manual.
    pub doc: &'static str,
    /// Appends the value; false when there is none.
    pub write: fn(&mut Request, &mut Vec<u8>) -> bool,
}

/// A family of variables with a common prefix.
#[derive(Debug)]
pub struct VariableFamily {
    /// Prefix, such as `http_`.
    pub prefix: &'static str,
    /// The description of the family's variables, for the manual.
    pub doc: &'static str,
    /// Appends the value for the rest of the name (lower case); false when there is none.
    pub write: fn(&Request, &[u8], &mut Vec<u8>) -> bool,
}

/// The built-in variables, in lists as the files have them that compute them.
#[derive(Debug)]
pub struct Records {
    /// Plain ones.
    pub plain: &'static [&'static [Variable]],
    /// Those that are one of a few words.
    pub words: &'static [&'static [WordVariable]],
    /// Those that are made from others.
    pub composed: &'static [&'static [ComposedVariable]],
    /// Families.
    pub families: &'static [&'static [VariableFamily]],
}

impl Records {
    /// No variable.
    pub const NONE: &Records = &Records {
        plain: &[],
        words: &[],
        composed: &[],
        families: &[],
    };

    /// True if a name, in small letters, means something without being defined.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// True for a name, in small letters, that no family and no block gives.
    pub fn has_own(&self, name: &str) -> bool {
        self.names().any(|own| own == name) || absent::is_absent(name)
    }

    /// The names without families.
    pub fn names<'a>(&self) -> impl Iterator<Item = &'a str> {
        let plain = self.plain.iter().copied().flatten().map(|it| it.name);
        let words = self.words.iter().copied().flatten().map(|it| it.name);
        let composed = self.composed.iter().copied().flatten().map(|it| it.name);
        plain.chain(words).chain(composed)
    }

    /// The names, and those of families with `*` for the rest, with their descriptions.
    pub fn described(&self) -> impl Iterator<Item = (Cow<'static, str>, &'static str)> {
        let of = |name: &'static str, doc| (Cow::Borrowed(name), doc);
        let plain = self.plain.iter().copied().flatten();
        let words = self.words.iter().copied().flatten();
        let composed = self.composed.iter().copied().flatten();
        let families = self.families.iter().copied().flatten();
        let plain = plain.map(move |it| of(it.name, it.doc));
        let words = words.map(move |it| of(it.name, it.doc));
        let composed = composed.map(move |it| of(it.name, it.doc));
        let families = families.map(|it| (format!("{}*", it.prefix).into(), it.doc));
        plain.chain(words).chain(composed).chain(families)
    }

    fn find(&self, name: &str) -> Option<Meaning> {
        let mut plain = self.plain.iter().copied().flatten();
        if let Some(variable) = plain.find(|variable| variable.name == name) {
            return Some(Meaning::Builtin(variable));
        }
        let mut words = self.words.iter().copied().flatten();
        if let Some(variable) = words.find(|variable| variable.name == name) {
            return Some(Meaning::Word(variable));
        }
        let mut composed = self.composed.iter().copied().flatten();
        if let Some(variable) = composed.find(|variable| variable.name == name) {
            return Some(Meaning::Composed(variable));
        }
        if absent::is_absent(name) {
            return Some(Meaning::Absent);
        }
        let mut families = self.families.iter().copied().flatten();
        let family = families.find(|family| name.starts_with(family.prefix))?;
        let rest = name.strip_prefix(family.prefix)?;
        if family.prefix == request::FIELD_PREFIX {
            let name: Arc<[u8]> = Arc::from(rest.as_bytes());
            return Some(Meaning::Field(request::known_of(&name), name));
        }
        Some(Meaning::Member(family, Arc::from(rest.as_bytes())))
    }
}

/// A variable that a block computes (`map`, `split_clients`, `geo`).
pub trait Computed: Debug + Send + Sync {
    /// The value for a request.
    fn evaluate(&self, req: &mut Request) -> Bytes;

    /// True if the value is kept for the rest of the request.
    fn is_cached(&self) -> bool;
}

/// The meaning of a variable's number.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// A built-in record.
    Builtin(&'static Variable),
    /// A built-in record of few words.
    Word(&'static WordVariable),
    /// A built-in record that is made from other variables.
    Composed(&'static ComposedVariable),
    /// A field of the request: its name with hyphens, and as the variable has it.
    Field(Known, Arc<[u8]>),
    /// A member of another family, with the rest of its name.
    Member(&'static VariableFamily, Arc<[u8]>),
    /// Defined by a block that computes it (`map`, `split_clients`, `geo`).
    Lookup(Arc<dyn Computed>),
    /// Written by `set`; reading it before is worth a warning.
    Set,
    /// Written by captures and their like.
    Stored,
    /// Accepted for nginx's sake, without a value.
    Absent,
}

/// Settings of variables.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, if_location, if_server)]
pub struct VariablePolicy {
    /// Logs as a warning the use of a variable that `set` names, but that no `set` has been run
    /// for.
    #[directive(name = "uninitialized_variable_warn", default = "on")]
    pub warn_uninitialized: bool,
}

impl Part for VariablePolicy {
    const PLACE: Place = Place::VariableSettings;
}

/// The meaning of every variable of a configuration.
#[derive(Debug)]
pub struct VariableTable {
    records: &'static Records,
    meanings: Vec<Meaning>,
    names: Vec<Box<str>>,
}

impl Part for VariableTable {
    const PLACE: Place = Place::Variables;
}

/// The thing that the configuration defines a name as.
#[derive(Clone, Debug)]
pub enum Definition {
    /// A block that computes the variable.
    Lookup(Arc<dyn Computed>),
    /// `set`.
    Set,
    /// A named capture.
    Stored,
}

/// The names that blocks and `set` define.
#[derive(Debug, Default)]
struct Definitions(HashMap<VarId, Definition>);

/// Defines a variable of the configuration.
pub fn define(builder: &mut Builder, id: VarId, definition: Definition) {
    builder.of::<Definitions>().0.insert(id, definition);
}

/// Makes a variable one that `set` writes, unless a block computes it already.
pub fn define_set(builder: &mut Builder, id: VarId) {
    let known = &mut builder.of::<Definitions>().0;
    if !matches!(known.get(&id), Some(Definition::Lookup(_))) {
        known.insert(id, Definition::Set);
    }
}

/// The thing that the configuration defines a variable as.
pub fn definition(builder: &Builder, id: VarId) -> Option<Definition> {
    let known = builder.get().and_then(|Definitions(known)| known.get(&id));
    let stored = || Some(Definition::Stored).filter(|_| builder.cx.variables.is_stored(id));
    known.cloned().or_else(stored)
}

/// All variables that the configuration defines.
pub fn defined(builder: &Builder) -> impl Iterator<Item = VarId> {
    let known: Option<&Definitions> = builder.get();
    let known = known.into_iter().flat_map(|known| known.0.keys());
    known.copied().chain(builder.cx.variables.stored())
}

impl Default for VariableTable {
    fn default() -> Self {
        VariableTable {
            records: Records::NONE,
            meanings: Vec::new(),
            names: Vec::new(),
        }
    }
}

impl VariableTable {
    /// Finds the meaning of every interned name, in the order of their numbers; the names that mean
    /// nothing are returned.
    pub fn build<'a>(
        records: &'static Records,
        names: impl Iterator<Item = &'a str>,
        defined: impl Fn(VarId) -> Option<Definition>,
    ) -> (VariableTable, Vec<VarId>) {
        let mut unknown = Vec::new();
        let mut meanings = Vec::new();
        let mut kept = Vec::new();
        for (number, name) in names.enumerate() {
            kept.push(Box::from(name));
            let id = VarId(number as u32);
            let meaning = match defined(id) {
                Some(Definition::Lookup(lookup)) => Meaning::Lookup(lookup),
                Some(Definition::Set) => records.find(name).unwrap_or(Meaning::Set),
                Some(Definition::Stored) => records.find(name).unwrap_or(Meaning::Stored),
                None => records.find(name).unwrap_or_else(|| {
                    unknown.push(id);
                    Meaning::Stored
                }),
            };
            meanings.push(meaning);
        }
        let table = VariableTable {
            records,
            meanings,
            names: kept,
        };
        (table, unknown)
    }

    /// The name of a variable.
    pub fn name(&self, id: VarId) -> &str {
        self.names.get(id.0 as usize).map_or("", |name| name)
    }

    /// The number of a name.
    pub fn find(&self, name: &str) -> Option<VarId> {
        let number = self.names.iter().position(|known| &**known == name)?;
        Some(VarId(number as u32))
    }

    /// True for a variable that has no meaning but the values that it is given.
    pub fn is_stored(&self, id: VarId) -> bool {
        let meaning = self.meanings.get(id.0 as usize);
        matches!(meaning, Some(Meaning::Set | Meaning::Stored))
    }

    /// Number of variables.
    pub fn len(&self) -> usize {
        self.meanings.len()
    }

    /// True when no variable is used.
    pub fn is_empty(&self) -> bool {
        self.meanings.is_empty()
    }
}

/// Appends the value of the variable of a name, in small letters, that the answer itself asks for;
/// false when there is none.
pub fn write_named(req: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    if let Some(id) = req.conf.parts.of::<VariableTable>().find(name) {
        return write(req, id, out);
    }
    match req.conf.parts.of::<VariableTable>().records.find(name) {
        Some(Meaning::Builtin(variable)) => (variable.write)(req, out),
        Some(Meaning::Word(variable)) => append_word((variable.word)(req), out),
        Some(Meaning::Field(known, name)) => request::write_field((known, &name), req, out),
        Some(Meaning::Member(family, rest)) => (family.write)(req, &rest, out),
        Some(Meaning::Composed(variable)) => (variable.write)(req, out),
        _ => false,
    }
}

/// The presence of a variable's value (true: it has one), if that can be told without a change of
/// the request.
pub type Plain = Option<bool>;

/// Appends the value of a variable that needs no more than the request as it is; `None` for one
/// that may compute and keep others, of which nothing is appended.
pub fn write_plain(req: &Request, id: VarId, out: &mut Vec<u8>) -> Plain {
    if let Some(value) = req.values.find(id) {
        return Some(append_value(&value, out));
    }
    match req
        .conf
        .parts
        .of::<VariableTable>()
        .meanings
        .get(id.0 as usize)
    {
        Some(Meaning::Builtin(variable)) => Some((variable.write)(req, out)),
        Some(Meaning::Word(variable)) => Some(append_word((variable.word)(req), out)),
        Some(Meaning::Field(known, name)) => Some(request::write_field((*known, name), req, out)),
        Some(Meaning::Member(family, rest)) => Some((family.write)(req, rest, out)),
        Some(Meaning::Composed(_) | Meaning::Lookup(_) | Meaning::Set) => None,
        Some(Meaning::Stored | Meaning::Absent) | None => Some(false),
    }
}

/// The value of a variable that is one of a few words now; empty if it has none.
pub fn word(req: &Request, id: VarId) -> Option<&'static str> {
    match req
        .conf
        .parts
        .of::<VariableTable>()
        .meanings
        .get(id.0 as usize)
    {
        Some(Meaning::Word(variable)) if req.values.find(id).is_none() => {
            Some((variable.word)(req).unwrap_or_default())
        }
        _ => None,
    }
}

/// The value of a variable that stands in the request as it is; only some do.
pub fn lend(req: &Request, id: VarId) -> Option<&[u8]> {
    match req
        .conf
        .parts
        .of::<VariableTable>()
        .meanings
        .get(id.0 as usize)
    {
        Some(Meaning::Builtin(variable)) if req.values.find(id).is_none() => {
            (variable.name == request::HOST).then(|| request::host(req))
        }
        _ => None,
    }
}

fn append_word(word: Option<&str>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(word.unwrap_or_default().as_bytes());
    word.is_some()
}

fn append_value(value: &Value, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Found(bytes) => {
            out.extend_from_slice(bytes);
            true
        }
        Value::NotFound => false,
    }
}

/// Appends a variable's value to `out`; false when there is none.
pub fn write(req: &mut Request, id: VarId, out: &mut Vec<u8>) -> bool {
    if let Some(is_found) = write_plain(req, id, out) {
        return is_found;
    }
    match req
        .conf
        .parts
        .of::<VariableTable>()
        .meanings
        .get(id.0 as usize)
    {
        Some(Meaning::Composed(variable)) => {
            let write = variable.write;
            guarded(req, id, |req| write(req, out)).unwrap_or(false)
        }
        Some(Meaning::Lookup(lookup)) => {
            let lookup = Arc::clone(lookup);
            write_lookup(req, id, &*lookup, out)
        }
        Some(Meaning::Set) => {
            warn_uninitialized(req, id);
            req.set_value(id, Value::Found(Bytes::new()));
            true
        }
        Some(
            Meaning::Builtin(_)
            | Meaning::Word(_)
            | Meaning::Field(..)
            | Meaning::Member(..)
            | Meaning::Stored
            | Meaning::Absent,
        )
        | None => false,
    }
}

/// Forgets what maps and their like came to, for a request that has become another one.
pub fn forget_lookups(req: &Request) {
    let meanings = &req.conf.parts.of::<VariableTable>().meanings;
    let numbered = (0..).map(VarId).zip(meanings);
    for (id, _) in numbered.filter(|(_, meaning)| matches!(meaning, Meaning::Lookup(_))) {
        req.values.forget(id);
    }
}

fn write_lookup(req: &mut Request, id: VarId, lookup: &dyn Computed, out: &mut Vec<u8>) -> bool {
    let Some(value) = guarded(req, id, |req| lookup.evaluate(req)) else {
        return false;
    };
    out.extend_from_slice(&value);
    if lookup.is_cached() {
        req.set_value(id, Value::Found(value));
    }
    true
}

/// Evaluates what may lead to other variables; `None` when it leads back to itself.
fn guarded<T>(req: &mut Request, id: VarId, evaluate: impl FnOnce(&mut Request) -> T) -> Option<T> {
    // A cycle is left at once: each round may branch, so that going on would take for ever.
    if req.lookup.has_cycle {
        return None;
    }
    if req.lookup.depth >= MAX_LOOKUP_DEPTH {
        req.lookup.has_cycle = true;
        let name = req.conf.parts.of::<VariableTable>().name(id);
        let message = format_args!("cycle while evaluating variable \"{name}\"");
        request_error::write(req, Level::Error, message);
        return None;
    }
    req.lookup.depth += 1;
    let value = evaluate(req);
    req.lookup.depth -= 1;
    if req.lookup.depth == 0 {
        req.lookup.has_cycle = false;
    }
    Some(value)
}

fn warn_uninitialized(req: &Request, id: VarId) {
    if req
        .location
        .settings
        .of::<VariablePolicy>()
        .warn_uninitialized
    {
        let name = req.conf.parts.of::<VariableTable>().name(id);
        let message = format_args!("using uninitialized \"{name}\" variable");
        request_error::write(req, Level::Warn, message);
    }
}
