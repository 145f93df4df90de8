//! `ssl_stapling`: an authority's word that a certificate is still good, sent with it.
//!
//! A responder is asked when a handshake finds that it is time, and not before: that handshake has
//! what was there. As in nginx, an answer is asked for again five minutes before it ends, or after
//! an hour, but not within five minutes.
//!
//! 1. Of a certificate, one question is on its way at a time, and no handshake waits for it.
//! 2. What has ended is not sent, and neither is an answer that says anything but good.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_system::clock::{self, Instant};
use millpond_system::resolve::policy::ResolverPolicy;
use millpond_tls::Identity;
use millpond_tls::certificate::ocsp::{Question, Signer};

use super::responder::Responder;

/// The time between two questions, at least, and before its end that an answer is asked for again.
const SHORT: Duration = Duration::from_secs(300);
/// The time between two questions, at most.
const LONG: Duration = Duration::from_secs(3600);

/// A certificate whose responder is asked.
#[derive(Debug)]
pub struct Stapler {
    /// The certificate.
    pub identity: Arc<Identity>,
    /// The question about it.
    pub question: Question,
    /// The responder.
    pub responder: Responder,
    /// The way in which answers are judged.
    pub signer: Signer,
    /// Name servers.
    pub names: ResolverPolicy,
    /// Knowledge of it.
    pub state: Mutex<State>,
}

/// Knowledge of the word of an authority.
#[derive(Debug, Default)]
pub struct State {
    /// The time of the next question; none before the first.
    next: Option<Instant>,
    /// The end of the answer that is sent.
    end: Option<Instant>,
    is_asking: bool,
}

/// A question that is to be asked now.
pub struct Turn(Arc<Stapler>);

impl Stapler {
    /// Looks whether it is time to ask; takes away what has ended.
    pub fn turn(self: &Arc<Self>, now: Instant) -> Option<Turn> {
        let mut state = self.state();
        if state.end.is_some_and(|end| end <= now) {
            self.identity.set_staple(Vec::new());
            state.end = None;
        }
        let is_due = state.next.is_none_or(|next| next <= now);
        if state.is_asking || !is_due {
            return None;
        }
        state.is_asking = true;
        Some(Turn(Arc::clone(self)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Asks; why there is no answer that could be sent.
    pub async fn ask(self) -> Result<(), String> {
        let stapler = &self.0;
        let question = stapler.question.to_der().map_err(|why| why.to_string())?;
        let answer = stapler.responder.ask(&question, &stapler.names).await?;
        let judged = stapler.question.judge(&answer, stapler.signer);
        let left = judged.map_err(|why| why.to_string())?;
        let now = clock::instant();
        stapler.identity.set_staple(answer);
        let mut state = stapler.state();
        state.end = left.map(|left| now + left.min(LONG * 24 * 365));
        state.next = Some(now + pause(left));
        Ok(())
    }
}

/// The time until the next question, after an answer that is good for so long.
fn pause(left: Option<Duration>) -> Duration {
    let until_end = left.map_or(LONG, |left| left.saturating_sub(SHORT));
    until_end.clamp(SHORT, LONG)
}

impl Drop for Turn {
    /// A question without an answer is asked again after a while.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_asking = false;
        let now = clock::instant();
        if state.next.is_none_or(|next| next <= now) {
            state.next = Some(now + SHORT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_asked_for_again_before_they_end() {
        for (left, expected) in [
            (None, 3600),
            (Some(7200), 3600),
            (Some(3600), 3300),
            (Some(400), 300),
            (Some(0), 300),
        ] {
            let found = pause(left.map(Duration::from_secs)).as_secs();
            assert_eq!(found, expected, "{left:?}");
        }
    }
}
