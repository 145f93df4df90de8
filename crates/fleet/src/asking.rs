//! Asking: the list of another node, piece by piece, on a thread that may wait.
//!
//! The next piece is asked for when the one before was taken; who drops an [`Asking`] asks no more,
//! and the other node gives its list up after a while (`ask.rs`).

use std::sync::Arc;

use bytes::Bytes;
use millpond_system::chance;

use crate::ask::{Piece, Question, Session};
use crate::node::Node;

/// A list of another node that is being asked for.
#[derive(Debug)]
pub struct Asking {
    own: Arc<Node>,
    /// Name of the node that is asked.
    to: String,
    question: Question,
    is_over: bool,
}

impl Asking {
    /// Asks a node of the fleet for what it would answer a request to the API with.
    pub fn new(own: Arc<Node>, to: &str, target: String) -> Asking {
        let mut session = Session::default();
        let words = [chance::word(), chance::word()].map(u64::to_le_bytes);
        session.copy_from_slice(words.as_flattened());
        Asking {
            own,
            to: to.to_owned(),
            question: Question {
                session,
                number: 0,
                target,
            },
            is_over: false,
        }
    }

    /// Waits for the next lines; none at the end of the list. The error says why there is none.
    pub fn next_lines(&mut self) -> Result<Option<Bytes>, String> {
        if self.is_over {
            return Ok(None);
        }
        match self.own.ask_and_wait(&self.to, &self.question)? {
            Piece::More(lines) => {
                self.question.number += 1;
                Ok(Some(lines))
            }
            Piece::Last(lines) => {
                self.is_over = true;
                Ok(Some(lines))
            }
            Piece::Refused(why) => Err(why),
        }
    }
}
