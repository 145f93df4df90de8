//! Heads of answers in HTTP/2 and HTTP/3: the fields that HTTP/1 writes, without those of a
//! connection.
//!
//! The server's name and the date are made by the same code as for HTTP/1, whose lines are cut.

use millpond_system::clock;
use millpond_wire::header::{Fields, Known};
use millpond_wire::{http2, http3};

use millpond_exchange::client::send::AnswerHead;

/// A protocol's writer of fields.
pub(in crate::downstream) trait FieldWriter {
    /// Adds a field with a known name.
    fn known(&mut self, known: Known, value: &[u8]);

    /// Adds fields, but for those of HTTP/1's connections.
    fn fields(&mut self, fields: &Fields);

    /// Adds the length of the body.
    fn content_length(&mut self, length: u64);
}

/// Has a protocol's writer do it.
macro_rules! writes_fields {
    ($writer:ty) => {
        impl FieldWriter for $writer {
            fn known(&mut self, known: Known, value: &[u8]) {
                <$writer>::known(self, known, value);
            }

            fn fields(&mut self, fields: &Fields) {
                <$writer>::fields(self, fields);
            }

            fn content_length(&mut self, length: u64) {
                <$writer>::content_length(self, length);
            }
        }
    };
}

writes_fields!(http2::HeadWriter<'_>);
writes_fields!(http3::HeadWriter<'_>);

/// Writes the fields of a head; the status is the machine's.
pub(in crate::downstream) fn write(out: &mut impl FieldWriter, head: &AnswerHead<'_>) {
    if let Some(tokens) = head.server {
        out.known(Known::Server, value_of(tokens.server_line()));
    }
    if let Some(us) = head.date_us {
        clock::with_date_line(us, b"", |line| out.known(Known::Date, value_of(line)));
    }
    out.fields(head.fields);
    if let Some(length) = head.content_length() {
        out.content_length(length);
    }
}

/// The value of a line as HTTP/1 has it.
fn value_of(line: &[u8]) -> &[u8] {
    let start = memchr::memchr(b':', line).map_or(0, |colon| colon + 1);
    line.get(start..).unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_between_the_first_colon_and_the_end_of_a_line() {
        assert_eq!(value_of(b"Server: a/1\r\n"), b"a/1");
        assert_eq!(
            value_of(b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
            b"Thu, 01 Jan 1970 00:00:00 GMT"
        );
        assert_eq!(value_of(b""), b"");
    }
}
