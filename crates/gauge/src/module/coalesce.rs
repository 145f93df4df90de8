//! All users ask at once for what nobody has asked for: one request at the origin, and everybody
//! streams from it.
//!
//! In rounds: users meet, one of them says whether there is another round, they meet again, and ask
//! for the same new resource. How far each first byte is behind the first of its round is recorded.
//! A resource may be asked for in several rounds (`--repeats`): the times of the first one are
//! recorded as `first`, those of later ones as `then`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Claim, Knobs};
use crate::client::Ask;
use crate::load::{Record, User};
use crate::origin::Origin;
use crate::resource::Resource;

/// State that users of one run share.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    is_over: AtomicBool,
    /// First bytes of the rounds that not all have finished: earliest, and how many came.
    first: Mutex<BTreeMap<u64, Vec<Instant>>>,
}

impl Rounds {
    /// A first byte came; all of the round when it is the last one.
    fn came(&self, round: u64, at: Instant, users: usize) -> Option<Vec<Instant>> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let of_round = first.entry(round).or_default();
        of_round.push(at);
        if of_round.len() == users {
            first.remove(&round)
        } else {
            None
        }
    }
}

pub(super) async fn run(user: &mut User, knobs: &Knobs, rounds: &Rounds) {
    for round in 0_u64.. {
        if user.meet().await && user.shared.is_over() {
            rounds.is_over.store(true, Ordering::SeqCst);
        }
        user.meet().await;
        if rounds.is_over.load(Ordering::SeqCst) {
            return;
        }
        // The bound may fall within a round; whoever gets no turn still meets the others.
        if user.turn().await.is_none() {
            continue;
        }
        let repeats = knobs.repeats.max(1);
        let name = format_args!("coalesce-{}", round / repeats).to_string();
        let resource = Resource::new(&knobs.run, name, knobs.size);
        let began = Instant::now();
        if let Some(answer) = user.ask(&Ask::get(&resource)).await {
            let users = user.shared.load.users;
            let phase = match round % repeats {
                0 => "first",
                _ => "then",
            };
            user.record.phase(phase, answer.first_byte);
            if let Some(all) = rounds.came(round, began + answer.first_byte, users) {
                record(&mut user.record, &all);
            }
        }
    }
}

fn record(record: &mut Record, all: &[Instant]) {
    let Some(first) = all.iter().min() else {
        return;
    };
    for at in all {
        record.was_behind(at.duration_since(*first));
    }
}

pub(super) fn claims(origin: &Origin, record: &Record, knobs: &Knobs) -> Vec<Claim> {
    let asked = origin.all_asked();
    let most = asked.iter().map(|(_, asked)| asked.requests).max();
    let late = Duration::from_micros(record.behind.value_at_quantile(0.99));
    vec![
        Claim::at_most(
            "requests at the origin for one resource",
            most.unwrap_or(0),
            knobs.asks,
        ),
        Claim {
            text: format!(
                "99 of 100 first bytes are within {:?} of the first",
                knobs.behind
            ),
            is_kept: late <= knobs.behind,
            found: format!("{late:?}"),
        },
    ]
}
