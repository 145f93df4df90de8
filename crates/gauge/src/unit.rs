//! Amounts with a unit behind them, as people write them.

/// Text before the first of the units that it ends in, and the worth of that unit. What is the end
/// of another unit stands behind it.
pub(crate) fn split<'a, T: Copy>(text: &'a str, units: &[(&str, T)]) -> Option<(&'a str, T)> {
    units
        .iter()
        .find_map(|(unit, worth)| Some((text.strip_suffix(unit)?.trim(), *worth)))
}
