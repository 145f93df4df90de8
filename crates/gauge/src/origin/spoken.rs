//! Protocol in which an origin is asked, beside HTTP: uwsgi or FastCGI, as applications speak them.
//!
//! uwsgi (the packets of uWSGI with modifier 0), a request:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | modifier | 0 |
//! | 1 | 2 | size | bytes of the variables, least byte first |
//! | 3 | 1 | modifier | 0 |
//! | 4 | size | variables | length (2, least byte first) and bytes of a name, the same of its value |
//!
//! Behind it comes a body of `CONTENT_LENGTH` bytes. The answer is one of HTTP, and ends the
//! connection.
//!
//! FastCGI (version 1), records in both directions:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | 1 |
//! | 1 | 1 | type | 1 begins a request, 4 variables, 5 its body, 6 the answer, 3 ends it |
//! | 2 | 2 | request | a number, most byte first |
//! | 4 | 2 | length | of the content |
//! | 6 | 1 | padding | behind the content |
//! | 7 | 1 | | not used |
//!
//! A record of variables, or of a body, without content ends them. One request at a time is read
//! on a connection, which stays if the request says so (bit 0 of its flags).

use std::io;

use super::answer::Asking;

/// Protocol of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spoken {
    /// HTTP/1.1 and HTTP/2.
    #[default]
    Http,
    /// uwsgi.
    Uwsgi,
    /// FastCGI.
    Fastcgi,
}

/// Length of the head of a uwsgi packet.
const PACKET: usize = 4;
/// Length of the head of a FastCGI record.
const RECORD: usize = 8;
/// The longest content of a record that is written: a multiple of eight, so that none is padded.
const CONTENT_MAX: usize = 65_528;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// A request at the beginning of bytes, and its length.
pub(super) type Parsed = Option<(Asking, usize)>;

/// A request of uwsgi, if all of it is there.
pub(super) fn uwsgi(bytes: &[u8]) -> io::Result<Parsed> {
    let Some((&[modifier, low, high, _], rest)) = bytes.split_first_chunk::<PACKET>() else {
        return Ok(None);
    };
    if modifier != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let size = usize::from(u16::from_le_bytes([low, high]));
    let Some(mut left) = rest.get(..size) else {
        return Ok(None);
    };
    let mut variables = Variables::default();
    while !left.is_empty() {
        let name = text_of_two(&mut left)?;
        let value = text_of_two(&mut left)?;
        variables.add(name, value);
    }
    let used = PACKET + size + variables.body_len();
    variables.asking.is_last = true;
    Ok((bytes.len() >= used).then_some((variables.asking, used)))
}

/// Bytes behind a length of two bytes, taken from the beginning.
fn text_of_two<'a>(left: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let (len, rest) = left
        .split_first_chunk::<2>()
        .ok_or(io::ErrorKind::InvalidData)?;
    let len = usize::from(u16::from_le_bytes(*len));
    let (text, rest) = rest
        .split_at_checked(len)
        .ok_or(io::ErrorKind::InvalidData)?;
    *left = rest;
    Ok(text)
}

/// A request of FastCGI with its number, if all of it is there.
pub(super) fn fastcgi(bytes: &[u8]) -> io::Result<Option<(Asking, usize, u16)>> {
    let (mut used, mut params) = (0, Vec::new());
    let (mut number, mut is_last) = (0, true);
    while let Some((head, rest)) = bytes[used..].split_first_chunk::<RECORD>() {
        let &[version, kind, high, low, long, short, padding, _] = head;
        if version != 1 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let len = usize::from(u16::from_be_bytes([long, short]));
        let Some(content) = rest.get(..len) else {
            return Ok(None);
        };
        used += RECORD + len + usize::from(padding);
        if used > bytes.len() {
            return Ok(None);
        }
        match kind {
            BEGIN_REQUEST => {
                number = u16::from_be_bytes([high, low]);
                is_last = content.get(2).is_none_or(|flags| flags & 1 == 0);
            }
            PARAMS => params.extend_from_slice(content),
            STDIN if len == 0 => {
                let mut asking = of_params(&params)?.asking;
                asking.is_last = is_last;
                return Ok(Some((asking, used, number)));
            }
            // Bodies are not looked at.
            _ => {}
        }
    }
    Ok(None)
}

fn of_params(mut left: &[u8]) -> io::Result<Variables> {
    let mut variables = Variables::default();
    while !left.is_empty() {
        let (name, value) = (length(&mut left)?, length(&mut left)?);
        let mut take = |len| {
            let (text, rest) = left
                .split_at_checked(len)
                .ok_or(io::ErrorKind::InvalidData)?;
            left = rest;
            io::Result::Ok(text)
        };
        let name = take(name)?;
        variables.add(name, take(value)?);
    }
    Ok(variables)
}

