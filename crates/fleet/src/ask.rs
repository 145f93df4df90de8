//! Questions of one node to another: the list of what it has, in pieces.
//!
//! ```text
//! who asks ── question: session, number of the piece ──► NATS ──► asked node
//!     ▲                                                            │ a thread makes the lines
//!     └───────────── piece: lines, whether there are more ◄────────┘
//! ```
//!
//! A question is for the piece behind the one before, so no more of an answer is on its way than
//! one piece, and whoever asks no more ends it. Integers are little-endian, and both end with a
//! MAC:
//!
//! | question | | piece | |
//! |---|---|---|---|
//! | version | 1 (1 byte) | version | 1 (1 byte) |
//! | time | milliseconds since 1970 (8) | kind | 0: more follows, 1: the last, 2: refused (1) |
//! | session | chosen at random (16) | matter | lines, each with its end; or the reason (rest) |
//! | number | of the piece, from 0 (4) | MAC | (32) |
//! | matter | target of a request to the API (rest) | | |
//! | MAC | (32) | | |
//!
//! The MAC of a question is the HMAC-SHA256, under the secret of the fleet, of the node's name, the
//! subject that the answer goes to, and all before it; that of a piece is one of the session, the
//! number, and all before it.
//!
//! 1. What is not signed, or was made longer than `TIME_MAX_MS` ago or ahead, is not answered.
//! 2. There are at most `LISTS_MAX` lists, each with two pieces in memory; one that nobody goes
//!    on with for `IDLE_MS` is given up.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hmac::{Hmac, KeyInit as _, Mac as _};
use millpond_system::clock;
use sha2::Sha256;
use tokio::sync::mpsc;

use crate::peers::Secret;

const VERSION: u8 = 1;
const MAC_LEN: usize = 32;
/// Milliseconds by which clocks of nodes may differ, as for requests between them.
const TIME_MAX_MS: u64 = 300_000;
/// Bytes of a question, at most (arbitrary; a target of the API is shorter).
const QUESTION_MAX: usize = 16 << 10;
/// Bytes of a piece, when no line is longer: a message of NATS has a megabyte at most.
const PIECE_LEN: usize = 128 << 10;
/// Bytes of a line, at most.
const LINE_MAX: usize = 512 << 10;
/// Lists that are made at once (arbitrary: people ask for them).
const LISTS_MAX: usize = 2;
/// Time after which a list is given up.
const IDLE_MS: u64 = 15_000;
/// Time in which a piece must be there.
const PIECE_WITHIN: Duration = Duration::from_secs(10);

/// Name of a list that is being asked for.
pub(crate) type Session = [u8; 16];

/// Lists of a node for others that ask.
pub trait Catalogue: Debug + Send + Sync {
    /// Hands on the lines that a request to the API is answered with, until `take` is false; or
    /// the reason why there are none.
    fn list(&self, target: &str, take: &mut dyn FnMut(&str) -> bool) -> Result<(), String>;
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) session: Session,
    pub(crate) number: u32,
    pub(crate) target: String,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Lines, and more to come.
    More(Bytes),
    /// The last lines.
    Last(Bytes),
    /// No answer; the reason.
    Refused(String),
}

fn mac(secret: &Secret, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).ok()?;
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    Some(mac)
}

fn signed(mut out: BytesMut, secret: &Secret, about: [&[u8]; 2]) -> Bytes {
    if let Some(mac) = mac(secret, &[about[0], about[1], &out]) {
        out.put_slice(&mac.finalize().into_bytes());
    }
    out.freeze()
}

/// The bytes before a MAC that holds.
fn verified(bytes: &Bytes, secret: &Secret, about: [&[u8]; 2]) -> Option<Bytes> {
    let end = bytes.len().checked_sub(MAC_LEN)?;
    let (matter, signature) = (bytes.slice(..end), bytes.slice(end..));
    let mac = mac(secret, &[about[0], about[1], &matter])?;
    // Compared in constant time.
    mac.verify_slice(&signature).ok()?;
    Some(matter)
}

impl Question {
    /// Bytes of the question to a node whose answer goes to `reply`.
    pub(crate) fn encode(
        &self,
        secret: &Secret,
        (node, reply): (&str, &str),
        now_ms: u64,
    ) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_u64_le(now_ms);
        out.put_slice(&self.session);
        out.put_u32_le(self.number);
        out.put_slice(self.target.as_bytes());
        signed(out, secret, [node.as_bytes(), reply.as_bytes()])
    }

    /// Reads a question; none if it is not to be answered.
    pub(crate) fn decode(
        bytes: &Bytes,
        secret: &Secret,
        (node, reply): (&str, &str),
        now_ms: u64,
    ) -> Option<Question> {
        // INVARIANT 1.
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= QUESTION_MAX)?;
        let mut rest = verified(bytes, secret, [node.as_bytes(), reply.as_bytes()])?;
        let (version, at_ms) = (rest.try_get_u8().ok()?, rest.try_get_u64_le().ok()?);
        if version != VERSION || at_ms.abs_diff(now_ms) > TIME_MAX_MS {
            return None;
        }
        let mut session = Session::default();
        rest.try_copy_to_slice(&mut session).ok()?;
        Some(Question {
            session,
            number: rest.try_get_u32_le().ok()?,
            target: String::from_utf8(rest.to_vec()).ok()?,
        })
    }
}

