//! Suggestions: which known name a misspelt one was probably meant to be.
//!
//! The distance counts insertions, deletions, replacements and swaps of neighbours. A name is
//! suggested if its distance is at most a third of the word's length, and at most `DISTANCE`.

/// The largest distance at which two names are taken for the same. Four changes make any short
/// name out of any other.
const DISTANCE: usize = 3;

/// Longer words are not compared; no directive has such a name, and the work is quadratic.
const LEN: usize = 64;

/// The nearest candidate, if any is near; the first one of several.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.len() / 3).clamp(1, DISTANCE);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if name.len() > LEN || candidate.len() > LEN || name.len().abs_diff(candidate.len()) > limit
        {
            continue;
        }
        let distance = distance(name.as_bytes(), candidate.as_bytes());
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The optimal string alignment distance. Both have at most [`LEN`] bytes.
fn distance(a: &[u8], b: &[u8]) -> usize {
    // All indices below are at most the lengths, and the rows have one place more.
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let names = ["server", "server_name", "listen", "proxy_cache_lock"];
        for (name, expected) in [
            ("servr", Some("server")),
            ("sevrer", Some("server")),
            ("proxy_cach_lock", Some("proxy_cache_lock")),
            ("lsten", Some("listen")),
            ("gzip", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(suggest(name, names), expected, "{name}");
        }
    }
}
