//! Floods: work that costs a peer little, by the kind of it.
//!
//! | kind | what is counted | known as |
//! |---|---|---|
//! | `resets` | RST_STREAM | rapid reset, CVE-2023-44487 |
//! | `made_resets` | streams that we reset for the peer's faults | CVE-2025-8671 |
//! | `refused_streams` | streams beyond those that may be at once | |
//! | `continuations` | CONTINUATION of one block | CVE-2024-27316 |
//! | `long_heads` | bytes of a block, of a field, of all fields of a block | HPACK bombs |
//! | `settings`, `pings` | SETTINGS, PING | CVE-2019-9515, 9512 |
//! | `priorities` | PRIORITY, PRIORITY_UPDATE | CVE-2019-9513 |
//! | `small_data`, `empty_data` | DATA of few bytes that nobody takes, or of none but padding | CVE-2019-9518 |
//! | `window_updates` | WINDOW_UPDATE beyond what bytes were sent for | CVE-2019-9511 |
//! | `unknown_frames` | frames of unknown kinds | |
//! | `unread_answers` | acknowledgements that the peer does not read | CVE-2019-9517 |
//! | `long_frames` | bytes of a frame that is to be short | |
//! | `overhead` | bytes that carry nothing, of any frames | |
//!
//! 1. A kind's name is a label of a metric: it does not change.
//!
//! The numbers are in [`limits`](super::limits).

use std::fmt;

/// A kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flood {
    /// Streams that the peer resets.
    Resets,
    /// Streams that the peer makes us reset.
    MadeResets,
    /// Streams beyond those that may be at once.
    RefusedStreams,
    /// CONTINUATION frames of one block.
    Continuations,
    /// Blocks or fields of more bytes than are read.
    LongHeads,
    /// SETTINGS frames, and acknowledgements of ours.
    Settings,
    /// PING frames, and answers to ours.
    Pings,
    /// PRIORITY and PRIORITY_UPDATE frames.
    Priorities,
    /// DATA frames of few bytes that nobody takes.
    SmallData,
    /// DATA frames of no bytes but padding.
    EmptyData,
    /// WINDOW_UPDATE frames.
    WindowUpdates,
    /// Frames of kinds that are not known.
    UnknownFrames,
    /// Acknowledgements that the peer does not read.
    UnreadAnswers,
    /// Frames that are to be short, and are not.
    LongFrames,
    /// Bytes that carry nothing.
    Overhead,
}

/// The count of kinds.
pub const FLOODS: usize = Flood::ALL.len();

impl Flood {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Flood; 15] = [
        Flood::Resets,
        Flood::MadeResets,
        Flood::RefusedStreams,
        Flood::Continuations,
        Flood::LongHeads,
        Flood::Settings,
        Flood::Pings,
        Flood::Priorities,
        Flood::SmallData,
        Flood::EmptyData,
        Flood::WindowUpdates,
        Flood::UnknownFrames,
        Flood::UnreadAnswers,
        Flood::LongFrames,
        Flood::Overhead,
    ];

    /// The name, as metrics have it. INVARIANT 1.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Flood::Resets => ("resets", "RST_STREAM frames"),
            Flood::MadeResets => ("made_resets", "faulty streams, each to be reset"),
            Flood::RefusedStreams => ("refused_streams", "refused streams"),
            Flood::Continuations => ("continuations", "CONTINUATION frames"),
            Flood::LongHeads => ("long_heads", "long heads"),
            Flood::Settings => ("settings", "SETTINGS frames"),
            Flood::Pings => ("pings", "PING frames"),
            Flood::Priorities => ("priorities", "PRIORITY frames"),
            Flood::SmallData => ("small_data", "small DATA frames"),
            Flood::EmptyData => ("empty_data", "empty DATA frames"),
            Flood::WindowUpdates => ("window_updates", "WINDOW_UPDATE frames"),
            Flood::UnknownFrames => ("unknown_frames", "frames of unknown kinds"),
            Flood::UnreadAnswers => ("unread_answers", "acknowledgements that are not read"),
            Flood::LongFrames => ("long_frames", "long frames"),
            Flood::Overhead => ("overhead", "frames without payload"),
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
