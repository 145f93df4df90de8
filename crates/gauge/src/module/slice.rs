//! Ranges far apart of large resources, shared by all users: no byte is fetched twice.

use super::{Claim, Knobs};
use crate::client::{Ask, Want};
use crate::load::User;
use crate::origin::{Asked, Origin};
use crate::resource::Resource;

/// The longest range.
const LONGEST: u64 = 4 << 20;

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    while user.turn().await.is_some() {
        let number = user.random.u64(0..knobs.objects.max(1));
        let resource = Resource::new(&knobs.run, format_args!("slice-{number}"), knobs.size);
        let len = resource.len().max(1);
        let start = user.random.u64(0..len);
        let longest = (len - start).min(LONGEST);
        let want = Want::Part(start, start + user.random.u64(1..=longest));
        user.ask(&Ask::part(&resource, want)).await;
    }
}

pub(super) fn claims(origin: &Origin) -> Vec<Claim> {
    let all = origin.all_asked();
    let twice = all.iter().map(|(_, asked)| sent_twice(asked)).sum();
    vec![Claim::at_most(
        "bytes that the origin sent more than once",
        twice,
        0,
    )]
}

/// Bytes of one body that were sent again.
fn sent_twice(asked: &Asked) -> u64 {
    let mut sent = asked.sent.clone();
    sent.sort_unstable();
    let (mut twice, mut end) = (0, 0);
    for (start, stop) in sent {
        twice += end.min(stop).saturating_sub(start);
        end = end.max(stop);
    }
    twice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_sent_again_are_counted_once_for_each_time() {
        for (sent, twice) in [
            (vec![], 0),
            (vec![(0, 10), (10, 20)], 0),
            (vec![(10, 20), (0, 10)], 0),
            (vec![(0, 10), (5, 20)], 5),
            (vec![(0, 100), (5, 20), (10, 30)], 35),
            (vec![(0, 10), (0, 10), (0, 10)], 20),
        ] {
            let asked = Asked {
                sent,
                ..Asked::default()
            };
            assert_eq!(sent_twice(&asked), twice, "{:?}", asked.sent);
        }
    }
}
