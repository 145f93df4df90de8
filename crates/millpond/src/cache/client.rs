//! Asking a process on its control socket: one request for each connection.
//!
//! 1. An answer that stops half-way is an error, never a shorter answer.
//! 2. What is long is handed on piece by piece.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use millpond_server::control::api::{Ask, Verb};
use millpond_server::control::query;
use millpond_wire::http1::Method;
use millpond_wire::http1::chunked::{ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits};
use millpond_wire::http1::response::{Framing, Progress, ResponseHead, ResponseParser};

/// The longest head that is read.
const HEAD_MAX: usize = 16 << 10;
/// Time for which the process may be silent. Arbitrary: looking through ten million entries on a
/// slow disk for one that passes a filter takes less.
const READ_WAIT: Duration = Duration::from_secs(600);

/// Connects; none if no process listens there.
pub(crate) fn connect(path: &Path) -> Result<Option<UnixStream>> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!(
                "{} is not for you: be root, or the user of the process",
                path.display()
            )
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Sends a request and hands the answer's body on; its status.
pub(super) fn exchange(
    stream: &UnixStream,
    ask: &Ask,
    take: &mut dyn FnMut(Bytes) -> Result<()>,
) -> Result<u16> {
    exchange_within(READ_WAIT, stream, ask, take)
}

/// Exchange like [`exchange`] with a process that may be silent for so long.
pub(crate) fn exchange_within(
    wait: Duration,
    mut stream: &UnixStream,
    ask: &Ask,
    take: &mut dyn FnMut(Bytes) -> Result<()>,
) -> Result<u16> {
    stream.set_read_timeout(Some(wait))?;
    let verb = match ask.verb {
        Verb::Get => "GET",
        Verb::Post => "POST",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
    };
    let target = query::join(&ask.segments, &ask.parameters);
    let request = format!("{verb} {target} HTTP/1.1\r\nHost: control\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut buf = BytesMut::new();
    let head = read_head(stream, &mut buf)?;
    match head.framing(Method::Get)? {
        Framing::Length(length) => read_length(stream, &mut buf, length, take)?,
        Framing::Chunked => read_chunks(stream, &mut buf, take)?,
        _ => bail!("an answer without a length"),
    }
    Ok(head.status)
}

fn read_head(stream: &UnixStream, buf: &mut BytesMut) -> Result<ResponseHead> {
    let mut parser = ResponseParser::new();
    loop {
        match parser.parse(buf, HEAD_MAX) {
            Progress::Done(head) => return Ok(head),
            Progress::NeedMore => fill(stream, buf)?,
            Progress::NotHttp => bail!("it does not speak HTTP"),
            Progress::Refuse(fault) => return Err(fault.into()),
        }
    }
}

fn read_length(
    stream: &UnixStream,
    buf: &mut BytesMut,
    length: u64,
    take: &mut dyn FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    let mut left = length;
    while left > 0 {
        if buf.is_empty() {
            fill(stream, buf)?;
        }
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        left -= count as u64;
        take(buf.split_to(count).freeze())?;
    }
    Ok(())
}

fn read_chunks(
    stream: &UnixStream,
    buf: &mut BytesMut,
    take: &mut dyn FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    let mut decoder = ChunkedDecoder::new(Strictness::Upstream, TrailerLimits::default());
    loop {
        match decoder.decode(buf)? {
            ChunkEvent::Data(piece) => take(piece)?,
            ChunkEvent::NeedMore => fill(stream, buf)?,
            ChunkEvent::End { .. } => return Ok(()),
        }
    }
}

fn fill(mut stream: &UnixStream, buf: &mut BytesMut) -> Result<()> {
    let mut piece = [0; 16 << 10];
    let count = loop {
        match stream.read(&mut piece) {
            // A read with a timeout is not begun again behind a signal's handler.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    match count {
        // INVARIANT 1.
        0 => bail!("the answer ends half-way"),
        count => buf.extend_from_slice(piece.get(..count).unwrap_or_default()),
    }
    Ok(())
}
