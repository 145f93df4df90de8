//! Floods: work that costs a peer little, by the kind of it.
//!
//! | kind | what is counted |
//! |---|---|
//! | `resets` | requests that the peer resets, or whose answers it stops |
//! | `made_resets` | streams that we reset for the peer's faults |
//! | `rejected_requests` | requests beyond those that may be at once |
//! | `priorities` | PRIORITY_UPDATE |
//! | `small_data`, `empty_data` | DATA of few bytes that nobody takes, or of none |
//! | `unknown_frames`, `unknown_streams` | frames and streams of unknown kinds |
//! | `long_frames` | bytes of a frame that is to be short |
//! | `blocked_streams` | blocks of fields that wait for the table, more than may |
//! | `table_instructions` | insertions, duplicates and sizes of our table |
//! | `acknowledgements` | what the peer tells of its table |
//! | `unread_answers` | acknowledgements that the peer does not read |
//! | `pings` | PING and PATH_CHALLENGE of QUIC |
//! | `identifiers` | connection IDs that the peer gives or gives back |
//!
//! 1. A kind's name is a label of a metric: it does not change.
//!
//! The numbers are in `limits`.

use std::fmt;

/// A kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flood {
    /// Requests that the peer resets, or whose answers it stops.
    Resets,
    /// Streams that the peer makes us reset.
    MadeResets,
    /// Requests beyond those that may be at once.
    RejectedRequests,
    /// PRIORITY_UPDATE frames.
    Priorities,
    /// DATA frames of few bytes that nobody takes.
    SmallData,
    /// DATA frames of no bytes.
    EmptyData,
    /// Frames of kinds that are not known.
    UnknownFrames,
    /// Streams of kinds that are not known.
    UnknownStreams,
    /// Frames that are to be short, and are not.
    LongFrames,
    /// Blocks of fields that wait for the table.
    BlockedStreams,
    /// Instructions for our table.
    TableInstructions,
    /// Acknowledgements of the peer's table.
    Acknowledgements,
    /// Our acknowledgements that the peer does not read.
    UnreadAnswers,
    /// Frames of QUIC that ask for an answer.
    Pings,
    /// Connection IDs of QUIC that the peer gives or gives back.
    Identifiers,
}

/// The count of kinds.
pub const FLOODS: usize = Flood::ALL.len();

impl Flood {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Flood; 15] = [
        Flood::Resets,
        Flood::MadeResets,
        Flood::RejectedRequests,
        Flood::Priorities,
        Flood::SmallData,
        Flood::EmptyData,
        Flood::UnknownFrames,
        Flood::UnknownStreams,
        Flood::LongFrames,
        Flood::BlockedStreams,
        Flood::TableInstructions,
        Flood::Acknowledgements,
        Flood::UnreadAnswers,
        Flood::Pings,
        Flood::Identifiers,
    ];

    /// The name, as metrics have it. INVARIANT 1.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Flood::Resets => ("resets", "reset requests"),
            Flood::MadeResets => ("made_resets", "faulty streams, each to be reset"),
            Flood::RejectedRequests => ("rejected_requests", "rejected requests"),
            Flood::Priorities => ("priorities", "PRIORITY_UPDATE frames"),
            Flood::SmallData => ("small_data", "small DATA frames"),
            Flood::EmptyData => ("empty_data", "empty DATA frames"),
            Flood::UnknownFrames => ("unknown_frames", "frames of unknown kinds"),
            Flood::UnknownStreams => ("unknown_streams", "streams of unknown kinds"),
            Flood::LongFrames => ("long_frames", "long frames"),
            Flood::BlockedStreams => ("blocked_streams", "blocked streams"),
            Flood::TableInstructions => ("table_instructions", "instructions for the table"),
            Flood::Acknowledgements => ("acknowledgements", "acknowledgements of the table"),
            Flood::UnreadAnswers => ("unread_answers", "acknowledgements that are not read"),
            Flood::Pings => ("pings", "PING and PATH_CHALLENGE frames"),
            Flood::Identifiers => ("identifiers", "connection IDs"),
        }
    }
}

/// The words of the log.
impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_and_stand_at_their_numbers() {
        for (number, flood) in Flood::ALL.into_iter().enumerate() {
            assert_eq!(flood as usize, number, "{flood:?}");
            let same = Flood::ALL.iter().filter(|it| it.name() == flood.name());
            assert_eq!(same.count(), 1, "{flood:?}");
        }
    }
}
