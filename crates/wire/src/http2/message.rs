//! Fields of a message that are no request: answers and trailers.
//!
//! 1. What comes out has no pseudo field, no field of an HTTP/1 connection, no name or value that a
//!    field cannot have: else it is no message (RFC 9113 §8.1.1).
//!
//! Names that are known are written as usual, all others in small letters.

use bytes::BytesMut;
use smallvec::SmallVec;

use super::hpack::decode::{Decoded, Sink};
use super::hpack::encode::OF_CONNECTIONS;
use super::hpack::name::Class;
use crate::head::content_length;
use crate::head::place::{FieldLine, NameKind, Span};
use crate::header::{Fields, Known};

/// The length of a body, as its head says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    None,
    /// The body has so many bytes.
    Known(u64),
    /// As many as come.
    Unknown,
}

/// The kind of message that fields are read of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The head of an answer.
    Answer,
    /// Fields behind a body.
    Trailers,
}

/// Fields that were read.
#[derive(Debug)]
pub(crate) struct Message {
    /// The status of an answer; zero for trailers.
    pub(crate) status: u16,
    pub(crate) fields: Fields,
}

/// A message that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Takes the fields of a block.
#[derive(Debug)]
pub(crate) struct MessageReader {
    part: Part,
    text: BytesMut,
    spans: SmallVec<[Span; 16]>,
    status: Option<u16>,
    is_malformed: bool,
    /// Fields that there may be.
    most: usize,
}

impl MessageReader {
    /// A reader of so many fields at most.
    pub(crate) fn new(part: Part, most: usize) -> Self {
        MessageReader {
            part,
            text: BytesMut::new(),
            spans: SmallVec::new(),
            status: None,
            is_malformed: false,
            most,
        }
    }

    /// The message.
    pub(crate) fn finish(self) -> Result<Message, Malformed> {
        let has_status = self.status.is_some();
        if self.is_malformed || has_status != (self.part == Part::Answer) {
            return Err(Malformed);
        }
        let text = self.text.freeze();
        let fields = self.spans.iter().map(|span| span.to_field(&text));
        Ok(Message {
            status: self.status.unwrap_or(0),
            fields: fields.collect(),
        })
    }

    /// Takes a field; none if the message is malformed by it.
    fn add(&mut self, field: Decoded<'_>) -> Option<()> {
        let known = match field.class {
            Class::Status if self.part == Part::Answer => return self.add_status(field.value),
            Class::Field(known) => known,
            Class::Underscored | Class::Odd => Known::Other,
            _ => return None,
        };
        let is_good = field.is_good && !OF_CONNECTIONS.contains(known);
        if !is_good || self.spans.len() >= self.most {
            return None;
        }
        // RFC 9113 §8.1.1.
        if known == Known::ContentLength {
            content_length(field.value)?;
        }
        let start = self.text.len();
        self.text.extend_from_slice(field.name);
        self.text.extend_from_slice(field.value);
        let name_len = field.name.len();
        let line = FieldLine {
            name_len,
            kind: NameKind::Plain,
            value: name_len..name_len + field.value.len(),
        };
        let span = Span::new(start, &line, known)?;
        self.spans.push(match known {
            Known::Other => span,
            _ => span.spelled_as_usual(),
        });
        Some(())
    }

    /// RFC 9113 §8.3.2: one, before all fields, of three digits; and §8.6: not 101.
    fn add_status(&mut self, value: &[u8]) -> Option<()> {
        let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = value else {
            return None;
        };
        let digit = |byte: &u8| u16::from(byte - b'0');
        let status = digit(a) * 100 + digit(b) * 10 + digit(c);
        let is_first = self.status.is_none() && self.spans.is_empty();
        self.status = Some(status);
        (is_first && status != 101).then_some(())
    }
}

impl Sink for MessageReader {
    fn take(&mut self, field: Decoded<'_>) {
        if !self.is_malformed {
            self.is_malformed = self.add(field).is_none();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pair = (&'static str, &'static str);

    fn read(part: Part, list: &[Pair]) -> Result<Message, Malformed> {
        let mut reader = MessageReader::new(part, 5);
        for (name, value) in list {
            reader.take(Decoded {
                class: Class::of(name.as_bytes()),
                name: name.as_bytes(),
                value: value.as_bytes(),
                is_good: super::super::hpack::name::is_good_value(value.as_bytes()),
            });
        }
        reader.finish()
    }

    /// RFC 9113 §8.3.2.
    #[test]
    fn an_answer_has_one_status_before_its_fields() {
        let ok = (":status", "200");
        let message = read(Part::Answer, &[ok, ("content-type", "a/b"), ("x-a", "1")]).unwrap();
        assert_eq!(message.status, 200);
        let names: Vec<_> = message.fields.iter().map(|field| &field.name[..]).collect();
        assert_eq!(names, [&b"Content-Type"[..], b"x-a"]);
        for list in [
            &[][..],
            &[("x-a", "1")],
            &[ok, ok],
            &[("x-a", "1"), ok],
            &[(":status", "20")],
            &[(":status", "020")],
            &[(":status", "2000")],
            &[(":status", "101")],
            &[ok, (":path", "/")],
            &[ok, (":other", "/")],
        ] {
            assert!(read(Part::Answer, list).is_err(), "{list:?}");
        }
    }

    /// RFC 9113 §8.1, §8.2.1, §8.2.2.
    #[test]
    fn fields_that_http2_does_not_have_make_a_message_malformed() {
        for field in [
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("X-A", "1"),
            ("x a", "1"),
            ("x-a", "1\r\n"),
            ("x-a", " 1"),
            (":status", "200"),
            (":path", "/"),
            ("content-length", "x"),
        ] {
            assert!(read(Part::Trailers, &[field]).is_err(), "{field:?}");
        }
        assert!(read(Part::Trailers, &[("x-a", "1"); 5]).is_ok());
        assert!(
            read(Part::Trailers, &[("x-a", "1"); 6]).is_err(),
            "too many"
        );
        assert!(read(Part::Trailers, &[]).unwrap().fields.is_empty());
    }
}
