//! The pulse of the workers: once in a while each is asked for a sign of life.
//!
//! ```text
//! rest ──pause is over──► asking ──every worker answered──► rest, and a beat
//!                            └─────a worker has ended─────► rest, and no beat
//! ```
//!
//! A worker that hangs leaves the round open, so that there is no beat: whoever waits for beats
//! (a watchdog) finds out.

use std::time::Duration;

use millpond_system::clock;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::thread::{Command, WorkerThread};

/// The rounds of questions.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Time between two rounds; none if nobody wants to know.
    period: Option<Duration>,
    next: Instant,
    round: Round,
}

/// The state of the round.
#[derive(Debug)]
enum Round {
    /// The next one has not begun.
    Rest,
    /// Answers that are still to come.
    Asking(Vec<oneshot::Receiver<()>>),
}

impl Pulse {
    pub(super) fn new(period: Option<Duration>) -> Self {
        Pulse {
            period,
            next: clock::instant(),
            round: Round::Rest,
        }
    }

    /// Waits until every worker has answered; for ever if nobody wants to know. It may be dropped
    /// at any await and called again.
    pub(super) async fn beat(&mut self, workers: &[WorkerThread]) {
        self.beat_of(|| workers.iter().map(ask).collect()).await;
    }

    async fn beat_of(&mut self, ask_all: impl Fn() -> Vec<oneshot::Receiver<()>>) {
        let Some(period) = self.period else {
            return std::future::pending().await;
        };
        loop {
            if let Round::Rest = self.round {
                clock::sleep_until(self.next).await;
                self.next = clock::instant() + period;
                self.round = Round::Asking(ask_all());
            }
            if self.has_all_answers().await {
                return;
            }
        }
    }

    /// Waits for the answers of a round, and ends it; false if there is none of a worker.
    async fn has_all_answers(&mut self) -> bool {
        let mut is_whole = true;
        if let Round::Asking(answers) = &mut self.round {
            while let Some(answer) = answers.last_mut().filter(|_| is_whole) {
                is_whole = answer.await.is_ok();
                answers.pop();
            }
        }
        self.round = Round::Rest;
        is_whole
    }
}

fn ask(worker: &WorkerThread) -> oneshot::Receiver<()> {
    let (answer, answered) = oneshot::channel();
    worker.send(Command::Answer(answer));
    answered
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const PERIOD: Duration = Duration::from_secs(5);

    /// True if there is a beat within two rounds.
    async fn beats(pulse: &mut Pulse, ask: impl Fn() -> Vec<oneshot::Receiver<()>>) -> bool {
        clock::within(2 * PERIOD, pulse.beat_of(ask))
            .await
            .is_some()
    }

    fn answered() -> oneshot::Receiver<()> {
        let (answer, answered) = oneshot::channel();
        answer.send(()).unwrap();
        answered
    }

    #[tokio::test(start_paused = true)]
    async fn beat_comes_once_a_period_while_all_answer() {
        let mut pulse = Pulse::new(Some(PERIOD));
        let rounds = Cell::new(0);
        let start = clock::instant();
        let ask = || {
            rounds.set(rounds.get() + 1);
            vec![answered(), answered()]
        };
        for _ in 0..3 {
            assert!(beats(&mut pulse, ask).await);
        }
        assert_eq!((clock::instant() - start, rounds.get()), (2 * PERIOD, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn worker_that_hangs_or_has_ended_leaves_out_the_beat() {
        let mut pulse = Pulse::new(Some(PERIOD));
        let hanging = RefCell::new(Vec::new());
        let ask = || {
            let (answer, answered_late) = oneshot::channel();
            hanging.borrow_mut().push(answer);
            vec![answered(), answered_late]
        };
        assert!(!beats(&mut pulse, ask).await);
        let late = hanging.borrow_mut().pop().unwrap();
        late.send(()).unwrap();
        assert!(beats(&mut pulse, ask).await, "it has only been slow");
        let ended = || vec![oneshot::channel().1, answered()];
        assert!(!beats(&mut pulse, ended).await);
        assert!(beats(&mut pulse, || vec![answered()]).await);
        assert!(!beats(&mut Pulse::new(None), || vec![answered()]).await);
    }
}
