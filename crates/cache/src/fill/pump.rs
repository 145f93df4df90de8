//! The body of a fill: from the origin into the store, at the origin's speed, for whoever reads.
//!
//! The pump is a task that belongs to no client. It stops reading the origin while the disk is behind, finishes the entry when the
//! body is whole, and gives it up when it is not. If the store takes no more half-way (full, failing), the leader's client
//! still gets the rest, through a short channel; others who read along see the end.
//!
//! Invariants:
//! 1. A body that did not end well is never finished.
//! 2. Memory is bounded: the store's write window, or [`OVERFLOW_PIECES`] pieces for the leader.

use bytes::Bytes;
use millpond_store::{Entry, NotStored, View, Writer};
use tokio::sync::mpsc;

use super::{FillEnd, Lead};
use crate::step::{FetchEnd, Fetched};

/// Pieces that wait for the leader's client once the store has refused (a piece is one read from the origin).
const OVERFLOW_PIECES: usize = 4;

/// Reads a running fill.
#[derive(Debug)]
pub struct Reader {
    /// The body as far as the store has it.
    pub view: View,
    /// What comes after the store has refused; only the leader has it.
    pub overflow: Option<mpsc::Receiver<Result<Bytes, FetchEnd>>>,
}

/// A fill in progress.
pub struct Pump<F> {
    fetched: F,
    writer: Writer,
    overflow: mpsc::Sender<Result<Bytes, FetchEnd>>,
}

/// How far a first, non-waiting round came.
pub enum Primed<F> {
    /// The whole body was there: the entry is stored.
    Done(Box<Entry>),
    /// More is to come.
    Running(Pump<F>, Reader),
}

impl<F: Fetched> Pump<F> {
    /// A pump and the leader's reader.
    pub fn new(fetched: F, writer: Writer) -> (Self, Reader) {
        let (overflow, receiver) = mpsc::channel(OVERFLOW_PIECES);
        let reader = Reader { view: writer.view(), overflow: Some(receiver) };
        (Pump { fetched, writer, overflow }, reader)
    }

    /// Runs the fill to its end.
    pub async fn run(mut self, lead: Lead) {
        let end = loop {
            self.writer.room().await;
            match self.fetched.next().await {
                Some(Ok(bytes)) => {
                    if let Err(refused) = self.writer.append(bytes.clone()) {
                        return self.run_unstored(bytes, refused, lead).await;
                    }
                }
                Some(Err(end)) => {
                    drop(self.writer);
                    // A receiver that is gone needs no message.
                    let _ = self.overflow.try_send(Err(end));
                    break FillEnd::Abandoned;
                }
                None => match self.writer.finish() {
                    Ok(_) => break FillEnd::Complete,
                    Err(_) => break FillEnd::NotStorable,
                },
            }
        };
        lead.end(end);
    }

    /// The store refused: the leader's client gets the rest, and nobody else.
    async fn run_unstored(mut self, first: Bytes, _refused: NotStored, lead: Lead) {
        drop(self.writer);
        lead.end(FillEnd::NotStorable);
        let mut piece = Some(Ok(first));
        while let Some(next) = piece {
            let is_last = next.is_err();
            if self.overflow.send(next).await.is_err() || is_last {
                return;
            }
            piece = self.fetched.next().await;
        }
    }
}
