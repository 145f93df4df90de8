//! The demo's own HTTP/1.1 server: one thread for each connection, strict, and no more than it
//! needs.
//!
//! A [`Site`] answers; this file reads requests and writes heads. Millpond itself is not used here,
//! so that the demo's origin is somebody else's server, as it is in life.
//!
//! Invariants:
//! 1. A head has at most `MAX_HEAD` bytes, a connection waits at most `IDLE` for one, and at most
//!    `MAX_CONNECTIONS` are open at once.
//! 2. What is not a well-formed request without a body, with a method that the site takes (GET and
//!    HEAD, if it does not say more), is refused, and its connection closed.
//! 3. Whoever waits, waits on [`Stop`], so that the demo ends at once.
//!
//! Does not chunk: an answer of unknown length ends with its connection.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_semantics::date::format_http_date;
use millpond_system::clock::{self, Instant};

/// Longest head of a request; more than any browser sends to a page without cookies.
const MAX_HEAD: usize = 16 * 1024;
/// Most connections of one site; more than a browser and the workers keep open together.
const MAX_CONNECTIONS: usize = 512;
/// Time that a connection may wait for a request or for its peer to read.
const IDLE: Duration = Duration::from_secs(65);

/// Locks also after a panic elsewhere: what is behind these locks is always whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says to every thread when the demo ends.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The time is over.
    Elapsed,
    /// The demo ends.
    Stopped,
}

impl Stop {
    /// Ends every wait.
    pub(super) fn set(&self) {
        *lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    /// True if the demo ends.
    pub(super) fn is_set(&self) -> bool {
        *lock(&self.is_set)
    }

    /// Waits until `deadline`.
    pub(super) fn wait_until(&self, deadline: Instant) -> Waited {
        let left = deadline.saturating_duration_since(clock::instant());
        let state = lock(&self.is_set);
        let (state, _) = self
            .changed
            .wait_timeout_while(state, left, |is_set| !*is_set)
            .unwrap_or_else(PoisonError::into_inner);
        if *state {
            Waited::Stopped
        } else {
            Waited::Elapsed
        }
    }

    /// Waits for `duration`; an error when the demo ends before.
    pub(super) fn wait(&self, duration: Duration) -> io::Result<()> {
        match self.wait_until(clock::instant() + duration) {
            Waited::Elapsed => Ok(()),
            Waited::Stopped => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// One of the site's methods.
    pub(super) method: String,
    /// Path and query of the request as they came.
    pub(super) target: String,
    fields: Vec<(String, String)>,
    is_http11: bool,
}

impl Request {
    /// Path of the request, without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// An argument of the query, as it is written.
    pub(super) fn argument(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|pair| pair.1)
    }

    /// The first value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn keeps_alive(&self) -> bool {
        let connection = self.field("Connection").unwrap_or_default();
        let has = |word: &str| {
            connection
                .split(',')
                .any(|token| token.trim().eq_ignore_ascii_case(word))
        };
        if self.is_http11 {
            !has("close")
        } else {
            has("keep-alive")
        }
    }
}

/// Writes a body.
pub(super) type BodyWriter = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()>>;

/// An answer.
pub(super) struct Answer {
    /// Status code.
    pub(super) status: u16,
    /// Fields besides Date, Server and framing.
    pub(super) fields: Vec<(&'static str, String)>,
    /// Length of the body; `None` when only the connection's end tells.
    pub(super) length: Option<u64>,
    /// Called for GET, after the head is sent.
    pub(super) body: BodyWriter,
}

impl Answer {
    /// An answer with a small body.
    pub(super) fn whole(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Answer {
        let body = body.into();
        Answer {
            status,
            fields: vec![("Content-Type", content_type.to_string())],
            length: Some(body.len() as u64),
            body: Box::new(move |out| out.write_all(&body)),
        }
    }

    /// A sentence of plain text.
    pub(super) fn text(status: u16, text: &str) -> Answer {
        Answer::whole(status, "text/plain; charset=utf-8", text)
    }

    /// Adds a field.
    pub(super) fn field(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.fields.push((name, value.into()));
        self
    }
}

/// Site that answers requests.
pub(super) trait Site: Send + Sync + 'static {
    /// The answer to a request; may wait before it gives it. An error closes the connection.
    fn answer(&self, request: &Request) -> io::Result<Answer>;

    /// Methods of requests that it is given.
    fn methods(&self) -> &'static [&'static str] {
        &["GET", "HEAD"]
    }
}

/// Accepts connections on a thread of its own, until the process ends.
pub(super) fn spawn(listener: TcpListener, site: Arc<dyn Site>) -> io::Result<()> {
    let name = "demo-accept".to_string();
    std::thread::Builder::new().name(name).spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().flatten() {
            let Some(place) = Place::take(&open) else {
                continue;
            };
            let site = Arc::clone(&site);
            let thread = std::thread::Builder::new().name("demo".to_string());
            // Without a thread the connection is dropped, and so closed.
            let _ = thread.spawn(move || {
                let _place = place;
                // Errors here are of the connection, and end with it.
                let _ = serve(stream, &*site);
            });
        }
    })?;
    Ok(())
}

