//! Heads of answers in HTTP/2: the fields that HTTP/1 writes, without those of a connection.
//!
//! The server's name and the date are made by the same code as for HTTP/1, whose lines are cut.

use millpond_system::clock;
use millpond_wire::header::Known;
use millpond_wire::http2::HeadWriter;

use crate::downstream::send::AnswerHead;

/// Writes the fields of a head; the status is the machine's.
pub(super) fn write(out: &mut HeadWriter<'_>, head: &AnswerHead<'_>) {
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
