//! Each resource twice: right, and from the cache the second time.
//!
//! Users share the resources, so the first request of a user may be a hit or wait for another
//! user's; the second must be a hit.

use super::Knobs;
use crate::client::Ask;
use crate::load::User;
use crate::resource::Resource;

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    while let Some(ticket) = user.turn().await {
        let number = ticket / 2 % knobs.objects.max(1);
        let resource = Resource::new(&knobs.run, format_args!("simple-{number}"), knobs.size);
        if user.ask(&Ask::get(&resource)).await.is_none() || user.turn().await.is_none() {
            continue;
        }
        let mut again = Ask::get(&resource);
        again.statuses = &["HIT"];
        user.ask(&again).await;
    }
}
