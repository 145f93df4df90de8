//! Words of nodes about themselves and the configuration that they have, and verdicts on orders.
//!
//! Integers are little-endian; texts have their length (2) before them:
//!
//! | report | | verdict | |
//! |---|---|---|---|
//! | version | 1 (1 byte) | version | 1 (1 byte) |
//! | state | see [`State`] (1) | kind | 0: promoted, 1: back (1) |
//! | in force | number of the order, 0 for none (8) | node | that says so (text) |
//! | about | number of the order that the state is about (8) | reason | (text) |
//! | mark | number of the order since which is counted (8) | | |
//! | answers, errors, lookups, hits | since then (4 times 8) | | |
//! | node | (text) | | |
//! | reason | (text) | | |

use bytes::{Buf, BufMut, Bytes, BytesMut};

const VERSION: u8 = 1;
/// Bytes of a reason, at most (arbitrary).
const REASON_MAX: usize = 1024;
/// Bytes of a node's name, at most.
const NAME_MAX: usize = 64;

/// Counters of a process that its configuration may make worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Answers to clients.
    pub answers: u64,
    /// Those with a status of 500 and above.
    pub errors: u64,
    /// Answers that a cache was asked for.
    pub lookups: u64,
    /// Those that came from it.
    pub hits: u64,
}

impl Figures {
    /// Counts since then.
    pub fn since(&self, then: &Figures) -> Figures {
        Figures {
            answers: self.answers.saturating_sub(then.answers),
            errors: self.errors.saturating_sub(then.errors),
            lookups: self.lookups.saturating_sub(then.lookups),
            hits: self.hits.saturating_sub(then.hits),
        }
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Figures) {
        self.answers = self.answers.saturating_add(other.answers);
        self.errors = self.errors.saturating_add(other.errors);
        self.lookups = self.lookups.saturating_add(other.lookups);
        self.hits = self.hits.saturating_add(other.hits);
    }
}

/// State of an order on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// In force for good; or there is none.
    #[default]
    Settled,
    /// Being fetched and applied.
    Applying,
    /// In force, and watched.
    Watched,
    /// In force, watched, and not worse than what was before.
    Held,
    /// Not to be applied here.
    Refused,
    /// In force once, and no more.
    Back,
    /// Not for this node yet.
    Waiting,
}

/// All states, by their numbers.
const STATES: [State; 7] = [
    State::Settled,
    State::Applying,
    State::Watched,
    State::Held,
    State::Refused,
    State::Back,
    State::Waiting,
];

impl State {
    /// The state in a word.
    pub fn word(self) -> &'static str {
        match self {
            State::Settled => "settled",
            State::Applying => "applying",
            State::Watched => "watched",
            State::Held => "held",
            State::Refused => "refused",
            State::Back => "back",
            State::Waiting => "waiting",
        }
    }
}

/// Words of a node about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Name of the node.
    pub node: String,
    /// Number of the order that is in force; 0 for none.
    pub in_force: u64,
    /// Number of the order that the state is about.
    pub about: u64,
    /// State of that.
    pub state: State,
    /// The reason for the state, for people; empty without one.
    pub reason: String,
    /// Number of the order since which is counted.
    pub mark: u64,
    /// Counts since then.
    pub figures: Figures,
}

/// The end of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// For all nodes.
    Promoted {
        /// Node that says so.
        node: String,
    },
    /// For none.
    Back {
        /// Node that says so.
        node: String,
        /// The reason.
        reason: String,
    },
}

fn put_text(out: &mut BytesMut, text: &str, most: usize) {
    let end = text.floor_char_boundary(most);
    let kept = text.get(..end).unwrap_or_default();
    out.put_u16_le(u16::try_from(kept.len()).unwrap_or(0));
    out.put_slice(kept.as_bytes());
}

fn read_text(rest: &mut Bytes, most: usize) -> Option<String> {
    let len = usize::from(rest.try_get_u16_le().ok()?);
    let bytes = (len <= most && len <= rest.len()).then(|| rest.split_to(len))?;
    // It is shown on terminals.
    let text = String::from_utf8_lossy(&bytes);
    Some(
        text.chars()
            .map(|it| if it.is_control() { ' ' } else { it })
            .collect(),
    )
}

