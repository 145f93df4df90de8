//! A connection to the server, encrypted or not.
//!
//! One enum, so that a plain connection pays nothing for the other kind. HTTP/2's library reads and
//! writes it by itself, so for that it is wrapped.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::fault::{Fault, tls_error};
use super::http2::Health;
use super::journal::{Event, Journal, Session};
use super::tls::Connector;
use super::{Protocol, Target};

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    /// Clear text.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Sends bytes, to the last one.
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Reads more into a buffer; none at an end that is in order.
    pub(super) async fn read_buf(&mut self, buf: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read_buf(buf).await,
            Self::Tls(stream) => stream.read_buf(buf).await,
        }
    }

    /// Ends the connection, over TLS with close_notify if there is room for it.
    pub(super) fn end(self) {
        if let Self::Tls(stream) = self {
            let (socket, mut connection) = stream.into_inner();
            let mut out = Vec::new();
            connection.send_close_notify();
            // The server may have closed it already, and need not hear of it then.
            let _ = connection.write_tls(&mut out);
            let _ = socket.try_write(&out);
        }
    }
}

/// Maker of connections to one server; it has the sessions that can be resumed.
#[derive(Clone, Debug)]
pub(super) struct Opener {
    address: SocketAddr,
    connector: Option<Connector>,
    protocol: Protocol,
    journal: Journal,
}

impl Opener {
    /// A maker without sessions yet.
    pub(super) fn new(target: &Target, journal: Journal) -> Self {
        Self {
            address: target.address,
            connector: target
                .tls
                .as_ref()
                .map(|tls| tls.connector(target.protocol)),
            protocol: target.protocol,
            journal,
        }
    }

    /// Opens a connection, and agrees on TLS.
    pub(super) async fn open(&self) -> Result<Stream, Fault> {
        let stream = TcpStream::connect(self.address)
            .await
            .map_err(Fault::Connect)?;
        stream.set_nodelay(true).map_err(Fault::Connect)?;
        self.journal.add(Event::Opened);
        let Some(connector) = &self.connector else {
            return Ok(Stream::Plain(stream));
        };
        let began = Instant::now();
        let encrypted = connector.connect(stream).await.map_err(Fault::Handshake)?;
        let agreed = encrypted.get_ref().1.alpn_protocol();
        if !self.protocol.is_agreed(agreed) {
            let agreed = agreed.map_or("nothing".into(), String::from_utf8_lossy);
            let text = format!("the server agreed on {agreed}, wanted {}", self.protocol);
            return Err(Fault::Handshake(io::Error::other(text)));
        }
        let session = match encrypted.get_ref().1.handshake_kind() {
            Some(rustls::HandshakeKind::Resumed) => Session::Resumed,
            _ => Session::Full,
        };
        let event = Event::Handshake(session, began.elapsed());
        self.journal.add(event);
        Ok(Stream::Tls(Box::new(encrypted)))
    }
}

/// A connection under frames of HTTP/2, which keeps what TLS finds wrong in its [`Health`].
#[derive(Debug)]
pub(super) struct Watched {
    stream: Stream,
    health: Rc<Health>,
}

impl Watched {
    /// Wraps a connection.
    pub(super) fn new(stream: Stream, health: Rc<Health>) -> Self {
        Self { stream, health }
    }

    fn noted<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled
            && let Some(wrong) = tls_error(error)
        {
            self.health.note(wrong);
        }
        polled
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buf),
        };
        self.noted(polled)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.noted(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        };
        self.noted(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        };
        self.noted(polled)
    }
}