/// A length of one byte, or of four if the first bit is set.
fn length(left: &mut &[u8]) -> io::Result<usize> {
    let invalid = io::ErrorKind::InvalidData;
    let (&first, rest) = left.split_first().ok_or(invalid)?;
    if first < 0x80 {
        *left = rest;
        return Ok(usize::from(first));
    }
    let (four, rest) = left.split_first_chunk::<4>().ok_or(invalid)?;
    *left = rest;
    Ok((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
}

/// Makes bytes of an answer records of FastCGI.
pub(super) fn records(number: u16, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + RECORD);
    for content in bytes.chunks(CONTENT_MAX) {
        record(&mut out, STDOUT, number, content);
    }
    out
}

/// The end of an answer of FastCGI.
pub(super) fn end(number: u16) -> Vec<u8> {
    let mut out = Vec::new();
    record(&mut out, STDOUT, number, &[]);
    // The application's status and the protocol's: all went well.
    record(&mut out, END_REQUEST, number, &[0; 8]);
    out
}

fn record(out: &mut Vec<u8>, kind: u8, number: u16, content: &[u8]) {
    // Contents are cut to CONTENT_MAX.
    let len = content.len() as u16;
    out.extend([1, kind]);
    out.extend(number.to_be_bytes());
    out.extend(len.to_be_bytes());
    out.extend([0, 0]);
    out.extend(content);
}

/// Variables of a request that matter (RFC 3875, section 4.1, and `REQUEST_URI`).
#[derive(Debug, Default)]
struct Variables {
    asking: Asking,
    body_len: usize,
}

impl Variables {
    fn add(&mut self, name: &[u8], value: &[u8]) {
        let text = String::from_utf8_lossy(value).into_owned();
        let asking = &mut self.asking;
        match name {
            b"REQUEST_URI" => asking.target = text,
            b"REQUEST_METHOD" => asking.is_head = text == "HEAD",
            b"HTTP_RANGE" => asking.range = Some(text),
            b"HTTP_IF_RANGE" => asking.if_range = Some(text),
            b"HTTP_IF_NONE_MATCH" => asking.if_none_match = Some(text),
            b"CONTENT_LENGTH" => self.body_len = text.parse().unwrap_or(0),
            _ => {}
        }
    }

    fn body_len(&self) -> usize {
        self.body_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request of both, on a connection that stays.
    fn wanted() -> Asking {
        Asking {
            target: "/x-5".to_owned(),
            range: Some("bytes=0-1".to_owned()),
            ..Asking::default()
        }
    }

    #[test]
    fn a_uwsgi_request_is_there_with_its_last_byte() {
        let mut packet = b"\0\x29\0\0\x0b\0REQUEST_URI\x04\0/x-5\x0a\0HTTP_RANGE\x09\0".to_vec();
        packet.extend(b"bytes=0-1");
        packet[1] = (packet.len() - PACKET) as u8;
        for cut in 0..packet.len() {
            assert_eq!(uwsgi(&packet[..cut]).ok(), Some(None), "{cut}");
        }
        let len = packet.len();
        packet.push(b'!');
        let wanted = Asking {
            is_last: true,
            ..wanted()
        };
        assert_eq!(uwsgi(&packet).ok(), Some(Some((wanted, len))));
    }

    #[test]
    fn a_fastcgi_request_is_there_with_the_end_of_its_body() {
        let mut bytes = Vec::new();
        record(&mut bytes, BEGIN_REQUEST, 7, b"\0\x01\x01\0\0\0\0\0");
        // The parts of a stream may be cut anywhere, and a length may take four bytes.
        record(&mut bytes, PARAMS, 7, b"\x0b\x80\0\0\x04REQUEST_URI/x");
        record(&mut bytes, PARAMS, 7, b"-5\x0a\x09HTTP_RANGEbytes=0-1");
        record(&mut bytes, PARAMS, 7, b"");
        record(&mut bytes, STDIN, 7, b"");
        for cut in 0..bytes.len() {
            assert_eq!(fastcgi(&bytes[..cut]).ok(), Some(None), "{cut}");
        }
        let len = bytes.len();
        assert_eq!(fastcgi(&bytes).ok(), Some(Some((wanted(), len, 7))));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert!(uwsgi(b"GET / HTTP/1.1\r\n").is_err());
        assert!(uwsgi(b"\0\x03\0\0\x0b\0R").is_err());
        assert!(fastcgi(b"GET / HTTP/1.1\r\n").is_err());
    }

    #[test]
    fn a_long_answer_is_cut_into_records() {
        let records = records(1, &[b'x'; CONTENT_MAX + 2]);
        assert_eq!(records.len(), CONTENT_MAX + 2 + 2 * RECORD);
        let second = &records[RECORD + CONTENT_MAX..];
        assert_eq!(second, b"\x01\x06\0\x01\0\x02\0\0xx");
    }
}
