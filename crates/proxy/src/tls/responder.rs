//! Responders of OCSP: their URLs, and one question to one of them.
//!
//! A question is a GET of HTTP/1.0, as nginx asks (RFC 6960 §A.1): the answer ends with the
//! connection, or with the length that it says.
//!
//! 1. An answer is never longer than `ANSWER_MAX`, and takes no longer than `TIMEOUT`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use millpond_system::resolve::policy::ResolverPolicy;
use millpond_system::{clock, network};
use millpond_wire::base64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest answer, with its head (arbitrary: answers have a few kilobytes).
const ANSWER_MAX: usize = 64 * 1024;

/// The longest time of a question and its answer (arbitrary; nginx gives each step a minute).
const TIMEOUT: Duration = Duration::from_secs(15);

/// A responder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    host: String,
    port: u16,
    path: String,
}

impl Responder {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, String> {
        let scheme = url.get(..7).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("http://") {
            return Err(format!("invalid URL prefix in OCSP responder \"{url}\""));
        }
        let rest = url.get(7..).unwrap_or_default();
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        let is_clean = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        match network::split_port(authority, 80) {
            Ok((host, port)) if !host.is_empty() && is_clean(url) => Ok(Responder {
                host: host.to_owned(),
                port,
                path: path.to_owned(),
            }),
            _ => Err(format!("invalid URL of OCSP responder \"{url}\"")),
        }
    }

    /// Asks it; returns the body of its answer.
    pub async fn ask(&self, question: &[u8], names: &ResolverPolicy) -> Result<Vec<u8>, String> {
        let asked = clock::within(TIMEOUT, self.exchange(question, names)).await;
        let told = asked.unwrap_or_else(|| Err("it takes too long".to_owned()));
        told.map_err(|why| format!("OCSP responder \"{}\": {why}", self.host))
    }

    async fn exchange(&self, question: &[u8], names: &ResolverPolicy) -> Result<Vec<u8>, String> {
        let said = |error: std::io::Error| millpond_system::log::error::os_error(&error);
        let address = self.address(names).await?;
        let mut stream = TcpStream::connect(address).await.map_err(said)?;
        stream
            .write_all(self.request(question).as_bytes())
            .await
            .map_err(said)?;
        let mut answer = Vec::new();
        // Longer ones are cut, and are no answers then.
        let mut limited = stream.take(ANSWER_MAX as u64);
        while limited.read_buf(&mut answer).await.map_err(said)? > 0 {
            if let Some(body) = body(&answer, End::Open)? {
                return Ok(body.to_vec());
            }
        }
        match body(&answer, End::Reached)? {
            Some(body) => Ok(body.to_vec()),
            None => Err("it ended prematurely".to_owned()),
        }
    }

    async fn address(&self, names: &ResolverPolicy) -> Result<SocketAddr, String> {
        let found = names.addresses(&self.host, self.port).await;
        let addresses = found.map_err(|why| why.to_string())?;
        let first = addresses.first().copied();
        first.ok_or_else(|| "it has no address".to_owned())
    }

    fn request(&self, question: &[u8]) -> String {
        let mut line = format!("GET {}", self.path);
        if !line.ends_with('/') {
            line.push('/');
        }
        for character in base64::encode(question).chars() {
            match character {
                '+' | '/' | '=' => {
                    // A string takes all that is written.
                    let _ = write!(line, "%{:02X}", u32::from(character));
                }
                other => line.push(other),
            }
        }
        let port = match self.port {
            80 => String::new(),
            port => format!(":{port}"),
        };
        format!("{line} HTTP/1.0\r\nHost: {}{port}\r\n\r\n", self.host)
    }
}

/// The state of the bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Reached,
}

/// The body of an answer, once it is whole.
fn body(answer: &[u8], end: End) -> Result<Option<&[u8]>, String> {
    let Some((head, body)) = split_head(answer) else {
        return Ok(None);
    };
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    if status != Some("200") {
        return Err(format!("it answered with {}", status.unwrap_or("nothing")));
    }
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    match fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
        Some((_, length)) => match length.trim().parse::<usize>() {
            Ok(length) => Ok(body.get(..length)),
            Err(_) => Err("its answer has no proper length".to_owned()),
        },
        None => Ok(Some(body).filter(|_| end == End::Reached)),
    }
}

/// The head of an answer, and what stands behind it.
fn split_head(answer: &[u8]) -> Option<(&str, &[u8])> {
    let ends = [&b"\r\n\r\n"[..], b"\n\n"];
    let found = ends.iter().filter_map(|end| {
        let at = answer
            .windows(end.len())
            .position(|window| window == *end)?;
        Some((at, at + end.len()))
    });
    let (end, begin) = found.min()?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    Some((head, answer.get(begin..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_perhaps_more() {
        for (url, parts) in [
            ("http://a.example", Some(("a.example", 80, "/"))),
            ("HTTP://a:8080/b/c", Some(("a", 8080, "/b/c"))),
            ("http://[::1]:81/", Some(("[::1]", 81, "/"))),
            ("https://a/", None),
            ("http://", None),
            ("http://a:x/", None),
            ("http://a/\r\nHost: b", None),
        ] {
            let read = Responder::parse(url).ok();
            let found = read.map(|it| (it.host, it.port, it.path));
            let expected = parts.map(|(host, port, path)| (host.into(), port, path.into()));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn questions_are_one_segment_of_a_path() {
        let responder = Responder::parse("http://a:81/x").unwrap();
        assert_eq!(
            responder.request(&[0xfb, 0xff, 0xfe, 1]),
            "GET /x/%2B%2F%2F%2BAQ%3D%3D HTTP/1.0\r\nHost: a:81\r\n\r\n"
        );
    }

    #[test]
    fn answers_end_with_their_length_or_with_the_connection() {
        let of = |text: &'static str, end| body(text.as_bytes(), end);
        let with_length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(of(with_length, End::Open), Ok(Some(&b"ab"[..])));
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab";
        assert_eq!(of(cut, End::Reached), Ok(None));
        let open = "HTTP/1.0 200 OK\nX: y\n\nab";
        assert_eq!(of(open, End::Open), Ok(None));
        assert_eq!(of(open, End::Reached), Ok(Some(&b"ab"[..])));
        assert_eq!(of("HTTP/1.0 200 OK\r\n", End::Reached), Ok(None));
        for text in [
            "HTTP/1.0 404 Not Found\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: x\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(of(text, End::Reached).is_err(), "{text}");
        }
    }
}
