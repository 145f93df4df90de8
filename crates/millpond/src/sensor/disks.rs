//! Sensors of disks: whether they work, the room on their file systems, and their scrubs.
//!
//! The process tells the disks of its zones; the room is asked of the kernel here, so the folders
//! must be reachable.

use anyhow::{Context, Result, ensure};
use millpond_server::control::report::{DiskReport, DisksReport};
use millpond_system::clock;
use rustix::fs::statvfs;

use super::ask::ask;
use super::finding::{Finding, State, Value};
use super::options::Options;

const DAY: f64 = 86_400.0;

/// Disks of the zones that are asked about.
fn disks(options: &Options) -> Result<Vec<DiskReport>> {
    let report: DisksReport = ask(options, &["disks"], &[200])?;
    let is_meant = |zone: &str| options.zone.as_ref().is_none_or(|it| it == zone);
    let meant = report.disks.into_iter().filter(|disk| is_meant(&disk.zone));
    let disks: Vec<DiskReport> = meant.map(|disk| disk.disk).collect();
    ensure!(!disks.is_empty(), "there is no such disk");
    Ok(disks)
}

/// No disk has failed.
pub(super) fn disk(options: &Options) -> Result<Finding> {
    let disks = disks(options)?;
    let states = disks
        .iter()
        .map(|disk| (disk.path.as_str(), disk.state.as_str()));
    let finding = disks_in(&states.collect::<Vec<_>>());
    let count = |of: fn(&DiskReport) -> u64| disks.iter().map(of).sum::<u64>() as f64;
    let mut values = finding.values;
    values.push(Value::shown("failures", count(|disk| disk.failures), "c"));
    values.push(Value::shown(
        "read_errors",
        count(|disk| disk.read_errors),
        "c",
    ));
    Ok(Finding { values, ..finding })
}

/// The finding that follows of the states of disks.
fn disks_in(disks: &[(&str, &str)]) -> Finding {
    let count = |wanted: &str| disks.iter().filter(|(_, state)| *state == wanted).count();
    let values = vec![
        Value::judged("failed", count("failed") as f64, ""),
        Value::shown("full", count("full") as f64, ""),
        Value::shown("disks", disks.len() as f64, ""),
    ];
    let ill = disks.iter().filter(|(_, state)| *state != "live");
    let texts: Vec<String> = ill
        .map(|(path, state)| format!("{path} is {state}"))
        .collect();
    if texts.is_empty() {
        return Finding::new(format!("{} disks are well", disks.len()), values);
    }
    let state = if count("failed") > 0 {
        State::Critical
    } else {
        State::Warning
    };
    Finding::new(texts.join(", "), values).in_state(state)
}

/// The part of each file system that is free.
pub(super) fn space(options: &Options) -> Result<Finding> {
    let mut found = Vec::new();
    for disk in disks(options)? {
        let place = || disk.path.clone();
        let room = statvfs(&disk.path).with_context(place)?;
        let (all, free) = (room.f_blocks, room.f_bavail);
        ensure!(all > 0, "{} has no size", disk.path);
        let percent = free as f64 * 100.0 / all as f64;
        found.push((disk.path, percent, free.saturating_mul(room.f_frsize)));
    }
    let least = found.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let text = least.map(|(path, percent, _)| format!("{percent:.1} % are free in {path}"));
    let judged = found
        .iter()
        .map(|(path, percent, _)| Value::judged(path, *percent, "%"));
    let shown = found
        .iter()
        .map(|(path, _, free)| Value::shown(&format!("{path} free"), *free as f64, "B"));
    Ok(Finding::new(
        text.unwrap_or_default(),
        judged.chain(shown).collect(),
    ))
}

/// The scrubs end in time, and find nothing.
pub(super) fn scrub(options: &Options) -> Result<Finding> {
    let now_s = u64::try_from(clock::now_ms() / 1000).unwrap_or(0);
    Ok(scrubs_in(&disks(options)?, now_s))
}

/// A pass that has not ended in twice its period is late.
fn scrubs_in(disks: &[DiskReport], now_s: u64) -> Finding {
    let (mut texts, mut values, mut state) = (Vec::new(), Vec::new(), State::Ok);
    let mut damaged = 0;
    for disk in disks {
        let Some(scrub) = &disk.scrub else { continue };
        damaged += scrub.corrupt + scrub.unread;
        let since = if scrub.ended > 0 {
            scrub.ended
        } else {
            scrub.began
        };
        // One that has not begun yet is not late: the process has just started.
        let age = if since > 0 {
            now_s.saturating_sub(since)
        } else {
            0
        };
        values.push(Value::judged(&disk.path, age as f64 / DAY, ""));
        if age > scrub.every.saturating_mul(2) {
            let days = age as f64 / DAY;
            texts.push(format!(
                "no pass of {} has ended for {days:.1} days",
                disk.path
            ));
            state = State::Warning;
        }
    }
    if damaged > 0 {
        texts.push(format!("{damaged} entries were damaged"));
        state = State::Critical;
    }
    let count = values.len();
    values.push(Value::shown("damaged", damaged as f64, "c"));
    if texts.is_empty() {
        texts.push(format!(
            "{count} disks are scrubbed, and nothing was damaged"
        ));
    }
    Finding::new(texts.join(", "), values).in_state(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_server::control::report::ScrubReport;

    #[test]
    fn disk_that_failed_is_critical_and_one_that_is_full_a_warning() {
        for (states, expected) in [
            (&[("/a", "live"), ("/b", "live")][..], State::Ok),
            (&[("/a", "live"), ("/b", "full")], State::Warning),
            (&[("/a", "failed"), ("/b", "full")], State::Critical),
        ] {
            assert_eq!(disks_in(states).state, expected, "{states:?}");
        }
    }

    #[test]
    fn scrub_that_is_late_is_a_warning_and_damage_is_critical() {
        let disk = |ended: u64, corrupt: u64| DiskReport {
            path: "/a".to_string(),
            weight: 1,
            state: "live".to_string(),
            why: String::new(),
            failures: 0,
            records: 0,
            bytes: 0,
            live_bytes: 0,
            max_size: None,
            read_errors: 0,
            unread_segments: 0,
            scrub: Some(ScrubReport {
                every: 100,
                is_running: false,
                began: 0,
                entries: 0,
                all_entries: 0,
                bytes: 0,
                ended,
                passes: 1,
                corrupt,
                unread: 0,
            }),
        };
        for (ended, corrupt, expected) in [
            (950, 0, State::Ok),
            (0, 0, State::Ok),
            (799, 0, State::Warning),
            (950, 1, State::Critical),
        ] {
            assert_eq!(scrubs_in(&[disk(ended, corrupt)], 1000).state, expected);
        }
        let none = DiskReport {
            scrub: None,
            ..disk(0, 0)
        };
        let finding = scrubs_in(&[none], 1000);
        assert_eq!(
            finding.text,
            "0 disks are scrubbed, and nothing was damaged"
        );
    }
}
