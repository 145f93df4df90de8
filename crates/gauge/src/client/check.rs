//! Checks of an answer as it comes: the head, each byte of the body, and the end.
//!
//! ```text
//! handle_head ──► the piece that must come ──► handle_bytes … ──► handle_end
//! ```
//!
//! 1. A body is compared as it arrives, and never held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ask::{Ask, Want};
use super::fault::Fault;
use super::head::{Framing, Head};
use super::truth::{Piece, Truth};

/// Progress in reading an answer.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) began: Instant,
    pub(super) first_byte: Option<Duration>,
    pub(super) head: Option<Head>,
    pub(super) body_bytes: u64,
    /// Bytes a second; none: as they come.
    rate: Option<u64>,
    /// The piece that must come; none: any body is read.
    piece: Option<Piece>,
}

impl Reading {
    /// Nothing has come yet of what a client reads at a rate, in bytes a second.
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            began: Instant::now(),
            first_byte: None,
            head: None,
            body_bytes: 0,
            rate: rate.filter(|rate| *rate > 0),
            piece: None,
        }
    }

    /// Notes that the answer begins to come.
    pub(super) fn handle_begin(&mut self) {
        self.first_byte = Some(self.began.elapsed());
    }

    /// Checks a head, and keeps what must come of the body.
    pub(super) fn handle_head(&mut self, head: Head, ask: &Ask) -> Result<(), Fault> {
        let checked = check_head(&head, ask);
        self.head = Some(head);
        match checked {
            Ok(piece) => self.piece = piece,
            // An error page is read to its end, so that the connection can be used again.
            Err(Fault::Status(_)) => {}
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Compares bytes of the body, and waits until a slow client would want more.
    pub(super) async fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if let Some(piece) = &self.piece {
            let wanted = piece.len();
            if self.body_bytes + bytes.len() as u64 > wanted {
                return Err(Fault::TooLong { wanted });
            }
            piece.check(self.body_bytes, bytes)?;
        }
        self.body_bytes += bytes.len() as u64;
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.body_bytes as f64 / rate as f64);
            tokio::time::sleep_until((self.began + due).into()).await;
        }
        Ok(())
    }

    /// Checks that all came, and that the status was right.
    pub(super) fn handle_end(&self, ask: &Ask) -> Result<(), Fault> {
        let is_short = |piece: &Piece| self.body_bytes != piece.len();
        if self.piece.as_ref().is_some_and(is_short) {
            return Err(self.truncated());
        }
        match &self.head {
            Some(head) if !is_right(head.status, ask) => Err(Fault::Status(head.status)),
            _ => Ok(()),
        }
    }

    /// The fault of a body that ends here.
    pub(super) fn truncated(&self) -> Fault {
        Fault::Truncated {
            got: self.body_bytes,
            wanted: self.piece.as_ref().map_or(0, Piece::len),
        }
    }
}

/// True if a status is one that is right for a request.
fn is_right(status: u16, ask: &Ask) -> bool {
    match (&*ask.method, ask.want) {
        ("GET" | "HEAD", Want::Whole) => status == 200,
        ("GET" | "HEAD", _) => status == 206,
        _ => (200..300).contains(&status) || status == 404,
    }
}

/// Checks a head; returns what must come of the body.
fn check_head(head: &Head, ask: &Ask) -> Result<Option<Piece>, Fault> {
    if !is_right(head.status, ask) {
        return Err(Fault::Status(head.status));
    }
    if let [wanted, ..] = ask.statuses {
        let found = head.cache_status.as_deref().unwrap_or("-");
        if !ask.statuses.contains(&found) {
            return Err(Fault::CacheStatus {
                found: found.to_owned(),
                wanted: (*wanted).to_owned(),
            });
        }
    }
    if ask.method != "GET" {
        return Ok(None);
    }
    let truth = truth(head, ask)?;
    let (start, end) = ask.want.piece(truth.len());
    let wanted = match head.status {
        206 => Some((start, end.saturating_sub(1), truth.len())),
        _ => None,
    };
    if head.content_range != wanted {
        return Err(Fault::Field {
            name: "Content-Range",
            found: format!("{:?}", head.content_range),
            wanted: format!("{wanted:?}"),
        });
    }
    match head.framing {
        Framing::Length(length) if length != end - start => Err(Fault::Field {
            name: "Content-Length",
            found: length.to_string(),
            wanted: (end - start).to_string(),
        }),
        _ => Ok(Some(Piece { truth, start, end })),
    }
}

/// Bytes that the whole body must have.
fn truth(head: &Head, ask: &Ask) -> Result<Truth, Fault> {
    if let Some(body) = &ask.given {
        return Ok(Truth::Given(Arc::clone(body)));
    }
    let Some(generation) = head.generation else {
        return Err(Fault::Field {
            name: crate::origin::GENERATION_FIELD,
            found: "nothing".to_owned(),
            wanted: "the generation that the origin said".to_owned(),
        });
    };
    if generation < ask.oldest {
        Err(Fault::TooOld {
            found: generation,
            wanted: ask.oldest,
        })
    } else {
        Ok(Truth::Computed(ask.resource.content(generation)))
    }
}
