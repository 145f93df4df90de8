//! `proxy_buffering`, `proxy_buffers`, `proxy_temp_path`, `proxy_limit_rate` and their like: how
//! answers flow through.
//!
//! Answers stream through bounded memory (`backlog.rs`): a piece is read from the upstream when the
//! client, or the store, can take it. There are no temporary files but those of `proxy_store`, so
//! that some of the directives are read for their mistakes only.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use millpond_cache::ignore::IgnorableField;
use millpond_conf::value::SizeTemplate;
use millpond_conf::{Buffers, ByteSize};
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::clock::{self, Instant};
use millpond_system::temp_file::TempFolder;
use millpond_wire::header::{Fields, Known};

use crate::request::Request;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::protocol::Protocol;

/// Settings of how answers of upstreams flow through this server.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct BufferPolicy {
    /// Reads answers ahead of the client. An answer that is not read ahead, here or by its
    /// X-Accel-Buffering, is neither stored nor slowed down by `limit_rate` and
    /// `proxy_limit_rate`.
    ///
    /// # Differs from nginx
    ///
    /// Of an answer that is not read ahead, `proxy_buffer_size` bytes are held for the client, and
    /// no less than 16k.
    #[directive(
        name = "proxy_buffering",
        default = "on",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub buffering: bool,
    /// Number and size of the buffers of one answer. Together with `proxy_buffer_size` they are the
    /// most that is held of an answer which is not stored, while its client takes nothing; then the
    /// upstream waits.
    ///
    /// # Differs from nginx
    ///
    /// It is one block of memory, of no less than 16k and no more than 64k; a fast answer of known
    /// length has up to 128k where 192k or more are allowed. A stored answer is held by its zone.
    #[directive(
        name = "proxy_buffers",
        default = "8 4k",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub buffers: Buffers,
    /// The part of the buffers that may wait for the client.
    ///
    /// # Differs from nginx
    ///
    /// All of them may; the value is only checked.
    #[directive(
        name = "proxy_busy_buffers_size",
        default = "8k",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub busy_size: ByteSize,
    /// The most of an answer that is kept in a temporary file.
    ///
    /// # Differs from nginx
    ///
    /// There are no temporary files; the value is only checked.
    #[directive(
        name = "proxy_max_temp_file_size",
        default = "1024m",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub max_temp_size: ByteSize,
    /// Largest amount that is written to a temporary file at once.
    ///
    /// # Differs from nginx
    ///
    /// There are no temporary files; the value is only checked.
    #[directive(
        name = "proxy_temp_file_write_size",
        default = "8k",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub temp_write_size: ByteSize,
    /// Folder of temporary files, with up to three levels of subfolders, which are named after that
    /// many of the last digits of a file's number.
    ///
    /// # Differs from nginx
    ///
    /// Only answers that `proxy_store` keeps have temporary files.
    #[directive(
        name = "proxy_temp_path",
        default = "proxy_temp",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub temp_path: TempFolder,
    /// The rate at which an answer is read from the upstream, in bytes a second; 0 means no limit.
    #[directive(name = "proxy_limit_rate", only("proxy", "fastcgi", "scgi", "uwsgi"))]
    pub limit_rate: Option<SizeTemplate>,
    /// Asks the upstream to the end when the client has gone.
    ///
    /// # Differs from nginx
    ///
    /// An answer that is being stored is always read to its end; one that is not ends with its
    /// client.
    #[directive(
        name = "proxy_ignore_client_abort",
        default = "off",
        only("proxy", "fastcgi", "scgi", "uwsgi")
    )]
    pub ignore_abort: bool,
    /// The least that the kernel sends at once.
    ///
    /// # Differs from nginx
    ///
    /// Linux does not have it, and nginx ignores it there too; the value is only checked.
    #[directive(name = "proxy_send_lowat", default = "0", only("proxy", "fastcgi"))]
    pub send_lowat: ByteSize,
    /// The receive buffer of connections to upstreams.
    ///
    /// # Differs from nginx
    ///
    /// The kernel's own sizing is left alone; the value is only checked.
    #[directive(
        name = "proxy_socket_rcvbuf",
        default = "0",
        contexts(http, server, location, stream, stream_server)
    )]
    pub socket_rcvbuf: ByteSize,
    /// The send buffer of connections to upstreams.
    ///
    /// # Differs from nginx
    ///
    /// The kernel's own sizing is left alone; the value is only checked.
    #[directive(
        name = "proxy_socket_sndbuf",
        default = "0",
        contexts(http, server, location, stream, stream_server)
    )]
    pub socket_sndbuf: ByteSize,
}

