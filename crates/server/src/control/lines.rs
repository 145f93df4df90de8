//! Long answers: lines are put together into pieces, and each piece goes out at once.
//!
//! ```text
//! a walk through a zone ──push──► Pieces ──a piece──► Sink: chunks of a socket, or a channel
//! ```
//!
//! 1. What is put together has about [`PIECE`] bytes and no more than a line besides.
//! 2. Who makes a list steps back behind the workers: where there is too little of the processor
//!    for both, they have it.

use std::io;

use bytes::BytesMut;
use rustix::process::setpriority_process;

use super::api::Lines;

/// Bytes that are sent at once.
pub(crate) const PIECE: usize = 32 << 10;
/// Number by which the kernel favours a thread that lists less (`nice`): less than a ninth of a
/// worker's share.
const STEP_BACK: i32 = 10;

/// Receiver of pieces of an answer.
pub(crate) trait Sink {
    /// Sends a piece, and leaves nothing of it; an error ends the answer.
    fn send(&mut self, piece: &mut BytesMut) -> io::Result<()>;
    /// True if somebody still wants more.
    fn is_wanted(&mut self) -> bool;
}

/// Lines on their way.
pub(crate) struct Pieces<S> {
    sink: S,
    out: BytesMut,
}

impl<S: Sink> Pieces<S> {
    /// Nothing yet; the thread that calls this makes the list.
    pub(crate) fn new(sink: S) -> Self {
        // INVARIANT 2. What the kernel refuses is only less polite.
        let _ = setpriority_process(None, STEP_BACK);
        Pieces {
            sink,
            out: BytesMut::new(),
        }
    }

    /// Sends what is left, and gives the sink back.
    pub(crate) fn end(mut self) -> io::Result<S> {
        self.flush()?;
        Ok(self.sink)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            Ok(())
        } else {
            self.sink.send(&mut self.out)
        }
    }
}

impl<S: Sink> Lines for Pieces<S> {
    fn push(&mut self, line: &str) -> io::Result<()> {
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(b"\n");
        if self.out.len() < PIECE {
            Ok(())
        } else {
            self.flush()
        }
    }

    fn push_now(&mut self, line: &str) -> io::Result<()> {
        self.push(line)?;
        self.flush()
    }

    fn is_wanted(&mut self) -> bool {
        self.sink.is_wanted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sent(Vec<usize>);

    impl Sink for Sent {
        fn send(&mut self, piece: &mut BytesMut) -> io::Result<()> {
            self.0.push(piece.split().len());
            Ok(())
        }

        fn is_wanted(&mut self) -> bool {
            true
        }
    }

    #[test]
    fn pieces_are_about_as_long_as_they_may_be() {
        // On a thread of its own, which steps back.
        let made = std::thread::spawn(|| {
            let mut pieces = Pieces::new(Sent::default());
            let line = "x".repeat(PIECE / 2);
            for _ in 0..5 {
                pieces.push(&line).unwrap();
            }
            pieces.push_now("now").unwrap();
            pieces.push("last").unwrap();
            pieces.end().unwrap().0
        });
        let sent = made.join().unwrap();
        assert_eq!(sent, [PIECE + 2, PIECE + 2, PIECE / 2 + 1 + 4, 5]);
    }
}
