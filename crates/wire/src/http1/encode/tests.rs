//! Heads that are written.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::header::Field;
use crate::http1::request::{InvalidNames, Limits, Progress, RequestParser};

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).expect("text")
}

#[test]
fn status_lines_are_those_of_nginx() {
    for (status, expected) in [
        (200, "HTTP/1.1 200 OK\r\n"),
        (206, "HTTP/1.1 206 Partial Content\r\n"),
        (302, "HTTP/1.1 302 Moved Temporarily\r\n"),
        (405, "HTTP/1.1 405 Not Allowed\r\n"),
        (504, "HTTP/1.1 504 Gateway Time-out\r\n"),
        (203, "HTTP/1.1 203 \r\n"),
        (299, "HTTP/1.1 299 \r\n"),
        (418, "HTTP/1.1 418 \r\n"),
        (499, "HTTP/1.1 499 \r\n"),
        (7, "HTTP/1.1 007 \r\n"),
        (77, "HTTP/1.1 077 \r\n"),
    ] {
        assert_eq!(written(|out| write_status(out, status)), expected);
    }
    assert_eq!(reason(404), Some("Not Found"));
    assert_eq!(reason(418), None);
    for (status, text, expected) in [
        (404, "404 Not Found", true),
        (404, "", true),
        (404, "404 Nope", false),
        (404, "404", false),
        (418, "418 ", false),
    ] {
        assert_eq!(is_usual(status, text.as_bytes()), expected, "{text}");
    }
    let line = written(|out| write_status_text(out, b"404 Gone\r\nX: fishing"));
    assert_eq!(line, "HTTP/1.1 404 Gone  X: fishing\r\n");
}

#[test]
fn statuses_of_the_configuration_go_out_as_bad_requests() {
    for (status, expected) in [
        (493, 493),
        (494, 400),
        (495, 400),
        (497, 400),
        (498, 498),
        (200, 200),
    ] {
        assert_eq!(wire_status(status), expected);
    }
}

#[test]
fn heads_are_written_as_given() {
    let mut fields = Fields::new();
    fields.push_known(Known::ETag, "\"a\"");
    fields.push(Field::new(Bytes::from("x-a"), Bytes::new()));
    let head = written(|out| write_response_head(out, 200, &fields));
    assert_eq!(head, "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nx-a: \r\n\r\n");
    let head = written(|out| {
        write_request_line(out, b"GET", b"/a?b", Version::Http10);
        write_known(out, Known::Host, b"c");
        write_content_length(out, 0);
        end_head(out);
    });
    assert_eq!(
        head,
        "GET /a?b HTTP/1.0\r\nHost: c\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn fields_are_written_together_as_they_are_one_by_one() {
    let field = |(name, value): (&'static str, &'static str)| {
        Field::new(Bytes::from(name), Bytes::from(value))
    };
    let good = [("ETag", "\"a\""), ("x-a", ""), ("X-Longer-Name", "b c")];
    for odd in [
        ("X: y", "b"),
        ("X-\x7f", "b"),
        ("X-C", "a\r\nb"),
        ("Date", "\0"),
    ] {
        for place in 0..=good.len() {
            let mut all: Vec<Field> = good.map(field).into();
            all.insert(place, field(odd));
            let expected = written(|out| {
                for field in &all {
                    write_field(out, &field.name, &field.value);
                }
            });
            let fields = all.into_iter().collect();
            assert_eq!(written(|out| write_fields(out, &fields)), expected);
        }
    }
    let fields = good.map(field).into_iter().collect();
    let lines = written(|out| write_fields(out, &fields));
    assert_eq!(lines, "ETag: \"a\"\r\nx-a: \r\nX-Longer-Name: b c\r\n");
}

#[test]
fn numbers_are_written_in_full() {
    for value in [0, 9, 10, 1234567890, u64::MAX] {
        assert_eq!(written(|out| write_number(out, value)), value.to_string());
    }
}

#[test]
fn nothing_in_a_part_can_end_its_line() {
    let line =
        written(|out| write_request_line(out, b"GE T\r\n", b"/a b\r\nX:\0\x7f", Version::Http11));
    assert_eq!(line, "GET /a%20b%0D%0AX:%00%7F HTTP/1.1\r\n");
    assert_eq!(
        written(|out| write_request_line(out, b"GET", b"", Version::Http11)),
        "GET / HTTP/1.1\r\n"
    );
    assert_eq!(
        written(|out| write_field(out, b"X: y\r\nZ", b"a\r\nb\0")),
        "XyZ: a  b \r\n"
    );
}

proptest! {
    #[test]
    fn any_fields_come_back_as_so_many_lines(
        parts in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 1..8), prop::collection::vec(any::<u8>(), 0..16)),
            0..8,
        ),
        target in prop::collection::vec(any::<u8>(), 0..16),
    ) {
        let mut out = BytesMut::new();
        let mut path = b"/".to_vec();
        path.extend(target);
        write_request_line(&mut out, b"GET", &path, Version::Http11);
        for (name, value) in &parts {
            // A first letter, so that something of the name is always left.
            let name: Vec<u8> = std::iter::once(b'x').chain(name.iter().copied()).collect();
            write_field(&mut out, &name, value);
        }
        end_head(&mut out);
        let limits = Limits { invalid: InvalidNames::Keep, ..Limits::default() };
        let Progress::Done(head) = RequestParser::new().parse(&mut out, &limits) else {
            return Err(TestCaseError::fail("not one head"));
        };
        prop_assert_eq!(head.fields().len(), parts.len());
        prop_assert!(out.is_empty());
    }
}