/// True if an answer with these fields is read ahead of its client.
pub(crate) fn is_buffered(req: &Request, protocol: Protocol, fields: &Fields) -> bool {
    let settings = req.location.settings.pass(protocol);
    // nginx: what a gRPC server says is passed on as it comes.
    let is_usual = settings.buffer.buffering && protocol != Protocol::Grpc;
    let said = fields
        .get(Known::XAccelBuffering)
        .filter(|_| settings.ignore.obeys(IgnorableField::XAccelBuffering));
    match said {
        Some(said) if said.eq_ignore_ascii_case(b"no") => false,
        Some(said) if said.eq_ignore_ascii_case(b"yes") => true,
        _ => is_usual,
    }
}

/// The rate of `proxy_limit_rate` for a request; `None` without a limit.
pub(crate) fn limit_rate(req: &mut Request, protocol: Protocol) -> Option<u64> {
    let location = std::sync::Arc::clone(&req.location);
    let template = location
        .settings
        .pass(protocol)
        .buffer
        .limit_rate
        .as_ref()?;
    let text = req.eval(&template.0);
    let rate = std::str::from_utf8(&text)
        .ok()
        .and_then(millpond_conf::value::parse_offset)?;
    (rate > 0).then_some(rate)
}

/// Lets pieces through no faster than a rate.
pub(crate) struct Pace {
    rate: u64,
    started: Instant,
    taken: u64,
    rest: Option<Piece>,
    pause: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// Result of polling a body for its next piece.
type NextPiece = Poll<Option<Result<Piece, BodyError>>>;

impl Pace {
    /// A pace of so many bytes a second, from now on.
    pub(crate) fn new(rate: u64) -> Self {
        Pace {
            rate,
            started: clock::instant(),
            taken: 0,
            rest: None,
            pause: None,
        }
    }

    /// Bytes that may be taken now: the share of the seconds that have begun.
    fn allowance(&self) -> u64 {
        let seconds = (clock::instant() - self.started).as_secs() + 1;
        self.rate.saturating_mul(seconds).saturating_sub(self.taken)
    }

    /// The next piece of what `next` gives, when it is time for it.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        next: impl FnOnce(&mut Context<'_>) -> NextPiece,
    ) -> NextPiece {
        let allowance = loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match self.allowance() {
                0 => {
                    let elapsed = clock::instant() - self.started;
                    let wait = Duration::from_millis(1000 - u64::from(elapsed.subsec_millis()));
                    self.pause = Some(Box::pin(clock::pause(wait)));
                }
                allowance => break allowance,
            }
        };
        let mut piece = match self.rest.take() {
            Some(piece) => piece,
            None => match ready!(next(cx)) {
                Some(Ok(piece)) => piece,
                end => return Poll::Ready(end),
            },
        };
        let part = piece.split_to(allowance);
        self.taken += part.len();
        if !piece.is_empty() {
            self.rest = Some(piece);
        }
        Poll::Ready(Some(Ok(part)))
    }
}

/// A body read no faster than a rate.
pub(crate) struct Paced {
    body: Body,
    pace: Pace,
}

impl Paced {
    /// Slows `body` down to `rate` bytes a second.
    pub(crate) fn new(body: Body, rate: u64) -> Self {
        Paced {
            body,
            pace: Pace::new(rate),
        }
    }
}

impl BodyStream for Paced {
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> NextPiece {
        let Paced { body, pace } = &mut *self;
        pace.poll_next(cx, |cx| body.poll_next(cx))
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<millpond_wire::header::Fields> {
        self.body.take_trailers()
    }
}
