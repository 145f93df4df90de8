//! A whole resource, and then about a hundred ranges of it at random, each user its own.
//!
//! Ranges of all forms and lengths, one byte included. All must be hits once the whole is there.

use super::Knobs;
use crate::client::{Ask, Want};
use crate::load::User;
use crate::resource::Resource;

/// Ranges of one resource.
const RANGES: u64 = 100;

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    for number in 0_u64.. {
        let name = format!("range-{}-{number}", user.number);
        let resource = Resource::new(&knobs.run, name, knobs.size);
        if user.turn().await.is_none() {
            return;
        }
        if user.ask(&Ask::get(&resource)).await.is_none() {
            continue;
        }
        for _ in 0..RANGES {
            if user.turn().await.is_none() {
                return;
            }
            let mut ask = Ask::part(&resource, any(&mut user.random, resource.len()));
            ask.statuses = &["HIT"];
            user.ask(&ask).await;
        }
    }
}

/// A range of `len` bytes that has at least one.
pub(super) fn any(random: &mut fastrand::Rng, len: u64) -> Want {
    let len = len.max(1);
    let start = random.u64(0..len);
    match random.u8(0..8) {
        0 => Want::Part(start, start + 1),
        1 => Want::Part(0, random.u64(1..=len)),
        2 => Want::From(start),
        3 => Want::Last(random.u64(1..=len)),
        4 => Want::Part(start, len + random.u64(1..1000)),
        5 => Want::Part(start, start + random.u64(1..=(len - start).min(1 << 10))),
        _ => Want::Part(start, start + random.u64(1..=len - start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_has_a_byte_that_is_there() {
        let mut random = fastrand::Rng::with_seed(7);
        for len in [1, 2, 3, 1000, 1 << 40] {
            for _ in 0..1000 {
                let want = any(&mut random, len);
                let (start, end) = want.piece(len);
                assert!(start < end && end <= len, "{want:?} of {len}");
            }
        }
    }
}
