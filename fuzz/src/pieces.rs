//! Cutting an input into pieces, to show that a parser does not care how its bytes arrive.

use bytes::BytesMut;

/// Takes the first byte of an input as the way to cut the rest.
#[must_use]
pub fn split(data: &[u8]) -> Option<(u8, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((*first, rest))
}

/// The pieces of `bytes`: single bytes, or of growing lengths that `how` decides.
pub fn cut(how: u8, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    let mut state = usize::from(how);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state = state.wrapping_mul(5).wrapping_add(usize::from(how)) % 61;
        let len = if how == 0 { 1 } else { 1 + state };
        let (piece, after) = rest.split_at(len.min(rest.len()));
        rest = after;
        Some(piece)
    })
}

/// Feeds the pieces to `step` until it has a result; what is left over is put behind.
pub fn feed<T>(
    how: u8,
    bytes: &[u8],
    mut step: impl FnMut(&mut BytesMut) -> Option<T>,
) -> (Option<T>, Vec<u8>) {
    let mut buf = BytesMut::new();
    let mut result = None;
    for piece in cut(how, bytes) {
        buf.extend_from_slice(piece);
        if result.is_none() {
            result = step(&mut buf);
        }
    }
    (result, buf.to_vec())
}

/// Feeds everything at once.
pub fn feed_whole<T>(
    bytes: &[u8],
    mut step: impl FnMut(&mut BytesMut) -> Option<T>,
) -> (Option<T>, Vec<u8>) {
    let mut buf = BytesMut::from(bytes);
    let result = step(&mut buf);
    (result, buf.to_vec())
}
