//! Versions that were found to be gone at the origin, so that another node is told who has one.
//!
//! 1. What is remembered is bounded, and forgetting it costs questions, no more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::clock;
use crate::key_mark::KeyMark;

/// Versions that are remembered (arbitrary; a few hundred kilobytes at the most).
const REMEMBERED_MAX: usize = 4096;
/// Time for which a version is remembered (arbitrary: who still has it is asked within that).
const REMEMBERED: Duration = Duration::from_secs(60);

/// The version of each key that was found to be gone last, by its validator.
#[derive(Debug, Default)]
pub struct Gone(Mutex<HashMap<KeyMark, (Bytes, Instant)>>);

impl Gone {
    /// Notes that a version of a key is gone.
    pub fn note(&self, mark: KeyMark, validator: Bytes) {
        let mut versions = self.lock();
        if versions.len() >= REMEMBERED_MAX {
            versions.clear();
        }
        if let Some(until) = clock::now().checked_add(REMEMBERED) {
            versions.insert(mark, (validator, until));
        }
    }

    /// The validator of the version of a key that is gone.
    pub fn of(&self, mark: &KeyMark) -> Option<Bytes> {
        let versions = self.lock();
        let (validator, until) = versions.get(mark)?;
        (clock::now() <= *until).then(|| validator.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyMark, (Bytes, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use millpond_store::{Key, Keys};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn versions_are_remembered_for_a_minute() {
        let (gone, keys) = (Gone::default(), Keys::for_tests());
        let mark = |text: &[u8]| KeyMark::of(&keys, &Key([1; 16]), text);
        gone.note(mark(b"/a"), Bytes::from_static(b"\"1\""));
        gone.note(mark(b"/a"), Bytes::from_static(b"\"2\""));
        assert_eq!(gone.of(&mark(b"/a")).unwrap(), "\"2\"");
        assert_eq!(gone.of(&mark(b"/b")), None);
        tokio::time::advance(REMEMBERED + Duration::from_secs(1)).await;
        assert_eq!(gone.of(&mark(b"/a")), None);
    }
}