impl Report {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        let state = STATES.iter().position(|state| *state == self.state);
        out.put_u8(state.and_then(|it| u8::try_from(it).ok()).unwrap_or(0));
        let Figures {
            answers,
            errors,
            lookups,
            hits,
        } = self.figures;
        let numbers = [
            self.in_force,
            self.about,
            self.mark,
            answers,
            errors,
            lookups,
            hits,
        ];
        numbers
            .into_iter()
            .for_each(|number| out.put_u64_le(number));
        put_text(&mut out, &self.node, NAME_MAX);
        put_text(&mut out, &self.reason, REASON_MAX);
        out.freeze()
    }

    /// Reads a report; none if it is none.
    pub fn decode(mut rest: Bytes) -> Option<Report> {
        if rest.try_get_u8().ok()? != VERSION {
            return None;
        }
        let state = *STATES.get(usize::from(rest.try_get_u8().ok()?))?;
        let mut numbers = [0; 7];
        for number in &mut numbers {
            *number = rest.try_get_u64_le().ok()?;
        }
        let [in_force, about, mark, answers, errors, lookups, hits] = numbers;
        let report = Report {
            node: read_text(&mut rest, NAME_MAX)?,
            in_force,
            about,
            state,
            reason: read_text(&mut rest, REASON_MAX)?,
            mark,
            figures: Figures {
                answers,
                errors,
                lookups,
                hits,
            },
        };
        rest.is_empty().then_some(report)
    }
}

impl Verdict {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        let (kind, node, reason) = match self {
            Verdict::Promoted { node } => (0, node, ""),
            Verdict::Back { node, reason } => (1, node, reason.as_str()),
        };
        out.put_u8(kind);
        put_text(&mut out, node, NAME_MAX);
        put_text(&mut out, reason, REASON_MAX);
        out.freeze()
    }

    /// Reads a verdict; none if it is none.
    pub fn decode(mut rest: Bytes) -> Option<Verdict> {
        if rest.try_get_u8().ok()? != VERSION {
            return None;
        }
        let kind = rest.try_get_u8().ok()?;
        let node = read_text(&mut rest, NAME_MAX)?;
        let reason = read_text(&mut rest, REASON_MAX)?;
        match kind {
            _ if !rest.is_empty() => None,
            0 => Some(Verdict::Promoted { node }),
            1 => Some(Verdict::Back { node, reason }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_nodes_come_back_and_what_is_cut_off_is_none() {
        let report = Report {
            node: "n1".to_owned(),
            in_force: 7,
            about: 8,
            state: State::Refused,
            reason: "no".to_owned(),
            mark: 8,
            figures: Figures {
                answers: 4,
                errors: 3,
                lookups: 2,
                hits: 1,
            },
        };
        let bytes = report.encode();
        assert_eq!(Report::decode(bytes.clone()), Some(report));
        for end in 0..bytes.len() {
            assert_eq!(Report::decode(bytes.slice(..end)), None, "{end}");
        }
        let node = "n1".to_owned();
        let reason = "\u{1b}[2Jä".repeat(500);
        let verdicts = [
            Verdict::Promoted { node: node.clone() },
            Verdict::Back { node, reason },
        ];
        for verdict in verdicts {
            let bytes = verdict.encode();
            match (Verdict::decode(bytes.clone()), &verdict) {
                (Some(Verdict::Back { reason, .. }), Verdict::Back { .. }) => {
                    assert!(!reason.contains('\u{1b}') && reason.len() <= REASON_MAX);
                    assert!(reason.len() > REASON_MAX - 4);
                }
                (read, verdict) => assert_eq!(read.as_ref(), Some(verdict)),
            }
            for end in 0..bytes.len() {
                assert_eq!(Verdict::decode(bytes.slice(..end)), None, "{end}");
            }
        }
    }
}
