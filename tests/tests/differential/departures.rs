//! The list of departures, and how differences are judged by it.

use crate::transcript::Difference;
use anyhow::{Context, Result, bail};
use millpond_testkit::Kind;

struct Departure {
    id: String,
    what: String,
}

/// The list, empty where nginx is compared with itself.
pub struct Departures(Vec<Departure>);

impl Departures {
    /// Reads `tests/departures.txt`.
    pub fn read(second: Kind) -> Result<Departures> {
        if second == Kind::Nginx {
            return Ok(Departures(Vec::new()));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/departures.txt");
        let text = std::fs::read_to_string(path).context(path)?;
        let mut list = Vec::new();
        for line in text.lines() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
            let [id, what, reason] = columns.as_slice() else {
                bail!("departures.txt: not `scenario | what | reason`: {line}");
            };
            if reason.is_empty() {
                bail!("departures.txt: no reason: {line}");
            }
            list.push(Departure {
                id: id.to_string(),
                what: what.to_string(),
            });
        }
        Ok(Departures(list))
    }

    /// The scenarios that are named.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|departure| departure.id.as_str())
    }

    /// Faults: differences that no departure names, and departures without a difference.
    pub fn judge(&self, id: &str, differences: &[Difference]) -> Vec<String> {
        let listed: Vec<&Departure> = self.0.iter().filter(|d| d.id == id).collect();
        let unlisted = differences
            .iter()
            .filter(|difference| !listed.iter().any(|d| matches(&d.what, &difference.key)))
            .map(ToString::to_string);
        let gone = listed
            .iter()
            .filter(|d| !differences.iter().any(|other| matches(&d.what, &other.key)))
            .map(|d| format!("listed as a departure, but does not differ: {}", d.what));
        unlisted.chain(gone).collect()
    }
}

/// True if `key` is `pattern`, in which `*` stands for any run of characters.
fn matches(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((head, tail)) => key.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len())
                .filter_map(|at| rest.get(at..))
                .any(|rest| matches(tail, rest))
        }),
    }
}
