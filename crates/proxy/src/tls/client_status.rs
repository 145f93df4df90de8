//! `ssl_ocsp`: the status of clients' certificates, asked of responders (RFC 6960).
//!
//! ```text
//! good chain ──► a question for each certificate below the topmost one (`leaf`: the first)
//!                  └─► known (`ssl_ocsp_cache`)? ── no ──► the responder ──► known for its time
//!                        └───────────────┬─────────────────────┘
//!                      good: the next one | anything else: the chain is not good
//! ```
//!
//! 1. The handshake waits for the answers, within its own time; the worker does not.
//! 2. Without an answer that can be used the chain is not good.
//! 3. What is remembered has the bound that the configuration gives, and goes when its time is
//!    over.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_conf::Words;
use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ParseContext, Word};
use millpond_system::clock::{self, Instant};
use millpond_system::resolve::policy::ResolverPolicy;
use millpond_tls::CertificateDer;
use millpond_tls::certificate::ocsp::{Authorities, Question, Signer, Status};
use millpond_tls::certificate::verdict::Fault;

use super::responder::Responder;

/// The certificates of a chain whose status is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Asked {
    /// None.
    #[word("off")]
    None,
    /// All but the topmost one.
    #[word("on")]
    Chain,
    /// The client's own.
    #[word("leaf")]
    Leaf,
}

/// `ssl_ocsp_cache`: the zone that answers are kept in, with its size in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheName(pub Option<(String, u64)>);

impl FromWord for CacheName {
    const SYNTAX: &'static str = "off | shared:name:size";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<Self, WordError> {
        let text = word.text.as_str();
        let wrong = |what: String| Err(WordError::Message(what));
        let parts: Vec<&str> = text.splitn(3, ':').collect();
        match parts.as_slice() {
            ["off"] => Ok(CacheName(None)),
            ["shared", name, size] if !name.is_empty() => {
                match millpond_conf::value::parse_offset(size) {
                    Some(size) if size >= SMALLEST => {
                        Ok(CacheName(Some(((*name).to_owned(), size))))
                    }
                    Some(_) => wrong(format!("OCSP cache \"{text}\" is too small")),
                    None => wrong(format!("invalid OCSP cache \"{text}\"")),
                }
            }
            _ => wrong(format!("invalid OCSP cache \"{text}\"")),
        }
    }
}

/// The smallest zone, as in nginx: eight pages.
const SMALLEST: u64 = 8 * 4096;
/// Bytes of an answer that is kept, about.
const KEPT: usize = 256;
/// The longest time for which an answer is kept.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Answers that are kept.
#[derive(Debug)]
pub struct Known {
    most: usize,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    by_question: HashMap<Vec<u8>, (Status, Instant)>,
    /// Questions, the oldest first.
    order: VecDeque<Vec<u8>>,
}

impl Known {
    /// Room for so many bytes.
    pub fn new(size: usize) -> Self {
        Known {
            most: (size / KEPT).max(1),
            answers: Mutex::default(),
        }
    }

    fn find(&self, question: &[u8], now: Instant) -> Option<Status> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, end) = answers.by_question.get(question)?;
        (*end > now).then_some(*status)
    }

    fn keep(&self, question: Vec<u8>, status: Status, end: Instant) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers
            .by_question
            .insert(question.clone(), (status, end))
            .is_none()
        {
            answers.order.push_back(question);
        }
        while answers.by_question.len() > self.most
            && let Some(oldest) = answers.order.pop_front()
        {
            answers.by_question.remove(&oldest);
        }
    }
}

/// The way in which a server learns the status of its clients' certificates.
#[derive(Debug)]
pub struct StatusCheck {
    /// The certificates that are asked about.
    pub asked: Asked,
    /// Authorities that are trusted.
    pub authorities: Authorities,
    /// The responder that is asked in the place of those that certificates name.
    pub responder: Option<Responder>,
    /// Name servers.
    pub names: ResolverPolicy,
    /// Answers that are kept.
    pub known: Option<Arc<Known>>,
}

/// A status that is not good: what the client is told, and the line for the log, if there is more
/// to say.
pub type NotGood = (Fault, Option<String>);

impl StatusCheck {
    /// Asks about a good chain, the client's certificate first.
    pub async fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), NotGood> {
        let failed = |why: String| (Fault::NO_STATUS, Some(why));
        let questions =
            Question::chain(chain, &self.authorities).map_err(|why| failed(why.to_string()))?;
        let count = if self.asked == Asked::Leaf {
            1
        } else {
            usize::MAX
        };
        for question in questions.iter().take(count) {
            match self.status(question).await.map_err(failed)? {
                Status::Good => {}
                Status::Revoked => return Err((Fault::STATUS_REVOKED, None)),
                Status::Unknown => return Err((Fault::STATUS_UNKNOWN, None)),
            }
        }
        Ok(())
    }

    async fn status(&self, question: &Question) -> Result<Status, String> {
        let text = question.to_der().map_err(|why| why.to_string())?;
        let responder = match &self.responder {
            Some(responder) => responder.clone(),
            None => {
                let named = question.responder();
                Responder::parse(&named.ok_or("no OCSP responder URL in certificate")?)?
            }
        };
        let known = self.known.as_ref();
        if let Some(status) = known.and_then(|it| it.find(&text, clock::instant())) {
            return Ok(status);
        }
        let answer = responder.ask(&text, &self.names).await?;
        let judged = question.status(&answer, Signer::Entitled);
        let (status, left) = judged.map_err(|why| why.to_string())?;
        if let Some(known) = known {
            let end = clock::instant() + left.unwrap_or(LONGEST).min(LONGEST);
            known.keep(text, status, end);
        }
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_ends() {
        let known = Known::new(3 * KEPT);
        let now = clock::instant();
        let second = Duration::from_secs(1);
        known.keep(vec![0], Status::Revoked, now + second);
        assert_eq!(known.find(&[0], now), Some(Status::Revoked));
        assert_eq!(known.find(&[0], now + second), None);
        for number in 1..=3 {
            known.keep(vec![number], Status::Good, now + second);
        }
        assert_eq!(known.find(&[0], now), None, "the oldest goes");
        assert_eq!(known.find(&[1], now), Some(Status::Good));
        known.keep(vec![1], Status::Unknown, now + second);
        assert_eq!(known.find(&[1], now), Some(Status::Unknown));
        assert_eq!(known.find(&[2], now), Some(Status::Good));
    }
}
