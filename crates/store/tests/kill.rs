//! A process that fills a zone is killed in the middle of it.
//!
//! The test starts itself again as the child. The child reports each key when it is finished or
//! removed, and now and then that all of it is written; the parent kills it, opens the zone and
//! compares.

#[path = "support/read.rs"]
mod read;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use millpond_store::{Key, SystemClock, Zone, ZoneConf};

use read::read;

/// Names the directory to the child.
const ZONE: &str = "MILLPOND_KILL_TEST_ZONE";
const KEYS: u64 = 200;
/// Number of steps that the child makes before it sees to it that all is written.
const STEPS: u64 = 60;
/// Number of such flushes after which the child is killed.
const FLUSHES: usize = 8;

fn conf(path: &str) -> ZoneConf {
    ZoneConf {
        max_size: Some(1 << 30),
        memory: 1 << 20,
        ..ZoneConf::new("kill", path)
    }
}

fn key(number: u64) -> Key {
    Key::of(&number.to_le_bytes())
}

fn body(number: u64, round: u64) -> Vec<u8> {
    let len = number * number * 37 % 300_000;
    let salt = (number << 20 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len)
        .map(|position| (salt.rotate_left(position as u32 % 61) ^ position) as u8)
        .collect()
}

/// Fills until it is killed; does nothing in an ordinary run.
#[test]
fn child_that_is_killed() {
    let Ok(path) = std::env::var(ZONE) else {
        return;
    };
    let zone = Zone::open(conf(&path), Arc::new(SystemClock)).expect("open");
    // One write for each line, so that none is cut off.
    let report = |what: &str, number: u64, round: u64| {
        let line = format!("{what} {number} {round}\n");
        std::io::stderr()
            .write_all(line.as_bytes())
            .expect("reported");
    };
    for step in 0.. {
        if step % STEPS == STEPS - 1 {
            zone.flush();
            report("flushed", 0, 0);
        }
        let (number, round) = (step * 7 % KEYS, step / KEYS);
        if step % 13 == 12 {
            // Before it is done: the last one of all may be or not.
            report("removed", number, round);
            zone.remove(&key(number));
            continue;
        }
        let mut writer = zone.begin(key(number), None).expect("begun");
        writer.set_head(Bytes::from(round.to_string()));
        let whole = Bytes::from(body(number, round));
        let appended = (0..whole.len()).step_by(10_000).try_for_each(|start| {
            writer.append(whole.slice(start..whole.len().min(start + 10_000)))
        });
        if appended.and_then(|()| writer.finish().map(|_| ())).is_ok() {
            report("stored", number, round);
        }
    }
}

/// Reports on each key: whether it was stored, in which round, and how often all was written then.
type Reports = HashMap<u64, Vec<(bool, u64, usize)>>;

fn run_child(path: &str) -> Reports {
    let mut child = Command::new(std::env::current_exe().expect("own name"))
        .args(["--exact", "child_that_is_killed", "--nocapture"])
        .env(ZONE, path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("child");
    let mut reports = Reports::new();
    let mut flushes = 0;
    let lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
    for line in lines {
        let line = line.expect("line");
        let fields: Vec<&str> = line.split(' ').collect();
        let [what, number, round] = fields[..] else {
            panic!("child said {line}");
        };
        let number = number.parse().expect("number");
        let round = round.parse().expect("round");
        match what {
            "flushed" => flushes += 1,
            "stored" | "removed" => {
                let reports = reports.entry(number).or_default();
                reports.push((what == "stored", round, flushes));
            }
            _ => panic!("child said {line}"),
        }
        // What it has said by then is still to be heard.
        if flushes == FLUSHES {
            child.kill().expect("killed");
        }
    }
    child.wait().expect("gone");
    reports
}

/// Every byte that is found is right; what was written is found; what was removed is not.
#[test]
fn killed_zone_has_what_was_complete() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("zone").display().to_string();
    let reports = run_child(&path);
    let zone = Zone::open(conf(&path), Arc::new(SystemClock)).expect("open");
    let mut old = 0;
    for number in 0..KEYS {
        let reports = reports.get(&number).map_or(&[][..], Vec::as_slice);
        // What the child did last may not have been reported or not have been written.
        let settled = reports.iter().rposition(|(_, _, at)| *at < FLUSHES);
        let possible = &reports[settled.unwrap_or(0)..];
        let Some(entry) = zone.find(&key(number)) else {
            let may_be_absent = settled.is_none() || possible.iter().any(|(stored, ..)| !stored);
            assert!(may_be_absent, "{number} is lost");
            continue;
        };
        let round: u64 = std::str::from_utf8(entry.head())
            .expect("text")
            .parse()
            .expect("round");
        assert!(
            read(entry.regions(0..u64::MAX)) == body(number, round),
            "{number} {round}"
        );
        let last = reports.last().map_or(0, |(_, round, _)| *round);
        let is_possible = possible
            .iter()
            .any(|(stored, at, _)| *stored && *at == round);
        assert!(
            is_possible || round > last || settled.is_none(),
            "{number}: round {round}"
        );
        old += usize::from(settled.is_some());
    }
    assert!(old > KEYS as usize / 2, "only {old} keys were written");
    assert_eq!(zone.usage().corrupt, 0);
}
