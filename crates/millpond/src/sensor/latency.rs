//! `millpond sensor latency`: the time of a request of its own, to the last byte of the answer.
//!
//! It is one request of HTTP/1.0 without encryption, on a connection of its own, through the
//! address that users take. An answer of 500 or more is critical, and so is none.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_system::clock;

use super::finding::{Finding, State, Value};
use super::options::Options;

/// The longest wait for anything; monitors give up at about ten seconds.
const LATE: Duration = Duration::from_secs(8);
/// The most that is read of an answer (arbitrary: more than any page).
const MOST: u64 = 64 << 20;

/// A URL, as far as it is needed.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    /// Host and port, as the field Host has them.
    authority: &'a str,
    path: &'a str,
}

impl Target<'_> {
    fn parse(url: &str) -> Result<Target<'_>> {
        let rest = url
            .strip_prefix("http://")
            .context("the URL is not http://")?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        ensure!(!authority.is_empty(), "the URL has no host");
        let is_plain = |c: char| c.is_ascii_graphic();
        ensure!(
            url.chars().all(is_plain),
            "the URL has spaces or letters to be encoded"
        );
        let path = if path.is_empty() { "/" } else { path };
        Ok(Target { authority, path })
    }

    fn address(&self) -> String {
        let has_port = self
            .authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()));
        if has_port {
            self.authority.to_string()
        } else {
            format!("{}:80", self.authority)
        }
    }
}

/// Asks, and measures.
pub(super) fn find(options: &Options) -> Result<Finding> {
    let url = options.url.as_deref().unwrap_or_default();
    let target = Target::parse(url)?;
    let start = clock::instant();
    let answered = exchange(&target, &options.fields);
    let seconds = start.elapsed().as_secs_f64();
    let time = Value::judged("time", seconds, "s");
    Ok(match answered {
        Ok((status, bytes)) => {
            let text = format!("status {status} after {:.1} ms", seconds * 1000.0);
            let finding = Finding::new(text, vec![time, Value::shown("size", bytes as f64, "B")]);
            if status >= 500 {
                finding.in_state(State::Critical)
            } else {
                finding
            }
        }
        Err(error) => {
            let text = format!("no answer from {}: {error:#}", target.authority);
            Finding::new(text, vec![time]).in_state(State::Critical)
        }
    })
}

/// The status of the answer, and its bytes.
fn exchange(target: &Target<'_>, fields: &[String]) -> Result<(u16, usize)> {
    let mut addresses = target.address().to_socket_addrs()?;
    let address = addresses.next().context("the host has no address")?;
    let mut stream = TcpStream::connect_timeout(&address, LATE)?;
    stream.set_read_timeout(Some(LATE))?;
    stream.set_write_timeout(Some(LATE))?;
    let mut request = format!("GET {} HTTP/1.0\r\n", target.path);
    if !fields
        .iter()
        .any(|line| line.to_ascii_lowercase().starts_with("host:"))
    {
        request.push_str(&format!("Host: {}\r\n", target.authority));
    }
    for line in fields {
        request.push_str(&format!("{line}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    let start = answer.get(..12).context("the connection was closed")?;
    let head = std::str::from_utf8(start).context("it does not speak HTTP")?;
    ensure!(head.starts_with("HTTP/1."), "it does not speak HTTP");
    let status = head.get(9..12).and_then(|digits| digits.parse().ok());
    Ok((status.context("the answer has no status")?, answer.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, authority, path, address) in [
            ("http://a.example/x?y", "a.example", "/x?y", "a.example:80"),
            (
                "http://127.0.0.1:8080",
                "127.0.0.1:8080",
                "/",
                "127.0.0.1:8080",
            ),
            ("http://[::1]/a", "[::1]", "/a", "[::1]:80"),
            ("http://[::1]:81/", "[::1]:81", "/", "[::1]:81"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.authority, target.path), (authority, path));
            assert_eq!(target.address(), address);
        }
        for url in ["https://a/", "a.example", "http:///x", "http://a/b c"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
