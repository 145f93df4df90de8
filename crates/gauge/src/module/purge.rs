//! Purged answers do not come back: from the answer to a purge on, nobody gets what was stored
//! before it.
//!
//! Each user has resources of its own: it asks, has the origin change, purges, and asks for the
//! whole and for a range. Both must be of the new version or a later one.

use super::Knobs;
use super::range::any;
use crate::client::{Ask, Want};
use crate::load::User;
use crate::resource::Resource;

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    while user.turn().await.is_some() {
        let number = user.random.u64(0..knobs.objects.max(1));
        let name = format!("purge-{}-{number}", user.number);
        let resource = Resource::new(&knobs.run, name, knobs.size);
        user.ask(&Ask::get(&resource)).await;
        let Some(newest) = user.shared.origin.as_ref().map(|origin| origin.bump()) else {
            return;
        };
        let mut purge = Ask::get(&resource);
        purge.method = knobs.purge_method.clone().into();
        if user.ask(&purge).await.is_none() {
            continue;
        }
        for want in [Want::Whole, any(&mut user.random, resource.len())] {
            let mut ask = Ask::part(&resource, want);
            ask.oldest = newest;
            user.ask(&ask).await;
        }
    }
}
