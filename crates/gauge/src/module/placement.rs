//! New resources as fast as they go: how much a cache can store in a second.
//!
//! Paths are random, as in the article on cache placement, so that layouts which choose a disk by
//! the path spread them.

use super::Knobs;
use crate::client::Ask;
use crate::load::User;
use crate::resource::Resource;

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    while let Some(ticket) = user.turn().await {
        let name = format!("{:016x}{ticket:08x}", user.random.u64(..));
        let resource = Resource::new(&knobs.run, name, knobs.size);
        user.ask(&Ask::get(&resource)).await;
    }
}
