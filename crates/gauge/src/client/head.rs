//! The head of an answer: what of it matters to a client that checks.

use super::fault::Fault;
use crate::origin::GENERATION_FIELD;

/// Framing of a body: the way in which its end is told (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The answer has no body.
    Empty,
    /// The body ends by its length.
    Length(u64),
    /// The body ends by a chunk of no length.
    Chunked,
    /// The body ends with the connection.
    Close,
    /// The body ends with its stream (HTTP/2).
    Stream,
}

/// A head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status.
    pub status: u16,
    /// Framing of the body.
    pub framing: Framing,
    /// Value of `X-Generation`.
    pub generation: Option<u64>,
    /// Value of `Content-Range`: first, last, and length of the whole.
    pub content_range: Option<(u64, u64, u64)>,
    /// Value of the field with the cache status.
    pub cache_status: Option<String>,
    /// Value of `Age`, in seconds.
    pub age: Option<u64>,
    /// True if the connection ends after the answer.
    pub is_last: bool,
}

/// Part of a request's method that matters: has its answer a body?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Head,
    Other,
}

/// A head at the beginning of `bytes` and its length, if all of it is there.
pub(super) fn parse(
    bytes: &[u8],
    method: Method,
    status_field: &str,
) -> Result<Option<(Head, usize)>, Fault> {
    let mut fields = [httparse::EMPTY_HEADER; 256];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(bytes);
    let httparse::Status::Complete(used) =
        parsed.map_err(|error| Fault::Head(error.to_string()))?
    else {
        return Ok(None);
    };
    let mut fields = Fields::new(response.code.unwrap_or(0), status_field);
    fields.head.is_last = response.version == Some(0);
    for field in response.headers.iter() {
        fields.add(field.name, field.value)?;
    }
    let Fields {
        mut head,
        length,
        is_chunked,
        ..
    } = fields;
    head.framing = match (length, is_chunked) {
        _ if method == Method::Head || has_no_body(head.status) => Framing::Empty,
        (_, true) => Framing::Chunked,
        (Some(length), false) => Framing::Length(length),
        (None, false) => Framing::Close,
    };
    Ok(Some((head, used)))
}

/// The head of an answer in HTTP/2.
pub(super) fn of_stream(
    parts: &http::response::Parts,
    method: Method,
    status_field: &str,
) -> Result<Head, Fault> {
    let mut fields = Fields::new(parts.status.as_u16(), status_field);
    for (name, value) in &parts.headers {
        fields.add(name.as_str(), value.as_bytes())?;
    }
    let Fields {
        mut head, length, ..
    } = fields;
    head.framing = match length {
        _ if method == Method::Head || has_no_body(head.status) => Framing::Empty,
        Some(length) => Framing::Length(length),
        None => Framing::Stream,
    };
    Ok(head)
}

/// True if answers of a status have no body (RFC 9110, section 6.4.1).
fn has_no_body(status: u16) -> bool {
    status == 304 || status == 204 || status < 200
}

/// Fields of a head, as they are read.
struct Fields<'a> {
    head: Head,
    length: Option<u64>,
    is_chunked: bool,
    status_field: &'a str,
}

impl<'a> Fields<'a> {
    fn new(status: u16, status_field: &'a str) -> Self {
        Self {
            head: Head {
                status,
                framing: Framing::Empty,
                generation: None,
                content_range: None,
                cache_status: None,
                age: None,
                is_last: false,
            },
            length: None,
            is_chunked: false,
            status_field,
        }
    }

    fn add(&mut self, name: &str, value: &[u8]) -> Result<(), Fault> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let text = || std::str::from_utf8(value).unwrap_or_default().trim();
        let number = |name| {
            text().parse().map_err(|_| Fault::Field {
                name,
                found: text().to_owned(),
                wanted: "a number".to_owned(),
            })
        };
        let head = &mut self.head;
        if is("Content-Length") {
            self.length = Some(number("Content-Length")?);
        } else if is("Transfer-Encoding") {
            self.is_chunked = text().eq_ignore_ascii_case("chunked");
        } else if is(GENERATION_FIELD) {
            head.generation = Some(number(GENERATION_FIELD)?);
        } else if is("Content-Range") {
            head.content_range = content_range(text());
        } else if is("Connection") {
            head.is_last = text().eq_ignore_ascii_case("close");
        } else if is("Age") {
            head.age = text().parse().ok();
        } else if is(self.status_field) {
            head.cache_status = Some(text().to_owned());
        }
        Ok(())
    }
}

/// `bytes 0-9/100`.
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, len) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, len.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let parsed = parse(text.as_bytes(), Method::Other, "X-Cache-Status").expect("readable");
        parsed.expect("whole").0
    }

    #[test]
    fn what_tells_the_end_of_a_body_is_found() {
        for (fields, framing) in [
            ("200 OK\r\nContent-Length: 5\r\n", Framing::Length(5)),
            ("200 OK\r\nTransfer-Encoding: chunked\r\n", Framing::Chunked),
            ("200 OK\r\n", Framing::Close),
            ("304 Not Modified\r\nContent-Length: 5\r\n", Framing::Empty),
        ] {
            assert_eq!(
                head(&format!("HTTP/1.1 {fields}\r\n")).framing,
                framing,
                "{fields}"
            );
        }
    }

    #[test]
    fn fields_that_matter_are_read() {
        let head = head(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-9/100\r\nAge: 3\r\n\
             x-cache-status: HIT\r\nX-Generation: 4\r\nConnection: close\r\n\r\n",
        );
        assert_eq!(head.content_range, Some((5, 9, 100)));
        assert_eq!(
            (head.age, head.generation, head.is_last),
            (Some(3), Some(4), true)
        );
        assert_eq!(head.cache_status.as_deref(), Some("HIT"));
    }

    #[test]
    fn half_a_head_is_waited_for_and_a_broken_one_is_a_fault() {
        assert!(matches!(
            parse(b"HTTP/1.1 200 OK\r\nA: b", Method::Other, "X"),
            Ok(None)
        ));
        assert!(parse(b"SMTP/1.1 200 OK\r\n\r\n", Method::Other, "X").is_err());
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n";
        assert!(parse(text, Method::Other, "X").is_err());
    }
}
