//! Health of the process: whether it lives, and whether it wants to be sent requests now.
//!
//! Whoever gets an answer knows that the process lives. It is ready unless a zone is being loaded
//! (hits would be misses), a zone has lost all of its disks, a zone has not been up to date with
//! the log of its fleet since the process began, or the process is about to end (`shutdown_delay`).
//! All reasons are told. A zone that gets behind later leaves the process ready: where the log is
//! away, all nodes are behind, and each still answers.

use millpond_store::DiskState;
use serde::{Deserialize, Serialize};

use super::api::{Scene, SceneZone, Standing};

/// The health of a process.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct HealthReport {
    /// True always: a process that does not live tells nothing.
    pub live: bool,
    /// True if requests are welcome.
    pub ready: bool,
    /// The reasons for which they are not, as texts.
    pub reasons: Vec<String>,
}

impl HealthReport {
    /// The status of an answer about readiness.
    pub fn status(&self) -> u16 {
        if self.ready { 200 } else { 503 }
    }

    fn of_reasons(reasons: Vec<String>) -> Self {
        HealthReport {
            live: true,
            ready: reasons.is_empty(),
            reasons,
        }
    }
}

/// The health of the process of a scene; it may have to wait for a disk.
pub fn of(scene: &Scene) -> HealthReport {
    let shared = match &scene.standing {
        Standing::Running(facts) => facts.shared.as_ref(),
        Standing::AtRest => None,
    };
    let mut reasons = Vec::new();
    match shared {
        Some(shared) if shared.ending.is_near() => reasons.push("the process is ending".into()),
        Some(_) => {}
        None => reasons.push("no process serves".to_string()),
    }
    reasons.extend(scene.zones.iter().filter_map(of_zone));
    HealthReport::of_reasons(reasons)
}

fn of_zone(zone: &SceneZone) -> Option<String> {
    let store = &zone.zone.store;
    let states: Vec<DiskState> = store.disks().iter().map(|disk| disk.state).collect();
    let fault = if are_lost(&states) {
        "has lost all of its disks"
    } else if store.is_loading() {
        "is being loaded"
    } else if zone.zone.purges.lag.is_catching_up() {
        "has not caught up with the log of its fleet"
    } else {
        return None;
    };
    Some(format!("zone \"{}\" {fault}", zone.declared.name))
}

fn are_lost(disks: &[DiskState]) -> bool {
    let is_lost = |state: &DiskState| *state == DiskState::Failed;
    !disks.is_empty() && disks.iter().all(is_lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_goes_on_with_one_disk() {
        use DiskState::{Failed, Full, Live};
        for (disks, expected) in [
            (&[Live][..], false),
            (&[Failed, Live], false),
            (&[Full, Failed], false),
            (&[Failed, Failed], true),
            (&[Failed], true),
            (&[], false),
        ] {
            assert_eq!(are_lost(disks), expected, "{disks:?}");
        }
    }

    #[test]
    fn one_reason_is_enough() {
        assert_eq!(HealthReport::of_reasons(Vec::new()).status(), 200);
        let report = HealthReport::of_reasons(vec!["x".to_string()]);
        assert!(report.live && !report.ready && report.status() == 503);
    }
}
