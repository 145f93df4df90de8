//! One connection of the control socket: a request, its answer, the end.
//!
//! It is served with blocking calls by a thread of its own.
//!
//! 1. A request is at most [`HEAD_MAX`] bytes long, has no body, and comes within [`READ_WAIT`].
//! 2. What is long is sent as it is made, in pieces of about [`PIECE`] bytes; an answer that stops
//!    half-way has no last chunk.
//! 3. A client that does not read for [`WRITE_WAIT`] is given up.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use millpond_system::clock;
use millpond_wire::http1::Method;
use millpond_wire::http1::chunked::{CHUNK_END, chunk_head};
use millpond_wire::http1::encode;
use millpond_wire::http1::request::{Connect, Limits, Progress, RequestHead, RequestParser};
use rustix::net::{RecvFlags, recv};

use super::api::{Answer, Ask, Body, Verb};
use super::lines::{PIECE, Pieces, Sink};
use super::query;
use super::report;

/// Bytes of a head: keys are long at times.
const HEAD_MAX: usize = 128 << 10;
/// The longest line of it.
const LINE_MAX: usize = 64 << 10;
/// Fields of it.
const FIELDS_MAX: usize = 100;
/// Time that a request may take to come (arbitrary: the request comes from this machine).
const READ_WAIT: Duration = Duration::from_secs(10);
/// Time for which a client may leave an answer unread: somebody may be paging through a list.
const WRITE_WAIT: Duration = Duration::from_secs(600);

/// Reads a request and sends the answer; who goes away in between is not told of.
pub(super) fn serve(stream: &UnixStream, answer: &dyn Fn(&Ask) -> Answer) {
    let _ = converse(stream, answer);
}

/// Answers that there are too many.
pub(super) fn refuse(stream: &UnixStream) {
    let answer = report::problem(503, "too many connections to the control socket");
    let _ = prepare(stream).and_then(|()| send(stream, answer));
}

fn prepare(stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_WAIT))?;
    stream.set_write_timeout(Some(WRITE_WAIT))
}

fn converse(stream: &UnixStream, answer: &dyn Fn(&Ask) -> Answer) -> io::Result<()> {
    prepare(stream)?;
    let answer = match read_head(stream)? {
        Ok(head) => match ask(&head) {
            Ok(ask) => answer(&ask),
            Err(refusal) => refusal,
        },
        Err(status) => report::problem(status, "not a request that is understood"),
    };
    send(stream, answer)
}

