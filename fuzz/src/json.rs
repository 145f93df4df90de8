//! JSON in one spelling: the spelling of a spelling is itself, and a reader of JSON takes both for
//! the same.

use millpond_semantics::json::{Members, spell};

/// Spells a text in both ways.
pub fn run(data: &[u8]) {
    let written = spell(data, Members::AsWritten);
    let sorted = spell(data, Members::Sorted);
    for (members, spelled) in [(Members::AsWritten, &written), (Members::Sorted, &sorted)] {
        if let Some(spelled) = spelled {
            assert_eq!(spell(spelled, members).as_ref(), Some(spelled));
            let read: serde_json::Value = match serde_json::from_slice(data) {
                Ok(read) => read,
                // It reads numbers that have a value only.
                Err(_) => return,
            };
            assert_eq!(serde_json::from_slice(spelled).ok(), Some(read));
        }
    }
    // What can be sorted can be written; what serde reads has a spelling, unless it is deep.
    assert!(sorted.is_none() || written.is_some());
    if written.is_none()
        && data
            .iter()
            .filter(|byte| matches!(byte, b'[' | b'{'))
            .count()
            < 64
    {
        assert!(serde_json::from_slice::<serde_json::Value>(data).is_err());
    }
}
