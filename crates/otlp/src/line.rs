//! A line of a log, encoded as it is told.
//!
//! | field of `LogRecord` | number | | field | number |
//! |---|---|---|---|---|
//! | `time_unix_nano` | 1 | | `body` | 5 |
//! | `severity_number` | 2 | | `attributes` | 6 |
//! | `severity_text` | 3 | | `observed_time_unix_nano` | 11 |

use bytes::Bytes;

use crate::attribute::{self, Value};
use crate::protobuf::{put_fixed64, put_message, put_text, put_varint};

/// A line that is written.
#[derive(Debug)]
pub struct Line(Vec<u8>);

impl Line {
    /// A line of a time, in microseconds since 1970, and a severity by its number (1 to 24, the
    /// most severe last) and its name.
    #[must_use]
    pub fn new(time_us: i64, (number, name): (u8, &str), message: &[u8]) -> Self {
        let nanos = u64::try_from(time_us).unwrap_or(0).saturating_mul(1000);
        let mut out = Vec::with_capacity(256);
        put_fixed64(&mut out, 1, nanos);
        put_fixed64(&mut out, 11, nanos);
        put_varint(&mut out, 2, number.into());
        put_text(&mut out, 3, name.as_bytes());
        put_message(&mut out, 5, |out| put_text(out, 1, message));
        Line(out)
    }

    /// Adds an attribute.
    pub fn text(&mut self, key: &str, text: &[u8]) {
        attribute::put(&mut self.0, 6, (key, Value::Text(text)));
    }

    /// The bytes of the line.
    #[must_use]
    pub fn finish(self) -> Bytes {
        Bytes::from(self.0)
    }
}
