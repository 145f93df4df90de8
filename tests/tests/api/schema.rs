//! Check that a value is what a schema describes: the part of JSON Schema that the document uses.
//!
//! A keyword that is not known here fails the test, so that nothing of the document goes unchecked.

use regex::Regex;
use serde_json::{Map, Value};

/// Keywords that say nothing of values.
const WORDS: [&str; 1] = ["description"];

/// The first thing that is not as it is described, with its place.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    Checker { document }.check(schema, value, "")
}

struct Checker<'a> {
    document: &'a Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let keywords = schema.as_object().expect("a schema is an object");
        for (keyword, wanted) in keywords {
            self.keyword(keywords, (keyword, wanted), value, at)?;
        }
        Ok(())
    }

    fn keyword(
        &self,
        all: &Map<String, Value>,
        (keyword, wanted): (&str, &Value),
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        let fail = |is_right: bool| {
            if is_right {
                Ok(())
            } else {
                Err(format!("{at}: {keyword} {wanted}, but {value}"))
            }
        };
        let number = wanted.as_i64();
        match keyword {
            "$ref" => {
                let pointer = wanted.as_str().and_then(|it| it.strip_prefix('#'));
                let schema = self.document.pointer(pointer.expect("a pointer"));
                self.check(schema.expect("what is pointed to"), value, at)
            }
            "type" => {
                let types = wanted.as_array().cloned().unwrap_or(vec![wanted.clone()]);
                fail(types.iter().any(|kind| is_a(value, kind)))
            }
            "enum" => fail(wanted.as_array().expect("a list").contains(value)),
            "minimum" => fail(value.as_f64().is_none_or(|it| Some(it as i64) >= number)),
            "maximum" => fail(value.as_f64().is_none_or(|it| Some(it as i64) <= number)),
            "minLength" => fail(
                value
                    .as_str()
                    .is_none_or(|it| Some(it.len() as i64) >= number),
            ),
            "pattern" => fail(value.as_str().is_none_or(|it| fits(wanted, it))),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.check(wanted, item, &format!("{at}/{index}"))?;
                }
                Ok(())
            }
            "required" => {
                let Some(members) = value.as_object() else {
                    return Ok(());
                };
                let names = wanted.as_array().expect("a list").iter();
                fail(
                    names
                        .filter_map(Value::as_str)
                        .all(|name| members.contains_key(name)),
                )
            }
            "oneOf" => {
                let schemas = wanted.as_array().expect("a list").iter();
                let fitting = schemas.filter(|it| self.check(it, value, at).is_ok());
                fail(fitting.count() == 1)
            }
            "properties" | "patternProperties" | "additionalProperties" => {
                self.members(all, value, at)
            }
            word if WORDS.contains(&word) => Ok(()),
            other => panic!("a schema has the keyword {other}"),
        }
    }

    fn members(&self, all: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
        for (name, member) in value.as_object().into_iter().flatten() {
            let at = format!("{at}/{name}");
            let by_name = all.get("properties").and_then(|it| it.get(name));
            let patterns = all.get("patternProperties").and_then(Value::as_object);
            let mut patterns = patterns.into_iter().flatten();
            let by_pattern =
                patterns.find(|(pattern, _)| fits(&Value::from(pattern.as_str()), name));
            let by_pattern = by_pattern.map(|(_, schema)| schema);
            match (by_name.or(by_pattern), all.get("additionalProperties")) {
                (Some(schema), _) => self.check(schema, member, &at)?,
                (None, Some(Value::Bool(false))) => return Err(format!("{at} is not described")),
                (None, Some(schema @ Value::Object(_))) => self.check(schema, member, &at)?,
                (None, _) => {}
            }
        }
        Ok(())
    }
}

fn is_a(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("a schema has the type {other}"),
    }
}

fn fits(pattern: &Value, text: &str) -> bool {
    let pattern = pattern.as_str().expect("a pattern");
    Regex::new(pattern).expect("a pattern").is_match(text)
}

#[test]
fn what_a_schema_forbids_is_found() {
    use serde_json::json;
    let document = json!({"x": {"type": "integer", "minimum": 0}});
    let schema = json!({
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"$ref": "#/x"}, "b": {"type": ["string", "null"], "pattern": "^z+$"}},
        "patternProperties": {"^p": {"enum": [1]}},
        "additionalProperties": false,
    });
    for (value, is_right) in [
        (json!({"a": 1}), true),
        (json!({"a": 1, "b": null, "pq": 1}), true),
        (json!({"a": -1}), false),
        (json!({"a": 1.5}), false),
        (json!({}), false),
        (json!([]), false),
        (json!({"a": 1, "b": "y"}), false),
        (json!({"a": 1, "c": 1}), false),
        (json!({"a": 1, "pq": 2}), false),
    ] {
        assert_eq!(
            check(&document, &schema, &value).is_ok(),
            is_right,
            "{value}"
        );
    }
}
