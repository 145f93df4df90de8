//! An origin that is not the gauge's: wholes and ranges of the paths that are named, compared with
//! what that origin gives itself (`--against`), or with the first answer of the server.
//!
//! All bodies are read before users begin, and held. What changes meanwhile is a wrong byte, so
//! this is for what stands still.

use std::sync::{Arc, OnceLock};

use super::Knobs;
use super::range::any;
use crate::client::{Ask, Client, Target};
use crate::load::User;
use crate::resource::Resource;

/// Bodies by their paths; users share them.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    all: OnceLock<Vec<(Resource, Arc<Vec<u8>>)>>,
}

pub(super) async fn run(user: &mut User, knobs: &Knobs, bodies: &Bodies) {
    if user.number == 0 {
        let read = read(user, knobs).await;
        bodies.all.get_or_init(|| read);
    }
    user.meet().await;
    let all = bodies.all.get().map(Vec::as_slice).unwrap_or_default();
    while !all.is_empty() && user.turn().await.is_some() {
        let (resource, body) = &all[user.random.usize(0..all.len())];
        let ask = if user.random.bool() && !resource.is_empty() {
            Ask::part(resource, any(&mut user.random, resource.len()))
        } else {
            Ask::get(resource)
        };
        let given = Some(Arc::clone(body));
        user.ask(&Ask { given, ..ask }).await;
    }
}

/// Reads all bodies; what cannot be read is a fault.
async fn read(user: &mut User, knobs: &Knobs) -> Vec<(Resource, Arc<Vec<u8>>)> {
    let asked = user.shared.target.as_ref();
    let address = knobs.against.unwrap_or(asked.address);
    let target = match knobs.against {
        // That origin is asked in clear text, whatever the server speaks.
        Some(address) => Target {
            timeout: asked.timeout,
            ..Target::new(address, asked.host.clone())
        },
        None => asked.clone(),
    };
    let mut client = Client::new(Arc::new(target));
    let mut all = Vec::new();
    for path in &knobs.paths {
        match client.fetch("GET", path).await {
            Ok((200, body)) => {
                let resource = Resource::given(path, body.len() as u64);
                all.push((resource, Arc::new(body)));
            }
            Ok((status, _)) => {
                let text = || format!("{path} at {address}: status {status}");
                user.record.fault("given", text);
            }
            Err(fault) => {
                let text = || format!("{path} at {address}: {fault}");
                user.record.fault("given", text);
            }
        }
    }
    client.end().await;
    for event in client.events() {
        user.record.event(event);
    }
    if knobs.paths.is_empty() {
        let text = || "no path is named (--path)".to_owned();
        user.record.fault("given", text);
    }
    all
}
