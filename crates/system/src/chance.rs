//! The one place where randomness comes from.
//!
//! SipHash of nothing, under keys that the standard library draws from the system's random source:
//! nobody who sees some of the words can guess the others.

use std::hash::{BuildHasher, RandomState};

/// 64 random bits.
pub fn word() -> u64 {
    RandomState::new().hash_one(())
}

/// A number below `bound`; 0 when that is 0.
pub fn below(bound: u64) -> u64 {
    // The bounds are small, so that the remainder's bias is far below what anybody could notice.
    word().checked_rem(bound).unwrap_or(0)
}