impl Piece {
    /// Bytes of the answer to a question.
    pub(crate) fn encode(&self, secret: &Secret, question: &Question) -> Bytes {
        let mut out = BytesMut::new();
        let (kind, matter) = match self {
            Piece::More(lines) => (0, &lines[..]),
            Piece::Last(lines) => (1, &lines[..]),
            Piece::Refused(why) => (2, why.as_bytes()),
        };
        out.put_u8(VERSION);
        out.put_u8(kind);
        out.put_slice(matter);
        signed(
            out,
            secret,
            [&question.session, &question.number.to_le_bytes()],
        )
    }

    /// Reads the answer to a question.
    pub(crate) fn decode(bytes: &Bytes, secret: &Secret, question: &Question) -> Option<Piece> {
        let about: [&[u8]; 2] = [&question.session, &question.number.to_le_bytes()];
        let mut rest = verified(bytes, secret, about)?;
        if rest.try_get_u8().ok()? != VERSION {
            return None;
        }
        match rest.try_get_u8().ok()? {
            0 => Some(Piece::More(rest)),
            1 => Some(Piece::Last(rest)),
            2 => Some(Piece::Refused(String::from_utf8_lossy(&rest).into_owned())),
            _ => None,
        }
    }
}

/// A list that is being made.
#[derive(Debug)]
struct List {
    session: Session,
    /// Number of the piece that is asked for next.
    next: u32,
    asked_ms: u64,
    pieces: mpsc::Receiver<Piece>,
}

/// Lists that other nodes ask this one for.
#[derive(Debug)]
pub(crate) struct Lists {
    catalogue: Arc<dyn Catalogue>,
    open: Vec<List>,
}

impl Lists {
    /// Lists of what a catalogue has.
    pub(crate) fn new(catalogue: Arc<dyn Catalogue>) -> Self {
        Lists {
            catalogue,
            open: Vec::new(),
        }
    }

    /// Answers a question at `now_ms`, of any clock that does not go back.
    pub(crate) async fn answer(&mut self, question: &Question, now_ms: u64) -> Piece {
        // INVARIANT 2.
        self.open
            .retain(|list| now_ms.saturating_sub(list.asked_ms) <= IDLE_MS);
        if question.number == 0 {
            if self.open.len() >= LISTS_MAX {
                return Piece::Refused("too many ask it at once".to_owned());
            }
            match begin(&self.catalogue, question, now_ms) {
                Ok(list) => self.open.push(list),
                Err(why) => return Piece::Refused(why),
            }
        }
        let is_meant =
            |list: &List| (list.session, list.next) == (question.session, question.number);
        let Some(place) = self.open.iter().position(is_meant) else {
            return Piece::Refused("the list was given up".to_owned());
        };
        let mut list = self.open.swap_remove(place);
        match clock::within(PIECE_WITHIN, list.pieces.recv()).await {
            Some(Some(Piece::More(lines))) => {
                (list.next, list.asked_ms) = (list.next + 1, now_ms);
                self.open.push(list);
                Piece::More(lines)
            }
            Some(Some(end)) => end,
            Some(None) => Piece::Refused("the list broke off".to_owned()),
            None => Piece::Refused("the list takes too long".to_owned()),
        }
    }
}

/// Has a thread make a list.
fn begin(catalogue: &Arc<dyn Catalogue>, question: &Question, now_ms: u64) -> Result<List, String> {
    let (give, pieces) = mpsc::channel(1);
    let (catalogue, target) = (Arc::clone(catalogue), question.target.clone());
    std::thread::Builder::new()
        .name("fleet-list".to_owned())
        .spawn(move || {
            let end = make(&*catalogue, &target, &give);
            // Without a taker nobody wants it any more.
            let _ = give.blocking_send(end);
        })
        .map_err(|why| why.to_string())?;
    Ok(List {
        session: question.session,
        next: 0,
        asked_ms: now_ms,
        pieces,
    })
}

