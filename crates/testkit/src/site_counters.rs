//! Counters of sites, read from the file that keeps them and from the API's answer: so a test knows
//! what a process that is killed now has written.
//!
//! Of a site, all numbers are added up: each cell of its rows is one member of the answer.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::Value;

const HEADER: usize = 4096;
const SITES: usize = 64;
const NAME: usize = 256;
const SHARDS: usize = 16;
const ROW: usize = 256;

/// The sum of all that a file of `cache_site_counters` has, by site.
pub fn sites_in_file(path: &Path) -> io::Result<BTreeMap<String, u64>> {
    let file = std::fs::read(path)?;
    let mut all = BTreeMap::new();
    let chunks = file.get(HEADER..).unwrap_or_default();
    for chunk in chunks.chunks(SITES * (NAME + SHARDS * ROW)) {
        let (names, rows) = chunk.split_at((SITES * NAME).min(chunk.len()));
        for (number, name) in names.chunks(NAME).enumerate() {
            let len = usize::from(name.first().copied().unwrap_or(0));
            let name = name.get(1..=len).unwrap_or_default();
            let own = (0..SHARDS).filter_map(|shard| {
                let start = (shard * SITES + number) * ROW;
                rows.get(start..start + ROW)
            });
            let cells = own.flat_map(|row| row.as_chunks::<8>().0);
            let sum = cells.map(|cell| u64::from_le_bytes(*cell)).sum();
            if sum > 0 {
                all.insert(String::from_utf8_lossy(name).into_owned(), sum);
            }
        }
    }
    Ok(all)
}

/// Sites in an answer of `GET /api/millpond/1/sites`, in the same form.
pub fn sites_in_answer(answer: &Value) -> BTreeMap<String, u64> {
    let sites = answer["sites"].as_array().into_iter().flatten();
    let counted = sites.map(|site| {
        let name = site["site"].as_str().unwrap_or_default();
        let own = [&site["cache_bytes"], &site["origin_bytes"]];
        let parts = [&site["answers"], &site["origin"], &site["removed"]];
        let own: u64 = own.iter().filter_map(|it| it.as_u64()).sum();
        let parts: u64 = parts.iter().map(|part| sum(part)).sum();
        (name.to_string(), own + parts)
    });
    counted.filter(|(_, sum)| *sum > 0).collect()
}

fn sum(value: &Value) -> u64 {
    match value {
        Value::Object(members) => members.values().map(sum).sum(),
        other => other.as_u64().unwrap_or(0),
    }
}
