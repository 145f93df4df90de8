//! The origin fails, and what was stored is served: every answer from then on is a right one.
//!
//! Needs a server that may serve stale answers for as long as the run lasts.

use super::Knobs;
use crate::client::Ask;
use crate::load::User;
use crate::resource::Resource;

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    let objects = knobs.objects.max(1);
    let resource =
        |number: u64| Resource::new(&knobs.run, format_args!("stale-{number}"), knobs.size);
    let users = user.shared.load.users.max(1);
    for number in (0..objects).skip(user.number).step_by(users) {
        user.prepare(&Ask::get(&resource(number))).await;
    }
    if user.meet().await
        && let Some(origin) = &user.shared.origin
    {
        origin.fail(true);
    }
    user.meet().await;
    while user.turn().await.is_some() {
        let number = user.random.u64(0..objects);
        user.ask(&Ask::get(&resource(number))).await;
    }
}
