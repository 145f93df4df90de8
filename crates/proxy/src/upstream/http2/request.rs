//! The head of a request as HTTP/2 has it.
//!
//! A head is written once for all peers, as HTTP/1 text; each connection compresses its lines into
//! its own table. The writer of the text makes every name and value one line, so that nothing is
//! judged here: the first line is the method and the target, Host the authority, and each other
//! line a field. The engine leaves out what is about an HTTP/1 connection.

use millpond_wire::http2::{Connection as Engine, End, RequestLine};

use super::super::request::Prepared;

/// The end of a line.
const LINE_END: &[u8] = b"\r\n";
/// The end of a name.
const NAME_END: &[u8] = b": ";
/// The line with the authority.
const HOST: &[u8] = b"host";

/// The lines of a head.
#[derive(Clone, Debug)]
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (line, rest) = split(self.0, LINE_END)?;
        self.0 = rest;
        // The empty line ends the head.
        (!line.is_empty()).then_some(line)
    }
}

/// The parts before the first `mark`, and behind it.
fn split<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, mark)?;
    let (before, rest) = text.split_at(at);
    Some((before, rest.get(mark.len()..)?))
}

/// Name and value of a line.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    split(line, NAME_END).unwrap_or((line, b""))
}

/// Opens the stream of a request; none if the peer lets none be opened.
pub(super) fn open(engine: &mut Engine, prepared: &Prepared) -> Option<u32> {
    let mut lines = Lines(&prepared.head);
    let (method, rest) = split(lines.next()?, b" ")?;
    let path = memchr::memrchr(b' ', rest).and_then(|at| rest.get(..at))?;
    let fields = lines.map(field);
    let is_host = |name: &[u8]| name.eq_ignore_ascii_case(HOST);
    let authority = fields.clone().find(|(name, _)| is_host(name));
    let line = RequestLine {
        method,
        scheme: if prepared.encryption.is_some() {
            b"https"
        } else {
            b"http"
        },
        authority: authority.map_or(b"", |(_, host)| host),
        path,
    };
    let end = if prepared.body.is_empty() {
        End::WithHead
    } else {
        End::Later
    };
    engine.open(&line, end, |head| {
        for (name, value) in fields.filter(|(name, _)| !is_host(name)) {
            head.any(name, value);
        }
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millpond_wire::head::Method;
    use millpond_wire::http2::{BodyLength, Config, Event, Role};

    use super::super::super::request::{OutBody, OutFraming};
    use super::*;

    /// The head of a request as a server reads it.
    fn read(head: &'static str, body: OutBody) -> (String, Vec<String>, bool) {
        let prepared = Prepared {
            head: Bytes::from_static(head.as_bytes()),
            body,
            framing: OutFraming::Plain,
            method: Method::Get,
            encryption: None,
        };
        let mut client = Engine::new(Role::Client, Config::default());
        assert_eq!(open(&mut client, &prepared), Some(1));
        let mut server = Engine::new(Role::Server, Config::default());
        let mut bytes = bytes::BytesMut::new();
        while let Some(piece) = client.output().take() {
            bytes.extend_from_slice(&piece);
        }
        let mut heads = Vec::new();
        let mut is_ended = false;
        while let Some(event) = server.next_event(&mut bytes, std::time::Duration::ZERO) {
            match event {
                Event::Request { head, body, .. } => {
                    heads.push(head);
                    is_ended = body == BodyLength::None;
                }
                Event::Refused { refused, .. } => panic!("{:?}", refused.why),
                _ => {}
            }
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let head = &heads[0];
        let fields = head
            .fields()
            .map(|field| format!("{}={}", text(field.name), text(field.value)))
            .collect();
        (text(head.line()), fields, is_ended)
    }

    /// RFC 9113 §8.2.1, §8.2.2, §8.3.1.
    #[test]
    fn lines_become_fields_without_those_of_connections() {
        let head = "GET /a?b HTTP/1.1\r\nHost: a.example\r\nX-A: 1: 2\r\nConnection: close\r\n\
                    Transfer-Encoding: chunked\r\nX-Empty: \r\nTE: trailers\r\n\r\n";
        let (line, fields, is_ended) = read(head, OutBody::None);
        assert_eq!(line, "GET /a?b HTTP/2.0");
        let expected = ["x-a=1: 2", "x-empty=", "te=trailers", "host=a.example"];
        let lower: Vec<_> = fields.iter().map(|it| it.to_lowercase()).collect();
        assert_eq!(lower, expected);
        assert!(is_ended);
    }

    #[test]
    fn a_body_that_is_to_come_leaves_the_stream_open() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\n\r\n";
        let body = OutBody::Client {
            length: None,
            first: Bytes::new(),
        };
        assert!(!read(head, body).2);
        assert!(read(head, OutBody::Memory(Bytes::new())).2);
    }
}
