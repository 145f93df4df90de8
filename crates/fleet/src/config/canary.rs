//! Canaries: the nodes that try an order first, and when they do worse for it.
//!
//! Nodes are picked by a score of their name and the number of the order (rendezvous): each order
//! has others, and no node is always the one. A canary does worse when more of its answers are
//! errors, or fewer come from the cache, than before *and* than at the nodes that do not try: what
//! an origin does to all of them is not its fault.

use sha2::{Digest as _, Sha256};

use super::order::{CANARIES_MAX, Order};
use super::report::Figures;

/// Answers that a share is taken of, at least: fewer say nothing (arbitrary).
const ANSWERS_MIN: u64 = 50;

/// The nodes that try an order first: a part of these, in thousandths, and one at least.
pub fn picks(nodes: &[String], revision: u64, part: u16) -> Vec<String> {
    if part == 0 {
        return Vec::new();
    }
    let count = (nodes.len() * usize::from(part)).div_ceil(1000);
    let mut scored: Vec<([u8; 32], &String)> = nodes
        .iter()
        .map(|node| {
            let mut score = Sha256::new();
            score.update(revision.to_le_bytes());
            score.update(node.as_bytes());
            (score.finalize().into(), node)
        })
        .collect();
    scored.sort_unstable();
    scored.dedup();
    let picked = scored.into_iter().take(count.min(CANARIES_MAX));
    picked.map(|(_, node)| node.clone()).collect()
}

/// A part of a count, in thousandths; none of too few.
fn share(part: u64, of: u64) -> Option<u64> {
    (of >= ANSWERS_MIN).then(|| part.saturating_mul(1000) / of.max(1))
}

fn percent(thousandths: u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// The reason why a canary does worse, if it does: its figures since it tries the order, those of
/// itself before, and those of the others since.
pub fn worse(order: &Order, own: &Figures, before: &Figures, others: &Figures) -> Option<String> {
    let errors = |it: &Figures| share(it.errors, it.answers);
    let hits = |it: &Figures| share(it.hits, it.lookups);
    let known = |of: &dyn Fn(&Figures) -> Option<u64>| [of(before), of(others)];
    if let Some(now) = errors(own) {
        // Without anything to compare with, none are expected.
        let most = known(&errors).into_iter().flatten().max().unwrap_or(0);
        if now > most + u64::from(order.more_errors) {
            let (now, most) = (percent(now), percent(most));
            let count = own.errors;
            return Some(format!(
                "{now} of the answers are errors ({count}), {most} before or elsewhere"
            ));
        }
    }
    let least = known(&hits).into_iter().flatten().min()?;
    let now = hits(own)?;
    (now + u64::from(order.fewer_hits) < least).then(|| {
        let (now, least) = (percent(now), percent(least));
        format!("{now} of the answers are from the cache, {least} before or elsewhere")
    })
}

#[cfg(test)]
mod tests {
    use super::super::order::tests::order;
    use super::*;

    fn nodes(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("n{number}")).collect()
    }

    #[test]
    fn part_of_the_nodes_tries_first_another_one_for_each_order() {
        for (count, part, expected) in [
            (3, 0, 0),
            (3, 1, 1),
            (3, 333, 1),
            (3, 334, 2),
            (3, 1000, 3),
            (100, 50, 5),
            (0, 50, 0),
            (10_000, 1000, CANARIES_MAX),
        ] {
            assert_eq!(
                picks(&nodes(count), 7, part).len(),
                expected,
                "{count} {part}"
            );
        }
        let mut turned = nodes(20);
        turned.reverse();
        assert_eq!(picks(&nodes(20), 7, 100), picks(&turned, 7, 100));
        // One node more takes the place of one at most.
        let (few, more) = (picks(&nodes(20), 7, 100), picks(&nodes(21), 7, 100));
        assert!(few.iter().filter(|it| !more.contains(it)).count() <= 1);
        let mut times = std::collections::BTreeMap::<String, u32>::new();
        for revision in 0..1000 {
            for node in picks(&nodes(10), revision, 100) {
                *times.entry(node).or_default() += 1;
            }
        }
        assert_eq!(times.len(), 10);
        assert!(
            times.values().all(|count| (60..150).contains(count)),
            "{times:?}"
        );
    }

    #[test]
    fn canaries_do_worse_than_before_and_than_the_others() {
        let of = |answers, errors, hits| Figures {
            answers,
            errors,
            lookups: answers,
            hits,
        };
        let none = Figures::default();
        let good = of(1000, 1, 900);
        for (own, before, others, is_worse) in [
            // Errors: 1 % more is allowed.
            (of(1000, 11, 900), good, good, false),
            (of(1000, 12, 900), good, good, true),
            (of(1000, 500, 900), good, of(1000, 495, 900), false),
            (of(1000, 500, 900), of(1000, 495, 900), good, false),
            (of(1000, 500, 900), none, none, true),
            (of(49, 49, 0), good, good, false),
            (of(50, 50, 0), good, good, true),
            // Hits: 20 % fewer are allowed.
            (of(1000, 0, 700), good, good, false),
            (of(1000, 0, 699), good, good, true),
            (of(1000, 0, 0), good, of(1000, 0, 100), false),
            (of(1000, 0, 0), none, none, false),
            (none, good, good, false),
        ] {
            let found = worse(&order(1, 1, &["n1"]), &own, &before, &others);
            assert_eq!(
                found.is_some(),
                is_worse,
                "{own:?} {before:?} {others:?}: {found:?}"
            );
        }
    }
}
