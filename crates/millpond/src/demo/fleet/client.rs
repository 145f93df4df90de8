//! Requests of the demo to its nodes: one of HTTP/1.0 on a connection of its own.
//!
//! 1. An exchange takes no longer than `WAIT` between two bytes, and no more than `MOST` are read.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The longest wait for bytes; a stream of events says every five seconds that it is alive.
const WAIT: Duration = Duration::from_secs(15);
/// The most that is read of an answer (arbitrary: more than any that is asked for here).
const MOST: u64 = 1 << 20;

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    fields: Vec<(String, String)>,
    pub(super) body: String,
}

impl Response {
    /// The first value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Asks a port of this host, and reads the whole answer.
pub(super) fn exchange(port: u16, method: &str, target: &str) -> io::Result<Response> {
    let (mut response, rest) = begin(port, method, target)?;
    let mut body = Vec::new();
    rest.take(MOST).read_to_end(&mut body)?;
    response.body = String::from_utf8_lossy(&body).into_owned();
    Ok(response)
}

/// Asks for an answer that goes on, and reads the head of it.
pub(super) fn stream(port: u16, target: &str) -> io::Result<impl BufRead + use<>> {
    let (response, rest) = begin(port, "GET", target)?;
    match response.status {
        200 => Ok(rest),
        _ => Err(io::ErrorKind::NotConnected.into()),
    }
}

fn begin(port: u16, method: &str, target: &str) -> io::Result<(Response, BufReader<TcpStream>)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, WAIT)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    stream.set_nodelay(true)?;
    // The field lets a request change something (docs/api.md).
    let head = format!("{method} {target} HTTP/1.0\r\nHost: {address}\r\nMillpond-Api: 1\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let response = read_head(&mut reader.by_ref().take(MOST))?;
    Ok((response, reader))
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Response> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let mut response = Response {
        status: status.ok_or(io::ErrorKind::InvalidData)?,
        ..Response::default()
    };
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Ok(response);
        };
        let field = (name.to_string(), value.trim().to_string());
        response.fields.push(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_up_to_the_body() {
        let mut text = &b"HTTP/1.1 503 Oh\r\nPurge-Fleet: local\r\nA: b:c\r\n\r\nbody"[..];
        let response = read_head(&mut text).unwrap();
        assert_eq!(response.status, 503);
        assert_eq!(response.field("purge-fleet"), Some("local"));
        assert_eq!(response.field("A"), Some("b:c"));
        assert_eq!(text, b"body");
        for wrong in ["", "HTTP/1.1", "HTTP/1.1 200 OK\r\nA: b\r\n"] {
            assert!(read_head(&mut wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
