//! No-Vary-Search: what is simplified stays as it is, and what is left of a query is in it.

use millpond_semantics::no_vary_search::Variation;
use millpond_semantics::query::arguments;

/// Reads a field, and simplifies a query by it.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (field, query) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let Some(said) = Variation::parse([field]) else {
        return;
    };
    let mut once = Vec::new();
    said.simplify(query, &mut once);
    assert!(once.iter().all(u8::is_ascii_graphic));
    let mut twice = Vec::new();
    said.simplify(&once, &mut twice);
    assert_eq!(once, twice);
    assert!(arguments(&once).count() <= arguments(query).count());
}
