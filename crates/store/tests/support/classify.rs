//! The sites of entries whose heads begin with their names.

use millpond_store::{Class, Role};

/// `site/…` for an entry, `site+…` for a slice.
pub(crate) fn classify(head: &[u8]) -> Class<'_> {
    let end = head.iter().position(|byte| matches!(byte, b'/' | b'+'));
    let Some((site, rest)) = end.and_then(|end| head.split_at_checked(end)) else {
        return Class::default();
    };
    Class {
        site,
        role: match rest.first() {
            Some(b'+') => Role::Slice,
            _ => Role::Entry,
        },
    }
}
