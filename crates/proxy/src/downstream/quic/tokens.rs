//! Tokens by which a client that was here before shows its address at once (NEW_TOKEN, RFC 9000
//! §8.1.4): each is good once.
//!
//! Two sets are enough: what was used longer ago than tokens last is refused by its age.
//!
//! 1. No more than [`USED_MOST`] are known for each of the two; beyond that tokens are good for
//!    nothing, and clients show their address as those do who have none.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use quinn_proto::{TokenLog, TokenReuseError};

/// The time for which a token is good (nginx: ten minutes).
pub(super) const LIFETIME: Duration = Duration::from_secs(600);

/// Tokens that are used in that time (guessed: 30 connections a second; a quarter of a megabyte).
const USED_MOST: usize = 16 * 1024;

/// Tokens that were used.
#[derive(Debug, Default)]
pub(super) struct UsedTokens(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    /// Those of this period, which began with the first of them that was issued.
    current: HashSet<u128>,
    before: HashSet<u128>,
    began: Option<SystemTime>,
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began = *used.began.get_or_insert(issued);
        // A token that was issued a lifetime later: what came before this period is too old now.
        if issued.duration_since(began).is_ok_and(|age| age > lifetime) {
            used.before = std::mem::take(&mut used.current);
            used.began = Some(issued);
        }
        let is_known = used.before.contains(&nonce) || used.current.len() >= USED_MOST;
        if is_known || !used.current.insert(nonce) {
            return Err(TokenReuseError);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once() {
        let used = UsedTokens::default();
        let start = SystemTime::UNIX_EPOCH;
        let take = |nonce, after| {
            used.check_and_insert(nonce, start + after, LIFETIME)
                .is_ok()
        };
        assert!(take(1, Duration::ZERO));
        assert!(!take(1, Duration::ZERO));
        // In the next period, too.
        assert!(take(2, LIFETIME * 3 / 2));
        assert!(!take(1, Duration::ZERO));
        assert!(!take(2, LIFETIME * 3 / 2));
    }

    #[test]
    fn no_more_are_known_than_the_bound() {
        let used = UsedTokens::default();
        let take = |nonce, at| used.check_and_insert(nonce, at, LIFETIME).is_ok();
        let start = SystemTime::UNIX_EPOCH;
        let all = 0..2 * USED_MOST as u128;
        assert_eq!(all.filter(|nonce| take(*nonce, start)).count(), USED_MOST);
        assert!(take(u128::MAX, start + LIFETIME * 2), "a new period");
    }
}
