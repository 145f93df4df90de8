//! A connection to an origin: requests in, answers out, at the pace of the configuration; in
//! HTTP/1.1, uwsgi or FastCGI.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Shared;
use super::answer::{self, Asking, Reply};
use super::pace::Pace;
use super::spoken::{self, Spoken};
use crate::content::Content;

/// The longest head of a request.
const HEAD_MAX: usize = 64 << 10;

/// Answers requests until the connection ends.
pub(super) async fn serve<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = Connection {
        stream,
        unread: Vec::new(),
        number: 0,
        shared,
    };
    // Who closes a connection does not want to hear about it.
    while let Ok(Some(asking)) = connection.read().await {
        if !matches!(connection.answer(&asking).await, Ok(true)) {
            break;
        }
    }
    // Over TLS the end is told; a socket is closed by it.
    let _ = connection.stream.shutdown().await;
}

struct Connection<S> {
    stream: S,
    unread: Vec<u8>,
    /// The request's number in FastCGI.
    number: u16,
    shared: Arc<Shared>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The next request; none when there is none.
    async fn read(&mut self) -> io::Result<Option<Asking>> {
        loop {
            if let Some((asking, used)) = self.parse()? {
                self.unread.drain(..used);
                return Ok(Some(asking));
            }
            if self.unread.len() > HEAD_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// A request at the beginning of what was read, if all of it is there.
    fn parse(&mut self) -> io::Result<spoken::Parsed> {
        match self.shared.conf.spoken {
            Spoken::Http => parse(&self.unread),
            Spoken::Uwsgi => spoken::uwsgi(&self.unread),
            Spoken::Fastcgi => {
                let parsed = spoken::fastcgi(&self.unread)?;
                Ok(parsed.map(|(asking, used, number)| {
                    self.number = number;
                    (asking, used)
                }))
            }
        }
    }

    /// Answers; whether the connection goes on.
    async fn answer(&mut self, asking: &Asking) -> io::Result<bool> {
        let shared = Arc::clone(&self.shared);
        let path = asking.target.split('?').next().unwrap_or_default();
        let running = shared.counters.begin(path);
        shared.think().await;
        if shared.fails() {
            drop(running);
            let head = format!("{}Content-Length: 0\r\n\r\n", self.status_line(503));
            self.write(head.as_bytes()).await?;
            self.end().await?;
            return Ok(!asking.is_last);
        }
        let reply = answer::reply(asking, shared.generation(), &shared.conf);
        if reply.status == 304 {
            shared.counters.not_modified();
        }
        let is_whole = self.send(path, &reply, asking.is_last).await?;
        if is_whole {
            self.end().await?;
        }
        Ok(is_whole && !asking.is_last)
    }

    /// Sends head and body; whether it was not cut.
    async fn send(&mut self, path: &str, reply: &Reply, is_last: bool) -> io::Result<bool> {
        let is_http = self.shared.conf.spoken == Spoken::Http;
        let connection = if is_last && is_http {
            "Connection: close\r\n"
        } else {
            ""
        };
        let Reply { status, fields, .. } = reply;
        let line = self.status_line(*status);
        let mut out = format!("{line}{fields}{connection}\r\n").into_bytes();
        let (start, end) = reply.piece;
        let Some(content) = reply.content else {
            self.write(&out).await?;
            return Ok(true);
        };
        let cut = self.shared.cut(reply.piece);
        let last = cut.unwrap_or(end);
        self.body(path, &content, (start, last), &mut out).await?;
        if cut.is_some() {
            self.shared.counters.cut();
        }
        Ok(cut.is_none())
    }

    /// Sends what is in `out`, and a piece of a body.
    async fn body(
        &mut self,
        path: &str,
        content: &Content,
        (start, end): (u64, u64),
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut pace = Pace::new(self.shared.conf.rate);
        let mut at = start;
        let mut counted = None;
        while at < end {
            let piece = self.shared.piece(&pace);
            let len = piece.min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let begins = out.len();
            out.resize(begins + len, 0);
            content.write(at, &mut out[begins..]);
            self.shared.wait_for(&mut pace, len).await;
            counted = self.shared.counters.sent(path, at, len as u64, counted);
            self.write(out).await?;
            out.clear();
            at += len as u64;
        }
        self.write(out).await
    }

    /// The first line of an answer.
    fn status_line(&self, status: u16) -> String {
        let before = match self.shared.conf.spoken {
            Spoken::Http | Spoken::Uwsgi => "HTTP/1.1",
            Spoken::Fastcgi => "Status:",
        };
        format!("{before} {status} {}\r\n", reason(status))
    }

    /// Says that an answer is over, where that is said.
    async fn end(&mut self) -> io::Result<()> {
        if self.shared.conf.spoken == Spoken::Fastcgi {
            self.stream.write_all(&spoken::end(self.number)).await?;
            self.stream.flush().await?;
        }
        Ok(())
    }

    /// Sends bytes at once.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.shared.conf.spoken {
            Spoken::Http | Spoken::Uwsgi => self.stream.write_all(bytes).await?,
            Spoken::Fastcgi => {
                let records = spoken::records(self.number, bytes);
                self.stream.write_all(&records).await?;
            }
        }
        self.stream.flush().await
    }
}

/// A request at the beginning of `bytes` and its length, if all of it is there.
fn parse(bytes: &[u8]) -> io::Result<Option<(Asking, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut fields);
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    let httparse::Status::Complete(used) = request.parse(bytes).map_err(invalid)? else {
        return Ok(None);
    };
    let field = |name: &str| {
        let found = request
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| String::from_utf8_lossy(field.value).into_owned())
    };
    let connection = field("Connection").unwrap_or_default().to_ascii_lowercase();
    let is_last = match request.version {
        Some(0) => connection != "keep-alive",
        _ => connection == "close",
    };
    let body: usize = field("Content-Length")
        .and_then(|len| len.parse().ok())
        .unwrap_or(0);
    if bytes.len() < used + body {
        return Ok(None);
    }
    let asking = Asking {
        target: request.path.unwrap_or("/").to_owned(),
        is_head: request.method == Some("HEAD"),
        range: field("Range"),
        if_range: field("If-Range"),
        if_none_match: field("If-None-Match"),
        is_last,
    };
    Ok(Some((asking, used + body)))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        304 => "Not Modified",
        404 => "Not Found",
        416 => "Range Not Satisfiable",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}
