//! The log of a fleet, as a trait: entries in one order for all nodes, which outlive the nodes.
//!
//! 1. An entry that was acknowledged has a sequence larger than all that were acknowledged before
//!    it was written, whichever node wrote them.
//! 2. A feed has the entries of the log in their order, from where it begins, and leaves none out
//!    but those that a newer one of the same subject has replaced, or that got too old. A feed that
//!    may have lost something ends with an error.
//! 3. A feed is one of the log whose standing was returned with it, or ends.

use std::time::Duration;

use bytes::Bytes;

use crate::entry::Entry;

/// The log as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Name of the log: one that was made anew has another.
    pub log: [u8; 16],
    /// Sequence of the newest entry; 0 for none.
    pub last: u64,
    /// Time of the newest entry by the log's clock, milliseconds since 1970.
    pub last_at_ms: u64,
    /// Time for which entries are kept; zero for ever.
    pub retain: Duration,
}

/// An entry with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Sequence of the entry.
    pub sequence: u64,
    /// Time at which the log got it, by its clock, milliseconds since 1970.
    pub at_ms: u64,
    /// Number of entries that stood behind it when it was sent.
    pub pending: u64,
    /// Bytes of the entry.
    pub payload: Bytes,
}

/// The reason why the log was not to be had.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct LogError {
    /// Task that failed.
    pub what: &'static str,
    /// Words of the log's client.
    pub why: String,
}

/// Entries that were missed, and those to come.
#[derive(Debug)]
pub struct Opened<F> {
    /// The feed.
    pub feed: F,
    /// Number of entries that it has already.
    pub pending: u64,
    /// Name of the log that it is of.
    pub log: [u8; 16],
}

/// A log.
pub trait FleetLog {
    /// Entries as they come.
    type Feed: Feed;

    /// Adds an entry; its sequence, once the log has acknowledged it. After an error it may be in
    /// the log or not.
    fn append(&self, entry: &Entry) -> impl Future<Output = Result<u64, LogError>>;

    /// The log as it stands; it may have gone on meanwhile.
    fn standing(&self) -> impl Future<Output = Result<Standing, LogError>>;

    /// Entries behind a sequence.
    fn read_behind(
        &self,
        sequence: u64,
    ) -> impl Future<Output = Result<Opened<Self::Feed>, LogError>>;
}

/// Entries of a log in their order.
pub trait Feed {
    /// The next entries, at least one and at most `most`; waits for them.
    fn next(&mut self, most: usize) -> impl Future<Output = Result<Vec<Record>, LogError>>;
}
