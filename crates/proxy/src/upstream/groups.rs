//! The groups that a configuration passes requests to.
//!
//! Those of a new configuration go on with the state of those of the one before.

use std::sync::Arc;

use super::group::Group;
use millpond_exchange::scope::parts::{Part, Place};

/// The groups of a configuration.
#[derive(Debug, Default)]
pub struct Groups {
    /// `upstream`.
    pub upstreams: Vec<Arc<Group>>,
    /// Hosts that are passed to by address, each once, so that all locations share their state and
    /// connections.
    pub implicit: Vec<Arc<Group>>,
}

impl Part for Groups {
    const PLACE: Place = Place::Groups;
}

impl Groups {
    /// Takes over what the names of peers resolved to, and the sessions that were learnt, under an
    /// earlier configuration.
    ///
    /// nginx: in groups of the same name that are in the same shared memory.
    pub fn inherit(&self, older: &Groups) {
        for group in &self.upstreams {
            let mut others = older.upstreams.iter();
            let same_name = others.find(|other| other.name == group.name);
            let older_sticky = same_name.and_then(|other| other.sticky.as_ref());
            if let (Some(sticky), Some(older)) = (&group.sticky, older_sticky) {
                sticky.inherit(older);
            }
            let mut others = older.upstreams.iter().filter(|other| other.zone.is_some());
            let same = others.find(|other| other.name == group.name && other.zone == group.zone);
            if let Some(same) = same {
                group.inherit(same);
            }
            group.inherit_tallies(same_name);
        }
        for group in &self.implicit {
            let mut others = older.implicit.iter();
            group.inherit_tallies(others.find(|other| other.name == group.name));
        }
    }
}
