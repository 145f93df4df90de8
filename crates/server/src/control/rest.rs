//! A zone at rest: asked without a process that serves from it.
//!
//! The zone is opened here, so nobody else can meanwhile, and answered from as the process would.
//! Nothing on the disk changes but what is asked for: see `millpond_store::Touch`. A repair opens
//! the zone as a process does that is to serve.

use std::sync::{Arc, Mutex, PoisonError};

use millpond_cache::head::classify;
use millpond_cache::zone::CacheZone;
pub use millpond_cache::zone::ZonePath;
use millpond_proxy::cache::zones::zone_conf;
use millpond_store::{Event, Listener, Platform, SiteBook, StoreError, SystemClock, Touch, Zone};

use super::api::{Answer, Ask, Scene, SceneZone, Standing, answer};

/// Purpose for which the zone is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The zone is looked at.
    Look,
    /// Something is purged.
    Purge,
    /// Corrupt entries are removed.
    Repair,
}

/// The reason why a zone cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// Nobody has made it.
    #[error("there is no store in {0}")]
    Absent(String),
    /// A process has it.
    #[error("{0} is in use by a process")]
    InUse(String),
    /// The disk refuses it.
    #[error("{0}")]
    Refused(String),
}

/// A zone that is open here.
pub struct Rest {
    scene: Scene,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Rest {
    /// Opens it.
    pub fn open(declared: &ZonePath, purpose: Purpose) -> Result<Rest, RestError> {
        let notes = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&notes);
        let tell: Listener = Arc::new(move |event: &Event| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.extend(note(event));
        });
        let mut conf = zone_conf(declared);
        // Nothing is found twice.
        conf.memory = 0;
        let clock = Arc::new(SystemClock);
        let sites = Arc::new(SiteBook::new(classify));
        let opened = match purpose {
            Purpose::Look => Zone::open_still(conf, clock, (Touch::Nothing, tell, sites)),
            Purpose::Purge => Zone::open_still(conf, clock, (Touch::Journal, tell, sites)),
            Purpose::Repair => Zone::open_existing(
                conf,
                clock,
                Platform {
                    events: tell,
                    sites,
                    ..Platform::default()
                },
            ),
        };
        let path = declared.path.display().to_string();
        let store = opened.map_err(|error| match error {
            StoreError::Absent { .. } => RestError::Absent(path),
            StoreError::InUse { .. } => RestError::InUse(path),
            StoreError::Io { .. } => {
                let cause = std::error::Error::source(&error);
                let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                RestError::Refused(format!("{error}{cause}"))
            }
        })?;
        // Only then everything is found.
        store.wait_for_disks();
        store.loaded();
        let zone = Arc::new(CacheZone::new(declared.name.clone(), store));
        let scene = Scene {
            zones: vec![SceneZone {
                declared: declared.clone(),
                zone,
            }],
            standing: Standing::AtRest,
        };
        Ok(Rest { scene, notes })
    }

    /// Answers as a process would.
    pub fn answer(&self, ask: &Ask) -> Answer {
        answer(&self.scene, ask)
    }

    /// Notes on the zone's state, each handed out once.
    pub fn take_notes(&self) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut notes)
    }
}

fn note(event: &Event) -> Option<String> {
    match event {
        // Nothing was renamed: whoever serves from it will do that.
        Event::SetAside { from, .. } => Some(format!(
            "{from} is not usable, and is set aside at the next start"
        )),
        Event::Unkeyed { dir, .. } => Some(format!(
            "the keys of the store in {dir} were made without a secret; it is set aside at the \
             next start"
        )),
        Event::Foreign { .. } | Event::Loaded { .. } => None,
        Event::Recovered { .. } => Some("the store was not closed".to_string()),
        // A verification lists corrupt entries.
        Event::Corrupt { .. } => None,
        other => Some(other.to_string()),
    }
}