/// One of the `MAX_CONNECTIONS` places.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Place> {
        let place = Place(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < MAX_CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(mut stream: TcpStream, site: &dyn Site) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut inbox = Vec::new();
    // Ends with the connection; every round waits for a request at most IDLE.
    while let Some(head) = read_head(&mut stream, &mut inbox)? {
        match parse(&head, site.methods()) {
            Ok(request) => {
                let answer = site.answer(&request)?;
                let keeps_alive = request.keeps_alive() && answer.length.is_some();
                send(&mut stream, &request.method, keeps_alive, answer)?;
                if !keeps_alive {
                    break;
                }
            }
            Err((status, why)) => {
                send(&mut stream, "GET", false, Answer::text(status, why))?;
                break;
            }
        }
    }
    Ok(())
}

/// Reads up to the end of a head; `None` when the peer closes before it begins one.
fn read_head(stream: &mut TcpStream, inbox: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = inbox.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = inbox.split_off(end + 4);
            let mut head = std::mem::replace(inbox, rest);
            head.truncate(end);
            return Ok(Some(head));
        }
        if inbox.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return if inbox.is_empty() {
                Ok(None)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        inbox.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
}

type Refusal = (u16, &'static str);

fn parse(head: &[u8], methods: &[&str]) -> Result<Request, Refusal> {
    const BAD: Refusal = (400, "This is not HTTP/1.1.\n");
    let text = std::str::from_utf8(head).map_err(|_| BAD)?;
    if text.bytes().any(|byte| byte == 0) {
        return Err(BAD);
    }
    let (line, rest) = text.split_once("\r\n").unwrap_or((text, ""));
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BAD);
    };
    let is_http11 = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return Err(BAD),
    };
    let mut fields = Vec::new();
    for line in rest.split_terminator("\r\n") {
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        if name.is_empty() || name.contains([' ', '\t']) || line.contains(['\r', '\n']) {
            return Err(BAD);
        }
        fields.push((
            name.to_string(),
            value.trim_matches([' ', '\t']).to_string(),
        ));
    }
    let request = Request {
        method: method.to_string(),
        target: target.to_string(),
        fields,
        is_http11,
    };
    check(request, methods)
}

fn check(request: Request, methods: &[&str]) -> Result<Request, Refusal> {
    let has_body = request.field("Transfer-Encoding").is_some()
        || request
            .field("Content-Length")
            .is_some_and(|length| length != "0");
    if !methods.contains(&request.method.as_str()) {
        return Err((405, "This method is not answered here.\n"));
    }
    if has_body || !request.target.starts_with('/') {
        return Err((400, "A body or such a target has no meaning here.\n"));
    }
    // RFC 9112 §3.2: exactly one Host.
    let hosts = request
        .fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("Host"))
        .count();
    if hosts > 1 || (request.is_http11 && hosts == 0) {
        return Err((400, "A request has one Host field.\n"));
    }
    Ok(request)
}

fn send(stream: &mut TcpStream, method: &str, keeps_alive: bool, answer: Answer) -> io::Result<()> {
    let date = format_http_date(clock::now_ms().div_euclid(1000));
    let mut head = format!(
        "HTTP/1.1 {} {}\r\nServer: millpond-demo\r\nDate: {}\r\n",
        answer.status,
        reason(answer.status),
        String::from_utf8_lossy(&date),
    );
    for (name, value) in &answer.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = answer.length.filter(|_| answer.status != 304) {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    let connection = if keeps_alive { "keep-alive" } else { "close" };
    head.push_str(&format!("Connection: {connection}\r\n\r\n"));
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" && answer.status != 304 {
        (answer.body)(stream)?;
    }
    stream.flush()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        416 => "Range Not Satisfiable",
        502 => "Bad Gateway",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_requests_without_a_body_are_read() {
        for (head, expected) in [
            ("GET /a?b HTTP/1.1\r\nHost: x", Ok("/a")),
            ("HEAD / HTTP/1.0", Ok("/")),
            ("GET / HTTP/1.1", Err(400)),
            ("GET / HTTP/1.1\r\nHost: x\r\nHost: y", Err(400)),
            ("GET / HTTP/1.1\r\nHost : x", Err(400)),
            ("GET / HTTP/1.1\r\nHost: x\r\n folded", Err(400)),
            ("GET  / HTTP/1.1\r\nHost: x", Err(400)),
            ("GET / HTTP/2\r\nHost: x", Err(400)),
            ("GET http://x/ HTTP/1.1\r\nHost: x", Err(400)),
            ("POST / HTTP/1.1\r\nHost: x", Err(405)),
            ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1", Err(400)),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked",
                Err(400),
            ),
        ] {
            let parsed = parse(head.as_bytes(), &["GET", "HEAD"]);
            let found = match &parsed {
                Ok(request) => Ok(request.path()),
                Err((status, _)) => Err(*status),
            };
            assert_eq!(found, expected, "{head}");
        }
    }

    #[test]
    fn connections_are_kept_as_their_version_says() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: x", true),
            ("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close", false),
            ("GET / HTTP/1.0", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive", true),
        ] {
            let request = parse(head.as_bytes(), &["GET"]).unwrap();
            assert_eq!(request.keeps_alive(), expected, "{head}");
        }
    }

    #[test]
    fn a_wait_ends_when_the_demo_does() {
        let stop = Arc::new(Stop::default());
        let other = Arc::clone(&stop);
        let waiting = std::thread::spawn(move || other.wait(Duration::from_secs(600)));
        stop.set();
        assert!(waiting.join().unwrap().is_err());
    }
}
