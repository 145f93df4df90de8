//! Heads of answers without a status line: those of CGI, which FastCGI, SCGI and uwsgi share.
//!
//! The Status field says the status; without it an answer with a Location is a 302, and any other
//! a 200. A status line among the fields is passed over, as nginx does.
//!
//! Source: RFC 3875 §6, but for the answers to be made locally (§6.2.2), which nginx does not know.

use bytes::{Bytes, BytesMut};

use super::{Fault, Progress, ResponseHead, ResponseParser, Stage};
use crate::header::Known;

/// Reads the head of one answer.
#[derive(Debug)]
pub struct CgiParser(ResponseParser);

impl Default for CgiParser {
    fn default() -> Self {
        CgiParser(ResponseParser {
            stage: Stage::Fields,
            ..ResponseParser::default()
        })
    }
}

impl CgiParser {
    /// A parser at the begin of a head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with what is in `buf`; see [`ResponseParser::parse`]. It is never `NotHttp`, and of
    /// no use after any outcome but `NeedMore`.
    pub fn parse(&mut self, buf: &mut BytesMut, max: usize) -> Progress {
        match self.0.parse(buf, max) {
            Progress::Done(head) => match with_status(head) {
                Ok(head) => Progress::Done(head),
                Err(fault) => Progress::Refuse(fault),
            },
            other => other,
        }
    }
}

/// The head with the status that its fields say. A bare number has no text of its own.
fn with_status(mut head: ResponseHead) -> Result<ResponseHead, Fault> {
    let (status, line) = match head.fields.get(Known::Status) {
        Some(text) => (status_of(text)?, text.clone()),
        None if head.fields.contains(Known::Location) => (302, Bytes::new()),
        None => (200, Bytes::new()),
    };
    head.status = status;
    if line.len() > 3 {
        head.status_line = line;
    }
    // The body has the length that its protocol says, in the coding of the application.
    head.fields.remove(Known::TransferEncoding);
    Ok(head)
}

fn status_of(text: &[u8]) -> Result<u16, Fault> {
    let digits = text.first_chunk::<3>().ok_or(Fault::InvalidStatus)?;
    let digits = std::str::from_utf8(digits).map_err(|_| Fault::InvalidStatus)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        // An interim answer is nothing that an application can give.
        Ok(status @ 200..=999) if is_number => Ok(status),
        _ => Err(Fault::InvalidStatus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Progress {
        CgiParser::new().parse(&mut BytesMut::from(text), 4096)
    }

    #[test]
    fn the_status_is_that_of_the_fields() {
        for (text, status, line) in [
            ("\n", 200, ""),
            ("Content-Type: a/b\n\n", 200, ""),
            ("Location: http://a/\r\n\r\n", 302, ""),
            ("Location:\n\n", 302, ""),
            (
                "Status: 404 Not Here\nLocation: /a\n\n",
                404,
                "404 Not Here",
            ),
            ("Status: 404\n\n", 404, ""),
            ("Status:201 Made\n\n", 201, "201 Made"),
            ("HTTP/1.1 500 No\nA: b\n\n", 200, ""),
        ] {
            let Progress::Done(head) = parse(text) else {
                panic!("{text:?}");
            };
            assert_eq!(head.status, status, "{text:?}");
            assert_eq!(head.status_line, line, "{text:?}");
        }
    }

    #[test]
    fn a_status_that_is_no_final_one_is_refused() {
        for text in ["", "20", "2x0 OK", "+20", "099", "100 Continue", "\u{e9}00"] {
            let outcome = parse(&format!("Status: {text}\n\n"));
            let is_refused = matches!(outcome, Progress::Refuse(Fault::InvalidStatus));
            assert!(is_refused, "{text}: {outcome:?}");
        }
    }

    #[test]
    fn a_head_is_read_however_it_is_cut() {
        let text = "Status: 201 Made\r\nContent-Type: a/b\r\nX-A: b\r\n\r\nbody";
        for at in 0..text.len() {
            let (first, second) = text.split_at(at);
            let mut parser = CgiParser::new();
            let mut buf = BytesMut::from(first);
            let outcome = match parser.parse(&mut buf, 4096) {
                Progress::NeedMore => {
                    buf.extend_from_slice(second.as_bytes());
                    parser.parse(&mut buf, 4096)
                }
                done => {
                    buf.extend_from_slice(second.as_bytes());
                    done
                }
            };
            let Progress::Done(head) = outcome else {
                panic!("{at}: {outcome:?}");
            };
            assert_eq!((head.status, head.fields.len()), (201, 3), "{at}");
            assert_eq!(&buf[..], b"body", "{at}");
        }
    }

    #[test]
    fn a_head_beyond_the_limit_is_refused() {
        let text = format!("X-A: {}\n\n", "a".repeat(100));
        let mut buf = BytesMut::from(&text[..]);
        let outcome = CgiParser::new().parse(&mut buf, 100);
        assert!(matches!(outcome, Progress::Refuse(Fault::TooBig)));
    }
}
