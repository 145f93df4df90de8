//! Seeds that a model runs.
//!
//! `SEED=n` runs that one alone, `SEEDS=n` so many, from 0 or from the number in `FROM`; without
//! both a model runs its own.

/// The seeds that are asked for, or `own`.
pub(crate) fn seeds(own: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("FROM").unwrap_or(0);
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (first..first + count).collect(),
        (None, None) => own.into_iter().collect(),
    }
}

/// Runs all seeds; the first that fails is named.
pub(crate) fn run_each<T>(
    seeds: &[u64],
    run: impl Fn(u64) -> T + std::panic::RefUnwindSafe,
) -> Vec<T> {
    let one = |seed: &u64| match std::panic::catch_unwind(|| run(*seed)) {
        Ok(outcome) => outcome,
        Err(_) => panic!("SEED={seed} fails"),
    };
    seeds.iter().map(one).collect()
}
