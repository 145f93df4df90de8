//! JSON of tokens and keys, read strictly: a member that stands twice is none of it, and neither
//! is what is nested too deep.
//!
//! Two readers of one text must not see two values (RFC 8725 §2.4), and most take the last of two
//! members while some take the first.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Levels of nesting (arbitrary: claims have two or three).
const MAX_DEPTH: u32 = 32;

/// An object; none for anything else.
pub(super) fn object(text: &[u8]) -> Option<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Strict(MAX_DEPTH).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// The levels that may still be opened.
#[derive(Clone, Copy)]
struct Strict(u32);

impl Strict {
    fn inner<E: Error>(self) -> Result<Strict, E> {
        let left = self.0.checked_sub(1);
        left.map(Strict).ok_or_else(|| E::custom("too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without doubled members")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(inner)?;
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a member stands twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_objects_are_read() {
        let deep =
            |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        for (text, expected) in [
            (r#"{"a":1,"b":[true,null,-2,1.5,"x"]}"#.to_string(), true),
            (r#" {} "#.to_string(), true),
            (r#"{"a":1,"a":1}"#.to_string(), false),
            (r#"{"a":1,"\u0061":2}"#.to_string(), false),
            (r#"{"o":{"a":1,"a":2}}"#.to_string(), false),
            (r#"{"a":1}{"#.to_string(), false),
            (r#"[1]"#.to_string(), false),
            (r#"{"a":1,}"#.to_string(), false),
            (String::new(), false),
            (deep(31), true),
            (deep(32), false),
            (deep(100_000), false),
        ] {
            let shown = text.get(..40).unwrap_or(&text);
            assert_eq!(object(text.as_bytes()).is_some(), expected, "{shown}");
        }
    }
}
