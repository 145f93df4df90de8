//! Answers that are fresh for seconds, under load: the origin changes all the time, hears of each
//! resource once in its time of freshness, and no answer is older than that.

use std::time::Duration;

use super::{Claim, Knobs};
use crate::client::Ask;
use crate::load::User;
use crate::origin::Origin;
use crate::resource::Resource;

/// Time by which an answer may be older than its freshness: servers count in whole seconds, and an
/// answer takes time.
const SLACK: Duration = Duration::from_millis(1500);

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    while user.turn().await.is_some() {
        let number = user.random.u64(0..knobs.objects.max(1));
        let resource = Resource::new(&knobs.run, format_args!("micro-{number}"), knobs.size);
        let mut ask = Ask::get(&resource);
        if let Some(origin) = &user.shared.origin {
            ask.oldest = origin.generation_before(knobs.ttl + SLACK);
        }
        user.ask(&ask).await;
    }
}

pub(super) fn claims(origin: &Origin, knobs: &Knobs, elapsed: Duration) -> Vec<Claim> {
    let times = elapsed.as_secs_f64() / knobs.ttl.as_secs_f64().max(0.001);
    let all = origin.all_asked();
    let most = all.iter().map(|(_, asked)| asked.requests).max();
    // Freshness counts in whole seconds, so it may end up to a second early.
    let early = knobs.ttl.as_secs_f64() / (knobs.ttl.as_secs_f64() - 1.0).max(0.5);
    let limit = (times * early).ceil() as u64 + 1;
    vec![Claim::at_most(
        "requests at the origin for one resource",
        most.unwrap_or(0),
        limit,
    )]
}
