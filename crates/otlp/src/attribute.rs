//! Attributes: names with values, as resources and spans have them.
//!
//! | message | field | number |
//! |---|---|---|
//! | `KeyValue` | `key`, `value` | 1, 2 |
//! | `AnyValue` | `string_value`, `bool_value`, `int_value`, `array_value` | 1, 2, 3, 5 |
//! | `ArrayValue` | `values` | 1 |

use crate::protobuf::{put_message, put_text, put_varint};

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A text.
    Text(&'a [u8]),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
    /// A list of one text, as fields of HTTP have it.
    List(&'a [u8]),
}

/// Appends an attribute as a field of a message.
pub(crate) fn put(out: &mut Vec<u8>, field: u32, (key, value): (&str, Value<'_>)) {
    put_message(out, field, |out| {
        put_text(out, 1, key.as_bytes());
        put_message(out, 2, |out| match value {
            Value::Text(text) => put_text(out, 1, text),
            // Two's complement, as int64 has it.
            Value::Number(number) => put_varint(out, 3, number as u64),
            Value::Flag(flag) => put_varint(out, 2, flag.into()),
            Value::List(text) => put_message(out, 5, |out| {
                put_message(out, 1, |out| put_text(out, 1, text));
            }),
        });
    });
}
