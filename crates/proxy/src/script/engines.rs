//! The engines of a worker: one, and another for each script that runs inside of a script.
//!
//! A script that reads a variable which another script computes runs that one before it goes on.
//! An engine runs one script at a time, so that the inner one gets an engine of its own.

use std::cell::RefCell;
use std::rc::Rc;

use millpond_exchange::worker::parts::{Kept, Part, Place};
use millpond_script::{Engine, Fault, Ground};
use millpond_system::{chance, clock};

use super::host::RequestHost;

/// The most scripts that run one inside the other (arbitrary: configurations have one).
const MOST_NESTED: usize = 4;

/// The engines of a worker.
#[derive(Default)]
pub(super) struct Engines(RefCell<Vec<Rc<Engine<RequestHost>>>>);

impl Kept for Engines {}

impl Part for Engines {
    const PLACE: Place = Place::Scripts;
}

impl Engines {
    /// An engine that runs nothing now.
    pub(super) fn idle(&self) -> Result<Rc<Engine<RequestHost>>, Fault> {
        let mut engines = self.0.borrow_mut();
        engines.retain(|engine| !engine.is_dead());
        if let Some(engine) = engines.iter().find(|engine| !engine.is_running()) {
            return Ok(Rc::clone(engine));
        }
        if engines.len() >= MOST_NESTED {
            let message = "scripts run one inside the other too deeply";
            return Err(Fault::Engine(message.to_string()));
        }
        let engine = Engine::new(Ground {
            clock: || clock::instant().into_std(),
            random,
        })?;
        engines.push(Rc::clone(&engine));
        Ok(engine)
    }
}

fn random(bytes: &mut [u8]) {
    // What a script makes of them may be a secret.
    if aws_lc_rs::rand::fill(bytes).is_ok() {
        return;
    }
    for chunk in bytes.chunks_mut(8) {
        let word = chance::word().to_ne_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}
