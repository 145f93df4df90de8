//! Keys to flags: the whole plan, its short form, or a case.

use std::path::Path;

use clap::{Arg, ArgAction, Command};
use toml_edit::{Item, Table, Value};

use super::{Conf, Mistake};
use crate::command::flags;

/// Statements at one level of a plan.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) module: Option<String>,
    pub(super) conf: Option<Conf>,
    pub(super) flags: Vec<(String, Option<String>)>,
}

/// Manner in which a value becomes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The value stands behind the flag.
    Value,
    /// Each of a list behind the flag.
    List,
    /// The flag stands there if it is true.
    If,
    /// The flag stands there if it is false.
    Unless,
}

/// A table, a key in it, and its flag.
struct Key(&'static str, &'static str, &'static str, Form);

/// All keys but `module`, `conf`, `conf-file` and those of `put`.
const KEYS: &[Key] = &[
    Key("", "rounds", "rounds", Form::Value),
    Key("", "seed", "seed", Form::Value),
    Key("", "limits", "fail-if", Form::List),
    Key("", "claims", "no-claims", Form::Unless),
    Key("", "warm", "warm", Form::If),
    Key("servers", "a", "a", Form::Value),
    Key("servers", "b", "b", Form::Value),
    Key("servers", "only", "only", Form::Value),
    Key("servers", "judge", "judge", Form::Value),
    Key("servers", "under", "under", Form::Value),
    Key("servers", "cores", "cores", Form::Value),
    Key("servers", "https", "https", Form::If),
    Key("servers", "url", "url", Form::Value),
    Key("servers", "host", "host", Form::Value),
    Key("servers", "status-field", "status-field", Form::Value),
    Key("load", "users", "users", Form::Value),
    Key("load", "threads", "threads", Form::Value),
    Key("load", "requests", "requests", Form::Value),
    Key("load", "time", "time", Form::Value),
    Key("load", "rate", "rate", Form::Value),
    Key("load", "size", "size", Form::Value),
    Key("load", "objects", "objects", Form::Value),
    Key("load", "alpha", "alpha", Form::Value),
    Key("load", "ttl", "ttl", Form::Value),
    Key("load", "behind", "behind", Form::Value),
    Key("load", "asks", "asks", Form::Value),
    Key("load", "repeats", "repeats", Form::Value),
    Key("load", "inactive", "inactive", Form::Value),
    Key("load", "api", "api", Form::Value),
    Key("load", "zone", "zone", Form::Value),
    Key("load", "paths", "path", Form::List),
    Key("load", "against", "against", Form::Value),
    Key("load", "purge-method", "purge-method", Form::Value),
    Key("load", "timeout", "timeout", Form::Value),
    Key("load", "read-rate", "read-rate", Form::Value),
    Key("load", "protocol", "protocol", Form::Value),
    Key("load", "streams", "streams", Form::Value),
    Key("load", "ca", "ca", Form::Value),
    Key("load", "insecure", "insecure", Form::If),
    Key("load", "server-name", "server-name", Form::Value),
    Key("load", "reconnect", "reconnect", Form::If),
    Key("load", "resumption", "no-resumption", Form::Unless),
    Key("origin", "listen", "origin", Form::Value),
    Key("origin", "protocol", "origin-protocol", Form::Value),
    Key("origin", "https", "origin-https", Form::If),
    Key("origin", "delay", "delay", Form::Value),
    Key("origin", "jitter", "jitter", Form::Value),
    Key("origin", "rate", "origin-rate", Form::Value),
    Key("origin", "rate-total", "origin-rate-total", Form::Value),
    Key("origin", "failures", "failures", Form::Value),
    Key("origin", "cuts", "cuts", Form::Value),
    Key("origin", "change", "change", Form::Value),
    Key("origin", "ranges", "no-ranges", Form::Unless),
    Key("origin", "validators", "no-validators", Form::Unless),
    Key("origin", "cache-control", "cache-control", Form::Value),
];

/// Tables of a layer.
const TABLES: [&str; 4] = ["servers", "load", "origin", "put"];

impl Layer {
    /// Reads a level; keys in `others` are read elsewhere.
    pub(super) fn read(table: &Table, dir: &Path, others: &[&str]) -> Result<Self, Mistake> {
        let mut layer = Self::default();
        for (name, item) in table {
            let at = || Mistake::new(key_span(table, name), format!("{name}: no such key"));
            match name {
                name if others.contains(&name) => {}
                "module" => layer.module = Some(module(item)?),
                "conf" => layer.conf = Some(Conf::Text(text(name, item)?)),
                "conf-file" => layer.conf = Some(Conf::File(dir.join(text(name, item)?))),
                name if TABLES.contains(&name) => {
                    let Some(inner) = item.as_table() else {
                        return Err(at());
                    };
                    layer.table(name, inner)?;
                }
                name => layer.key("", name, item).ok_or_else(at)??,
            }
        }
        Ok(layer)
    }

    fn table(&mut self, table: &str, inner: &Table) -> Result<(), Mistake> {
        for (name, item) in inner {
            if table == "put" {
                let value = format!("{name}={}", text(name, item)?);
                self.flags.push(("put".to_owned(), Some(value)));
                continue;
            }
            let unknown = || {
                let text = format!("{name}: no such key in [{table}]");
                Mistake::new(key_span(inner, name), text)
            };
            self.key(table, name, item).ok_or_else(unknown)??;
        }
        Ok(())
    }

    /// Reads a key; none if there is no such key.
    fn key(&mut self, table: &str, name: &str, item: &Item) -> Option<Result<(), Mistake>> {
        let mut keys = KEYS.iter();
        let Key(_, _, flag, form) = keys.find(|key| key.0 == table && key.1 == name)?;
        Some(self.value(name, (flag, *form), item))
    }

    fn value(
        &mut self,
        name: &str,
        (flag, form): (&str, Form),
        item: &Item,
    ) -> Result<(), Mistake> {
        let wrong = |wanted: &str| Mistake::new(item.span(), format!("{name}: wanted {wanted}"));
        let mut add = |value: Option<String>| self.flags.push((flag.to_owned(), value));
        match form {
            Form::If | Form::Unless => {
                let is_set = item.as_bool().ok_or_else(|| wrong("true or false"))?;
                if is_set == (form == Form::If) {
                    add(None);
                }
            }
            Form::List => {
                let list = item.as_array().ok_or_else(|| wrong("a list"))?;
                for value in list {
                    add(Some(checked(name, flag, value)?));
                }
            }
            Form::Value => {
                let value = item.as_value().ok_or_else(|| wrong("a text or a number"))?;
                add(Some(checked(name, flag, value)?));
            }
        }
        Ok(())
    }
}

/// A value as its flag takes it.
fn checked(name: &str, flag: &str, value: &Value) -> Result<String, Mistake> {
    let word = word(value)
        .ok_or_else(|| Mistake::new(value.span(), format!("{name}: wanted a text or a number")))?;
    let known = flags("compare").into_iter().chain(flags("run"));
    match known.into_iter().find(|arg| arg.get_long() == Some(flag)) {
        Some(arg) => accepted(name, arg, &format!("--{flag}={word}"), value)?,
        None => return Err(Mistake::new(value.span(), format!("{name}: no such flag"))),
    }
    Ok(word)
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        _ => None,
    }
}

