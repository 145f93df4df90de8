//! Entries that leave a zone, for those who watch.
//!
//! A departure is told where it is counted, under a lock of the index: whoever is told notes it and
//! does nothing else.
//!
//! 1. While nobody wants to know, a departure costs one look.

use crate::key::Key;

/// The reason why an entry is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its space was needed.
    Evicted,
    /// Nobody used it for `inactive`.
    Inactive,
    /// Somebody demanded its removal.
    Removed,
    /// Another one took its place.
    Replaced,
    /// Its bytes were not those that were written.
    Corrupt,
    /// The disk refused to write it.
    Lost,
}

/// An entry that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Key of the entry.
    pub key: Key,
    /// Bytes of its body.
    pub body_len: u64,
    /// The reason why it is gone.
    pub cause: Cause,
}

/// Listener to departures. It must not call the zone, nor wait.
pub trait Departures: Send + Sync {
    /// True if somebody wants to know.
    fn are_wanted(&self) -> bool;
    /// Notes a departure.
    fn note(&self, departure: Departure);
}
