//! A connection to the server, encrypted or not.
//!
//! One enum, so that a plain connection pays nothing for the other kind.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Target;
use super::fault::Fault;
use super::journal::{Event, Journal, Session};
use super::tls::Connector;

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
    journal: Journal,
}

impl Opener {
    /// A maker without sessions yet.
    pub(super) fn new(target: &Target, journal: Journal) -> Self {
        Self {
            address: target.address,
            connector: target.tls.as_ref().map(|tls| tls.connector()),
            journal,
        }
    }

    /// Opens a connection, and agrees on TLS.
    pub(super) async fn open(&self) -> Result<Stream, Fault> {
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.map_err(Fault::Connect)?;
        stream.set_nodelay(true).map_err(Fault::Connect)?;
        self.journal.add(Event::Opened);
        let Some(connector) = &self.connector else {
            return Ok(Stream::Plain(stream));
        };
        let began = Instant::now();
        let stream = connector.connect(stream).await.map_err(Fault::Handshake)?;
        let session = match stream.get_ref().1.handshake_kind() {
            Some(rustls::HandshakeKind::Resumed) => Session::Resumed,
            _ => Session::Full,
        };
        let event = Event::Handshake(session, began.elapsed());
        self.journal.add(event);
        Ok(Stream::Tls(Box::new(stream)))
    }
}
