//! `cache_site_info`: whose the sites are: owner, plan, whatever is written of them in a file.
//!
//! The file is read when a configuration is put into force, at the start and on HUP. It is TOML, or
//! JSON if its name ends so, with a table for each site; what stands in the table is passed on as
//! it is:
//!
//! ```text
//! ["shop.example"]
//! owner = "Shop Ltd"
//! plan = "gold"
//! ```
//!
//! 1. What cannot be read is told in the error log with its place, and changes nothing: the sites
//!    are described as before.
//! 2. A file is at most `FILE_MAX` long.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use millpond_cache::site::clean;
use millpond_conf::{Contexts, Statement};
use millpond_system::log::error::{self, Level};
use serde_json::{Map, Value};
use toml_edit::{Document, Item, Table};

use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::settings::Conf;
use crate::settings::declared::Declared;

/// Bytes of a file (arbitrary: a kilobyte for each of the sites that are told apart).
const FILE_MAX: u64 = 4 << 20;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "cache_site_info",
    contexts: Contexts::HTTP,
    syntax: "file",
    is_block: false,
    pass: Pass::First,
    doc: "A file that says whose the sites are: TOML, or JSON if its name ends in `.json`, with a \
          table for each site and in it whatever is to be known, such as `owner` and `plan`. It is \
          shown with the counters of the site. The file is read at the start and on each reload; \
          one that cannot be used is told in the error log, and what was read before stays. A site \
          that stands in it is counted by itself, whatever else asks for names.",
    apply: cache_site_info,
}];

fn cache_site_info(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [word] = statement.args.as_slice() else {
        let message = "invalid number of arguments in \"cache_site_info\" directive";
        return builder.error(statement.span, message);
    };
    if builder.of::<Declared>().site_info.is_some() {
        let message = "\"cache_site_info\" directive is duplicate";
        return builder.error(statement.span, message);
    }
    let path = builder.cx.prefix.join(&word.text);
    builder.of::<Declared>().site_info = Some(path);
}

/// Words about a site.
pub type Words = Map<String, Value>;

/// Words about sites, as they were read last.
#[derive(Debug, Default)]
pub struct SiteInfo(ArcSwap<HashMap<Bytes, Words>>);

impl SiteInfo {
    /// Reads the file of a configuration.
    pub fn read(&self, conf: &Conf) {
        let Some(path) = &conf.declared.site_info else {
            self.0.store(Arc::default());
            return;
        };
        match read(path) {
            Ok(sites) => self.0.store(Arc::new(sites)),
            Err(failure) => {
                let path = path.display();
                let message = format_args!("\"cache_site_info\": {failure} in \"{path}\"");
                error::process(Level::Error, message);
            }
        }
    }

    /// The sites that something is said of.
    pub fn names(&self) -> Vec<Bytes> {
        self.0.load().keys().cloned().collect()
    }

    /// Words about a site.
    pub fn of(&self, name: &[u8]) -> Option<Words> {
        self.0.load().get(name).cloned()
    }
}

/// The reason why a file is not used.
#[derive(Debug, thiserror::Error)]
enum InfoError {
    #[error("{}", error::os_error(.0))]
    Io(#[from] io::Error),
    #[error("more than {FILE_MAX} bytes")]
    TooLong,
    #[error("invalid TOML: {0}")]
    Toml(String),
    #[error("invalid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("site \"{0}\" is no table")]
    NoTable(String),
}

fn read(path: &Path) -> Result<HashMap<Bytes, Words>, InfoError> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(InfoError::TooLong);
    }
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    parse(&text, is_json)
}

fn parse(text: &str, is_json: bool) -> Result<HashMap<Bytes, Words>, InfoError> {
    let all: Words = if is_json {
        serde_json::from_str(text)?
    } else {
        let document = text.parse::<Document<String>>();
        let document = document.map_err(|error| InfoError::Toml(one_line(&error)))?;
        words(document.as_table())
    };
    let sites = all.into_iter().map(|(name, said)| match said {
        Value::Object(words) => Ok((clean(name.as_bytes()), words)),
        _ => Err(InfoError::NoTable(name)),
    });
    sites.collect()
}

/// The place and what was found there; the picture of it is for terminals.
fn one_line(error: &toml_edit::TomlError) -> String {
    let text = error.to_string();
    let place = text.lines().next().unwrap_or_default();
    let place = place.strip_prefix("TOML parse error ").unwrap_or(place);
    format!("{} {place}", error.message().replace('\n', ", "))
}

fn words(table: &Table) -> Words {
    let rows = table.iter();
    rows.map(|(name, item)| (name.to_string(), of_item(item)))
        .collect()
}

fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => of_value(value),
        Item::Table(table) => Value::Object(words(table)),
        Item::ArrayOfTables(tables) => tables
            .iter()
            .map(|table| Value::Object(words(table)))
            .collect(),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => Value::from(text.value().as_str()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Float(number) => Value::from(*number.value()),
        Toml::Boolean(truth) => Value::from(*truth.value()),
        Toml::Datetime(time) => Value::from(time.value().to_string()),
        Toml::Array(values) => values.iter().map(of_value).collect(),
        Toml::InlineTable(table) => {
            let rows = table.iter();
            let rows = rows.map(|(name, value)| (name.to_string(), of_value(value)));
            Value::Object(rows.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "[\"Shop.example\"]\nowner = \"Shop Ltd\"\nplan = { name = \"gold\", gb = 500 }\n\
                    since = 2024-05-01\ntags = [\"a\", 1.5, true]\n[b]\n";
        let json = "{\"shop.example\": {\"owner\": \"Shop Ltd\", \"since\": \"2024-05-01\", \
                    \"plan\": {\"name\": \"gold\", \"gb\": 500}, \
                    \"tags\": [\"a\", 1.5, true]}, \"b\": {}}";
        let (toml, json) = (parse(toml, false).unwrap(), parse(json, true).unwrap());
        assert_eq!(toml, json);
        assert_eq!(toml[&b"shop.example"[..]]["owner"], "Shop Ltd");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, is_json, expected) in [
            ("[a]\nowner = \n", false, "invalid TOML: "),
            ("[a]\n[a]\n", false, "line 2"),
            ("a = 1", false, "site \"a\" is no table"),
            ("{\"a\": 1}", true, "site \"a\" is no table"),
            ("[]", true, "invalid JSON: "),
            ("{\"a\": {\n", true, "line 2"),
        ] {
            let error = parse(text, is_json).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
