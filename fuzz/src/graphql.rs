//! Queries of GraphQL: a content and the arguments that say the same have one identity, and no
//! bytes make the parser go too deep.

use millpond_proxy::cache::content_key::graphql::{InQuery, of_content, of_query};

/// Takes bytes as a content, as arguments, and as a document that is sent both ways.
pub fn run(data: &[u8]) {
    let _ = of_content(data);
    let _ = of_query(data);
    let Ok(document) = std::str::from_utf8(data) else {
        return;
    };
    let content = serde_json::json!({ "query": document }).to_string();
    let escaped: String = data.iter().map(|byte| format!("%{byte:02x}")).collect();
    let by_get = match of_query(format!("query={escaped}").as_bytes()) {
        InQuery::One(identity, rest) if rest.is_empty() => Some(identity),
        InQuery::One(..) => panic!("there are no other arguments"),
        InQuery::None | InQuery::Other => None,
    };
    assert_eq!(of_content(content.as_bytes()), by_get);
}
