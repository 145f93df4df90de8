//! Comparison of a server's word about its cache with what it was asked for: after filling, a
//! restart, purges, expiry and overfilling, as the thesis tested the statistics of its patch.
//!
//! ```text
//! --inactive 0:  fill ► restart (if the gauge started it) ► purge ► overfill (a small max_size)
//! --inactive T:  fill ► ask for half of it until the other half is gone
//! ```
//!
//! Numbers are read from `API/millpond/1/` (entries, bytes of bodies, bytes of the disk), or,
//! where that is not there, from NGINX Plus's `API/9/http/caches/ZONE`, which knows the bytes of
//! the disk only. One user does all of it, since it must know all that is stored. A claim is made
//! for each step.
//!
//! What is stored is stored a moment after its last byte was sent, so numbers have as much time to
//! come true as an answer has to come (`--timeout`).

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Claim, Knobs};
use crate::client::Ask;
use crate::load::User;
use crate::resource::Resource;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// The largest cache that is overfilled.
const SMALL: u64 = 256 << 20;

/// Content of a cache, as a server says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Entries and bytes of their bodies, where it knows them.
    bodies: Option<(u64, u64)>,
    /// Bytes of the disk.
    bytes: u64,
    max_size: Option<u64>,
}

pub(super) async fn run(user: &mut User, knobs: &Knobs) {
    if user.number > 0 {
        return;
    }
    let all: Vec<Resource> = (0..knobs.objects)
        .map(|number| {
            let len = knobs.size + number % 7;
            Resource::new(&knobs.run, format_args!("stats-{number}"), len)
        })
        .collect();
    for resource in &all {
        if user.turn().await.is_none() {
            return;
        }
        user.ask(&Ask::get(resource)).await;
    }
    if knobs.inactive > Duration::ZERO {
        let (kept, _) = all.split_at(all.len() / 2);
        let claim = "what nobody asked for is gone, and the rest is there";
        come_true(user, knobs, claim, (kept, kept)).await;
        return;
    }
    let filled = come_true(user, knobs, "what was filled is told", (&all, &[])).await;
    if let Some(server) = user.shared.server.clone() {
        user.hang_up();
        if let Err(error) = server.restart() {
            claim(user, "the server starts again", None, format!("{error:#}"));
            return;
        }
        come_true(user, knobs, "after a restart the same is told", (&all, &[])).await;
    }
    let (purged, left) = all.split_at(all.len() / 4);
    for resource in purged {
        let mut purge = Ask::get(resource);
        purge.method = knobs.purge_method.clone().into();
        user.ask(&purge).await;
    }
    come_true(
        user,
        knobs,
        "what was purged is told no longer",
        (left, &[]),
    )
    .await;
    match filled.and_then(|held| held.max_size) {
        Some(max_size) if max_size <= SMALL => overfill(user, knobs, max_size).await,
        _ => {}
    }
}

/// Waits until the server says that it holds exactly these, while some are asked for.
async fn come_true(
    user: &mut User,
    knobs: &Knobs,
    text: &str,
    (held, used): (&[Resource], &[Resource]),
) -> Option<Held> {
    let wanted = (held.len() as u64, held.iter().map(Resource::len).sum());
    let patience = user.shared.target.timeout;
    let began = Instant::now();
    loop {
        for resource in used {
            user.ask(&Ask::get(resource)).await;
        }
        let told = told(user, knobs).await;
        let is_true = told.is_some_and(|told| match told.bodies {
            Some(bodies) => bodies == wanted,
            None => told.bytes >= wanted.1,
        });
        if is_true || began.elapsed() > patience + 4 * knobs.inactive {
            let wanted = format!("wanted {wanted:?}, told {told:?}");
            claim(user, text, is_true.then_some(()), wanted);
            return told;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Fills with twice what there is room for.
async fn overfill(user: &mut User, knobs: &Knobs, max_size: u64) {
    let mut asked = 0;
    let mut most = 0;
    for number in 0_u64.. {
        if asked >= 2 * max_size {
            break;
        }
        let name = format!("stats-more-{number}");
        let resource = Resource::new(&knobs.run, name, knobs.size.max(1 << 16));
        asked += resource.len();
        user.ask(&Ask::get(&resource)).await;
        if number % 64 == 0 {
            most = told(user, knobs)
                .await
                .map_or(most, |told| told.bytes.max(most));
        }
    }
    let text = format!("bytes told of an overfilled cache: at most {max_size}");
    let patience = user.shared.target.timeout;
    let is_kept = most > 0 && most <= max_size;
    claim(user, &text, is_kept.then_some(()), most.to_string());
    let began = Instant::now();
    loop {
        let told = told(user, knobs).await.and_then(|told| told.bodies);
        let listed = listed(user, knobs).await;
        let is_same = listed.is_none() || told == listed;
        if is_same || began.elapsed() > patience {
            let found = format!("told {told:?}, listed {listed:?}");
            let text = "an overfilled cache tells what it lists";
            claim(user, text, is_same.then_some(()), found);
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn claim(user: &mut User, text: &str, kept: Option<()>, found: String) {
    user.record.claims.push(Claim {
        text: text.to_owned(),
        is_kept: kept.is_some(),
        found,
    });
}

/// Content of the server's zone, as the server says.
async fn told(user: &mut User, knobs: &Knobs) -> Option<Held> {
    let Knobs { api, zone, .. } = knobs;
    let path = format!("{api}/millpond/1/zones/{zone}");
    let (status, body) = user.fetch("GET", &path).await?;
    if status == 200 {
        let numbers: Value = serde_json::from_slice(&body).ok()?;
        let (_, body) = user.fetch("GET", &format!("{path}/sites")).await?;
        let sites: Value = serde_json::from_slice(&body).ok()?;
        let sites = sites["sites"].as_array()?;
        let sum = |name: &str| sites.iter().filter_map(|site| site[name].as_u64()).sum();
        return Some(Held {
            bodies: Some((sum("entries"), sum("body_bytes"))),
            bytes: numbers["bytes"].as_u64()?,
            max_size: numbers["max_size"].as_u64(),
        });
    }
    let path = format!("{api}/9/http/caches/{zone}");
    let (_, body) = user.fetch("GET", &path).await?;
    let numbers: Value = serde_json::from_slice(&body).ok()?;
    Some(Held {
        bodies: None,
        bytes: numbers["size"].as_u64()?,
        max_size: numbers["max_size"].as_u64(),
    })
}

/// Entries, and bytes of their bodies, that the server lists one by one, if it lists any.
async fn listed(user: &mut User, knobs: &Knobs) -> Option<(u64, u64)> {
    let Knobs { api, zone, .. } = knobs;
    let path = format!("{api}/millpond/1/zones/{zone}/entries");
    let (status, body) = user.fetch("GET", &path).await?;
    if status != 200 {
        return None;
    }
    let mut sum = (0, 0);
    for line in String::from_utf8_lossy(&body).lines() {
        let line: Value = serde_json::from_str(line).ok()?;
        if let Some(entry) = line.get("entry") {
            sum.0 += 1;
            sum.1 += entry["held"].as_u64()?;
        }
    }
    Some(sum)
}
