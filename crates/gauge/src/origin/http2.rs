//! A connection of HTTP/2 to an origin: each stream a request, answered beside the others.
//!
//! A body that is cut ends with RST_STREAM (INTERNAL_ERROR), so that nobody takes it for whole.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Shared;
use super::answer::{self, Asking, Reply};
use super::pace::Pace;

/// Streams that a client may have at one time (arbitrary; nginx has 128).
const STREAMS_MAX: u32 = 1024;

/// Answers requests until the connection ends.
pub(super) async fn serve<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let made = h2::server::Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .handshake(stream)
        .await;
    // Who breaks a connection does not want to hear about it.
    let Ok(mut connection) = made else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let shared = Arc::clone(&shared);
        tokio::task::spawn_local(async move {
            // Nor who ends a stream.
            let _ = answer(request, respond, shared).await;
        });
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
) -> Result<(), h2::Error> {
    let asking = asking(&request);
    let path = request.uri().path();
    let running = shared.counters.begin(path);
    shared.think().await;
    if shared.fails() {
        drop(running);
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        respond.send_response(head, true)?;
        return Ok(());
    }
    let reply = answer::reply(&asking, shared.generation(), &shared.conf);
    if reply.status == 304 {
        shared.counters.not_modified();
    }
    let is_over = reply.content.is_none() || reply.piece.0 == reply.piece.1;
    let mut out = respond.send_response(head(&reply), is_over)?;
    if !is_over {
        body(path, &reply, &mut out, &shared).await?;
    }
    Ok(())
}

/// Parts of a request that matter.
fn asking(request: &Request<RecvStream>) -> Asking {
    let target = request.uri().path_and_query();
    let field = |name: &str| {
        let value = request.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    Asking {
        target: target.map_or("/", |target| target.as_str()).to_owned(),
        is_head: request.method() == http::Method::HEAD,
        range: field("range"),
        if_range: field("if-range"),
        if_none_match: field("if-none-match"),
        is_last: false,
    }
}

/// The head of a reply.
fn head(reply: &Reply) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(reply.status).unwrap_or_default();
    *head.headers_mut() = fields(&reply.fields);
    head
}

/// Lines of fields as HTTP/2 has them; what is no field in it is left out.
fn fields(lines: &str) -> HeaderMap {
    let field = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    };
    lines.lines().filter_map(field).collect()
}

/// Sends the body of a reply at the pace of the configuration.
async fn body(
    path: &str,
    reply: &Reply,
    out: &mut SendStream<Bytes>,
    shared: &Shared,
) -> Result<(), h2::Error> {
    let Some(content) = reply.content else {
        return Ok(());
    };
    let (mut at, end) = reply.piece;
    let cut = shared.cut(reply.piece);
    let last = cut.unwrap_or(end);
    let mut pace = Pace::new(shared.conf.rate);
    let mut counted = None;
    while at < last {
        let left = usize::try_from(last - at).unwrap_or(usize::MAX);
        let mut bytes = vec![0; shared.piece(&pace).min(left)];
        content.write(at, &mut bytes);
        let len = bytes.len();
        shared.wait_for(&mut pace, len).await;
        counted = shared.counters.sent(path, at, len as u64, counted);
        at += len as u64;
        send(out, Bytes::from(bytes)).await?;
    }
    if cut.is_none() {
        return out.send_data(Bytes::new(), true);
    }
    shared.counters.cut();
    out.send_reset(Reason::INTERNAL_ERROR);
    Ok(())
}

/// Sends bytes as the client has room for them.
async fn send(out: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        out.reserve_capacity(bytes.len());
        let room = poll_fn(|context| out.poll_capacity(context))
            .await
            .unwrap_or(Err(Reason::STREAM_CLOSED.into()))?;
        let part = bytes.split_to(room.min(bytes.len()));
        out.send_data(part, false)?;
    }
    Ok(())
}