/// Asks the command line's own parser about one argument.
fn accepted(name: &str, arg: Arg, word: &str, value: &Value) -> Result<(), Mistake> {
    let action = match arg.get_action() {
        ArgAction::Append => ArgAction::Append,
        _ => ArgAction::Set,
    };
    let alone = Command::new("plan").no_binary_name(true);
    let alone = alone.arg(arg.action(action).required(false));
    let parsed = alone.try_get_matches_from([word]);
    parsed.map(drop).map_err(|error| {
        let said = error.to_string();
        let first = said.lines().next().unwrap_or_default();
        let said = first.strip_prefix("error: ").unwrap_or(first);
        Mistake::new(value.span(), format!("{name}: {said}"))
    })
}

fn module(item: &Item) -> Result<String, Mistake> {
    let name = text("module", item)?;
    let of_run = flags("run").into_iter();
    let arg = of_run.into_iter().find(|arg| arg.get_id() == "module");
    if let (Some(arg), Some(value)) = (arg, item.as_value()) {
        accepted("module", arg, &name, value)?;
    }
    Ok(name)
}

fn text(name: &str, item: &Item) -> Result<String, Mistake> {
    let wrong = || Mistake::new(item.span(), format!("{name}: wanted a text"));
    item.as_str().map(str::to_owned).ok_or_else(wrong)
}

fn key_span(table: &Table, name: &str) -> Option<std::ops::Range<usize>> {
    table.key(name).and_then(toml_edit::Key::span)
}