fn make(catalogue: &dyn Catalogue, target: &str, give: &mpsc::Sender<Piece>) -> Piece {
    let (mut lines, mut longest) = (BytesMut::new(), 0);
    let listed = catalogue.list(target, &mut |line| {
        longest = line.len().max(longest);
        if longest > LINE_MAX {
            return false;
        }
        lines.put_slice(line.as_bytes());
        lines.put_u8(b'\n');
        lines.len() < PIECE_LEN
            || give
                .blocking_send(Piece::More(lines.split().freeze()))
                .is_ok()
    });
    match listed {
        _ if longest > LINE_MAX => Piece::Refused("an entry of it is too long".to_owned()),
        Ok(()) => Piece::Last(lines.freeze()),
        Err(why) => Piece::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    fn question(session: u8, number: u32, target: &str) -> Question {
        Question {
            session: [session; 16],
            number,
            target: target.to_owned(),
        }
    }

    #[test]
    fn questions_are_taken_as_they_were_signed_and_in_their_time() {
        let (own, other) = (secret("one"), secret("two"));
        let asked = question(1, 7, "/zones/z?a=b");
        let to = ("n1", "inbox");
        let now_ms = 1_000_000;
        let bytes = asked.encode(&own, to, now_ms);
        let read = |bytes: &Bytes, secret, to, now_ms| Question::decode(bytes, secret, to, now_ms);
        assert_eq!(read(&bytes, &own, to, now_ms), Some(asked.clone()));
        assert_eq!(read(&bytes, &own, to, now_ms + TIME_MAX_MS), Some(asked));
        assert_eq!(read(&bytes, &own, to, now_ms + TIME_MAX_MS + 1), None);
        assert_eq!(read(&bytes, &own, to, now_ms - TIME_MAX_MS - 1), None);
        assert_eq!(read(&bytes, &other, to, now_ms), None);
        assert_eq!(read(&bytes, &own, ("n2", "inbox"), now_ms), None);
        assert_eq!(read(&bytes, &own, ("n1", "other"), now_ms), None);
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes.slice(..len), &own, to, now_ms), None, "{len}");
        }
        let mut changed = bytes.to_vec();
        changed[20] ^= 1;
        assert_eq!(read(&Bytes::from(changed), &own, to, now_ms), None);
    }

    #[test]
    fn pieces_are_of_their_question() {
        let own = secret("one");
        let asked = question(1, 7, "");
        let lines = Bytes::from_static(b"a\nb\n");
        for piece in [
            Piece::More(lines.clone()),
            Piece::Last(lines),
            Piece::Refused("why".to_owned()),
        ] {
            let bytes = piece.encode(&own, &asked);
            assert_eq!(Piece::decode(&bytes, &own, &asked), Some(piece));
            assert_eq!(Piece::decode(&bytes, &own, &question(1, 8, "")), None);
            assert_eq!(Piece::decode(&bytes, &own, &question(2, 7, "")), None);
            assert_eq!(Piece::decode(&bytes, &secret("two"), &asked), None);
        }
    }

    #[derive(Debug)]
    struct Numbers;

    impl Catalogue for Numbers {
        fn list(&self, target: &str, take: &mut dyn FnMut(&str) -> bool) -> Result<(), String> {
            let count = target.parse::<u32>().map_err(|_| "no number".to_owned())?;
            for number in 0..count {
                if !take(&format!("{number:0>1000}")) {
                    break;
                }
            }
            Ok(())
        }
    }

    async fn whole(lists: &mut Lists, session: u8, target: &str) -> Result<(u32, Vec<u8>), String> {
        let mut all = Vec::new();
        for number in 0.. {
            match lists.answer(&question(session, number, target), 0).await {
                Piece::More(lines) => {
                    assert!(lines.len() < PIECE_LEN + 1001);
                    all.extend_from_slice(&lines);
                }
                Piece::Last(lines) => {
                    all.extend_from_slice(&lines);
                    return Ok((number + 1, all));
                }
                Piece::Refused(why) => return Err(why),
            }
        }
        Err("no end".to_owned())
    }

    #[tokio::test]
    async fn lists_come_whole_and_in_pieces() {
        let mut lists = Lists::new(Arc::new(Numbers));
        assert_eq!(whole(&mut lists, 1, "0").await, Ok((1, Vec::new())));
        let (pieces, all) = whole(&mut lists, 2, "1000").await.unwrap();
        assert_eq!((pieces, all.len()), (8, 1_001_000));
        let lines = all.split(|byte| *byte == b'\n');
        let numbers = lines.filter_map(|line| std::str::from_utf8(line).ok()?.parse::<u32>().ok());
        assert!(numbers.eq(0..1000));
        assert_eq!(whole(&mut lists, 3, "x").await, Err("no number".to_owned()));
        assert!(lists.open.is_empty());
    }

    #[tokio::test]
    async fn lists_are_few_and_given_up_when_nobody_goes_on() {
        let mut lists = Lists::new(Arc::new(Numbers));
        for session in 0..2 {
            let piece = lists.answer(&question(session, 0, "1000"), 0).await;
            assert!(matches!(piece, Piece::More(_)));
        }
        let more = question(9, 0, "1");
        let refused = Piece::Refused("too many ask it at once".to_owned());
        assert_eq!(lists.answer(&more, IDLE_MS).await, refused);
        let piece = lists.answer(&question(0, 1, ""), IDLE_MS).await;
        assert!(matches!(piece, Piece::More(_)));
        // The other one is idle for too long now.
        assert!(matches!(
            lists.answer(&more, IDLE_MS + 1).await,
            Piece::Last(_)
        ));
        let gone = Piece::Refused("the list was given up".to_owned());
        assert_eq!(lists.answer(&question(1, 1, ""), IDLE_MS + 1).await, gone);
        // A piece that was asked for already is not made again.
        assert_eq!(lists.answer(&question(0, 1, ""), IDLE_MS + 1).await, gone);
    }
}