/// The head of a request, or the status of its refusal.
fn read_head(mut stream: &UnixStream) -> io::Result<Result<Rc<RequestHead>, u16>> {
    let limits = Limits {
        line: LINE_MAX,
        total: HEAD_MAX,
        fields: FIELDS_MAX,
        ..Limits::default()
    };
    let deadline = clock::instant() + READ_WAIT;
    let mut parser = RequestParser::new();
    let mut buf = BytesMut::new();
    let mut piece = [0; 4096];
    loop {
        match parser.parse(&mut buf, &limits) {
            Progress::Done(head) => return Ok(Ok(head)),
            Progress::Refuse(refused) => return Ok(Err(refused.status())),
            Progress::NeedMore if clock::instant() > deadline => return Ok(Err(408)),
            Progress::NeedMore => {}
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buf.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
}

/// Reads the question of a request.
fn ask(head: &RequestHead) -> Result<Ask, Answer> {
    use millpond_wire::http1::request::Framing;
    let verb = match head.method() {
        Method::Get => Verb::Get,
        Method::Post => Verb::Post,
        Method::Delete => Verb::Delete,
        _ => {
            return Err(report::problem(
                405,
                "only GET, POST and DELETE are understood",
            ));
        }
    };
    match head.check(Connect::Refuse) {
        Ok(Framing::None) => {}
        Ok(_) => {
            let message = "requests have no body here, parameters stand in the query";
            return Err(report::problem(413, message));
        }
        Err(refusal) => return Err(report::problem(refusal.status(), "an invalid request")),
    }
    let (segments, parameters) = query::split(head.uri());
    Ok(Ask {
        verb,
        segments,
        parameters,
    })
}

fn send(mut stream: &UnixStream, answer: Answer) -> io::Result<()> {
    let mut out = BytesMut::with_capacity(PIECE);
    encode::write_status(&mut out, answer.status);
    encode::write_field(&mut out, b"Connection", b"close");
    let kind: &[u8] = match &answer.body {
        Body::Events(_) => b"text/event-stream",
        _ => b"application/x-ndjson",
    };
    match answer.body {
        Body::Json(text) => {
            encode::write_field(&mut out, b"Content-Type", b"application/json");
            encode::write_field(
                &mut out,
                b"Content-Length",
                text.len().to_string().as_bytes(),
            );
            encode::end_head(&mut out);
            out.extend_from_slice(text.as_bytes());
            stream.write_all(&out)
        }
        Body::Lines(make) | Body::Events(make) => {
            encode::write_field(&mut out, b"Content-Type", kind);
            encode::write_field(&mut out, b"Transfer-Encoding", b"chunked");
            encode::end_head(&mut out);
            stream.write_all(&out)?;
            let mut pieces = Pieces::new(Chunks(stream));
            make(&mut pieces)?;
            pieces.end()?;
            stream.write_all(b"0\r\n\r\n")
        }
    }
}

/// Pieces as chunks.
struct Chunks<'a>(&'a UnixStream);

impl Sink for Chunks<'_> {
    fn send(&mut self, piece: &mut BytesMut) -> io::Result<()> {
        let mut stream = self.0;
        stream.write_all(chunk_head(piece.len() as u64).as_ref())?;
        stream.write_all(piece)?;
        stream.write_all(CHUNK_END)?;
        piece.clear();
        Ok(())
    }

    fn is_wanted(&mut self) -> bool {
        let mut byte = [0; 1];
        match recv(self.0, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((count, _)) => count > 0,
            Err(errno) => errno == rustix::io::Errno::WOULDBLOCK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(request: &[u8], answer: &(dyn Fn(&Ask) -> Answer + Sync)) -> String {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || serve(&ours, answer));
            theirs.write_all(request).unwrap();
            let mut said = String::new();
            theirs.read_to_string(&mut said).unwrap();
            said
        })
    }

    fn echo(ask: &Ask) -> Answer {
        Answer {
            status: 200,
            body: Body::Json(format!(
                "{:?} {:?} {:?}",
                ask.verb, ask.segments, ask.parameters
            )),
        }
    }

    #[test]
    fn one_request_has_one_answer() {
        for (request, expected) in [
            (
                &b"GET /a?b=c%20d&e HTTP/1.1\r\nHost: x\r\n\r\n"[..],
                "Get [\"a\"] [(\"b\", b\"c d\"), (\"e\", b\"\")]",
            ),
            (
                b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
                "Post [\"a\"] []",
            ),
            (
                b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n",
                "413",
            ),
            (b"PUT / HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
            (b"GET / HTTP/1.1\r\n\r\n", "400"),
            (b"nonsense\r\n\r\n", "400"),
        ] {
            let said = exchange(request, &echo);
            assert!(said.contains(expected), "{said}");
            assert!(said.contains("Connection: close\r\n"), "{said}");
        }
    }

    #[test]
    fn lines_come_in_chunks_and_only_a_whole_list_ends() {
        for (breaks, ends) in [(false, true), (true, false)] {
            let said = exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &|_: &Ask| Answer {
                status: 200,
                body: Body::Lines(Box::new(move |lines| {
                    lines.push("one")?;
                    lines.push_now("two")?;
                    assert!(lines.is_wanted());
                    if breaks {
                        Err(io::ErrorKind::Other.into())
                    } else {
                        lines.push("three")
                    }
                })),
            });
            assert!(said.contains("8\r\none\ntwo\n\r\n"), "{said}");
            assert_eq!(said.ends_with("6\r\nthree\n\r\n0\r\n\r\n"), ends, "{said}");
        }
    }

    #[test]
    fn a_list_ends_when_nobody_wants_it() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut chunks = Chunks(&ours);
        assert!(chunks.is_wanted());
        drop(theirs);
        assert!(!chunks.is_wanted());
        assert!(chunks.send(&mut BytesMut::from("line\n")).is_err());
    }
}
