//! The ledger: the last purge of each target in the log of a fleet, to judge by what was stored
//! outside of this node.
//!
//! An entry that lies elsewhere has no serial of this node, and rules of the book leave when
//! nothing in this zone can be purged by them any more. So it carries the position in the log up to
//! which no purge was about it, and is compared with all that the log has, by sequence and by time.
//!
//! ```text
//!   the whole log, in order ──► note ──► by sequence ─┐
//!                                    └─► by time ─────┴─► judge: untouched by both, or not used
//! ```
//!
//! 1. An entry counts as untouched only if no purge that is about it stands behind its position.
//! 2. The times are compared as well as the sequences: a log that was put back to a copy gives the
//!    sequences that it lost to other purges, which are later.
//! 3. The ledger is bounded. Where it is full, the older half of its purges becomes one of
//!    everything (`book.rs`), so that what is older than it knows is not used.

use millpond_store::Keys;

use super::book::{Judged, Rules, Subject};
use super::position::Position;
use super::rule::{Matter, Mode, Rule, Target};
use crate::head::StoredHead;

/// Targets of a ledger, each tag counted (arbitrary: about forty megabytes).
const TARGETS_MAX: usize = 256 << 10;

/// The purges of one zone.
#[derive(Debug)]
pub struct Ledger {
    keys: Keys,
    by_sequence: Rules,
    by_time: Rules,
}

impl Ledger {
    /// No purges, of a zone with such keys.
    pub fn new(keys: Keys) -> Self {
        Ledger::with_limit(keys, TARGETS_MAX)
    }

    fn with_limit(keys: Keys, limit: usize) -> Self {
        Ledger {
            keys,
            by_sequence: Rules::new(keys, limit),
            by_time: Rules::new(keys, limit),
        }
    }

    /// Notes a purge with its place in the log: they come in the order of the log.
    pub fn note(&mut self, target: &Target, mode: Mode, at: Position) {
        let rule = |serial| Rule {
            serial,
            at: 0,
            mode,
            matter: Matter::of(target, &self.keys),
            position: None,
        };
        let (by_sequence, by_time) = (rule(at.sequence), rule(at.at_ms));
        self.by_sequence.add(&by_sequence);
        self.by_time.add(&by_time);
    }

    /// True if no purge behind the position is about what has this head.
    pub fn is_untouched(&self, head: &StoredHead, position: Position) -> bool {
        let subject = |serial| Subject {
            serial,
            ..head.subject()
        };
        // INVARIANTS 1 and 2.
        self.by_sequence.judge(&subject(position.sequence)) == Judged::Untouched
            && self.by_time.judge(&subject(position.at_ms)) == Judged::Untouched
    }

    /// Number of targets.
    pub fn len(&self) -> usize {
        self.by_sequence.count()
    }

    /// True if it has no targets of its own; there may be a purge of everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::head::FieldsWriter;
    use crate::tag::TagWriter;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn keys() -> Keys {
        Keys::for_tests()
    }

    fn head() -> StoredHead {
        let mut head = StoredHead::new(200, FieldsWriter::default());
        head.key = text("http://h/dir/page");
        let mut tags = TagWriter::new(b"h", b"shop");
        tags.push_all(b"red blue");
        head.tags = tags.finish();
        head
    }

    fn at(sequence: u64, at_ms: u64) -> Position {
        Position {
            log: [0; 16],
            sequence,
            at_ms,
        }
    }

    #[test]
    fn what_is_purged_behind_a_position_is_touched_and_what_was_before_is_not() {
        let about = [
            Target::Key(text("http://h/dir/page")),
            Target::Prefix(text("http://h/dir/")),
            Target::Wildcard(text("*/dir/*")),
            Target::Host(text("h")),
            Target::Site(text("shop")),
            Target::Tags(vec![text("green"), text("blue")]),
            Target::All,
        ];
        for target in about {
            for mode in [Mode::Hard, Mode::Soft] {
                let mut ledger = Ledger::new(keys());
                ledger.note(&target, mode, at(5, 500));
                assert!(!ledger.is_untouched(&head(), at(4, 400)), "{target:?}");
                assert!(ledger.is_untouched(&head(), at(5, 500)), "{target:?}");
                assert!(ledger.is_untouched(&head(), at(9, 900)), "{target:?}");
            }
        }
        let others = [
            Target::Key(text("http://h/dir/")),
            Target::Prefix(text("http://h/dirs")),
            Target::Wildcard(text("*.png")),
            Target::Host(text("g")),
            Target::Site(text("h")),
            Target::Tags(vec![text("green")]),
        ];
        for target in others {
            let mut ledger = Ledger::new(keys());
            ledger.note(&target, Mode::Hard, at(5, 500));
            assert!(ledger.is_untouched(&head(), at(1, 100)), "{target:?}");
        }
    }

    /// A log that is put back to a copy counts on from there: its next purges have sequences that
    /// an entry may have seen others with.
    #[test]
    fn purge_of_a_log_that_was_put_back_is_told_by_its_time() {
        let mut ledger = Ledger::new(keys());
        ledger.note(&Target::All, Mode::Hard, at(5, 2000));
        assert!(!ledger.is_untouched(&head(), at(9, 900)));
        assert!(ledger.is_untouched(&head(), at(9, 2000)));
    }

    #[test]
    fn what_is_older_than_a_full_ledger_knows_is_touched() {
        let mut ledger = Ledger::with_limit(keys(), 100);
        for number in 1..=150 {
            let target = Target::Key(Bytes::from(format!("http://h/{number}")));
            ledger.note(&target, Mode::Hard, at(number, number * 10));
            assert!(ledger.len() <= 100);
        }
        assert!(!ledger.is_untouched(&head(), at(1, 10)));
        assert!(ledger.is_untouched(&head(), at(149, 1490)));
    }
}
