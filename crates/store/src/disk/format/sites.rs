//! The table of a segment's sites: what the numbers in its summary rows mean.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 2 | number | as in the rows of this segment |
//! | 2 | 1 | length | of the name |
//! | 3 | | name | |

use super::Fields;

/// Appends a site to a table.
pub(crate) fn encode_site(table: &mut Vec<u8>, number: u16, name: &[u8]) {
    let name = name.get(..usize::from(u8::MAX)).unwrap_or(name);
    table.extend_from_slice(&number.to_le_bytes());
    // It was cut to what a byte says.
    table.push(name.len() as u8);
    table.extend_from_slice(name);
}

/// Bytes that a site takes in a table.
pub(crate) fn site_len(name: &[u8]) -> u32 {
    3 + name.len().min(usize::from(u8::MAX)) as u32
}

/// The sites of a table, up to its end or to where it is cut off.
pub(crate) fn decode_sites(table: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut fields = Fields(table);
    std::iter::from_fn(move || {
        let (number, len) = (fields.u16()?, fields.u8()?);
        Some((number, fields.take(usize::from(len))?))
    })
}
