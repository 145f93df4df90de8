//! Circuit: whether a store that has failed is asked.
//!
//! ```text
//!            FAULTS_MAX faults in a row              OPEN_MS later
//!   Closed ───────────────────────────► Open ──────────────────────► Probing (one question)
//!     ▲                                  ▲                               │
//!     └──────────── answered ────────────┼───────────────────────────────┤
//!                                        └──────────── fault ────────────┘
//! ```
//!
//! 1. While it is open nobody waits for the store, but one question each `OPEN_MS`.
//! 2. A question that is never accounted for holds nobody up for longer than that.

/// Faults in a row after which the store is left alone (arbitrary).
const FAULTS_MAX: u32 = 5;
/// Time for which it is left alone (arbitrary; long enough that waiting costs little).
pub const OPEN_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The store is asked.
    #[default]
    Closed,
    /// The store is left alone until then.
    Open(u64),
    /// One question was let through, and until then no other one.
    Probing(u64),
}

/// The circuit of one store.
#[derive(Debug, Default)]
pub struct Circuit {
    state: State,
    faults: u32,
}

/// News about a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The store is left alone from now on.
    Opened,
    /// The store is asked again.
    Closed,
}

impl Circuit {
    /// True if the store may be asked at `now_ms`.
    pub fn lets_through(&mut self, now_ms: u64) -> bool {
        match self.state {
            State::Closed => true,
            State::Open(until) | State::Probing(until) if now_ms < until => false,
            State::Open(_) | State::Probing(_) => {
                self.state = State::Probing(now_ms.saturating_add(OPEN_MS));
                true
            }
        }
    }

    /// True unless it is closed.
    pub fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// The store has answered.
    pub fn answered(&mut self) -> Option<News> {
        let was_open = self.is_open();
        *self = Circuit::default();
        was_open.then_some(News::Closed)
    }

    /// The store has failed.
    pub fn failed(&mut self, now_ms: u64) -> Option<News> {
        self.faults = self.faults.saturating_add(1);
        let until = now_ms.saturating_add(OPEN_MS);
        match self.state {
            State::Closed if self.faults < FAULTS_MAX => None,
            State::Closed => {
                self.state = State::Open(until);
                Some(News::Opened)
            }
            // What was asked before it opened says nothing new.
            State::Open(_) => None,
            State::Probing(_) => {
                self.state = State::Open(until);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 1..FAULTS_MAX {
            assert!(circuit.lets_through(0));
            assert_eq!(circuit.failed(0), None);
        }
        assert_eq!(circuit.failed(1000), Some(News::Opened));
        circuit
    }

    #[test]
    fn faults_in_a_row_open_it_and_answers_in_between_do_not() {
        let mut circuit = Circuit::default();
        for _ in 0..100 {
            for _ in 1..FAULTS_MAX {
                assert_eq!(circuit.failed(0), None);
            }
            assert_eq!(circuit.answered(), None);
        }
        assert!(!circuit.is_open() && circuit.lets_through(0));
        assert!(opened().is_open());
    }

    #[test]
    fn open_it_lets_one_question_through_after_a_while() {
        let mut circuit = opened();
        assert!(!circuit.lets_through(1000 + OPEN_MS - 1));
        assert!(circuit.lets_through(1000 + OPEN_MS));
        assert!(!circuit.lets_through(1000 + OPEN_MS));
        // Nothing is heard of it.
        assert!(circuit.lets_through(1000 + 2 * OPEN_MS));
        assert_eq!(circuit.failed(50_000), None);
        assert!(!circuit.lets_through(50_000 + OPEN_MS - 1));
        assert!(circuit.lets_through(50_000 + OPEN_MS));
        assert_eq!(circuit.answered(), Some(News::Closed));
        assert!(circuit.lets_through(50_000 + OPEN_MS));
    }

    #[test]
    fn questions_of_before_do_not_keep_it_open_longer() {
        let mut circuit = opened();
        assert_eq!(circuit.failed(9000), None);
        assert!(circuit.lets_through(1000 + OPEN_MS));
    }
}
