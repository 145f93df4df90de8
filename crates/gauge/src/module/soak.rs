//! Long run of everything, for as long as wanted: wholes and ranges of a catalogue, clients that
//! leave and come again, while the origin does what it was told to.

use super::Knobs;
use super::range::any;
use super::zipf::Catalogue;
use crate::client::Ask;
use crate::load::User;

pub(super) async fn run(user: &mut User, knobs: &Knobs, catalogue: &Catalogue) {
    while user.turn().await.is_some() {
        let resource = catalogue.any(&mut user.random, knobs);
        let ask = match user.random.u8(0..4) {
            0 => Ask::part(&resource, any(&mut user.random, resource.len())),
            1 => Ask {
                method: "HEAD".into(),
                ..Ask::get(&resource)
            },
            _ => Ask::get(&resource),
        };
        user.ask(&ask).await;
        if user.random.u8(0..50) == 0 {
            user.hang_up();
        }
    }
}
