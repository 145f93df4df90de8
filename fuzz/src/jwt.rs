//! Tokens and sets of keys.

use millpond_proxy::handler::auth_jwt::keys::KeySet;
use millpond_proxy::handler::auth_jwt::token::Token;

/// A set of keys whose secret nobody who makes inputs has.
const KEYS: &str = r#"{"keys":[{"kty":"oct","k":"bm9ib2R5IGtub3dzIHRoaXMgc2VjcmV0IG9mIGZvcnR5IGJ5dGVz"},
    {"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
     "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// Takes a token apart, as it is and with parts that are encoded here, and reads a set of keys.
pub fn run(data: &[u8]) {
    let keys = KeySet::parse(KEYS.as_bytes()).expect("it is one");
    check(&keys, data);
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let encoded: Vec<String> = parts.by_ref().map(encode).collect();
    check(&keys, encoded.join(".").as_bytes());
    if let Ok(keys) = KeySet::parse(data)
        && let Ok(token) = Token::parse(encoded.join(".").as_bytes())
    {
        keys.verifies(&token);
    }
}

fn check(keys: &KeySet, text: &[u8]) {
    if let Ok(token) = Token::parse(text) {
        assert!(!token.header.contains_key("crit"), "extensions are refused");
        assert!(token.header.contains_key("alg"), "an algorithm is named");
        assert!(!keys.verifies(&token), "nobody has signed it");
    }
}

fn encode(part: &[u8]) -> String {
    let text = millpond_wire::base64::encode(part);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}
