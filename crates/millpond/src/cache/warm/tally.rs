//! Figures of a run: a text for people, or JSON for programs.
//!
//! A cache status is counted as the answers name it, so that `MISS` is what was not there before
//! and `HIT` what was.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cache::figures;
use crate::cache::options::Format;
use crate::printed;

/// Counts of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Answers by status.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Answers by cache status, as the field X-Cache-Status or X-Cache has it.
    pub(super) cache: BTreeMap<String, u64>,
    /// Requests that were not answered, or not whole.
    pub(super) unanswered: u64,
    /// URLs that were done in an earlier run.
    pub(super) skipped: u64,
    /// URLs that were left when it was interrupted.
    pub(super) left: u64,
    /// Bytes of bodies.
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

impl Tally {
    /// Answers of any kind.
    fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Requests that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.answered() + self.unanswered
    }

    /// Requests that were not answered, or with a status of 400 and above.
    pub(super) fn failed(&self) -> u64 {
        let bad = self.statuses.range(400..);
        self.unanswered + bad.map(|(_, count)| count).sum::<u64>()
    }

    pub(super) fn print(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Json => printed::line(self.json()),
            _ => printed::line(self.text()),
        }
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "answered": self.answered(),
            "failed": self.failed(),
            "skipped": self.skipped,
            "left": self.left,
            "bytes": self.bytes,
            "seconds": self.time.as_secs_f64(),
            "statuses": self.statuses.iter().map(|(status, count)| (status.to_string(), *count))
                .collect::<BTreeMap<_, _>>(),
            "cache": self.cache,
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} answers, {} in {:.1} s",
            self.answered(),
            figures::size(self.bytes),
            self.time.as_secs_f64()
        );
        let counts = |all: Vec<String>| format!(": {}", all.join(", "));
        if !self.statuses.is_empty() {
            let each = self.statuses.iter();
            text.push_str(&counts(
                each.map(|(it, count)| format!("{count} of {it}")).collect(),
            ));
        }
        if !self.cache.is_empty() {
            let each = self.cache.iter();
            let all = each.map(|(it, count)| format!("{count} {it}")).collect();
            text.push_str(&format!("\ncache{}", counts(all)));
        }
        for (count, what) in [
            (self.failed(), "failed"),
            (self.skipped, "done before"),
            (self.left, "left, as it was interrupted"),
        ] {
            if count > 0 {
                text.push_str(&format!("\n{count} {what}"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_tells_all_of_it() {
        let tally = Tally {
            statuses: BTreeMap::from([(200, 3), (404, 1)]),
            cache: BTreeMap::from([("MISS".to_owned(), 3)]),
            unanswered: 0,
            skipped: 2,
            left: 0,
            bytes: 2048,
            time: Duration::from_secs(2),
        };
        let text = "4 answers, 2.0K in 2.0 s: 3 of 200, 1 of 404\ncache: 3 MISS\n1 failed\n\
                    2 done before";
        assert_eq!(tally.text(), text);
        assert_eq!(tally.json()["statuses"]["404"], 1);
        assert_eq!(tally.json()["failed"], 1);
    }
}
