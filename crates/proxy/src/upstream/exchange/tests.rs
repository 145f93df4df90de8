//! Tests of the exchange with an origin.

use super::*;

/// Bytes of the future that a function of three arguments makes.
fn future_size<'r, 't, 'a, F, T>(_: F) -> usize
where
    F: FnOnce(&'r mut Request, &'t PassTarget, &'a Ask) -> T,
{
    size_of::<T>()
}

#[test]
fn an_exchange_is_no_longer_than_what_the_allocator_has_at_hand() {
    let size = future_size(fetch);
    assert!(size <= 1032, "{size}");
}
